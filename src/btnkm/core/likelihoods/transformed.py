"""Targets of one sign and proportions: additive noise on the scale of a function of y.

The engine fits z = h(y) with additive noise, as it fits any number: h is applied to targets before
the fit, and its inverse to what is predicted of z.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit

from ..densities import FINE_GRID, normal_grid
from ..formula import Formula, Term
from .base import Array, Begin
from .gaussian import Gaussian
from .student_t import StudentT

NOISES: dict[str, Any] = {"auto": Gaussian, "gaussian": Gaussian, "student_t": StudentT}
_COARSE_GRID = normal_grid(6.3, 0.25)
_LOGARITHMS = (-700.0, 700.0)  # of numbers


@dataclass(frozen=True)
class Transformed:
    """z = h(y) is f plus noise, for a function h that rises.

    Quantiles and densities of y follow from those of z by change of variables. Its mean and
    variance are those for a normal z of the same mean and variance, as the tails of z are too heavy
    for a mean of exp(z). With Student-t noise the variance is that of normal noise with the same
    central 95%, which is finite for all degrees of freedom, and close to the variance for 4 or
    more.

    A subclass defines ``support``, ``check``, ``forward``, ``inverse``, ``log_slope``, and the same
    as terms of a formula (``forward_terms``, ``inverse_term``).

    Parameters
    ----------
    noise : "auto", "gaussian", "student_t", Gaussian or StudentT, default="auto"
        The noise of z. "auto" is "gaussian". If structures are compared and held-out rows show
        heavy tails, the best candidates are also fitted with "student_t". An object such as
        ``StudentT(dof=5.0)`` fixes its parameters. In ``likelihood_`` it is the noise that was
        fitted.
    """

    title: ClassVar[str]
    task: ClassVar[str]
    unit: ClassVar[str]
    #: What 0.7 more of f doubles, with {} for the name of the target; empty if there is nothing.
    doubles: ClassVar[str] = ""
    support: ClassVar[tuple[float, float]]
    learned: ClassVar[tuple[str, ...]] = ()
    file_fields: ClassVar[dict[str, str]] = {"noise": "noise"}
    additive: ClassVar[bool] = False
    of_labels: ClassVar[bool] = False
    noise: Any = "auto"

    def check(self, y: Array) -> None:
        """Raise a ValueError unless all y are inside of the support."""
        raise NotImplementedError

    def forward(self, y: Array) -> Array:
        """Return z; at and beyond the ends of the support it is infinite."""
        raise NotImplementedError

    def inverse(self, z: Array) -> Array:
        """Return y."""
        raise NotImplementedError

    def log_slope(self, y: Array) -> Array:
        """Return log dz/dy for y inside of the support."""
        raise NotImplementedError

    def forward_terms(self, y: Term) -> dict[str, Term]:
        """Return "z" and "slope", dz/dy, as terms of a formula."""
        raise NotImplementedError

    def inverse_term(self, z: Term) -> Term:
        """Return y as a term of a formula."""
        raise NotImplementedError

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Check y; return z as the noise standardises it, and the noise as the likelihood."""
        noise = self.noise
        if isinstance(noise, str) and noise in NOISES:
            noise = NOISES[noise]()
        if not isinstance(noise, Gaussian | StudentT):
            raise ValueError(
                f"noise of {type(self).__name__} must be one of {sorted(NOISES)} or an object such "
                f"as StudentT(dof=5.0), got {noise!r}; leave it out for 'auto'."
            )
        self.check(y)
        begin: Begin = noise.begin(self.forward(y), weight)
        return begin

    def around(self, noise: Any) -> Self:
        """Return the transformation with the noise that was fitted."""
        return replace(self, noise=noise)

    def size_at(self, z: Array) -> tuple[Array, Array]:
        """Return c and s with inverse(z) / c = inverse(z - s) for all z, and c near the y at z.

        Moments of y / c are numbers where squares of y would be too small or too large.
        """
        return np.ones_like(z), np.zeros_like(z)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance of y for z ~ N(mean, variance), by the trapezoid rule."""
        std, first, second = np.sqrt(variance), np.zeros_like(mean), np.zeros_like(mean)
        for node, share in zip(*FINE_GRID, strict=True):
            first += share * self.inverse(mean + std * node)
        for node, share in zip(*FINE_GRID, strict=True):
            second += share * (self.inverse(mean + std * node) - first) ** 2
        return first, second

    def model_variance(self, mean: Array, variance: Array, noise: Array) -> Array:
        """Return the variance of E[y | f] for f ~ N(mean, variance) and noise of a variance."""
        std, noise_std = np.sqrt(variance), np.sqrt(noise)
        reached, center, squares = 0.0, np.zeros_like(mean), np.zeros_like(mean)
        for node, weight in zip(*_COARSE_GRID, strict=True):
            given = np.zeros_like(mean)
            for other, share in zip(*_COARSE_GRID, strict=True):
                given += share * self.inverse(mean + std * node + noise_std * other)
            reached += weight
            away = given - center
            center += weight / reached * away
            squares += weight * away * (given - center)
        return np.asarray(squares)

    def formula_moments(self, mean: Term, variance: Term) -> tuple[Term, Term]:
        """Return mean and variance of y for z ~ N(mean, variance), as terms of a formula."""
        nodes, shares = (np.array(part) for part in FINE_GRID)
        y = self.inverse_term(mean + variance.sqrt() * nodes)
        first = y @ shares[:, None]
        away = y - first
        return first, (away * away) @ shares[:, None]

    def portable(self) -> dict[str, Any]:
        """Return the transformation as plain data.

        A formula has the outputs "z" and "slope" (dz/dy), of the input "y"; "y", of the input "z";
        and "y_mean" and "y_variance", of "mean" and "variance" of a normal z. ``support`` are the
        ends between which y is, None for infinity.
        """
        formula = Formula()
        mean, variance, y, z = map(formula.input, ("mean", "variance", "y", "z"))
        y_mean, y_variance = self.formula_moments(mean, variance)
        outputs = {"y": self.inverse_term(z), "y_mean": y_mean, "y_variance": y_variance}
        support = [end if np.isfinite(end) else None for end in self.support]
        return {"support": support, **formula.plain(**self.forward_terms(y), **outputs)}


@dataclass(frozen=True)
class LogNormal(Transformed):
    """y > 0 whose logarithm is f plus noise, such as prices, durations and concentrations.

    With Gaussian noise y has a log-normal distribution. Errors are in proportion to y, and
    intervals are always above 0.

    Parameters
    ----------
    noise : "auto", "gaussian", "student_t", Gaussian or StudentT, default="auto"
        The noise of log y. "auto" is "gaussian". If structures are compared and held-out rows show
        heavy tails, the best candidates are also fitted with "student_t". An object such as
        ``StudentT(dof=5.0)`` fixes its parameters. In ``likelihood_`` it is the noise that was
        fitted.

    Notes
    -----
    With mean m and variance v of log y, the mean of y is exp(m + v / 2) and its variance
    exp(2 m + v) (exp(v) - 1); the median is exp(m). Where log y has heavier tails than a normal
    distribution, v is the variance of its noise plus that of f, and with Student-t noise the
    variance of normal noise with the same central 95%: the mean of exp(z) would be infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm import BTNRegressor
    >>> from btnkm.likelihoods import LogNormal
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(60, 1))
    >>> price = np.exp(3.0 * X[:, 0] + 0.5 * rng.standard_normal(60))
    >>> model = BTNRegressor(likelihood=LogNormal("student_t"), structure="sums").fit(X, price)
    >>> bool(np.all(model.predict_interval(X) > 0.0))
    True
    """

    title: ClassVar[str] = "log-normal"
    task: ClassVar[str] = "regression of positive numbers"
    unit: ClassVar[str] = "log of {}"
    doubles: ClassVar[str] = "{}"
    support: ClassVar[tuple[float, float]] = (0.0, np.inf)

    def check(self, y: Array) -> None:
        """Raise a ValueError unless y is positive."""
        if np.any(wrong := ~(y > 0.0)):
            raise ValueError(
                f"y must be above 0 for log_normal, got {y[wrong][0]:g}; use 'gaussian', or "
                "'negative_binomial' for counts."
            )

    def forward(self, y: Array) -> Array:
        """Return log y."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(y, 0.0)))

    def inverse(self, z: Array) -> Array:
        """Return exp(z)."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(z))

    def size_at(self, z: Array) -> tuple[Array, Array]:
        """Return exp(z) and z, whose exp is a number."""
        shift = np.clip(z, *_LOGARITHMS)
        return np.exp(shift), shift

    def log_slope(self, y: Array) -> Array:
        """Return -log y."""
        return np.asarray(-np.log(y))

    def forward_terms(self, y: Term) -> dict[str, Term]:
        """Return log y and 1 / y."""
        return {"z": y.log(), "slope": 1.0 / y}

    def inverse_term(self, z: Term) -> Term:
        """Return exp(z)."""
        return z.exp()

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance of a log-normal distribution."""
        with np.errstate(over="ignore", invalid="ignore"):
            first = np.exp(mean + 0.5 * variance)
            return first, first**2 * np.expm1(variance)

    def model_variance(self, mean: Array, variance: Array, noise: Array) -> Array:
        """Return the variance of E[y | f] = exp(f + noise / 2)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.exp(mean + 0.5 * (variance + noise)) ** 2 * np.expm1(variance))

    def formula_moments(self, mean: Term, variance: Term) -> tuple[Term, Term]:
        """Return the same as terms of a formula."""
        first = (mean + 0.5 * variance).exp()
        return first, first * first * (variance.exp() - 1.0)


@dataclass(frozen=True)
class LogitNormal(Transformed):
    """0 < y < 1 whose logit log(y / (1 - y)) is f plus noise, such as rates and proportions.

    With Gaussian noise y has a logit-normal distribution. Intervals are always between 0 and 1, and
    narrower near the ends.

    Parameters
    ----------
    noise : "auto", "gaussian", "student_t", Gaussian or StudentT, default="auto"
        The noise of the logit of y, as that of ``LogNormal``.

    Notes
    -----
    Mean and variance of y are those of a normal distribution of its logit, by quadrature.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.likelihoods import LogitNormal
    >>> LogitNormal().forward(np.array([0.25, 0.5]))
    array([-1.09861229,  0.        ])
    """

    title: ClassVar[str] = "logit-normal"
    task: ClassVar[str] = "regression of proportions"
    unit: ClassVar[str] = "logit of {}"
    doubles: ClassVar[str] = "odds {0} / (1 - {0})"
    support: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def check(self, y: Array) -> None:
        """Raise a ValueError unless y is above 0 and below 1."""
        if np.any(wrong := ~((y > 0.0) & (y < 1.0))):
            raise ValueError(
                f"y must be above 0 and below 1 for logit_normal, got {y[wrong][0]:g}; use "
                "'gaussian', or BTNClassifier if y is always 0 or 1."
            )

    def forward(self, y: Array) -> Array:
        """Return the logit of y."""
        y = np.clip(y, 0.0, 1.0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(y) - np.log1p(-y))

    def inverse(self, z: Array) -> Array:
        """Return 1 / (1 + exp(-z))."""
        return np.asarray(expit(z))

    def log_slope(self, y: Array) -> Array:
        """Return -log(y (1 - y))."""
        return np.asarray(-np.log(y) - np.log1p(-y))

    def forward_terms(self, y: Term) -> dict[str, Term]:
        """Return log y - log(1 - y) and 1 / (y (1 - y))."""
        rest = 1.0 - y
        return {"z": y.log() - rest.log(), "slope": 1.0 / (y * rest)}

    def inverse_term(self, z: Term) -> Term:
        """Return 1 / (1 + exp(-z))."""
        return z.sigmoid()


def of_noise(likelihood: Any) -> Any:
    """Return the noise of a transformed target, and any other likelihood as it is."""
    return likelihood.noise if isinstance(likelihood, Transformed) else likelihood


def is_logarithm(likelihood: Any, transformation: Any) -> bool:
    """Whether f is about the logarithm of y (or the logit of a proportion)."""
    return transformation is not None or not (likelihood.additive or likelihood.of_labels)
