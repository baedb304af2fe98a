"""The order of the inputs in a tensor train, from CP tensors that were fitted before.

A bond carries all that the inputs on its left have to do with those on its right. Written as
f = sum_k s_k u_k(left) v_k(right), u and v orthonormal, it needs an index for every s_k that stands
out of the noise. If f is a CP tensor, sum_r a_r(left) b_r(right), the s_k^2 are the eigenvalues of
the product of the Gram matrices (R, R) of a and of b, and each of those is the product, entry by
entry, of the Gram matrices of its inputs, taken as independent. So what any cut would cost,

    sum_k log(1 + s_k^2 / noise),

is known without a further fit, and the order is that with the smallest sum over its cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core import rows
from ..core.state import State
from ..plan import FitPlan
from .mode_map import Columns, ModeMap
from .stacking import MOST_ROWS
from .task import FEWEST_ROWS, NO_FIT, Task, try_out

Array = np.ndarray
MOST_EXACT = 10  # inputs whose 2^D cuts are all looked at; more are put in order one by one
ENOUGH_ROWS = 2000  # for Gram matrices
ORDER_RESTARTS = 4  # of the CP tensor from which an order of the inputs is derived


@dataclass(frozen=True)
class Tensor:
    """What the cuts of one fitted CP tensor depend on."""

    grams: Array  # of every input, the mean of z z^T over its largest entry: (D, R, R)
    rest: Array  # amplitudes, outputs and the precision of a row, which belong to no input: (R, R)

    @classmethod
    def of(cls, state: State, mode_map: ModeMap, columns: Columns, weight: Array) -> Tensor:
        """Return that of a fit; its grams are in the order of the mode map's inputs."""
        thinned = slice(None, None, max(len(weight) // ENOUGH_ROWS, 1))
        share = weight[thinned] / weight[thinned].sum()
        features = mode_map.features(columns, thinned)
        grams = []
        for d, (mode, factor) in enumerate(zip(state.modes, state.factors, strict=True)):
            term = rows.terms(mode, factor, spread=0.0)
            if d == state.output:
                grams.append(term.mean.T @ term.mean / len(term.mean))
            else:
                z = np.asarray(rows.moments(features[d], term).mean)
                grams.append(z.T @ (share[:, None] * z))
        precision = float(np.mean(state.information)) / weight.sum()
        sizes = [max(float(np.max(np.abs(gram))), np.finfo(float).tiny) for gram in grams]
        parts = np.array([gram / size for gram, size in zip(grams, sizes, strict=True)])
        first, end = mode_map.first_input, len(mode_map.bases)
        rest = np.prod(parts[[*range(first), *range(end, len(parts))]], axis=0)
        scale = np.exp(np.clip(np.sum(np.log(sizes)), -500.0, 500.0))
        return cls(parts[first:end], rest * precision * scale)


def cost(left: Array, right: Array) -> Array:
    """Return the cost of cuts, given the Gram matrices of both sides: (S, R, R) -> (S,)."""
    values, vectors = np.linalg.eigh(left)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    squares = np.linalg.eigvalsh(np.swapaxes(root, 1, 2) @ right @ root)
    return np.asarray(np.sum(np.log1p(np.maximum(squares, 0.0)), axis=1))


def interaction_order(plan: FitPlan, task: Task, components: ModeMap) -> list[int]:
    """Return the inputs of a CP tensor in the order that suits a tensor train.

    All rows are used, including those held out to compare the orders later: what one order gains
    by that is far below the difference between restarts. Ranks that were given are those of
    bonds, so the CP tensor has the default rank.
    """
    n = task.sample.n
    if n < FEWEST_ROWS or len(components.inputs) < 3:
        return components.inputs
    places = np.sort(np.random.default_rng(task.seeds).permutation(n)[:MOST_ROWS])
    try:
        states = try_out(plan, task, components, places, ORDER_RESTARTS, default_rank=True)
    except NO_FIT:
        return components.inputs
    codes = {j: task.sample.codes[j][places] for j in components.inputs}
    tensors = [Tensor.of(state, components, codes, task.sample.weights[places]) for state in states]
    return [components.inputs[d] for d in chain_order(tensors)]


def chain_order(tensors: Sequence[Tensor]) -> list[int]:
    """Return the inputs in the order whose cuts cost least, on average over the tensors."""
    n_inputs = len(tensors[0].grams)
    order = _exact(tensors) if n_inputs <= MOST_EXACT else _one_by_one(tensors)
    return order if order[0] < order[-1] else order[::-1]  # either end may come first


def _exact(tensors: Sequence[Tensor]) -> list[int]:
    """Find the shortest way from no input to all of them, one more on the left at each step."""
    n_inputs = len(tensors[0].grams)
    every = 2**n_inputs - 1
    costs = np.zeros(every + 1)
    for tensor in tensors:
        products = np.ones((every + 1, *tensor.rest.shape))
        for chosen in range(1, every + 1):
            lowest = (chosen & -chosen).bit_length() - 1
            products[chosen] = products[chosen & (chosen - 1)] * tensor.grams[lowest]
        costs[1:-1] += cost(products[1:-1], products[-2:0:-1] * tensor.rest)
    length, last = np.zeros(every + 1), np.zeros(every + 1, dtype=int)
    for chosen in range(1, every + 1):
        members = [d for d in range(n_inputs) if chosen >> d & 1]
        before = [length[chosen ^ 1 << d] for d in members]
        last[chosen] = members[int(np.argmin(before))]
        length[chosen] = min(before) + costs[chosen]
    order: list[int] = []
    while every:
        order.append(int(last[every]))
        every ^= 1 << order[-1]
    return order[::-1]


def _one_by_one(tensors: Sequence[Tensor]) -> list[int]:
    """Put that input next which makes the next cut cheapest."""
    order: list[int] = []
    remaining = list(range(len(tensors[0].grams)))
    done = [np.ones_like(tensor.rest) for tensor in tensors]
    while len(remaining) > 1:
        costs = np.zeros(len(remaining))
        for tensor, product in zip(tensors, done, strict=True):
            grams = tensor.grams[remaining]
            ones = np.ones((1, *tensor.rest.shape))
            before = np.cumprod(np.concatenate([ones, grams[:-1]]), axis=0)
            after = np.cumprod(np.concatenate([ones, grams[:0:-1]]), axis=0)[::-1]
            costs += cost(product * grams, before * after * tensor.rest)
        chosen = remaining.pop(int(np.argmin(costs)))
        order.append(chosen)
        done = [p * tensor.grams[chosen] for p, tensor in zip(done, tensors, strict=True)]
    return order + remaining
