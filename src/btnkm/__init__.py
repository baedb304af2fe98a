"""Bayesian tensor-network kernel machines: accurate predictions with honest intervals."""

from .core.gamma import Gamma
from .estimators import BTNRegressor
from .predictive import PredictiveDistribution

__version__ = "0.1.0"

__all__ = ["BTNRegressor", "Gamma", "PredictiveDistribution", "__version__"]
