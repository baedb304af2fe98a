"""Screening by a sum of main effects: steps, curves and interacting inputs.

All tests use the residuals of a sum of main effects on a sample of the rows. They cost a few matrix
products, which is little beside the sweeps of a tensor of all inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from ..bases.effect import MainEffect
from ..core.likelihoods import of_targets
from ..core.posterior import Predictor
from ..core.state import State
from ..core.sums import LINE, Sums, SumsTerms, refine
from .layouts import Layouts
from .mode_map import ModeMap
from .stacking import MOST_ROWS
from .task import NO_FIT, try_out

Array = np.ndarray
FEWEST_ROWS = 50  # for which steps are considered
FEW_INPUTS = 12  # up to which all inputs are in the tensor
LEAST_INPUTS, MOST_INPUTS = 10, 60  # of a tensor, if there are more than FEW_INPUTS
INPUTS_OF_WIDE = 30  # of a tensor, if there are more than MOST_INPUTS
MOST_EFFECTS = 250  # of a sum that first had a straight line for every input
MOST_ROWS_OF_CLASSES = 2000  # used where f has several outputs
SIDE = 5  # rows on either side of a step, at least
LOW_DEGREE = 3  # of the curves beside which steps are looked for
CLEAR = 5.0  # standard errors from which on a step is tried
TRIALS, MOST_STEPS = 4, 12  # steps tried at a time, and steps in all
REFINEMENTS = 12  # updates of the precisions in a trial
MOST_INDICATORS = 8  # categories of a column used in products
CURVED = 3.5  # standard errors from which on a column of a wide table has a curve


@dataclass(frozen=True)
class Residuals:
    """Residuals of a sum of main effects for some rows of the sample."""

    rows: Array  # positions in the sample: (n,)
    count: Array  # sample weights: (n,)
    weight: Array  # curvature of the log likelihood in f, for a row of weight 1: (n, K)
    slope: Array  # of the same: (n, K)
    mean: Array  # E[f]: (n, K)

    @classmethod
    def of(cls, task: Any, mode_map: ModeMap, state: State, rows: Array) -> Residuals:
        """Return the residuals of a posterior."""
        features = mode_map.features(task.sample.codes, rows)
        mean, variance = Predictor.of(state).moments(features.__getitem__)
        likelihood, y = of_targets(state.likelihood, task.sample.y[rows])
        quadratic = likelihood.rows(y, np.ones(len(rows)), mean, variance + mean**2)
        scale, (weight, response, _) = likelihood.scale, quadratic
        wide = [
            part if part.ndim == 2 else part[:, None]
            for part in (scale * weight, scale * response, mean)
        ]
        weight, response, mean = wide
        return cls(rows, task.sample.weights[rows], weight, response - weight * mean, mean)


def screen(layouts: Layouts) -> Layouts:
    """Choose functions of the main effects, and the inputs of the tensor beside them."""
    task = layouts.task
    rows = np.sort(np.random.default_rng(task.seeds).permutation(task.sample.n)[:MOST_ROWS])

    def fit_sums(layouts: Layouts) -> tuple[Sums, Residuals]:
        mode_map = layouts.arranged([], "sums")
        (state,) = try_out(layouts.plan, task, mode_map, rows, 1)
        assert state.sums is not None
        return state.sums, Residuals.of(task, mode_map, state, rows)

    try:
        sums, residuals = fit_sums(layouts)
        if not layouts.n_curve:
            # with very many inputs, those with the smallest straight lines are left out
            chosen = _largest(sums, layouts.effect_inputs, MOST_EFFECTS)
            curves = frozenset(curved_inputs(task, chosen, residuals))
            layouts = replace(layouts, effect_inputs=tuple(chosen), curves=curves)
            sums, residuals = fit_sums(layouts)
        inputs = _largest(sums, layouts.effect_inputs, MOST_INPUTS)
        effects = [layouts.effects[layouts.effect_inputs.index(j)] for j in inputs]
        steps = find_steps(task, effects, inputs, residuals)
        if steps:
            layouts = replace(layouts, steps=steps)
            sums, residuals = fit_sums(layouts)
    except NO_FIT:
        return layouts
    together = interacting_inputs(task, layouts.effect_inputs, residuals)
    alone = [layouts.effect_inputs[sums.groups[g].mode] for g in sums.kept]
    most = MOST_INPUTS if len(layouts.active) <= MOST_INPUTS else INPUTS_OF_WIDE
    either = [*together, *_largest(sums, layouts.effect_inputs, most)][:most]
    both = sorted(set(either) & set(alone) | set(together[:most]))
    # without a sum beside it, a tensor also needs the inputs with main effects only
    by_itself = layouts.active if len(layouts.active) <= MOST_INPUTS else both
    tensor_inputs = {"tensor": by_itself, "sums+tensor": sorted(together[:most])}
    return replace(layouts, tensor_inputs=tensor_inputs)


def _largest(sums: Sums, inputs: Sequence[int], most: int) -> list[int]:
    """Return the columns with the largest main effects, at most so many, ascending."""
    size = [float(np.sum(sums.mean[:, sums.places(i)] ** 2)) for i in range(len(inputs))]
    return sorted(inputs[i] for i in np.argsort(-np.array(size), kind="stable")[:most])


def find_steps(
    task: Any, effects: Sequence[Any], inputs: Sequence[int], residuals: Residuals
) -> dict[int, Array]:
    """Return the steps that main effects need beside their curves: coordinates by column.

    Candidates are found in the residuals of curves of low degree, where a step stands out. Each is
    then tried beside the curves of all degrees. It is kept if the ELBO gains more than the
    logarithm of the number of candidates.
    """
    steps_by_column: dict[int, Array] = {}
    numeric = [i for i, effect in enumerate(effects) if LINE in effect.parts_]
    if residuals.count.sum() < FEWEST_ROWS or not numeric:
        return steps_by_column
    codes = {i: task.sample.codes[inputs[i]][residuals.rows] for i in range(len(inputs))}
    orders = {i: np.argsort(codes[i], kind="stable") for i in numeric}
    cuts = sum(max(len(np.unique(codes[i])) - 1, 1) for i in numeric)
    count = residuals.count[:, None]
    weight = count * residuals.weight
    response = count * residuals.slope + weight * residuals.mean
    effects = list(effects)

    def with_steps(i: int, steps: Array) -> MainEffect:
        old = effects[i]
        parts = old.knots, old.positions, old.spikes, None, np.sort(steps), old.runs_on
        kept = ~np.isnan(codes[i])
        new = MainEffect(old.n_curve, *parts).fit(codes[i][kept], residuals.count[kept])
        new.has_missing_ = False
        return new

    while sum(map(len, steps_by_column.values())) < MOST_STEPS:
        sums, phi, gram, linear = _normal(effects, codes, weight, response)
        slope = _low_residuals(sums, phi, gram, linear, weight, response) / count
        scores = [(*_best_cut(codes[i], orders[i], slope, residuals.count), i) for i in numeric]
        clear = sorted((s for s in scores if s[0] > CLEAR**2), reverse=True)[:TRIALS]
        clear = [s for s in clear if s[1] not in steps_by_column.get(inputs[s[2]], ())]
        if not clear:
            break
        trial = list(effects)
        for _, cut, i in clear:
            trial[i] = with_steps(i, np.append(effects[i].steps, cut))
        sums, phi, gram, linear = _normal(trial, codes, weight, response)
        new = [_group_of_step(sums, trial, i, cut) for _, cut, i in clear]
        values = [_value(sums, gram, linear, new)]
        values += [_value(sums, gram, linear, [g for g in new if g != group]) for group in new]
        gains = np.array(values[1:]) - values[0]
        best = int(np.argmax(gains))
        if gains[best] <= np.log(cuts):
            break
        _, cut, i = clear[best]
        effects[i] = with_steps(i, np.append(effects[i].steps, cut))
        steps_by_column[inputs[i]] = effects[i].steps
    return steps_by_column


def _normal(
    effects: Sequence[Any], codes: dict[int, Array], weight: Array, response: Array
) -> tuple[Sums, Array, Array, Array]:
    """Return all main effects, their functions, and the sums that their update needs."""
    sums = Sums.begin(effects, weight.shape[1])
    made = [effect.features(codes[i]) for i, effect in enumerate(effects)]
    phi = SumsTerms.of(sums, 0).features(made.__getitem__)
    gram = np.stack([(phi * w[:, None]).T @ phi for w in weight.T])
    return sums, phi, gram, response.T @ phi


def _low_residuals(
    sums: Sums, phi: Array, gram: Array, linear: Array, weight: Array, response: Array
) -> Array:
    """Return the residuals of functions of low degree: (n, K)."""
    low = np.flatnonzero(sums.degree <= LOW_DEGREE)
    slope = np.empty_like(response)
    for k, (gram_of_output, b) in enumerate(zip(gram, linear, strict=True)):
        a = gram_of_output[np.ix_(low, low)]
        a = a + np.diag(1e-3 * np.maximum(np.diag(a), 1e-12) + 1e-12)
        slope[:, k] = response[:, k] - weight[:, k] * (phi[:, low] @ np.linalg.solve(a, b[low]))
    return slope


def _best_cut(x: Array, order: Array, slope: Array, count: Array) -> tuple[float, float]:
    """Return the highest squared score of a step, and its position."""
    n = int(np.sum(~np.isnan(x)))  # missing values are the last in the order
    if n < 2:
        return 0.0, 0.0
    values, r, s = x[order[:n]], slope[order[:n]], count[order[:n]]
    r = r - s @ r / s.sum()
    above = -np.cumsum(s[:, None] * r, axis=0)[:-1]  # what lies above each value adds up to
    below = np.cumsum(s)[:-1]
    share = below / s.sum()
    spread = (share * (1.0 - share))[:, None] * np.maximum(s @ r**2, 1e-300)
    score = np.max(above**2 / spread, axis=1, initial=0.0)
    score[(np.diff(values) <= 0) | (values[1:] <= -1.0) | (values[:-1] >= 1.0)] = 0.0
    score[(below < SIDE) | (s.sum() - below < SIDE)] = 0.0
    best = int(np.argmax(score))
    return float(score[best]), float(0.5 * (values[best] + values[best + 1]))


def _group_of_step(sums: Sums, effects: Sequence[Any], i: int, cut: float) -> int:
    """Return the group of a step of one input."""
    effect = effects[i]
    column = 1 + effect.degree_ + int(np.flatnonzero(effect.steps == cut)[0])
    places = sums.places(i)
    return int(sums.group[places[sums.column[places] == column][0]])


def _value(sums: Sums, gram: Array, linear: Array, lost: list[int]) -> float:
    """Return the ELBO of main effects without some groups, once their precisions are learned."""
    smaller = sums.without(np.array(lost)) if lost else sums
    kept = sums.places_of(smaller)
    gram, linear = gram[:, kept[:, None], kept], linear[:, kept]
    return refine(smaller, gram, linear, REFINEMENTS)[0].value(gram, linear)


def curved_inputs(task: Any, inputs: Sequence[int], residuals: Residuals) -> list[int]:
    """Return the columns that need more than a straight line."""
    chosen = []
    for j in inputs:
        functions = _few_functions(task, j, residuals.rows, residuals.count, 3)[:, 1:]
        if functions.shape[1] and np.max(_scores(functions, residuals)) > CURVED:
            chosen.append(j)
    return chosen


def _scores(functions: Array, residuals: Residuals) -> Array:
    """Return |sum r g| over its standard error, for every function and output."""
    slope, count = residuals.slope, residuals.count[:, None]
    spread = np.sqrt((functions**2).T @ (count * slope**2))
    return np.asarray(np.abs(functions.T @ (count * slope)) / np.maximum(spread, 1e-300))


def _few_functions(task: Any, j: int, rows: Array, count: Array, degree: int) -> Array:
    """Return a few centred functions of a column: polynomials or indicators."""
    codes, column = task.sample.codes[j][rows], task.columns[j]
    seen = ~np.isnan(codes)
    if column.categories is not None:
        known, group = np.unique(codes[seen], return_inverse=True)
        totals = np.bincount(group, weights=count[seen], minlength=len(known))
        common = known[np.argsort(-totals, kind="stable")[:MOST_INDICATORS]]
        made = (codes[:, None] == common[None, :]).astype(float)
    else:
        x = np.where(seen, np.clip(codes, -1.0, 1.0), 0.0)
        made = np.cos(np.arccos(x)[:, None] * np.arange(1, degree + 1))
        made = made * seen[:, None]
    if not seen.all():
        made = np.column_stack([made, ~seen])
    return np.asarray(made - count @ made / count.sum())


def interacting_inputs(task: Any, inputs: Sequence[int], residuals: Residuals) -> list[int]:
    """Return the columns that seem to interact, those with the strongest interactions first.

    The scores test products of low-degree functions of two or three inputs against the residuals
    of a sum; three inputs may interact where no two of them do. With many inputs, those whose
    score exceeds what chance would give are kept, and at least the best ``LEAST_INPUTS``.
    """
    if len(inputs) <= FEW_INPUTS:
        return list(inputs)
    rows = np.arange(len(residuals.rows))
    if residuals.slope.shape[1] > 1:
        rows = np.random.default_rng(task.seeds).permutation(rows)[:MOST_ROWS_OF_CLASSES]
    used = replace(
        residuals, **{f.name: getattr(residuals, f.name)[rows] for f in fields(Residuals)}
    )
    degree = 3 if len(inputs) <= 60 else 2 if len(inputs) <= 200 else 1
    made = [_few_functions(task, j, used.rows, used.count, degree) for j in inputs]
    clear = _clarity(_pair_scores(made, used), len(inputs))
    if len(inputs) <= MOST_INPUTS:
        degree = 2 if len(inputs) <= INPUTS_OF_WIDE else 1
        low = [part[:, :degree] for part in made]
        clear = np.maximum(clear, _clarity(_triple_scores(low, used), len(inputs)))
    most = int(np.clip(np.sum(clear > 1.0), LEAST_INPUTS, MOST_INPUTS))
    return [inputs[i] for i in np.argsort(-clear, kind="stable")[:most]]


class _Scores(NamedTuple):
    """The highest score of every function in a product with others."""

    best: Array
    owner: Array  # the input of every function
    tests: float  # number of products tested, for each input


def _clarity(scores: _Scores, n_inputs: int) -> Array:
    """Return each input's highest score over the one expected by chance: (D,)."""
    each = np.zeros(n_inputs)
    np.maximum.at(each, scores.owner, scores.best)
    return each / np.sqrt(2.0 * np.log(max(scores.tests, 2.0)))


def _pair_scores(made: Sequence[Array], residuals: Residuals) -> _Scores:
    """Return the scores of products of functions of two inputs."""
    owner = np.repeat(np.arange(len(made)), [part.shape[1] for part in made])
    functions = np.concatenate(made, axis=1)
    best = np.zeros((len(owner), len(owner)))
    for r in residuals.slope.T:
        np.maximum(
            best, _product_scores(functions, residuals.count * r, residuals.count * r**2), out=best
        )
    best[owner[:, None] == owner] = 0.0
    tests = best.size * residuals.slope.shape[1] / len(made)
    return _Scores(best.max(axis=1, initial=0.0), owner, tests)


def _triple_scores(made: Sequence[Array], residuals: Residuals) -> _Scores:
    """Return the scores of products of functions of three inputs.

    There are so many that each input is compared with the highest score of all by chance.
    """
    owner = np.repeat(np.arange(len(made)), [part.shape[1] for part in made])
    functions = np.concatenate(made, axis=1)
    best = np.zeros(len(owner))
    for r in residuals.slope.T:
        for a in range(len(owner)):
            later = np.flatnonzero(owner > owner[a])  # every product once
            product = functions[:, a] * r
            score = _product_scores(
                functions[:, later], residuals.count * product, residuals.count * product**2
            )
            score[owner[later][:, None] == owner[later]] = 0.0
            if score.size:
                best[a] = max(best[a], score.max())
                best[later] = np.maximum(best[later], score.max(axis=1))
    return _Scores(best, owner, len(owner) ** 3 / 2.0 * residuals.slope.shape[1])


def _product_scores(functions: Array, slope: Array, squares: Array) -> Array:
    """Return |sum r g h| over its standard error, for all pairs of functions."""
    score = np.abs((functions * slope[:, None]).T @ functions)
    other = functions**2
    spread = np.sqrt((other * squares[:, None]).T @ other)
    return np.asarray(score / np.maximum(spread, 1e-300))
