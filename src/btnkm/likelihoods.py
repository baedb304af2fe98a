"""Likelihoods for ``BTNRegressor(likelihood=...)``; a new one is one class like these."""

from .core.likelihoods import Begin, Gaussian, Likelihood, NegativeBinomial, Rows, StudentT

__all__ = ["Begin", "Gaussian", "Likelihood", "NegativeBinomial", "Rows", "StudentT"]
