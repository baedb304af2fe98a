"""Coordinate updates and the bound, against the oracle and against each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from btnkm.core import cavi
from btnkm.core.gamma import Gamma
from btnkm.core.posterior import Predictor
from btnkm.core.state import Factor
from tests import oracle, problems
from tests.problems import SMALL

kinds = pytest.mark.parametrize("kinds", SMALL, ids="-".join)
weighted = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
basis_prior = pytest.mark.parametrize("basis_prior", [True, False], ids=["prior", "off"])
dropped = pytest.mark.parametrize("dropped", [False, True], ids=["whole", "dropped"])


def dense_of(small):
    state, priors = small.state, small.priors
    return problems.phis(small), problems.dense(state, priors), problems.dense_prior(state, priors)


def lower_blocks(a):
    """Return an (R, M, R, M) array as a symmetric matrix, read from its lower triangle."""
    size = a.shape[0] * a.shape[1]
    lower = np.tril(a.reshape(size, size))
    return lower + np.tril(lower, -1).T


@kinds
@weighted
@dropped
def test_block_sums_and_precision(kinds, weighted, dropped):
    small = problems.make(kinds, 3, weighted=weighted, dropped=dropped)
    phis, q, _ = dense_of(small)
    for d in range(len(kinds)):
        block = problems.block(small, d)
        second, linear = oracle.block_sums(phis, q, small.y, small.s, d)
        np.testing.assert_allclose(block.linear.T.ravel(), linear, rtol=1e-9, atol=1e-11)
        prior = cavi.prior_precision(small.state, d)
        np.testing.assert_allclose(
            lower_blocks(block.system(0.0, prior)[0]),
            np.diag(np.kron(small.state.rank[0].mean, small.state.basis[d].mean)),
            rtol=1e-12,
        )
        np.testing.assert_allclose(
            lower_blocks(block.system(1.0, 0.0 * prior)[0]), second, rtol=1e-9, atol=1e-11
        )
        expected, _ = oracle.factor_problem(phis, q, small.y, small.s, d)
        actual = lower_blocks(block.system(small.state.likelihood.scale, prior)[0])
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)


@kinds
@weighted
def test_block_sums_of_the_warm_phase(kinds, weighted):
    """Without covariances H is the outer product of g: plain alternating least squares."""
    small = problems.make(kinds, 2, weighted=weighted)
    phis, q, _ = dense_of(small)
    q = replace(q, covs=tuple(0.0 * c for c in q.covs))
    for d in range(len(kinds)):
        block = problems.block(small, d, spread=False)
        second, linear = oracle.block_sums(phis, q, small.y, small.s, d)
        actual = lower_blocks(block.system(1.0, 0.0 * block.linear)[0])
        np.testing.assert_allclose(actual, second, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(block.linear.T.ravel(), linear, rtol=1e-9, atol=1e-11)


@kinds
@weighted
@dropped
def test_update_factor(kinds, weighted, dropped):
    small = problems.make(kinds, 2, weighted=weighted, dropped=dropped)
    phis, q, _ = dense_of(small)
    for d in range(len(kinds)):
        block = problems.block(small, d)
        state, jitter = cavi.update_factor(small.state, d, block)
        expected = oracle.solve_factor(phis, q, small.y, small.s, d)
        actual = problems.dense(state, small.priors)
        assert jitter == 0.0
        for k in range(len(kinds)):
            np.testing.assert_allclose(actual.means[k], expected.means[k], rtol=1e-8, atol=1e-11)
            np.testing.assert_allclose(actual.covs[k], expected.covs[k], rtol=1e-8, atol=1e-11)
        factor, reference = state.factors[d], problems.dense_factor(actual.means[d], actual.covs[d])
        assert factor.log_det == pytest.approx(reference.log_det, rel=1e-9)
        np.testing.assert_allclose(factor.group_log_dets(0), reference.group_log_dets(0), rtol=1e-8)
        mean_only, _ = cavi.update_factor(small.state, d, block, mean_only=True)
        np.testing.assert_allclose(mean_only.factors[d].mean, factor.mean, rtol=1e-10)
        assert not np.any(mean_only.factors[d].cov)


@kinds
@weighted
@dropped
def test_gamma_updates_and_error(kinds, weighted, dropped):
    small = problems.make(kinds, 3, weighted=weighted, dropped=dropped)
    phis, q, prior = dense_of(small)
    for d in range(len(kinds)):
        state = cavi.update_basis(small.state, d, small.priors)
        expected = oracle.solve_basis(q, prior, d)
        for a, b in zip(
            problems.dense(state, small.priors).basis[d], expected.basis[d], strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-11)
        actual = problems.error(small.state, d, problems.block(small, d), small.data)
        assert actual == pytest.approx(problems.oracle_error(small), rel=1e-10)
    actual = problems.dense(cavi.update_rank(small.state, 0, small.priors), small.priors).rank
    np.testing.assert_allclose(actual, oracle.solve_rank(q, prior).rank, rtol=1e-11)
    sums = (small.state.likelihood.error,)
    state = cavi.update_likelihood(small.state, sums, small.data, small.priors)
    actual = state.likelihood.noise
    expected = oracle.solve_noise(phis, q, prior, small.y, small.s).noise
    np.testing.assert_allclose((actual.shape, actual.rate), expected, rtol=1e-11)


def test_known_basis_precisions_stay_whatever_the_weights():
    small = problems.make(("chebyshev", "powers"), 2, basis_prior=False)
    moved = replace(small.state, basis=(small.state.basis[0], Gamma(1.0, np.full(3, 9.0))))
    for state in (small.state, moved):
        updated = cavi.update_basis(state, 1, small.priors)
        assert updated.basis[0] is small.state.basis[0]
        np.testing.assert_allclose(updated.basis[1].mean, 1.0 / state.modes[1].rate_scale)


def test_error_never_falls_below_zero():
    small = problems.make(("chebyshev",), 1)
    state = cavi.update_likelihood(small.state, (-1e-9,), small.data, small.priors)
    assert state.likelihood.error == 0.0


@kinds
def test_a_weight_of_k_is_a_row_repeated_k_times(kinds):
    small = problems.make(kinds, 2)
    times = np.arange(len(small.y)) % 4
    index = np.repeat(np.arange(len(times)), times)
    counted = replace(small, weight=times.astype(float))
    repeated = replace(
        small, features=[(p[index], q[index]) for p, q in small.features], y=small.y[index]
    )
    for d in range(len(kinds)):
        a, b = problems.block(counted, d), problems.block(repeated, d)
        np.testing.assert_allclose(a.second, b.second, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(a.linear, b.linear, rtol=1e-11, atol=1e-12)
    assert problems.oracle_elbo(counted) == pytest.approx(problems.oracle_elbo(repeated))


@kinds
@weighted
@basis_prior
@dropped
def test_bound_with_every_constant(kinds, weighted, basis_prior, dropped):
    small = problems.make(
        kinds, 2, weighted=weighted, basis_prior=basis_prior, dropped=dropped, seed=3
    )
    assert problems.library_elbo(small) == pytest.approx(problems.oracle_elbo(small), rel=1e-10)


def test_bound_terms_by_name():
    small = problems.make(("chebyshev", "powers"), 2)
    terms = cavi.elbo_terms(small.state, small.data, small.priors)
    _, q, prior = dense_of(small)
    entropy = sum(
        stats.multivariate_normal(m.T.ravel(), c).entropy()
        for m, c in zip(q.means, q.covs, strict=True)
    )
    assert terms["entropy"] == pytest.approx(entropy)
    rank = oracle.gamma_cross(q.rank, prior.rank) + oracle.gamma_entropy(q.rank)
    assert terms["rank"] == pytest.approx(rank)
    noise = oracle.gamma_cross(q.noise, prior.noise) + oracle.gamma_entropy(q.noise)
    assert terms["noise"] == pytest.approx(noise)
    basis = sum(
        oracle.gamma_cross(a, b) + oracle.gamma_entropy(a)
        for a, b in zip(q.basis, prior.basis, strict=True)
    )
    assert terms["basis"] == pytest.approx(basis)


@pytest.mark.parametrize(("shape", "rate"), [(0.4, 2.0), (3.0, 0.1), (250.0, 30.0)])
def test_gamma_moments_by_quadrature(shape, rate):
    frozen = stats.gamma(a=shape, scale=1.0 / rate)
    q, prior = Gamma(shape, rate), Gamma(1.7, 0.9)
    assert q.mean == pytest.approx(frozen.mean())
    assert q.log_mean == pytest.approx(frozen.expect(np.log, epsabs=1e-10), rel=1e-6)
    reference = stats.gamma(a=1.7, scale=1.0 / 0.9)
    kl = frozen.expect(lambda x: frozen.logpdf(x) - reference.logpdf(x), epsabs=1e-10)
    assert q.kl(prior) == pytest.approx(kl, rel=1e-5)
    assert q.kl(q) == pytest.approx(0.0, abs=1e-12)


def test_gamma_take_serves_scalars_and_arrays():
    taken = Gamma(2.0, np.array([1.0, 2.0, 3.0])).take(np.array([0, 2]))
    assert taken.shape == 2.0
    np.testing.assert_array_equal(taken.rate, [1.0, 3.0])


# Stationarity. ``bound`` is the oracle's, so neither the bound nor the update can hide the other.


def slope(bound, step):
    return (bound(step) - bound(-step)) / (2 * step)


def directions(size, rng, count=6):
    """Return unit directions: every axis of a small space, random ones of a large one."""
    return np.eye(size) if size <= count else np.linalg.qr(rng.standard_normal((size, count)))[0].T


def factor_slopes(small, d):
    """Return the bound's slopes in mean and covariance of q(W^(d))."""
    phis, q, prior = dense_of(small)
    rng = np.random.default_rng(5)
    m, rank = q.means[d].shape
    root = np.linalg.cholesky(q.covs[d])

    def bound(mean, cov):
        return oracle.elbo(phis, q.put(d, means=mean, covs=cov), prior, small.y, small.s)

    slopes = []
    for u in directions(m * rank, rng):
        step = (root @ u).reshape(rank, m).T
        slopes.append(slope(lambda t, s=step: bound(q.means[d] + t * s, q.covs[d]), 1e-3))
    for _ in range(6):
        e = rng.standard_normal((m * rank, m * rank))
        step = root @ (e + e.T) @ root.T / (m * rank)
        slopes.append(slope(lambda t, s=step: bound(q.means[d], q.covs[d] + t * s), 1e-4))
    return np.abs(slopes)


def gamma_slopes(small, put, pair):
    """Return the bound's slopes in log shape and log rate of every entry of one Gamma."""
    phis, q, prior = dense_of(small)
    pair = tuple(np.atleast_1d(np.asarray(p, dtype=float)) for p in pair(q))
    slopes = []
    for part in range(2):
        for i in range(len(pair[part])):

            def bound(t, part=part, i=i):
                moved = [p.copy() for p in pair]
                moved[part][i] *= np.exp(t)
                return oracle.elbo(phis, put(q, tuple(moved)), prior, small.y, small.s)

            slopes.append(slope(bound, 1e-4))
    return np.abs(slopes)


def put_rank(q, pair):
    return replace(q, rank=pair)


def put_noise(q, pair):
    return replace(q, noise=tuple(float(p[0]) for p in pair))


@kinds
@weighted
def test_factor_update_is_stationary(kinds, weighted):
    small = problems.make(kinds, 2, weighted=weighted, seed=4)
    for d in range(len(kinds)):
        after, _ = problems.solved(small, d)
        assert np.max(factor_slopes(small, d)) > 1e-2
        assert np.max(factor_slopes(after, d)) < 1e-5
        assert problems.oracle_elbo(after) >= problems.oracle_elbo(small)
        assert problems.library_elbo(after) == pytest.approx(problems.oracle_elbo(after))


@kinds
@weighted
def test_gamma_updates_are_stationary(kinds, weighted):
    small = problems.make(kinds, 2, weighted=weighted, seed=4)
    state, priors = small.state, small.priors
    cases = [
        (cavi.update_rank(state, 0, priors), put_rank, lambda q: q.rank),
        (
            cavi.update_likelihood(state, (state.likelihood.error,), small.data, priors),
            put_noise,
            lambda q: q.noise,
        ),
    ]
    for d in range(len(kinds)):
        cases.append(
            (
                cavi.update_basis(state, d, priors),
                lambda q, pair, d=d: q.put(d, basis=pair),
                lambda q, d=d: q.basis[d],
            )
        )
    for new, put, pair in cases:
        after = small.with_state(new)
        assert np.max(gamma_slopes(small, put, pair)) > 1e-2
        assert np.max(gamma_slopes(after, put, pair)) < 1e-5
        assert problems.oracle_elbo(after) >= problems.oracle_elbo(small)


# Rebalancing.


@pytest.mark.parametrize("kinds", [*SMALL, ("bspline", "categorical", "missing")], ids="-".join)
@basis_prior
def test_rebalance_keeps_f_and_finds_the_best_scales(kinds, basis_prior):
    small = problems.make(kinds, 3, basis_prior=basis_prior, seed=6)
    state, scales = small.state.network.rebalance(small.state, small.priors)
    scales = np.array(scales)
    after = small.with_state(state)
    assert scales.shape == (len(kinds), 3)
    np.testing.assert_allclose(np.prod(scales, axis=0), 1.0, rtol=1e-10)
    for a, b in zip(problems.f_moments(small), problems.f_moments(after), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    best = problems.oracle_elbo(after)
    assert best >= problems.oracle_elbo(small)
    assert problems.library_elbo(after) == pytest.approx(best, rel=1e-10)
    for old, new, c in zip(small.state.factors, state.factors, scales, strict=True):
        reference = problems.dense_factor(old.mean * c, old.scale(c).cov.reshape(old.mean.size, -1))
        assert new.log_det == pytest.approx(reference.log_det, rel=1e-9)
        np.testing.assert_allclose(new.group_log_dets(0), reference.group_log_dets(0), rtol=1e-8)
    if len(kinds) == 1:
        np.testing.assert_array_equal(scales, 1.0)
        return
    assert best > problems.oracle_elbo(small) + 1e-3
    rng = np.random.default_rng(8)
    for size in (1e-3, 0.03, 0.3, 1.0):
        for _ in range(5):
            other = rng.standard_normal(scales.shape) * size
            other = np.exp(other - other.mean(axis=0))
            factors = tuple(f.scale(c) for f, c in zip(state.factors, other, strict=True))
            tried = small.with_state(replace(state, factors=factors))
            assert problems.oracle_elbo(tried) <= best + 1e-9


@pytest.mark.parametrize("spread", [1.0, 1e3, 1e8])
def test_rebalance_from_scales_far_apart(spread):
    small = problems.make(("chebyshev", "categorical", "packed"), 2)
    factors = small.state.factors
    apart = np.array([spread, 1.0 / spread])
    moved = (factors[0].scale(apart), factors[1].scale(1.0 / apart), factors[2])
    rebalance = small.state.network.rebalance
    first, _ = rebalance(small.state, small.priors)
    two, _ = rebalance(replace(small.state, factors=moved), small.priors)
    for a, b in zip(first.factors, two.factors, strict=True):
        np.testing.assert_allclose(a.mean, b.mean, rtol=1e-6)
        np.testing.assert_allclose(a.cov, b.cov, rtol=1e-6, atol=1e-12)


# One mode, one component, precisions held: Bayesian linear regression.


@weighted
def test_one_mode_is_bayesian_linear_regression(weighted):
    small = problems.make(("chebyshev",), 1, n=30, weighted=weighted)
    after, _ = problems.solved(small, 0)
    x, s = small.features[0][0], small.s
    tau = small.state.likelihood.scale
    prior = small.state.basis[0].mean * small.state.rank[0].mean[0]
    precision = tau * x.T @ (s[:, None] * x) + np.diag(prior)
    mean = np.linalg.solve(precision, tau * x.T @ (s * small.y))
    factor = after.state.factors[0]
    np.testing.assert_allclose(factor.mean[:, 0], mean, rtol=1e-9)
    np.testing.assert_allclose(factor.cov[0, :, 0], np.linalg.inv(precision), rtol=1e-8, atol=1e-12)
    new = np.linspace(-1.0, 1.0, 9)
    features = small.bases[0].features(new)
    actual = Predictor.of(after.state).moments(lambda d: features)
    np.testing.assert_allclose(actual[0], features[0] @ mean, rtol=1e-9)
    spread = np.einsum("ni,ni->n", features[0], np.linalg.solve(precision, features[0].T).T)
    np.testing.assert_allclose(actual[1], spread, rtol=1e-7)


def test_point_factor_has_no_spread():
    factor = Factor.point(np.array([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(factor.second, factor.mean**2)
    np.testing.assert_array_equal(factor.variance, 0.0)
