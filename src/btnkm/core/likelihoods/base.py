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

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from ..formula import Formula, Term
from ..gamma import Gamma

Array = Any
_MOST_COUNTS = 1e9  # beyond, the bound is lost in rounding
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
    A likelihood describes itself by attributes and a method that are optional:

    - ``title`` (str) is its name in summaries and reports, ``task`` (str) what a model with it
      does, and ``learned`` (tuple of str) the parameters that summaries show.
    - Where the mean of y is not f, effects are on the scale of ``level + f``. ``unit`` (str) names
      this scale, with {} for the name of the target.
    - ``file_fields`` (dict) declares what a file holds; see ``FILE_FIELDS``.
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


@runtime_checkable
class Curved(Protocol):
    """A likelihood whose bound is more curved than its logarithm, so that q is refined at the end.

    The Newton refinement replaces the bound by a quadratic approximation of the likelihood itself.
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


def propose(likelihood: Any, sums: tuple[Any, ...], attempt: int) -> Any:
    """Return what a likelihood proposes; one that depends on the inputs has several attempts."""
    if hasattr(likelihood, "at"):
        return likelihood.propose(sums, attempt)
    return likelihood.propose(sums) if attempt == 0 else None


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


def check_counts(y: np.ndarray) -> None:
    """Raise a ValueError unless y holds counts, and one above 0."""
    if np.any(y < 0) or np.any(y != np.floor(y)):
        wrong = y[(y < 0) | (y != np.floor(y))][0]
        raise ValueError(
            f"y must hold counts (0, 1, 2, ...) for this likelihood, got {wrong:g}; use another "
            "likelihood."
        )
    if np.max(y) > _MOST_COUNTS:
        raise ValueError(
            f"y must hold counts up to {_MOST_COUNTS:g}, got {np.max(y):g}; for larger counts "
            "fit their logarithm with another likelihood."
        )
    if not np.any(y > 0):
        raise ValueError(
            "y must hold a count above 0, got only zeros; a rate cannot be estimated from them."
        )


def density_form(formula: Formula, *, discrete: bool = False, **outputs: Any) -> dict[str, Any]:
    """Return the distribution of y as plain data: a formula of "mean" and "variance" of f, and "y".

    Its outputs are the mean of y, its variance in two parts, "model_variance" and "noise_variance",
    the "width" on which the density changes, "cdf" and "pdf". Where y is ``discrete``, it is 0, 1,
    2, .., "pdf" is the probability of y, and both are only asked for at these values.
    """
    return {"kind": "density", "discrete": discrete, **formula.plain(**outputs)}


def count_grid(location: Term, variance: Term, size: float) -> tuple[Term, Term]:
    """Return nodes of x ~ N(location, variance) and their weights, as ``CountDensity`` has them."""
    std = variance.sqrt()
    width = ((-location.clip(-40.0, 40.0)).exp() / size + 1.0 / size).sqrt()
    nodes, weights = (width / std).clip(0.01, 0.35).normal_grid(6.3)
    return location + std * nodes, weights


#: Kinds of field that ``file_fields`` may declare, and what a value must be.
FILE_FIELDS = {
    "gamma": "a Gamma distribution of one number",
    "number": "a finite float",
    "positive": "a finite float above 0",
    "float": "a float, which may be NaN or infinite",
    "flag": "a bool",
    "floats": "a tuple of floats, as many as the class has by default",
    "numbers": "a tuple of finite floats, one for each output of f",
    "limits": "a tuple of two floats that are not negative, the second may be infinite",
}
