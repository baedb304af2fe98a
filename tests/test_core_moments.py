"""Moments of f: the library's short products against the full weight tensor."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import array_api_strict
import numpy as np
import pytest

from btnkm.core import layout, rows
from btnkm.core.cp import CP
from btnkm.core.network import Environments
from btnkm.core.state import Factor
from tests import oracle, problems
from tests.problems import MIXES

mixes = pytest.mark.parametrize("kinds", MIXES, ids="-".join)
dropped = pytest.mark.parametrize("dropped", [False, True], ids=["whole", "dropped"])
ranks = pytest.mark.parametrize("rank", [1, 3])


def dense_moments(small):
    q = problems.dense(small.state, small.priors)
    return oracle.f_moments(problems.phis(small), q.means, q.covs)


@mixes
@dropped
@ranks
def test_moments_of_f_equal_the_full_tensor(kinds, rank, dropped):
    small = problems.make(kinds, rank, dropped=dropped)
    product = problems.product(problems.mode_moments(small))
    mean, second = rows.contract(product, layout.components(rank))
    expected_mean, expected_second = dense_moments(small)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(second, expected_second, rtol=1e-10, atol=1e-12)


@mixes
@dropped
def test_without_spread_only_the_means_count(kinds, dropped):
    small = problems.make(kinds, 2, dropped=dropped)
    parts = problems.mode_moments(small, spread=False)
    assert all(part.second is None for part in parts)
    mean, second = rows.contract(problems.product(parts), layout.components(2))
    assert second is None
    weights = [f.mean for f in small.state.factors]
    np.testing.assert_allclose(mean, oracle.f_values(problems.phis(small), weights), rtol=1e-10)


@mixes
def test_a_factor_known_exactly_has_the_square_of_its_mean(kinds):
    small = problems.make(kinds, 2)
    factors = tuple(Factor.point(f.mean) for f in small.state.factors)
    small = small.with_state(replace(small.state, factors=factors))
    product = problems.product(problems.mode_moments(small))
    mean, second = rows.contract(product, layout.components(2))
    np.testing.assert_allclose(second, mean**2, rtol=1e-10, atol=1e-12)


@mixes
@dropped
def test_moments_of_each_mode(kinds, dropped):
    small = problems.make(kinds, 3, dropped=dropped)
    r, s, _ = layout.pairs(3)
    for d, part in enumerate(problems.mode_moments(small)):
        phi, factor = problems.phis(small)[d], small.state.factors[d]
        m = phi.shape[1]
        e = oracle.second_moment(factor.mean, factor.cov.reshape(3 * m, 3 * m))
        expected = np.einsum("ni,irjs,nj->nrs", phi, e, phi)
        np.testing.assert_allclose(part.mean, phi @ factor.mean, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(part.second, expected[:, r, s], rtol=1e-10, atol=1e-12)


def test_scaled_terms_are_the_terms_of_the_scaled_factor():
    small = problems.make(("chebyshev", "bspline"), 3)
    factors = np.array([0.5, 2.0, 3.0])
    mode, factor = small.state.modes[1], small.state.factors[1]
    scaled = rows.terms(mode, factor, spread=True).scale(factors)
    expected = rows.terms(mode, factor.scale(factors), spread=True)
    np.testing.assert_allclose(scaled.mean, expected.mean)
    np.testing.assert_allclose(scaled.second, expected.second, rtol=1e-12, atol=1e-14)
    assert rows.terms(mode, factor, spread=False).scale(factors).second is None


def test_terms_do_not_change_the_factor():
    small = problems.make(("chebyshev",), 3)
    factor = small.state.factors[0]
    before = factor.mean.copy(), factor.cov.copy()
    rows.terms(small.state.modes[0], factor, spread=True)
    np.testing.assert_array_equal(factor.mean, before[0])
    np.testing.assert_array_equal(factor.cov, before[1])


def test_the_oracle_agrees_with_monte_carlo():
    small = problems.make(("missing", "packed", "categorical"), 2)
    q = problems.dense(small.state, small.priors)
    rng = np.random.default_rng(0)
    f = np.array(
        [
            oracle.f_values(problems.phis(small), oracle.draw_weights(q.means, q.covs, rng))
            for _ in range(4000)
        ]
    )
    mean, second = dense_moments(small)
    error = f.std(axis=0) / np.sqrt(len(f))
    assert np.all(np.abs(f.mean(axis=0) - mean) < 5 * error)
    error = (f**2).std(axis=0) / np.sqrt(len(f))
    assert np.all(np.abs((f**2).mean(axis=0) - second) < 5 * error)


def copies(parts):
    """Return moments that may be overwritten, as environments want them, in arrays given back."""

    def moments_of(k, into):
        part = parts[k]
        if into is None or into.second.shape != part.second.shape:
            return rows.Moments(part.mean.copy(), part.second.copy(), None)
        into.mean[:], into.second[:] = part.mean, part.second
        return rows.Moments(into.mean, into.second, None)

    return moments_of


@pytest.mark.parametrize("stride", [0, 1, 2, 4])
@pytest.mark.parametrize("n_modes", [2, 5, 17, 20])
def test_environments_in_any_order_equal_the_direct_product(stride, n_modes):
    kinds = ("chebyshev", "categorical", "packed", "missing", "powers")
    rng = np.random.default_rng(1)
    environments = Environments(n_modes, stride=stride, network=CP())
    for rank in (2, 1, 3):  # arrays of the rank before are at hand, and of no use
        few = problems.mode_moments(problems.make(kinds, rank))
        parts = [few[d % 5] for d in range(n_modes)]
        environments.reset()
        walk = [*range(n_modes), *range(n_modes)[::-1], *rng.integers(n_modes, size=10)]
        for d in walk:
            actual = environments.outside(d, copies(parts))
            expected = rows.expand(problems.product(p for k, p in enumerate(parts) if k != d))
            np.testing.assert_allclose(actual.mean, expected.mean, rtol=1e-11)
            np.testing.assert_allclose(actual.second, expected.second, rtol=1e-11)
            parts[d] = rows.Moments(parts[d].mean * 0.9 + 0.1, parts[d].second * 0.9 + 0.2, None)
            environments.changed(d)


def test_without_keeping_nothing_outlives_a_call():
    n, rank = 20_000, 6
    mean, second = np.ones((n, rank)), np.ones((n, 21))
    environments = Environments(5, stride=0, network=CP())

    def moments_of(k, into):
        return rows.Moments(mean.copy(), second.copy(), None)

    environments.outside(2, moments_of)  # whose answer is in memory of the thread's
    tracemalloc.start()
    environments.outside(2, moments_of)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 10_000


def test_kept_environments_extend_by_one_mode_per_step():
    small = problems.make(("chebyshev",) * 6, 2)
    parts = problems.mode_moments(small)
    environments = Environments(6, stride=1, network=CP())
    asked = []

    def moments_of(k, into):
        asked.append(k)
        return copies(parts)(k, into)

    environments.outside(0, moments_of)
    assert sorted(asked) == [1, 2, 3, 4, 5]
    for d in range(1, 6):
        asked.clear()
        environments.changed(d - 1)
        environments.outside(d, moments_of)
        assert asked == [d - 1]


def test_a_stride_costs_one_more_evaluation_and_saves_memory():
    n_modes, stride = 100, 10
    part = rows.Moments(np.ones((1, 1)), np.ones((1, 1)), None)
    environments = Environments(n_modes, stride=stride, network=CP())
    asked, held = [], []

    def moments_of(k, into):
        asked.append(k)
        return rows.Moments(part.mean.copy(), part.second.copy(), None)

    environments.outside(0, moments_of)
    for order in (range(n_modes), range(n_modes)[::-1]):
        asked.clear()
        for d in order:
            environments.outside(d, moments_of)
            environments.changed(d)
            held.append(len(environments._left) + len(environments._right))
        assert len(asked) <= 2 * n_modes + 2 * stride
    assert max(held) <= 4 * stride + 4


def test_environments_forget_after_reset():
    small = problems.make(("chebyshev", "powers"), 2)
    parts = problems.mode_moments(small)
    environments = Environments(2, stride=1, network=CP())
    environments.outside(0, copies(parts))
    parts[1] = parts[0]
    environments.reset()
    np.testing.assert_array_equal(environments.outside(0, copies(parts)).mean, parts[0].mean)


def test_a_second_walk_overwrites_the_arrays_of_the_first():
    n, rank, modes = 20_000, 6, 5
    rng = np.random.default_rng(0)
    features = [(rng.standard_normal((n, 3)), rng.standard_normal((n, 5))) for _ in range(modes)]
    terms = [
        rows.Terms(rng.standard_normal((3, rank)), rng.standard_normal((5, 21)))
        for _ in range(modes)
    ]
    environments = Environments(modes, stride=1, network=CP())

    def walk():
        for d in [*range(modes), *range(modes - 2, -1, -1)]:
            environments.outside(d, lambda k, into: rows.moments(features[k], terms[k], into))
            environments.changed(d)

    walk()
    tracemalloc.start()
    walk()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < n * rank * 8


def test_arrays_of_another_rank_are_not_overwritten():
    small, other = (problems.make(("chebyshev", "packed", "powers"), rank) for rank in (2, 3))
    environments = Environments(3, stride=1, network=CP())
    environments.outside(1, copies(problems.mode_moments(small)))
    environments.reset()
    features, state = other.features, other.state
    terms = [rows.terms(m, f, spread=1.0) for m, f in zip(state.modes, state.factors, strict=True)]
    actual = environments.outside(1, lambda k, into: rows.moments(features[k], terms[k], into))
    expected = problems.outside(other, 1)
    np.testing.assert_allclose(actual.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(actual.second, expected.second, rtol=1e-12)


def test_one_mode_has_nothing_outside():
    environments = Environments(1, stride=1, network=CP())
    assert environments.outside(0, lambda k, into: pytest.fail("no other mode")) is None


def strict(part):
    """Return moments, features or an array in the strict namespace."""
    if part is None:
        return None
    if isinstance(part, rows.Moments):
        return rows.Moments(*(strict(p) for p in part))
    if isinstance(part, tuple):
        return tuple(strict(p) for p in part)
    return array_api_strict.asarray(np.ascontiguousarray(part))


def assert_strict_equal(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert isinstance(a, type(array_api_strict.ones(1)))
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("kinds", [("chebyshev",), ("bspline", "missing", "packed")], ids="-".join)
def test_strict_arrays_agree_with_numpy(kinds, spread):
    small = problems.make(kinds, 3, weighted=True)
    state = small.state
    features = [strict(f) for f in small.features]
    terms = [
        rows.terms(m, f, spread=spread) for m, f in zip(state.modes, state.factors, strict=True)
    ]
    expected = problems.mode_moments(small, spread)
    actual = [rows.moments(f, t) for f, t in zip(features, terms, strict=True)]
    for a, b in zip(actual, expected, strict=True):
        assert_strict_equal(a, b)
        assert_strict_equal(rows.rescale(a), rows.rescale(b))
        assert_strict_equal(rows.expand(rows.rescale(a)), b)
    full, full_np = rows.rescale(problems.product(actual)), rows.rescale(problems.product(expected))
    assert_strict_equal(rows.multiply(full, full), rows.multiply(full_np, full_np))
    columns = layout.components(3)
    assert_strict_equal(rows.contract(full, columns), rows.contract(full_np, columns))
    environments = Environments(len(kinds), stride=1, network=CP())
    for d, mode in enumerate(state.modes):
        around = environments.outside(d, lambda k, into: actual[k])
        y_np, weight_np = small.y[:, None], small.weight[:, None]
        y, weight = strict(y_np), strict(weight_np)
        for w, w_np in ((weight, weight_np), (None, None)):
            sums = rows.block_sums(features[d], around, w, y, mode, 3)
            around_np = problems.outside(small, d, spread)
            numpy_sums = rows.block_sums(small.features[d], around_np, w_np, y_np, mode, 3)
            assert_strict_equal(sums, numpy_sums)
