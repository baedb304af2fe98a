"""Likelihoods: what y says about f, in a form that keeps every update closed.

A new one is one class in a module of its own and one line in ``LIKELIHOODS``: its words, what a
file holds of it and its portable form are in the class.
"""

from typing import Any

from .base import (
    FILE_FIELDS,
    WARM_NOISE,
    Begin,
    Curved,
    Likelihood,
    Rows,
    learned,
    of_past,
    of_rows,
    of_targets,
    propose,
)
from .counts import NegativeBinomial, Poisson
from .gamma_mean import GammaLikelihood
from .gaussian import Gaussian
from .logistic import Bernoulli, Logistic
from .softmax import Softmax
from .student_t import StudentT
from .transformed import LogitNormal, LogNormal, Transformed, is_logarithm, of_noise
from .varying import Varying, VaryingRows, joined
from .zero_inflated import ZeroInflatedNegativeBinomial

#: Likelihoods of numbers, by the name that users give.
LIKELIHOODS: dict[str, Any] = {
    "gaussian": Gaussian,
    "student_t": StudentT,
    "negative_binomial": NegativeBinomial,
    "poisson": Poisson,
    "gamma": GammaLikelihood,
    "log_normal": LogNormal,
    "logit_normal": LogitNormal,
    "zero_inflated_negative_binomial": ZeroInflatedNegativeBinomial,
}
#: Likelihoods of classes: of two, and of more.
CLASS_LIKELIHOODS: dict[str, Any] = {"bernoulli": Bernoulli, "softmax": Softmax}
#: The library's own, which files may hold; a class that is registered later is not among them.
BUILT_IN: tuple[Any, ...] = (*LIKELIHOODS.values(), *CLASS_LIKELIHOODS.values())

__all__ = [
    "BUILT_IN",
    "CLASS_LIKELIHOODS",
    "FILE_FIELDS",
    "LIKELIHOODS",
    "WARM_NOISE",
    "Begin",
    "Bernoulli",
    "Curved",
    "GammaLikelihood",
    "Gaussian",
    "Likelihood",
    "LogNormal",
    "Logistic",
    "LogitNormal",
    "NegativeBinomial",
    "Poisson",
    "Rows",
    "Softmax",
    "StudentT",
    "Transformed",
    "Varying",
    "VaryingRows",
    "ZeroInflatedNegativeBinomial",
    "joined",
    "learned",
    "is_logarithm",
    "of_noise",
    "of_past",
    "of_rows",
    "of_targets",
    "propose",
]
