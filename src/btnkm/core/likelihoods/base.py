"""What the engine needs of a likelihood: weights, responses and a term of the ELBO.

With a local variable per row where one is needed, log p(y_n | f_n) is bounded from below by a
quadratic in f_n,

    scale * (response_n f_n - weight_n f_n^2 / 2) + terms without f,

so that every update of the coefficients is one of a weighted linear model. ``rows`` returns the
weights and responses that make the bound tightest for the current moments of f, and sums over rows.
``learn`` updates the parameters of the likelihood from these sums. ``propose`` may return other
parameters, which are kept if they raise the ELBO. ``terms`` returns the terms of the ELBO. Sample
weights s_n multiply every contribution of a row.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from array_api_compat import array_namespace

from ..formula import Formula
from ..gamma import Gamma

Array = Any
LOG_2 = float(np.log(2.0))
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
LOG_STEP = 0.1  # to either side of the logarithm of a parameter: for slope and curvature in it
WARM_NOISE = 0.01  # noise variance held in the warm phase, in units of var(y)


class Rows(NamedTuple):
    """Weights and responses of a block of rows, and the sums that ``learn`` needs.

    Attributes
    ----------
    weight, response : array of shape (n,), or (n, K) where f has K outputs
        Weights, and weights times working responses.
    sums : tuple of arrays
    """

    weight: Array
    response: Array
    sums: tuple[Array, ...]


class Begin(NamedTuple):
    """What a fit starts from: targets as the engine sees them, y = shift + scale * target.

    Attributes
    ----------
    target : ndarray of shape (n,)
    likelihood : Likelihood
        With the parameters of the warm phase.
    shift, scale : float
    """

    target: np.ndarray
    likelihood: Likelihood
    shift: float
    scale: float


class Likelihood(Protocol):
    """What the engine needs of a likelihood, and regressors of one for numbers.

    Attributes
    ----------
    fixed : bool
        Whether weights and responses are the same for every f.
    additive : bool
        Whether the mean of y is f.
    of_labels : bool
        Whether y is a class: BTNClassifier's.
    worth : float
        How much one row says about f, relative to a number with Gaussian noise.
    gentle : float
        Power of the smoothness prior in the warm phase of fits to few rows.

    Notes
    -----
    Some attributes and methods are optional:

    - ``check(y)`` raises a ValueError for targets that the likelihood is not for. ``begin`` checks
      those of a first fit; this is for rows that a fit continues with.
    - ``title`` (str) is its name in summaries and reports, ``task`` (str) what a model with it
      does, and ``learned`` (tuple of str) the parameters that summaries show.
    - Where the mean of y is not f, effects are on the scale of ``level + f``. ``unit`` (str) names
      this scale, with {} for the name of the target, and ``doubles`` (str), for reports, what a
      difference of 0.7 doubles.
    - ``file_fields`` (dict) declares what a file holds; see ``FILE_FIELDS``.
    - ``exposed(log_exposure)`` returns the likelihood of rows whose mean is their exposure, (n,),
      times that of an exposure of 1; ``begin`` then has a third argument, the exposures.
    - ``portable()`` returns the distribution of y as plain data, for ONNX and the what-if panel;
      see ``density_form``.
    """

    fixed: ClassVar[bool]
    additive: ClassVar[bool]
    of_labels: ClassVar[bool]
    worth: ClassVar[float]
    gentle: ClassVar[float]

    @property
    def scale(self) -> float:
        """The factor before weights and responses, common to all rows."""

    @property
    def noise_std(self) -> float:
        """Standard deviation of additive noise; NaN where there is none."""

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weights, responses and sums, given y, sample weights s, E[f] and E[f^2]: (n,)."""

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> Self:
        """Return the updated likelihood; ``n`` is the sum of s, ``prior`` that of the noise."""

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return weights and responses for the warm phase, which need not bound anything."""

    def propose(self, sums: tuple[Any, ...]) -> Self | None:
        """Return the likelihood with parameters that may be better, or None."""

    def terms(self, n: float, prior: Gamma) -> dict[str, float]:
        """Return its terms of the ELBO by name."""

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Check y (n,); return targets and the likelihood for the warm phase."""

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Any:
        """Return the distribution of y (see densities.py) for f ~ N(mean, variance), each (n,)."""

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of y for each f: (n,)."""


@dataclass(frozen=True)
class Bounded:
    """What likelihoods whose weights depend on f have in common: the sum of the rows' bounds.

    Attributes
    ----------
    value : float
        The sum of the rows' bounds, at their best.
    """

    fixed: ClassVar[bool] = False
    additive: ClassVar[bool] = False
    worth: ClassVar[float] = 0.25
    gentle: ClassVar[float] = 1.5  # a stronger prior would outweigh such rows
    learned: ClassVar[tuple[str, ...]] = ()
    scale: ClassVar[float] = 1.0
    noise_std: ClassVar[float] = np.nan
    value: float = field(default=np.nan, kw_only=True, repr=False)

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> Self:
        """Store the sum of the rows' bounds."""
        return replace(self, value=float(sums[0]))

    def terms(self, n: float, prior: Gamma) -> dict[str, float]:
        """Return the sum of the rows' bounds."""
        return {"likelihood": self.value}


@runtime_checkable
class Curved(Protocol):
    """A likelihood whose bound is more curved than its logarithm, so that q is refined at the end.

    The Newton refinement replaces the bound by a quadratic approximation of the likelihood itself.
    Parameters of the likelihood may be updated as well: ``expected_sums(y, s, mean, square)``
    returns sums over rows, and ``refined(sums, n)`` the likelihood.
    """

    def expected(
        self, y: Array, s: Array | None, mean: Array, square: Array
    ) -> tuple[Array, Array]:
        """Return weights E[-l''] and responses E[l'] + weight E[f], l' = s d log p(y | f) / df."""

    def moved(self, step: Any) -> Any:
        """Return the likelihood with the offset of every output moved by a step."""


def of_rows(likelihood: Any, features_of: Callable[[int], tuple[Array, Array]]) -> Any:
    """Return the likelihood of some rows: it is another one only where it depends on the inputs."""
    return likelihood.at(features_of) if hasattr(likelihood, "at") else likelihood


def of_targets(likelihood: Any, y: Array) -> tuple[Any, Array]:
    """Return the likelihood and the targets (n,) of rows that may have an exposure.

    With exposures y is (n, 2): the counts, and the logarithms of the exposures.
    """
    if y.ndim == 1:
        return likelihood, y
    return likelihood.exposed(y[:, 1]), y[:, 0]


def propose(likelihood: Any, sums: tuple[Any, ...] | None, attempt: int) -> Any:
    """Return what a likelihood proposes; one with several parameters may have several attempts.

    ``sums`` are None where there were earlier rows, whose sums are for other parameters.
    """
    if hasattr(likelihood, "at"):
        return likelihood.propose(sums, attempt)
    if sums is not None and getattr(likelihood, "several_attempts", False):
        return likelihood.propose(sums, attempt)
    return None if sums is None or attempt else likelihood.propose(sums)


def of_past(likelihood: Any, sums: tuple[Any, ...], before: Any) -> tuple[Any, ...]:
    """Return sums over earlier rows for a likelihood, given those for the likelihood ``before``.

    They are other sums only where the likelihood depends on the inputs.
    """
    return likelihood.shifted(sums, before) if hasattr(likelihood, "at") else sums


def learned(
    likelihood: Any, sums_of: Callable[[Any], tuple[Any, ...]], n: float, prior: Gamma
) -> Any:
    """Return a likelihood after one update of its parameters, from sums over rows.

    ``sums_of`` returns the sums for the current f, given a likelihood.
    """

    def elbo(likelihood: Any) -> float:
        return float(sum(likelihood.terms(n, prior).values()))

    sums, attempt = sums_of(likelihood), 0
    likelihood = likelihood.learn(sums, n, prior)
    sums = sums_of(likelihood)
    while (other := propose(likelihood, sums, attempt)) is not None:
        other = other.learn(sums_of(other), n, prior)
        if elbo(other) >= elbo(likelihood):
            return other
        attempt += 1
    return likelihood


def density_form(formula: Formula, *, discrete: bool = False, **outputs: Any) -> dict[str, Any]:
    """Return the distribution of y as plain data: a formula of "mean" and "variance" of f, and "y".

    Its outputs are the mean of y, its variance in two parts, "model_variance" and "noise_variance",
    the "width" on which the density changes, "cdf" and "pdf". Noise with heavy tails also has a
    "central_variance", that of normal noise with the same central 95%. Where y is ``discrete``, it
    is 0, 1, 2, .., "pdf" is the probability of y, and both are only asked for at these values.

    Where the noise varies, the moments "g_mean" and "g_variance" of its log precision g are inputs.
    """
    return {"kind": "density", "discrete": discrete, **formula.plain(**outputs)}


def quadrature(mean: Array, square: Array, offset: float = 0.0) -> Iterator[tuple[float, Array]]:
    """Yield weights and points that integrate over f + offset, given E[f] and E[f^2]: (n,)."""
    xp = array_namespace(mean)
    std = xp.sqrt(xp.clip(square - mean * mean, 0.0))
    for z, share in zip(_NODES.tolist(), (_WEIGHTS / _WEIGHTS.sum()).tolist(), strict=True):
        yield share, mean + offset + std * z


def polya_gamma(c: Array) -> tuple[Array, Array]:
    """Return E[w] of a Polya-Gamma(1, c) variable, tanh(c / 2) / (2 c), and log cosh(c / 2)."""
    xp = array_namespace(c)
    small = c < 1e-4  # where the quotient loses its digits the series has them all
    safe = xp.where(small, xp.ones_like(c), c)
    weight = xp.where(small, 0.25 - c * c / 48.0, xp.tanh(0.5 * safe) / (2.0 * safe))
    return weight, 0.5 * c + xp.log1p(xp.exp(-c)) - LOG_2


def flattened_sigmoid(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Return E[sigma(x)] to about .01, x ~ N(mean, variance), and its slope in the mean.

    sigma is much like a normal distribution function, whose average is one of less slope.
    """
    xp = array_namespace(mean)
    flat = 1.0 / xp.sqrt(1.0 + (np.pi / 8.0) * variance)
    t = xp.tanh(0.5 * flat * mean)
    return 0.5 * (1.0 + t), 0.25 * flat * (1.0 - t * t)


def bent(x: Array, c2: Array, w: Array) -> Array:
    """Return the curvature of log cosh(c / 2) in E[x], where c^2 = E[x^2] and w = E[w]."""
    xp = array_namespace(x)
    known = x * x / xp.where(c2 > 0.0, c2, xp.ones_like(c2))  # 1 where x has no variance
    return w * (1.0 - known) + known * (0.25 - w * w * c2)


def newton_step(below: Any, at: Any, above: Any) -> float:
    """Return Newton's step to the maximum of a function known at -LOG_STEP, 0 and LOG_STEP."""
    below, at, above = float(below), float(at), float(above)
    slope = 0.5 * (above - below) / LOG_STEP
    curvature = (2.0 * at - above - below) / LOG_STEP**2
    step = slope / curvature if curvature > 0 else np.sign(slope)
    return float(np.clip(step, -1.0, 1.0))


def weighted_quantile(values: np.ndarray, weight: np.ndarray, level: float) -> float:
    """Return the smallest value with at least this fraction of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(total, level * total[-1])]])


def mean_and_scale(y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Return the weighted mean and standard deviation of y; the latter is 1 if y is constant."""
    if np.all(y == y[0]):
        return float(y[0]), 1.0
    mean = float(np.average(y, weights=weight))
    return mean, float(np.sqrt(np.average((y - mean) ** 2, weights=weight))) or 1.0


def check_positive(name: str, value: Any) -> None:
    """Raise a ValueError unless ``value`` is a positive finite number."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0.0 < float(value) < np.inf:
        raise ValueError(
            f"{name} must be a positive finite number, got {value!r}; leave it out for the default."
        )


#: Kinds of field that ``file_fields`` may declare, and what a value must be.
FILE_FIELDS = {
    "gamma": "a Gamma distribution of one number",
    "number": "a finite float",
    "positive": "a finite float above 0",
    "float": "a float, which may be NaN or infinite",
    "flag": "a bool",
    "floats": "a tuple of floats, as many as the class has by default",
    "numbers": "a tuple of finite floats, one for each output of f",
    "noise": "a Gaussian or Student-t likelihood, or its name",
    "limits": "a tuple of two floats that are not negative, the second may be infinite",
}
