"""The Gamma distribution: the one prior and the one posterior of every precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Gamma:
    """Gamma distribution by shape and rate, with mean shape / rate.

    Parameters
    ----------
    shape, rate : float or ndarray
        Both positive; arrays broadcast against each other.

    Examples
    --------
    >>> from btnkm import Gamma
    >>> Gamma(shape=4.0, rate=2.0).mean
    2.0
    """

    shape: Any
    rate: Any

    @cached_property
    def mean(self) -> Any:
        """E[x]."""
        return self.shape / self.rate

    @cached_property
    def log_mean(self) -> Any:
        """E[log x]."""
        return digamma(self.shape) - np.log(self.rate)

    def kl(self, prior: Gamma) -> Any:
        """Return KL(self || prior), elementwise."""
        a, b, a0, b0 = self.shape, self.rate, prior.shape, prior.rate
        return (
            (a - a0) * digamma(a)
            - gammaln(a)
            + gammaln(a0)
            + a0 * (np.log(b) - np.log(b0))
            + a * (b0 / b - 1.0)
        )

    def among(self, more: Gamma) -> Gamma:
        """Return these distributions in the place of as many first ones of ``more``."""
        size = len(self.rate)
        shape, rate = (
            np.concatenate([np.broadcast_to(a, size), np.broadcast_to(b, len(more.rate))[size:]])
            for a, b in ((self.shape, more.shape), (self.rate, more.rate))
        )
        return Gamma(shape, rate)

    def take(self, keep: Any) -> Gamma:
        """Return the distributions at the index ``keep``; a scalar parameter serves them all."""
        return Gamma(*(p if np.ndim(p) == 0 else p[keep] for p in (self.shape, self.rate)))
