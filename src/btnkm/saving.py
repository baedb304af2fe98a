"""Files, reports and summaries of a fitted model, and its state as ``io`` writes and reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from .io.models import FittedState, write_model
from .parameters import Priors, Solver, TensorTrain, lasting_parameters

NESTED = 6  # format since which parameters may be nested
#: Names of parameters that cannot change where a fit continues, by those before format ``NESTED``.
_LASTING = {
    "cores": "network",
    "mode_order": "network",
    "basis_prior": "priors.basis",
    "smoothness": "priors.smoothness",
    "anchored": "solver.anchored",
}
SAVED = ("BTNClassifier", "BTNRegressor")


class Saving:
    """Mixin of the estimators: files, reports and the notebook summary; imports are lazy."""

    _lasting: ClassVar[tuple[str, ...]]

    def save(self: Any, path: Any) -> None:
        """Write the fitted model to a file, from which ``btnkm.load(path)`` reads it.

        The file is a zip of JSON and .npy, without pickle. It has everything that predictions and
        ``partial_fit`` need. A model with a full tensor contains its training rows, and a short
        stream of ``partial_fit`` its latest rows. An existing file is replaced only when the new
        one is complete. ``callback``, a ``random_state`` that is a generator and attributes that
        you have added are not saved.

        Parameters
        ----------
        path : str or path
            For example "model.btn".
        """
        write_model(path, self.fitted_state())

    def fitted_state(self: Any) -> FittedState:
        """Return the parameters and fitted attributes that a file holds."""
        kind = type(self)
        name = kind.__name__
        if name not in SAVED or not kind.__module__.startswith(f"{__package__}."):
            raise TypeError(
                "a model must be a BTNRegressor or a BTNClassifier to be saved, got "
                f"{name}; save the part of it that is one."
            )
        check_is_fitted(self)
        self._check_parameters()  # they may have been set since the fit
        parameters = self.get_params(deep=False)
        seed = parameters["random_state"]
        generator = hasattr(seed, "get_state")
        parameters |= {"callback": None, "random_state": None if generator else seed}
        attributes = {
            key.removeprefix("_"): value
            for key, value in vars(self).items()
            if key not in parameters
        }
        if "encode" in attributes:  # a function of the classes, which are an attribute already
            attributes["encode"] = self._encode.args[1:]
        attributes["weights_"] = self.weights_.tolist()
        # the text of a parameter may differ between processes: None stands for an unchanged one
        now = lasting_parameters(self, self._lasting)
        attributes["begun_with"] = {
            key: None if now[key] == text else text for key, text in self._begun_with.items()
        }
        return FittedState(name, parameters, attributes)

    @classmethod
    def from_fitted_state(cls, state: FittedState) -> Self:
        """Return the fitted model with this state, whatever version of btnkm has written it."""
        if state.version < NESTED:
            state = migrated(state)
        default: Any = cls()
        names = set(default.get_params(deep=False))
        if set(state.parameters) != names:
            wrong = ", ".join(sorted(map(str, names ^ set(state.parameters))))
            raise ValueError(f"parameters must be those of {cls.__name__}, got others: {wrong}")
        return cls(**state.parameters).set_fitted_state(state)

    def set_fitted_state(self: Any, state: FittedState) -> Any:
        """Take over the fitted attributes of a state with these parameters, which are checked."""
        self._check_parameters()
        attributes = dict(state.attributes)
        now, labels = lasting_parameters(self, self._lasting), isinstance(self, ClassifierMixin)
        begun_with = attributes["begun_with"]
        if set(begun_with) != set(now) or ("classes_" in attributes) is not labels:
            raise ValueError("attributes must be those of the estimator")
        attributes["begun_with"] = {
            key: now[key] if text is None else text for key, text in begun_with.items()
        }
        if labels:
            attributes["encode"] = self._encoder(attributes["classes_"], *attributes["encode"])
        attributes["weights_"] = np.array(attributes["weights_"], dtype=float)
        # what scikit-learn would not call a fitted attribute is private
        names = {key: key if key.endswith("_") else f"_{key}" for key in attributes}
        vars(self).update({names[key]: value for key, value in attributes.items()})
        return self

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
            Rows that were not used in the fit, to evaluate the predictions. y may be the name of a
            column of X.
        title : str or None
        cv : int, splitter or None
            With ``cv``, X and y are the training rows. Each fold is predicted by a clone that is
            fitted to the other folds. All rows have the same weight.

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


def migrated(state: FittedState) -> FittedState:
    """Return a state from before format ``NESTED`` with the present parameters."""
    begun_with = dict(state.attributes["begun_with"])
    for old, new in _LASTING.items():
        text = begun_with.pop(old)
        if new in begun_with:  # of several parameters, the first that has changed
            text = text if begun_with[new] is None else begun_with[new]
        begun_with[new] = text
    attributes = state.attributes | {"begun_with": begun_with}
    parameters = migrate_parameters(state.parameters)
    return replace(state, parameters=parameters, attributes=attributes)


def migrate_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a file from before format ``NESTED`` as the present ones."""
    rest = dict(parameters)
    train = TensorTrain(order=rest.pop("mode_order"), cores=rest.pop("cores"))
    train.check()  # whether or not it is used
    if rest["network"] == "tt" and repr(train) != repr(TensorTrain()):
        rest["network"] = train
    names = {"rank_prior": "rank", "basis_prior": "basis"}
    if "class_weight" not in rest:  # classifiers have no noise
        names["noise_prior"] = "noise"
    priors = {new: rest.pop(old) for old, new in names.items()}
    priors = {name: value for name, value in priors.items() if value is not None}
    given = {
        "priors": Priors(**priors, smoothness=rest.pop("smoothness")),
        "solver": Solver(**{field.name: rest.pop(field.name) for field in fields(Solver)}),
    }
    for name, group in given.items():
        rest[name] = None if repr(group) == repr(type(group)()) else group
    return rest
