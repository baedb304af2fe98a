"""What people do with a fitted model: keep it, ship it, show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .saving import Saving


class Sharing(Saving):
    """Files and pictures of a fitted model; what they need is imported when asked for."""

    def to_onnx(self) -> Any:
        """Return the fitted model as an ONNX graph, for runtimes without Python.

        There is an input for each column, by its name (with "_" behind it if an output has that
        name): numbers, dates and durations in microseconds as doubles (n, 1), NaN where missing;
        text (n, 1), empty where missing. Outputs of a regressor are ``mean`` and ``std``, as of
        ``predict(X, return_std=True)``: doubles (n, 1). Those of a classifier are ``label`` (n, 1)
        and ``probabilities`` (n, n_classes). Bases and likelihoods must be the library's. Needs
        the extra ``onnx``.

        Returns
        -------
        onnx.ModelProto
            ``onnx.save(model.to_onnx(), "model.onnx")`` writes it to a file.
        """
        from .io.onnx import to_onnx

        return to_onnx(self)

    def explain_local(self, X: Any, *, return_std: bool = True) -> Any:
        """Return what each input contributes to each prediction; see ``explain.explain_local``."""
        from .explain import explain_local

        return explain_local(self, X, return_std=return_std)

    def report(
        self, path: Any, X: Any = None, y: Any = None, *, title: str | None = None, cv: Any = None
    ) -> Any:
        """Write one HTML page about the model, complete in itself: to read, to send, to try out.

        It says how good the model is, what matters and how, what to be warned of, and predicts in
        the browser: a slider or a menu for each input.

        Parameters
        ----------
        path : str or path
            For example "model.html".
        X, y : table of shape (n, inputs) and array of shape (n,), or None
            Rows that the fit has not seen, for figures of how good predictions are; y may be the
            name of a column of X.
        title : str or None
        cv : int, splitter or None
            With ``cv``, X and y are the rows of the fit, and each part of them is predicted by a
            clone fitted to the others, all rows with the same weight.

        Returns
        -------
        pathlib.Path
        """
        from .report.page import report

        return report(self, path, X, y, title=title, cv=cv)

    @property
    def _repr_html_(self: Any) -> Callable[[], str]:
        """What a notebook shows: scikit-learn's picture, and below it what was found."""
        picture = super()._repr_html_  # type: ignore[misc]  # none if that is switched off
        return lambda: picture() + self._summary_html()

    def _repr_mimebundle_(self: Any, **kwargs: Any) -> dict[str, str]:
        shown: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in shown:
            shown["text/html"] += self._summary_html()
        return shown

    def _summary_html(self: Any) -> str:
        from .explain import summary

        if not hasattr(self, "posterior_"):
            return ""
        try:
            return summary(self)._repr_html_()
        except Exception:  # whoever looks at a model wants to see it, whatever is wrong with it
            return ""
