"""Which arrangements of a train are worth having, and how many starts.

A train has an order of its inputs, and cores that are full, or diagonal: then it is a CP tensor.
None of that can be known before, and the bound is a poor judge of it (docs/experiments.md). So rows
are held out, every candidate is fitted to the others, and the mixture of candidates that predicts
the rows held out best (stacking) says how many of the starts each of them gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from . import fitting
from .arrangement import Arrangement, block_size
from .core.linalg import NotPositiveDefiniteError
from .core.posterior import Predictor
from .core.state import State
from .ordering import Tensor, chain_order

Array = np.ndarray
HELD_OUT = 5  # one in so many rows
ENOUGH_ROWS = 100  # held out, if need be in several folds
MOST_ROWS = 4000  # looked at
FEWEST_ROWS = 20  # with fewer there is nothing to choose by
SWEEPS = 40  # exact ones
STARTS = 4  # of components, which are cheap and gain much by being averaged
STEPS = 500  # of expectation and maximisation, to find the weights
DOUBT = 10.0  # rows, as if components alone had predicted so many more
NO_FIT = (NotPositiveDefiniteError, MemoryError)  # of a candidate, which is no reason to give up
SettingsOf = Callable[[int, Arrangement], fitting.Settings]  # given a number of rows


def judge(
    task: Any,
    arrangements: Sequence[Arrangement],
    settings_of: SettingsOf,
    tell: Callable[[str], None],
) -> tuple[Array, Array]:
    """Return the weight of each arrangement in the best mixture, and its mean log density.

    The latter is that of the rows held out; NaN where there are too few to judge by. Then
    components have all the weight: they fit few rows best.
    """
    plain = np.array([not one.full for one in arrangements], dtype=float)
    plain = plain if plain.any() else plain + 1.0
    unknown = plain / plain.sum(), np.full(len(arrangements), np.nan)
    if task.sample.n < FEWEST_ROWS:
        return unknown
    labels = task.sample.y if task.target.likelihood.of_labels else None
    cuts = list(folds(task.sample.n, np.random.default_rng(task.seeds), labels))
    cuts = [(rows, out) for rows, out in cuts if np.ptp(task.sample.y[rows]) > 0 and len(out)]
    if not cuts:
        return unknown
    rows = []
    for k, one in enumerate(arrangements):
        tell(f"judging arrangement {k + 1} of {len(arrangements)} by rows held out")
        rows.append(held_out(task, one, cuts, settings_of))
    scores = np.nan_to_num(np.array(rows), nan=-np.inf, neginf=-np.inf)
    weight = task.sample.weights[np.concatenate([out for _, out in cuts])]
    some = np.any(np.isfinite(scores), axis=0)
    if not np.any(some):
        return unknown
    prior = DOUBT * np.array([not one.full for one in arrangements])
    share = weight / weight.sum()
    return stack(scores[:, some], len(weight) * share[some], prior), scores @ share


def try_out(
    task: Any, arrangement: Arrangement, rows: Array, settings_of: SettingsOf
) -> list[State]:
    """Return the posteriors of a short fit of some rows, by one start or a few."""
    settings = settings_of(int(max(len(rows), task.sample.weights[rows].sum())), arrangement)
    schedule = replace(settings.schedule, max_iter=min(SWEEPS, settings.schedule.max_iter))
    # no more than will be fitted in the end
    most = settings_of(task.counted, arrangement).n_init
    result = fitting.fit(
        arrangement.problem(task.sample.take(rows), task.target.n_outputs),
        replace(settings, schedule=schedule, n_init=min(1 if arrangement.full else STARTS, most)),
        task.seeds,
        lambda *_: None,
    )
    if result.interrupted:
        raise KeyboardInterrupt("interrupted while the train was arranged: nothing to keep yet")
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
        states = try_out(task, components, some, settings_of)
    except NO_FIT:
        return components.inputs
    codes = {j: task.sample.codes[j][some] for j in components.inputs}
    tensors = [Tensor.of(state, components, codes, task.sample.weights[some]) for state in states]
    return [components.inputs[d] for d in chain_order(tensors)]


def held_out(
    task: Any,
    arrangement: Arrangement,
    cuts: Sequence[tuple[Array, Array]],
    settings_of: SettingsOf,
) -> Array:
    """Return the log density of each row held out, by a few starts without them.

    It is minus infinity where there was no fit.
    """
    found = []
    for rows, out in cuts:
        try:
            states = try_out(task, arrangement, rows, settings_of)
        except NO_FIT:
            found.append(np.full(len(out), -np.inf))
            continue
        predictors = [Predictor.of(state) for state in states]
        size = block_size([arrangement], states)
        for start in range(0, len(out), size):
            block = out[start : start + size]
            features = arrangement.features(task.sample.codes, block)
            logs = []
            for state, predictor in zip(states, predictors, strict=True):
                # with many classes as if they were independent: near enough to tell the better
                moments = predictor.moments(features.__getitem__)
                logs.append(state.likelihood.predictive(*moments).logpdf(task.sample.y[block]))
            found.append(logsumexp(logs, axis=0) - np.log(len(logs)))
    return np.concatenate(found)


def folds(
    n: int, rng: np.random.Generator, labels: Array | None = None
) -> Iterator[tuple[Array, Array]]:
    """Yield rows to fit and rows to hold out, until enough have been held out.

    With ``labels`` every part has its share of each class; rows of a class too rare to be divided
    are always fitted.
    """
    rows = rng.permutation(n)[:MOST_ROWS]
    always = rows[:0]
    if labels is not None:
        _, codes, counts = np.unique(labels[rows], return_inverse=True, return_counts=True)
        rare = counts[codes] < HELD_OUT
        always = rows[rare]
        by_class = rows[~rare][np.argsort(codes[~rare], kind="stable")]
        rows = np.concatenate([by_class[k::HELD_OUT] for k in range(HELD_OUT)])
    parts = np.array_split(rows, HELD_OUT)
    for k in range(min(-(-ENOUGH_ROWS // max(len(parts[-1]), 1)), HELD_OUT)):
        fitted = np.concatenate([*parts[:k], *parts[k + 1 :], always])
        yield np.sort(fitted), np.sort(parts[k])


def stack(scores: Array, weight: Array, prior: Array) -> Array:
    """Return the weights of candidates in the mixture with the highest log density.

    ``scores`` holds the log density of every held-out row by every candidate, (candidates, rows),
    ``weight`` how often each row counts, and ``prior`` how many more rows count for each candidate.
    """
    density = np.exp(scores - scores.max(axis=0))
    weights = np.full(len(scores), 1.0 / len(scores))
    for _ in range(STEPS):
        found = weights * ((density / (weights @ density)) @ weight)
        weights = (found + prior) / (weight.sum() + prior.sum())
    return np.asarray(weights)


def share_out(n_starts: int, weights: Array) -> list[int]:
    """Return how many starts each candidate has: what its weight says, to the nearest integer."""
    wanted = n_starts * np.asarray(weights) / np.sum(weights)
    counts = np.floor(wanted + 1e-9).astype(int)
    # those next to one more get it
    more = np.argsort(counts - wanted, kind="stable")[: n_starts - counts.sum()]
    counts[more] += 1
    return [int(count) for count in counts]
