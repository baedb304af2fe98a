"""The full tensor: the kernel machine that low-rank tensors approximate, with its exact posterior.

f has the covariance of ``kernel.Kernel``, and rows say of it what weights and working responses of
their likelihood say (see ``likelihoods``). With V the variances 1 / weight, z the targets pull /
weight and A = (K + V)^-1, the posterior of every output is

    E[f(x)] = k(x, rows) alpha,  alpha = A z,      Var[f(x)] = k(x, x) - k(x, rows) A k(rows, x).

Cost and memory grow with the cube and the square of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from .arrays import host, like
from .evidence import JITTER, Evidence, Pairs, Parts, Solved, Theta, solve
from .gamma import Gamma
from .kernel import SHAPES, Kernel
from .likelihoods import Curved, Gaussian, Likelihood
from .posterior import FeaturesOf, Joint
from .softmax import Softmax

Array = Any
FIRST_ROWS = 300  # to which hyperparameters are fitted before all rows are looked at
WORK = 4.0e11  # operations that hyperparameters of all rows may take
ITERATIONS, MORE_ITERATIONS = 60, 20  # of the search with the first rows, and with all of them
# where weights depend on f: updates by the bound of the likelihood, then by itself until f settles
UPDATES, MOST_UPDATES, SETTLED = 3, 25, 0.01
WORK_OF_SCALE = 1e10  # rows cubed times outputs, up to which all rows have a say in that
SCALES = np.log(4.0) * np.arange(-3, 6)  # of f that are tried
MOST_RESPONSE = 4.0  # standard deviations
LEAST_WEIGHT = 1e-10


@dataclass(frozen=True)
class FullPosterior:
    """The posterior of the full tensor.

    Attributes
    ----------
    kernel : Kernel
    rows : tuple of ndarray of shape (n, 3)
        Coordinates of the training rows in every input.
    share : ndarray of shape (n,)
        What every row counts for, in all 1.
    target, noise : ndarray of shape (K, n)
        What each row says of every output: a value, and the variance of its noise.
    likelihood : Likelihood
    n_outputs : int or None
    theta : ndarray
        Logarithms of the hyperparameters.
    evidence : float
        Logarithm of the targets' density, and of the hyperparameters' prior.
    """

    kernel: Kernel
    rows: tuple[np.ndarray, ...]
    share: np.ndarray
    target: np.ndarray
    noise: np.ndarray
    likelihood: Any
    n_outputs: int | None
    theta: np.ndarray
    evidence: float

    @property
    def n_bytes(self) -> int:
        """What it takes in memory."""
        n = len(self.share)
        return int(8 * len(self.target) * n * n + sum(part.nbytes for part in self.rows))

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: what is made of them is large, and made again."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def _solved(self) -> tuple[np.ndarray, np.ndarray]:
        solved = [solve(self.matrix, v, z) for z, v in zip(self.target, self.noise, strict=True)]
        return np.array([one.alpha for one in solved]), np.array([one.inverse for one in solved])

    @property
    def alpha(self) -> np.ndarray:
        """The weights of the rows in the mean of every output: (K, n)."""
        return self._solved[0]

    @property
    def inverse(self) -> np.ndarray:
        """A of every output: (K, n, n)."""
        return self._solved[1]

    @cached_property
    def predictor(self) -> FullPredictor:
        """What new rows need of it."""
        return FullPredictor(self)

    @property
    def matrix(self) -> np.ndarray:
        """The kernel between all rows: (n, n)."""
        return np.asarray(self.kernel.cross(self.rows, self.rows))

    @cached_property
    def root(self) -> np.ndarray:
        """Lower Cholesky factor of the kernel between all rows: (n, n)."""
        matrix = self.matrix
        jitter = JITTER * float(np.mean(np.diagonal(matrix)))
        while True:
            matrix[np.diag_indices(len(matrix))] += jitter
            try:
                return np.linalg.cholesky(matrix)
            except np.linalg.LinAlgError:
                jitter *= 10.0

    def draw(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Return weights w of draws of f(x) = k(x, rows) w + what rows say nothing of: (., K, n).

        A draw of the prior is moved by what the rows say of its difference from the targets
        (Matheron's rule).
        """
        outputs, n = self.alpha.shape
        drawn = np.empty((n_draws, outputs, n))
        for i in range(n_draws):
            for k in range(outputs):
                xi, noise = rng.standard_normal((2, n))
                prior = self.root @ xi + np.sqrt(self.noise[k]) * noise
                weights = solve_triangular(self.root, xi, lower=True, trans=1)
                drawn[i, k] = weights + self.alpha[k] - self.inverse[k] @ prior
        return drawn


@dataclass(frozen=True)
class FullPredictor:
    """What rows need of the posterior of a full tensor: see ``posterior.Predictor``."""

    state: FullPosterior
    least: Any = 0.0

    @cached_property
    def _moved(self) -> dict[str, Any]:
        return {}

    def _of(self, name: str, x: Array) -> Any:
        """Return a part of the posterior where the rows asked about are, moved there once."""
        if isinstance(x, np.ndarray):
            return getattr(self.state, name)
        if name not in self._moved:
            part = getattr(self.state, name)
            moved = [like(one, x) for one in part] if name == "rows" else like(part, x)
            self._moved[name] = moved
        return self._moved[name]

    def cross(self, features_of: FeaturesOf) -> tuple[Array, list[Array]]:
        """Return k(x, rows), (m, n), and the coordinates of x."""
        x = [features_of(d)[0] for d in range(len(self.state.rows))]
        return self.state.kernel.cross(x, self._of("rows", x[0])), x

    def _whole(self, parts: Array) -> Array:
        """Return values (n, K), or (n,) of one output."""
        return parts[:, 0] if self.state.n_outputs is None else parts

    def mean(self, features_of: FeaturesOf) -> Array:
        """Return E[f] of every row (m,), and output (m, K)."""
        cross, x = self.cross(features_of)
        return self._whole(cross @ self._of("alpha", x[0]).T)

    def moments(self, features_of: FeaturesOf) -> tuple[Array, Array]:
        """Return E[f] and Var[f] of every row (m,), and output (m, K)."""
        cross, x = self.cross(features_of)
        xp = array_namespace(cross)
        prior = self.state.kernel.variance(x)
        inverse = self._of("inverse", x[0])
        known = [xp.sum((cross @ inverse[k, ...]) * cross, axis=1) for k in range(len(inverse))]
        variance = prior[:, None] - xp.stack(known, axis=1)
        # rounding can take a small variance below zero
        variance = xp.maximum(variance, 1e-12 * prior[:, None])
        return self._whole(cross @ self._of("alpha", x[0]).T), self._whole(variance)

    def joint(self, features_of: FeaturesOf) -> Joint:
        """Return E[f] and Var[f] of every row and output, which are independent."""
        mean, variance = (host(part) for part in self.moments(features_of))
        return Joint(mean, variance, np.zeros((*mean.shape, 0)))

    def contrasts(self, features_of: FeaturesOf) -> tuple[Array, Array]:
        """Return mean and variance of f, less its mean over the outputs if it has many."""
        if self.state.n_outputs is None:
            return self.moments(features_of)
        mean, own, _ = self.joint(features_of)
        count = mean.shape[1]
        alone = own * (1.0 - 2.0 / count) + own.mean(axis=1, keepdims=True) / count
        return mean - mean.mean(axis=1, keepdims=True), alone

    def evaluate(self, weights: np.ndarray, features_of: FeaturesOf, xi: np.ndarray) -> np.ndarray:
        """Return one draw of f at every row, given its weights (K, n) and normal numbers (m,).

        What the training rows say nothing of is drawn for every row by itself.
        """
        cross, x = self.cross(features_of)
        known = solve_triangular(self.state.root, cross.T, lower=True)
        left = self.state.kernel.variance(x) - np.sum(known**2, axis=0)
        f = cross @ weights.T + (np.sqrt(np.maximum(left, 0.0)) * xi)[:, None]
        return np.asarray(self._whole(f))


@dataclass
class Rows:
    """Rows to be fitted: coordinates of every input, targets and sample weights."""

    x: tuple[np.ndarray, ...]
    y: np.ndarray
    weight: np.ndarray

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.y)

    def take(self, some: np.ndarray) -> Rows:
        """Return some of them."""
        return Rows(tuple(part[some] for part in self.x), self.y[some], self.weight[some])


@dataclass
class FullFit:
    """A search for hyperparameters, and the posterior that it ends with.

    Attributes
    ----------
    parts : Parts
        Which input has which part of the kernel.
    likelihood : Likelihood
    n_outputs : int or None
    noise_prior : Gamma
    observe : callable
        Told the evidence after each step; True stops the search.
    """

    parts: Parts
    likelihood: Likelihood
    n_outputs: int | None
    noise_prior: Gamma
    observe: Callable[[float], bool | None] = lambda _: None
    stopped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.layout = Theta(self.parts, learns_noise=self.exact)
        self.shape = next(iter(SHAPES))

    @property
    def exact(self) -> bool:
        """Whether the noise is Gaussian, with one variance that is a hyperparameter."""
        return isinstance(self.likelihood, Gaussian)

    def run(
        self, rows: Rows, rng: np.random.Generator, begin: FullPosterior | None = None
    ) -> FullPosterior:
        """Return the posterior with hyperparameters at their best.

        Where rows are many, some of them say where to begin, and which shape the kernel has: that
        which predicts rows left out one by one better. ``begin`` is a posterior of other rows that
        knows both.
        """
        few = rows.n <= FIRST_ROWS
        if begin is not None:
            self.shape, theta = begin.kernel.shape, begin.theta
        else:
            some = rows if few else rows.take(np.sort(rng.permutation(rows.n)[:FIRST_ROWS]))
            theta = self._best_shape(some)
        iterations = 0 if begin is None and few else self._affordable(rows.n)
        if not self.exact and (self.n_outputs or 1) * rows.n**3 <= WORK_OF_SCALE:
            theta = self._scaled(rows, theta, np.log(4.0) * np.arange(4))  # more rows may speak for a larger f
        theta, sites, value = self._maximise(rows, theta, iterations)
        return self._posterior(rows, theta, sites, value)

    def _best_shape(self, rows: Rows) -> np.ndarray:
        """Choose the shape of the kernel, and return hyperparameters that go with it."""
        found = []
        for shape in SHAPES:
            self.shape = shape
            theta, sites, _ = self._maximise(rows, self._begin(rows), ITERATIONS)
            factor = self.layout.noise(theta)
            sites = replace(sites, noise=sites.noise * factor)
            known = sites.updated(rows, self._matrix(rows, theta), self.noise_prior, ask=False)
            if self.exact:
                spread = replace(self.likelihood, noise=Gamma(0.5 * rows.n, 0.5 * rows.n * factor))
                known = replace(known, likelihood=spread)
            found.append((known.left_out(rows), shape, theta))
        _, self.shape, best = max(found, key=lambda one: one[0])
        return best

    def _begin(self, rows: Rows) -> np.ndarray:
        return self.layout.begin() if self.exact else self._first(rows)

    def _affordable(self, n: int) -> int:
        """Return how many steps there may be with all rows."""
        one = (self.n_outputs or 1) * 2.0 * n**3 + 40.0 * n**2 * len(self.layout.begin())
        most = int(np.clip(WORK / one, 3, MORE_ITERATIONS))
        return most if self.exact else 0

    def _maximise(
        self, rows: Rows, theta: np.ndarray, iterations: int
    ) -> tuple[np.ndarray, _Sites, float]:
        """Return hyperparameters, and what rows say of f, each at its best given the other."""
        pairs = Pairs(rows.x, self.parts, self.shape)
        if self.exact:
            sites = _Sites.of_numbers(rows, self.likelihood)
            theta, value = self._search(pairs, sites, theta, iterations)
            return theta, sites, value
        matrix = self._matrix(rows, theta)
        sites = self._settled(rows, matrix)
        known = sites.updated(rows, matrix, self.noise_prior, ask=False)
        return theta, sites, known.elbo(rows, self.noise_prior)

    def _settled(self, rows: Rows, matrix: np.ndarray) -> _Sites:
        """Return what rows say of f with this prior covariance."""
        sites = _Sites.begin(rows, self.likelihood, self.n_outputs)
        for _ in range(UPDATES):
            sites = sites.updated(rows, matrix, self.noise_prior)
        moved = np.inf
        for _ in range(MOST_UPDATES):
            before = sites
            sites = sites.updated(rows, matrix, self.noise_prior, settle=True)
            change = sites.change_from(before)
            if change < SETTLED:
                break
            if change > moved:  # whole steps overshoot
                sites = sites.halfway(before)
            moved = change
        return sites

    def _matrix(self, rows: Rows, theta: np.ndarray) -> np.ndarray:
        return np.asarray(self.layout.kernel(theta, self.shape).cross(rows.x, rows.x))

    def _first(self, rows: Rows) -> np.ndarray:
        """Return hyperparameters from which weights that depend on f can begin.

        Responses to f = 0 are taken for numbers with Gaussian noise; the scale of f is then that
        with the highest ELBO.
        """
        sites = _Sites.begin(rows, self.likelihood, self.n_outputs)
        target = sites.target - np.average(sites.target, axis=0, weights=rows.weight)
        spread = np.sqrt(np.average(target**2, axis=0, weights=rows.weight))
        target = np.clip(target / np.maximum(spread, 1e-12), -MOST_RESPONSE, MOST_RESPONSE)
        layout = Theta(self.parts, learns_noise=True)
        noise = np.repeat(1.0 / rows.weight[:, None], target.shape[1], axis=1)
        numbers = replace(sites, target=target, noise=noise)
        pairs = Pairs(rows.x, self.parts, self.shape)
        theta, _ = self._search(pairs, numbers, layout.begin(), ITERATIONS, layout)
        theta = np.delete(theta, layout.places["noise"])
        log_scale = 2.0 * float(np.log(max(np.mean(spread), 1e-12)))
        return self._scaled(rows, theta, log_scale + SCALES)

    def _scaled(self, rows: Rows, theta: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Return hyperparameters with the best variance of f, of ever larger ones."""
        places = self.layout.places
        parts = ("constant", "product", "line", "curve", "missing")
        move = np.zeros(len(theta))
        for name in parts:
            move[places[name]] = 1.0
        matrix, best = self._matrix(rows, theta), (-np.inf, 0.0)
        for log_scale in scales:
            scaled = np.exp(log_scale) * matrix
            sites = self._settled(rows, scaled).updated(
                rows, scaled, self.noise_prior, ask=False
            )
            value = sites.elbo(rows, self.noise_prior)
            if value < best[0]:
                break
            best = value, log_scale
        return theta + move * best[1]

    def _search(
        self,
        pairs: Pairs,
        sites: _Sites,
        theta: np.ndarray,
        iterations: int,
        layout: Theta | None = None,
    ) -> tuple[np.ndarray, float]:
        """Return the hyperparameters with the highest evidence, and its logarithm."""
        layout = layout or self.layout
        evidence = Evidence(pairs, layout, sites.target, sites.noise, sites.repeats)

        def told(intermediate_result: Any) -> None:
            if self.observe(-float(intermediate_result.fun)):
                self.stopped = True
                raise StopIteration

        found = minimize(
            evidence,
            theta,
            jac=True,
            method="L-BFGS-B",
            callback=told,
            options={"maxiter": iterations, "maxcor": 20},
        )
        return np.asarray(found.x), -float(found.fun)

    def _posterior(
        self, rows: Rows, theta: np.ndarray, sites: _Sites, value: float
    ) -> FullPosterior:
        kernel = self.layout.kernel(theta, self.shape)
        noise = sites.noise * self.layout.noise(theta)
        likelihood = sites.likelihood
        if self.exact:
            total = float(rows.weight.sum())
            variance = self.layout.noise(theta)
            # q(tau) as wide as so many rows leave it
            likelihood = replace(likelihood, noise=Gamma(0.5 * total, 0.5 * total * variance))
        return FullPosterior(
            kernel=kernel,
            rows=rows.x,
            share=rows.weight / rows.weight.sum(),
            target=np.ascontiguousarray(sites.target.T),
            noise=np.ascontiguousarray(noise.T),
            likelihood=likelihood,
            n_outputs=self.n_outputs,
            theta=theta,
            evidence=value,
        )


def _solved(matrix: np.ndarray, target: np.ndarray, noise: np.ndarray) -> list[Solved]:
    return [solve(matrix, v, z) for z, v in zip(target.T, noise.T, strict=True)]


@dataclass(frozen=True)
class _Sites:
    """What rows say of f, for what is known of it: targets and variances of their noise.

    Attributes
    ----------
    target, noise : ndarray of shape (n, K)
    mean, variance : ndarray of shape (n, K)
        Of f.
    likelihood : Likelihood
    repeats : float
        See ``Evidence``.
    kl : float
        Of the posterior of f from its prior.
    left : tuple of ndarray of shape (n, K)
        Mean and variance of f by what all other rows say.
    """

    target: np.ndarray
    noise: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    likelihood: Any
    repeats: float = 0.0
    kl: float = np.nan
    left: tuple[np.ndarray, np.ndarray] = (np.empty(0), np.empty(0))

    @classmethod
    def of_numbers(cls, rows: Rows, likelihood: Any) -> _Sites:
        """Return those of numbers with Gaussian noise."""
        nothing = np.zeros((rows.n, 1))
        repeats = float(np.sum(rows.weight - 1.0))
        noise = 1.0 / rows.weight[:, None]
        return cls(rows.y[:, None], noise, nothing, nothing, likelihood, repeats)

    @classmethod
    def begin(cls, rows: Rows, likelihood: Any, n_outputs: int | None) -> _Sites:
        """Return those of rows of which nothing is known yet."""
        mean = np.zeros((rows.n, n_outputs or 1))
        start = cls(mean, mean, mean, np.ones_like(mean), likelihood)
        return start._asked(rows, Gamma(1e-6, 1e-6), settle=False)

    def _asked(self, rows: Rows, prior: Gamma, *, settle: bool) -> _Sites:
        """Return what rows say for these moments of f."""
        one = self.mean.shape[1] == 1
        mean, square = self.mean, self.mean**2 + self.variance
        if one:
            mean, square = mean[:, 0], square[:, 0]
        likelihood, asked = self.likelihood, (rows.y, rows.weight, mean, square)
        if settle and isinstance(likelihood, Curved):
            weight, pull = likelihood.expected(*asked)
        else:
            likelihood = _learned(likelihood, asked, float(rows.weight.sum()), prior)
            weight, pull, _ = likelihood.rows(*asked)
        weight = np.maximum(np.asarray(weight) * likelihood.scale, LEAST_WEIGHT)
        pull = np.asarray(pull) * likelihood.scale
        if one:
            weight, pull = weight[:, None], pull[:, None]
        return replace(self, target=pull / weight, noise=1.0 / weight, likelihood=likelihood)

    def updated(
        self,
        rows: Rows,
        matrix: np.ndarray,
        prior: Gamma,
        *,
        settle: bool = False,
        ask: bool = True,
    ) -> _Sites:
        """Return what rows say once f, with this prior covariance, is as they let it be.

        They are not asked again unless they are to ``ask``.
        """
        solved = _solved(matrix, self.target, self.noise)
        alpha = np.column_stack([one.alpha for one in solved])
        diagonal = np.column_stack([np.diagonal(one.inverse) for one in solved])
        mean = self.target - self.noise * alpha
        variance = np.maximum(self.noise - self.noise**2 * diagonal, 1e-12)
        left = self.target - alpha / diagonal, 1.0 / diagonal - self.noise
        log_det = sum(one.log_det for one in solved) - float(np.sum(np.log(self.noise)))
        fit = float(np.sum(diagonal * self.noise) + np.sum(alpha * mean))
        kl = 0.5 * (fit - mean.size + log_det)
        known = replace(self, mean=mean, variance=variance, left=left, kl=kl)
        return known._asked(rows, prior, settle=settle) if ask else known

    def halfway(self, other: _Sites) -> _Sites:
        """Return what rows say halfway from another."""
        weight = 0.5 * (1.0 / self.noise + 1.0 / other.noise)
        pull = 0.5 * (self.target / self.noise + other.target / other.noise)
        return replace(self, target=pull / weight, noise=1.0 / weight)

    def elbo(self, rows: Rows, prior: Gamma) -> float:
        """Return the lower bound on the evidence, given the moments of f.

        That of many classes is averaged over f: the bound that updates go by is far lower where f
        is large.
        """
        likelihood, mean = self.likelihood, self.mean
        if isinstance(likelihood, Softmax):
            points = likelihood.probabilities(mean, self.variance)
            of_label = points[:, np.arange(rows.n), rows.y.astype(int)]
            logs = np.log(np.maximum(of_label, np.finfo(float).tiny)).mean(axis=0)
            return float(rows.weight @ logs) - self.kl
        square = mean**2 + self.variance
        sums = likelihood.rows(rows.y, rows.weight, mean[:, 0], square[:, 0]).sums
        total = float(rows.weight.sum())
        terms = likelihood.learn(sums, total, prior).terms(total, prior)
        return float(sum(terms.values())) - self.kl

    def left_out(self, rows: Rows) -> float:
        """Return the log density of all rows, each by what the others say of f."""
        mean, variance = self.left[0], np.maximum(self.left[1], 1e-12)
        if mean.shape[1] == 1:
            mean, variance = mean[:, 0], variance[:, 0]
        return float(rows.weight @ self.likelihood.predictive(mean, variance).logpdf(rows.y))

    def change_from(self, other: _Sites) -> float:
        """Return how far the mean of f has moved, in its standard deviations."""
        moved = (self.mean - other.mean) ** 2 / np.maximum(self.variance, 1e-6)
        return float(np.sqrt(np.max(moved)))


def _learned(likelihood: Any, asked: tuple[Any, ...], total: float, prior: Gamma) -> Any:
    """Return a likelihood with its own parameters after what rows say."""
    learned = likelihood.learn(likelihood.rows(*asked).sums, total, prior)
    other = learned.propose(learned.rows(*asked).sums)
    if other is None:
        return learned
    tried = other.learn(other.rows(*asked).sums, total, prior)
    before, after = (sum(one.terms(total, prior).values()) for one in (learned, tried))
    return tried if after >= before else learned


def leave_out(state: FullPosterior, rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of f at some rows if what they say were not known: (K, m).

    Hyperparameters, and what the other rows say, stay as they are: exact for Gaussian noise.
    """
    rows = np.asarray(rows)
    means, variances = [], []
    for z, v, alpha, inverse in zip(
        state.target, state.noise, state.alpha, state.inverse, strict=True
    ):
        block = np.linalg.inv(inverse[np.ix_(rows, rows)])
        means.append(z[rows] - block @ alpha[rows])
        variances.append(np.diagonal(block) - v[rows])
    return np.array(means), np.array(variances)
