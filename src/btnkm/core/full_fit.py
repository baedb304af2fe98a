"""The fit of a full tensor: hyperparameters by the evidence, and what rows say of f.

Where noise is Gaussian, targets and weights are what they are, and the evidence is exact. With
Student-t noise, weights depend on how far rows are from f: searches for hyperparameters with given
weights alternate with updates of the weights.
Other likelihoods turn moments of f into weights and working responses: hyperparameters are then
those of responses to f = 0, taken for numbers with Gaussian noise, and the variance of f is that
with the highest ELBO.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from .evidence import Evidence, Pairs, Parts, Theta, whitened
from .full import FullPosterior
from .gamma import Gamma
from .hamiltonian import draw
from .likelihoods import Curved, Gaussian, Softmax, StudentT

FIRST_ROWS = 300  # to which hyperparameters are fitted before all rows are looked at
WORK = 4.0e11  # operations that hyperparameters of all rows may take
ITERATIONS, MORE_ITERATIONS = 60, 30  # of the search with the first rows, and with all of them
MOST_CURVED = 300  # hyperparameters up to which the curvature is kept: its cost is their cube
ENOUGH = 0.02  # of the logarithm of the evidence: searches end where a step gains less
MANY_MORE, FEW_ITERATIONS = 1.5, 10  # times as many rows, up to which fewer iterations do
ROUNDS, WEIGHINGS = 3, 4  # searches with given weights, and updates of these before each
FEW_INPUTS, SHORTER = 5, 2.5  # up to which searches begin with short length scales as well
# up to which hyperparameters are drawn from their posterior: rows, and rows squared times inputs
FEW_ROWS, WORK_OF_DRAWS = 200, 2e5
VARIANCES = ("constant", "product", "line", "curve", "missing")  # of f, all together
# where weights depend on f: updates by the bound of the likelihood, then by itself until f settles
UPDATES, MOST_UPDATES, SETTLED = 3, 25, 0.01
WORK_OF_SCALE = 1e10  # rows cubed times outputs, up to which all rows have a say in that
SCALES = np.log(4.0) * np.arange(-3, 6)  # of f that are tried
MOST_RESPONSE = 4.0  # standard deviations
LEAST_WEIGHT, LEAST_VARIANCE = 1e-10, 1e-5  # the second of the prior's


def learns_noise(likelihood: Any) -> bool:
    """Tell whether the variance of the noise is found together with the hyperparameters."""
    return isinstance(likelihood, Gaussian | StudentT)


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


@dataclass(frozen=True)
class Curvature:
    """What a search has learned of the evidence near its highest value.

    Attributes
    ----------
    covariance : ndarray of shape (P, P)
        Inverse of minus the second derivatives in the hyperparameters.
    n : int
        Rows.
    """

    covariance: np.ndarray
    n: int

    @classmethod
    def of(cls, found: Any, root: np.ndarray, n: int) -> Curvature:
        """Return that of a search in coordinates with this root of their covariance."""
        own = root @ found.hess_inv.todense() @ root.T
        return cls(0.5 * (own + own.T), n)

    def root(self, n: int, prior_std: np.ndarray) -> np.ndarray:
        """Return a root of the covariance for so many rows, no larger than the prior's: (P, P)."""
        size = np.outer(prior_std, prior_std)
        values, vectors = np.linalg.eigh(self.covariance * min(self.n / n, 1.0) / size)
        roots = np.sqrt(np.clip(values, LEAST_VARIANCE, 1.0))
        return np.asarray(prior_std[:, None] * vectors * roots)


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
        Called with the evidence after each step, and the number of the search; True stops the
        fit.
    may_be_interrupted : bool
        Whether what a search has found is kept when it is interrupted.
    curvature : Curvature or None
        Of an earlier search, then of the last one: the first step is as long as it should be, and
        half as many steps do.
    """

    parts: Parts
    likelihood: Any
    n_outputs: int | None
    noise_prior: Gamma
    observe: Callable[[float, int], bool | None] = lambda *_: None
    may_be_interrupted: bool = False
    curvature: Curvature | None = None
    stopped: bool = field(default=False, init=False)
    interrupted: bool = field(default=False, init=False)
    searches: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.layout = Theta(self.parts, learns_noise=learns_noise(self.likelihood))

    @property
    def exact(self) -> bool:
        """Whether the noise is Gaussian, with one variance that is a hyperparameter."""
        return isinstance(self.likelihood, Gaussian)

    def run(
        self,
        rows: Rows,
        rng: np.random.Generator,
        begin: FullPosterior | None = None,
        iterations: int | None = None,
        scale: float | None = None,
    ) -> list[FullPosterior]:
        """Return the posterior with hyperparameters at their best, or several that share it.

        Where rows are many, some of them say where to begin. ``begin`` is a posterior of other rows
        that knows it; with ``iterations`` of 0 its hyperparameters are kept, but for variances of f
        larger by ``scale`` (its logarithm) where noise is not additive.
        """
        few = rows.n <= FIRST_ROWS
        unlike = begin is not None and type(begin.likelihood) is not type(self.likelihood)
        theta, known = (None, 0) if begin is None else (begin.theta, len(begin.share))
        if theta is None or unlike:
            some = rows if few else rows.take(np.sort(rng.permutation(rows.n)[:FIRST_ROWS]))
            theta, sites = self._from_scratch(some, theta)
            known = max(known, some.n)
            if few:
                return self._known(rows, theta, sites, rng)
        if iterations is None:
            iterations = self._affordable(rows.n)
        if iterations and rows.n > MANY_MORE * known:
            theta = self.layout.lifted(theta)
        elif iterations:
            iterations = min(iterations, FEW_ITERATIONS)
        if scale is not None:
            theta = theta + scale * self._along(*VARIANCES)
        elif not learns_noise(self.likelihood) and not few:
            theta = self._rescaled(rows, theta)
        theta, sites, _ = self._maximise(rows, theta, iterations, begun=begin is not None)
        return self._known(rows, theta, sites, rng)

    def _known(
        self, rows: Rows, theta: np.ndarray, sites: _Sites, rng: np.random.Generator
    ) -> list[FullPosterior]:
        """Return posteriors that together are that of f: of few rows one for each draw."""
        draws = learns_noise(self.likelihood) and rows.n <= FEW_ROWS and not self.stopped
        draws = draws and rows.n**2 * len(rows.x) <= WORK_OF_DRAWS
        try:
            thetas = self._drawn(rows, theta, sites, rng) if draws else [theta]
        except KeyboardInterrupt:
            if not self.may_be_interrupted:
                raise
            self.stopped, self.interrupted, thetas = True, True, [theta]
        return [self._posterior(rows, one, sites) for one in thetas]

    def _rescaled(self, rows: Rows, theta: np.ndarray) -> np.ndarray:
        """Return hyperparameters with a larger f, if more rows speak for it."""
        outputs = self.n_outputs  # of two classes few rows know it as well
        if outputs is None or outputs * rows.n**3 > WORK_OF_SCALE:
            return theta
        return self._scaled(rows, theta, np.log(4.0) * np.arange(4))

    def _drawn(
        self, rows: Rows, theta: np.ndarray, sites: _Sites, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """Return draws of the hyperparameters from their posterior, given weights of the rows."""
        pairs = Pairs(rows.x, self.parts)
        evidence = Evidence(pairs, self.layout, sites.target, sites.noise, sites.repeats)

        root = np.diag(self.layout.prior_std)
        if self.curvature is not None:
            root = self.curvature.root(rows.n, self.layout.prior_std)

        def energy(z: np.ndarray) -> tuple[float, np.ndarray]:
            try:
                value, slopes = evidence(theta + root @ z)
            except np.linalg.LinAlgError:  # far beyond what any rows would speak for
                return np.inf, np.zeros_like(z)
            return value, root.T @ slopes

        return [theta + root @ z for z in draw(energy, np.zeros(len(theta)), rng)]

    def _along(self, *names: str) -> np.ndarray:
        """Return the direction in which hyperparameters of these names move together."""
        move, places = np.zeros(len(self.layout.begin())), self.layout.places
        for name in names:
            move[places[name]] = 1.0
        return move

    def _from_scratch(
        self, rows: Rows, gaussian: np.ndarray | None = None
    ) -> tuple[np.ndarray, _Sites]:
        """Return hyperparameters, and what rows say of f, from nothing or from Gaussian noise.

        With that noise, f may go through outliers: other noise begins without it as well.
        """
        if not learns_noise(self.likelihood):
            theta, sites, _ = self._maximise(rows, self._first(rows), 0)
            return theta, sites
        # where to begin, and whether weights of the rows come before the first search
        begun = [(begin, False) for begin in self._beginnings(self.layout)]
        if not self.exact:
            begun = [(gaussian, True)] if gaussian is not None else begun
            begun.append((self.layout.begin(), True))
        found = []
        for begin, known in begun:
            self.curvature = None
            reached = self._maximise(rows, begin, ITERATIONS, begun=known)
            found.append((*reached, self.curvature))
        theta, sites, _, self.curvature = max(found, key=lambda one: one[2])
        return theta, sites

    @staticmethod
    def _beginnings(layout: Theta) -> list[np.ndarray]:
        """Return where searches begin: with few inputs, once more with short length scales.

        From long ones the evidence does not rise towards a function that is quick.
        """
        few = len(layout.parts.categorical) <= FEW_INPUTS
        return [layout.begin(shorter) for shorter in ((0.0, SHORTER) if few else (0.0,))]

    def _affordable(self, n: int) -> int:
        """Return how many steps there may be with all rows."""
        one = (self.n_outputs or 1) * 2.0 * n**3 + 40.0 * n**2 * len(self.layout.begin())
        most = int(np.clip(WORK / one, 3, MORE_ITERATIONS))
        return most if learns_noise(self.likelihood) else 0

    def _maximise(
        self, rows: Rows, theta: np.ndarray, iterations: int, *, begun: bool = False
    ) -> tuple[np.ndarray, _Sites, float]:
        """Return hyperparameters, and what rows say of f, each at its best given the other.

        Those of another fit have ``begun`` with it.
        """
        if self.exact:
            pairs = Pairs(rows.x, self.parts)
            sites = _Sites.of_numbers(rows, self.likelihood)
            theta, value = self._search(pairs, sites, theta, iterations)
            return theta, replace(sites, value=value), value
        if learns_noise(self.likelihood):
            return self._reweighted(rows, theta, iterations, begun=begun)
        matrix = self._matrix(rows, theta)
        sites = self._settled(rows, matrix)
        known = sites.updated(rows, matrix, self.noise_prior, ask=False)
        value = known.elbo(rows, self.noise_prior)
        return theta, replace(sites, value=value), value

    def _reweighted(
        self, rows: Rows, theta: np.ndarray, iterations: int, *, begun: bool
    ) -> tuple[np.ndarray, _Sites, float]:
        """Return hyperparameters and weights of rows that depend on their distance from f."""
        pairs = Pairs(rows.x, self.parts)
        sites = _Sites.of_numbers(rows, self.likelihood)
        if iterations and not begun:  # as if the noise were Gaussian
            theta, _ = self._search(pairs, sites, theta, iterations)
        for _ in range(ROUNDS if iterations else 0):
            theta, sites = self._weighed(rows, theta, sites, WEIGHINGS)
            theta, _ = self._search(pairs, sites, theta, -(-iterations // ROUNDS))
        theta, sites = self._weighed(rows, theta, sites, MOST_UPDATES)
        return theta, sites, sites.value

    def _weighed(
        self, rows: Rows, theta: np.ndarray, sites: _Sites, most: int
    ) -> tuple[np.ndarray, _Sites]:
        """Return weights of rows after up to so many updates, and the noise that goes with them."""
        matrix, variance = self._matrix(rows, theta), self.layout.noise(theta)
        likelihood = sites.likelihood.with_noise(variance)
        sites = replace(sites, noise=sites.noise * variance, likelihood=likelihood)
        for _ in range(most):
            before = sites
            sites = sites.updated(rows, matrix, self.noise_prior)
            if sites.change_from(before) < SETTLED:
                break
        known = sites.updated(rows, matrix, self.noise_prior, ask=False)
        variance = 1.0 / sites.likelihood.scale
        theta = theta.copy()
        theta[self.layout.places["noise"]] = np.log(variance)
        value = known.elbo(rows, self.noise_prior)
        return theta, replace(sites, noise=sites.noise / variance, value=value)

    def _settled(self, rows: Rows, matrix: np.ndarray, begin: _Sites | None = None) -> _Sites:
        """Return what rows say of f with this prior covariance, from that with another on."""
        sites = begin
        if sites is None:
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
        return np.asarray(self.layout.kernel(theta).cross(rows.x, rows.x))

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
        pairs = Pairs(rows.x, self.parts)
        found = [
            self._search(pairs, numbers, begin, ITERATIONS, layout)
            for begin in self._beginnings(layout)
        ]
        begun = max(found, key=lambda one: one[1])[0]
        theta = np.delete(begun, layout.places["noise"])
        log_scale = 2.0 * float(np.log(np.maximum(np.mean(spread), 1e-12)))
        return self._scaled(rows, theta, log_scale + SCALES)

    def _scaled(self, rows: Rows, theta: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Return hyperparameters with the best variance of f, of ever larger ones."""
        move = self._along(*VARIANCES)
        matrix, best, sites = self._matrix(rows, theta), (-np.inf, 0.0), None
        for log_scale in scales:
            scaled = np.exp(log_scale) * matrix
            sites = self._settled(rows, scaled, sites)
            known = sites.updated(rows, scaled, self.noise_prior, ask=False)
            value = known.elbo(rows, self.noise_prior)
            if value < best[0]:
                break
            best = (value, float(log_scale))
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

        if iterations == 0 or self.stopped:  # one iteration is the least that minimize does
            return theta, -float(evidence(theta)[0])
        same = layout is self.layout
        known, n = self.curvature if same else None, len(sites.target)
        root = np.eye(len(theta)) if known is None else known.root(n, layout.prior_std)
        reached: list[Any] = [theta.copy(), -np.inf]
        self.searches += 1

        def energy(z: np.ndarray) -> tuple[float, np.ndarray]:
            value, slopes = evidence(theta + root @ z)
            return value, root.T @ slopes

        def told(intermediate_result: Any) -> None:
            gained = -float(intermediate_result.fun) - reached[1]
            reached[:] = theta + root @ intermediate_result.x, -float(intermediate_result.fun)
            if self.observe(reached[1], self.searches) or self.stopped:
                self.stopped = True
            if self.stopped or gained < ENOUGH:
                raise StopIteration

        try:
            found = minimize(
                energy,
                np.zeros(len(theta)),
                jac=True,
                method="L-BFGS-B",
                callback=told,
                options={"maxiter": iterations, "maxcor": 20},
            )
        except KeyboardInterrupt:
            if not self.may_be_interrupted or not np.isfinite(reached[1]):
                raise
            self.stopped = self.interrupted = True
            return np.asarray(reached[0]), float(reached[1])
        if same and len(theta) <= MOST_CURVED:
            self.curvature = Curvature.of(found, root, n)
        return theta + root @ found.x, -float(found.fun)

    def _posterior(self, rows: Rows, theta: np.ndarray, sites: _Sites) -> FullPosterior:
        kernel = self.layout.kernel(theta)
        noise = sites.noise * self.layout.noise(theta)
        likelihood = sites.likelihood
        if self.exact:
            total = float(rows.weight.sum())
            variance = self.layout.noise(theta)
            # q(tau) as wide as so many rows leave it
            likelihood = replace(likelihood, noise=Gamma(0.5 * total, 0.5 * total * variance))
        elif learns_noise(likelihood):
            likelihood = likelihood.with_noise(self.layout.noise(theta))
        return FullPosterior(
            kernel=kernel,
            rows=rows.x,
            share=rows.weight / rows.weight.sum(),
            target=np.ascontiguousarray(sites.target.T),
            noise=np.ascontiguousarray(noise.T),
            likelihood=likelihood,
            n_outputs=self.n_outputs,
            theta=theta,
            evidence=sites.value,
        )


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
    value : float
        The evidence, or the ELBO, at the end of a search.
    """

    target: np.ndarray
    noise: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    likelihood: Any
    repeats: float = 0.0
    kl: float = np.nan
    value: float = np.nan

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
        solved = [whitened(matrix, v, z) for z, v in zip(self.target.T, self.noise.T, strict=True)]
        alpha = np.column_stack([one for one, _ in solved])
        diagonal = np.column_stack([np.sum(root**2, axis=0) for _, root in solved])
        mean = self.target - self.noise * alpha
        variance = np.maximum(self.noise - self.noise**2 * diagonal, 1e-12)
        log_det = -2.0 * sum(float(np.sum(np.log(np.diagonal(root)))) for _, root in solved)
        log_det -= float(np.sum(np.log(self.noise)))
        fit = float(np.sum(diagonal * self.noise) + np.sum(alpha * mean))
        kl = 0.5 * (fit - mean.size + log_det)
        known = replace(self, mean=mean, variance=variance, kl=kl)
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
