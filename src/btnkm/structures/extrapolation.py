"""How uncertain f is beyond the training range, from how it moves inside (``core/widening.py``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..bases.effect import LINE
from ..core import posterior
from ..core.arrays import host
from ..core.full import LINE as STRAIGHT
from ..core.full import FullPosterior
from ..core.posterior import contrast_variances
from ..core.state import State
from ..core.widening import PLACES, Widening, mean_squares
from .mode_map import ModeMap
from .task import Task

Array = np.ndarray
DRAWS, FEWEST_DRAWS = 8, 2  # of the tensor from its posterior
MOVED = 600  # inputs that are moved in all draws together, at most
POINTS, FULL_WORK = 4096, 4e9  # rows to evaluate for all inputs together, and products of the full
FEWEST_ROWS, MOST_ROWS = 4, 64  # training rows from which one input is moved
LINES = 0.1  # of the squared increments of a straight line that runs on
# of log y, by all inputs: a larger variance would move the mean of y more than its quantiles
MOST_OF_LOGARITHM = 4.0


def widening(state: Any, mode_map: ModeMap, task: Task) -> Widening | None:
    """Return what is added to Var[f] beyond the range of each input; None if nothing ever is.

    Some training rows of the sample are taken, and one input at a time is moved over its range.
    """
    columns, sample = task.columns, task.sample
    used = sorted({*mode_map.inputs, *mode_map.effect_inputs})
    inputs = [j for j in used if len(columns[j].knots) > 1]
    if not inputs:
        return None
    rng = np.random.default_rng(0)
    codes = {j: host(sample.codes[j]) for j in used}
    chosen = _chosen(codes, host(sample.weights), _n_rows(state, len(inputs)))
    codes = {j: x[chosen] for j, x in codes.items()}
    full = isinstance(state, FullPosterior)
    moves: Any = (_FullMoves if full else _Moves)(state, mode_map, codes, rng)
    tables = []
    for j in inputs:
        t, knots = np.linspace(0.0, 1.0, PLACES), columns[j].knots
        grid = np.interp((1.0 - t) * knots[0] + t * knots[-1], knots, columns[j].positions)
        tables.append(mean_squares(moves.increments(j, grid)))
    variances, target = np.array(tables), task.target
    most = MOST_OF_LOGARITHM / target.scale**2 if target.is_logarithm else np.inf
    matter = np.flatnonzero(np.any(variances > 0.0, axis=(1, 2, 3)))
    if not len(matter):
        return None
    variances = np.ascontiguousarray(variances[matter])
    return Widening(tuple(inputs[i] for i in matter), variances, most)


def _n_rows(state: Any, n_inputs: int) -> int:
    points = POINTS
    if isinstance(state, FullPosterior):
        points = min(points, int(FULL_WORK / (state.target.size * state.target.shape[1])))
    return int(np.clip(points // ((PLACES) * n_inputs), FEWEST_ROWS, MOST_ROWS))


def _chosen(codes: dict[int, Array], weights: Array, count: int) -> Array:
    """Return the positions of so many rows, whose order is of no matter: a weight of k is k rows.

    Rows are sorted by a number that differs between different rows.
    """
    key, factors = np.zeros(len(weights)), np.random.default_rng(1).uniform(0.5, 1.5, len(codes))
    for factor, x in zip(factors, codes.values(), strict=True):
        key = key + factor * np.where(np.isnan(x), -2.0, x)
    order = np.argsort(key, kind="stable")
    total = np.cumsum(weights[order])
    at = (np.arange(count) + 0.5) / count * total[-1]
    return np.asarray(order[np.searchsorted(total, at, side="right").clip(max=len(order) - 1)])


def _squares(mean: Array, variance: Array) -> Array:
    """Return E of squared increments, given moments (..., K): with many outputs, of contrasts."""
    count = mean.shape[-1]
    if count == 1:
        return np.asarray(mean**2 + variance)
    mean = mean - mean.mean(axis=-1, keepdims=True)
    spread = contrast_variances(variance.reshape(-1, count)).reshape(variance.shape)
    # independent variances of all outputs that have these contrasts on average
    return np.asarray((mean**2 + spread) * (count / (count - 1.0)))


class _Moves:
    """Increments of f = a + T under the posterior of low rank."""

    def __init__(
        self, state: State, mode_map: ModeMap, codes: dict[int, Array], rng: np.random.Generator
    ) -> None:
        self.state, self.mode_map = state, mode_map
        self.tensor = replace(state, sums=None)
        many = int(np.clip(MOVED // max(len(mode_map.inputs), 1), FEWEST_DRAWS, DRAWS))
        self.draws = posterior.draw_weights(state, many, rng)
        places = PLACES
        self.codes = {j: np.repeat(x, places) for j, x in codes.items()}
        self.n = len(next(iter(codes.values())))
        at = mode_map.codes(self.codes)
        self.features = [b.features(x) for b, x in zip(mode_map.bases, at, strict=True)]

    def increments(self, j: int, grid: Array) -> Array:
        """Return E of squared increments between places: (PLACES, PLACES, K)."""
        mean, cov = self._of_sums(j, grid)
        moved = mean[None] + self._of_tensor(j, grid)  # (draws * n, places, K)
        apart = moved[:, :, None] - moved[:, None]
        own = np.diagonal(cov, axis1=1, axis2=2)
        spread = (own[:, :, None] + own[:, None] - 2.0 * cov).transpose(1, 2, 0)
        squares = np.mean(_squares(apart, spread[None]), axis=0)
        return np.asarray(squares + LINES * self._of_line(j, grid))

    def _of_line(self, j: int, grid: Array) -> Any:
        """Return E of squared increments of a straight line that runs on; 0 without one."""
        mode_map, sums = self.mode_map, self.state.sums
        if sums is None or j not in mode_map.effect_inputs:
            return 0.0
        i = mode_map.effect_inputs.index(j)
        effect, which = mode_map.effects[i], sums.places(i)
        lines = [p for p in which if effect.parts_[sums.column[p]] == LINE and effect.runs_on]
        if not lines:
            return 0.0
        t = np.interp(grid, effect.positions, effect.line_)
        slopes = _squares(sums.mean[:, lines[0]], sums.cov[:, lines[0], lines[0]])
        return (t[:, None] - t)[:, :, None] ** 2 * slopes

    def _of_sums(self, j: int, grid: Array) -> tuple[Array, Array]:
        """Return moments of the main effect: (places, K) and (K, places, places)."""
        mode_map, sums, places = self.mode_map, self.state.sums, len(grid)
        count = self.state.n_outputs or 1
        if sums is None or j not in mode_map.effect_inputs:
            return np.zeros((places, count)), np.zeros((count, places, places))
        i = mode_map.effect_inputs.index(j)
        effect, which = mode_map.effects[i], sums.places(i)
        phi = effect.phi(grid)
        if effect.runs_on:
            phi = phi * (np.array(effect.parts_) != LINE)
        phi = phi[:, sums.column[which]]
        cov = sums.cov[:, which[:, None], which]
        return phi @ sums.mean[:, which].T, phi @ cov @ phi.T

    def _of_tensor(self, j: int, grid: Array) -> Array:
        """Return draws of T where one input is moved: (draws * n, places, K), or zeros."""
        mode_map, places, count = self.mode_map, len(grid), self.state.n_outputs or 1
        d = mode_map.inputs.index(j) + mode_map.first_input if j in mode_map.inputs else None
        if d is None or len(self.state.modes[d].present) < 2:
            return np.zeros((1, places, count))
        features = list(self.features)
        features[d] = mode_map.bases[d].features(np.tile(grid, self.n))
        drawn = [
            posterior.evaluate(self.tensor, [w[k] for w in self.draws], features.__getitem__)
            for k in range(len(self.draws[0]))
        ]
        return np.concatenate(drawn).reshape(-1, places, count)


class _FullMoves:
    """Increments of f under the posterior of a full tensor."""

    def __init__(
        self, state: FullPosterior, mode_map: ModeMap, codes: dict[int, Array], _: Any
    ) -> None:
        self.state, self.mode_map = state, mode_map
        pairs = zip(mode_map.inputs, mode_map.bases, strict=True)
        self.rows = [basis.phi(np.repeat(codes[j], PLACES)) for j, basis in pairs]

    def increments(self, j: int, grid: Array) -> Array:
        """Return E of squared increments between places: (PLACES, PLACES, K)."""
        state, places = self.state, len(grid)
        d = self.mode_map.inputs.index(j)
        basis, kernel = self.mode_map.bases[d], state.kernel
        lines: Any = 0.0
        if basis.runs_on:
            lines = LINES * self._of_line(d, basis.phi(grid)[:, STRAIGHT])
            straight = np.arange(kernel.n_inputs) == d
            kernel = replace(kernel, line=np.where(straight, 0.0, kernel.line))
        if not any(part[d] > 0.0 for part in (kernel.line, kernel.curve, kernel.factor)):
            return lines + np.zeros((places, places, len(state.target)))
        x = list(self.rows)
        at = basis.phi(grid)
        x[d] = np.tile(at, (len(x[d]) // places, 1))
        cross = kernel.cross(x, state.rows)
        mean = (cross @ state.alpha.T).reshape(-1, places, len(state.target))
        prior = kernel.sum_part(d, at, at) + np.zeros((len(mean), places, places))
        others = np.full(len(mean), kernel.product)
        for e, of_input in enumerate(x):
            others = others if e == d else others * kernel.own_factor(e, of_input)[::places]
        prior = prior + others[:, None, None] * kernel.product_part(d, at, at)
        spreads = []
        for root in state.whitener:
            known = (cross @ root.T).reshape(len(mean), places, -1)
            cov = prior - known @ known.transpose(0, 2, 1)
            own = np.diagonal(cov, axis1=1, axis2=2)
            spreads.append(own[:, :, None] + own[:, None] - 2.0 * cov)
        spread = np.maximum(np.stack(spreads, axis=-1), 0.0)
        apart = mean[:, :, None] - mean[:, None]
        return np.asarray(lines + np.mean(_squares(apart, spread), axis=0))

    def _of_line(self, d: int, t: Array) -> Array:
        """Return E of squared increments of the straight line of an input."""
        state = self.state
        size, own = float(state.kernel.line[d]), state.rows[d][:, STRAIGHT]
        known = np.sum((state.whitener @ own) ** 2, axis=1)
        slopes = _squares(size * (state.alpha @ own), np.maximum(size - size**2 * known, 0.0))
        return np.asarray((t[:, None] - t)[:, :, None] ** 2 * slopes)
