"""Noise whose level depends on the inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from ..arrays import host
from ..densities import Scaled
from ..formula import Formula
from ..gamma import Gamma
from ..sums import Sums, SumsTerms, refine, smaller
from .base import Array, Begin, Rows, density_form
from .gaussian import Gaussian
from .student_t import StudentT

_STEPS = 3  # of coefficients and precisions in turn, in an update of g
_SHORTER = (1.0, 0.3)  # fractions of a step by the Fisher information, where Newton's fails
_ENOUGH = 1e-3  # nats that a step must promise
_NEARLY = 0.03  # nats that a step promises at most once groups may be dropped
_MOST = 100.0  # logarithm of a factor of the noise; a step that goes beyond is never taken
_OWN_SUMS = 5  # sums over rows that are not those of the noise without g
# variance of f that is added in every row, in units of var(y): without it the noise of rows that f
# interpolates would fall to zero, and the density grow without limit
FLOOR = 1e-10
_LEAST_ERROR = 0.01  # of the squared errors of earlier rows, what is left for any other q(g)


@dataclass(frozen=True)
class Varying:
    """Additive noise with precision tau exp(g(x)), where g is a sum of main effects of the inputs.

    q(g) is Gaussian, as that of the main effects of f (see sums.py); the precisions of its groups
    of functions are learned, so that g vanishes where the data do not speak. Given the moments of
    f, a row has noise of weight exp(E[g] + Var[g] / 2), and log p(y | f, g) as a function of g is
    that of a gamma regression with Fisher weight 1/2.

    Attributes
    ----------
    noise_at_zero : Gaussian or StudentT
        The noise where g = 0.
    sums : Sums
        q of the coefficients of g.
    first : int
        The position of its first input among the features of a row.
    learned_from : tuple of ndarray
        Sums over rows of s z z^T, w z z^T, s z, w z and r z: z are the functions of g, s sample
        weights, w squared errors times their weights, and r = s E[exp(-g)].
    """

    title: ClassVar[str] = "noise that varies"
    fixed: ClassVar[bool] = False
    additive: ClassVar[bool] = True
    of_labels: ClassVar[bool] = False
    worth: ClassVar[float] = 1.0
    gentle: ClassVar[float] = 3.0
    noise_at_zero: Gaussian | StudentT
    sums: Sums = field(repr=False)
    first: int = field(repr=False)
    learned_from: tuple[np.ndarray, ...] = field(default=(), repr=False)

    @classmethod
    def over(cls, noise: Gaussian | StudentT, effects: Any, first: int) -> Varying:
        """Return noise that does not vary yet, given the functions that it may vary with."""
        return cls(noise, Sums.begin(effects, 1), first)

    @property
    def holds(self) -> bool:
        """Whether the warm phase holds the noise, as it does that without g: see ``Sweeper``."""
        return self.noise_at_zero.fixed

    @property
    def scale(self) -> float:
        """E[tau]."""
        return self.noise_at_zero.scale

    @property
    def dof(self) -> float | None:
        """The degrees of freedom of Student-t noise."""
        noise: Any = self.noise_at_zero  # of Gaussian noise, an AttributeError is the answer
        dof: float | None = noise.dof
        return dof

    @property
    def noise(self) -> Gamma:
        """q(tau)."""
        return self.noise_at_zero.noise

    @property
    def noise_std(self) -> float:
        """Square root of the mean noise variance of the rows."""
        if not self.learned_from:
            return self.noise_at_zero.noise_std
        mean = float(self.learned_from[-1][0]) / float(self.learned_from[2][0])
        return self.noise_at_zero.noise_std * float(np.sqrt(mean))

    def at(self, features_of: Callable[[int], tuple[Array, Array]]) -> VaryingRows:
        """Return the noise of some rows, given their features."""
        terms = SumsTerms.of(self.sums, self.first)
        z = terms.features(features_of)
        return VaryingRows(self.noise_at_zero, z, terms.means(z)[:, 0], terms.variances(z)[:, 0])

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Begin as without g."""
        begin = self.noise_at_zero.begin(y, weight)
        noise: Any = begin.likelihood
        varying: Any = replace(self, noise_at_zero=noise)
        return begin._replace(likelihood=varying)

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> Varying:
        """Update q(tau) and what else the noise without g has."""
        noise: Any = self.noise_at_zero.learn(sums[:-_OWN_SUMS], n, prior)
        own = tuple(np.asarray(part) for part in sums[-_OWN_SUMS:])
        return replace(self, noise_at_zero=noise, learned_from=own)

    def shifted(self, sums: tuple[Any, ...], before: Varying) -> tuple[Any, ...]:
        """Return sums over earlier rows as they are for this q(g), given those for another.

        The weights exp(E[g] + Var[g] / 2) of these rows follow q(g) to second order, so that the
        posterior of earlier rows, a Gaussian, is the prior of those to come.
        """
        error, *rest = sums[:-_OWN_SUMS]
        products, curved, total, pulled, inverse = sums[-_OWN_SUMS:]
        step = self.sums.mean[0] - before.sums.mean[0]
        bend = curved @ step
        change = 0.5 * float(np.sum(curved * (self.sums.cov[0] - before.sums.cov[0])))
        moved = float(error) + float(step @ (pulled + 0.5 * bend)) + change
        factor = np.exp(np.clip(-float(step @ inverse) / float(inverse[0]), -_MOST, _MOST))
        own = products, curved, total, pulled + bend, factor * inverse
        return max(moved, _LEAST_ERROR * float(error)), *rest, *own

    def propose(self, sums: tuple[Any, ...] | None, attempt: int = 0) -> Varying | None:
        """Return a Newton step in g with its precisions; attempts are ever more careful.

        The first has the curvature of the ELBO, which is zero for rows without errors; the others
        have its expectation, the Fisher information, and are shorter. The level of g stays what it
        is, as tau follows it. Without ``sums`` there are rows of earlier batches: the noise where
        g = 0 has no proposal for these, and no curve is lost, as it could not return.
        """
        if attempt > len(_SHORTER):
            return None
        products, curved, total, pulled, _ = self.learned_from
        gram = 0.5 * (products if attempt else self.scale * curved)[None]
        slope = 0.5 * (total - self.scale * pulled)
        linear = (gram[0] @ self.sums.mean[0] + slope)[None]
        new, _ = refine(self.sums, gram, linear, _STEPS)
        promised = new.value(gram, linear) - self.sums.value(gram, linear)
        if promised < _NEARLY:  # not before, as all curves are small at first
            fewer = self.sums
            if sums is not None:
                fewer = smaller(self.sums, gram, linear, negligible=False)
            if fewer is self.sums and promised < _ENOUGH:
                return None
            new = new if fewer is self.sums else fewer
        if attempt:
            before = self.sums.mean[:, self.sums.places_of(new)]
            new = replace(new, mean=before + _SHORTER[attempt - 1] * (new.mean - before))
        noise: Any = self.noise_at_zero
        if attempt == 0 and sums is not None:
            noise = noise.propose(sums[:-_OWN_SUMS]) or noise
        mean, level = new.mean.copy(), self.sums.mean[0, 0]
        rise = float(np.clip(mean[0, 0] - level, -_MOST, _MOST))
        mean[0, 0] = level
        noise = noise.with_noise(np.exp(-rise) / noise.scale)
        return replace(self, noise_at_zero=noise, sums=replace(new, mean=mean))

    def terms(self, n: float, prior: Gamma) -> dict[str, float]:
        """Return the terms of the ELBO: those without g, E[g] and KL divergences of g."""
        terms = self.noise_at_zero.terms(n, prior)
        terms["likelihood"] += 0.5 * float(self.learned_from[2] @ self.sums.mean[0])
        weights, precisions = self.sums.terms().values()
        return terms | {"noise curves": weights, "noise curves precisions": precisions}

    def with_noise(self, variance: float) -> Varying:
        """Return a copy with 1 / E[tau] equal to ``variance``."""
        return replace(self, noise_at_zero=self.noise_at_zero.with_noise(variance))

    def portable(self) -> dict[str, Any]:
        """Return the distribution of y as plain data: that of the noise without g, but scaled."""
        formula, plain = Formula(), self.noise_at_zero.portable()
        mean, variance, y = map(formula.input, ("mean", "variance", "y"))
        g_mean, g_variance = map(formula.input, ("g_mean", "g_variance"))
        spread = (g_mean * -0.5 + g_variance * 0.25).exp()
        square = spread * spread
        inputs = {"mean": mean / spread, "variance": variance / square, "y": y / spread}
        outputs = formula.include(plain, inputs)
        noise = {
            name: square * outputs[name]
            for name in ("noise_variance", "central_variance")
            if name in outputs
        }
        return density_form(
            formula,
            mean=mean,
            model_variance=variance,
            **noise,
            width=spread * outputs["width"],
            cdf=outputs["cdf"],
            pdf=outputs["pdf"] / spread,
        )

    def recalibrated(self, factor: float, dof: float) -> Varying:
        """Return a copy with ``factor`` times the noise variance and at most ``dof``."""
        return replace(self, noise_at_zero=self.noise_at_zero.recalibrated(factor, dof))


@dataclass(frozen=True)
class VaryingRows:
    """The noise of some rows; for these it is a likelihood.

    Attributes
    ----------
    noise : Gaussian or StudentT
        Where g = 0.
    z : array of shape (n, P)
        The functions of g.
    mean, variance : array of shape (n,)
        E[g] and Var[g].
    """

    additive: ClassVar[bool] = True
    noise: Gaussian | StudentT
    z: Array
    mean: Array
    variance: Array

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weights, responses and sums: those of y exp(g / 2), whose noise is constant."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        square = square + FLOOR
        factor = self.factor
        root = xp.sqrt(factor)
        rows = self.noise.rows(root * y, s, root * mean, factor * square)
        error = rows.weight * factor * xp.clip(y * y - 2.0 * y * mean + square, 0.0)
        products = (self.z.T @ (self.z * part[:, None]) for part in (s, error))
        own = (*products, *(self.z.T @ part for part in (s, error, s * self.spread**2)))
        return Rows(factor * rows.weight, root * rows.response, (*rows.sums, *own))

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return weights and responses for the warm phase."""
        xp = array_namespace(f)
        factor = self.factor
        root = xp.sqrt(factor)
        weight, response = self.noise.newton(root * y, s, root * f)
        return factor * weight, root * response

    def recalibrated(self, factor: float, dof: float) -> VaryingRows:
        """Return a copy with ``factor`` times the noise variance and at most ``dof``."""
        return replace(self, noise=self.noise.recalibrated(factor, dof))

    @property
    def factor(self) -> Array:
        """What multiplies the precision of the noise: E[exp(g)]."""
        return _exp(self.mean + 0.5 * self.variance)

    @property
    def spread(self) -> Array:
        """What multiplies the standard deviation of the noise: sqrt(E[exp(-g)])."""
        xp = array_namespace(self.mean)
        return xp.exp(xp.clip(0.25 * self.variance - 0.5 * self.mean, -_MOST, _MOST))

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Scaled:
        """Return the distribution of y for f ~ N(mean, variance)."""
        spread = np.asarray(host(self.spread), dtype=float)
        return Scaled(self.noise.predictive(mean / spread, variance / spread**2), spread)

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of y for each f."""
        spread = np.asarray(host(self.spread), dtype=float)
        return np.asarray(spread * self.noise.draw(f / spread, rng))


def _exp(x: Array) -> Array:
    """Return exp(x), or NaN where it is beyond all reason: the ELBO of such a step is NaN, too."""
    xp = array_namespace(x)
    far = xp.abs(x) > _MOST
    return xp.where(far, xp.nan * xp.ones_like(x), xp.exp(xp.where(far, xp.zeros_like(x), x)))


def joined(blocks: list[Any]) -> Any:
    """Return the likelihood of several blocks of rows together."""
    if not isinstance(blocks[0], VaryingRows):
        return blocks[0]
    xp = array_namespace(blocks[0].mean)
    parts = [xp.concat([getattr(b, name) for b in blocks]) for name in ("z", "mean", "variance")]
    return VaryingRows(blocks[0].noise, *parts)
