"""The order of a train's inputs, from the cuts of a CP tensor."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from btnkm.bases import Chebyshev
from btnkm.core.cp import CP
from btnkm.core.gamma import Gamma
from btnkm.core.likelihoods import Gaussian
from btnkm.core.state import State
from btnkm.execution.modes import make_mode, output_mode
from btnkm.structures import tt_order
from btnkm.structures.mode_map import make_mode_map
from btnkm.structures.tt_order import Tensor, chain_order, cost

N_VALUES = 6  # of each input, and all combinations of them are rows


def make(n_inputs, rank, rng, n_outputs=None, anchored=False):
    """Return a random CP tensor with its mode map and all points of a grid."""
    grid = np.linspace(-1.0, 1.0, N_VALUES)
    columns = np.array(np.meshgrid(*[grid] * n_inputs, indexing="ij")).reshape(n_inputs, -1)
    bases = [Chebyshev(n_basis=3).fit(x) for x in columns]
    weight = np.ones(columns.shape[1])
    mode_map = make_mode_map(
        list(range(n_inputs)),
        bases,
        columns,
        [weight] * n_inputs,
        full_cores=False,
        anchored=anchored,
        many_outputs=n_outputs is not None,
    )
    modes = [make_mode(basis, 1.0) for basis in mode_map.bases]
    if n_outputs is not None:
        modes.append(output_mode(n_outputs))
    factors = [mode.point(rng.standard_normal((len(mode.keep), rank))) for mode in modes]
    gammas = tuple(Gamma(np.ones(len(mode.keep)), np.ones(len(mode.keep))) for mode in modes)
    state = State(
        tuple(modes),
        tuple(factors),
        gammas,
        (Gamma(np.ones(rank), np.ones(rank)),),
        Gaussian(),
        CP(),
        None if n_outputs is None else len(modes) - 1,
        information=2.5 * columns.shape[1] * np.ones(n_outputs or ()),
    )
    return state, mode_map, columns, weight


def values(state, first, columns):
    """Return f of every row, (n,) or (n, K)."""
    product = 1.0
    for d, (phi, _) in enumerate(first.features(columns)):
        mode, factor = state.modes[d], state.factors[d]
        product = product * (phi[:, mode.present] @ mode.whole(factor.mean, factor.layout.anchor))
    if state.output is None:
        return product.sum(axis=1)
    return product @ state.factors[state.output].mean.T


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("n_outputs", [None, 3])
def test_a_cut_costs_what_the_unfolded_tensor_says(n_outputs, anchored):
    state, first, columns, weight = make(3, 4, np.random.default_rng(0), n_outputs, anchored)
    tensor = Tensor.of(state, first, columns, weight)
    f = values(state, first, columns).reshape(*[N_VALUES] * 3, -1)
    for left in ([0], [1], [2], [0, 1], [0, 2], [1, 2]):
        right = [d for d in range(3) if d not in left]
        unfolded = np.transpose(f, [*left, *right, 3]).reshape(N_VALUES ** len(left), -1)
        squares = np.linalg.svd(unfolded / np.sqrt(f.size), compute_uv=False) ** 2
        direct = np.sum(np.log1p(2.5 * squares))
        of_left = np.prod(tensor.grams[left], axis=0)[None]
        of_right = (np.prod(tensor.grams[right], axis=0) * tensor.rest)[None]
        assert cost(of_left, of_right)[0] == pytest.approx(direct, rel=1e-8)


def length(tensors, order):
    total = 0.0
    for k in range(1, len(order)):
        for t in tensors:
            left = np.prod(t.grams[list(order[:k])], axis=0)[None]
            right = (np.prod(t.grams[list(order[k:])], axis=0) * t.rest)[None]
            total += float(cost(left, right)[0])
    return total


def test_no_order_is_cheaper_than_the_one_found():
    rng = np.random.default_rng(1)
    for n_inputs in (2, 3, 5):
        made = [make(n_inputs, rank, rng) for rank in (2, 3)]
        tensors = [Tensor.of(*parts) for parts in made]
        actual = chain_order(tensors)
        assert actual[0] < actual[-1]
        best = min(length(tensors, order) for order in permutations(range(n_inputs)))
        assert length(tensors, actual) == pytest.approx(best)


def chain_of_pairs(order):
    """Return a CP tensor of products of neighbours in an order."""
    n_inputs = len(order)
    rank = n_inputs - 1
    grams = np.full((n_inputs, rank, rank), 0.05)
    for r, pair in enumerate(zip(order[:-1], order[1:], strict=True)):
        for d in range(n_inputs):
            grams[d, r, r] = 1.0
            if d in pair:  # a function of mean 0, on which the others do not depend
                grams[d, r, :r] = grams[d, :r, r] = 0.0
                grams[d, r, r + 1 :] = grams[d, r + 1 :, r] = 0.0
    return Tensor(grams, 10.0 * np.ones((rank, rank)))


@pytest.mark.parametrize("most_exact", [10, 2])
def test_neighbours_of_a_chain_are_found(most_exact, monkeypatch):
    monkeypatch.setattr(tt_order, "MOST_EXACT", most_exact)
    order = [int(d) for d in np.random.default_rng(2).permutation(7)]
    actual = chain_order([chain_of_pairs(order)])
    assert actual in (order, order[::-1])


def test_hundreds_of_inputs_are_put_in_order():
    tensor = chain_of_pairs(list(range(120)))
    few = Tensor(tensor.grams[:, :4, :4], tensor.rest[:4, :4])
    assert sorted(chain_order([few])) == list(range(120))
