"""Main effects beside the tensor, against dense brute force, closed forms and other libraries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace

import array_api_strict as strict
import numpy as np
import pytest
from sklearn.linear_model import ARDRegression, BayesianRidge

from btnkm.bases import Chebyshev
from btnkm.bases.effect import MainEffect
from btnkm.core import cavi, growing, posterior, row_block
from btnkm.core.cp import CP
from btnkm.core.gamma import Gamma
from btnkm.core.likelihoods import Bernoulli, Gaussian, NegativeBinomial, StudentT
from btnkm.core.likelihoods.softmax import Softmax
from btnkm.core.network import Environments
from btnkm.core.posterior import EffectAverages, Predictor
from btnkm.core.row_block import Chunk
from btnkm.core.schedule import Schedule
from btnkm.core.state import Priors, State
from btnkm.core.sums import (
    INTERCEPT,
    PRIOR,
    SMOOTHNESS,
    Sums,
    SumsTerms,
    _fitted_gamma,
    refine,
    smaller,
)
from btnkm.core.sweeper import Sweeper
from btnkm.core.tt import TT
from btnkm.data.column_stats import ColumnValues
from btnkm.data.columns import fit_columns
from btnkm.execution import fitting, local
from btnkm.execution.local import LocalRows
from btnkm.execution.modes import make_mode, output_mode
from btnkm.execution.restarts import RestartSettings
from btnkm.structures.mode_map import ModeMap, main_effects
from tests import oracle, problems

PRIORS = Priors(Gamma(1.5, 0.7), Gamma(2.0, 1.3), Gamma(2.5, 1.7))
KINDS = [(), ("chebyshev",), ("categorical", "fourier"), ("missing", "packed", "powers")]
kinds = pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: "-".join(kinds) or "alone")
weighted = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])


# A small problem with a random posterior, and its moments and ELBO written from the model.


@dataclass(frozen=True)
class Both:
    """A tensor and main effects, with a random posterior that is optimal nowhere."""

    small: problems.Small  # its features are those of the tensor alone
    effects: list
    values: list  # (n, P) functions of every effect

    @property
    def state(self):
        return self.small.state

    @property
    def features(self):
        return [*self.small.features, *((g, g[:, :0]) for g in self.values)]

    @property
    def phi(self):
        """The functions in the model, one coefficient at a time: (n, P)."""
        sums, actual = self.state.sums, [np.ones(len(self.small.y))]
        for g, column in zip(sums.group[1:], sums.column[1:], strict=True):
            actual.append(self.values[sums.groups[g].mode][:, column])
        return np.stack(actual, axis=1)

    def with_state(self, state):
        return replace(self, small=self.small.with_state(state))

    def with_sums(self, **changed):
        sums = replace(self.state.sums, **changed)
        both = self.with_state(replace(self.state, sums=sums))
        error = dense_error(both)
        return both.with_state(problems.with_error(both.state, error))


def number_effect(x, n_curve=3, spikes=()):
    """Return the main effect of numbers that are spread over their range evenly."""
    knots = np.unique(x[~np.isnan(x)])
    effect = MainEffect(n_curve, knots, np.linspace(-1.0, 1.0, len(knots)), np.array(spikes))
    return effect, np.where(np.isnan(x), np.nan, np.interp(x, knots, effect.positions))


def random_sums(effects, rng, n_outputs=1, dropped=()):
    """Return coefficients with a random posterior, without some groups."""
    sums = Sums.begin(effects, n_outputs)
    size, count = sums.size, len(sums.groups)
    root = rng.standard_normal((n_outputs, size, size))
    cov = 0.1 * root @ np.swapaxes(root, 1, 2) / size + 0.05 * np.eye(size)
    sums = replace(
        sums,
        mean=rng.standard_normal((n_outputs, size)),
        cov=cov,
        log_det=float(np.sum(np.linalg.slogdet(cov)[1])),
        precision=problems.random_gamma(count, rng),
        smoothness=np.where(sums.counts >= 3, rng.choice(SMOOTHNESS, count), 2.0),
    )
    return sums.without(np.array(dropped)) if len(dropped) else sums


def make(kinds, n=15, seed=0, weighted=False, dropped=(), n_curve=3):
    """Return a problem with main effects of a number with gaps, of categories and of a number."""
    small = problems.make(kinds or ("chebyshev",), 2, n=n, seed=seed, weighted=weighted)
    if not kinds:
        state = State((), (), (), (), small.state.likelihood, CP())
        small = replace(small, features=[], state=state)
    rng = np.random.default_rng([seed, 7])
    gaps = np.where(np.arange(n) % 4 == 1, np.nan, rng.normal(size=n))
    effects, values = [], []
    for x in (gaps, rng.normal(size=n)):
        effect, codes = number_effect(x, n_curve)
        effects.append(effect.fit(codes, small.s))
        values.append(effect.phi(codes))
    codes = (np.arange(n) % 3).astype(float)
    effects.insert(1, MainEffect(n_categories=3).fit(codes, small.s))
    values.insert(1, effects[1].phi(codes))
    both = Both(small, effects, values)
    sums = random_sums(effects, rng, dropped=dropped)
    return both.with_state(replace(small.state, sums=sums)).with_sums()


def tensor_moments(both):
    if not both.state.modes:
        return np.zeros(len(both.small.y)), np.zeros(len(both.small.y))
    return problems.f_moments(both.small)


def dense_moments(both):
    """Return E[f] and E[f^2]: a and T are independent under q."""
    phi, sums = both.phi, both.state.sums
    mean = np.array([row @ sums.mean[0] for row in phi])
    variance = np.array([row @ sums.cov[0] @ row for row in phi])
    tensor, square = tensor_moments(both)
    return tensor + mean, square + 2.0 * tensor * mean + mean**2 + variance


def dense_error(both):
    mean, square = dense_moments(both)
    y = both.small.y
    return float(both.small.s @ (y**2 - 2.0 * y * mean + square))


def dense_sums(sums):
    """Return the coefficients' part of the ELBO, one by one."""
    total = 0.0
    for mean, cov in zip(sums.mean, sums.cov, strict=True):
        for p, g in enumerate(sums.group):
            if g < 0:
                log_precision, precision = np.log(INTERCEPT), INTERCEPT
            else:
                pair = sums.precision.shape[g], sums.precision.rate[g]
                rough = sums.degree[p] ** (2.0 * sums.smoothness[g])
                log_precision = oracle.gamma_log_mean(pair) + np.log(rough)
                precision = oracle.gamma_mean(pair) * rough
            square = mean[p] ** 2 + cov[p, p]
            total += 0.5 * (log_precision - np.log(2.0 * np.pi) - precision * square)
        sign, log_det = np.linalg.slogdet(cov)
        assert sign == 1.0
        total += 0.5 * (len(mean) * (1.0 + np.log(2.0 * np.pi)) + log_det)
    for g in set(sums.group[1:].tolist()):
        pair = sums.precision.shape[g], sums.precision.rate[g]
        total += oracle.gamma_cross(pair, (PRIOR.shape, PRIOR.rate)) + oracle.gamma_entropy(pair)
        total -= 0.5 * (sums.smoothness[g] - 2.0) ** 2
    return total


def dense_elbo(both):
    """Return the ELBO with every constant; the error kept in the state plays no part."""
    small, tau = both.small, both.state.likelihood.noise
    noise = float(tau.shape), float(tau.rate)
    total = dense_sums(both.state.sums)
    if both.state.modes:  # its likelihood is that of T, with the same noise
        total += problems.oracle_elbo(small)
        difference = dense_error(both) - problems.oracle_error(small)
        return total - 0.5 * oracle.gamma_mean(noise) * difference
    prior = small.priors.noise
    log_tau = oracle.gamma_log_mean(noise) - np.log(2.0 * np.pi)
    total += 0.5 * (small.s.sum() * log_tau - oracle.gamma_mean(noise) * dense_error(both))
    total += oracle.gamma_cross(noise, (prior.shape, prior.rate)) + oracle.gamma_entropy(noise)
    return float(total)


def library_elbo(both):
    return sum(cavi.elbo_terms(both.state, both.small.data, both.small.priors).values())


def sweeper_of(both, blocks=1, as_array=np.asarray, **how):
    """Return the engine at work on the problem, its state as it is, covariances in."""
    small, edges = both.small, np.linspace(0, len(both.small.y), blocks + 1).astype(int)
    made = []
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        part = slice(low, high)
        features = [tuple(as_array(np.asarray(p)[part]) for p in pair) for pair in both.features]
        weight = None if small.weight is None else as_array(small.weight[part])
        env = Environments(len(both.state.modes), stride=1, network=both.state.network)
        made.append(Chunk(features.__getitem__, as_array(small.y[part]), weight, env))
    executor = local.LocalExecutor(made)
    sweeper = Sweeper(executor, both.state, small.data, small.priors, **how)
    sweeper.switch(spread=1.0)
    return sweeper


dropped = pytest.mark.parametrize("dropped", [(), (0, 3)], ids=["whole", "dropped"])


@kinds
@dropped
def test_moments_and_predictions(kinds, dropped):
    both = make(kinds, dropped=dropped)
    mean, square = dense_moments(both)
    (chunk,) = sweeper_of(both).executor.chunks
    for d in range(max(len(kinds), 1)):
        actual = chunk.moments_of_f(d)
        np.testing.assert_allclose(actual[0], mean, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(actual[1], square, rtol=1e-10, atol=1e-12)
    predictor = Predictor.of(both.state)
    actual, variance = predictor.moments(both.features.__getitem__)
    np.testing.assert_allclose(actual, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(variance, square - mean**2, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(predictor.mean(both.features.__getitem__), mean, atol=1e-12)
    sweeper = sweeper_of(both)
    sweeper.switch(spread=0.0)  # the warm phase knows nothing but means
    actual = sweeper.executor.chunks[0].moments_of_f(0)
    np.testing.assert_allclose(actual, [mean, mean**2], rtol=1e-10, atol=1e-12)


@kinds
@weighted
@dropped
def test_elbo_with_every_constant(kinds, weighted, dropped):
    both = make(kinds, weighted=weighted, dropped=dropped)
    assert library_elbo(both) == pytest.approx(dense_elbo(both), rel=1e-10)


@kinds
@weighted
@dropped
def test_update_of_the_coefficients_and_of_the_noise(kinds, weighted, dropped):
    both = make(kinds, weighted=weighted, dropped=dropped)
    small, sums, phi = both.small, both.state.sums, both.phi
    sweeper = sweeper_of(both)
    sweeper.update_sums(learn=False)
    tau = small.state.likelihood.scale
    penalties = [INTERCEPT]
    for p, g in enumerate(sums.group[1:], 1):
        penalties.append(sums.precision.mean[g] * sums.degree[p] ** (2.0 * sums.smoothness[g]))
    a = tau * phi.T @ (small.s[:, None] * phi) + np.diag(penalties)
    b = tau * phi.T @ (small.s * (small.y - tensor_moments(both)[0]))
    actual = sweeper.state.sums
    np.testing.assert_allclose(actual.mean[0], np.linalg.solve(a, b), rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(actual.cov[0], np.linalg.inv(a), rtol=1e-8, atol=1e-11)
    assert actual.log_det == pytest.approx(-np.linalg.slogdet(a)[1], rel=1e-10)
    after = both.with_state(sweeper.state)
    error, noise = dense_error(after), sweeper.state.likelihood.noise
    assert sweeper.state.likelihood.error == pytest.approx(error, rel=1e-8)
    expected = 1.5 + 0.5 * small.s.sum(), 0.7 + 0.5 * error
    np.testing.assert_allclose((noise.shape, noise.rate), expected, rtol=1e-9)
    assert library_elbo(after) == pytest.approx(dense_elbo(after), rel=1e-9)
    assert dense_elbo(after) > dense_elbo(both)


@pytest.mark.parametrize("kinds", KINDS[1:], ids="-".join)
@weighted
def test_update_of_a_mode_sees_what_the_sum_leaves(kinds, weighted):
    both = make(kinds, weighted=weighted)
    small = both.small
    left = small.y - both.phi @ both.state.sums.mean[0]
    q = problems.dense(both.state, small.priors)
    for d in range(len(kinds)):
        sweeper = sweeper_of(both)
        sweeper.step(d)
        expected = oracle.solve_factor(problems.phis(small), q, left, small.s, d)
        actual = sweeper.state.factors[d]
        np.testing.assert_allclose(actual.mean, expected.means[d], rtol=1e-8, atol=1e-10)
        flat = actual.cov.reshape(actual.mean.size, -1)
        np.testing.assert_allclose(flat, expected.covs[d], rtol=1e-8, atol=1e-10)
        after = both.with_state(sweeper.state)
        assert sweeper.state.likelihood.error == pytest.approx(dense_error(after), rel=1e-8)
        assert library_elbo(after) == pytest.approx(dense_elbo(after), rel=1e-9)
        assert dense_elbo(after) > dense_elbo(both)


# Every update is where the dense ELBO is highest.


def slope(value, step):
    return (value(step) - value(-step)) / (2.0 * step)


def coefficient_slopes(both):
    """Return the slopes of the ELBO in mean and covariance of the coefficients."""
    rng, sums = np.random.default_rng(3), both.state.sums
    root = np.linalg.cholesky(sums.cov[0])
    slopes = []
    for u in np.linalg.qr(rng.standard_normal((sums.size, 6)))[0].T:
        step = root @ u
        slopes.append(slope(lambda t, s=step: moved(both, mean=sums.mean + t * s), 1e-3))
    for _ in range(6):
        e = rng.standard_normal((sums.size, sums.size))
        step = root @ (e + e.T) @ root.T / sums.size
        slopes.append(slope(lambda t, s=step: moved(both, cov=sums.cov + t * s), 1e-4))
    return np.abs(slopes)


def precision_slopes(both):
    """Return the slopes of the ELBO in log shape and log rate of every group that is kept."""
    sums, slopes = both.state.sums, []
    for name, g in product(("shape", "rate"), sums.kept):

        def value(t, name=name, g=g):
            changed = getattr(sums.precision, name).copy()
            changed[g] *= np.exp(t)
            return moved(both, precision=replace(sums.precision, **{name: changed}))

        slopes.append(slope(value, 1e-4))
    return np.abs(slopes)


def moved(both, **changed):
    """Return the ELBO where the coefficients are others; the log det follows."""
    return dense_elbo(both.with_sums(**changed))


@kinds
@weighted
def test_updates_are_stationary(kinds, weighted):
    both = make(kinds, weighted=weighted, seed=2)
    sweeper = sweeper_of(both)
    tau = sweeper.state.likelihood
    sweeper.update_sums(learn=False)
    after = both.with_state(replace(sweeper.state, likelihood=tau)).with_sums()
    assert np.max(coefficient_slopes(both)) > 1e-2
    assert np.max(coefficient_slopes(after)) < 1e-5
    learned = both.with_sums(**vars_of(both.state.sums.learned()))
    assert np.max(precision_slopes(both)) > 1e-2
    assert np.max(precision_slopes(learned)) < 1e-5
    assert dense_elbo(learned) > dense_elbo(both)


def vars_of(sums):
    return {"precision": sums.precision, "smoothness": sums.smoothness}


def test_smoothness_is_the_best_of_its_grid():
    both = make((), n=40, n_curve=6)
    learned = both.with_sums(**vars_of(both.state.sums.learned()))
    best, sums = dense_elbo(learned), learned.state.sums
    long = [g for g in sums.kept if sums.counts[g] >= 3]
    assert len(long) >= 2
    assert np.all(sums.smoothness[sums.counts < 3] == 2.0)
    for g, nu in product(long, SMOOTHNESS):
        other = sums.smoothness.copy()
        other[g] = nu
        energy = sums.energies(other)
        rate = PRIOR.rate + 0.5 * energy
        tried = learned.with_sums(smoothness=other, precision=replace(sums.precision, rate=rate))
        assert dense_elbo(tried) <= best + 1e-9
    assert len(set(sums.smoothness[long])) >= 1


def test_refining_never_falls_and_long_steps_end_where_short_ones_do():
    both = make((), n=60, seed=1)
    phi, sums = both.phi, both.state.sums
    gram, linear = 20.0 * (phi.T @ phi)[None], 20.0 * (phi.T @ both.small.y)[None]
    values = [refine(sums, gram, linear, steps)[0].value(gram, linear) for steps in range(8)]
    assert np.all(np.diff(values) >= -1e-9)
    long, _ = refine(sums, gram, linear, 500)
    short, _ = sums.solved(gram, linear)
    for _ in range(3000):
        short, _ = short.learned().solved(gram, linear)
    assert long.value(gram, linear) == pytest.approx(short.value(gram, linear), abs=0.05)
    held, _ = refine(sums, gram, linear, 10, learn=False)
    assert held.precision is sums.precision


# The sum alone, against regressions that are known.


def straight(X, groups=None):
    """Return an effect of straight lines alone, all columns of X in one group or one each."""
    if groups == "one":
        return [SimpleNamespace(parts_=["line"] * X.shape[1], degrees_=np.ones(X.shape[1]))]
    return [SimpleNamespace(parts_=["line"], degrees_=np.ones(1)) for _ in X.T]


def linear_table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    beta = np.array([1.0, -2.0, 0.5, 0.0, 0.0, 3.0])
    y = 0.7 + X @ beta + 0.3 * rng.standard_normal(n)
    return X - X.mean(axis=0), y, beta


def fitted_lines(X, y, groups=None, steps=300):
    """Return the state of the block alone after many sweeps."""
    phi = [X] if groups == "one" else [column[:, None] for column in X.T]
    features = [(g, g[:, :0]) for g in phi]
    chunk = Chunk(features.__getitem__, y, None, Environments(0, stride=1, network=CP()))
    sums = Sums.begin(straight(X, groups), 1)
    state = State((), (), (), (), Gaussian(Gamma(1.0, 0.01)), CP(), sums=sums)
    data = cavi.Data(float(len(y)), float(y @ y))
    priors = Priors(Gamma(1e-6, 1e-6), Gamma(1.0, 1.0), None)
    sweeper = Sweeper(local.LocalExecutor([chunk]), state, data, priors)
    sweeper.switch(spread=1.0)
    for _ in range(steps):
        sweeper.sweep()
    return sweeper.state


def test_known_precisions_make_it_bayesian_linear_regression():
    X, y, _ = linear_table(50)
    phi = np.column_stack([np.ones(50), X])
    sums = Sums.begin(straight(X, "one"), 1)
    sums = replace(sums, precision=Gamma(np.ones(1), np.array([0.25])))
    actual, jitter = sums.solved(9.0 * (phi.T @ phi)[None], 9.0 * (phi.T @ y)[None])
    precision = 9.0 * phi.T @ phi + np.diag([INTERCEPT] + [4.0] * 6)
    assert jitter == 0.0
    np.testing.assert_allclose(actual.mean[0], np.linalg.solve(precision, 9.0 * phi.T @ y))
    np.testing.assert_allclose(actual.cov[0], np.linalg.inv(precision), atol=1e-14)


def test_one_precision_for_all_is_bayesian_ridge():
    X, y, _ = linear_table()
    state = fitted_lines(X, y, "one")
    hyper = {"lambda_1": PRIOR.shape, "lambda_2": PRIOR.rate, "max_iter": 1000, "tol": 1e-8}
    ridge = BayesianRidge(**hyper).fit(X, y)
    np.testing.assert_allclose(state.sums.mean[0, 1:], ridge.coef_, atol=2e-4)
    assert state.sums.mean[0, 0] == pytest.approx(ridge.intercept_, abs=1e-3)
    assert state.likelihood.noise_std == pytest.approx(ridge.alpha_**-0.5, rel=0.01)
    assert state.sums.precision.mean[0] == pytest.approx(ridge.lambda_, rel=0.02)


def test_a_precision_for_each_is_automatic_relevance_determination():
    X, y, beta = linear_table()
    state = fitted_lines(X, y)
    ard = ARDRegression(lambda_1=PRIOR.shape, lambda_2=PRIOR.rate, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(state.sums.mean[0, 1:], ard.coef_, atol=0.02)
    assert state.likelihood.noise_std == pytest.approx(ard.alpha_**-0.5, rel=0.01)
    errors = np.abs(state.sums.mean[0, 1:] - beta)
    assert np.max(errors[beta == 0]) < np.max(np.abs(np.linalg.lstsq(X, y)[0] - beta)[beta == 0])


# Rows.


@kinds
@weighted
def test_blocks_of_rows_change_nothing(kinds, weighted):
    both = make(kinds, n=40, weighted=weighted)
    states = []
    for blocks in (1, 7):
        sweeper = sweeper_of(both, blocks)
        for _ in range(3):
            sweeper.sweep()
        states.append(sweeper.state)
    np.testing.assert_allclose(states[0].sums.mean, states[1].sums.mean, rtol=1e-7, atol=1e-9)
    bounds = [sum(cavi.elbo_terms(s, both.small.data, PRIORS).values()) for s in states]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-9)


@kinds
def test_a_weight_of_k_is_a_row_repeated_k_times(kinds):
    both = make(kinds, n=20)
    small, times = both.small, np.arange(20) % 4
    index = np.repeat(np.arange(20), times)
    s = times.astype(float)
    data = cavi.Data(s.sum(), float(s @ small.y**2))
    counted = replace(both, small=replace(small, weight=s, data=data))
    features = [(p[index], q[index]) for p, q in small.features]
    repeated = replace(small, features=features, y=small.y[index], data=data)
    repeated = Both(repeated, both.effects, [g[index] for g in both.values])
    states = []
    for item in (counted, repeated):
        sweeper = sweeper_of(item.with_sums())
        for _ in range(3):
            sweeper.sweep()
        states.append(sweeper.state)
    np.testing.assert_allclose(states[0].sums.mean, states[1].sums.mean, rtol=1e-7, atol=1e-9)
    assert states[0].likelihood.error == pytest.approx(states[1].likelihood.error, rel=1e-9)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_groups_that_the_elbo_can_do_without(n_outputs):
    rng = np.random.default_rng(5)
    both = make((), n=60, seed=3)
    phi, sums = both.phi, random_sums(both.effects, rng, n_outputs)
    f = 3.0 * phi[:, 1] + 0.3 * rng.standard_normal(60)
    grams = np.repeat(10.0 * (phi.T @ phi)[None], n_outputs, axis=0)
    linear = np.repeat(10.0 * (phi.T @ f)[None], n_outputs, axis=0)
    sums, _ = refine(sums, grams, linear, 200)
    value, gains = sums.value(grams, linear), sums.gains()
    for g in sums.kept:
        without = sums.without(np.array([g]))
        left = sums.places_of(without)
        rest = grams[:, left[:, None], left], linear[:, left]
        alone, _ = without.solved(*rest)
        assert alone.value(*rest) - value == pytest.approx(gains[g], abs=1e-6)
    lost = sums.expendable(grams)
    assert 0 < len(lost) < len(sums.groups)
    assert sums.group[1] not in lost
    solved = smaller(sums, grams, linear)
    assert not np.any(np.isin(solved.group, lost[:1]))
    left = sums.places_of(solved)
    assert solved.value(grams[:, left[:, None], left], linear[:, left]) > value


def test_the_marginal_without_groups():
    rng = np.random.default_rng(0)
    both = make(())
    sums = random_sums(both.effects, rng, 2)
    left = sums.without(np.array([0, 2]))
    keep = [p for p, g in enumerate(sums.group) if g not in (0, 2)]
    np.testing.assert_array_equal(left.mean, sums.mean[:, keep])
    np.testing.assert_array_equal(left.cov, sums.cov[:, keep][:, :, keep])
    assert left.log_det == pytest.approx(np.sum(np.linalg.slogdet(left.cov)[1]))
    np.testing.assert_array_equal(sums.places_of(left), keep)
    nothing = left.without(np.arange(len(sums.groups)))
    assert (nothing.size, nothing.modes) == (1, {})
    features = SumsTerms.of(nothing, 0).features(lambda d: (both.values[0], None))
    np.testing.assert_array_equal(features, np.ones((15, 1)))


def test_draws_have_the_moments_of_q():
    rng = np.random.default_rng(0)
    sums = random_sums(make(()).effects, rng, 2)
    draws = sums.draw(20_000, rng)
    sd = np.sqrt(np.diagonal(sums.cov, axis1=1, axis2=2))
    assert np.all(np.abs(draws.mean(axis=0) - sums.mean) < 5.0 * sd / np.sqrt(20_000))
    for k in range(2):
        error = np.abs(np.cov(draws[:, k].T) - sums.cov[k]) / np.outer(sd[k], sd[k])
        assert np.all(error < 5.0 * np.sqrt(2.0 / 20_000))
    zero = replace(sums, cov=np.zeros_like(sums.cov))
    np.testing.assert_array_equal(zero.draw(1, rng)[0], sums.mean)


def test_values_of_draws_have_the_predicted_moments():
    both = make(("categorical", "fourier"))
    rng = np.random.default_rng(1)
    weights = posterior.draw_weights(both.state, 4000, rng)
    betas = both.state.sums.draw(4000, rng)
    f = np.array(
        [
            posterior.evaluate(both.state, list(w), both.features.__getitem__, beta)
            for *w, beta in zip(*weights, betas, strict=True)
        ]
    )
    mean, variance = Predictor.of(both.state).moments(both.features.__getitem__)
    assert np.all(np.abs(f.mean(axis=0) - mean) < 5.0 * np.sqrt(variance / len(f)))
    square = (f - mean) ** 2
    error = np.abs(square.mean(axis=0) - variance)
    assert np.all(error < 5.0 * square.std(axis=0) / np.sqrt(len(f)))


# Total effects, on a grid of all combinations: the inputs are independent there.


@pytest.mark.parametrize("network", ["cp", "tt"])
@pytest.mark.parametrize("n_outputs", [None, 3])
def test_total_effects_on_a_grid(network, n_outputs):
    rng = np.random.default_rng(0)
    n, count = 5, n_outputs or 1
    codes = [rng.uniform(-1.0, 1.0, n) for _ in range(3)]
    bases = [Chebyshev(n_basis=3).fit(x) for x in codes[:2]]  # the third has a main effect alone
    effects = []
    for j in (0, 2):
        effect, coded = number_effect(codes[j], 2)
        effects.append(effect.fit(coded, np.ones(n)))
        codes[j] = coded
    modes = tuple(make_mode(b, 1.0) for b in bases)
    if n_outputs:
        modes += (output_mode(n_outputs),)
    net = CP() if network == "cp" else TT()
    state = growing.initial_state(
        net,
        modes,
        tuple(np.eye(len(m.keep)) for m in modes),
        2 if network == "cp" else [2] * (len(modes) - 1),
        PRIORS,
        Gaussian(),
        Schedule(),
        rng,
        2 if n_outputs else None,
        random_sums(effects, rng, count),
    )
    weights = [factor.mean for factor in state.factors]
    phis = [basis.phi(x) for basis, x in zip(bases, codes, strict=False)]
    averages = [(p.mean(axis=0), p.T @ p / n) for p in phis]
    if n_outputs:
        averages.append((np.zeros(3), (np.eye(3) - 1.0 / 3.0) / 3.0))
    values = [effect.phi(codes[j]) for effect, j in zip(effects, (0, 2), strict=True)]
    listed = [
        EffectAverages(
            0, values[0].mean(axis=0), values[0].T @ values[0] / n, values[0].T @ phis[0] / n
        ),
        EffectAverages(None, values[1].mean(axis=0), values[1].T @ values[1] / n, np.zeros((4, 0))),
    ]
    actual = np.zeros(3)
    actual[:2] = posterior.total_effects(state, weights, averages)[:2]
    added = posterior.sum_effects(state, state.sums.mean, weights, averages, listed)
    actual[[0, 2]] += added
    grid = np.array(list(product(range(n), repeat=3)))
    features = [basis.features(codes[j][grid[:, j]]) for j, basis in enumerate(bases)]
    features += [(values[i][grid[:, j]], None) for i, j in enumerate((0, 2))]
    f = posterior.evaluate(state, weights, features.__getitem__, state.sums.mean)
    f = f.reshape(n, n, n, count)
    if n_outputs:
        f = f - f.mean(axis=3, keepdims=True)
    expected = [f.var(axis=d).mean() for d in range(3)]
    np.testing.assert_allclose(actual, expected, rtol=1e-8)


# Whole fits.


def fit_problem(kind, n=60, weighted=False, tensor=True, seed=0):
    """Return a problem of a number with gaps, a number and categories, and its likelihood."""
    rng = np.random.default_rng(seed)
    raw = [rng.normal(size=n), rng.uniform(size=n), rng.integers(3, size=n).astype(float)]
    f = np.sin(2.0 * raw[0]) + raw[1] * (raw[2] - 1.0) + 0.5 * raw[2]
    raw[0][::9] = np.nan
    noisy = f + 0.2 * rng.standard_normal(n)
    weight = rng.integers(1, 4, n).astype(float) if weighted else None
    n_outputs, likelihood = None, Gaussian()
    if kind == "student":
        noisy[::10] += 4.0
        likelihood = StudentT()
    elif kind == "counts":
        noisy, likelihood = rng.poisson(np.exp(f)).astype(float), NegativeBinomial()
    elif kind == "two":
        noisy, likelihood = (noisy > 0.5).astype(float), Bernoulli()
    elif kind == "three":
        noisy, likelihood = np.digitize(noisy, [0.0, 1.0]).astype(float), Softmax()
        n_outputs = 3
    elif kind == "least squares":
        noisy = 2.0 * (noisy > 0.5) - 1.0
    y, likelihood, _, _ = likelihood.begin(noisy, weight)
    counts = np.ones(n) if weight is None else weight
    basis = {2: "categorical"}
    summaries = [ColumnValues(x, counts) for x in raw]
    columns, codes = fit_columns(summaries, list("abc"), basis, 4)
    effects = main_effects([0, 1, 2], columns, codes, [counts] * 3, dict.fromkeys(range(3), 4))
    bases, inputs = ([c.basis for c in columns], [0, 1, 2]) if tensor else ([], [])
    mode_map = ModeMap(False, inputs, bases, False, effects, (0, 1, 2))
    return mode_map.problem(LocalRows(codes, y, weight), n_outputs), likelihood


def settings(likelihood, memory_limit=1.0, **how):
    return RestartSettings(
        priors=Priors(Gamma(1e-3, 1e-3), Gamma(1e-5, 1e-6), Gamma(1.0, 1.0)),
        likelihood=likelihood,
        schedule=Schedule(
            **{"warm_sweeps": 4, "max_iter": 14, "tol": 0.0, "plain_sweeps": 3} | how
        ),
        smoothness=1.0,
        network=CP(),
        initial_rank=3,
        max_rank=3,
        n_init=1,
        memory_limit=memory_limit,
        n_jobs=1,
    )


ALL = ["gaussian", "student", "counts", "two", "three", "least squares"]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("tensor", [False, True], ids=["sums", "sums+tensor"])
@weighted
def test_the_elbo_never_falls(kind, tensor, weighted):
    problem, likelihood = fit_problem(kind, weighted=weighted, tensor=tensor)
    how = settings(likelihood, newton_sweeps=0)
    result = fitting.fit(problem, how, [0], lambda k, progress: None)
    sweeps = [p for p in result.restarts[0].sweeps if p.phase == "exact"]
    bounds = np.array([p.bound for p in sweeps])
    assert len(bounds) >= 14
    assert np.all(np.diff(bounds) >= -1e-8 * (1.0 + np.abs(bounds[1:]))), bounds
    # and it is that of the posterior that was found
    state, rows = result.restarts[0].state, problem.rows
    every = [*problem.bases, *problem.effects]
    features = [b.features(x) for b, x in zip(every, rows.codes, strict=True)]
    predictor = replace(Predictor.of(state), least=0.0)
    mean, variance = predictor.moments(features.__getitem__)
    sums = state.likelihood.rows(rows.y, rows.weight, mean, mean**2 + variance).sums
    if kind in ("gaussian", "least squares"):
        assert state.likelihood.error == pytest.approx(float(sums[0]), rel=1e-8)
    elif kind != "student":
        assert sweeps[-1].terms["likelihood"] == pytest.approx(float(sums[0]), rel=1e-8)
    assert sweeps[-1].terms["sums"] + sweeps[-1].terms["sums precisions"] == pytest.approx(
        dense_sums(state.sums), rel=1e-8
    )


@pytest.mark.parametrize("kind", ["gaussian", "two", "three"])
def test_settled_coefficients_solve_the_likelihood_itself(kind):
    problem, likelihood = fit_problem(kind, tensor=False)
    how = settings(likelihood, newton_sweeps=40)
    state = fitting.fit(problem, how, [0], lambda k, progress: None).restarts[0].state
    if kind == "gaussian":
        return
    features = [e.features(x) for e, x in zip(problem.effects, problem.rows.codes, strict=True)]
    predictor = replace(Predictor.of(state), least=0.0)
    mean, variance = predictor.moments(features.__getitem__)
    weight, response = state.likelihood.expected(problem.rows.y, None, mean, mean**2 + variance)
    phi = predictor.sums.features(features.__getitem__)
    weight, response = (part.reshape(len(mean), -1) for part in (weight, response))
    gram = np.stack([phi.T @ (w[:, None] * phi) for w in weight.T])
    solved, _ = state.sums.solved(gram, response.T @ phi)
    np.testing.assert_allclose(solved.mean, state.sums.mean, atol=1e-3)
    np.testing.assert_allclose(solved.cov, state.sums.cov, atol=1e-3)


@pytest.mark.parametrize("kind", ["gaussian", "two", "three"])
@pytest.mark.parametrize("tensor", [False, True], ids=["sums", "sums+tensor"])
def test_memory_changes_nothing(kind, tensor):
    problem, likelihood = fit_problem(kind, n=300, tensor=tensor)
    with pytest.raises(MemoryError, match="memory_limit must be at least") as error:
        fitting.fit(problem, settings(likelihood, 0.0), [0], lambda k, progress: None)
    least = 1.01 * float(str(error.value).split("at least ")[1].split()[0])
    bounds = []
    for limit in (1.0, least):
        result = fitting.fit(problem, settings(likelihood, limit), [0], lambda k, p: None)
        bounds.append(result.restarts[0].sweeps[-1].bound)
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-8)


def test_main_effects_are_known_by_their_groups():
    problem, likelihood = fit_problem("gaussian", tensor=True)
    state = fitting.fit(problem, settings(likelihood), [0], lambda k, p: None).restarts[0].state
    assert [tuple(g) for g in state.sums.groups] == [
        (0, "line"),
        (0, "curve"),
        (0, "missing"),
        (1, "line"),
        (1, "curve"),
        (2, "categories"),
    ]
    assert state.sums.size == 1 + sum(len(c) for c in state.sums.modes.values())
    for d in range(3):
        places = state.sums.places(d)
        np.testing.assert_array_equal(
            state.sums.column[places], state.sums.modes.get(d, np.array([]))
        )


def test_a_prior_in_common_is_the_one_with_the_highest_elbo():
    rng = np.random.default_rng(3)
    precisions = Gamma(rng.uniform(0.5, 3.0, 12), rng.uniform(0.1, 2.0, 12))
    shape, rate = _fitted_gamma(precisions)

    def value(shape, rate):
        return -float(np.sum(precisions.kl(Gamma(shape, rate))))

    best = value(shape, rate)
    for factor in (0.9, 0.99, 1.01, 1.1):
        assert value(shape * factor, rate) < best
        assert value(shape, rate * factor) < best


def test_lines_that_matter_alike_are_close_to_ridge_regression():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((60, 20))
    y = X @ rng.standard_normal(20) + rng.standard_normal(60)
    ridge = BayesianRidge().fit(X, y)
    slopes = fitted_lines(X, y, steps=60).sums.mean[0, 1:]
    apart = np.linalg.norm(slopes - ridge.coef_) / np.linalg.norm(ridge.coef_)
    ard = ARDRegression().fit(X, y).coef_
    assert apart < 0.1
    assert apart < np.linalg.norm(ard - ridge.coef_) / np.linalg.norm(ridge.coef_)


def test_many_coefficients_have_a_covariance_for_each_block(monkeypatch):
    X, y, _ = linear_table(80)
    phi = np.column_stack([np.ones(80), X])
    gram, linear = 9.0 * (phi.T @ phi)[None], 9.0 * (phi.T @ y)[None]
    sums = Sums.begin(straight(X), 1)
    whole, _ = sums.solved(gram, linear)
    monkeypatch.setattr("btnkm.core.sums.MOST_TOGETHER", 4)
    monkeypatch.setattr("btnkm.core.sums.TOGETHER", 3)
    parts = replace(sums)
    assert [len(block) for block in parts.blocks] == [3, 3, 1]
    value = -np.inf
    for _ in range(200):
        parts, _ = parts.solved(gram, linear)
        assert parts.value(gram, linear) >= value - 1e-9
        value = parts.value(gram, linear)
    np.testing.assert_allclose(parts.mean, whole.mean, atol=1e-9)  # as in any mean field
    assert not np.any(parts.cov[0, :3, 3:])
    assert np.all(np.diag(parts.cov[0]) <= np.diag(whole.cov[0]) + 1e-15)
    assert parts.value(gram, linear) < whole.value(gram, linear)
    without = parts.without(np.array([1, 4]))
    dets = [np.linalg.slogdet(without.cov[0][np.ix_(b, b)])[1] for b in ([0, 1], [2, 3], [4])]
    assert without.log_det == pytest.approx(sum(dets))


def test_every_step_has_a_precision_of_its_own():
    effect = MainEffect(2, np.linspace(0, 1, 9), np.linspace(-1, 1, 9), steps=np.array([-0.3, 0.4]))
    x = np.linspace(-1, 1, 9)
    effect.fit(x, np.ones(9))
    sums = Sums.begin([effect], 1)
    assert [g.part for g in sums.groups] == ["line", "curve", "steps", "steps"]
    phi = effect.phi(x) + effect.center_
    np.testing.assert_array_equal(phi[:, 3:], np.column_stack([x > -0.3, x > 0.4]))


# What an effect is made of.


def test_functions_have_mean_zero_over_the_rows():
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2.0, 80)
    x = np.where(np.arange(80) % 2, rng.normal(size=80), 0.0)
    x[::7] = np.nan
    effect, codes = number_effect(x, 5, spikes=())
    spike = float(np.interp(0.0, effect.knots, effect.positions))
    effect, codes = number_effect(x, 5, spikes=[spike])
    effect.fit(codes, weight)
    assert effect.parts_ == ["line"] + ["curve"] * 5 + ["spikes", "missing"]
    assert effect.degrees_.tolist() == [1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 1.0]
    phi, empty = effect.features(codes)
    assert empty.shape == (80, 0)
    np.testing.assert_allclose(weight @ phi, 0.0, atol=1e-10)
    seen = ~np.isnan(x)
    raw = phi[seen, 0]  # a straight line of the value itself, with variance one
    slope = np.polyfit(x[seen], raw, 1)
    np.testing.assert_allclose(np.polyval(slope, x[seen]), raw, atol=1e-12)
    assert np.average(raw**2, weights=weight[seen]) == pytest.approx(1.0)
    polynomials = np.polynomial.chebyshev.chebvander(codes[seen], 5)[:, 1:]
    np.testing.assert_allclose(phi[seen, 1:6] + effect.center_[1:6], polynomials, atol=1e-12)
    np.testing.assert_array_equal(phi[seen, 6] > 0, x[seen] == 0.0)
    np.testing.assert_array_equal(phi[:, 7] > 0, ~seen)
    np.testing.assert_array_equal(phi[~seen, :7], 0.0)


def test_beyond_the_rows_a_number_is_held():
    effect, codes = number_effect(np.linspace(0.0, 1.0, 20))
    effect.fit(codes, np.ones(20))
    np.testing.assert_array_equal(
        effect.phi(np.array([-9.0, 9.0])), effect.phi(np.array([-1.0, 1.0]))
    )


def test_a_missing_value_never_seen_and_an_unseen_category_have_the_mean_effect():
    effect, codes = number_effect(np.linspace(0.0, 1.0, 20))
    assert "missing" not in effect.fit(codes, np.ones(20)).parts_
    np.testing.assert_array_equal(effect.phi(np.array([np.nan])), 0.0)
    codes = np.array([0.0, 1.0, 1.0, 2.0, np.nan])
    effect = MainEffect(n_categories=3).fit(codes, np.ones(5))
    assert effect.parts_ == ["categories"] * 3 + ["missing"]
    phi = effect.phi(np.append(codes, -1.0))
    np.testing.assert_allclose(phi[:5].sum(axis=0), 0.0, atol=1e-15)
    np.testing.assert_allclose(phi[5], [0.0, 0.0, 0.0, -0.2])


def test_the_rarest_categories_have_no_indicator():
    codes = np.repeat(np.arange(250.0), np.append(np.full(200, 2), np.full(50, 1)))
    effect = MainEffect(n_categories=250).fit(codes, np.ones(len(codes)))
    np.testing.assert_array_equal(effect.codes_, np.arange(200.0))
    np.testing.assert_array_equal(effect.phi(np.array([249.0]))[0], -effect.center_)


@pytest.mark.parametrize(
    ("effect", "codes", "parts"),
    [
        (MainEffect(3, np.array([2.0]), np.zeros(1)), np.zeros(5), []),
        (MainEffect(3), np.full(5, np.nan), []),
        (MainEffect(n_categories=1), np.zeros(5), []),
        (
            MainEffect(3, np.array([2.0]), np.zeros(1)),
            np.array([0.0, 0, 0, 0, np.nan]),
            ["missing"],
        ),
        (MainEffect(n_categories=1), np.array([0.0, 0, 0, 0, np.nan]), ["missing"]),
        (
            MainEffect(3, np.array([0.0, 1.0]), np.array([-1.0, 1.0])),
            np.array([-1.0, 1, 1, 1, 1]),
            ["line"],
        ),
    ],
)
def test_columns_with_little_to_tell(effect, codes, parts):
    effect.fit(codes, np.ones(5))
    assert effect.parts_ == parts
    assert effect.n_functions_ == len(parts)
    phi = effect.phi(codes)
    assert phi.shape == (5, len(parts))
    np.testing.assert_allclose(phi.sum(axis=0), 0.0, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_numbers_of_any_size_make_the_same_line(scale):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 30)
    effect, codes = number_effect(x * scale)
    line, _ = number_effect(x)
    actual = effect.fit(codes, np.ones(30)).phi(codes)
    np.testing.assert_allclose(actual, line.fit(codes, np.ones(30)).phi(codes), atol=1e-9)


# Arrays of other libraries.


def libraries():
    yield pytest.param(lambda a: strict.asarray(np.array(a)), id="strict")
    try:
        import torch
    except ImportError:
        return
    yield pytest.param(lambda a: torch.asarray(np.array(a)), id="torch")


@pytest.mark.parametrize("as_array", list(libraries()))
def test_functions_on_a_device(as_array):
    rng = np.random.default_rng(0)
    x = np.where(np.arange(40) % 3, rng.normal(size=40), np.nan)
    effect, codes = number_effect(x, spikes=[0.0])
    codes[::5] = 0.0
    effect.fit(codes, np.ones(40))
    categories = np.append([np.nan, -1.0], np.arange(38) % 4)
    for curve, at in (
        (effect, codes),
        (MainEffect(n_categories=4).fit(categories, np.ones(40)), categories),
    ):
        actual = curve.phi(as_array(at))
        assert type(actual) is type(as_array(at))
        np.testing.assert_allclose(np.asarray(actual), curve.phi(at), atol=1e-12)


@pytest.mark.parametrize("as_array", list(libraries()))
@pytest.mark.parametrize("kinds", [(), ("chebyshev", "fourier")], ids=["alone", "beside"])
@weighted
def test_rows_on_a_device(as_array, kinds, weighted):
    both = make(kinds, n=30, weighted=weighted, dropped=(1,))
    result = []
    for kind in (np.asarray, as_array):
        sweeper = sweeper_of(both, 2, kind)
        for _ in range(3):
            sweeper.sweep()
        features = [tuple(kind(p) for p in pair) for pair in both.features]
        mean, variance = Predictor.of(sweeper.state).moments(features.__getitem__)
        modes = [0 if kinds else None, None, None]
        command = lambda chunk, modes=modes: row_block.effect_averages(chunk, len(kinds), modes)  # noqa: E731
        sums = sweeper.executor.sum(command)
        result.append((np.asarray(mean), np.asarray(variance), sweeper.state.sums.mean, *sums))
    for a, b in zip(*result, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
