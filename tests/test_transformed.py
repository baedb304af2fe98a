"""Positive targets and proportions: models of a function of y, told in units of y."""

from __future__ import annotations

import copy
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from scipy.special import expit
from sklearn.base import clone

import btnkm
from btnkm import BTNRegressor, Solver, explain, scorers
from btnkm.cli.program import main
from btnkm.core.densities import NormalMixture, Scaled, Student
from btnkm.core.gamma import Gamma
from btnkm.core.recalibration import Recalibration
from btnkm.io.portable import portable
from btnkm.likelihoods import Gaussian, LogitNormal, LogNormal, StudentT
from btnkm.predictive import TransformedDistribution
from btnkm.testing import check_likelihood
from tests.test_onnx import check as check_onnx
from tests.test_portable import rows_of
from tests.test_sums_exports import asked

HOW = {"n_init": 1, "random_state": 0, "n_jobs": 1, "max_rank": 3, "n_basis": 5, "max_iter": 20}
QUANTILES = [0.025, 0.5, 0.975]
INVERSES = {"log_normal": np.exp, "logit_normal": expit}
FORWARDS = {"log_normal": np.log, "logit_normal": lambda y: np.log(y) - np.log1p(-y)}
NOISE = {
    "constant": {"structure": "sums+tensor"},
    "varying": {"structure": "sums", "noise": "varying"},
    "heavy": {"structure": "sums"},
    "full": {"structure": "full"},
}
CASES = [("log_normal", noise) for noise in NOISE]
CASES += [("logit_normal", noise) for noise in ("constant", "varying")]


def problem(n=150, seed=0):
    """Return inputs, and a number with noise that varies."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    noise = np.exp(-1.5 + 0.8 * X[:, 2]) * rng.standard_normal(n)
    return X, np.sin(3.0 * X[:, 0]) + X[:, 1] + noise


def heavy(likelihood):
    """Return the likelihood with Student-t noise."""
    kind = {"log_normal": LogNormal, "logit_normal": LogitNormal}.get(likelihood)
    return "student_t" if kind is None else kind(noise="student_t")


@cache
def fitted(likelihood, noise="constant"):
    """Return a model, and the model that is fitted to z by hand."""
    X, z = problem(60 if noise == "full" else 100)
    how, models = HOW | NOISE[noise], []
    y = INVERSES[likelihood](z)
    for name, target in ((likelihood, y), ("gaussian", FORWARDS[likelihood](y))):
        given = heavy(name) if noise == "heavy" else name
        models.append(BTNRegressor(likelihood=given, **how).fit(X, target))
    return tuple(models)


def assert_same(model, by_hand, X, likelihood):
    """Both must say the same of new rows: one of y, the other of z."""
    forward, z = FORWARDS[likelihood], by_hand.predict_quantiles(X, 0.3)
    y = INVERSES[likelihood](z)
    quantiles = forward(model.predict_quantiles(X, QUANTILES))
    np.testing.assert_allclose(
        quantiles, by_hand.predict_quantiles(X, QUANTILES), rtol=1e-9, atol=1e-9
    )
    ours, theirs = model.predict_dist(X), by_hand.predict_dist(X)
    np.testing.assert_allclose(ours.cdf(y), theirs.cdf(z), rtol=1e-9)
    slope = -np.log(y) - (np.log1p(-y) if likelihood == "logit_normal" else 0.0)
    np.testing.assert_allclose(ours.logpdf(y), theirs.logpdf(z) + slope, rtol=1e-9, atol=1e-9)
    draws = forward(model.sample_y(X, 3, random_state=1))
    np.testing.assert_allclose(draws, by_hand.sample_y(X, 3, random_state=1), rtol=1e-6)


# ---- the distribution of y -----------------------------------------------------------------------


def densities():
    mean, variance = np.array([-0.4, 0.3, 1.2]), np.array([0.04, 0.3, 1e-6])
    noise = np.array([0.02, 0.2]), np.array([0.7, 0.3]), 0.074
    mixture = NormalMixture(mean + 0.2, variance, *noise)
    return [Student(mean, variance, 0.1, 1e9), Scaled(mixture, np.array([0.5, 1.0, 2.0]))]


@pytest.mark.parametrize("kind", [LogNormal, LogitNormal])
def test_probabilities_follow_by_change_of_variables(kind):
    low, high = kind.support
    distribution = TransformedDistribution(kind(), densities(), 0.5, 0.8, np.array([0.6, 0.4]))
    assert repr(distribution) == "PredictiveDistribution of numbers at 3 points, 2 restarts"
    at = distribution.quantile(0.3)
    np.testing.assert_allclose(distribution.cdf(at), 0.3, rtol=1e-9)
    for n in range(3):

        def density(y, n=n):
            return float(distribution.pdf(y)[n])

        middle = distribution.quantile([1e-7, 0.01, 0.99, 1.0 - 1e-7])[n]
        ends = [low, at[n], min(high, middle[-1])]
        below = integrate.quad(density, *ends[:2], points=middle[:2], limit=200)[0]
        total = below + integrate.quad(density, *ends[1:], points=middle[2:3], limit=200)[0]
        assert below == pytest.approx(0.3, abs=1e-6)
        assert total == pytest.approx(1.0, abs=1e-6)
    for y in (low, low - 1.0, high):
        assert np.all(distribution.pdf(y) == 0.0)
        np.testing.assert_array_equal(distribution.cdf(y), float(y >= high))


@pytest.mark.parametrize("kind", [LogNormal, LogitNormal])
def test_moments_of_normals_are_those_of_quadrature(kind):
    mean, model, noise = np.array([-3.0, 0.1, 2.0]), np.array([0.01, 0.5, 1.5]), 0.4
    part = Student(mean, model, noise, 1e9)
    distribution = TransformedDistribution(kind(), [part], 0.0, 1.0, np.ones(1))
    nodes, shares = np.polynomial.hermite_e.hermegauss(80)
    shares = shares / shares.sum()
    f = mean[:, None, None] + np.sqrt(model)[:, None, None] * nodes[:, None]
    y = kind().inverse(f + np.sqrt(noise) * nodes)
    given = y @ shares
    total = given @ shares
    model_variance = (given - total[:, None]) ** 2 @ shares
    noise_variance = ((y - given[..., None]) ** 2 @ shares) @ shares
    np.testing.assert_allclose(distribution.mean, total, rtol=1e-7)
    np.testing.assert_allclose(distribution.model_std**2, model_variance, rtol=1e-6)
    np.testing.assert_allclose(distribution.noise_std**2, noise_variance, rtol=1e-6)
    np.testing.assert_allclose(distribution.std**2, model_variance + noise_variance, rtol=1e-6)


def test_a_normal_logarithm_is_scipys_log_normal():
    mean, variance = np.array([0.3, -2.0]), np.array([0.2, 1.0])
    part = Student(mean, variance, 0.3, 1e7)
    ours = TransformedDistribution(LogNormal(), [part], 0.0, 1.0, np.ones(1))
    theirs = stats.lognorm(np.sqrt(variance + 0.3), scale=np.exp(mean))
    np.testing.assert_allclose(ours.mean, theirs.mean(), rtol=1e-9)
    np.testing.assert_allclose(ours.std, theirs.std(), rtol=1e-9)
    np.testing.assert_allclose(ours.logpdf(0.7), theirs.logpdf(0.7), rtol=1e-5)
    np.testing.assert_allclose(ours.cdf(0.7), theirs.cdf(0.7), rtol=1e-5)
    for level in QUANTILES:
        np.testing.assert_allclose(ours.quantile(level), theirs.ppf(level), rtol=1e-5)
    draws = ours.sample(20000, random_state=0)
    assert stats.kstest(draws[0], stats.lognorm(np.sqrt(0.5), scale=np.exp(0.3)).cdf).pvalue > 1e-3


def test_the_variance_that_f_causes_is_computed_when_it_is_asked_for(monkeypatch):
    def never(*_):
        raise AssertionError

    monkeypatch.setattr(LogitNormal, "model_variance", never)
    X = np.linspace(0.0, 1.0, 40)[:, None]
    model = BTNRegressor(structure="sums", likelihood="logit_normal", n_init=1, random_state=0)
    model.fit(X, expit(3.0 * X[:, 0] - 1.0 + 0.1 * np.sin(50.0 * X[:, 0])))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_array_equal(model.predict(X), mean)
    model.calibration_ = Recalibration.of("split", np.array([-1.0, 0.5] * 20), np.ones(40))
    np.testing.assert_array_equal(model.predict(X), mean)
    assert np.all(std > 0.0)
    with pytest.raises(AssertionError):
        model.predict_dist(X).noise_std  # noqa: B018


@pytest.mark.parametrize("far", [-460.0, 0.0, 500.0])
def test_moments_do_not_depend_on_the_size_of_y(far):
    weights = np.array([0.6, 0.4])
    near = TransformedDistribution(LogNormal(), densities(), 0.5, 0.8, weights)
    shifted = TransformedDistribution(LogNormal(), densities(), 0.5 + far, 0.8, weights)
    with np.errstate(all="raise"):
        for name in ("mean", "std", "model_std", "noise_std"):
            ours = getattr(shifted, name) / np.exp(far)
            np.testing.assert_allclose(ours, getattr(near, name), rtol=1e-9)


def test_with_several_restarts_mean_and_variance_are_those_of_the_mixture():
    weights = np.array([0.6, 0.4])
    both = TransformedDistribution(LogNormal(), densities(), 0.5, 0.8, weights)
    each = [TransformedDistribution(LogNormal(), [d], 0.5, 0.8, np.ones(1)) for d in densities()]
    mean = weights @ [d.mean for d in each]
    square = weights @ [d.std**2 + d.mean**2 for d in each]
    np.testing.assert_allclose(both.mean, mean)
    np.testing.assert_allclose(both.std**2, square - mean**2)
    np.testing.assert_allclose(both.std**2, both.model_std**2 + both.noise_std**2)


@pytest.mark.parametrize("dof", [1.0, 2.1, 4.0, 30.0])
def test_heavy_tails_have_a_mean_of_the_normal_noise_with_the_same_central_interval(dof):
    noise = StudentT(dof, noise=Gamma(1e6, 1e6 * 0.04))
    assert stats.t(dof, scale=0.2).cdf(1.96 * noise.central_variance**0.5) == pytest.approx(
        0.975, abs=1e-4
    )
    if dof > 3.0:
        assert noise.central_variance == pytest.approx(noise.noise_std**2, rel=0.02)
    part = noise.predictive(np.zeros(1), np.zeros(1))
    y = TransformedDistribution(LogNormal(), [part], 0.0, 1.0, np.ones(1))
    assert y.mean[0] == pytest.approx(np.exp(0.5 * noise.central_variance))
    assert np.isfinite(y.std[0])


@pytest.mark.parametrize("likelihood", [LogNormal(), LogitNormal(), LogNormal(StudentT(5.0))])
def test_likelihoods_keep_their_contract(likelihood):
    y = likelihood.inverse(np.random.default_rng(0).normal(0.5, 0.7, 150))
    check_likelihood(likelihood, y)


def test_the_contract_finds_a_slope_that_is_wrong():
    class Wrong(LogNormal):
        def log_slope(self, y):
            return np.log(y)

    with pytest.raises(AssertionError, match="log_slope must be the logarithm of the slope"):
        check_likelihood(Wrong(), np.random.default_rng(0).lognormal(size=150))


# ---- fits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("likelihood", "noise"), CASES)
def test_a_fit_is_that_of_the_function_of_y_by_hand(likelihood, noise):
    model, by_hand = fitted(likelihood, noise)
    X = problem(40, seed=1)[0]
    assert_same(model, by_hand, X, likelihood)
    np.testing.assert_array_equal(model.lower_bounds_, by_hand.lower_bounds_)
    assert repr(model.likelihood_).endswith(f"(noise={by_hand.likelihood_!r})")
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(X))
    if noise == "constant":
        draws = model.predict_dist(X).sample(4000, random_state=0)
        np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.1 * np.max(std))
        np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.25)


def test_structures_are_compared_as_by_hand():
    X, z = problem(60)
    z[::9] += 3.0
    y, solver = np.exp(z), Solver(warm_sweeps=4, full_rows=0)
    how = HOW | {"max_rank": 2, "max_iter": 2, "solver": solver}
    model = BTNRegressor(likelihood="log_normal", **how).fit(X, y)
    by_hand = BTNRegressor(**how).fit(X, np.log(y))
    assert_same(model, by_hand, X[:20], "log_normal")
    np.testing.assert_array_equal(model.weights_, by_hand.weights_)
    for ours, theirs in zip(model.structures_, by_hand.structures_, strict=True):
        assert (ours["name"], ours["heavy"]) == (theirs["name"], theirs["heavy"])
        assert ours["log_density"] == pytest.approx(theirs["log_density"] - z.mean())


def test_streams_and_warm_starts_go_on_as_by_hand():
    likelihood = "log_normal"
    X, z = problem(120)
    y = INVERSES[likelihood](z)
    z = FORWARDS[likelihood](y)
    how = HOW | {"structure": "sums", "warm_start": True}
    pair = [BTNRegressor(likelihood=likelihood, **how), BTNRegressor(likelihood="gaussian", **how)]
    for model, target in zip(pair, (y, z), strict=True):
        for rows in (slice(0, 50), slice(50, 70), slice(70, 120)):
            model.partial_fit(X[rows], target[rows])
    assert_same(*pair, X, likelihood)
    for model, target in zip(pair, (y, z), strict=True):
        model.fit(X[30:], target[30:])
    assert_same(*pair, X, likelihood)
    for wrong in (0.0, -1.0):
        with pytest.raises(ValueError, match=f"^y must be above 0 .*, got {wrong:g}; use 'gaussi"):
            pair[0].partial_fit(X[:3], np.array([0.5, 0.5, wrong]))
    assert_same(*pair, X, likelihood)


def test_intervals_cover_a_skewed_truth_everywhere():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (1500, 2))
    median = np.exp(1.5 * X[:, 0] + np.sin(2.0 * X[:, 1]))
    y = median * rng.lognormal(0.0, 0.5, len(X))
    model = BTNRegressor(likelihood="log_normal", structure="sums", random_state=0)
    model.fit(X[:500], y[:500])
    low, high = model.predict_interval(X[500:], 0.9).T
    assert np.all(low > 0.0)
    inside, order = (low <= y[500:]) & (y[500:] <= high), np.argsort(median[500:])
    for part in np.array_split(order, 4):
        assert np.mean(inside[part]) == pytest.approx(0.9, abs=0.05)
    mean = median * np.exp(0.125)
    assert np.mean(np.abs(np.log(model.predict(X) / mean))) < 0.12
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize(
    ("likelihood", "wrong", "sentence"),
    [
        ("log_normal", 0.0, "y must be above 0 for log_normal, got 0; use 'gaussian', or"),
        ("log_normal", -2.5, "y must be above 0 for log_normal, got -2.5; use 'gaussian', or"),
        ("logit_normal", 0.0, "y must be above 0 and below 1 for logit_normal, got 0; use"),
        ("logit_normal", 1.0, "y must be above 0 and below 1 for logit_normal, got 1; use"),
        ("logit_normal", 37.0, "y must be above 0 and below 1 for logit_normal, got 37; use"),
        ("log_normal", np.nan, "Input y contains NaN"),
        ("logit_normal", np.inf, "Input y contains infinity"),
        (LogNormal("gamma"), 0.5, "noise of LogNormal must be one of"),
        (LogNormal(0.3), 0.5, "noise of LogNormal must be one of"),
    ],
)
def test_targets_and_noise_that_do_not_suit_are_refused(likelihood, wrong, sentence):
    X, z = problem(30)
    y = expit(z)
    y[7] = wrong
    with pytest.raises(ValueError, match="^" + sentence.replace("(", "\\(")) as error:
        BTNRegressor(likelihood=likelihood).fit(X, y)
    if "Input" not in sentence:
        assert str(error.value).count(".") <= 3  # one sentence


def test_rows_without_weight_may_have_any_target():
    X, z = problem(60)
    y, weight = np.exp(z), np.ones(60)
    y[5], weight[5] = 0.0, 0.0
    model = BTNRegressor(likelihood="log_normal", structure="sums", **HOW).fit(X, y, weight)
    assert np.all(model.predict(X) > 0.0)


def test_scores_are_in_units_of_y():
    model, by_hand = fitted("log_normal")
    X, z = problem(60, seed=1)
    y = np.exp(z)
    expected = scorers.log_density(by_hand, X, z) - np.mean(z)
    assert scorers.log_density(model, X, y) == pytest.approx(expected)
    assert scorers.coverage(model, X, y) == scorers.coverage(by_hand, X, z)
    assert scorers.log_density(model, X[:2], [0.0, 1.0]) == -np.inf
    crps = integrate.quad(
        lambda t: float((model.predict_dist(X[:1]).cdf(t)[0] - (t >= y[0])) ** 2), 0.0, 40.0,
        points=[y[0]],
        limit=200,
    )[0]  # fmt: skip
    assert -scorers.neg_crps(model, X[:1], y[:1]) == pytest.approx(crps, rel=0.02)


# ---- wherever a model appears --------------------------------------------------------------------


@pytest.mark.parametrize(("likelihood", "noise"), [case for case in CASES if case[1] != "full"])
def test_graphs_and_pages_say_what_the_model_says(likelihood, noise):
    model, _ = fitted(likelihood, noise)
    X = problem(25, seed=1)[0]
    check_onnx(model, X)
    told, distribution = asked(portable(model), rows_of(X)), model.predict_dist(X)
    interval = distribution.interval()
    expected = {"mean": distribution.mean, "interval": interval}
    expected["pdf"] = distribution.pdf(interval[:, 0])
    for name, values in expected.items():
        np.testing.assert_allclose([row[name] for row in told], values, rtol=1e-8)


@pytest.mark.parametrize(("likelihood", "noise"), CASES)
def test_files_hold_all_that_predictions_need(likelihood, noise, tmp_path):
    model, _ = fitted(likelihood, noise)
    X = problem(25, seed=1)[0]
    model.save(tmp_path / "m.btn")
    read = btnkm.load(tmp_path / "m.btn")
    assert repr(read.likelihood_) == repr(model.likelihood_)
    assert repr(read.likelihood) == repr(model.likelihood)
    for ask in (partial(BTNRegressor.predict, X=X), partial(BTNRegressor.predict_interval, X=X)):
        np.testing.assert_array_equal(ask(read), ask(model))


def test_a_file_learns_on(tmp_path):
    X, z = problem(60)
    model = BTNRegressor(likelihood=LogNormal(Gaussian()), structure="sums", **HOW)
    model.partial_fit(X[:40], np.exp(z[:40])).save(tmp_path / "m.btn")
    read = btnkm.load(tmp_path / "m.btn")
    for each in (model, read):
        each.partial_fit(X[40:], np.exp(z[40:]))
    np.testing.assert_array_equal(read.predict(X), model.predict(X))


@pytest.mark.parametrize("noise", ["gaussian", "auto", Gaussian, Gamma(1.0, 1.0), None])
def test_files_with_noise_that_was_never_fitted_are_refused(noise, tmp_path):
    model = copy.copy(fitted("log_normal", "heavy")[0])
    model.likelihood_ = LogNormal(noise() if noise is Gaussian else noise)
    model.save(tmp_path / "m.btn")
    if noise is Gaussian:  # other restarts may have another noise than this one
        btnkm.load(tmp_path / "m.btn")
        return
    with pytest.raises(ValueError, match="path must name a model saved by btnkm"):
        btnkm.load(tmp_path / "m.btn")


def test_explanations_are_on_the_scale_of_the_function_of_y(tmp_path):
    model, by_hand = fitted("log_normal", "varying")
    ours, theirs = (explain.effects(each, [0])[0] for each in (model, by_hand))
    np.testing.assert_array_equal(ours.mean, theirs.mean)
    assert ours.unit == "log of y"
    X = problem(20, seed=1)[0]
    local = model.explain_local(X)
    total = local.base + local.contributions.sum(axis=1)
    np.testing.assert_allclose(total, by_hand.predict(X), rtol=1e-6, atol=1e-6)
    told = str(explain.summary(model))
    assert "log-normal with Gaussian noise that varies" in told
    assert f"noise         {model.noise_std_:.4g} of log of y on average" in told
    y = np.exp(problem(20, seed=1)[1])
    text = model.report(tmp_path / "m.html", X, y).read_text(encoding="utf-8")
    assert "a difference of 0.7 doubles the y" in text
    assert "regression of positive numbers" in text
    assert '<bdi class="name">log of y</bdi></strong>. Its standard deviation' in text
    pit = explain.calibration(model, X, y).pit
    np.testing.assert_allclose(pit, model.predict_dist(X).cdf(y))
    logit_model, _ = fitted("logit_normal")
    assert "logit-normal with Gaussian noise" in str(explain.summary(logit_model))
    assert "logit of y" in str(explain.effects(logit_model, [0])[0].unit)


def test_the_program_fits_predicts_evaluates_and_informs(tmp_path, capsys):
    X, z = problem(60)
    table = pd.DataFrame(X, columns=list("abc")).assign(price=np.exp(z))
    table.to_csv(tmp_path / "t.csv", index=False)
    names = [str(tmp_path / name) for name in ("t.csv", "m.btn", "out.csv")]
    how = ["--likelihood", "log_normal", "--set", "structure=sums", "--jobs", "1", "--n-init", "1"]
    assert main(["fit", names[0], "--target", "price", *how, "-o", names[1]]) == 0
    assert main(["predict", names[1], names[0], "--interval", "0.9", "-o", names[2]]) == 0
    model = btnkm.load(names[1])
    told = pd.read_csv(names[2])
    np.testing.assert_allclose(told["mean"], model.predict(table[list("abc")]), rtol=1e-9)
    assert np.all(told["low"] > 0.0)
    capsys.readouterr()
    assert main(["info", names[1]]) == 0
    out = capsys.readouterr().out
    assert "log-normal with Gaussian noise" in out
    assert "(standard deviation of log of price)" in out
    assert main(["evaluate", names[0], "--target", "price", "--folds", "2", *how]) == 0
    table.assign(price=0.0 * z).to_csv(names[0], index=False)
    assert main(["fit", names[0], "--target", "price", *how, "-o", names[1]]) != 0
    assert "y must be above 0 for log_normal, got 0; use" in capsys.readouterr().err


def test_the_estimator_can_be_cloned_and_its_noise_set():
    model = BTNRegressor(likelihood=LogNormal(StudentT(dof=5.0)), structure="sums", **HOW)
    X, z = problem(60)
    again = clone(model).fit(X, np.exp(z))
    assert again.likelihood_.noise.dof == 5.0
    assert explain.summary(again).facts["likelihood"].startswith("log-normal with Student-t noise")
