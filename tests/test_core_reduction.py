"""Gains of smaller models: known before they are built, and right."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from btnkm.bases import Basis
from btnkm.core import cavi, reduction
from btnkm.core.gamma import Gamma
from tests import oracle, problems
from tests.problems import SMALL

kinds = pytest.mark.parametrize("kinds", SMALL, ids="-".join)
basis_prior = pytest.mark.parametrize("basis_prior", [True, False], ids=["prior", "off"])


def dense_of(small):
    state, priors = small.state, small.priors
    return problems.phis(small), problems.dense(state, priors), problems.dense_prior(state, priors)


def component_gains(state, d, priors):
    (family,) = state.network.families(state, d)
    return reduction.group_gains(state, d, family, priors)


def gain_without_functions(small, d, lost):
    """Return the bound's gain by brute force: the smaller model, q(W^(d)) solved anew."""
    phis, q, prior = oracle.without_functions(*dense_of(small), d, lost)
    q = oracle.solve_factor(phis, q, small.y, small.s, d)
    return oracle.elbo(phis, q, prior, small.y, small.s) - problems.oracle_elbo(small)


def gain_without_components(small, d, lost):
    phis, q, prior = dense_of(small)
    q = oracle.solve_factor(phis, oracle.without_components(q, lost), small.y, small.s, d)
    return oracle.elbo(phis, q, prior, small.y, small.s) - problems.oracle_elbo(small)


@kinds
@basis_prior
def test_function_gain_is_the_change_of_the_bound(kinds, basis_prior):
    start = problems.make(kinds, 2, weighted=True, basis_prior=basis_prior, seed=1)
    for d in range(len(kinds)):
        small, _ = problems.solved(start, d)
        size = len(small.state.modes[d].keep)
        for lost in [*combinations(range(size), 1), *combinations(range(size), size - 1)]:
            actual = reduction.function_gain(small.state, d, np.array(lost), small.priors)
            assert actual == pytest.approx(gain_without_functions(small, d, lost), rel=1e-6)


@kinds
@basis_prior
def test_component_gains_are_the_change_of_the_bound(kinds, basis_prior):
    start = problems.make(kinds, 3, weighted=True, basis_prior=basis_prior, seed=2)
    for d in range(len(kinds)):
        small, _ = problems.solved(start, d)
        actual = component_gains(small.state, d, small.priors)
        expected = [gain_without_components(small, d, [r]) for r in range(3)]
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


@kinds
def test_component_losses_are_those_of_the_warm_phase(kinds):
    small = problems.make(kinds, 3, weighted=True, seed=2)
    for d in range(len(kinds)):
        block = problems.block(small, d, spread=False)
        a, b = block.system(small.state.likelihood.scale, cavi.prior_precision(small.state, d))
        m, size = len(b), b.size
        a, b = np.tril(a.reshape(size, size)), b.T.ravel()
        a += np.tril(a, -1).T

        def best(kept, a=a, b=b):
            return b[kept] @ np.linalg.solve(a[np.ix_(kept, kept)], b[kept])

        every = np.arange(size)
        expected = [best(every) - best(every[every // m != r]) for r in range(3)]
        actual = reduction.component_losses(small.state, d, block)
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-9 * best(every))


@kinds
def test_extra_components_with_the_smallest_losses_are_dropped(kinds):
    small = problems.make(kinds, 5, seed=2)
    for d in range(len(kinds)):
        block = problems.block(small, d, spread=False)
        order = np.argsort(reduction.component_losses(small.state, d, block))
        for most, share, count in [(2, 1.0, 3), (2, 0.5, 2), (4, 0.5, 1)]:
            state, rest, _ = reduction.drop_extra(small.state, d, block, rank=most, share=share)
            kept = np.sort(order[count:])
            for new, old in zip(state.factors, small.state.factors, strict=True):
                np.testing.assert_array_equal(new.mean, old.mean[:, kept])
            np.testing.assert_array_equal(state.rank[0].mean, small.state.rank[0].mean[kept])
            expected = problems.block(small.with_state(state), d, spread=False)
            np.testing.assert_allclose(rest.second, expected.second, rtol=1e-9, atol=1e-11)
            np.testing.assert_allclose(rest.linear, expected.linear, rtol=1e-9, atol=1e-11)
        assert reduction.drop_extra(small.state, d, block, rank=5, share=1.0) is None


@kinds
def test_gain_of_several_components_together(kinds):
    start = problems.make(kinds, 3, seed=2)
    for d in range(len(kinds)):
        small, _ = problems.solved(start, d)
        state = small.state
        (family,) = state.network.families(state, d)
        for lost in combinations(range(3), 2):
            _, actual = reduction._marginal(state, d, family, np.array(lost), small.priors)
            assert actual == pytest.approx(gain_without_components(small, d, lost), rel=1e-6)


def test_taken_components_are_the_marginal():
    small = problems.make(("chebyshev", "powers"), 3)
    kept = np.array([0, 2])
    q = oracle.without_components(problems.dense(small.state, small.priors), [1])
    for d, factor in enumerate(small.state.factors):
        actual = factor.take_columns(kept)
        expected = problems.dense_factor(q.means[d], q.covs[d])
        np.testing.assert_array_equal(actual.mean, expected.mean)
        np.testing.assert_allclose(actual.cov, expected.cov)
        assert actual.log_det == pytest.approx(expected.log_det)
        np.testing.assert_allclose(actual.group_log_dets(0), expected.group_log_dets(0))


@kinds
def test_shares_are_shares_of_the_mean_squares(kinds):
    small = problems.make(kinds, 3, weighted=True)
    for d in range(len(kinds)):
        block = problems.block(small, d)
        phi, mean = problems.phis(small)[d], small.state.factors[d].mean
        q = problems.dense(small.state, small.priors)
        (family,) = small.state.network.families(small.state, d)
        functions, components = np.zeros(len(mean)), np.zeros(3)
        for n in range(len(small.y)):
            _, h = oracle.outside_moments(problems.phis(small), q.means, q.covs, d, n)
            parts = phi[n][:, None] * mean
            functions += small.s[n] * np.einsum("ir,rs,is->i", parts, h, parts)
            components += small.s[n] * np.diag(h) * parts.sum(axis=0) ** 2
        np.testing.assert_allclose(
            reduction.function_shares(small.state, d, block), functions / functions.sum(), rtol=1e-8
        )
        np.testing.assert_allclose(
            reduction.group_shares(small.state, d, block, family),
            components / components.sum(),
            rtol=1e-8,
            atol=1e-14,
        )


def check_drop(small, d, smaller):
    """Solve the smaller model; its block must be that of its rows, its bound no lower."""
    state, block, _ = smaller
    state, _ = cavi.update_factor(state, d, block)
    state = problems.with_error(state, problems.error(state, d, block, small.data))
    after = small.with_state(state)
    direct = problems.block(after, d)
    np.testing.assert_allclose(block.second, direct.second, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(block.linear, direct.linear, rtol=1e-9, atol=1e-11)
    assert problems.library_elbo(after) == pytest.approx(problems.oracle_elbo(after), rel=1e-9)
    assert problems.oracle_elbo(after) >= problems.oracle_elbo(small)
    return after


@kinds
@pytest.mark.parametrize("rank", [2, 4])
def test_dropped_functions_raise_the_bound(kinds, rank):
    start = problems.make(kinds, rank, seed=7)
    for d in range(len(kinds)):
        small, block = problems.solved(start, d)
        smaller = reduction.drop_functions(small.state, d, block, small.priors, share=1.0)
        assert smaller is not None
        after = check_drop(small, d, smaller)
        assert 1 <= len(after.state.modes[d].keep) < len(small.state.modes[d].keep)


@kinds
@pytest.mark.parametrize("rank", [2, 4])
def test_dropped_components_raise_the_bound(kinds, rank):
    start = problems.make(kinds, rank, seed=7)
    for d in range(len(kinds)):
        small, block = problems.solved(start, d)
        smaller = reduction.drop_groups(small.state, d, block, small.priors, share=1.0)
        assert smaller is not None
        after = check_drop(small, d, smaller)
        assert 1 <= after.state.n_components < rank


def with_flat_priors(state):
    """Return the state with small precisions, the same for every weight."""
    basis = tuple(Gamma(2.0, np.full(len(mode.keep), 6.0)) for mode in state.modes)
    return replace(state, basis=basis, rank=(Gamma(2.0, np.full(state.n_components, 6.0)),))


class Twins(Basis):
    """Two functions that say the same, and one that says something else."""

    def phi(self, x):
        return np.stack([x, 1.001 * x, np.cos(9.0 * x)], axis=1)


def test_of_two_equal_functions_one_stays(monkeypatch):
    """Either could go, both may not: the lot is weighed together."""
    monkeypatch.setitem(problems.KINDS, "twins", Twins())
    small = problems.make(("twins",), 1, n=40)
    y = small.codes[0] + np.cos(9.0 * small.codes[0])
    state = with_flat_priors(small.state)
    small = replace(small, state=state, y=y, data=cavi.Data(40.0, float(y @ y)))
    small, block = problems.solved(small, 0)
    gain = [
        reduction.function_gain(small.state, 0, np.array(lost), small.priors)
        for lost in ([0], [1], [0, 1])
    ]
    assert gain[0] > 0
    assert gain[1] > 0
    assert gain[2] < 0
    smaller = reduction.drop_functions(small.state, 0, block, small.priors, share=1.0)
    after = check_drop(small, 0, smaller)
    assert len(np.intersect1d(after.state.modes[0].keep, [0, 1])) == 1


def test_of_two_equal_components_one_stays():
    small = problems.make(("powers", "powers"), 3, n=40)
    mean = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 2.0]])
    twins = problems.dense_factor(mean, 0.02 * np.eye(9))
    phi, other = (f[0] for f in small.features)
    y = 2.0 * phi[:, 0] * (other @ mean[:, 0]) + 3.0 * phi[:, 1] * (other @ mean[:, 2])
    state = with_flat_priors(replace(small.state, factors=(small.state.factors[0], twins)))
    small = replace(small, state=state, y=y, data=cavi.Data(40.0, float(y @ y)))
    small, block = problems.solved(small, 0)
    gains = component_gains(small.state, 0, small.priors)
    assert np.all(gains[:2] > 0)
    assert gains[2] < 0
    assert gain_without_components(small, 0, [0, 1]) < 0
    smaller = reduction.drop_groups(small.state, 0, block, small.priors, share=1.0)
    after = check_drop(small, 0, smaller)
    kept = after.state.factors[1].mean
    assert np.sum(kept[0] == 1.0) == 1


def test_nothing_is_dropped_from_the_smallest_model():
    small, block = problems.solved(problems.make(("categorical",), 1), 0)
    assert reduction.drop_groups(small.state, 0, block, small.priors, share=1.0) is None
    smallest = small.state.modes[0].take(np.array([1]))
    factor = problems.dense_factor(np.ones((1, 1)), np.eye(1))
    basis = small.state.basis[0].take(np.array([1]))
    state = replace(small.state, modes=(smallest,), factors=(factor,), basis=(basis,))
    small, block = problems.solved(small.with_state(state), 0)
    assert reduction.drop_functions(small.state, 0, block, small.priors, share=1.0) is None


def test_what_has_a_share_is_not_weighed():
    small, block = problems.solved(problems.make(("chebyshev", "powers"), 3, seed=7), 0)
    for drop in (reduction.drop_groups, reduction.drop_functions):
        assert drop(small.state, 0, block, small.priors, share=1.0) is not None
        assert drop(small.state, 0, block, small.priors, share=0.0) is None
