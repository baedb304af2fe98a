"""Rows with missing values: mixtures over what may be there, or what was learned of such rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import btnkm
from btnkm import BTNClassifier, BTNRegressor, TensorTrain, classifier
from btnkm.core.densities import Counts, NormalMixture, Student, ZeroInflated
from btnkm.core.likelihoods import Gaussian
from btnkm.core.likelihoods.gamma_mean import GammaDensity
from btnkm.core.likelihoods.softmax import COPY_POINTS
from btnkm.data.column_stats import ColumnValues
from btnkm.data.columns import fit_columns
from btnkm.data.fills import COUNT, Fills, told_from_others
from btnkm.structures.learned_missing import best_share, without_itself

SMALL = {"n_init": 1, "max_iter": 20, "random_state": 0}
SUMS = {**SMALL, "structure": "sums"}


def table(n, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    f = 3.0 * X[:, 0] + X[:, 0] * X[:, 1] + X[:, 2]
    return X, f + noise * rng.standard_normal(n)


def covered(model, X, y, rows):
    ends = model.predict_interval(X[rows])
    return float(np.mean((ends[:, 0] <= y[rows]) & (y[rows] <= ends[:, 1])))


KINDS = {
    "sums": {"structure": "sums"},
    "tensor": {"structure": "tensor", "max_rank": 4},
    "train": {"structure": "tensor", "max_rank": 3, "network": TensorTrain(cores="full")},
    "both": {"structure": "sums+tensor", "max_rank": 4},
    "full": {"structure": "full"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_where_none_was_missing_predictions_are_averages_over_the_training_values(kind):
    X, y = table(COUNT)  # as many values as copies: each is in one of them
    model = BTNRegressor(**SMALL | KINDS[kind]).fit(X, y)
    assert all(len(fill.inputs) == 0 for fill in model.fitted_.fills.fills)
    row = np.array([[np.nan, 0.3, -0.2]])
    filled = np.column_stack([X[:, 0], np.full((COUNT, 2), [0.3, -0.2])])
    one, every = model.predict_dist(row), model.predict_dist(filled)
    np.testing.assert_allclose(one.mean, every.mean.mean(), rtol=1e-9)
    np.testing.assert_allclose(model.predict(row), every.mean.mean(), rtol=1e-9)
    variance = np.mean(every.std**2) + np.var(every.mean)
    np.testing.assert_allclose(one.std**2, variance, rtol=1e-9)
    np.testing.assert_allclose(one.cdf(0.5), every.cdf(0.5).mean(), rtol=1e-9)
    np.testing.assert_allclose(one.pdf(0.5), every.pdf(0.5).mean(), rtol=1e-9)
    low, high = one.interval(0.9)[0]
    np.testing.assert_allclose([one.cdf(low)[0], one.cdf(high)[0]], [0.05, 0.95], atol=1e-8)
    draws = model.sample_y(np.repeat(row, 50, axis=0), 40)
    assert np.std(draws) == pytest.approx(one.std[0], rel=0.1)


def test_probabilities_are_averages_over_the_training_values():
    X, y = table(COUNT)
    row = np.array([[np.nan, 0.3, -0.2]])
    filled = np.column_stack([X[:, 0], np.full((COUNT, 2), [0.3, -0.2])])
    for classes in ([0.0], [-1.0, 1.0]):
        model = BTNClassifier(**SUMS).fit(X, np.digitize(y, classes))
        every = model.predict_proba(filled)
        np.testing.assert_allclose(model.predict_proba(row)[0], every.mean(axis=0), rtol=1e-9)
        ends = model.predict_proba_interval(np.concatenate([row, filled]))
        widths = ends[..., 1] - ends[..., 0]
        assert np.all(widths[0] > np.median(widths[1:], axis=0))  # it may be any of these
        _, std = model.decision_function(np.concatenate([row, filled]), return_std=True)
        assert np.all(std[0] > np.median(std[1:], axis=0))


def test_counts_with_exposures_are_averages_too():
    X, _ = table(COUNT)
    rng = np.random.default_rng(4)
    exposure = rng.uniform(0.5, 3.0, COUNT)
    y = rng.poisson(exposure * np.exp(1.0 + X[:, 0]))
    model = BTNRegressor(**SUMS, likelihood="poisson").fit(X, y, exposure=exposure)
    row = np.array([[np.nan, 0.3, -0.2]])
    filled = np.column_stack([X[:, 0], np.full((COUNT, 2), [0.3, -0.2])])
    one = model.predict_dist(row, exposure=[2.0])
    every = model.predict_dist(filled, exposure=np.full(COUNT, 2.0))
    np.testing.assert_allclose(one.mean, every.mean.mean(), rtol=1e-9)
    np.testing.assert_allclose(one.pdf(4.0), every.pdf(4.0).mean(), rtol=1e-9)
    draws = model.sample_y(np.repeat(row, 40, axis=0), 40, exposure=np.full(40, 2.0))
    assert np.mean(draws) == pytest.approx(one.mean[0], rel=0.1)


def test_rows_without_missing_values_have_no_copies():
    X, y = table(60)
    model = BTNRegressor(**SUMS).fit(X, y)
    new = X[:4].copy()
    new[0, 1] = np.nan
    np.testing.assert_array_equal(model.predict(new)[1:], model.predict(X[1:4]))
    both, whole = model.predict_dist(new), model.predict_dist(X[1:4])
    np.testing.assert_array_equal(both.interval()[1:], whole.interval())
    np.testing.assert_array_equal(both.logpdf(0.1)[1:], whole.logpdf(0.1))


@pytest.mark.parametrize("rows", [0, 3, 10])
def test_few_rows_with_a_missing_main_input_leave_honest_intervals(rows):
    X, y = table(1200, seed=rows)
    y -= X[:, 0] * X[:, 1]
    X[:rows, 0] = np.nan
    X[700:, 0] = np.nan
    model = BTNRegressor(**SUMS, noise="constant").fit(X[:200], y[:200])
    assert 0.9 < covered(model, X, y, slice(700, None)) < (0.99 if rows < 10 else 1.0)
    assert covered(model, X, y, slice(200, 700)) > 0.92  # more, with more of them in the noise
    error = model.predict(X[700:]) - X[700:, 2]  # the mean of 3 a is 0
    assert np.sqrt(np.mean(error**2)) < 0.5


def test_what_is_missing_for_a_reason_is_learned():
    X, y = table(1200)
    gone = X[:, 0] > 0.5
    X[gone, 0] = np.nan
    model = BTNRegressor(**SUMS, noise="varying").fit(X[:200], y[:200])
    assert model.fitted_.fills.learned(0) > 0.9
    rows = np.flatnonzero(gone)[np.flatnonzero(gone) >= 200]
    assert np.mean(model.predict(X[rows]) - y[rows]) == pytest.approx(0.0, abs=0.25)
    assert 0.9 < covered(model, X, y, rows) < 0.99


def test_a_number_is_told_from_others():
    rng = np.random.default_rng(0)
    b = rng.uniform(-1.0, 1.0, 2000)
    a = 0.8 * b + 0.2 * rng.uniform(-1.0, 1.0, 2000)
    X, y = np.column_stack([a, b]), 5.0 * a + b + 0.1 * rng.standard_normal(2000)
    model = BTNRegressor(**SUMS).fit(X[:300], y[:300])
    X[:, 0] = np.nan
    new = slice(300, None)
    np.testing.assert_allclose(model.predict(X[new]), 5.0 * b[new], atol=0.25)
    assert 0.9 < covered(model, X, y, new) < 0.99
    spread = np.sqrt(np.mean((y[new] - 5.0 * b[new]) ** 2))
    assert np.mean(model.predict_dist(X[new]).std) == pytest.approx(spread, rel=0.15)


def test_columns_that_are_missing_together_vary_together():
    rng = np.random.default_rng(0)
    z = rng.standard_normal(300)
    X = np.column_stack([*(z + 0.14 * rng.standard_normal((3, 300))), rng.standard_normal(300)])
    y = X.sum(axis=1) + 0.1 * rng.standard_normal(300)
    model = BTNRegressor(**SUMS).fit(X, y)
    assert sorted(model.fitted_.fills.told) == [0, 1, 2]
    gone = np.array(
        [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 1], [1, 0, 0, 0]], dtype=bool
    )
    rows = np.where(np.repeat(gone, 300, axis=0), np.nan, np.tile(X, (5, 1)))
    distribution = model.predict_dist(rows)
    away = (np.tile(y, 5) - distribution.mean).reshape(5, 300)
    error = np.sqrt(np.mean(away**2, axis=1))
    std = distribution.std.reshape(5, 300).mean(axis=1)
    np.testing.assert_allclose(std, error, rtol=0.2)
    assert std[0] == pytest.approx(y.std(), rel=0.1)
    assert error[2] < 0.6 * error[1]  # the third tells of two


def test_independent_columns_that_are_missing_together_vary_independently():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 5))
    model = BTNRegressor(**SUMS).fit(X, X.sum(axis=1) + 0.1 * rng.standard_normal(200))
    assert not model.fitted_.fills.told
    rows = np.zeros((10, 5))
    pairs = np.array([(i, j) for i in range(5) for j in range(i)])
    rows[np.arange(10)[:, None], pairs] = np.nan
    assert np.mean(model.predict_dist(rows).std ** 2) == pytest.approx(2.0, rel=0.15)
    assert np.ptp(model.predict_dist(rows).std) < 0.6  # Q ranks in random orders


def test_chance_and_too_few_rows_tell_nothing():
    rng = np.random.default_rng(0)
    for n, count in ((60, 40), (300, 3)):
        X = rng.standard_normal((n, count))
        columns, codes = fit_columns(
            [ColumnValues(x, np.ones(n)) for x in X.T], list(range(count)), "auto", 5
        )
        assert told_from_others(columns, range(count), codes, np.ones(n)) == {}
    X[4:, 0], X[:4, 1] = np.nan, np.nan  # never known together
    columns, codes = fit_columns(
        [ColumnValues(x, np.ones(n)) for x in X.T], list(range(count)), "auto", 5
    )
    assert told_from_others(columns, range(count), codes, np.ones(n)) == {}


def test_a_regression_on_others_is_that_of_least_squares():
    rng = np.random.default_rng(3)
    z = rng.standard_normal((500, 3))
    X = np.column_stack([z[:, 0] + 0.5 * z[:, 1] + z[:, 2], z[:, 0], z[:, 1]])
    summaries = [ColumnValues(x, np.ones(500)) for x in X.T]
    columns, codes = fit_columns(summaries, [0, 1, 2], "auto", 5)
    told = told_from_others(columns, range(3), codes, np.ones(500))[0]
    assert told["inputs"].tolist() == [1, 2]
    away = np.stack(codes, axis=1) - np.mean(codes, axis=1)
    slopes, (left,), _, _ = np.linalg.lstsq(away[:, 1:], away[:, 0], rcond=None)
    np.testing.assert_allclose(told["slopes"], slopes, rtol=0.02)
    spread = np.sqrt(left / np.sum(away[:, 0] ** 2))
    assert told["spread"] == pytest.approx(spread, rel=0.02)
    assert told["center"] == pytest.approx(np.mean(codes[0]))


def test_files_and_streams_keep_what_stands_for_missing_values(tmp_path):
    X, y = table(80)
    X[:4, 1] = np.nan
    model = BTNRegressor(**SUMS)
    model.partial_fit(X[:60], y[:60])
    new = X[60:].copy()
    new[:5, 0] = new[3:8, 1] = np.nan
    before = model.predict_dist(new)
    model.save(tmp_path / "m.btn")
    after = btnkm.load(tmp_path / "m.btn").predict_dist(new)
    np.testing.assert_allclose(after.mean, before.mean, rtol=1e-12)
    np.testing.assert_allclose(after.std, before.std, rtol=1e-12)
    model.partial_fit(new, y[60:])  # the first input is missing for the first time
    assert model.predict_dist(new).std[0] > np.median(model.predict_dist(X[70:]).std)


@pytest.mark.parametrize(
    "wrong",
    [
        {"copies": np.arange(COUNT) + 1},
        {"values": np.zeros(COUNT - 1)},
        {"inputs": np.array([7]), "slopes": np.ones(1), "centers": np.ones(1)},
        {"inputs": np.array([0]), "slopes": np.ones(1), "centers": np.ones(1)},
        {"spread": -1.0},
    ],
    ids=["copies", "sizes", "no column", "itself", "spread"],
)
def test_a_file_with_impossible_values_for_missing_ones_is_refused(wrong, tmp_path):
    X, y = table(40)
    model = BTNRegressor(**SUMS).fit(X, y)
    model._fills[0] = replace(model._fills[0], **wrong)
    model.save(tmp_path / "m.btn")
    with pytest.raises(ValueError, match="path must name a model saved by btnkm"):
        btnkm.load(tmp_path / "m.btn")


def test_a_table_of_categories_with_missing_values_of_each_kind():
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"g": list("abcd") * 50, "h": rng.integers(0, 40, 200).astype(str)})
    value = X["g"].map({"a": 0.0, "b": 1.0, "c": 2.0, "d": 5.0}).to_numpy()
    y = value + 0.1 * rng.standard_normal(200)
    model = BTNRegressor(**SUMS).fit(X, y)
    new = pd.DataFrame({"g": [None], "h": ["3"]})
    assert model.predict(new)[0] == pytest.approx(2.0, abs=0.3)
    assert model.predict_dist(new).std[0] == pytest.approx(value.std(), rel=0.1)


def test_the_weight_of_what_was_learned_follows_the_evidence():
    ones = np.ones(20)
    assert best_share(3.0 * ones, 0.0 * ones, ones) == 1.0
    assert best_share(0.0 * ones, 3.0 * ones, ones) == 0.0
    half = best_share(np.repeat([4.0, -4.0], 10), 0.0 * ones, ones)
    assert 0.3 < half < 0.7
    few = [best_share(np.full(n, 0.5), np.zeros(n), np.ones(n)) for n in (3, 30, 300)]
    assert few == sorted(few)
    assert few[-1] == 1.0
    # by brute force: the mean of the weight under its posterior
    gain, shares = np.array([0.3, 1.5, -0.4]), np.linspace(0.0, 1.0, 33)
    prior = np.full(33, 0.3 / 31)
    prior[[0, -1]] = 0.7 * 0.8, 0.7 * 0.2
    posterior = prior.copy()
    for nats in gain:
        posterior *= shares * np.exp(nats - 2.0 / 3.0) + 1.0 - shares
    expected = shares @ posterior / posterior.sum()
    assert best_share(gain, np.zeros(3), np.ones(3)) == pytest.approx(expected, rel=1e-12)


def test_moments_without_a_row_are_those_of_the_other_rows():
    rng = np.random.default_rng(2)
    x, noise = rng.uniform(-1.0, 1.0, 8), 0.3
    kernel = np.exp(-((x[:, None] - x) ** 2) / 0.5)
    y = rng.standard_normal(8)

    def posterior(rows, at):
        solved = np.linalg.solve(
            kernel[np.ix_(rows, rows)] + noise * np.eye(len(rows)), np.eye(len(rows))
        )
        cross = kernel[at, rows]
        return cross @ solved @ y[rows], kernel[at, at] - cross @ solved @ cross

    every = np.arange(8)
    mean, variance = np.array([posterior(every, k) for k in every]).T
    without = np.array([posterior(np.delete(every, k), k) for k in every]).T
    moments = without_itself(Gaussian(), 1.0 / noise, y, np.ones(8), mean, variance)
    np.testing.assert_allclose(moments, without, rtol=1e-9)


def test_a_row_without_missing_values_has_the_same_tails_beside_one_with_them():
    X, y = table(60)
    models = [BTNRegressor(**SUMS, noise="constant").fit(X, y)]
    models.append(BTNRegressor(**SUMS, likelihood="gamma").fit(X, np.exp(y)))
    new = X[:2].copy()
    new[1, 0] = np.nan
    for model in models:
        alone, beside = model.predict_dist(new[:1]), model.predict_dist(new)
        far = alone.at_scores(np.array([10.0]))
        assert alone.normal_scores(far)[1] == pytest.approx(10.0)
        assert beside.normal_scores(np.repeat(far, 2))[1][0] == pytest.approx(10.0)
        assert alone.farthest == beside.farthest


def test_the_tails_of_gamma_and_of_counts_with_zeros():
    at = np.linspace(0.0, 40.0, 9)
    center, spread = np.full(9, 0.5), np.full(9, 0.2)
    counts = ZeroInflated(Counts(center, spread, 4.0), 0.3)
    for density in (GammaDensity(center, spread, 3.0, 0.5), counts):
        np.testing.assert_allclose(density.sf(at), 1.0 - density.cdf(at), atol=1e-12)
        assert np.all(density.sf(np.full(9, -1.0)) == pytest.approx(1.0))
        assert np.all(density.sf(np.full(9, 60.0)) > 0.0)
    terms = np.exp([counts.logpdf(np.full(9, k))[0] for k in range(400, 4000)])
    np.testing.assert_allclose(counts.sf(np.full(9, 399.0)), terms.sum(), rtol=1e-6)


@pytest.mark.parametrize("likelihood", ["gaussian", "log_normal", "poisson"])
def test_copies_of_few_rows_at_a_time_say_the_same(likelihood, monkeypatch):
    X, y = table(80)
    rng = np.random.default_rng(0)
    y = {"gaussian": y, "log_normal": np.exp(y), "poisson": rng.poisson(np.exp(y))}[likelihood]
    varying = {"noise": "varying"} if likelihood == "gaussian" else {}
    given = {"exposure": np.linspace(1.0, 2.0, 80)} if likelihood == "poisson" else {}
    settings = SUMS | {"likelihood": likelihood, "max_iter": 8} | varying
    model = BTNRegressor(**settings).fit(X, y, **given)
    new = np.where(rng.random(X.shape) < 0.2, np.nan, X)

    def said():
        distribution = model.predict_dist(new, **given)
        return [
            *model.predict(new, return_std=True, **given),
            model.predict(new, **given),
            model.predict_interval(new, **given),
            model.predict_quantiles(new, [0.1, 0.8], **given),
            distribution.mean,
            distribution.cdf(1.0),
        ]

    whole, most = said(), []
    copies = Fills.copies

    def spied(self, columns, rows, which=slice(None)):
        made = copies(self, columns, rows, which)
        most.append(len(made[0]))
        return made

    monkeypatch.setattr(Fills, "copies", spied)
    monkeypatch.setattr("btnkm.regressor.COPIED_ROWS", 3)
    monkeypatch.setattr("btnkm.explain.fitted.COPIED_ROWS", 3)
    for part, expected in zip(said(), whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-7, atol=1e-9)
    assert max(most) <= 3 * COUNT
    draws = model.sample_y(new, 200, **given)
    assert not np.any(np.isnan(draws))


def test_draws_from_copies_take_little_memory(monkeypatch):
    X, y = table(60)
    model = BTNRegressor(**SUMS).fit(X, y)
    new = np.array([[np.nan, 0.3, -0.2]] * 3)
    monkeypatch.setattr("btnkm.core.densities._DRAWN_NUMBERS", 7 * 3 * COUNT)
    sizes, draw = [], Student.draw

    def spied(self, rng, size):
        sizes.append(len(self.mean) * size)
        return draw(self, rng, size)

    monkeypatch.setattr(Student, "draw", spied)
    monkeypatch.setattr(NormalMixture, "draw", spied)
    draws = model.sample_y(new, 1500)
    assert max(sizes) <= 7 * 3 * COUNT
    assert np.std(draws, axis=1) == pytest.approx(model.predict_dist(new).std, rel=0.1)


@pytest.mark.parametrize("classes", [[0.0], [-1.0, 1.0]], ids=["two", "three"])
def test_intervals_of_probabilities_take_little_memory(classes, monkeypatch):
    X, y = table(60)
    model = BTNClassifier(**SUMS).fit(X, np.digitize(y, classes))
    new = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    whole, sizes = model.predict_proba_interval(new), []
    of_a_row = COUNT * COPY_POINTS * 3
    monkeypatch.setattr("btnkm.classifier._POINT_NUMBERS", 4 * of_a_row)
    monkeypatch.setattr("btnkm.explain.fitted.COPIED_ROWS", 4)
    quantiles, copies = classifier.weighted_quantiles, Fills.copies

    def spied(values, *rest):
        sizes.append(values.size)
        return quantiles(values, *rest)

    def spied_copies(self, columns, rows, which=slice(None)):
        assert len(rows) <= 4
        return copies(self, columns, rows, which)

    monkeypatch.setattr(classifier, "weighted_quantiles", spied)
    monkeypatch.setattr(Fills, "copies", spied_copies)
    np.testing.assert_allclose(model.predict_proba_interval(new), whole, rtol=1e-9)
    assert max(sizes, default=0) <= 4 * of_a_row


def test_streams_look_once_at_how_columns_depend_on_each_other(monkeypatch):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((200, 1))
    X = z + 0.2 * rng.standard_normal((200, 2))
    y = X.sum(axis=1) + 0.1 * rng.standard_normal(200)
    model = BTNRegressor(**SUMS)
    model.partial_fit(X[:150], y[:150])
    before = model.fitted_.fills
    monkeypatch.setattr("btnkm.structures.learned_missing.told_from_others", None)
    model.partial_fit(X[150:], y[150:])
    after = model.fitted_.fills
    assert sorted(after.told) == [0, 1]
    for j in (0, 1):
        np.testing.assert_array_equal(before.fills[j].copies, after.fills[j].copies)
    assert model.predict_dist(np.full((1, 2), np.nan)).std == pytest.approx(y.std(), rel=0.15)
