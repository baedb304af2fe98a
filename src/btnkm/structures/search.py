"""Which structures are worth having, with what weights, and with how many restarts.

A structure is a sum of main effects, a tensor, or both; a tensor is a CP tensor or a tensor train
with an order of its inputs. None of that can be known before, and the ELBO is a poor judge of it
(docs/experiments.md). So rows are held out, every candidate is fitted to the others, and the
mixture of candidates that predicts the rows held out best (stacking) says what weight each of them
has. Where rows are few, the posteriors of these fits are not lost: restarts go on from them, with
all rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ..core.ascent import FULL
from ..core.full_fit import Curvature, learns_noise
from ..core.linalg import NotPositiveDefiniteError
from ..core.state import State
from ..execution import fitting
from .full_tensor import fit_full
from .mode_map import Arrangement
from .stacking import MOST_ROWS, HeldOut, best_noise, copies, folds, held_out, mean_and_error, stack
from .tt_order import Tensor, chain_order

Array = np.ndarray
FEWEST_ROWS = 15  # with fewer there is nothing to choose by
# at most, of the exact phase and of the one before; with more rows fewer, but so many at least
SWEEPS, WARM_SWEEPS, LEAST_SWEEPS = 25, 10, 12
CLEARLY_BEHIND = 2.0  # standard errors of the mean difference in log density
WORSE = 0.1  # of the least mean squared error, by which another is worse at least
# weight of a candidate below which it is left out: after each fold if it is clearly behind the
# best, and in the end
USELESS = 0.05
DOUBT = 10.0  # rows, as if what is simpler than a full train had predicted so many
DOUBT_OF_EXACT = 20.0  # the same for full tensors of numbers: they do not follow their noise
DOUBT_OF_ALL = 1.0  # rows, as if every candidate had predicted so many more
# logarithms of what f is enlarged by where weights depend on it, and nats that it must gain
SCALES, SCALED = tuple(np.log(4.0) * np.arange(1, 5)), 1.0
# restarts of a tensor in place of one that has collapsed: beyond main effects it has gained no
# more than this share of what the best candidate has
AGAIN, NOTHING = 2, 0.1
VARIANTS = True  # whether the best candidates are tried with splines and heavy tails, too
MOST_TIED = 0.2  # of the rows with one value of y, up to which such noise is looked for
OUTLIER = 30.0  # median errors, from which on an error counts no more where there are heavy tails
HEAVY_TAILS = 6.0  # degrees of freedom up to which noise gets a likelihood with heavy tails
KNOWN_ROWS = 200  # from which on a full tensor goes on from the hyperparameters of another fold
LEAST_WEIGHT = 0.02  # of a restart beside the best one, below which it is left out
FEWEST_RESTARTS = 2  # of tensors of low rank with any weight, if there may be so many
ROWS_OF_A_VOTE = 10.0  # by which restarts of a structure are weighed: see vote
NO_FIT = (
    NotPositiveDefiniteError,
    np.linalg.LinAlgError,
    MemoryError,
)  # of a candidate, which is no reason to give up
ORDER_RESTARTS = 4  # of components, from which an order of the inputs is found
SettingsOf = Callable[[int, Arrangement], fitting.Settings]  # given a number of rows


@dataclass
class Candidate:
    """A structure and what rows held out say of it.

    Attributes
    ----------
    arrangement : Arrangement
    weight : float
        In the mixture of all candidates.
    log_density : float
        Mean over the rows held out; NaN where there were none.
    count : int
        Restarts.
    states : list
        Posteriors to go on from with all rows, the best first.
    seconds : float
        That fits have taken.
    noise : tuple of (float, float)
        Factor of the noise variance, and most degrees of freedom, that rows held out speak for.
    scale : float
        Logarithm of the factor of the variances of f that they speak for, where weights depend on
        f.
    curvature : Curvature or None
        Of the evidence of a full tensor.
    """

    arrangement: Arrangement
    weight: float = 1.0
    log_density: float = np.nan
    count: int = 1
    states: list[Any] = field(default_factory=list)
    seconds: float = 0.0
    noise: tuple[float, float] = (1.0, np.inf)
    scale: float = 0.0
    curvature: Curvature | None = None


def judge(
    task: Any,
    arrangements: Sequence[Arrangement],
    settings_of: SettingsOf,
    tell: Callable[[str], None],
    vary: Callable[[Arrangement], Arrangement | None] = lambda _: None,
) -> list[Candidate]:
    """Return candidates with their weights in the mixture that predicts rows held out best.

    Where there are too few rows to judge by, the simplest structure has all the weight. ``vary``
    returns one more candidate, given the best one with a low-rank tensor after the first fold. As
    soon as rows held out have heavy tails, the best candidates are fitted with such noise, too.
    """
    found = [Candidate(one) for one in arrangements]
    simple = np.array([_is_simple(one, arrangements) for one in arrangements], dtype=float)
    for one, weight in zip(found, simple / simple.sum(), strict=True):
        one.weight = float(weight)
    if len(found) == 1 or task.sample.n < FEWEST_ROWS:
        return found
    labels = task.sample.y if task.target.likelihood.of_labels else None
    rng = np.random.default_rng(task.seeds)
    cuts = list(folds(task.sample.n, rng, labels, copies(task.sample)))
    cuts = [(rows, out) for rows, out in cuts if np.ptp(task.sample.y[rows]) > 0 and len(out)]
    judged = _Judged(task, found)
    for k, cut in enumerate(cuts):
        for one in judged.left:
            tell(f"rows held out {k + 1} of {len(cuts)}: {one.arrangement.structure}")
            judged.fit(one, cut, settings_of)
        judged.rows.append(cut[1])
        for restart in range(1, AGAIN + 1):
            for one in judged.collapsed():
                tell(f"rows held out {k + 1} of {len(cuts)}: {one.arrangement.structure} anew")
                judged.fit_again(one, cut, settings_of, restart)
        for one in judged.add(vary) if VARIANTS else []:
            tell(f"rows held out 1 to {k + 1}: a variant of {one.arrangement.structure}")
            for earlier in cuts[: k + 1]:
                judged.fit(one, earlier, settings_of)
        if k + 1 < len(cuts):
            judged.drop()
    judged.conclude()
    return found


class _Judged:
    """Candidates, and what they have said so far of rows held out."""

    def __init__(self, task: Any, candidates: list[Candidate]) -> None:
        self.task, self.every, self.left = task, candidates, list(candidates)
        self.held: dict[int, list[HeldOut | None]] = {id(one): [] for one in candidates}
        self.scores: dict[int, list[Array]] = {id(one): [] for one in candidates}
        self.errors: dict[int, list[Array]] = {id(one): [] for one in candidates}
        self.rows: list[Array] = []

    def fit(
        self,
        one: Candidate,
        cut: tuple[Array, Array],
        settings_of: SettingsOf,
        restart: int = 0,
    ) -> None:
        """Fit a candidate to some rows, and keep what it says of the others."""
        arrangement, begin = one.arrangement, time.perf_counter()
        rows, out = cut
        held, error = None, np.full(len(out), np.inf)
        with suppress(*NO_FIT):
            states: Sequence[Any]
            if arrangement.kernel:
                states = self._fit_full(one, cut, settings_of(len(rows), arrangement))
            else:
                states = try_out(self.task, arrangement, rows, settings_of, 1, restart)
            held = held_out(self.task, arrangement, states, out)
            error = held.residuals.mean(axis=0)
            logs = held.log_densities() @ held.weights / len(out)
            one.states += list(zip(logs.tolist(), states, strict=True))
        self.held[id(one)].append(held)
        self.errors[id(one)].append(error)
        self._rescore(one)
        one.seconds += time.perf_counter() - begin

    def collapsed(self) -> list[Candidate]:
        """Return tensors that have found next to nothing beyond main effects.

        Where another candidate with such noise shows in the same rows that there is more, it was
        chance.
        """
        sums = next((one for one in self.every if not one.arrangement.inputs), None)
        if sums is None or len(self.scores[id(sums)]) < len(self.rows):
            return []
        weights = self.task.sample.weights[self.rows[-1]]
        share = weights / weights.sum()
        scores = {id(one): self.scores[id(one)][-1] for one in (sums, *self.left)}
        without = float(scores[id(sums)] @ share)

        def nothing(one: Candidate) -> bool:
            heavy, own = one.arrangement.heavy, scores[id(one)]
            alike = [other for other in self.left if other.arrangement.heavy == heavy]
            best = max((scores[id(other)] for other in alike), key=lambda rows: float(rows @ share))
            mean, error = mean_and_error(np.nan_to_num(best - own, posinf=1e3), share)
            found, known = float(own @ share) - without, float(best @ share) - without
            return found < NOTHING * known and mean > CLEARLY_BEHIND * error

        return [one for one in self.left if one.arrangement.low_rank and nothing(one)]

    def fit_again(
        self, one: Candidate, cut: tuple[Array, Array], settings_of: SettingsOf, restart: int
    ) -> None:
        """Fit a candidate once more to the last rows, and keep the better restart."""
        before = len(one.states)
        self.fit(one, cut, settings_of, restart)
        held, weights = self.held[id(one)], self.task.sample.weights[cut[1]]
        fitted = [fold is not None for fold in held[-2:]]
        first, second = (own @ weights for own in self.scores[id(one)][-2:])
        worse = -1 if first >= second else -2
        if len(one.states) > before and all(fitted):
            del one.states[worse]
        for of in (self.held, self.scores, self.errors):
            del of[id(one)][worse]
        self._rescore(one)

    def _rescore(self, one: Candidate) -> None:
        """Find the noise that rows held out speak for, and what they say of it then."""
        folds = self.held[id(one)]
        known = [fold for fold in folds if fold is not None]
        numbers = not self.task.target.signs
        if known and numbers and hasattr(known[0].likelihoods[0], "recalibrated"):
            one.noise = best_noise(known)
        self.scores[id(one)] = []
        for fold, error in zip(folds, self.errors[id(one)], strict=True):
            score = np.full(len(error), -np.inf) if fold is None else fold.score(one.noise)
            score = np.nan_to_num(score, nan=-np.inf, neginf=-np.inf)
            self.scores[id(one)].append(score)

    def _fit_full(
        self, one: Candidate, cut: tuple[Array, Array], settings: fitting.Settings
    ) -> Sequence[Any]:
        """Return posteriors of a full tensor, with what an earlier fold knows.

        Where the noise is not learned, the first rows held out find the scale of f. Where rows are
        many, a few of them say so little of hyperparameters that those of the first fold are kept.
        """

        def fit(*begin: Any, **how: Any) -> Sequence[Any]:
            make = partial(fit_full, self.task, one.arrangement, cut[0], settings)
            states, curvature = make(*begin, curvature=one.curvature, **how)
            one.curvature = curvature or one.curvature
            return states

        learns = learns_noise(settings.likelihood)
        if not one.states and one.arrangement.heavy:
            gaussian = next(other for other in self.every if other.arrangement.kernel)
            return fit(*(state for _, state in gaussian.states[:1]))
        if not one.states:
            states = fit() if learns else fit(scale=0.0)
            return states if learns else self._scaled(one, fit, states, cut[1])
        known = one.states[0][1]
        if len(cut[0]) > KNOWN_ROWS:
            return fit(known, iterations=0, scale=None if learns else 0.0)
        states = fit(known)
        return states if learns else fit(states[0], iterations=0, scale=one.scale)

    def _scaled(
        self, one: Candidate, fit: Callable[..., Any], states: Sequence[Any], out: Array
    ) -> Sequence[Any]:
        """Return posteriors with the scale of f that predicts rows held out best.

        The ELBO is far below the evidence where f is large, and its scale is too small.
        """

        def score(posteriors: Sequence[Any]) -> float:
            held = held_out(self.task, one.arrangement, posteriors, out)
            return float(held.weights @ held.score())

        one.scale, best = 0.0, score(states)
        with suppress(*NO_FIT):
            for scale in SCALES:
                tried = fit(states[0], iterations=0, scale=scale - one.scale)
                reached = score(tried)
                if not reached > best + SCALED:
                    break
                states, best, one.scale = tried, reached, scale
        return states

    def add(self, vary: Callable[[Arrangement], Arrangement | None]) -> list[Candidate]:
        """Add variants of the best candidates, and return them.

        One is made of the best tensor after the first rows held out, and those with heavy tails
        when rows held out speak for them.
        """
        tensors = [one for one in self.left if one.arrangement.low_rank]
        varied: list[Arrangement | None] = []
        if len(self.rows) == 1:
            self.drop()
            varied += [vary(self._best(tensors).arrangement)] if tensors else []
        if not any(one.arrangement.heavy for one in self.every):
            varied += [replace(one.arrangement, heavy=True) for one in self._with_heavy_tails()]
        more = [Candidate(one, 0.0) for one in varied if one is not None]
        for one in more:
            self.held[id(one)], self.errors[id(one)] = [], []
        self.every += more
        self.left += more
        return more

    def _best(self, candidates: Sequence[Candidate]) -> Candidate:
        """Return the one that has predicted the rows held out best."""

        def score(one: Candidate) -> float:
            known = np.concatenate(self.scores[id(one)])
            weights = self.task.sample.weights[np.concatenate(self.rows)]
            return float(known @ weights)

        return max(candidates, key=score)

    def _with_heavy_tails(self) -> list[Candidate]:
        """Return the best candidate, and the full tensor, if rows held out speak for such noise."""
        if not self.task.target.may_be_heavy:
            return []
        y, weights = self.task.sample.y, self.task.sample.weights
        tied = np.bincount(np.unique(y, return_inverse=True)[1], weights)
        if np.max(tied) > MOST_TIED * weights.sum():
            return []  # its density would grow without limit at that value
        best = self._best(self.left)
        chosen = [one for one in self.left if one is best or one.arrangement.kernel]
        return [one for one in chosen if one.noise[1] <= HEAVY_TAILS]

    def _table(self) -> tuple[Array, Array, Array]:
        """Return log densities and errors of the candidates left, and the weight of every row."""
        scores = np.array([np.concatenate(self.scores[id(one)]) for one in self.left])
        errors = np.array([np.concatenate(self.errors[id(one)]) for one in self.left])
        if any(one.arrangement.heavy for one in self.every):
            # one outlier would say more of the means than all other rows
            most = OUTLIER * float(np.min(np.median(np.abs(errors), axis=1)))
            errors = np.where(np.isfinite(errors), np.clip(errors, -most, most), errors)
        return scores, errors, self.task.sample.weights[np.concatenate(self.rows)]

    def weights(self) -> Array | None:
        """Return weights of the candidates left, or None if none could be fitted."""
        scores, errors, weight = self._table()
        some = np.any(np.isfinite(scores), axis=0)
        if not np.any(some):
            return None
        arrangements = [one.arrangement for one in self.left]
        prior = np.array([self._doubt(one, arrangements) for one in arrangements])
        residuals = None
        if self.task.target.likelihood.additive and np.all(np.isfinite(errors)):
            residuals = errors[:, some]
        share = weight / weight.sum()
        return stack(scores[:, some], len(weight) * share[some], prior, residuals)

    def _doubt(self, one: Arrangement, others: Sequence[Arrangement]) -> float:
        """Return as if how many rows more a candidate had predicted.

        They are in favour of what is exact: it is there where rows are few, and these can hardly
        tell. They are fewer where a row says little, as labels do.
        """
        likelihood = self.task.target.likelihood
        if one.kernel:
            more = DOUBT_OF_EXACT if likelihood.additive else DOUBT * likelihood.worth
            return DOUBT_OF_ALL + more / sum(other.kernel for other in others)
        return DOUBT_OF_ALL + DOUBT * _beside_full(one, others)

    def drop(self) -> None:
        """Leave out candidates that are clearly behind the best, and of no use beside it.

        A tensor of low rank is left out, too, where both the full tensor and another of low rank
        are ahead: it is the worse approximation of what is there itself.
        """
        weights = self.weights()
        if weights is None:
            return
        scores, _, weight = self._table()
        share = weight / weight.sum()
        means = scores @ share
        best = int(np.argmax(means))
        shapes = [one.arrangement for one in self.left]
        exact = max((m for a, m in zip(shapes, means, strict=True) if a.kernel), default=-np.inf)
        low = max((m for a, m in zip(shapes, means, strict=True) if a.low_rank), default=-np.inf)
        kept = []
        for one, own, own_mean, w in zip(self.left, scores, means, weights, strict=True):
            behind = np.nan_to_num(scores[best] - own, posinf=1e3)
            mean, error = mean_and_error(behind, share)
            second = one.arrangement.low_rank and own_mean < min(exact, low)
            if not second and (w >= USELESS or mean <= CLEARLY_BEHIND * error):
                kept.append(one)
        self.left = kept

    def drop_worse_means(self) -> None:
        """Leave out candidates whose mean is clearly worse than that of the best mean.

        Where the noise varies, a tensor may gain density by following it, and lose the mean.
        """
        if not self.task.target.likelihood.additive:
            return
        _, errors, weight = self._table()
        share, squares = weight / weight.sum(), np.nan_to_num(errors**2, posinf=1e100)
        best = squares[int(np.argmin(squares @ share))]
        kept = []
        for one, own in zip(self.left, squares, strict=True):
            mean, error = mean_and_error(own - best, share)
            if mean <= max(CLEARLY_BEHIND * error, WORSE * float(best @ share)):
                kept.append(one)
        self.left = kept

    def conclude(self) -> None:
        """Give every candidate its weight, and its posteriors, the best first."""
        if self.rows:
            self.drop_worse_means()
        weights = self.weights() if self.rows else None
        for one in self.every:
            ranked = sorted(one.states, key=lambda pair: -pair[0])
            one.states = [state for _, state in ranked]
        if weights is None:
            return
        for one in self.every:
            one.weight = 0.0
            own = np.concatenate(self.scores[id(one)])
            weight = self.task.sample.weights[np.concatenate(self.rows)][: len(own)]
            one.log_density = float(own @ weight / weight.sum())
        weights = np.where(weights < USELESS, 0.0, weights)
        for one, w in zip(self.left, weights / weights.sum(), strict=True):
            one.weight = float(w)


def _is_simple(one: Arrangement, others: Sequence[Arrangement]) -> bool:
    """Tell whether it is what few rows are left to.

    That is the full tensor, main effects alone, or else no full train.
    """
    if any(other.kernel for other in others):
        return one.kernel
    if any(not other.inputs for other in others):
        return not one.inputs
    return not one.full or all(other.full for other in others)


def _beside_full(one: Arrangement, others: Sequence[Arrangement]) -> bool:
    """Tell whether it is the simpler one beside a full train."""
    return bool(one.inputs) and not one.full and any(other.full for other in others)


def try_out(
    task: Any,
    arrangement: Arrangement,
    rows: Array,
    settings_of: SettingsOf,
    restarts: int,
    first: int = 0,
) -> list[State]:
    """Return the posteriors of a short fit of some rows; restarts after the ``first`` differ."""
    settings = settings_of(int(max(len(rows), task.sample.weights[rows].sum())), arrangement)
    sweeps = min(SWEEPS, max(LEAST_SWEEPS, SWEEPS * MOST_ROWS // max(len(rows), 1)))
    schedule = replace(
        settings.schedule,
        max_iter=min(sweeps, settings.schedule.max_iter),
        warm_sweeps=min(WARM_SWEEPS, settings.schedule.warm_sweeps),
    )
    # no more than will be fitted in the end
    most = settings_of(task.counted, arrangement).n_init
    result = fitting.fit(
        arrangement.problem(task.sample.take(rows), task.target.n_outputs),
        replace(
            settings,
            schedule=schedule,
            n_init=min(restarts, most),
            max_rank=settings.initial_rank,
        ),
        [*task.seeds, first] if first else task.seeds,
        lambda *_: None,
    )
    if result.interrupted:
        raise KeyboardInterrupt("interrupted while structures were compared: nothing to keep yet")
    return [start.state for start in result.starts]


def interaction_order(task: Any, components: Arrangement, settings_of: SettingsOf) -> list[int]:
    """Return the inputs of a CP arrangement in the order that ``ordering`` finds for a train.

    All rows have a say in it, those held out to judge the orders later as well: what one order
    gains by that is far below what starts differ in.
    """
    n = task.sample.n
    if n < FEWEST_ROWS or len(components.inputs) < 3:
        return components.inputs
    some = np.sort(np.random.default_rng(task.seeds).permutation(n)[:MOST_ROWS])
    try:
        states = try_out(task, components, some, settings_of, ORDER_RESTARTS)
    except NO_FIT:
        return components.inputs
    codes = {j: task.sample.codes[j][some] for j in components.inputs}
    tensors = [Tensor.of(state, components, codes, task.sample.weights[some]) for state in states]
    return [components.inputs[d] for d in chain_order(tensors)]


def vote(task: Any, arrangement: Arrangement, states: Sequence[Any]) -> Array:
    """Return the weights of restarts of one structure, which add up to 1: (S,).

    They are weighed by what they say of the training rows, as if these were ``ROWS_OF_A_VOTE``
    only: restarts that differ by chance count about the same, and one that has found nothing, or
    far less than the best, has no vote.
    """
    if len(states) == 1 or arrangement.kernel:
        return np.full(len(states), 1.0 / len(states))
    n = task.sample.n
    some = np.sort(np.random.default_rng(task.seeds).permutation(n)[:MOST_ROWS])
    logs = held_out(task, arrangement, states, some).log_densities()
    share = task.sample.weights[some] / task.sample.weights[some].sum()
    means = np.nan_to_num(logs @ share, nan=-np.inf, neginf=-np.inf)
    if not np.isfinite(means.max()):
        return np.full(len(states), 1.0 / len(states))
    votes = np.exp(ROWS_OF_A_VOTE * (means - means.max()))
    votes = np.where(votes < LEAST_WEIGHT, 0.0, votes)
    if 2 * np.sum(votes > 0) < len(votes):
        warnings.warn(
            f"{np.sum(votes == 0)} of {len(votes)} restarts found far less than the best one and "
            "are left out; more rows, or fewer inputs, make fits more reliable.",
            UserWarning,
            stacklevel=5,
        )
    return np.asarray(votes / votes.sum())


def at_full_rank(state: Any, settings: fitting.Settings) -> bool:
    """Tell whether nearly all components of a posterior are of use, so that there may be more."""
    full = FULL * float(np.sum(settings.initial_rank))
    return bool(state.modes) and float(np.sum(state.network.rank(state))) >= full


def fewer_restarts(candidates: Sequence[Candidate], n_init: int, settings_of: Any) -> int:
    """Return how many restarts "auto" means where the rank of a tensor is about to grow.

    Each then takes several times as long, and larger tensors differ less.
    """
    tensors = [one for one in candidates if one.arrangement.low_rank and one.weight > 0]
    for one in tensors:
        settings = settings_of(one.arrangement)
        may_grow = np.any(np.greater(settings.max_rank, settings.initial_rank))
        if may_grow and one.states and all(at_full_rank(s, settings) for s in one.states):
            return min(n_init, max(len(tensors), FEWEST_RESTARTS))
    return n_init


def share_restarts(candidates: Sequence[Candidate], n_init: int) -> None:
    """Give every candidate its restarts; what is not random has one if it has any weight.

    A tensor of low rank whose weight is too small for a restart leaves it to the other tensors.
    """
    for one in candidates:
        one.count = int(one.weight > 0)
    tensors = [one for one in candidates if one.arrangement.low_rank and one.weight > 0]
    if not tensors:
        return
    weights = np.array([one.weight for one in tensors])
    own = max(round(n_init * weights.sum()), min(n_init, FEWEST_RESTARTS))
    counts = share_out(own, weights)
    kept = weights[np.array(counts) > 0].sum()
    for one, count in zip(tensors, counts, strict=True):
        one.count = count
        one.weight = one.weight * float(weights.sum() / kept) if count else 0.0


def share_out(n_starts: int, weights: Array) -> list[int]:
    """Return how many restarts each weight has, to the nearest integer."""
    wanted = n_starts * np.asarray(weights) / np.sum(weights)
    counts = np.floor(wanted + 1e-9).astype(int)
    # those next to one more get it
    more = np.argsort(counts - wanted, kind="stable")[: n_starts - counts.sum()]
    counts[more] += 1
    return [int(count) for count in counts]
