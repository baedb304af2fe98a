"""Likelihoods as users meet them: outliers, counts, one's own; and the check that proves them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from btnkm import BTNRegressor, PredictiveDistribution
from btnkm.core.densities import Counts, NormalMixture
from btnkm.core.gamma import Gamma
from btnkm.core.likelihoods import Bernoulli
from btnkm.core.likelihoods.base import newton_step
from btnkm.core.likelihoods.counts import log_gamma
from btnkm.core.likelihoods.softmax import Softmax
from btnkm.likelihoods import Gaussian, NegativeBinomial, StudentT
from btnkm.testing import check_likelihood

SMALL = {"n_basis": 8, "max_rank": 5, "n_init": 2, "max_iter": 40, "random_state": 0}
SMALL |= {"structure": "tensor"}
RNG = np.random.default_rng(0)
TARGETS = {
    "gaussian": (Gaussian(), 5 + 3 * RNG.standard_normal(300)),
    "student_t": (StudentT(), RNG.standard_t(3, 300)),
    "student_t, held": (StudentT(5.0), RNG.standard_t(3, 300)),
    "student_t, normal": (StudentT(), RNG.standard_normal(300)),
    "counts": (NegativeBinomial(), RNG.negative_binomial(2, 0.3, 300)),
    "counts, held": (NegativeBinomial(2.0), RNG.negative_binomial(2, 0.3, 300)),
    "counts, rare": (NegativeBinomial(), RNG.negative_binomial(2, 0.97, 300)),
    "counts, many": (NegativeBinomial(), RNG.negative_binomial(4, 0.001, 300)),
    "bernoulli": (Bernoulli(), (RNG.random(300) < 0.2).astype(float)),
}


@pytest.mark.parametrize("case", TARGETS.values(), ids=TARGETS)
def test_conformance(case):
    check_likelihood(*case)


@pytest.mark.parametrize("shape", [3.0, 10.0, 40.0, 200.0])
@pytest.mark.parametrize("dof", [1.0, 3.0, 30.0])
def test_student_t_is_averaged_over_its_scale(dof, shape):
    likelihood = replace(StudentT(dof), noise=Gamma(shape, 2.0 * shape))
    y = np.array([-2.0, 0.3, 4.0, 8.0])

    ends = stats.gamma.ppf([1e-10, 1 - 1e-10], shape, scale=0.5 / shape)
    tau = np.linspace(*ends, 20_001)
    weight = stats.gamma.pdf(tau, shape, scale=0.5 / shape)
    tails = stats.t.sf(y * np.sqrt(tau)[:, None], dof)
    tail = np.trapezoid(weight[:, None] * tails, tau, axis=0)
    actual = 1.0 - likelihood.predictive(np.zeros(4), np.zeros(4)).cdf(y)
    np.testing.assert_allclose(actual, tail, rtol=0.02, atol=1e-6)
    density = likelihood.predictive(np.zeros(4), np.zeros(4))
    if dof > 3:  # variances of heavier tails are made by values too rare for the grid
        assert density.weights @ density.noise == pytest.approx(likelihood.noise_std**2, rel=0.02)


def test_degrees_of_freedom_step_from_where_the_sums_were_made():
    rng = np.random.default_rng(0)
    y = rng.standard_t(5, 400)
    zeros = np.zeros(400)
    begun = StudentT().begin(y, None)
    likelihood = begun.likelihood
    learned = likelihood.learn(
        likelihood.rows(begun.target, None, zeros, zeros).sums, 400.0, Gamma(1e-3, 1e-3)
    )
    sums = likelihood.rows(begun.target, None, zeros, zeros).sums
    step = newton_step(*sums[4:])
    assert learned.dof != likelihood.dof
    assert learned.propose(sums).dof == pytest.approx(likelihood.dof * np.exp(step))


@pytest.mark.parametrize("wrong", ["gaussian", StudentT, 3])
def test_conformance_wants_an_object(wrong):
    with pytest.raises(TypeError, match="such as StudentT"):
        check_likelihood(wrong, np.arange(100.0))


@pytest.mark.parametrize("y", [np.arange(99.0), np.ones((200, 2)), 3.0])
def test_conformance_wants_rows(y):
    with pytest.raises(ValueError, match="n >= 100"):
        check_likelihood(Gaussian(), y)


def test_likelihoods_show_what_a_user_gives():
    shown = [repr(v) for v in (Gaussian(), StudentT(5.0), NegativeBinomial(), StudentT())]
    expected = ["Gaussian()", "StudentT(dof=5.0)", "NegativeBinomial(size=None)"]
    assert shown == [*expected, "StudentT(dof=None)"]


def test_a_fitted_likelihood_holds_what_it_found():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (300, 1))
    y = X[:, 0] + 0.3 * rng.standard_t(4, 300)
    actual = BTNRegressor(likelihood="student_t", **SMALL).fit(X, y).likelihood_
    again = BTNRegressor(likelihood=actual, **SMALL).fit(X, 2.0 * y).likelihood_
    assert again.dof == actual.dof


class ForgetsTheSpread(Gaussian):
    def predictive(self, mean, variance):
        return super().predictive(mean, 0.0 * variance)


class WrongPull(NegativeBinomial):
    def rows(self, y, s, mean, square):
        rows = super().rows(y, s, mean, square)
        return rows._replace(response=1.01 * rows.response)


class WrongWeight(StudentT):
    def rows(self, y, s, mean, square):
        rows = super().rows(y, s, mean, square)
        return rows._replace(weight=1.01 * rows.weight)


class TooHigh(Gaussian):
    def terms(self, n, prior):
        terms = super().terms(n, prior)
        return terms | {"likelihood": terms["likelihood"] + 0.1 * n}


class TooLow(StudentT):
    def terms(self, n, prior):
        terms = super().terms(n, prior)
        return terms | {"likelihood": terms["likelihood"] - 0.1 * n}


class Unweighted(StudentT):
    def rows(self, y, s, mean, square):
        return super().rows(y, None, mean, square)


class WrongDraws(StudentT):
    def draw(self, f, rng):
        return super().draw(f, rng) + 0.5


class Unlearned(StudentT):
    def learn(self, sums, n, prior):
        learned = super().learn(sums, n, prior)
        return replace(learned, noise=replace(learned.noise, rate=2.0 * learned.noise.rate))


@pytest.mark.parametrize(
    ("wrong", "name", "message"),
    [
        (WrongPull(), "counts", "responses must be"),
        (ForgetsTheSpread(), "gaussian", "draws must follow"),
        (WrongWeight(), "student_t", "must be the slope"),
        (TooHigh(), "gaussian", "must not exceed"),
        (TooLow(), "student_t", "where f is known"),
        (Unweighted(), "student_t", "count as k rows"),
        (WrongDraws(), "student_t", "draws must follow"),
        (Unlearned(), "student_t", "slope|lower|where f is known"),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else None,
)
def test_conformance_finds_what_is_wrong(wrong, name, message):
    with pytest.raises(AssertionError, match=message):
        check_likelihood(wrong, TARGETS[name][1])


class KnownNoise(Gaussian):
    """Normal noise of standard deviation 1/10 in units of y: a likelihood with nothing to learn."""

    def begin(self, y, weight):
        begun = super().begin(y, weight)
        known = Gamma(1e9, 1e9 * (0.1 / begun.scale) ** 2)
        return begun._replace(likelihood=replace(begun.likelihood, noise=known))

    def learn(self, sums, n, prior):
        return replace(self, error=float(sums[0]))

    def terms(self, n, prior):
        return {"likelihood": super().terms(n, prior)["likelihood"]}


def test_a_likelihood_of_ones_own_fits():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (200, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(200)
    check_likelihood(KnownNoise(), y)
    model = BTNRegressor(likelihood=KnownNoise(), **SMALL).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.noise_std_ == pytest.approx(0.1)


def with_outliers(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    f = 3 * np.sin(3 * X[:, 0]) * X[:, 1]
    y = f + 0.2 * rng.standard_normal(n)
    hit = rng.random(n) < 0.1
    y[hit] += rng.choice([-1, 1], hit.sum()) * rng.uniform(30, 60, hit.sum())
    return X, f, y, hit


def test_outliers_harm_the_gaussian_and_not_the_student_t():
    X, f, y, hit = with_outliers()
    errors = {}
    for likelihood in ("gaussian", "student_t"):
        with np.errstate(all="ignore"):
            model = BTNRegressor(likelihood=likelihood, **SMALL)
            if likelihood == "gaussian":
                with pytest.warns(UserWarning, match="no input"):
                    model.fit(X, y)
            else:
                model.fit(X, y)
        errors[likelihood] = np.sqrt(np.mean((model.predict(X) - f) ** 2))
    clean = BTNRegressor(**SMALL).fit(X[~hit], y[~hit])
    unharmed = np.sqrt(np.mean((clean.predict(X) - f) ** 2))
    assert errors["gaussian"] > 10 * unharmed
    assert errors["student_t"] < 1.5 * unharmed
    interval = model.predict_interval(X, 0.8)
    assert np.mean((interval[:, 0] < y) & (y < interval[:, 1])) == pytest.approx(0.8, abs=0.12)
    assert np.isfinite(model.predict(X, return_std=True)[1]).all()


def test_degrees_of_freedom_are_learned_or_held():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (2000, 1))
    y = X[:, 0] + 0.3 * rng.standard_t(4, 2000)
    model = BTNRegressor(likelihood="student_t", **SMALL).fit(X, y)
    assert 3 < model.likelihood_.dof < 6
    assert 1 / np.sqrt(model.likelihood_.scale) * model._y_scale == pytest.approx(0.3, rel=0.1)
    assert model.noise_std_ == pytest.approx(0.3 * np.sqrt(2), rel=0.25)
    held = BTNRegressor(likelihood=StudentT(7.0), **SMALL).fit(X, y)
    assert held.likelihood_.dof == 7.0
    y = X[:, 0] + 0.3 * rng.standard_normal(2000)
    assert BTNRegressor(likelihood="student_t", **SMALL).fit(X, y).likelihood_.dof > 20


@pytest.mark.parametrize(("size", "rate"), [(2.0, 3.0), (0.7, 40.0), (3.0, 0.2)])
def test_counts_recover_a_known_rate(size, rate):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (4000, 2))
    mean = rate * np.exp(np.sin(3 * X[:, 0]) + 0.5 * X[:, 1])
    y = rng.poisson(rng.gamma(size, mean / size))
    model = BTNRegressor(likelihood="negative_binomial", **SMALL).fit(X, y)
    error = np.log(model.predict(X)) - np.log(mean)
    assert np.sqrt(np.mean(error**2)) < 0.2
    if rate > 1:  # rare counts hardly show it
        assert model.likelihood_.size == pytest.approx(size, rel=0.2)
    distribution = model.predict_dist(X)
    low, high = distribution.interval(0.9).T
    assert np.mean((low <= y) & (y <= high)) > 0.88
    assert np.isnan(model.noise_std_)
    truth = stats.nbinom(size, size / (size + mean)).logpmf(y).mean()
    assert distribution.logpdf(y).mean() > truth - 0.02


def test_counts_have_integer_support():
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (300, 1))
    y = rng.poisson(np.exp(X[:, 0]))
    model = BTNRegressor(likelihood="negative_binomial", **SMALL).fit(X, y)
    d = model.predict_dist(X[:6])
    assert d.discrete
    total = sum(d.pdf(float(k)) for k in range(200))
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)
    np.testing.assert_allclose(sum(k * d.pdf(float(k)) for k in range(200)), d.mean, rtol=1e-6)
    np.testing.assert_allclose(d.cdf(2.7), sum(d.pdf(float(k)) for k in range(3)), rtol=1e-6)
    assert np.all(np.isneginf(d.logpdf(0.5)))
    assert np.all(np.isneginf(d.logpdf(-1.0)))
    np.testing.assert_array_equal(d.cdf(-0.5), 0.0)
    for level in (0.01, 0.5, 0.99):
        q = d.quantile(level)
        np.testing.assert_array_equal(q, np.round(q))
        assert np.all(d.cdf(q) >= level)
        assert np.all((q == 0) | (d.cdf(q - 1) < level))
    for draws in (d.sample(2000, random_state=0), model.sample_y(X[:6], 2000)):
        np.testing.assert_array_equal(draws, np.round(draws))
        np.testing.assert_allclose(draws.mean(axis=1), d.mean, rtol=0.15)
    np.testing.assert_allclose(model.predict(X[:6]), d.mean)
    np.testing.assert_allclose(d.std**2, d.model_std**2 + d.noise_std**2)


@pytest.mark.parametrize("bad", [-1.0, 0.5])
def test_counts_must_be_counts(bad):
    with pytest.raises(ValueError, match=f"counts .*got {bad:g}"):
        BTNRegressor(likelihood="negative_binomial").fit([[0.0], [1.0], [2.0]], [1.0, bad, 3.0])


def test_zeros_alone_are_refused():
    with pytest.raises(ValueError, match="above 0"):
        BTNRegressor(likelihood="negative_binomial").fit([[0.0], [1.0]], [0, 0])


@pytest.mark.parametrize("bad", ["binomial", None, 3, StudentT])
def test_an_unknown_likelihood_is_refused(bad):
    with pytest.raises(ValueError, match="likelihood must be 'auto', one of"):
        BTNRegressor(likelihood=bad).fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf, "4", True])
def test_bad_parameters_of_likelihoods_are_refused(bad):
    with pytest.raises(ValueError, match="dof must be a positive"):
        BTNRegressor(likelihood=StudentT(bad)).fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(ValueError, match="size must be a positive"):
        BTNRegressor(likelihood=NegativeBinomial(bad)).fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize("likelihood", ["student_t", "negative_binomial"])
def test_weights_and_missing_values_and_text(likelihood):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(5)
    n = 400
    frame = pd.DataFrame({"a": rng.uniform(-1, 1, n), "b": rng.choice(["u", "v", "w"], n)})
    rate = np.exp(1 + frame["a"] + (frame["b"] == "u"))
    y = rng.poisson(rate).astype(float)
    frame.loc[::7, "a"] = np.nan
    weight = rng.integers(0, 3, n).astype(float)
    model = BTNRegressor(likelihood=likelihood, **SMALL).fit(frame, y, sample_weight=weight)
    assert np.corrcoef(model.predict(frame), rate)[0, 1] > 0.8
    times = weight.astype(int)
    again = BTNRegressor(likelihood=likelihood, **SMALL).fit(
        frame.loc[frame.index.repeat(times)], np.repeat(y, times)
    )
    np.testing.assert_allclose(again.lower_bound_, model.lower_bound_, rtol=1e-3)


@pytest.mark.parametrize("dof", [2.1, 4.0, 500.0])
def test_student_predictive_is_the_convolution(dof):
    likelihood = StudentT(dof, noise=replace(StudentT().noise, shape=1e6, rate=4e6))
    d = likelihood.predictive(np.array([1.0]), np.array([1e-12]))
    assert isinstance(d, NormalMixture)
    truth = stats.t(dof, loc=1.0, scale=2.0)
    for x in (-20.0, -1.0, 0.9, 4.0, 15.0):
        assert d.logpdf(np.array([x]))[0] == pytest.approx(truth.logpdf(x), rel=1e-3, abs=1e-4)
        assert d.cdf(np.array([x]))[0] == pytest.approx(truth.cdf(x), abs=1e-6)
    wide = likelihood.predictive(np.array([1.0]), np.array([9.0]))
    draws = 1.0 + 3.0 * RNG.standard_normal(200_000) + 2.0 * RNG.standard_t(dof, 200_000)
    for x in (-4.0, 1.0, 5.0):
        assert wide.cdf(np.array([x]))[0] == pytest.approx(np.mean(draws < x), abs=0.005)


def test_counts_integrate_over_f():
    d = Counts(np.array([0.5]), np.array([0.7]), 2.0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    rates = 2.0 * np.exp(0.5 + np.sqrt(0.7) * nodes)
    truth = stats.nbinom(2.0, 2.0 / (2.0 + rates))
    for k in (0, 1, 7, 60):
        exact = weights @ truth.pmf(k) / weights.sum()
        assert np.exp(d.logpdf(np.array([float(k)]))[0]) == pytest.approx(exact, rel=1e-7)
        exact = weights @ truth.cdf(k) / weights.sum()
        assert d.cdf(np.array([float(k)]))[0] == pytest.approx(exact, rel=1e-7)
    assert d.mean[0] == pytest.approx(weights @ rates / weights.sum())


def test_log_gamma():
    z = np.concatenate([10.0 ** np.linspace(-3, 8, 300), np.arange(1.0, 30.0)])
    np.testing.assert_allclose(log_gamma(z), gammaln(z), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("size", "variance"), [(1e4, 0.25), (1e3, 0.01), (1e6, 0.0025), (2.0, 4.0)]
)
def test_large_counts_integrate_over_f(size, variance):
    d = Counts(np.array([0.1]), np.array([variance]), size)
    x = 0.1 + np.sqrt(variance) * np.linspace(-9, 9, 200_001)
    weight = stats.norm.pdf(np.linspace(-9, 9, 200_001))
    truth = stats.nbinom(size, 1.0 / (1.0 + np.exp(x)))
    for k in np.floor(d.mean[0] * np.exp(np.sqrt(variance) * np.array([-2.0, 0.0, 1.5]))):
        exact = weight @ truth.pmf(k) / weight.sum()
        assert d.logpdf(np.array([k]))[0] == pytest.approx(np.log(exact), abs=1e-3)
        exact = weight @ truth.cdf(k) / weight.sum()
        assert d.cdf(np.array([k]))[0] == pytest.approx(exact, abs=1e-4)


def test_quantiles_end_where_integers_do():
    huge = PredictiveDistribution([Counts(np.array([40.0]), np.array([0.1]), 1.0)])
    q = huge.quantile(0.5)
    assert 0.2 < q[0] / np.exp(40.0) < 1.0
    beyond = PredictiveDistribution([Counts(np.array([700.0]), np.array([50.0]), 1.0)])
    assert np.isinf(beyond.std[0])


@pytest.mark.parametrize("bad", [Bernoulli(), Softmax()])
def test_labels_are_not_the_regressors(bad):
    with pytest.raises(ValueError, match="likelihood must be 'auto', one of"):
        BTNRegressor(likelihood=bad).fit([[0.0], [1.0]], [0.0, 1.0])


def test_counts_too_large_and_tails_too_heavy_are_refused():
    with pytest.raises(ValueError, match="counts up to 1e\\+09"):
        BTNRegressor(likelihood="negative_binomial").fit([[0.0], [1.0]], [1e12, 3.0])
    with pytest.raises(ValueError, match="dof must be at least"):
        BTNRegressor(likelihood=StudentT(0.05)).fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize(
    "likelihood", [StudentT(3.0), NegativeBinomial(2.0), Bernoulli(offset=0.3)]
)
def test_rows_of_another_array_library(likelihood):
    strict = pytest.importorskip("array_api_strict")
    rng = np.random.default_rng(0)
    y, f, s = rng.integers(0, 2, 9).astype(float), rng.standard_normal(9), rng.random(9)
    expected = likelihood.rows(y, s, f, f**2 + 0.1)
    actual = likelihood.rows(*(strict.asarray(part) for part in (y, s, f, f**2 + 0.1)))
    np.testing.assert_allclose(np.asarray(actual.weight), expected.weight)
    np.testing.assert_allclose(np.asarray(actual.response), expected.response)
    for a, b in zip(actual.sums, expected.sums, strict=True):
        assert float(a) == pytest.approx(float(b))
    actual = likelihood.newton(*(strict.asarray(part) for part in (y, s, f)))
    for a, b in zip(actual, likelihood.newton(y, s, f), strict=True):
        np.testing.assert_allclose(np.asarray(a), b)
