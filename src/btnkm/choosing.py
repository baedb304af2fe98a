"""Which arrangements of a train are worth having.

A train has an order of its inputs, and cores that are full, or diagonal: then it is a CP tensor.
None of that can be known before, and the bound is a poor judge of it (docs/experiments.md). So rows
are held out, every candidate is fitted to the others, and those that predict clearly worse than
the best are left out. The others share the starts: most of them are diagonal, which differ more
from start to start, so that there is more to average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from . import fitting
from .arrangement import Arrangement
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
CLEARLY = 3.0  # standard errors
FULL = 4  # one start in so many has full cores, if both kinds are worth having
SettingsOf = Callable[[int, Arrangement], fitting.Settings]  # given a number of rows


def judge(
    task: Any, arrangements: Sequence[Arrangement], weight: Array, settings_of: SettingsOf
) -> tuple[list[int], Array]:
    """Return the arrangements worth having, the best first, and the log density of each.

    The latter is the average of the rows held out; NaN where rows are too few for that.
    """
    if len(weight) < FEWEST_ROWS:
        return list(range(len(arrangements))), np.full(len(arrangements), np.nan)
    cuts = list(folds(len(weight), np.random.default_rng(task.seeds)))
    scores = np.array([held_out(task, one, cuts, weight, settings_of) for one in arrangements])
    judges = weight[np.concatenate([out for _, out in cuts])]
    return not_clearly_worse(scores, judges), scores @ (judges / judges.sum())


def try_out(
    task: Any, arrangement: Arrangement, rows: Array, weight: Array, settings_of: SettingsOf
) -> list[State]:
    """Return the posteriors of a short fit of some rows, by one start or a few."""
    settings = settings_of(int(max(len(rows), weight[rows].sum())), arrangement)
    schedule = replace(settings.schedule, max_iter=min(SWEEPS, settings.schedule.max_iter))
    starts = min(1 if arrangement.full else STARTS, settings.n_init)
    result = fitting.fit(
        arrangement.problem(task.codes, task.target, rows),
        replace(settings, schedule=schedule, n_init=starts),
        task.seeds,
        lambda *_: None,
    )
    if result.interrupted:
        raise KeyboardInterrupt("interrupted while the train was arranged: nothing to keep yet")
    return [start.state for start in result.starts]


def interaction_order(
    task: Any, components: Arrangement, weight: Array, settings_of: SettingsOf
) -> list[int]:
    """Return the inputs of a CP arrangement in the order that ``ordering`` finds for a train."""
    if len(weight) < FEWEST_ROWS or len(components.inputs) < 3:
        return components.inputs
    rng = np.random.default_rng(task.seeds)
    some = np.sort(rng.permutation(len(weight))[:MOST_ROWS])
    states = try_out(task, components, some, weight, settings_of)
    codes = {j: task.codes[j][some] for j in components.inputs}
    tensors = [Tensor.of(state, components, codes, weight[some]) for state in states]
    return [components.inputs[d] for d in chain_order(tensors)]


def held_out(
    task: Any,
    arrangement: Arrangement,
    cuts: Sequence[tuple[Array, Array]],
    weight: Array,
    settings_of: SettingsOf,
) -> Array:
    """Return the log density of each row held out, by a few starts without them."""
    found = []
    for rows, out in cuts:
        features = arrangement.features(task.codes, out)
        logs = []
        for state in try_out(task, arrangement, rows, weight, settings_of):
            moments = Predictor.of(state).moments(features.__getitem__)
            logs.append(state.likelihood.predictive(*moments).logpdf(task.target.y[out]))
        found.append(logsumexp(logs, axis=0) - np.log(len(logs)))
    return np.concatenate(found)


def folds(n: int, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """Yield rows to fit and rows to hold out, until enough have been held out."""
    rows = rng.permutation(n)[:MOST_ROWS]
    parts = np.array_split(rows, HELD_OUT)
    for k in range(min(-(-ENOUGH_ROWS // max(len(parts[-1]), 1)), HELD_OUT)):
        yield np.sort(np.concatenate(parts[:k] + parts[k + 1 :])), np.sort(parts[k])


def not_clearly_worse(scores: Array, weight: Array) -> list[int]:
    """Return the candidates that are not far behind the best one, the best first.

    ``scores`` holds the log density of every held-out row by every candidate, (candidates, rows).
    """
    share = weight / weight.sum()
    means = scores @ share
    best = int(np.argmax(means))
    behind = scores[best] - scores
    error = np.sqrt(((behind - (behind @ share)[:, None]) ** 2) @ share**2)
    order = np.argsort(-means, kind="stable")
    return [int(k) for k in order if k == best or behind[k] @ share <= CLEARLY * error[k]]


def share_out(n_starts: int, arrangements: Sequence[Arrangement]) -> list[int]:
    """Return how many starts each arrangement has, given those worth having, the best first."""
    full = [k for k, one in enumerate(arrangements) if one.full]
    other = [k for k, one in enumerate(arrangements) if not one.full]
    turns = [k % len(arrangements) for k in range(n_starts)]
    if full and other and n_starts > 1:
        n_full = max(n_starts // FULL, 1)
        turns = [full[k % len(full)] for k in range(n_full)]
        turns += [other[k % len(other)] for k in range(n_starts - n_full)]
    return [turns.count(k) for k in range(len(arrangements))]
