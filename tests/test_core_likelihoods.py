"""Likelihoods: bounds below the truth and tight where they should be, in any model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit

from btnkm.bases import Categorical, Chebyshev
from btnkm.core import cavi
from btnkm.core.cp import CP
from btnkm.core.gamma import Gamma
from btnkm.core.likelihoods import Bernoulli, Gaussian, NegativeBinomial
from btnkm.core.likelihoods.base import polya_gamma
from btnkm.core.posterior import Predictor
from btnkm.core.rows import block_sums, moments, multiply
from btnkm.core.schedule import Schedule
from btnkm.core.state import Priors
from btnkm.execution import fitting, local
from btnkm.execution.local import LocalRows
from btnkm.execution.restarts import RestartSettings

PRIORS = Priors(Gamma(1e-3, 1e-3), Gamma(1e-3, 1e-3), Gamma(1.0, 1.0))


def predictor_of(state):
    """Return what q says of f, of the level of all rows nothing."""
    return replace(Predictor.of(state), least=0.0)


def expected_log_density(log_density, mean, std):
    """Return E log p(y | f) for f ~ N(mean, std^2), by quadrature."""

    def integrand(f):
        return stats.norm.pdf(f, mean, std) * log_density(f)

    return integrate.quad(integrand, mean - 12 * std, mean + 12 * std, epsabs=1e-11)[0]


def bernoulli_log(y, f):
    return np.log(expit(f if y else -f))


@pytest.mark.parametrize("offset", [0.0, -2.0, 7.0])
@pytest.mark.parametrize("y", [0.0, 1.0])
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (2.0, 0.3), (-5.0, 2.0), (0.0, 1e-3)])
def test_bernoulli_bounds_the_expected_log_density(offset, y, mean, std):
    likelihood = Bernoulli(offset=offset)
    rows = likelihood.rows(np.array([y]), None, np.array([mean]), np.array([mean**2 + std**2]))
    truth = expected_log_density(lambda f: bernoulli_log(y, offset + f), mean, std)
    assert rows.sums[0] <= truth + 1e-10
    assert rows.sums[0] == pytest.approx(truth, abs=std**2 / 8)  # the curvature is at most 1/4


def test_bernoulli_is_exact_where_f_is_known():
    rng = np.random.default_rng(0)
    f, y = 3.0 * rng.standard_normal(50), (rng.random(50) < 0.5).astype(float)
    rows = Bernoulli(offset=0.7).rows(y, None, f, f**2)
    expected = sum(bernoulli_log(t, 0.7 + v) for t, v in zip(y, f, strict=True))
    assert rows.sums[0] == pytest.approx(expected)


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_slope_and_curvature_of_the_offset(spread):
    rng = np.random.default_rng(4)
    f, y = rng.standard_normal(30), (rng.random(30) < 0.2).astype(float)
    s, square = rng.uniform(0.5, 2.0, 30), f**2 + spread

    def sums(offset):
        return np.array(Bernoulli(offset=offset).rows(y, s, f, square).sums)

    step = 1e-4
    below, here, above = sums(0.4 - step), sums(0.4), sums(0.4 + step)
    assert (above[0] - below[0]) / (2 * step) == pytest.approx(here[1], rel=1e-6)
    assert -(above[1] - below[1]) / (2 * step) == pytest.approx(here[2], rel=1e-6)


@pytest.mark.parametrize("offset", [0.0, -8.0])
@pytest.mark.parametrize("scale", [0.1, 6.0])
def test_newton_converges_from_anywhere(offset, scale):
    """A linear model fitted by its weights and responses ends where the likelihood is highest."""
    rng = np.random.default_rng(6)
    x = np.stack([np.ones(4000), rng.standard_normal(4000)], axis=1)
    y = (rng.random(4000) < expit(x @ [offset + 1.0, 1.5])).astype(float)
    w = scale * rng.standard_normal(2)
    for _ in range(25):
        weight, response = Bernoulli(offset=offset).newton(y, None, x @ w)
        w = np.linalg.solve(x.T @ (weight[:, None] * x), x.T @ response)
    slope = x.T @ (y - expit(x @ w + offset))
    np.testing.assert_allclose(slope, 0.0, atol=1e-3)


def test_proposals_find_the_best_offset():
    rng = np.random.default_rng(5)
    f, y = rng.standard_normal(500), (rng.random(500) < 0.01).astype(float)
    likelihood = Bernoulli(offset=0.0)
    for _ in range(12):
        sums = likelihood.rows(y, None, f, f**2).sums
        likelihood = likelihood.learn(sums, 500.0, Gamma(1.0, 1.0)).propose(sums)
    assert expit(f + likelihood.offset).sum() == pytest.approx(y.sum(), rel=1e-6)


def quadratic(likelihood, rows, f):
    return likelihood.scale * (rows.response * f - 0.5 * rows.weight * f**2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "likelihood", [Bernoulli(offset=-1.3), Gaussian(Gamma(3.0, 2.0))], ids=repr
)
def test_weights_and_responses_are_slope_and_curvature_of_the_bound(likelihood, weighted):
    """Where f is known the quadratic touches log p(y | f): same slope; and it stays below."""
    rng = np.random.default_rng(1)
    f, y = rng.standard_normal(40), (rng.random(40) < 0.4).astype(float)
    s = rng.uniform(0.5, 3.0, 40) if weighted else np.ones(40)
    rows = likelihood.rows(y, s if weighted else None, f, f**2)

    def log_density(f):
        if isinstance(likelihood, Gaussian):
            return -0.5 * s * likelihood.scale * (y - f) ** 2
        return s * np.log(expit((2 * y - 1) * (f - 1.3)))

    step = 1e-5
    slope = (log_density(f + step) - log_density(f - step)) / (2 * step)
    actual = likelihood.scale * (rows.response - rows.weight * f)
    np.testing.assert_allclose(actual, slope, atol=1e-7)
    for away in (-4.0, -0.5, 0.1, 3.0):
        gain = quadratic(likelihood, rows, f + away) - quadratic(likelihood, rows, f)
        assert np.all(gain <= log_density(f + away) - log_density(f) + 1e-9)


def test_integer_weights_are_repeated_rows():
    rng = np.random.default_rng(2)
    mean, y = rng.standard_normal(20), (rng.random(20) < 0.5).astype(float)
    s = rng.integers(1, 4, 20)
    for likelihood in (Bernoulli(offset=0.4), Gaussian(Gamma(3.0, 2.0))):
        weighted = likelihood.rows(y, s.astype(float), mean, mean**2 + 0.3)
        again = np.repeat(mean, s)
        repeated = likelihood.rows(np.repeat(y, s), None, again, again**2 + 0.3)
        np.testing.assert_allclose(weighted.sums, repeated.sums)
        assert weighted.weight.sum() == pytest.approx(repeated.weight.sum())
        assert weighted.response.sum() == pytest.approx(repeated.response.sum())


@pytest.mark.parametrize("c", [0.0, 1e-9, 1e-5, 9.9e-5, 1.01e-4, 0.3, 40.0, 1e4])
def test_polya_gamma_moments(c):
    weight, log_cosh = (float(v[0]) for v in polya_gamma(np.array([c])))
    expected = 0.25 if c == 0 else np.tanh(c / 2) / (2 * c)
    assert weight == pytest.approx(expected, rel=1e-9)
    exact = c / 2 - np.log(2) if c > 100 else np.log(np.cosh(c / 2))
    assert log_cosh == pytest.approx(exact, abs=1e-12 * (1 + c))


def classify(n=200, seed=0, weight=None, memory_limit=1.0, **changes):
    """Fit a Bernoulli model of two numbers and a level; return problem, true log odds, result."""
    rng = np.random.default_rng(seed)
    codes = [rng.uniform(-1, 1, n), rng.uniform(-1, 1, n), rng.integers(0, 3, n).astype(float)]
    f = 4 * codes[0] * codes[1] + codes[2] - 1
    y = (rng.random(n) < expit(f)).astype(float)
    bases = [Chebyshev(6).fit(codes[0]), Chebyshev(6).fit(codes[1]), Categorical().fit(codes[2])]
    settings = RestartSettings(
        priors=PRIORS,
        likelihood=Bernoulli(offset=0.3),
        schedule=Schedule(**{"warm_sweeps": 4, "max_iter": 30, "plain_sweeps": 4, **changes}),
        smoothness=1.0,
        network=CP(),
        initial_rank=4,
        max_rank=4,
        n_init=2,
        memory_limit=memory_limit,
        n_jobs=1,
    )
    problem = fitting.Problem(bases, LocalRows(codes, y, weight))
    return problem, f, fitting.fit(problem, settings, [seed], lambda k, p: None)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bound_never_falls(seed, weighted):
    weight = np.random.default_rng(seed).uniform(0.2, 3.0, 200) if weighted else None
    _, _, result = classify(seed=seed, weight=weight, tol=0.0)
    for start in result.restarts:
        bounds = np.array([p.bound for p in start.sweeps if p.phase == "exact"])
        assert len(bounds) == 30
        assert np.all(np.diff(bounds) >= -1e-8 * np.abs(bounds[1:]))
        assert bounds[-1] > bounds[0]


def test_the_blocks_of_rows_change_nothing():
    sizes = [(6, 11), (6, 11), (3, 3)]
    footprint = CP().footprint(4, 3)
    with pytest.raises(MemoryError, match="at least") as error:
        local.make_plan(700, sizes, footprint, 2, 1, 0.0, per_row=4)
    least = 1.01 * float(str(error.value).split("at least ")[1].split()[0])
    assert local.make_plan(700, sizes, footprint, 2, 1, least, per_row=4).block_rows == 64
    _, _, whole = classify(n=700)
    _, _, blocks = classify(n=700, memory_limit=least)
    for a, b in zip(whole.restarts, blocks.restarts, strict=True):
        assert a.sweeps[-1].bound == pytest.approx(b.sweeps[-1].bound, rel=1e-10)
        assert a.state.likelihood != b.state.likelihood  # other blocks, other rounding


def test_the_bound_of_the_rows_is_that_of_the_posterior():
    problem, _, result = classify(newton_sweeps=0)
    features = [b.features(c) for b, c in zip(problem.bases, problem.rows.codes, strict=True)]
    for start in result.restarts:
        mean, variance = predictor_of(start.state).moments(features.__getitem__)
        likelihood = start.state.likelihood
        expected = likelihood.rows(problem.rows.y, None, mean, mean**2 + variance).sums[0]
        last = start.sweeps[-1]
        assert last.terms["likelihood"] == pytest.approx(expected, rel=1e-9)
        assert sum(last.terms.values()) == pytest.approx(last.bound)


def test_log_odds_are_recovered():
    problem, truth, result = classify(n=4000)
    features = [b.features(c) for b, c in zip(problem.bases, problem.rows.codes, strict=True)]
    predictor = predictor_of(result.best.state)
    mean, variance = predictor.moments(features.__getitem__)
    error = result.best.state.likelihood.offset + mean - truth
    assert np.corrcoef(mean, truth)[0, 1] > 0.97
    assert np.sqrt(np.mean(error**2)) < 0.5
    assert np.mean(np.abs(error) < 2 * np.sqrt(variance)) > 0.8


@pytest.mark.parametrize("likelihood", [Bernoulli(offset=-1.0), NegativeBinomial(2.0, offset=0.5)])
@pytest.mark.parametrize("std", [0.1, 1.0, 3.0])
def test_expected_slope_and_curvature_are_those_of_the_likelihood(likelihood, std):
    mean = np.linspace(-3, 3, 7)
    y = np.arange(7.0) % 2
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def average(f):  # E log p(y | f) for f around a mean
        values = [likelihood.predictive(f + std * z, 0 * f).logpdf(y) for z in nodes]
        return weights @ np.array(values) / weights.sum()

    step = 1e-3
    here, left, right = (average(mean + k * step) for k in (0, -1, 1))
    weight, response = likelihood.expected(y, None, mean, mean**2 + std**2)
    trials = likelihood.trials(y)
    np.testing.assert_allclose(response - weight * mean, (right - left) / (2 * step), atol=0.04)
    curvature = (2 * here - left - right) / step**2
    np.testing.assert_allclose(weight / trials, curvature / trials, atol=0.02)
    twice = likelihood.expected(y, np.full(7, 2.0), mean, mean**2 + std**2)
    np.testing.assert_allclose(twice, [2 * weight, 2 * response])


def test_settling_ends_where_the_likelihood_itself_is_stationary():
    """Means solve sum_n phi (y - E[p]) = Lambda m, covariances have E[p (1 - p)] for weights."""
    problem, _, result = classify(newton_sweeps=60, max_iter=8)
    phases = [p.phase for p in result.restarts[0].sweeps]
    assert phases[-60:] == ["newton"] * 60
    bounds = [p.bound for p in result.restarts[0].sweeps[-61:]]
    assert len(set(bounds)) == 1
    state = result.best.state
    features = [b.features(c) for b, c in zip(problem.bases, problem.rows.codes, strict=True)]
    predictor = predictor_of(state)
    mean, variance = predictor.moments(features.__getitem__)
    weight, response = state.likelihood.expected(problem.rows.y, None, mean, mean**2 + variance)
    assert state.information == pytest.approx(weight.sum(), rel=1e-3)
    others = [moments(features[k], predictor.terms[k]) for k in (0, 1)]
    outside = multiply(*others)
    sums = block_sums(
        features[2], outside, weight[:, None], response[:, None], state.modes[2], state.n_components
    )
    block = cavi.Block(state.modes[2], *sums, state.factors[2].layout)
    precision = cavi.prior_precision(state, 2)
    factor, _ = block.solve(1.0, precision, mean_only=False)
    np.testing.assert_allclose(factor.mean, state.factors[2].mean, atol=1e-3)
    np.testing.assert_allclose(factor.cov, state.factors[2].cov, atol=1e-4)
