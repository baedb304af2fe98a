"""Recalibration: the conformal guarantee, distributions that agree with themselves, and classes."""

from __future__ import annotations

import json
import pickle
import warnings
from functools import cache
from math import ceil, floor

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import log_softmax, ndtr, ndtri
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import log_loss

import btnkm
from btnkm import BTNClassifier, BTNRegressor, calibrating, explain, scorers
from btnkm.cli import program
from btnkm.core.densities import Counts, Scaled, Student
from btnkm.core.likelihoods.counts import PoissonCounts
from btnkm.core.recalibration import LogitScaling, Recalibration, log_difference, normal_score
from btnkm.data.fills import COUNT
from btnkm.io.portable import portable
from btnkm.predictive import PredictiveDistribution
from btnkm.recalibrated import RecalibratedDistribution
from tests.model_files import forge
from tests.test_onnx import check as check_graph
from tests.test_portable import rows_of
from tests.test_sums_exports import asked

SHAPES = [(0.0, 1.0, 0.0, 1.0), (0.4, 1.8, 0.3, 0.8), (-0.2, 0.5, -0.3, 1.4)]


def of_scores(z, upper=None, shape=SHAPES[0]):
    """Return a recalibration with these scores, whatever its transformation."""
    lower = np.sort(z)
    return Recalibration("split", len(z), lower, lower if upper is None else np.sort(upper), *shape)


# ---- the guarantee


@pytest.mark.parametrize(
    ("n", "level"), [(39, 0.95), (40, 0.95), (77, 0.95), (19, 0.9), (100, 0.5)]
)
def test_intervals_of_a_wrong_model_hold_what_exchangeable_ranks_promise(n, level):
    reps, rng = 20_000, np.random.default_rng(n)
    z = 3.0 * rng.exponential(size=(reps, n + 1)) - 1.0  # of a model that is narrow and biased
    below = 0.5 - 0.5 * level
    inside = 0
    for row in z:
        low, high = of_scores(row[:n]).ends(below)
        inside += low <= row[n] <= high
    first, last = floor((n + 1) * below + 1e-9), ceil((n + 1) * (1.0 - below) - 1e-9)
    exact = (last - first) / (n + 1)
    assert level <= exact < level + 2.0 / (n + 1)
    # the next rank on either side would miss this by 1 / (n + 1), at least five times as much
    assert abs(inside / reps - exact) < 4.0 * np.sqrt(exact * (1.0 - exact) / reps)


def test_a_whole_model_keeps_the_guarantee_of_its_scores():
    reps, n = 1500, 39
    rng = np.random.default_rng(0)
    spread = rng.uniform(0.5, 4.0, (reps, n + 1))  # which the model does not know
    y = 5.0 + spread * rng.standard_normal((reps, n + 1))
    wrong = PredictiveDistribution([Student(np.full(n, 4.0), np.full(n, 0.3), 0.7, 50.0)])
    one = PredictiveDistribution([Student(np.full(1, 4.0), np.full(1, 0.3), 0.7, 50.0)])
    inside = []
    for row in y:
        calibration = of_scores(wrong.normal_scores(row[:n])[0])
        low, high = RecalibratedDistribution(one, calibration).interval(0.95)[0]
        inside.append(low <= row[n] <= high)
    assert 0.95 - 4.0 * np.sqrt(0.95 * 0.05 / reps) < np.mean(inside) < 0.975
    assert np.mean(np.abs(y[:, n] - 4.0) < 1.96) < 0.65  # of the model's own


@pytest.mark.parametrize("size", [0.5, 5.0])
@pytest.mark.parametrize("mean", [0.3, 12.0])
def test_intervals_of_counts_hold_at_least_their_level(size, mean):
    reps, n, level = 3000, 59, 0.9
    rng = np.random.default_rng(int(10 * mean))
    y = rng.negative_binomial(size, size / (size + mean), (reps, n + 1)).astype(float)
    x = np.log(mean / 1e3) - np.log1p(-mean / 1e3)  # a Poisson model of overdispersed counts

    def model(count):
        part = PoissonCounts(np.full(count, x), np.full(count, 1e-4), 1e3)
        return PredictiveDistribution([part])

    values, places = np.unique(y, return_inverse=True)
    scores = np.transpose(model(len(values)).normal_scores(values))
    each = []
    for row in places.reshape(y.shape):
        below, at = scores[row[:n]].T
        each.append(of_scores(at, below))
    ends = np.array([calibration.ends(0.05) for calibration in each]) + [-1e-9, 1e-9]
    low, high = (model(reps).at_scores(column) for column in ends.T)
    for k in range(3):
        interval = RecalibratedDistribution(model(1), each[k]).interval(level)[0]
        np.testing.assert_array_equal(interval, (low[k], high[k]))
    inside = np.mean((low <= y[:, n]) & (y[:, n] <= high))
    assert inside > level - 4.0 * np.sqrt(level * (1.0 - level) / reps)
    exact = np.diff(stats.nbinom(size, size / (size + mean)).ppf([0.05, 0.95]))
    assert np.mean(high - low) < 1.4 * exact + 2.0  # and not much wider than they must be


def test_ends_for_which_rows_are_too_few_have_the_tails_of_the_model():
    z = np.linspace(-1.5, 1.5, 30)
    calibration = of_scores(z)
    assert calibration.highest_level == pytest.approx(29 / 31)
    assert calibration.ends(0.5 - 0.5 * 29 / 31) == (-1.5, 1.5)
    np.testing.assert_allclose(calibration.ends(0.025), ndtri([0.025, 0.975]))
    assert of_scores(2.0 * z).ends(0.025) == (-3.0, 3.0)  # never within the scores
    d = RecalibratedDistribution(base(), calibration)
    with pytest.warns(UserWarning, match=r"level 0.95 is beyond 0.935, the highest .* 30 rows"):
        interval = d.interval(0.95)
    np.testing.assert_allclose(interval, base().quantile([0.025, 0.975]), rtol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        d.interval(0.9)


def test_of_many_rows_a_random_sample_of_scores_is_kept(monkeypatch):
    monkeypatch.setattr("btnkm.core.recalibration.MOST_SCORES", 200)
    z = np.random.default_rng(0).standard_normal(1000)
    calibration = Recalibration.of("split", z, z)
    assert calibration.rows == 1000
    assert len(calibration.lower) == 200
    assert set(calibration.lower.tolist()) <= set(z.tolist())


# ---- distributions


def base():
    """Return a mixture at three points whose parts differ, in units of its own."""
    parts = [
        Student(np.array([0.0, 1.0, -2.0]), np.array([0.1, 0.2, 0.3]), 0.2, 60.0),
        Scaled(Student(np.array([0.4, 1.0, -1.0]), np.full(3, 0.1), 0.4, 20.0), np.full(3, 1.5)),
    ]
    return PredictiveDistribution(parts, 10.0, 2.0, np.array([0.3, 0.7]))


def counts():
    location = np.log([0.1, 2.0, 9.0])
    return PredictiveDistribution([Counts(location, np.full(3, 0.1), 4.0)])


def many_counts():
    return PredictiveDistribution([Counts(np.zeros(400), np.full(400, 0.1), 4.0)])


def many_numbers():
    return PredictiveDistribution([Student(np.zeros(400), np.full(400, 0.1), 0.3, 12.0)], 5.0, 2.0)


def recalibrated(distribution, shape):
    z = 2.5 * np.random.default_rng(0).standard_normal(99)
    return RecalibratedDistribution(distribution, of_scores(z, shape=shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_density_distribution_function_and_quantiles_agree(shape):
    d = recalibrated(base(), shape)
    y = d.quantile(ndtr(np.linspace(-3.5, 3.5, 401)))
    density = np.array([d.pdf(column) for column in y.T])
    reached = np.array([d.cdf(column) for column in y.T])
    total = np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(y.T, axis=0), axis=0)
    np.testing.assert_allclose(total, reached[1:] - reached[0], atol=1e-3)
    step = 1e-5
    slope = np.array([(d.cdf(at + step) - d.cdf(at - step)) / (2.0 * step) for at in y.T[::20]])
    np.testing.assert_allclose(density[::20], slope, rtol=1e-4, atol=1e-9)
    for level in (1e-12, 0.01, 0.5, 0.9, 1.0 - 1e-9):
        np.testing.assert_allclose(d.cdf(d.quantile(level)), level, rtol=1e-7)
    np.testing.assert_array_equal(d.mean, base().mean)
    np.testing.assert_allclose(d.std**2, d.model_std**2 + d.noise_std**2)


@pytest.mark.parametrize("shape", SHAPES)
def test_probabilities_of_counts_agree(shape):
    d = recalibrated(counts(), shape)
    k = np.arange(0, 400)
    probability = np.array([d.pdf(float(i)) for i in k])
    reached = np.array([d.cdf(float(i)) for i in k])
    np.testing.assert_allclose(np.cumsum(probability, axis=0)[:60], reached[:60], atol=1e-12)
    assert np.all(d.cdf(-1.0) == 0.0)
    assert np.all(np.isneginf(d.logpdf(0.5)))
    for level in (0.05, 0.5, 0.975):
        quantile = d.quantile(level)
        assert np.all(d.cdf(quantile) >= level)
        assert np.all(d.cdf(quantile - 1.0) < level)


@pytest.mark.parametrize("of", [many_numbers, many_counts])
def test_draws_have_the_distribution(of):
    d = recalibrated(of(), SHAPES[1])
    draws = d.sample(10, random_state=0)
    for level in (0.1, 0.5, 0.9):
        at = d.quantile(level)[0]
        assert np.mean(draws < at) < level + 0.03
        assert np.mean(draws <= at) > level - 0.03


@pytest.mark.parametrize("shape", SHAPES)
def test_the_standard_deviation_of_a_normal_distribution_is_exact(shape):
    normal = PredictiveDistribution([Student(np.zeros(1), np.full(1, 0.2), 0.8, 1e9)])
    d = recalibrated(normal, shape)
    q = (np.arange(20_000) + 0.5) / 20_000
    y = normal.at_scores(np.array([0.0]))  # is precise
    assert abs(y[0]) < 1e-9
    z = d._calibration.inverse(ndtri(q))
    assert d.std[0] == pytest.approx(np.std(z), rel=2e-3)


def test_the_transformation_has_its_inverse_and_slope():
    z = np.linspace(-9.0, 9.0, 181)  # beyond the scores, too
    for shape in SHAPES:
        calibration = of_scores(np.linspace(-4.0, 5.0, 50), shape=shape)
        t = calibration.forward(z)
        np.testing.assert_allclose(calibration.inverse(t), z, atol=1e-9)
        step = 1e-5
        slope = (calibration.forward(z + step) - calibration.forward(z - step)) / (2.0 * step)
        expected = stats.norm.logpdf(t) - stats.norm.logpdf(z) + np.log(slope)
        np.testing.assert_allclose(calibration.log_slope(z), expected, atol=1e-5)


def test_scores_are_precise_in_both_tails():
    z = np.array([-30.0, -9.0, -1.0, 0.5, 9.0, 30.0])
    np.testing.assert_allclose(normal_score(ndtr(z), ndtr(-z)), z, rtol=1e-12)
    normal = PredictiveDistribution([Student(np.full(6, 1.0), np.full(6, 0.5), 0.5, 1e9)])
    np.testing.assert_allclose(normal.at_scores(z), 1.0 + z, atol=1e-4)
    far = base().at_scores(np.array([-20.0, 8.0, 20.0]))
    np.testing.assert_allclose(base().normal_scores(far)[1], [-20.0, 8.0, 20.0], rtol=1e-9)
    low, high = np.array([-3.0, 12.0, -np.inf]), np.array([1.0, 13.0, 0.0])
    expected = np.log(ndtr(-low) - ndtr(-high))
    np.testing.assert_allclose(log_difference(low, high)[[0, 2]], expected[[0, 2]], rtol=1e-9)
    assert log_difference(low, high)[1] == pytest.approx(stats.norm.logsf(12.0), abs=1e-4)


# ---- what is learned


def test_distributions_that_are_right_stay_as_they_are():
    rng, same = np.random.default_rng(0), 0
    for _ in range(30):
        z = rng.standard_normal(300)
        same += Recalibration.of("split", z, z).is_identity
    assert same >= 27
    z = ndtri((np.arange(200) + 0.5) / 200)
    calibration = Recalibration.of("split", z, z)
    assert calibration.is_identity
    assert calibration.factor == 1.0
    d, y = RecalibratedDistribution(base(), calibration), np.array([8.0, 12.0, 9.0])
    for name in ("logpdf", "cdf"):
        np.testing.assert_array_equal(getattr(d, name)(y), getattr(base(), name)(y))
    np.testing.assert_array_equal(d.quantile([0.1, 0.9]), base().quantile([0.1, 0.9]))
    np.testing.assert_array_equal(d.std, base().std)


@pytest.mark.parametrize(
    "truth",
    [stats.norm(0.5, 2.0), stats.norm(0.0, 0.5), stats.t(4, scale=0.7), stats.expon(-1.0, 1.0)],
)
def test_what_is_learned_comes_close_to_the_truth(truth):
    rng = np.random.default_rng(0)
    z, new = truth.rvs(1500, random_state=rng), truth.rvs(20_000, random_state=rng)
    calibration = Recalibration.of("split", z, z)
    found = np.mean(stats.norm.logpdf(new) + calibration.log_slope(new))
    best = np.mean(truth.logpdf(new))
    assert found > best - 0.04
    assert found - np.mean(stats.norm.logpdf(new)) > 0.5 * (best - np.mean(stats.norm.logpdf(new)))


def test_counts_that_are_right_stay_as_they_are_and_wrong_ones_do_not():
    rng = np.random.default_rng(0)
    n = 400
    location = np.log(rng.uniform(0.2, 3.0, n))
    right = PredictiveDistribution([Counts(location, np.full(n, 1e-4), 4.0)])
    rate = rng.gamma(4.0, np.exp(location))
    below, at = right.normal_scores(rng.poisson(rate))
    assert Recalibration.of("split", below, at).is_identity
    below, at = right.normal_scores(rng.poisson(4.0 * np.exp(location)))
    wrong = Recalibration.of("split", below, at)
    assert wrong.factor < 0.85  # a Poisson distribution is narrower


# ---- classes


def softmax_draws(log_p, rng):
    p = np.exp(log_softmax(log_p, axis=1))
    return (rng.random((len(p), 1)) > np.cumsum(p, axis=1)).sum(axis=1)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("slope", [0.4, 1.0, 2.0])
def test_a_known_temperature_is_recovered(n_classes, slope):
    rng = np.random.default_rng(1)
    log_p = log_softmax(1.5 * rng.standard_normal((4000, n_classes)), axis=1)
    codes = softmax_draws(slope * log_p, rng)
    scaling = LogitScaling.of("split", log_p, codes)
    assert scaling.slope == pytest.approx(slope, rel=0.1)
    assert abs(scaling.offset) < 0.15
    assert scaling.temperature == pytest.approx(1.0 / scaling.slope)
    p = scaling.probabilities(np.exp(log_p))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert np.array_equal(np.argmax(p, axis=1), np.argmax(log_p, axis=1)) or scaling.offset


def test_a_shift_of_two_classes_is_recovered():
    rng = np.random.default_rng(2)
    log_p = log_softmax(rng.standard_normal((3000, 2)), axis=1)
    codes = softmax_draws(0.7 * log_p + [0.0, 1.2], rng)
    scaling = LogitScaling.of("split", log_p, codes)
    assert (scaling.slope, scaling.offset) == pytest.approx((0.7, 1.2), abs=0.12)
    odds = log_p[:, 1] - log_p[:, 0]
    p = scaling.probabilities(np.exp(log_p))
    np.testing.assert_allclose(scaling.log_odds(odds), np.log(p[:, 1] / p[:, 0]), atol=1e-9)


def test_scaling_is_never_worse_on_its_own_rows_and_always_finite():
    rng = np.random.default_rng(3)
    for n, n_classes in ((10, 2), (10, 3), (40, 2), (40, 5)):
        log_p = log_softmax(3.0 * rng.standard_normal((n, n_classes)), axis=1)
        for codes in (rng.integers(n_classes, size=n), np.argmax(log_p, axis=1)):
            scaling = LogitScaling.of("split", log_p, codes)
            scaled = np.log(scaling.probabilities(np.exp(log_p)))
            rows = np.arange(n)
            assert np.mean(scaled[rows, codes]) >= np.mean(log_p[rows, codes]) - 1e-9
            assert 0.01 < scaling.slope < 100.0


# ---- estimators

N = 150
HOW = {"structure": "sums", "random_state": 0, "n_jobs": 1}


@cache
def rows():
    """Return inputs, numbers with skewed noise, counts and classes: rows after N are held out."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (700, 2))
    y = np.sin(3.0 * X[:, 0]) + 0.3 * rng.exponential(size=700)
    counts = rng.poisson(np.exp(1.0 + X[:, 0]) * rng.gamma(2.0, 0.5, 700)).astype(float)
    three = np.where(y > 1.0, "high", np.where(y > 0.3, "some", "low"))
    numbers = {"numbers": y, "positive": np.exp(y), "counts": counts}
    return X, {**numbers, "two": y > 0.4, "three": three}


@cache
def fitted(kind):
    """Return a model of the first rows, recalibrated by some of the others."""
    X, targets = rows()
    y = targets[kind]
    model = BTNClassifier(**HOW) if kind in ("two", "three") else BTNRegressor(**HOW)
    if kind in ("counts", "positive"):
        model.set_params(likelihood="poisson" if kind == "counts" else "log_normal")
    return model.fit(X[:N], y[:N]).calibrate(X[N:500], y[N:500])


KINDS = ("numbers", "positive", "counts", "two", "three")


def outcomes(model, X):
    """Return everything that a model predicts."""
    if hasattr(model, "classes_"):
        decision, std = model.decision_function(X, return_std=True)
        interval = model.predict_proba_interval(X)
        return [model.predict_proba(X), model.predict_log_proba(X), decision, std, interval]
    d = model.predict_dist(X)
    parts = [*model.predict(X, return_std=True), model.predict_interval(X), d.cdf(1.0), d.pdf(1.0)]
    return [*parts, model.predict_quantiles(X, [0.2, 0.9]), model.sample_y(X, 3)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_recalibrated_model_is_saved_copied_and_restored(kind, tmp_path):
    X, targets = rows()
    model, new = fitted(kind), X[500:540]
    expected = outcomes(model, new)
    model.save(tmp_path / "m.btn")
    for same in (btnkm.load(tmp_path / "m.btn"), pickle.loads(pickle.dumps(model))):
        assert same.calibration_.rows == 500 - N
        for found, wanted in zip(outcomes(same, new), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert same.calibrate(None) is same
        assert same.calibration_ is None
        plain = clone(model).fit(X[:N], targets[kind][:N])
        for found, wanted in zip(outcomes(same, new), outcomes(plain, new), strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert clone(model).calibration_ is None
    assert model.get_params()["calibration"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_and_pages_say_what_the_model_says(kind):
    model, X = fitted(kind), rows()[0][500:520]
    check_graph(model, X)
    told = asked(portable(model), rows_of(pd.DataFrame(X)))
    if kind in ("two", "three"):
        found = np.array([one["probabilities"] for one in told])
        np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-9)
        ends = np.array([one["intervals"] for one in told])
        ends = ends[:, 1] if kind == "two" else ends
        np.testing.assert_allclose(ends, model.predict_proba_interval(X), atol=1e-9)
        return
    d = model.predict_dist(X)
    ends = np.array([one["interval"] for one in told])
    np.testing.assert_allclose(ends, d.interval(), atol=1e-9)
    np.testing.assert_allclose([one["pdf"] for one in told], d.pdf(ends[:, 0]), atol=1e-8)
    np.testing.assert_allclose([one["mean"] for one in told], d.mean, atol=1e-9)


def test_intervals_and_densities_of_new_rows_are_better():
    X, targets = rows()
    y, model = targets["numbers"][500:], fitted("numbers")
    before = pickle.loads(pickle.dumps(model)).calibrate(None)
    assert scorers.log_density(model, X[500:], y) > scorers.log_density(before, X[500:], y) + 0.1
    assert scorers.neg_crps(model, X[500:], y) > scorers.neg_crps(before, X[500:], y)
    assert 0.88 < scorers.coverage(model, X[500:], y, level=0.95) <= 1.0
    assert explain.calibration(model, X[500:], y).coverage[8] == pytest.approx(0.9, abs=0.07)
    np.testing.assert_array_equal(model.predict(X), before.predict(X))
    np.testing.assert_array_equal(explain.effects(model)[0].mean, explain.effects(before)[0].mean)


def test_classes_of_new_rows_have_better_probabilities():
    X, targets = rows()
    y, model = targets["three"][500:], fitted("three")
    before = pickle.loads(pickle.dumps(model)).calibrate(None)
    for some, at_most in ((slice(N, 500), 0.0), (slice(500, 700), 0.02)):
        loss, was = (
            log_loss(targets["three"][some], m.predict_proba(X[some])) for m in (model, before)
        )
        assert loss <= was + at_most
    np.testing.assert_array_equal(model.predict(X[500:]), before.predict(X[500:]))
    assert y.shape == (200,)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_with_missing_values_are_recalibrated_mixtures_of_their_copies(kind, tmp_path):
    X, targets = rows()
    model, held, new = pickle.loads(pickle.dumps(fitted(kind))), X[N:500].copy(), X[500:508].copy()
    held[::5, 0] = held[1::7, 1] = new[:4, 0] = new[5, 1] = np.nan
    calibration = model.calibrate(held, targets[kind][N:500]).calibration_
    model.save(tmp_path / "m.btn")
    again = outcomes(btnkm.load(tmp_path / "m.btn"), new)
    for found, wanted in zip(again, outcomes(model, new), strict=True):
        np.testing.assert_array_equal(found, wanted)
    check_graph(model, new)
    told = asked(portable(model), rows_of(pd.DataFrame(new)))
    copies = model.fitted_.fills.copies(model.fitted_.encode(new), np.arange(8))
    if kind in ("two", "three"):
        p = model._of_two_at(copies).T if kind == "two" else model._of_many(copies)
        p = calibration.probabilities(p.reshape(COUNT, 8, -1).mean(axis=0))
        np.testing.assert_allclose(model.predict_proba(new), p, rtol=1e-9)
        np.testing.assert_allclose([one["probabilities"] for one in told], p, atol=1e-9)
        return
    every = model.fitted_.distribution(model._densities_at(copies, None))

    def before(y):
        return every.cdf(np.tile(y, COUNT)).reshape(COUNT, 8).mean(axis=0)

    def after(y):
        with np.errstate(invalid="ignore"):
            return ndtr(calibration.forward(ndtri(before(y)))) * (before(y) > 0.0)

    d, ends, wide = model.predict_dist(new), ndtr(calibration.ends(0.025)), np.ones(8)
    low, high = model.predict_interval(new).T
    np.testing.assert_allclose([one["interval"] for one in told], d.interval(), atol=1e-7)
    y = np.floor(high)
    np.testing.assert_allclose(d.cdf(y), after(y), rtol=1e-7)
    if kind == "counts":
        np.testing.assert_allclose(d.pdf(y), after(y) - after(y - 1.0), rtol=1e-6, atol=1e-12)
        for end, p in zip((low, high), ends, strict=True):
            assert np.all(before(end) >= p - 1e-6)
            assert np.all(before(end - 1.0) < p + 1e-6)
    else:
        assert not calibration.is_identity
        step = 1e-5 * wide
        slope = (after(low + step) - after(low - step)) / (2.0 * step)
        np.testing.assert_allclose(d.pdf(low), slope, rtol=1e-4)
        np.testing.assert_allclose([before(low), before(high)], ends[:, None] * wide, rtol=1e-6)
        for q, column in zip((0.2, 0.9), model.predict_quantiles(new, [0.2, 0.9]).T, strict=True):
            np.testing.assert_allclose(after(column), q, rtol=1e-6)
    median = d.quantile(0.5)
    draws = model.sample_y(np.repeat(new[:4], 20, axis=0), 4).reshape(4, -1)  # all independent
    share = np.mean(draws <= median[:4, None])
    assert share == pytest.approx(np.mean(after(median)[:4]), abs=4.0 * np.sqrt(0.25 / 320))


def test_a_row_is_the_same_beside_rows_with_missing_values():
    X, targets = rows()
    model = pickle.loads(pickle.dumps(fitted("numbers")))
    far = 20.0 * np.random.default_rng(0).standard_normal(350)
    model.calibrate(X[N:500], targets["numbers"][N:500] + far)
    beside = np.concatenate([X[500:505], [[np.nan, 0.2]]])
    alone, among = model.predict_dist(X[500:505]), model.predict_dist(beside)
    for found, wanted in (
        (among.interval(0.99), alone.interval(0.99)),
        (among.logpdf(30.0), alone.logpdf(30.0)),
    ):
        assert np.all(np.isfinite(wanted))
        np.testing.assert_allclose(found[:5], wanted, rtol=1e-9)


def test_draws_of_functions_stay_as_dependent_as_they_are():
    X, model = rows()[0][500:520], fitted("numbers")
    before = pickle.loads(pickle.dumps(model)).calibrate(None)
    ranks = [np.argsort(m.sample_y(X, 50, random_state=1), axis=1) for m in (model, before)]
    np.testing.assert_array_equal(*ranks)
    lazy = pytest.importorskip("dask.array").from_array(X, chunks=(7, 2))
    found = model.predict_interval(lazy).compute(scheduler="synchronous")
    np.testing.assert_allclose(found, model.predict_interval(X), rtol=1e-12)


def test_a_fit_and_a_batch_remove_a_recalibration():
    X, targets = rows()
    y = targets["numbers"]
    model = BTNRegressor(**HOW).fit(X[:N], y[:N]).calibrate(X[N:300], y[N:300])
    assert model.calibrate(X[300:], y[300:]).calibration_.rows == 400  # replaces the other
    assert model.fit(X[:N], y[:N]).calibration_ is None
    model.partial_fit(X[N:200], y[N:200])
    model.calibrate(X[300:], y[300:])
    with pytest.warns(UserWarning, match=r"^the recalibration was that of the model before this"):
        model.partial_fit(X[200:300], y[200:300])
    assert model.calibration_ is None
    assert model.fitted_.calibration is None


@pytest.mark.parametrize("kind", ["numbers", "two"])
def test_a_fit_recalibrates_by_cross_validation(kind):
    X, targets = rows()
    y = targets[kind]
    frame = pd.DataFrame(X[:N], columns=["a", "b"]).assign(y=y[:N])
    estimator = BTNClassifier if kind == "two" else BTNRegressor
    model = estimator(**HOW, calibration="cv").fit(frame, "y")
    assert (model.calibration_.kind, model.calibration_.rows) == ("cv", N)
    again = clone(model).fit(frame[["a", "b"]], frame["y"])
    new = pd.DataFrame(X[500:540], columns=["a", "b"])
    for found, wanted in zip(outcomes(again, new), outcomes(model, new), strict=True):
        np.testing.assert_array_equal(found, wanted)
    plain = estimator(**HOW).fit(frame, "y")
    np.testing.assert_array_equal(plain.predict(new), model.predict(new))
    if kind == "numbers":  # every score is that of a clone which has not seen the row
        train, test = model._folds(y[:N])[0]
        fold = estimator(**HOW).fit(X[train], y[train])
        score = fold.predict_dist(X[test]).normal_scores(y[test])[0]
        assert np.all(np.min(np.abs(model.calibration_.lower - score[:, None]), axis=1) < 1e-12)
    with pytest.raises(ValueError, match=r"^calibration must be None for partial_fit, got 'cv'"):
        model.partial_fit(frame, "y")


def clones_with(callback, monkeypatch):
    """Give the clones of a cross-validation a callback; return the list of those that are made."""
    made = []

    def clone_with(model):
        made.append(clone(model))
        fit = made[-1].fit

        def fit_with(*rows):
            return fit.__self__.set_params(callback=callback) and fit(*rows)

        made[-1].fit = fit_with
        return made[-1]

    monkeypatch.setattr(calibrating, "clone", clone_with)
    return made


def interrupt(entry):
    if entry["phase"] == "exact":
        raise KeyboardInterrupt


def interrupt_early(entry):
    raise KeyboardInterrupt


def stop(entry):
    return entry["phase"] == "exact"


def fail(entry):
    raise ZeroDivisionError("of a clone")


TENSOR = {**HOW, "structure": "tensor", "max_rank": 2, "n_init": 1, "max_iter": 6}


@pytest.mark.parametrize("callback", [stop, interrupt])
def test_a_fit_that_is_stopped_starts_no_clones(callback, monkeypatch):
    X, targets = rows()
    made = clones_with(None, monkeypatch)
    model = BTNRegressor(**TENSOR, calibration="cv", callback=callback)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X[:N], targets["numbers"][:N])
    told = [str(w.message) for w in caught if w.category is ConvergenceWarning]
    assert told[-1].startswith("calibration='cv' was left out because the fit was stopped")
    assert len(told) == 1 + (callback is interrupt)  # which is told, too
    assert (made, model.calibration_, model.fitted_.calibration) == ([], None, None)
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize("callback", [interrupt, interrupt_early])
def test_a_model_stays_without_recalibration_where_a_clone_is_interrupted(callback, monkeypatch):
    X, targets = rows()
    made = clones_with(callback, monkeypatch)
    model = BTNRegressor(**TENSOR, calibration="cv")
    with pytest.warns(ConvergenceWarning, match=r"^Interrupted: the model is kept, but") as caught:
        model.fit(X[:N], targets["numbers"][:N])
    assert len([w for w in caught if w.category is ConvergenceWarning]) == len(made) == 1
    assert (model.calibration_, model.fitted_.calibration) == (None, None)
    plain = BTNRegressor(**TENSOR).fit(X[:N], targets["numbers"][:N])
    np.testing.assert_array_equal(model.predict_interval(X), plain.predict_interval(X))


def test_a_clone_that_fails_leaves_no_model(monkeypatch):
    X, targets = rows()
    clones_with(fail, monkeypatch)
    model = BTNRegressor(**TENSOR, calibration="cv")
    with pytest.raises(ZeroDivisionError, match="of a clone"):
        model.fit(X[:N], targets["numbers"][:N])
    assert [name for name in vars(model) if name.endswith("_")] == []
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_clones_have_the_weight_of_the_rows():
    X, targets = rows()
    y = targets["numbers"]
    model = BTNRegressor(**HOW, calibration="cv").fit(X[:N], y[:N], np.full(N, 1.5))
    train, test = model._folds(y[:N])[0]
    away = []
    for weight in (1.5, 1.0):
        fold = BTNRegressor(**HOW).fit(X[train], y[train], np.full(len(train), weight))
        score = fold.predict_dist(X[test]).normal_scores(y[test])[0]
        away.append(np.max(np.min(np.abs(model.calibration_.lower - score[:, None]), axis=1)))
    assert away[0] < 1e-12
    assert away[1] > 1e-6


def test_all_that_a_recalibrated_distribution_has_works():
    parts = PredictiveDistribution(base()._parts, 10.0, 2.0, base()._weights)
    d = recalibrated(parts, SHAPES[1])
    arguments = {"logpdf": [9.0], "pdf": [9.0], "cdf": [9.0], "quantile": [0.3]}
    arguments |= {"normal_scores": [9.0], "at_scores": [np.full(3, -0.5)]}
    rest = ("interval", "sample", "discrete", "mean", "std", "model_std", "noise_std", "farthest")
    assert {name for name in dir(parts) if name[0] != "_"} == {*arguments, *rest}
    for name in (*arguments, *rest):
        value = getattr(d, name)
        value = np.asarray(value(*arguments.get(name, [])) if callable(value) else value)
        assert np.all(np.isfinite(value))
    np.testing.assert_allclose(ndtr(d.normal_scores(9.0)[1]), d.cdf(9.0), rtol=1e-12)
    np.testing.assert_allclose(d.at_scores(ndtri(np.full(3, 0.3))), d.quantile(0.3), rtol=1e-9)


def test_moments_of_transformed_targets_are_not_computed_before_they_are_asked_for():
    X = rows()[0]
    d = fitted("positive").predict_dist(X[500:520])
    d.interval(0.9), d.cdf(1.0), d.quantile(0.3), len(d)
    assert "_moments" not in vars(d._base)
    np.testing.assert_array_equal(d.mean, fitted("positive").predict(X[500:520]))
    assert "_moments" in vars(d._base)


def test_counts_with_exposures_are_recalibrated_with_them():
    rng, X = np.random.default_rng(0), rows()[0]
    exposure = rng.uniform(0.2, 20.0, len(X))
    y = rng.poisson(exposure * np.exp(X[:, 0]) * rng.gamma(2.0, 0.5, len(X)))
    model = BTNRegressor(**HOW, likelihood="poisson", calibration="cv")
    model.fit(X[:N], y[:N], exposure=exposure[:N])
    assert (model.calibration_.kind, model.calibration_.rows) == ("cv", N)
    model.calibrate(X[N:450], y[N:450], exposure=exposure[N:450])
    low, high = model.predict_interval(X[450:], 0.9, exposure=exposure[450:]).T
    assert np.mean((low <= y[450:]) & (y[450:] <= high)) == pytest.approx(0.91, abs=0.06)
    draws = model.sample_y(X[450:], 20, exposure=exposure[450:])
    assert np.mean((low[:, None] <= draws) & (draws <= high[:, None])) > 0.85
    with pytest.raises(ValueError, match=r"^exposure must be given to recalibrate a model that"):
        model.calibrate(X[N:], y[N:])
    with pytest.raises(ValueError, match=r"^exposure is for counts"):
        fitted("numbers").calibrate(X, y, exposure=exposure)


def test_what_cannot_be_recalibrated_is_refused_in_one_sentence():
    X, targets = rows()
    y, model = targets["numbers"], pickle.loads(pickle.dumps(fitted("numbers")))
    before = model.calibration_
    with pytest.raises(ValueError, match="not fitted"):
        BTNRegressor().calibrate(X, y)
    for given, error, message in (
        ((X[:9], y[:9]), ValueError, "X must have at least 10 rows to recalibrate a model, got 9"),
        ((X[:, :1], y), ValueError, "X has 1 features, but BTNRegressor is expecting 2"),
        ((X, y[:50]), ValueError, "inconsistent numbers of samples"),
        ((X, None), ValueError, "requires y to be passed"),
    ):
        with pytest.raises(error, match=message):
            model.calibrate(*given)
    with pytest.raises(ValueError, match=r"^sample_weight must be None, as a recalibration needs"):
        model.calibrate(X, y, sample_weight=np.ones(len(y)))
    assert model.calibration_ is before
    with pytest.raises(ValueError, match=r"^y must contain only classes of the model, \["):
        fitted("three").calibrate(X, np.where(y > 0, "high", "other"))
    poisson = pickle.loads(pickle.dumps(fitted("counts")))
    with pytest.raises(ValueError, match="counts"):
        poisson.calibrate(X, y - 5.0)
    with pytest.raises(ValueError, match=r"^the model gives probability zero to y in 100% of"):
        poisson.calibrate(X, np.full(len(X), 10_000.0))


def test_what_a_fit_cannot_recalibrate_is_refused_before_it_begins():
    X, targets = rows()
    y = targets["numbers"]
    for value in ("split", True, 5):
        with pytest.raises(ValueError, match=r"^calibration must be None or 'cv', got "):
            BTNRegressor(calibration=value).fit(X, y)
    cross = BTNRegressor(**HOW, calibration="cv")
    with pytest.raises(TypeError, match=r"^calibration='cv' needs rows in memory, got a generator"):
        cross.fit((X[k : k + 50], y[k : k + 50]) for k in (0, 50))
    with pytest.raises(TypeError, match=r"needs rows in memory, got a list of batches; use cal"):
        cross.fit([(X[k : k + 50], y[k : k + 50]) for k in (0, 50)])
    with pytest.raises(ValueError, match=r"^X must have at least 20 rows for calibration='cv'"):
        cross.fit(X[:19], y[:19])
    with pytest.raises(ValueError, match=r"^sample_weight must be None or the same for all rows"):
        cross.fit(X, y, np.arange(len(y)) + 1.0)
    with pytest.raises(ValueError, match=r"^y must have at least 2 rows of every class"):
        BTNClassifier(calibration="cv").fit(X, np.arange(len(X)) == 3)
    warm = pickle.loads(pickle.dumps(fitted("numbers"))).set_params(calibration="cv")
    with pytest.raises(ValueError, match=r"^calibration must be None where warm_start continues"):
        warm.set_params(warm_start=True).fit(X, y)
    assert not hasattr(cross, "posterior_")


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("numbers", "scale", -1.0),
        ("numbers", "kind", "guess"),
        ("numbers", "rows", 3),
        ("three", "offset", 0.5),
        ("three", "slope", 0.0),
    ],
)
def test_a_file_with_an_impossible_recalibration_is_refused(kind, field, value, tmp_path):
    path = tmp_path / "m.btn"
    fitted(kind).save(path)

    def change(manifest):
        for item in manifest["objects"]:
            if item["kind"] in ("Recalibration", "LogitScaling"):
                item["fields"][field] = value
        return manifest

    forge(path, change)
    with pytest.raises(ValueError, match="recalibrations|that do not fit together"):
        btnkm.load(path)


def test_a_file_with_the_recalibration_of_another_target_is_refused(tmp_path):
    path = tmp_path / "m.btn"
    model = pickle.loads(pickle.dumps(fitted("two")))
    model.calibration_ = fitted("numbers").calibration_
    model.save(path)
    with pytest.raises(ValueError, match="recalibration is of this target"):
        btnkm.load(path)


# ---- words


def test_summaries_and_reports_name_it(tmp_path):
    model = fitted("numbers")
    fact = explain.summary(model).facts["recalibrated"]
    assert fact.startswith("by 350 rows: 95% intervals end at the model's quantiles 0.")
    page = model.report(tmp_path / "m.html").read_text()
    assert "Recalibration" in page
    assert "recalibrated" in repr(model.predict_dist(rows()[0][:2]))
    assert explain.summary(fitted("two")).facts["recalibrated"].startswith("by 350 rows: temp")


def test_a_page_without_the_digits_for_extreme_intervals_has_no_panel(tmp_path):
    X, targets = rows()
    model = pickle.loads(pickle.dumps(fitted("numbers"))).calibrate(None)
    y = targets["numbers"] + 20.0 * np.random.default_rng(0).standard_normal(700)
    model.calibrate(X[N:], y[N:])
    low, high = model.predict_interval(X[:200]).T  # Python has them
    assert np.mean((low <= y[:200]) & (y[:200] <= high)) == pytest.approx(0.95, abs=0.06)
    assert np.all(np.isfinite([low, high]))
    page = model.report(tmp_path / "m.html").read_text()
    assert "There is no what-if panel: the intervals of the recalibrated model end further" in page


def test_the_program_recalibrates_a_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, targets = rows()
    table = pd.DataFrame(X, columns=["a", "b"]).assign(y=targets["numbers"])
    table[:N].to_csv("train.csv", index=False)
    table[N:500].to_csv("held-out.csv", index=False)
    table[500:].to_csv("new.csv", index=False)
    model = BTNRegressor(**HOW).fit(table[:N][["a", "b"]], table["y"][:N])
    model.save("m.btn")
    assert program.main(["calibrate", "m.btn", "held-out.csv", "-o", "c.btn", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["target"], result["calibration"]["rows"]) == ("y", 350)
    model.calibrate(table[N:500][["a", "b"]], table["y"][N:500])
    assert program.main(["predict", "c.btn", "new.csv", "--interval", "0.95", "-o", "p.csv"]) == 0
    interval = pd.read_csv("p.csv")[["low", "high"]].to_numpy()
    expected = model.predict_interval(table[500:][["a", "b"]])
    np.testing.assert_allclose(interval, expected, rtol=1e-12)
    capsys.readouterr()
    assert program.main(["info", "c.btn"]) == 0
    assert "by 350 rows: 95% intervals end" in " ".join(capsys.readouterr().out.split())
    for arguments, message in (
        (["held-out.csv", "-o", "m.btn"], "--output must not be the model itself"),
        (["held-out.csv", "--target", "z", "-o", "d.btn"], "has no column 'z'"),
        (["few.csv", "-o", "d.btn"], "few.csv: X must have at least 10 rows to recalibrate"),
    ):
        table[:5].to_csv("few.csv", index=False)
        assert program.main(["calibrate", "m.btn", *arguments]) in (1, 2)
        assert message in capsys.readouterr().err
        assert not (tmp_path / "d.btn").exists()
    how = ["--target", "y", "--structure", "sums", "--jobs", "1"]
    assert program.main(["fit", "train.csv", *how, "--calibration", "cv", "-o", "v.btn"]) == 0
    assert "by cross-validation of 150 rows" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setattr("btnkm.cli.tables.MAX_IN_MEMORY", 0)
    for option in (["--calibration", "cv"], ["--set", "calibration=cv"]):
        assert program.main(["fit", "train.csv", *how, *option, "-o", "w.btn"]) == 2
        assert "--calibration cv needs a table that fits in memory" in capsys.readouterr().err
