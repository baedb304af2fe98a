"""Anchored modes: the weight of the constant is 1, and each input weighs each component itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from btnkm import BTNClassifier, BTNRegressor, Solver
from btnkm.bases import Categorical, Chebyshev, WithMissing
from btnkm.bases.anchored import Anchored
from btnkm.core import cavi, posterior, reduction, rows
from btnkm.core.cp import CP
from btnkm.core.gamma import Gamma
from btnkm.core.layout import components, pairs
from btnkm.core.likelihoods import Gaussian
from btnkm.core.state import Priors, State
from btnkm.execution.modes import make_mode
from tests import oracle, problems

KINDS = {
    "chebyshev": Chebyshev(n_basis=3),
    "categorical": Categorical(),
    "missing": WithMissing(Chebyshev(n_basis=3)),
}
MIXES = [("chebyshev",), ("categorical", "chebyshev"), ("missing", "chebyshev", "categorical")]
mixes = pytest.mark.parametrize("kinds", MIXES, ids="-".join)


def make(kinds, rank=3, n=25, seed=0, weighted=False):
    """Return a problem with amplitudes, anchored inputs and a random posterior."""
    rng = np.random.default_rng([seed, len(kinds)])
    codes = [problems.column(kind, n, rng) for kind in kinds]
    weight = rng.uniform(0.2, 3.0, n) if weighted else None
    bases = [Chebyshev(n_basis=1).fit(np.zeros(1))]
    bases += [
        Anchored(KINDS[kind].fit(code)).fit(code, weight)
        for kind, code in zip(kinds, codes, strict=True)
    ]
    codes = [np.zeros(n), *codes]
    features = [basis.features(code) for basis, code in zip(bases, codes, strict=True)]
    modes = tuple(make_mode(basis, smoothness=0.7) for basis in bases)
    sizes = [len(mode.keep) for mode in modes]
    y = rng.standard_normal(n)
    s = np.ones(n) if weight is None else weight
    factors = tuple(problems.random_factor(m, rank, rng) for m in sizes)
    basis = tuple(problems.random_gamma(m, rng) for m in sizes)
    precisions = problems.random_gamma((len(modes), rank), rng)
    state = State(
        modes,
        factors,
        basis,
        tuple(Gamma(*pair) for pair in zip(precisions.shape, precisions.rate, strict=True)),
        Gaussian(Gamma(6.0, 2.0)),
        CP(own=True),
    )
    priors = Priors(Gamma(1.5, 0.7), Gamma(2.0, 1.3), Gamma(2.5, 1.7))
    data = cavi.Data(float(s.sum()), float(s @ y**2))
    return problems.Small(bases, codes, features, y, weight, data, priors, state)


def whole(state):
    """Return means and covariances of all weights, those of the anchors known to be 1."""
    means, covs = [], []
    for mode, factor in zip(state.modes, state.factors, strict=True):
        m, rank = factor.mean.shape
        if not mode.anchored:
            means.append(factor.mean)
            covs.append(factor.cov.reshape(m * rank, m * rank))
            continue
        means.append(np.vstack([np.ones(rank), factor.mean]))
        cov = np.zeros((rank, m + 1, rank, m + 1))
        cov[:, 1:, :, 1:] = factor.cov
        covs.append(cov.reshape((m + 1) * rank, (m + 1) * rank))
    return tuple(means), tuple(covs)


def phis(small):
    both = zip(small.features, small.state.modes, strict=True)
    return [np.asarray(phi)[:, mode.present] for (phi, _), mode in both]


def dense_elbo(small):
    """Return the bound from its definition, weight by weight."""
    state, priors = small.state, small.priors
    mean, second = oracle.f_moments(phis(small), *whole(state))
    tau = state.likelihood.noise
    error = small.s @ (small.y**2 - 2 * small.y * mean + second)
    total = 0.5 * small.s.sum() * (tau.log_mean - np.log(2 * np.pi)) - 0.5 * tau.mean * error
    for d, (mode, factor) in enumerate(zip(state.modes, state.factors, strict=True)):
        m, rank = factor.mean.shape
        basis = state.basis[d]
        for i in range(m):
            for r in range(rank):
                log_precision = basis.log_mean[i] + state.rank[d].log_mean[r]
                square = factor.mean[i, r] ** 2 + factor.cov[r, i, r, i]
                energy = basis.mean[i] * state.rank[d].mean[r] * square
                total += 0.5 * (log_precision - np.log(2 * np.pi) - energy)
        cov = factor.cov.reshape(m * rank, m * rank)
        total += stats.multivariate_normal(np.zeros(m * rank), cov).entropy()
        q, prior = (basis.shape, basis.rate), (2.5, 1.7 * mode.rate_scale)
        total += oracle.gamma_cross(q, prior) + oracle.gamma_entropy(q)
    for gamma, prior in (*((vector, priors.rank) for vector in state.rank), (tau, priors.noise)):
        q = gamma.shape, gamma.rate
        total += oracle.gamma_cross(q, (prior.shape, prior.rate)) + oracle.gamma_entropy(q)
    return float(total)


def block(small, d):
    mode = small.state.modes[d]
    weight = None if small.weight is None else small.weight[:, None]
    response = (small.y if small.weight is None else small.weight * small.y)[:, None]
    outside = problems.outside(small, d)
    second, linear = rows.block_sums(small.features[d], outside, weight, response, mode, 3)
    return cavi.Block(mode, second, linear[mode.present], components(3))


def solved(small, d):
    """Return the problem with q(W^(d)) at its optimum, the error in place, and the block."""
    b = block(small, d)
    state, _ = cavi.update_factor(small.state, d, b)
    return small.with_state(with_error(state, d, b, small.data)), b


def with_error(state, d, b, data):
    return problems.with_error(state, problems.error(state, d, b, data))


@mixes
@pytest.mark.parametrize("weighted", [False, True])
def test_bound_and_optimum_agree_with_the_definition(kinds, weighted):
    small = make(kinds, weighted=weighted)
    for d in range(len(kinds) + 1):
        small, _ = solved(small, d)
        best = dense_elbo(small)
        assert problems.library_elbo(small) == pytest.approx(best, rel=1e-10)
        rng = np.random.default_rng(d)
        factor = small.state.factors[d]
        for size in (-0.02, 0.02):
            step = size * rng.standard_normal(factor.mean.shape)
            other = replace(factor, mean=factor.mean + step)
            factors = small.state.factors[:d] + (other,) + small.state.factors[d + 1 :]
            assert dense_elbo(small.with_state(replace(small.state, factors=factors))) < best
            scale = np.full(factor.mean.shape[1], 1.0 + size)
            other = replace(factor.scale(scale), mean=factor.mean)
            factors = small.state.factors[:d] + (other,) + small.state.factors[d + 1 :]
            assert dense_elbo(small.with_state(replace(small.state, factors=factors))) < best


@mixes
def test_precisions_are_updated_to_where_the_bound_is_highest(kinds):
    small = make(kinds)
    for d in range(len(kinds) + 1):
        for name, update in [("rank", cavi.update_rank), ("basis", cavi.update_basis)]:
            state = update(small.state, d, small.priors)
            best = dense_elbo(small.with_state(state))
            assert best > dense_elbo(small)
            for shape, rate in [(1.02, 1.0), (1.0, 1.02), (0.98, 1.0), (1.0, 0.98)]:
                if name == "rank":
                    gamma = Gamma(state.rank[d].shape * shape, state.rank[d].rate * rate)
                    other = replace(state, rank=state.rank[:d] + (gamma,) + state.rank[d + 1 :])
                else:
                    gamma = Gamma(state.basis[d].shape * shape, state.basis[d].rate * rate)
                    gamma = Gamma(gamma.shape + 0.0 * gamma.rate, gamma.rate)
                    other = replace(state, basis=state.basis[:d] + (gamma,) + state.basis[d + 1 :])
                assert dense_elbo(small.with_state(other)) < best


@mixes
def test_moments_and_draws_know_the_anchors(kinds):
    small = make(kinds)
    mean, second = oracle.f_moments(phis(small), *whole(small.state))
    actual = posterior.Predictor.of(small.state).moments(small.features.__getitem__)
    np.testing.assert_allclose(actual[0], mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(actual[1], second - mean**2, rtol=1e-8, atol=1e-10)
    draws = posterior.draw_weights(small.state, 1, np.random.default_rng(0))
    weights = [draw[0] for draw in draws]
    f = posterior.evaluate(small.state, weights, small.features.__getitem__)
    np.testing.assert_allclose(f, oracle.f_values(phis(small), weights), rtol=1e-10)


def test_a_component_is_dropped_by_its_amplitude_and_for_the_gain_foretold():
    small, b = solved(make(("categorical", "chebyshev")), 0)
    (family,) = small.state.network.families(small.state, 0)
    gains = reduction.group_gains(small.state, 0, family, small.priors)
    lost = int(np.argmax(gains))
    kept = np.delete(np.arange(3), lost)
    state = small.state
    factors = tuple(f.take_columns(kept) for f in state.factors)
    smaller = small.with_state(
        replace(state, factors=factors, rank=tuple(vector.take(kept) for vector in state.rank))
    )
    r, s, _ = pairs(3)
    left = np.isin(r, kept) & np.isin(s, kept)
    rest = cavi.Block(b.mode, b.second[:, left], b.linear[:, kept], components(2))
    new, _ = cavi.update_factor(smaller.state, 0, rest)
    smaller = smaller.with_state(with_error(new, 0, rest, small.data))
    expected = problems.library_elbo(smaller) - problems.library_elbo(small)
    assert gains[lost] == pytest.approx(expected, rel=1e-8)
    assert reduction.drop_groups(state, 1, b, small.priors, share=1.0) is None


def test_functions_are_dropped_for_the_gain_foretold():
    small, b = solved(make(("chebyshev", "missing")), 2)
    which = np.array([1])
    gain = reduction.function_gain(small.state, 2, which, small.priors)
    state = small.state
    keep = np.delete(np.arange(len(state.modes[2].keep)), which)
    mode = state.modes[2].take(keep)
    smaller = replace(
        state,
        modes=state.modes[:2] + (mode,),
        basis=state.basis[:2] + (state.basis[2].take(keep),),
    )
    linear = b.linear[state.modes[2].places(keep)]
    rest = cavi.Block(mode, b.second[: mode.n_psi], linear, b.layout)
    smaller, _ = cavi.update_factor(smaller, 2, rest)
    smaller = small.with_state(with_error(smaller, 2, rest, small.data))
    difference = problems.library_elbo(smaller) - problems.library_elbo(small)
    assert gain == pytest.approx(difference, rel=1e-8)
    assert problems.library_elbo(smaller) == pytest.approx(dense_elbo(smaller), rel=1e-10)


def test_the_bound_never_falls_and_unused_inputs_stay_out():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (200, 20))
    y = 2.0 * X[:, 0] * X[:, 1] + X[:, 2] + 0.1 * rng.standard_normal(200)
    label = (y > 0).astype(int)
    small = {"n_basis": 5, "max_rank": 4, "max_iter": 40, "n_init": 1, "random_state": 0}
    small["structure"] = "tensor"
    regressor = BTNRegressor(solver=Solver(anchored=True), **small).fit(X, y)
    classifier = BTNClassifier(solver=Solver(anchored=True), **small).fit(X, label)
    for model in (regressor, classifier):
        assert model.posterior_[0].anchored
        bounds = model.lower_bounds_
        assert np.all(np.diff(bounds) >= -1e-8 * abs(bounds[-1]))
    assert set(np.argsort(-regressor.feature_importances_)[:3]) == {0, 1, 2}
    assert regressor.feature_importances_[3:].sum() < 0.05


def test_many_inputs_and_few_rows_do_not_hide_the_function():
    """Plain components find nothing here: each pays for 40 inputs, and uses five."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(1200, 40))
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y = f + 10 * X[:, 3] + 5 * X[:, 4] + rng.standard_normal(1200)
    how = {"structure": "tensor", "n_basis": 8, "max_rank": 6, "n_init": 1, "random_state": 0}
    model = BTNRegressor(**how).fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) > 0.9


def test_anchored_models_draw_functions_and_bear_missing_values():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (150, 3))
    y = X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.standard_normal(150)
    X[:20, 1] = np.nan
    small = {"n_basis": 5, "max_rank": 3, "max_iter": 20, "n_init": 1, "random_state": 0}
    small |= {"structure": "tensor"}
    model = BTNRegressor(solver=Solver(anchored=True), **small).fit(X, y)
    new = X[:30].copy()
    new[0, 0] = np.nan
    draws = model.sample_y(new, 2000)
    distribution = model.predict_dist(new)
    np.testing.assert_allclose(draws.mean(axis=1)[1:], distribution.mean[1:], atol=0.05)
    np.testing.assert_allclose(draws.std(axis=1)[1:], distribution.std[1:], rtol=0.15)
    with pytest.warns(UserWarning, match="no input was found"):
        constant = BTNRegressor(solver=Solver(anchored=True), **small).fit(
            np.ones((20, 2)), np.arange(20.0)
        )
    assert constant.predict(np.ones((1, 2)))[0] == pytest.approx(9.5, abs=0.5)
