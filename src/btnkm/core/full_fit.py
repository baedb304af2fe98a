"""The fit of a full tensor: hyperparameters that maximise the evidence, and sites of the rows.

With Gaussian noise the evidence is exact. With Student-t noise, searches for hyperparameters with
given weights alternate with updates of the weights, and so do searches with given sites for counts.
For classes (``full_sites``) the hyperparameters are those of the working responses at f = 0, taken
for targets with Gaussian noise, and the variance of f is the one with the highest ELBO.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from .evidence import Evidence, Pairs, Parts, Theta, draw
from .full import FullPosterior
from .full_sites import Observations, Sites, has_sites
from .gamma import Gamma
from .likelihoods import Gaussian, StudentT, Varying

FIRST_ROWS = 300  # to which hyperparameters are fitted before all rows are used
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
# where weights depend on f: updates by the bound of the likelihood, then Newton refinement
UPDATES, MOST_UPDATES, SETTLED = 3, 25, 0.01
WORK_OF_SCALE = 1e10  # rows cubed times outputs, up to which it is found from all rows
SCALES = np.log(4.0) * np.arange(-3, 6)  # of f that are tried
MOST_RESPONSE = 4.0  # standard deviations
LEAST_VARIANCE = 1e-5  # relative to the prior's


def learns_noise(likelihood: Any) -> bool:
    """Return whether the noise variance is one of the hyperparameters."""
    return isinstance(likelihood, Gaussian | StudentT | Varying)


def has_evidence(likelihood: Any) -> bool:
    """Return whether the evidence determines all hyperparameters, the scale of f included."""
    return learns_noise(likelihood) or has_sites(likelihood)


@dataclass(frozen=True)
class Curvature:
    """The curvature of the log evidence near its maximum."""

    covariance: np.ndarray  # (P, P): inverse of minus the second derivatives in the hyperparameters
    n: int  # observations

    @classmethod
    def of(cls, optimum: Any, root: np.ndarray, n: int) -> Curvature:
        """Return the curvature at the end of a search, whose coordinates are scaled by a root."""
        covariance = root @ optimum.hess_inv.todense() @ root.T
        return cls(0.5 * (covariance + covariance.T), n)

    def root(self, n: int, prior_std: np.ndarray) -> np.ndarray:
        """Return a root of the covariance for so many rows, no larger than the prior's: (P, P)."""
        size = np.outer(prior_std, prior_std)
        values, vectors = np.linalg.eigh(self.covariance * min(self.n / n, 1.0) / size)
        roots = np.sqrt(np.clip(values, LEAST_VARIANCE, 1.0))
        return np.asarray(prior_std[:, None] * vectors * roots)


@dataclass
class FullFit:
    """A search for hyperparameters, and the posterior at its end."""

    parts: Parts  # which input has which part of the kernel
    likelihood: Any
    n_outputs: int | None
    noise_prior: Gamma
    # called after each step with the log evidence and the number of the search; True stops the fit
    observe: Callable[[float, int], bool | None] = lambda *_: None
    may_be_interrupted: bool = False  # whether an interrupted search keeps what it has reached
    # of an earlier search, then of the last one. With it the first step has the right length, and
    # half as many steps are enough.
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
        rows: Observations,
        rng: np.random.Generator,
        begin: FullPosterior | None = None,
        iterations: int | None = None,
        scale: float | None = None,
    ) -> list[FullPosterior]:
        """Return the posterior at the best hyperparameters, or one for each draw of them.

        The search begins at ``begin``, a posterior of other rows; otherwise a search over some of
        the rows comes first where they are many. ``iterations`` are those of the search with all
        rows; with 0 the hyperparameters of ``begin`` are kept. ``scale`` is the logarithm of a
        factor of the variances of f.
        """
        few = rows.n <= FIRST_ROWS
        unlike = begin is not None and type(begin.likelihood) is not type(self.likelihood)
        theta, known = (None, 0) if begin is None else (begin.theta, len(begin.share))
        if theta is None or unlike:
            first = rows if few else rows.take(np.sort(rng.permutation(rows.n)[:FIRST_ROWS]))
            theta, sites = self._from_scratch(first, theta)
            known = max(known, first.n)
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
        elif not has_evidence(self.likelihood) and not few:
            theta = self._rescaled(rows, theta)
        theta, sites, _ = self._maximise(rows, theta, iterations, weighs_first=begin is not None)
        return self._known(rows, theta, sites, rng)

    def _known(
        self, rows: Observations, theta: np.ndarray, sites: Sites, rng: np.random.Generator
    ) -> list[FullPosterior]:
        """Return posteriors that are mixed with equal weights: where rows are few, one per draw."""
        draws = has_evidence(self.likelihood) and rows.n <= FEW_ROWS and not self.stopped
        draws = draws and rows.n**2 * len(rows.x) <= WORK_OF_DRAWS
        try:
            thetas = self._drawn(rows, theta, sites, rng) if draws else [theta]
        except KeyboardInterrupt:
            if not self.may_be_interrupted:
                raise
            self.stopped, self.interrupted, thetas = True, True, [theta]
        return [self._posterior(rows, each, sites) for each in thetas]

    def _rescaled(self, rows: Observations, theta: np.ndarray) -> np.ndarray:
        """Return hyperparameters with a larger variance of f, if all rows support it."""
        outputs = self.n_outputs  # for two classes some rows are enough
        if outputs is None or outputs * rows.n**3 > WORK_OF_SCALE:
            return theta
        return self._scaled(rows, theta, np.log(4.0) * np.arange(4))

    def _drawn(
        self, rows: Observations, theta: np.ndarray, sites: Sites, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """Return draws of the hyperparameters from their posterior, given the sites."""
        pairs = Pairs(rows.x, self.parts)
        evidence = Evidence(pairs, self.layout, sites.target, sites.noise, sites.repeats)

        root = np.diag(self.layout.prior_std)
        if self.curvature is not None:
            root = self.curvature.root(rows.n, self.layout.prior_std)

        def energy(z: np.ndarray) -> tuple[float, np.ndarray]:
            try:
                value, slopes = evidence(theta + root @ z)
            except np.linalg.LinAlgError:  # far beyond what any rows support
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
        self, rows: Observations, gaussian: np.ndarray | None = None
    ) -> tuple[np.ndarray, Sites]:
        """Return hyperparameters and sites, from the prior or from a fit with Gaussian noise.

        With Gaussian noise f may go through outliers, so other noise begins at the prior as well.
        """
        if not has_evidence(self.likelihood):
            theta, sites, _ = self._maximise(rows, self._first(rows), 0)
            return theta, sites
        # where to begin, and whether weights are updated before the first search
        beginnings = [(begin, False) for begin in self._beginnings(self.layout)]
        if not self.exact and learns_noise(self.likelihood):
            beginnings = [(gaussian, True)] if gaussian is not None else beginnings
            beginnings.append((self.layout.begin(), True))
        results = []
        for begin, weighs_first in beginnings:
            self.curvature = None
            reached = self._maximise(rows, begin, ITERATIONS, weighs_first=weighs_first)
            results.append((*reached, self.curvature))
        theta, sites, _, self.curvature = max(results, key=lambda result: result[2])
        return theta, sites

    @staticmethod
    def _beginnings(layout: Theta) -> list[np.ndarray]:
        """Return where searches begin: for few inputs, also at short length scales.

        From long ones a search does not find functions that vary quickly.
        """
        few = len(layout.parts.categorical) <= FEW_INPUTS
        return [layout.begin(shorter) for shorter in ((0.0, SHORTER) if few else (0.0,))]

    def _affordable(self, n: int) -> int:
        """Return how many steps of a search with all rows are affordable."""
        cost = (self.n_outputs or 1) * 2.0 * n**3 + 40.0 * n**2 * len(self.layout.begin())
        if not has_evidence(self.likelihood):
            return 0
        return int(np.clip(WORK / cost, 3, MORE_ITERATIONS))

    def _maximise(
        self, rows: Observations, theta: np.ndarray, iterations: int, *, weighs_first: bool = False
    ) -> tuple[np.ndarray, Sites, float]:
        """Return hyperparameters and sites, each optimal given the other, and the evidence.

        With ``weighs_first`` weights are updated before the first search.
        """
        if self.exact:
            pairs = Pairs(rows.x, self.parts)
            sites = Sites.of_numbers(rows, self.likelihood)
            theta, value = self._search(pairs, sites, theta, iterations)
            return theta, replace(sites, value=value), value
        if learns_noise(self.likelihood):
            return self._reweighted(rows, theta, iterations, weighs_first=weighs_first)
        if iterations and has_sites(self.likelihood):
            return self._alternated(rows, theta, iterations)
        matrix = self._matrix(rows, theta)
        sites = self._refined(rows, matrix)
        known = sites.updated(rows, matrix, self.noise_prior, refresh=False)
        value = known.elbo(rows, self.noise_prior)
        return theta, replace(sites, value=value), value

    def _reweighted(
        self, rows: Observations, theta: np.ndarray, iterations: int, *, weighs_first: bool
    ) -> tuple[np.ndarray, Sites, float]:
        """Return hyperparameters and sites whose weights depend on the distance from f."""
        pairs = Pairs(rows.x, self.parts)
        sites = Sites.of_numbers(rows, self.likelihood)
        if iterations and not weighs_first:  # as if the noise were Gaussian
            theta, _ = self._search(pairs, sites, theta, iterations)
        for _ in range(ROUNDS if iterations else 0):
            theta, sites = self._weighed(rows, theta, sites, WEIGHINGS)
            theta, _ = self._search(pairs, sites, theta, -(-iterations // ROUNDS))
        theta, sites = self._weighed(rows, theta, sites, MOST_UPDATES)
        return theta, sites, sites.value

    def _alternated(
        self, rows: Observations, theta: np.ndarray, iterations: int
    ) -> tuple[np.ndarray, Sites, float]:
        """Return hyperparameters and sites where the ELBO is stationary in both.

        With given sites the gradient of the evidence of their targets is that of the ELBO.
        """
        pairs, sites = Pairs(rows.x, self.parts), None
        for _ in range(ROUNDS):
            sites = self._refined(rows, self._matrix(rows, theta), sites)
            theta, _ = self._search(pairs, sites, theta, -(-iterations // ROUNDS))
        matrix = self._matrix(rows, theta)
        sites = self._refined(rows, matrix, sites)
        known = sites.updated(rows, matrix, self.noise_prior, refresh=False)
        value = known.elbo(rows, self.noise_prior)
        return theta, replace(sites, value=value), value

    def _weighed(
        self, rows: Observations, theta: np.ndarray, sites: Sites, most: int
    ) -> tuple[np.ndarray, Sites]:
        """Return the sites after up to so many updates, and hyperparameters with their noise."""
        matrix, variance = self._matrix(rows, theta), self.layout.noise(theta)
        likelihood = sites.likelihood.with_noise(variance)
        sites = replace(sites, noise=sites.noise * variance, likelihood=likelihood)
        for _ in range(most):
            before = sites
            sites = sites.updated(rows, matrix, self.noise_prior)
            if sites.change_from(before) < SETTLED:
                break
        known = sites.updated(rows, matrix, self.noise_prior, refresh=False)
        variance = 1.0 / sites.likelihood.scale
        theta = theta.copy()
        theta[self.layout.places["noise"]] = np.log(variance)
        value = known.elbo(rows, self.noise_prior)
        return theta, replace(sites, noise=sites.noise / variance, value=value)

    def _refined(self, rows: Observations, matrix: np.ndarray, begin: Sites | None = None) -> Sites:
        """Return the sites with this prior covariance, after Newton refinement."""
        sites = begin
        if sites is None:
            sites = Sites.begin(rows, self.likelihood, self.n_outputs)
            for _ in range(UPDATES):
                sites = sites.updated(rows, matrix, self.noise_prior)
        moved = np.inf
        for _ in range(MOST_UPDATES):
            before = sites
            sites = sites.updated(rows, matrix, self.noise_prior, newton=True)
            change = sites.change_from(before)
            if change < SETTLED:
                break
            if change > moved:  # whole steps overshoot
                sites = sites.halfway(before)
            moved = change
        return sites

    def _matrix(self, rows: Observations, theta: np.ndarray) -> np.ndarray:
        return np.asarray(self.layout.kernel(theta).cross(rows.x, rows.x))

    def _first(self, rows: Observations) -> np.ndarray:
        """Return hyperparameters for likelihoods whose weights depend on f.

        The working responses at f = 0 are taken for targets with Gaussian noise; the scale of f is
        then the one with the highest ELBO.
        """
        sites = Sites.begin(rows, self.likelihood, self.n_outputs)
        target = sites.target - np.average(sites.target, axis=0, weights=rows.weight)
        spread = np.sqrt(np.average(target**2, axis=0, weights=rows.weight))
        target = np.clip(target / np.maximum(spread, 1e-12), -MOST_RESPONSE, MOST_RESPONSE)
        layout = Theta(self.parts, learns_noise=True)
        noise = np.repeat(1.0 / rows.weight[:, None], target.shape[1], axis=1)
        numbers = replace(sites, target=target, noise=noise)
        pairs = Pairs(rows.x, self.parts)
        results = [
            self._search(pairs, numbers, begin, ITERATIONS, layout)
            for begin in self._beginnings(layout)
        ]
        best = max(results, key=lambda result: result[1])[0]
        theta = np.delete(best, layout.places["noise"])
        log_scale = 2.0 * float(np.log(np.maximum(np.mean(spread), 1e-12)))
        return self._scaled(rows, theta, log_scale + SCALES)

    def _scaled(self, rows: Observations, theta: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Return hyperparameters with the best variance of f, trying larger and larger ones."""
        move = self._along(*VARIANCES)
        matrix, best, sites = self._matrix(rows, theta), (-np.inf, 0.0), None
        for log_scale in scales:
            scaled = np.exp(log_scale) * matrix
            sites = self._refined(rows, scaled, sites)
            known = sites.updated(rows, scaled, self.noise_prior, refresh=False)
            value = known.elbo(rows, self.noise_prior)
            if value < best[0]:
                break
            best = (value, float(log_scale))
        return theta + move * best[1]

    def _search(
        self,
        pairs: Pairs,
        sites: Sites,
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

        def report(intermediate_result: Any) -> None:
            gained = -float(intermediate_result.fun) - reached[1]
            reached[:] = theta + root @ intermediate_result.x, -float(intermediate_result.fun)
            if self.observe(reached[1], self.searches) or self.stopped:
                self.stopped = True
            if self.stopped or gained < ENOUGH:
                raise StopIteration

        try:
            optimum = minimize(
                energy,
                np.zeros(len(theta)),
                jac=True,
                method="L-BFGS-B",
                callback=report,
                options={"maxiter": iterations, "maxcor": 20},
            )
        except KeyboardInterrupt:
            if not self.may_be_interrupted or not np.isfinite(reached[1]):
                raise
            self.stopped = self.interrupted = True
            return np.asarray(reached[0]), float(reached[1])
        if same and len(theta) <= MOST_CURVED:
            self.curvature = Curvature.of(optimum, root, n)
        return theta + root @ optimum.x, -float(optimum.fun)

    def _posterior(self, rows: Observations, theta: np.ndarray, sites: Sites) -> FullPosterior:
        kernel = self.layout.kernel(theta)
        noise = sites.noise * self.layout.noise(theta)
        likelihood = sites.likelihood
        if self.exact:
            total = float(rows.weight.sum())
            variance = self.layout.noise(theta)
            # q(tau) with the width that so many rows give it
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
