"""Methods of a fitted model that write files, reports and summaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .saving import Saving


class Sharing(Saving):
    """Files, reports and the notebook summary of a fitted model; imports are lazy."""

    def to_onnx(self) -> Any:
        """Return the fitted model as an ONNX graph, for runtimes without Python.

        The graph has one input of shape (n, 1) for each column, with the column's name (followed
        by "_" if an output has the same name). Numbers, and dates and durations in microseconds,
        are doubles, NaN where missing; text is empty where missing. A regressor has the outputs
        ``mean`` and ``std`` of ``predict(X, return_std=True)``, doubles of shape (n, 1). A
        classifier has the outputs ``label`` (n, 1) and ``probabilities`` (n, n_classes). Bases
        and likelihoods must be those of the library. Needs the extra ``onnx``.

        Returns
        -------
        onnx.ModelProto
            ``onnx.save(model.to_onnx(), "model.onnx")`` writes it to a file.
        """
        from .io.onnx import to_onnx

        return to_onnx(self)

    def explain_local(self, X: Any, *, return_std: bool = True) -> Any:
        """Return the contributions of inputs to predictions; see ``explain.explain_local``."""
        from .explain import explain_local

        return explain_local(self, X, return_std=return_std)

    def report(
        self, path: Any, X: Any = None, y: Any = None, *, title: str | None = None, cv: Any = None
    ) -> Any:
        """Write one offline HTML page about the model.

        The page shows the accuracy of the model, the importance and effect of each input, and
        warnings. A panel with a control for each input predicts in the browser.

        Parameters
        ----------
        path : str or path
            For example "model.html".
        X, y : table of shape (n, inputs) and array of shape (n,), or None
            Rows that the fit has not seen, to evaluate the predictions; y may be the name of a
            column of X.
        title : str or None
        cv : int, splitter or None
            With ``cv``, X and y are the training rows, and each fold is predicted by a clone that
            is fitted to the others. All rows have the same weight.

        Returns
        -------
        pathlib.Path
        """
        from .report.page import report

        return report(self, path, X, y, title=title, cv=cv)

    @property
    def _repr_html_(self: Any) -> Callable[[], str]:
        """The notebook display: scikit-learn's diagram, and a summary below it."""
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
        except Exception:  # a summary that fails must not hide the diagram
            return ""
