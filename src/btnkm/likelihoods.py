"""Likelihoods for ``BTNRegressor(likelihood=...)``; a new one is one class like these."""

from .core.likelihoods import *  # noqa: F403
from .core.likelihoods import LIKELIHOODS, Begin, Likelihood, Rows

__all__ = [
    "LIKELIHOODS",
    *(kind.__name__ for kind in (*LIKELIHOODS.values(), Begin, Likelihood, Rows)),
]
