"""Which structures are worth having, and with what weights.

A structure is a sum of main effects, a tensor, or both; a tensor is a CP tensor or a tensor train
with an order of its inputs. None of that is known beforehand, and the ELBO is a poor judge of it
(docs/experiments.md). So rows are held out, every candidate is fitted to the others, and each
candidate gets the weight that it has in the mixture that predicts the rows held out best
(stacking). Where rows are few, the posteriors of these fits are kept: restarts continue from them,
with all rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ..core.full_fit import Curvature, has_evidence
from ..plan import FitPlan
from .full_tensor import fit_full
from .mode_map import ModeMap
from .noise import noise_varies
from .stacking import HeldOut, best_noise, copies, folds, held_out, mean_and_error, stack
from .task import FEWEST_ROWS, NO_FIT, Task, try_out

Array = np.ndarray
BEYOND_DOUBT = 3.0  # standard errors of a mean difference in log density
CLEARLY_BEHIND = 2.0  # standard errors of the mean difference in log density
WORSE = 0.1  # of the least mean squared error, by which another is worse at least
# weight of a candidate below which it is left out: after each fold if it is clearly behind the
# best, and in the end
USELESS = 0.05
DOUBT = 10.0  # rows, as if what is simpler than full cores had predicted so many
DOUBT_OF_EXACT = 20.0  # the same for full tensors of numbers: they do not follow their noise
DOUBT_OF_ALL = 1.0  # rows, as if every candidate had predicted so many more
# logarithms of what f is enlarged by where weights depend on it, and nats that it must gain
SCALES, SCALED = tuple(np.log(4.0) * np.arange(1, 5)), 1.0
# more attempts at a tensor that has collapsed: beyond main effects it has gained no more than this
# part of what the best candidate has
ATTEMPTS, NOTHING = 2, 0.1
MOST_TIED = 0.2  # of the rows with one value of y, up to which other noise is tried
OUTLIER = 30.0  # median errors, at which errors are clipped where there are heavy tails
HEAVY_TAILS = 6.0  # degrees of freedom up to which noise gets a likelihood with heavy tails
KNOWN_ROWS = 200  # from which on a full tensor continues from the hyperparameters of another fold


@dataclass
class Candidate:
    """A structure, and what its short fits have shown."""

    mode_map: ModeMap
    weight: float = 1.0  # in the mixture of all candidates
    log_density: float = np.nan  # mean over the rows held out; NaN if there were none
    count: int = 1  # of restarts
    # posteriors that a fit of all rows may continue from, the best first; while candidates are
    # compared, with the log density of the rows held out
    states: list[Any] = field(default_factory=list)
    seconds: float = 0.0  # that its fits took
    # factor of the noise variance, and most degrees of freedom, that suit the rows held out
    noise: tuple[float, float] = (1.0, np.inf)
    # logarithm of the factor of the variances of f that suits them, where weights depend on f
    scale: float = 0.0
    curvature: Curvature | None = None  # of the evidence of a full tensor
    # for each fold that it was fitted to: its predictions of the rows held out (None where the fit
    # failed), and the log density and the error of the mean of each of these rows
    held: list[HeldOut | None] = field(default_factory=list)
    scores: list[Array] = field(default_factory=list)
    errors: list[Array] = field(default_factory=list)
    simpler: Candidate | None = None  # the same with constant noise, where both are compared


def judge(
    plan: FitPlan,
    task: Task,
    mode_maps: Sequence[ModeMap],
    vary: Callable[[ModeMap], ModeMap | None] = lambda _: None,
    with_varying_noise: Callable[[ModeMap], ModeMap] = lambda mode_map: mode_map,
) -> list[Candidate]:
    """Return candidates with their weights in the mixture that predicts rows held out best.

    With too few rows to compare, the simplest structure has all the weight. ``vary`` returns one
    more candidate, given the best low-rank tensor after the first fold. As soon as rows held out
    have heavy tails, the best candidates are fitted with such noise, too.
    """
    candidates = [Candidate(mode_map) for mode_map in mode_maps]
    simple = np.array([_is_simple(a, mode_maps) for a in mode_maps], dtype=float)
    for candidate, weight in zip(candidates, simple / simple.sum(), strict=True):
        candidate.weight = float(weight)
    if len(candidates) == 1 or task.sample.n < FEWEST_ROWS:
        return candidates
    labels = task.sample.y if task.target.likelihood.of_labels else None
    rng, comparing = np.random.default_rng(task.seeds), plan.defaults.comparing
    group = copies(task.sample)
    cuts = list(folds(task.sample.n, comparing.enough_rows, rng, labels, group))
    cuts = [(rows, out) for rows, out in cuts if np.ptp(task.sample.y[rows]) > 0 and len(out)]
    comparison = Comparison(plan, task, candidates, vary, with_varying_noise)
    for k, cut in enumerate(cuts):
        comparison.add_fold(cut, f"rows held out {k + 1} of {len(cuts)}")
        while comparing.variants and (more := comparison.add()):
            for candidate in more:
                comparison.log(
                    f"rows held out 1 to {k + 1}: a variant of {candidate.mode_map.structure}"
                )
                for earlier in cuts[: k + 1]:
                    comparison.fit(candidate, earlier)
            comparison.replace_simpler(more)
        if k + 1 < len(cuts):
            comparison.drop()
    comparison.conclude()
    return candidates


class Comparison:
    """Candidates, and how they have predicted the rows held out so far."""

    def __init__(
        self,
        plan: FitPlan,
        task: Task,
        candidates: list[Candidate],
        vary: Callable[[ModeMap], ModeMap | None] = lambda _: None,
        with_varying_noise: Callable[[ModeMap], ModeMap] = lambda mode_map: mode_map,
    ) -> None:
        self.plan, self.task = plan, task
        self.vary, self.with_varying_noise = vary, with_varying_noise
        self.has_varied = False
        self.candidates, self.remaining = candidates, list(candidates)
        self.rows: list[Array] = []

    def log(self, line: str) -> None:
        """Print a line if the fit is verbose."""
        if self.plan.verbose:
            print(line)

    def add_fold(self, cut: tuple[Array, Array], title: str) -> None:
        """Fit the candidates that remain to a fold; fit again those that have collapsed."""
        for candidate in self.remaining:
            self.log(f"{title}: {candidate.mode_map.structure}")
            self.fit(candidate, cut)
        self.rows.append(cut[1])
        for attempt in range(1, ATTEMPTS + 1):
            for candidate in self.collapsed():
                self.log(f"{title}: {candidate.mode_map.structure} again")
                self.fit_again(candidate, cut, attempt)

    def fit(self, candidate: Candidate, cut: tuple[Array, Array], attempt: int = 0) -> None:
        """Fit a candidate to some rows, and keep how it predicts the others."""
        mode_map, begin = candidate.mode_map, time.perf_counter()
        rows, out = cut
        held, error = None, np.full(len(out), np.inf)
        with suppress(*NO_FIT):
            states: Sequence[Any]
            if mode_map.full_tensor:
                states = self._fit_full(candidate, cut)
            else:
                states = try_out(self.plan, self.task, mode_map, rows, 1, attempt=attempt)
            held = held_out(self.task, mode_map, states, out)
            error = held.residuals.mean(axis=0)
            logs = held.log_densities() @ held.weights / len(out)
            candidate.states += list(zip(logs.tolist(), states, strict=True))
        candidate.held.append(held)
        candidate.errors.append(error)
        self._rescore(candidate)
        candidate.seconds += time.perf_counter() - begin

    def collapsed(self) -> list[Candidate]:
        """Return tensors that have gained next to nothing over main effects.

        They are returned only if another candidate with the same kind of noise shows, for the same
        rows, that there is more to gain.
        """
        sums = next(
            (candidate for candidate in self.candidates if not candidate.mode_map.inputs), None
        )
        if sums is None or len(sums.scores) < len(self.rows):
            return []
        weights = self.task.sample.weights[self.rows[-1]]
        share = weights / weights.sum()
        without = float(sums.scores[-1] @ share)

        def nothing(candidate: Candidate) -> bool:
            noise, score = candidate.mode_map.noise, candidate.scores[-1]
            rivals = [other.scores[-1] for other in self.remaining if other.mode_map.noise == noise]
            best = max(rivals, key=lambda rival: float(rival @ share))
            mean, error = mean_and_error(np.nan_to_num(best - score, posinf=1e3), share)
            gained, known = float(score @ share) - without, float(best @ share) - without
            return gained < NOTHING * known and mean > CLEARLY_BEHIND * error

        return [
            candidate
            for candidate in self.remaining
            if candidate.mode_map.low_rank and nothing(candidate)
        ]

    def fit_again(self, candidate: Candidate, cut: tuple[Array, Array], attempt: int) -> None:
        """Fit a candidate once more to the last fold, and keep the better attempt."""
        before = len(candidate.states)
        self.fit(candidate, cut, attempt)
        weights = self.task.sample.weights[cut[1]]
        fitted = [fold is not None for fold in candidate.held[-2:]]
        first, second = (scores @ weights for scores in candidate.scores[-2:])
        worse = -1 if first >= second else -2
        if len(candidate.states) > before and all(fitted):
            del candidate.states[worse]
        for by_fold in (candidate.held, candidate.scores, candidate.errors):
            del by_fold[worse]
        self._rescore(candidate)

    def _rescore(self, candidate: Candidate) -> None:
        """Choose the noise that suits the rows held out, and compute the scores with it."""
        known = [fold for fold in candidate.held if fold is not None]
        numbers = not self.task.target.signs
        if known and numbers and hasattr(known[0].likelihoods[0], "recalibrated"):
            candidate.noise = best_noise(known)
        candidate.scores = []
        for fold, error in zip(candidate.held, candidate.errors, strict=True):
            score = np.full(len(error), -np.inf) if fold is None else fold.score(candidate.noise)
            score = np.nan_to_num(score, nan=-np.inf, neginf=-np.inf)
            candidate.scores.append(score)

    def _fit_full(self, candidate: Candidate, cut: tuple[Array, Array]) -> Sequence[Any]:
        """Return posteriors of a full tensor, starting from an earlier fold.

        If the noise is not learned, the first rows held out determine the scale of f. With many
        rows the hyperparameters of the first fold are kept, as they hardly differ between folds.
        """
        settings = self.plan.settings(candidate.mode_map, self.task.sample, 1)

        def fit(*begin: Any, **how: Any) -> Sequence[Any]:
            make = partial(fit_full, self.task, candidate.mode_map, cut[0], settings)
            states, curvature = make(*begin, curvature=candidate.curvature, **how)
            candidate.curvature = curvature or candidate.curvature
            return states

        learns = has_evidence(settings.likelihood)
        simpler = next(other for other in self.candidates if other.mode_map.full_tensor)
        if not candidate.states and simpler is not candidate:
            return fit(*(state for _, state in simpler.states[:1]))
        if not candidate.states:
            states = fit() if learns else fit(scale=0.0)
            return states if learns else self._scaled(candidate, fit, states, cut[1])
        known = candidate.states[0][1]
        if len(cut[0]) > KNOWN_ROWS:
            return fit(known, iterations=0, scale=None if learns else 0.0)
        states = fit(known)
        return states if learns else fit(states[0], iterations=0, scale=candidate.scale)

    def _scaled(
        self, candidate: Candidate, fit: Callable[..., Any], states: Sequence[Any], out: Array
    ) -> Sequence[Any]:
        """Return posteriors with the scale of f that predicts rows held out best.

        The ELBO is far below the evidence where f is large, and its scale is too small.
        """

        def score(posteriors: Sequence[Any]) -> float:
            held = held_out(self.task, candidate.mode_map, posteriors, out)
            return float(held.weights @ held.score())

        candidate.scale, best = 0.0, score(states)
        with suppress(*NO_FIT):
            for scale in SCALES:
                tried = fit(states[0], iterations=0, scale=scale - candidate.scale)
                reached = score(tried)
                if not reached > best + SCALED:
                    break
                states, best, candidate.scale = tried, reached, scale
        return states

    def add(self) -> list[Candidate]:
        """Add variants of the best candidates, and return them.

        After the first fold there is one of the best tensor. Variants with noise that varies, or
        that has heavy tails, are added once the held-out rows show such noise.
        """
        more: list[Candidate] = []
        tensors = [candidate for candidate in self.remaining if candidate.mode_map.low_rank]
        if not self.has_varied:
            self.has_varied = True
            self.drop()
            splines = self.vary(self._best(tensors).mode_map) if tensors else None
            more += [Candidate(splines, 0.0)] if splines is not None else []
        if self._noise_varies():
            more += [
                Candidate(self.with_varying_noise(other.mode_map), 0.0, simpler=other)
                for other in self.remaining
            ]
        elif not any(candidate.mode_map.heavy for candidate in self.candidates):
            more += [
                Candidate(replace(other.mode_map, heavy=True), 0.0)
                for other in self._with_heavy_tails()
            ]
        self.candidates += more
        self.remaining += more
        return more

    def replace_simpler(self, more: list[Candidate]) -> None:
        """Leave out what has constant noise, and predicts worse than with noise that varies.

        It stays if its mean is more accurate, as weights that follow the noise have their price,
        unless its log density is beyond doubt worse and its mean hardly more accurate.
        """
        for candidate in more:
            simpler = candidate.simpler
            if simpler is None:
                continue
            gain, error = self._mean_and_error(
                np.nan_to_num(np.concatenate(candidate.scores), neginf=-1e3)
                - np.nan_to_num(np.concatenate(simpler.scores), neginf=-1e3)
            )
            beyond_doubt = gain > BEYOND_DOUBT * error
            if gain > 0 and not self._is_less_accurate(candidate, simpler, slightly=beyond_doubt):
                self.remaining = [other for other in self.remaining if other is not simpler]

    def _is_less_accurate(self, candidate: Candidate, other: Candidate, *, slightly: bool) -> bool:
        """Return whether the mean of a candidate has a larger squared error, and not by chance.

        It may be ``slightly`` larger.
        """
        squares = np.concatenate(other.errors) ** 2
        worse, error = self._mean_and_error(np.concatenate(candidate.errors) ** 2 - squares)
        allowed = WORSE * self._mean_and_error(squares)[0] if slightly else 0.0
        return worse > max(error, allowed)

    def _mean_and_error(self, values: Array) -> tuple[float, float]:
        """Return the mean of values of all held-out rows so far, and its standard error."""
        weights = self.task.sample.weights[np.concatenate(self.rows)]
        return mean_and_error(values, weights / weights.sum())

    def _noise_varies(self) -> bool:
        """Return whether errors of the best candidate show that the noise varies."""
        known = any(candidate.mode_map.noise_effects for candidate in self.candidates)
        if known or self.task.target.noise != "auto" or self._is_tied():
            return False
        best = self._best(self.remaining)
        held = [fold for fold in best.held if fold is not None]
        if len(held) < len(best.held):
            return False
        rows = np.concatenate(self.rows)
        codes = [code[rows] for code in self.task.sample.codes]
        return noise_varies(held, best.noise, self.with_varying_noise(best.mode_map), codes)

    def _best(self, candidates: Sequence[Candidate]) -> Candidate:
        """Return the candidate that predicts the rows held out best."""

        def score(candidate: Candidate) -> float:
            weights = self.task.sample.weights[np.concatenate(self.rows)]
            return float(np.concatenate(candidate.scores) @ weights)

        return max(candidates, key=score)

    def _with_heavy_tails(self) -> list[Candidate]:
        """Return the best candidate and the full tensor, if their errors have heavy tails."""
        if not self.task.target.tries_heavy_tails:
            return []
        if self._is_tied():
            return []
        best = self._best(self.remaining)
        chosen = [
            candidate
            for candidate in self.remaining
            if candidate is best or candidate.mode_map.full_tensor
        ]
        return [candidate for candidate in chosen if candidate.noise[1] <= HEAVY_TAILS]

    def _is_tied(self) -> bool:
        """Return whether many rows have the same y: a density could grow there without limit."""
        y, weights = self.task.sample.y, self.task.sample.weights
        tied = np.bincount(np.unique(y, return_inverse=True)[1], weights)
        return bool(np.max(tied) > MOST_TIED * weights.sum())

    def _table(self) -> tuple[Array, Array, Array]:
        """Return log densities and errors by remaining candidate, and the weight of every row."""
        scores = np.array([np.concatenate(candidate.scores) for candidate in self.remaining])
        errors = np.array([np.concatenate(candidate.errors) for candidate in self.remaining])
        if any(candidate.mode_map.heavy for candidate in self.candidates):
            # one outlier would decide about the means against all other rows
            most = OUTLIER * float(np.min(np.median(np.abs(errors), axis=1)))
            errors = np.where(np.isfinite(errors), np.clip(errors, -most, most), errors)
        return scores, errors, self.task.sample.weights[np.concatenate(self.rows)]

    def weights(self) -> Array | None:
        """Return weights of the candidates that remain, or None if none could be fitted."""
        scores, errors, weight = self._table()
        known = np.any(np.isfinite(scores), axis=0)
        if not np.any(known):
            return None
        mode_maps = [candidate.mode_map for candidate in self.remaining]
        prior = np.array([self._doubt(mode_map, mode_maps) for mode_map in mode_maps])
        residuals = None
        if self.task.target.likelihood.additive and np.all(np.isfinite(errors)):
            residuals = errors[:, known]
        share = weight / weight.sum()
        return stack(scores[:, known], len(weight) * share[known], prior, residuals)

    def _doubt(self, candidate: ModeMap, others: Sequence[ModeMap]) -> float:
        """Return the number of extra rows that a candidate counts as having predicted.

        They favour the full tensor, which is exact: it is a candidate where rows are few, and few
        rows can hardly tell. They are fewer where a row contains little information, as labels do.
        """
        likelihood = self.task.target.likelihood
        if candidate.full_tensor:
            more = DOUBT_OF_EXACT if likelihood.additive else DOUBT * likelihood.worth
            return DOUBT_OF_ALL + more / sum(other.full_tensor for other in others)
        return DOUBT_OF_ALL + DOUBT * _beside_full(candidate, others)

    def drop(self) -> None:
        """Leave out candidates that are clearly behind the best and add nothing to it.

        A tensor of low rank is left out, too, if both the full tensor and another of low rank are
        ahead of it.
        """
        weights = self.weights()
        if weights is None:
            return
        scores, _, weight = self._table()
        share = weight / weight.sum()
        means = scores @ share
        best = int(np.argmax(means))
        shapes = [candidate.mode_map for candidate in self.remaining]
        exact = max(
            (m for a, m in zip(shapes, means, strict=True) if a.full_tensor), default=-np.inf
        )
        low = max((m for a, m in zip(shapes, means, strict=True) if a.low_rank), default=-np.inf)
        kept = []
        for candidate, row, score, w in zip(self.remaining, scores, means, weights, strict=True):
            behind = np.nan_to_num(scores[best] - row, posinf=1e3)
            mean, error = mean_and_error(behind, share)
            second = candidate.mode_map.low_rank and score < min(exact, low)
            if not second and (w >= USELESS or mean <= CLEARLY_BEHIND * error):
                kept.append(candidate)
        self.remaining = kept

    def drop_worse_means(self) -> None:
        """Leave out candidates whose mean prediction is clearly worse than the best one.

        Where the noise varies, a tensor may fit the noise: it gains density and loses accuracy.
        """
        if not self.task.target.likelihood.additive:
            return
        _, errors, weight = self._table()
        share, squares = weight / weight.sum(), np.nan_to_num(errors**2, posinf=1e100)
        best = squares[int(np.argmin(squares @ share))]
        kept = []
        for candidate, row in zip(self.remaining, squares, strict=True):
            mean, error = mean_and_error(row - best, share)
            if mean <= max(CLEARLY_BEHIND * error, WORSE * float(best @ share)):
                kept.append(candidate)
        self.remaining = kept

    def conclude(self) -> None:
        """Set the weight of every candidate, and sort its posteriors, the best first."""
        if self.rows:
            self.drop_worse_means()
        weights = self.weights() if self.rows else None
        for candidate in self.candidates:
            ranked = sorted(candidate.states, key=lambda pair: -pair[0])
            candidate.states = [state for _, state in ranked]
        if weights is None:
            return
        for candidate in self.candidates:
            candidate.weight = 0.0
            scores = np.concatenate(candidate.scores)
            weight = self.task.sample.weights[np.concatenate(self.rows)][: len(scores)]
            candidate.log_density = float(scores @ weight / weight.sum())
        weights = np.where(weights < USELESS, 0.0, weights)
        for candidate, w in zip(self.remaining, weights / weights.sum(), strict=True):
            candidate.weight = float(w)


def _is_simple(mode_map: ModeMap, mode_maps: Sequence[ModeMap]) -> bool:
    """Tell whether it is used where rows are too few to compare structures.

    That is the full tensor, main effects alone, or else whatever has no full cores.
    """
    if any(other.full_tensor for other in mode_maps):
        return mode_map.full_tensor
    if any(not other.inputs for other in mode_maps):
        return not mode_map.inputs
    return not mode_map.full_cores or all(other.full_cores for other in mode_maps)


def _beside_full(mode_map: ModeMap, mode_maps: Sequence[ModeMap]) -> bool:
    """Tell whether it is simpler than a candidate with full cores."""
    return (
        bool(mode_map.inputs)
        and not mode_map.full_cores
        and any(other.full_cores for other in mode_maps)
    )
