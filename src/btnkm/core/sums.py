"""The sum beside the tensor: main effects of all inputs, with one Gaussian posterior.

f(x) = a(x) + T(x), where T is the tensor and

    a(x) = b_0 + sum_p beta_p phi_p(x)

has a few functions of each input (``bases.MainEffect``), all with mean zero over the rows. The
functions fall into groups, such as the straight line or the curve of one input. Group g has a
precision of its own, and within a curve the prior gets stronger with the degree:

    beta_p ~ N(0, 1 / (lambda_g degree_p^(2 nu_g))),   lambda_g ~ Gamma(c_k, d_k),

so the effect of an input may be zero, straight or curved. The precisions of all groups of one kind
k, such as all straight lines, have a common prior whose parameters are learned: where many inputs
matter about the same it is narrow, and the sum is close to ridge regression; where few matter, it
is wide. Given the weights and working responses of a likelihood, q of all coefficients is the
posterior of a Bayesian linear regression on the residuals of the tensor. With K outputs each has
its own coefficients, and the outputs share the precisions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, device
from scipy.special import digamma, polygamma

from .arrays import indices, like
from .gamma import LOG_2PI, Gamma
from .linalg import inverse_cholesky, square_root

Array = Any
INTERCEPT = 1e-2  # prior precision of b_0: weak, in units of 1 / var(y)
PRIOR = Gamma(0.1, 1e-4)  # of lambda_g, until its parameters are learned
FEWEST_GROUPS = 4  # of a kind whose prior is learned
SHAPES = 0.05, 3.0  # least and most shape of a prior that is learned
MOST_TOGETHER = 1000  # coefficients with a full covariance
TOGETHER = 100  # coefficients in each block, where there are more
SMOOTHNESS = np.arange(0.5, 4.01, 0.25)  # values of nu to choose from
USUAL, DOUBT = 2.0, 1.0  # mean and standard deviation of the prior of nu
FEWEST = 3  # functions of a group whose nu is learned
ENOUGH = 1e-3  # nats that one more step must gain
# fractions of the mean square of a, up to which a straight line and any other group may be dropped
NEGLIGIBLE_LINE, NEGLIGIBLE = 1e-4, 1e-2


LINE, CATEGORIES = "line", "categories"  # parts that begin with a precision of 1
LATER = 1e3  # the precision that all others begin with
STEPS = "steps"  # the part whose functions are groups of their own


class Group(NamedTuple):
    """Which coefficients share a precision."""

    mode: int  # the position of the input among those of the sum
    part: str  # of its effect: "line", "curve", "steps", "spikes", "categories", "missing"


@dataclass(frozen=True)
class Sums:
    """q of the coefficients, and the model that they belong to."""

    groups: tuple[Group, ...]  # all G groups, those that were dropped included
    # (P,): the group of each coefficient in the model; -1 for the intercept, which is the first
    group: np.ndarray
    # (P,): which function of its input a coefficient belongs to; -1 for the intercept
    column: np.ndarray
    degree: np.ndarray  # (P,)
    mean: np.ndarray  # (K, P)
    cov: np.ndarray  # (K, P, P)
    log_det: float  # of all covariances together
    precision: Gamma  # q of lambda, parameters of shape (G,)
    smoothness: np.ndarray  # (G,): nu
    prior: Gamma  # of lambda, parameters of shape (G,)

    @classmethod
    def begin(cls, effects: Any, n_outputs: int) -> Sums:
        """Return coefficients of zero, for the main effects of each input in the sum."""
        groups: list[Group] = []
        group, column, degree = [-1], [-1], [1.0]
        for d, effect in enumerate(effects):
            for k, part in enumerate(effect.parts_):
                # steps have a precision each: most inputs have few of them, if any
                if part == STEPS or not groups or groups[-1] != Group(d, part):
                    groups.append(Group(d, part))
                group.append(len(groups) - 1)
                column.append(k)
                degree.append(float(effect.degrees_[k]))
        size, count = len(group), len(groups)
        # straight lines come first; everything else begins close to zero
        first = np.array([1.0 if g.part in (LINE, CATEGORIES) else LATER for g in groups])
        return cls(
            tuple(groups),
            np.array(group),
            np.array(column),
            np.array(degree),
            np.zeros((n_outputs, size)),
            np.zeros((n_outputs, size, size)),
            -np.inf,
            Gamma(np.ones(count), 1.0 / first),
            np.full(count, USUAL),
            Gamma(np.full(count, PRIOR.shape), np.full(count, PRIOR.rate)),
        )

    @property
    def n_outputs(self) -> int:
        """The number of outputs, K."""
        return int(self.mean.shape[0])

    @property
    def size(self) -> int:
        """The number of coefficients in the model, P, that of the intercept included."""
        return int(self.mean.shape[1])

    @property
    def n_bytes(self) -> int:
        """The bytes of means and covariances."""
        return int(self.mean.nbytes + self.cov.nbytes)

    @cached_property
    def kept(self) -> np.ndarray:
        """The groups that are in the model, ascending."""
        return np.unique(self.group[self.group >= 0])

    @cached_property
    def blocks(self) -> list[np.ndarray]:
        """The coefficients of each covariance block; a group is never split."""
        starts = np.flatnonzero(np.diff(self.group, prepend=-2))
        ends = np.append(starts[1:], self.size)
        if self.size <= MOST_TOGETHER:
            return [np.arange(self.size)]
        blocks, first = [], 0
        for start, end in zip(starts, ends, strict=True):
            if end - first > TOGETHER and start > first:
                blocks.append(np.arange(first, start))
                first = int(start)
        return [*blocks, np.arange(first, self.size)]

    @cached_property
    def modes(self) -> dict[int, np.ndarray]:
        """The functions in the model, by the position of their input; in the order of P."""
        return {mode: self.column[places] for mode, places in self._places.items()}

    def places(self, mode: int) -> np.ndarray:
        """Return the coefficients that belong to an input."""
        return self._places.get(mode, np.empty(0, dtype=int))

    @cached_property
    def _places(self) -> dict[int, np.ndarray]:
        places: dict[int, list[int]] = {}
        for place, g in enumerate(self.group[1:], 1):
            places.setdefault(self.groups[g].mode, []).append(place)
        return {mode: np.array(positions) for mode, positions in places.items()}

    def same_functions(self, other: Sums) -> bool:
        """Return whether another sum has the same functions in the model."""
        return np.array_equal(self.group, other.group) and np.array_equal(self.column, other.column)

    def places_of(self, smaller: Sums) -> np.ndarray:
        """Return which of these coefficients a smaller sum has kept."""
        return np.flatnonzero(np.isin(self.group, np.append(-1, smaller.kept)))

    @cached_property
    def expected(self) -> np.ndarray:
        """E[lambda_g] degree^(2 nu), and the precision of the intercept: (P,)."""
        g = self.group[1:]
        precision = self.precision.mean[g] * self.degree[1:] ** (2.0 * self.smoothness[g])
        return np.append(INTERCEPT, precision)

    @cached_property
    def second(self) -> np.ndarray:
        """Sum over outputs of E[beta^2]: (P,)."""
        return np.asarray(np.sum(self.mean**2 + np.diagonal(self.cov, axis1=1, axis2=2), axis=0))

    def energies(self, smoothness: np.ndarray | None = None) -> np.ndarray:
        """Return sum_p degree^(2 nu) E[beta_p^2] of every group: (G,)."""
        nu = self.smoothness if smoothness is None else smoothness
        g = self.group[1:]
        weighted = self.degree[1:] ** (2.0 * nu[g]) * self.second[1:]
        return np.bincount(g, weighted, minlength=len(self.groups))

    @cached_property
    def counts(self) -> np.ndarray:
        """Coefficients of every group, of one output: (G,)."""
        return np.bincount(self.group[1:], minlength=len(self.groups))

    @cached_property
    def _log_degrees(self) -> np.ndarray:
        return np.bincount(self.group[1:], np.log(self.degree[1:]), minlength=len(self.groups))

    def solved(self, gram: np.ndarray, linear: np.ndarray) -> tuple[Sums, float]:
        """Return the best q of the coefficients, given (K, P, P) and (K, P), and the jitter used.

        The log likelihood is linear . beta - beta^T gram beta / 2 of each output, and a constant.
        Where there are many coefficients, q has one factor for each of their blocks.
        """
        means, covs, log_det, largest = [], [], 0.0, 0.0
        for gram_k, b, mean in zip(gram, linear, self.mean, strict=True):
            mean, cov = mean.copy(), np.zeros_like(gram_k)
            for block in self.blocks:
                both = np.ix_(block, block)
                a = gram_k[both] + np.diag(self.expected[block])
                inverse, value, jitter = inverse_cholesky(a)
                rest = b[block]
                if len(self.blocks) > 1:  # subtract what the other blocks explain
                    rest = rest - gram_k[block] @ mean + gram_k[both] @ mean[block]
                mean[block] = inverse.T @ (inverse @ rest)
                cov[both] = inverse.T @ inverse
                log_det -= value
                largest = max(largest, jitter)
            means.append(mean)
            covs.append(cov)
        solved = replace(self, mean=np.array(means), cov=np.array(covs), log_det=log_det)
        return solved, largest

    def learned(self, *, fast: bool = False) -> Sums:
        """Return the sum with q(lambda) and nu updated; ``fast`` takes a longer step.

        Both have the same fixed point, but only the plain step never lowers the ELBO.
        """
        nu = self._best_smoothness()
        energy, count = self.energies(nu), self.n_outputs * self.counts
        shape = self.prior.shape + 0.5 * count
        rate = self.prior.rate + 0.5 * energy
        if fast:
            g = self.group[1:]
            spread = np.sum(np.diagonal(self.cov, axis1=1, axis2=2), axis=0)[1:]
            spread = np.bincount(
                g, self.degree[1:] ** (2.0 * nu[g]) * spread, minlength=len(self.groups)
            )
            effective = np.maximum(count - self.precision.mean * spread, 1e-3 * count)
            alone = np.maximum(energy - spread, 1e-12 * energy + 1e-300)
            rate = shape * (self.prior.rate + 0.5 * alone) / (self.prior.shape + 0.5 * effective)
        precision = Gamma(shape, rate)
        return replace(self, precision=precision, smoothness=nu, prior=self._best_prior(precision))

    def _best_prior(self, precision: Gamma) -> Gamma:
        """Return the prior of each kind of groups where the ELBO, given q(lambda), is highest."""
        shape, rate = self.prior.shape.copy(), self.prior.rate.copy()
        kinds = np.array([group.part for group in self.groups])
        for kind in np.unique(kinds[self.kept]):
            of_kind = self.kept[kinds[self.kept] == kind]
            if len(of_kind) >= FEWEST_GROUPS:
                everywhere = kinds == kind
                shape[everywhere], rate[everywhere] = _fitted_gamma(precision.take(of_kind))
        return Gamma(shape, rate)

    def _best_smoothness(self) -> np.ndarray:
        """Return nu of every group where the ELBO, with the best q(lambda), is highest."""
        count, nu = self.n_outputs * self.counts, SMOOTHNESS[:, None]
        members = self.group[1:, None] == np.arange(len(self.groups))
        energies = (self.degree[1:] ** (2.0 * nu) * self.second[1:]) @ members.astype(float)
        values = nu * self.n_outputs * self._log_degrees
        values -= (self.prior.shape + 0.5 * count) * np.log(self.prior.rate + 0.5 * energies)
        values -= 0.5 * ((nu - USUAL) / DOUBT) ** 2
        best = SMOOTHNESS[np.argmax(values, axis=0)]
        return np.where(self.counts >= FEWEST, best, self.smoothness)

    def terms(self) -> dict[str, float]:
        """Return the terms of the ELBO by name, without that of the likelihood."""
        g = self.group[1:]
        log_prior = np.append(
            np.log(INTERCEPT),
            self.precision.log_mean[g] + 2.0 * self.smoothness[g] * np.log(self.degree[1:]),
        )
        weights = 0.5 * float(
            self.n_outputs * np.sum(log_prior - LOG_2PI) - self.expected @ self.second
        )
        entropy = 0.5 * (self.mean.size * (1.0 + LOG_2PI) + self.log_det)
        kept = self.kept
        kl = float(np.sum(self.precision.take(kept).kl(self.prior.take(kept))))
        doubt = float(np.sum(0.5 * ((self.smoothness[kept] - USUAL) / DOUBT) ** 2))
        return {"sums": weights + entropy, "sums precisions": -kl - doubt}

    def fit_term(self, gram: np.ndarray, linear: np.ndarray) -> float:
        """Return the part of the expected log likelihood that depends on the coefficients."""
        square = np.einsum("kp,kpq,kq->", self.mean, gram, self.mean)
        return float(np.sum(linear * self.mean) - 0.5 * (square + np.sum(gram * self.cov)))

    def value(self, gram: np.ndarray, linear: np.ndarray) -> float:
        """Return the part of the ELBO that depends on the coefficients and their precisions."""
        return self.fit_term(gram, linear) + sum(self.terms().values())

    def without(self, lost: np.ndarray) -> Sums:
        """Return the marginal without some groups."""
        keep = np.flatnonzero(~np.isin(self.group, lost))
        cov = self.cov[:, keep[:, None], keep]
        smaller = replace(
            self,
            group=self.group[keep],
            column=self.column[keep],
            degree=self.degree[keep],
            mean=self.mean[:, keep],
            cov=cov,
            log_det=-np.inf,
        )
        if not np.any(cov):
            return smaller
        blocks = [np.flatnonzero(np.isin(keep, block)) for block in self.blocks]
        log_dets = [
            inverse_cholesky(c[np.ix_(block, block)])[1]
            for c in cov
            for block in blocks
            if len(block)
        ]
        return replace(smaller, log_det=float(sum(log_dets)))

    def gains(self) -> np.ndarray:
        """Return the gain of the ELBO by the loss of each group alone: (G,)."""
        gains = np.full(len(self.groups), -np.inf)
        kl = self.precision.kl(self.prior)
        for g in self.kept:
            members = np.flatnonzero(self.group == g)
            gain = float(kl[g]) + 0.5 * ((self.smoothness[g] - USUAL) / DOUBT) ** 2
            log_prior = self.precision.log_mean[g] + 2.0 * self.smoothness[g] * np.log(
                self.degree[members]
            )
            gain -= 0.5 * self.n_outputs * float(np.sum(log_prior - LOG_2PI))
            for mean, cov in zip(self.mean, self.cov, strict=True):
                inverse, log_det, _ = inverse_cholesky(cov[np.ix_(members, members)])
                white = inverse @ mean[members]
                gain -= 0.5 * (float(white @ white) + log_det + len(members) * LOG_2PI)
            gains[g] = gain
        return gains

    def expendable(self, gram: np.ndarray) -> list[int]:
        """Return negligible groups whose loss, each alone, raises the ELBO; the best first."""
        sizes = np.zeros(len(self.groups))
        for g in self.kept:
            members = np.flatnonzero(self.group == g)
            part, gram_g = self.mean[:, members], gram[:, members[:, None], members]
            sizes[g] = np.einsum("kp,kpq,kq->", part, gram_g, part)
        limits = [NEGLIGIBLE_LINE if group.part == "line" else NEGLIGIBLE for group in self.groups]
        small = sizes <= np.array(limits) * max(float(sizes.sum()), np.finfo(float).tiny)
        candidates = self.kept[small[self.kept]]
        if not len(candidates):
            return []
        gains = self.gains()
        lost = candidates[gains[candidates] > 0]
        return [int(g) for g in lost[np.argsort(-gains[lost])]]

    def draw(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws of the coefficients: (n_draws, K, P)."""
        draws = np.empty((n_draws, *self.mean.shape))
        for k, (mean, cov) in enumerate(zip(self.mean, self.cov, strict=True)):
            noise = rng.standard_normal((n_draws, len(mean)))
            for block in self.blocks:
                root = square_root(cov[np.ix_(block, block)])
                draws[:, k, block] = mean[block] + noise[:, block] @ root.T
        return draws


def _fitted_gamma(precisions: Gamma) -> tuple[float, float]:
    """Return shape and rate of the Gamma prior of precisions with the highest ELBO."""
    mean = float(np.mean(precisions.mean))
    excess = max(np.log(mean) - float(np.mean(precisions.log_mean)), 1e-6)
    shape = (3.0 - excess + np.sqrt((excess - 3.0) ** 2 + 24.0 * excess)) / (12.0 * excess)
    for _ in range(4):  # of Newton's method, for log(shape) - digamma(shape) = excess
        value = np.log(shape) - digamma(shape) - excess
        shape = max(shape - value / (1.0 / shape - polygamma(1, shape)), 0.5 * shape)
    shape = float(np.clip(shape, *SHAPES))
    return shape, shape / mean


def refine(
    sums: Sums, gram: np.ndarray, linear: np.ndarray, steps: int, *, learn: bool = True
) -> tuple[Sums, float]:
    """Update coefficients and precisions in turn, up to so many times; also return the jitter.

    The ELBO never falls. A long step of the precisions is tried first; where it lowers the ELBO,
    the plain step is taken, which never does.
    """
    sums, largest = sums.solved(gram, linear)
    if not learn:
        return sums, largest
    value, fast = sums.value(gram, linear), True
    for _ in range(steps):
        before = value
        tried, jitter = sums.learned(fast=fast).solved(gram, linear)
        value = tried.value(gram, linear)
        if value < before and fast:
            fast = False
            tried, jitter = sums.learned().solved(gram, linear)
            value = tried.value(gram, linear)
        sums, largest = tried, max(largest, jitter)
        if value - before < ENOUGH:
            break
    return sums, largest


@dataclass(frozen=True)
class SumsTerms:
    """What the rows need of q of the coefficients."""

    first: int  # index of the first input of the sum among the features of a row
    modes: dict[int, np.ndarray]  # which functions of an input are in the model
    # (K, P) and (K, P, P)
    mean: np.ndarray
    cov: np.ndarray

    @classmethod
    def of(cls, sums: Sums, first: int) -> SumsTerms:
        """Return the terms of a posterior."""
        return cls(first, sums.modes, sums.mean, sums.cov)

    def features(self, features_of: Any) -> Array:
        """Return the intercept's 1 and all functions in the model: (n, P)."""
        parts = []
        for mode, columns in self.modes.items():
            phi = features_of(self.first + mode)[0]
            if len(columns) < phi.shape[1]:
                phi = array_namespace(phi).take(phi, indices(columns, phi), axis=1)
            parts.append(phi)
        if not parts:  # only the intercept is left
            parts.append(features_of(self.first)[0][:, :0])
        xp, (n, _) = array_namespace(parts[0]), parts[0].shape
        ones = xp.ones((n, 1), dtype=parts[0].dtype, device=device(parts[0]))
        return xp.concat([ones, *parts], axis=1)

    def means(self, phi: Array) -> Array:
        """Return E[a] of every row and output: (n, K)."""
        return phi @ like(self.mean.T, phi)

    def variances(self, phi: Array) -> Array:
        """Return Var[a] of every row and output: (n, K)."""
        xp = array_namespace(phi)
        return xp.stack([xp.sum((phi @ like(c, phi)) * phi, axis=1) for c in self.cov], axis=1)
