"""Bayesian tensor-network kernel machines for regression and classification of tables."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from . import bases, scorers
    from .classifier import BTNClassifier
    from .core.gamma import Gamma
    from .loading import load
    from .parameters import Priors, Solver, TensorTrain
    from .predictive import PredictiveDistribution
    from .regressor import BTNRegressor
    from .warn import TargetHint

__all__ = [
    "BTNClassifier",
    "BTNRegressor",
    "Gamma",
    "PredictiveDistribution",
    "Priors",
    "Solver",
    "TargetHint",
    "TensorTrain",
    "__version__",
    "bases",
    "load",
    "scorers",
]

_HOME = {
    "BTNClassifier": "btnkm.classifier",
    "BTNRegressor": "btnkm.regressor",
    "Gamma": "btnkm.core.gamma",
    "PredictiveDistribution": "btnkm.predictive",
    "Priors": "btnkm.parameters",
    "Solver": "btnkm.parameters",
    "TargetHint": "btnkm.warn",
    "TensorTrain": "btnkm.parameters",
    "load": "btnkm.loading",
}


def __getattr__(name: str) -> Any:
    # names are loaded when asked for: a helper process runs restarts without scikit-learn, and is
    # ready in a third of the time
    if name in ("bases", "scorers"):
        return import_module(f"btnkm.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'btnkm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
