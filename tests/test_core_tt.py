"""The tensor train against dense brute force, against the CP tensor, and far from the ordinary."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sklearn.base import clone

from btnkm.core import cavi, layout, reduction, rows
from btnkm.core.cp import CP
from btnkm.core.gamma import Gamma
from btnkm.core.likelihoods import Gaussian
from btnkm.core.network import Environments
from btnkm.core.posterior import Predictor
from btnkm.core.row_block import Chunk
from btnkm.core.state import Factor, Priors, State
from btnkm.core.sweeper import Sweeper
from btnkm.core.tt import TT
from btnkm.execution import local
from btnkm.execution.modes import make_mode
from tests import oracle, problems

CASES = [
    (("chebyshev",), ()),
    (("chebyshev", "categorical"), (2,)),
    (("polynomial", "fourier", "powers"), (2, 3)),
    (("missing", "packed", "categorical"), (3, 2)),
    (("chebyshev", "powers", "polynomial", "bspline"), (2, 3, 2)),
]
cases = pytest.mark.parametrize(("kinds", "ranks"), CASES)


def random_factor(m, shape, rng):
    count = shape.n_columns
    mean = rng.standard_normal((m, count))
    root = rng.standard_normal((m * count, m * count))
    cov = 0.1 * root @ root.T / (m * count) + 0.05 * np.eye(m * count)
    log_det = np.linalg.slogdet(cov)[1]
    return Factor(mean, cov.reshape(count, m, count, m), log_det, shape)


def make(kinds, ranks, n=12, seed=0, weighted=False):
    """Return a problem with a random train for posterior, nowhere optimal."""
    rng = np.random.default_rng([seed, len(kinds), *ranks])
    codes = [problems.column(kind, n, rng) for kind in kinds]
    bases = [clone(problems.KINDS[k]).fit(c) for k, c in zip(kinds, codes, strict=True)]
    features = [basis.features(code) for basis, code in zip(bases, codes, strict=True)]
    modes = tuple(make_mode(basis, smoothness=0.7) for basis in bases)
    every = [1, *ranks, 1]
    factors = tuple(
        random_factor(len(mode.keep), layout.core(*every[d : d + 2]), rng)
        for d, mode in enumerate(modes)
    )
    y = rng.standard_normal(n)
    weight = rng.uniform(0.2, 3.0, n) if weighted else None
    s = np.ones(n) if weight is None else weight
    state = State(
        modes,
        factors,
        tuple(problems.random_gamma(len(mode.keep), rng) for mode in modes),
        tuple(problems.random_gamma(r, rng) for r in ranks),
        Gaussian(Gamma(6.0, 2.0)),
        TT(),
    )
    data = cavi.Data(float(s.sum()), float(s @ y**2))
    priors = Priors(Gamma(1.5, 0.7), Gamma(2.0, 1.3), Gamma(2.5, 1.7))
    small = problems.Small(bases, codes, features, y, weight, data, priors, state)
    return with_error(small, dense_error(small))


def with_error(small, error):
    return small.with_state(problems.with_error(small.state, error))


def dense_cov(factor):
    m, c = factor.mean.shape
    return factor.cov.reshape(c * m, c * m)


def dense_moments(small):
    """Return E[f] and E[f^2] of every row, by a sum over all paths through the bonds."""
    state = small.state
    shapes = [factor.layout.shape for factor in state.factors]
    first, second = 0.0, 0.0
    paths = list(product(*(range(right) for _, right in shapes[:-1])))

    def columns(path):
        every = (0, *path, 0)
        return [every[d] * shapes[d][1] + every[d + 1] for d in range(len(shapes))]

    phis = problems.phis(small)
    seconds = [oracle.second_moment(f.mean, dense_cov(f)) for f in state.factors]
    for path in paths:
        first = first + np.prod(
            [p @ f.mean[:, c] for p, f, c in zip(phis, state.factors, columns(path), strict=True)],
            axis=0,
        )
        for other in paths:
            parts = zip(phis, seconds, columns(path), columns(other), strict=True)
            second = second + np.prod(
                [np.einsum("ni,ij,nj->n", p, e[:, c, :, d], p) for p, e, c, d in parts], axis=0
            )
    return first, second


def dense_error(small):
    mean, second = dense_moments(small)
    return float(small.s @ (small.y**2 - 2.0 * small.y * mean + second))


def dense_elbo(small):
    """Return the bound from its definition, weight by weight."""
    state, priors = small.state, small.priors
    tau = state.likelihood.noise
    total = 0.5 * small.s.sum() * (tau.log_mean - np.log(2 * np.pi))
    total -= 0.5 * tau.mean * dense_error(small)
    for d, (mode, factor) in enumerate(zip(state.modes, state.factors, strict=True)):
        basis = state.basis[d]
        left, right = factor.layout.shape
        squares = np.diagonal(dense_cov(factor)).reshape(left, right, -1)
        for a, b, i in product(range(left), range(right), range(len(mode.keep))):
            mean, log_mean = basis.mean[i], basis.log_mean[i]
            for bond, index in ((d - 1, a), (d, b)):
                if 0 <= bond < len(state.modes) - 1:
                    mean = mean * state.rank[bond].mean[index]
                    log_mean = log_mean + state.rank[bond].log_mean[index]
            square = factor.mean[i, a * right + b] ** 2 + squares[a, b, i]
            total += 0.5 * (log_mean - np.log(2 * np.pi) - mean * square)
        size = factor.mean.size
        total += 0.5 * (size * (1 + np.log(2 * np.pi)) + np.linalg.slogdet(dense_cov(factor))[1])
        q, prior = (basis.shape, basis.rate), (2.5, 1.7 * mode.rate_scale)
        total += oracle.gamma_cross(q, prior) + oracle.gamma_entropy(q)
    for gamma, prior in (*((r, priors.rank) for r in state.rank), (tau, priors.noise)):
        q = gamma.shape, gamma.rate
        total += oracle.gamma_cross(q, (prior.shape, prior.rate)) + oracle.gamma_entropy(q)
    return float(total)


def sweeper_of(small, blocks=1, stride=1):
    """Return the engine at work on the problem, its state as it is, covariances in."""
    n = len(small.y)
    edges = np.linspace(0, n, blocks + 1).astype(int)
    chunks = []
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        part = slice(low, high)
        features = [(np.asarray(p)[part], np.asarray(q)[part]) for p, q in small.features]
        weight = None if small.weight is None else small.weight[part]
        env = Environments(len(features), stride=stride, network=small.state.network)
        chunks.append(Chunk(features.__getitem__, small.y[part], weight, env))
    sweeper = Sweeper(local.LocalExecutor(chunks), small.state, small.data, small.priors)
    sweeper.switch(spread=1.0)
    return sweeper


def block_of(small, d):
    return sweeper_of(small)._sums(d)


def solved(small, d):
    block = block_of(small, d)
    state, _ = cavi.update_factor(small.state, d, block)
    term = rows.terms(state.modes[d], state.factors[d], spread=1.0)
    error = block.error(small.data.square, term, state.factors[d])
    return with_error(small.with_state(state), error), block


@cases
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_and_bound_agree_with_a_sum_over_paths(kinds, ranks, weighted):
    small = make(kinds, ranks, weighted=weighted)
    mean, second = dense_moments(small)
    predictor = Predictor.of(small.state)
    actual, variance = predictor.moments(small.features.__getitem__)
    np.testing.assert_allclose(actual, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(variance, second - mean**2, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(predictor.mean(small.features.__getitem__), mean, atol=1e-12)
    assert problems.library_elbo(small) == pytest.approx(dense_elbo(small), rel=1e-11)
    for d in range(len(kinds)):
        f, square = sweeper_of(small).executor.chunks[0].moments_of_f(d)
        np.testing.assert_allclose(f, mean, atol=1e-12)
        np.testing.assert_allclose(square, second, rtol=1e-10)


@cases
@pytest.mark.parametrize("weighted", [False, True])
def test_every_update_is_where_the_dense_bound_is_highest(kinds, ranks, weighted):
    """No step away from what an update finds raises the bound, to second order."""
    small = make(kinds, ranks, weighted=weighted)
    rng = np.random.default_rng(0)
    for d in range(len(kinds)):
        before = dense_elbo(small)
        small, _ = solved(small, d)
        best = dense_elbo(small)
        assert best >= before
        assert small.state.likelihood.error == pytest.approx(dense_error(small), rel=1e-9)
        factor = small.state.factors[d]
        for _ in range(3):
            step = 1e-4 * rng.standard_normal(factor.mean.shape)
            ends = []
            for sign in (1.0, -1.0):
                moved = replace(factor, mean=factor.mean + sign * step)
                factors = (*small.state.factors[:d], moved, *small.state.factors[d + 1 :])
                ends.append(dense_elbo(small.with_state(replace(small.state, factors=factors))))
            assert max(ends) < best
            # the slope is nothing beside the curvature
            assert abs(ends[0] - ends[1]) < 1e-2 * (2 * best - sum(ends))
        scaled = replace(factor, cov=1.01 * factor.cov, log_det=np.nan)
        factors = (*small.state.factors[:d], scaled, *small.state.factors[d + 1 :])
        assert dense_elbo(small.with_state(replace(small.state, factors=factors))) < best
        for update in (cavi.update_basis, cavi.update_rank):
            reached = dense_elbo(small)
            small = small.with_state(update(small.state, d, small.priors))
            assert dense_elbo(small) >= reached - 1e-10
        if d < len(ranks):  # the bond that was updated last
            gamma = small.state.rank[d]
            for by in (0.99, 1.01):
                rank = list(small.state.rank)
                rank[d] = Gamma(gamma.shape, by * gamma.rate)
                other = small.with_state(replace(small.state, rank=tuple(rank)))
                assert dense_elbo(other) < dense_elbo(small)


@cases
def test_turning_a_bond_leaves_f_and_raises_the_bound(kinds, ranks):
    small = make(kinds, ranks)
    for d in range(len(kinds)):
        small, _ = solved(small, d)
    before = dense_elbo(small)
    state, scales = small.state.network.rebalance(small.state, small.priors)
    assert scales is None
    turned = small.with_state(state)
    for old, new in zip(dense_moments(small), dense_moments(turned), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-8, atol=1e-10)
    after = dense_elbo(turned)
    assert after >= before - 1e-9
    assert after == pytest.approx(problems.library_elbo(turned), rel=1e-9)
    if ranks:
        assert after > before + 1e-3


@cases
def test_an_index_is_lost_for_the_gain_foretold(kinds, ranks):
    checked = 0
    for d in range(len(kinds)):
        small, block = solved(make(kinds, ranks), d)
        state = small.state
        for family in state.network.families(state, d):
            gains = reduction.group_gains(state, d, family, small.priors)
            for lost in range(family.size):
                smaller, gain = reduction._marginal(
                    state, d, family, np.array([lost]), small.priors
                )
                rest = reduction._without(state, smaller, d, block, family, np.array([lost])).block
                new, _ = cavi.update_factor(smaller, d, rest)
                term = rows.terms(new.modes[d], new.factors[d], spread=1.0)
                error = rest.error(small.data.square, term, new.factors[d])
                after = with_error(small.with_state(new), error)
                assert dense_error(after) == pytest.approx(error, rel=1e-9)
                expected = dense_elbo(after) - dense_elbo(small)
                assert gain == pytest.approx(expected, rel=1e-7, abs=1e-8)
                assert gains[lost] == pytest.approx(gain, rel=1e-7, abs=1e-8)
                checked += 1
    assert checked == 2 * sum(ranks)


def test_shares_of_indices_add_up_where_paths_do_not_mix():
    small, block = solved(make(("polynomial", "fourier", "powers"), (2, 2)), 0)
    (family,) = small.state.network.families(small.state, 0)
    shares = reduction.group_shares(small.state, 0, block, family)
    assert shares.sum() == pytest.approx(1.0)
    state = small.state
    others = [replace(f, cov=np.zeros_like(f.cov)) for f in state.factors[1:]]
    # what goes through each index, row by row, the other cores known
    small = small.with_state(replace(state, factors=(state.factors[0], *others)))
    block = block_of(small, 0)
    shares = reduction.group_shares(small.state, 0, block, family)
    sizes = []
    for s in range(2):
        alone = np.zeros_like(state.factors[0].mean)
        alone[:, s] = state.factors[0].mean[:, s]
        factor = replace(state.factors[0], mean=alone)
        f, _ = dense_moments(small.with_state(replace(small.state, factors=(factor, *others))))
        sizes.append(f @ f)
    np.testing.assert_allclose(shares, np.array(sizes) / np.sum(sizes), rtol=1e-9)


def test_rank_one_is_the_same_in_both_networks():
    small = make(("polynomial", "chebyshev", "categorical"), (1, 1))
    state = small.state
    shared = state.rank[0]
    cp = replace(
        state,
        network=CP(),
        rank=(shared,),
        factors=tuple(replace(f, layout=layout.components(1)) for f in state.factors),
    )
    for a, b in zip(dense_moments(small), dense_moments(small.with_state(state)), strict=True):
        np.testing.assert_allclose(a, b)
    first, other = Predictor.of(state), Predictor.of(cp)
    for a, b in zip(
        first.moments(small.features.__getitem__),
        other.moments(small.features.__getitem__),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    for d in range(3):
        actual, expected = block_of(small, d), block_of(small.with_state(cp), d)
        np.testing.assert_allclose(actual.second, expected.second, rtol=1e-12)
        np.testing.assert_allclose(actual.linear, expected.linear, rtol=1e-12)


def test_components_written_as_diagonal_cores_predict_the_same():
    small = problems.make(("polynomial", "chebyshev", "categorical"), rank=3)
    cp = small.state
    factors = []
    for d, factor in enumerate(cp.factors):
        shape = layout.core(1 if d == 0 else 3, 1 if d == 2 else 3)
        on = np.flatnonzero(shape.anchor) if d == 1 else np.arange(3)
        m = len(factor.mean)
        mean, cov = np.zeros((m, shape.n_columns)), np.zeros((shape.n_columns, m) * 2)
        mean[:, on] = factor.mean
        cov[np.ix_(on, range(m), on, range(m))] = factor.cov
        factors.append(Factor(mean, cov, np.nan, shape))
    train = replace(cp, factors=tuple(factors), network=TT())
    for a, b in zip(
        Predictor.of(train).moments(small.features.__getitem__),
        Predictor.of(cp).moments(small.features.__getitem__),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("stride", [0, 1, 2])
@pytest.mark.parametrize("blocks", [1, 3])
def test_blocks_of_rows_and_what_is_kept_make_no_difference(blocks, stride):
    small = make(("polynomial", "chebyshev", "powers", "fourier"), (2, 3, 2), n=30, weighted=True)
    first, other = sweeper_of(small), sweeper_of(small, blocks=blocks, stride=stride)
    for _ in range(3):
        first.sweep()
        other.sweep()
    for a, b in zip(first.state.factors, other.state.factors, strict=True):
        np.testing.assert_allclose(a.mean, b.mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(a.cov, b.cov, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_never_falls_whatever_the_ranks(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 6))
    kinds = rng.choice(["polynomial", "chebyshev", "powers", "categorical", "missing"], count)
    ranks = tuple(int(r) for r in rng.integers(1, 5, count - 1))
    small = make(tuple(kinds), ranks, n=40, seed=seed)
    sweeper = sweeper_of(small)
    bounds = []
    drop = [
        lambda state, d, block: reduction.drop_groups(state, d, block, small.priors, share=1e-3),
        lambda state, d, block: reduction.drop_functions(state, d, block, small.priors, share=1e-3),
    ]
    for sweep in range(12):
        sweeper.sweep(drop=drop if sweep > 2 else ())
        bounds.append(problems.library_elbo(small.with_state(sweeper.state)))
        if sweep % 3 == 2:
            sweeper.rebalance()
            bounds.append(problems.library_elbo(small.with_state(sweeper.state)))
    assert np.all(np.diff(bounds) >= -1e-8 * np.abs(bounds[:-1])), bounds
    assert problems.library_elbo(small.with_state(sweeper.state)) == pytest.approx(
        dense_elbo(small.with_state(sweeper.state)), rel=1e-8
    )


def test_ranks_are_at_most_what_either_side_has_dimensions():
    modes = make(("powers",) * 5, (1, 1, 1, 1)).state.modes
    assert [len(mode.keep) for mode in modes] == [3] * 5
    assert TT().ranks(100, modes) == [3, 9, 9, 3]
    assert TT().ranks([2, 7, 1, 5], modes) == [2, 7, 1, 3]


@pytest.mark.parametrize("stride", [0, 1, 4])
def test_a_hundred_cores_neither_overflow_nor_vanish(stride):
    """Cores of sizes that multiply to 1 by way of 1e260, whose square no double has."""
    n_modes, n, rng = 100, 6, np.random.default_rng(0)
    shapes = [layout.core(1 if d == 0 else 2, 1 if d == n_modes - 1 else 2) for d in range(n_modes)]
    logs = np.where(np.arange(n_modes) < 50, 12.0, -12.0)
    plain, scaled = [], []
    for shape, log in zip(shapes, logs, strict=True):
        mean = np.eye(*shape.shape).ravel() + 0.2 * rng.standard_normal((1, shape.n_columns))
        second = shape.products(mean) * 1.01
        plain.append(rows.Terms(mean, second))
        scaled.append(rows.Terms(mean * np.exp(log), second * np.exp(2 * log)))
    features = [(x, x) for x in 1.0 + 0.1 * rng.standard_normal((n_modes, n, 1))]
    first, other = (Predictor(TT(), terms, layout.core(1, 1)) for terms in (plain, scaled))
    for a, b in zip(*(p.moments(features.__getitem__) for p in (first, other)), strict=True):
        assert np.all(np.isfinite(b))
        np.testing.assert_allclose(b, a, rtol=1e-9)
    for d in (0, 13, 50, 99):
        result = []
        for terms in (plain, scaled):
            environments = Environments(n_modes, stride=stride, network=TT())
            outside = environments.outside(
                d, lambda k, into, terms=terms: rows.moments(features[k], terms[k], into)
            )
            here = rows.moments(features[d], terms[d])
            result.append(rows.contract(rows.multiply(outside, here), shapes[d]))
        for a, b in zip(*result, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-9)
