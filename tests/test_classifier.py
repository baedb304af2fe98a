"""BTNClassifier from outside: probabilities that are right, labels of all kinds, odd classes."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from btnkm import BTNClassifier, Gamma, Priors
from btnkm.bases import Chebyshev
from btnkm.core.densities import expected_sigmoid

SMALL = {"n_init": 1, "max_iter": 20, "max_rank": 5, "n_basis": 8, "random_state": 0}
SMALL |= {"structure": "tensor"}


def model(**changes):
    return BTNClassifier(**{**SMALL, **changes})


def draw(n=400, seed=0):
    """Return inputs, labels and the true probability of the label 1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    p = expit(4 * X[:, 0] * X[:, 1] + 2 * X[:, 2] - 0.5)
    return X, (rng.random(n) < p).astype(int), p


@pytest.fixture(scope="module")
def data():
    return draw()


@pytest.fixture(scope="module")
def fitted(data):
    return model(n_init=2).fit(*data[:2])


@pytest.mark.parametrize("mean", [-30.0, -3.0, 0.0, 0.5, 6.0])
@pytest.mark.parametrize("std", [0.0, 1e-3, 1.0, 4.0, 10.0])
def test_expected_sigmoid_is_the_integral(mean, std):
    actual = float(expected_sigmoid(np.array([mean]), np.array([std**2]))[0])
    if std == 0:
        assert actual == pytest.approx(expit(mean), rel=1e-12)
        return

    def integrand(z):
        return stats.norm.pdf(z) * expit(mean + std * z)

    truth = integrate.quad(integrand, -12, 12, points=[-mean / std], epsabs=1e-14, limit=200)[0]
    assert actual == pytest.approx(truth, abs=1e-8, rel=1e-3)


def test_probabilities_are_recovered_and_calibrated():
    X, y, p = draw(6000)
    q = model(n_init=2, max_iter=30).fit(X[:3000], y[:3000]).predict_proba(X[3000:])[:, 1]
    y, p = y[3000:], p[3000:]
    assert np.mean(np.abs(q - p)) < 0.04
    for low in np.arange(0.0, 1.0, 0.2):
        inside = (q >= low) & (q < low + 0.2)
        assert np.mean(y[inside]) == pytest.approx(np.mean(q[inside]), abs=0.06)


def test_intervals_hold_the_true_probability():
    X, y, p = draw(4000, seed=1)
    wide = model(n_init=2, max_iter=40).fit(X[:600], y[:600])
    low, high = wide.predict_proba_interval(X[600:], level=0.9).T
    assert 0.75 < np.mean((low <= p[600:]) & (p[600:] <= high)) <= 1.0
    q = wide.predict_proba(X[600:])[:, 1]
    assert np.all((low < q) & (q < high))
    narrow = wide.predict_proba_interval(X[600:], level=0.5)
    assert np.all((low < narrow[:, 0]) & (narrow[:, 1] < high))


def test_probabilities_predictions_and_log_odds_agree(fitted, data):
    X = data[0]
    proba = fitted.predict_proba(X)
    assert proba.shape == (len(X), 2)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), proba)
    odds, std = fitted.decision_function(X, return_std=True)
    np.testing.assert_allclose(expit(odds), proba[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(fitted.decision_function(X), odds)
    assert np.all(std > 0)
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[(odds > 0).astype(int)])


def test_one_linear_input_is_logistic_regression():
    """Weak priors: the posterior mean is nearly where the likelihood is highest."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, 3000)
    y = (rng.random(3000) < expit(2.5 * x - 0.7)).astype(int)
    ours = model(
        basis=Chebyshev(n_basis=2), max_rank=1, priors=Priors(basis="off", rank=Gamma(1e8, 1e12))
    ).fit(x[:, None], y)
    theirs = LogisticRegression(C=np.inf).fit(ours.columns_[0].encode(x)[:, None], y)
    grid = np.linspace(-0.9, 0.9, 20)
    expected = theirs.predict_proba(ours.columns_[0].encode(grid)[:, None])[:, 1]
    np.testing.assert_allclose(ours.predict_proba(grid[:, None])[:, 1], expected, atol=0.002)


@pytest.mark.parametrize(
    "labels",
    [
        ("no", "yes"),
        (False, True),
        (-1, 1),
        (2.0, 7.0),
        (np.str_("x"), np.str_("y")),
    ],
    ids=repr,
)
def test_labels_of_any_kind(data, labels):
    X, y, _ = data
    named = np.array(labels)[y]
    fit = model().fit(X, named)
    assert fit.classes_.tolist() == sorted(np.array(labels).tolist())
    assert fit.predict(X).dtype == named.dtype
    assert fit.score(X, named) > 0.75
    expected = model().fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(fit.predict_proba(X), expected)


def test_many_inputs_are_found_from_few_rows():
    """A row says a quarter as much as one of a regression: starts go gently for longer."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((2500, 12))
    y = (rng.random(2500) < expit(3 * X[:, 0] - 2 * X[:, 1] * X[:, 2])).astype(int)
    fit = model(n_basis=12, max_rank=8, max_iter=40).fit(X[:1500], y[:1500])
    assert {e["phase"] for e in fit.history_} == {"warm", "annealing", "exact", "newton"}
    assert fit.score(X[1500:], y[1500:]) > 0.7
    assert np.argmax(fit.feature_importances_) == 0


def test_labels_from_pandas(data):
    X, y, _ = data
    series = pd.Series(np.array(["no", "yes"])[y])
    expected = model().fit(X, series.to_numpy()).predict_proba(X)
    for labels in (series, series.astype("category"), series.astype("string")):
        fit = model().fit(X, labels)
        assert list(fit.classes_) == ["no", "yes"]
        np.testing.assert_array_equal(fit.predict_proba(X), expected)


def test_separable_classes_stay_finite_and_sure():
    x = np.linspace(-1, 1, 200)
    fit = model(n_init=2, max_iter=60).fit(x[:, None], x > 0)
    q = fit.predict_proba([[-0.9], [-0.3], [0.3], [0.9]])[:, 1]
    assert np.all((q > 0) & (q < 1))
    assert np.all(q[:2] < 0.05)
    assert np.all(q[2:] > 0.95)
    assert np.all(np.isfinite(fit.decision_function(x[:, None])))


@pytest.mark.filterwarnings("ignore:no input was found")  # two rows are little to go by
def test_a_class_of_one_in_ten_thousand():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 2))
    y = np.zeros(20_000, dtype=int)
    y[np.argsort(-X[:, 0])[:2]] = 1  # two rows, at the upper end of the first input
    q = model(max_iter=10).fit(X, y).predict_proba(X)[:, 1]
    assert 0.5e-4 < q.mean() < 2e-4
    assert np.all(q < 0.5)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1] * 6, "two classes, got 1 class"),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "Unknown label type"),
        (["a", None, "b", "a", "b", "a"], "a label in every row, got missing"),
        ([0.0, np.nan, 1.0, 0.0, 1.0, 0.0], "NaN"),
        (None, "requires y to be passed"),
    ],
)
def test_targets_that_are_no_classes_raise(y, message):
    with pytest.raises(ValueError, match=message):
        model().fit(np.arange(6.0)[:, None], y)


def test_labels_of_mixed_types_raise():
    y = np.array([1, "a", 1, "a", 1, "a"], dtype=object)
    with pytest.raises((ValueError, TypeError), match="(?i)type|mix"):
        model().fit(np.arange(6.0)[:, None], y)


def test_integer_weights_are_repeated_rows(data):
    X, y, _ = data
    weight = np.random.default_rng(2).integers(1, 4, len(y))
    weighted = model().fit(X, y, weight)
    repeated = model().fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-7)
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_class_weights_shift_the_log_odds(data, n_classes):
    X, y, _ = data
    y = y + (n_classes == 3) * (X[:, 1] > 0.3)
    weight = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    plain = model().fit(X, y, weight)
    shifted = model(class_weight={0: 3.0, 1: 0.5}).fit(X, y, weight)
    odds = [
        np.array([likelihood.offset]) if n_classes == 2 else np.array(likelihood.offsets)
        for likelihood in (plain.likelihood_, shifted.likelihood_)
    ]
    shift = odds[1] - odds[0]
    expected = np.log([0.5 / 3.0]) if n_classes == 2 else np.log([3.0, 0.5, 1.0])
    np.testing.assert_allclose(np.diff(shift), np.diff(expected), atol=1e-12)
    if n_classes == 2:
        np.testing.assert_allclose(shift, expected)
        _, std = plain.decision_function(X, return_std=True)
        _, same = shifted.decision_function(X, return_std=True)
        np.testing.assert_array_equal(std, same)
    assert shifted.lower_bound_ == plain.lower_bound_
    assert np.all(shifted.predict_proba(X)[:, 1] < plain.predict_proba(X)[:, 1])


def test_balanced_classes_of_a_rare_one_are_told_apart():
    """Rows are not counted 50 times over: 40 positives do not look like 2,000."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 8))
    y = rng.random(4000) < expit(-5.0 + 1.5 * X[:, 0] - 1.2 * X[:, 1])
    train, test = slice(0, 2000), slice(2000, None)
    balanced = model(class_weight="balanced").fit(X[train], y[train])
    linear = LogisticRegression(class_weight="balanced").fit(X[train], y[train])
    ours, theirs = (
        balanced_accuracy_score(y[test], m.predict(X[test])) for m in (balanced, linear)
    )
    assert ours > theirs - 0.03


def test_balanced_weighs_rows_by_their_weights(data):
    X, y, _ = data
    weight = np.random.default_rng(2).integers(1, 4, len(y))
    weighted = model(class_weight="balanced").fit(X, y, weight)
    repeated = model(class_weight="balanced").fit(
        np.repeat(X, weight, axis=0), np.repeat(y, weight)
    )
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-7)


@pytest.mark.parametrize(
    ("dtype", "labels"), [("Int64", [0, 1]), ("boolean", [False, True]), ("string", ["0", "1"])]
)
def test_labels_of_nullable_types_stay_what_they_are(data, dtype, labels):
    X, y, _ = data
    series = pd.Series(np.array(labels, dtype=object)[y], dtype=dtype)
    classes = model(max_iter=5).fit(X, series).classes_.tolist()
    assert classes == labels
    assert [type(v) for v in classes] == [type(v) for v in labels]
    series[3] = pd.NA
    with pytest.raises(ValueError, match="missing|NaN"):
        model().fit(X, series)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_where_nothing_is_found_the_level_is_still_uncertain(n_classes):
    """Of 100 rows with no inputs that matter: the interval of a share, no narrower."""
    share = np.full(n_classes, 1 / n_classes)
    covered, widths = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X, y = rng.uniform(-1, 1, (100, 2)), rng.choice(n_classes, 100, p=share)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            interval = model(max_iter=10).fit(X, y).predict_proba_interval(X[:1], 0.9)[0]
        low, high = interval if n_classes == 2 else interval[0]
        covered.append(low < share[0] < high)
        widths.append(high - low)
    assert np.mean(covered) >= 0.7
    expected = 2 * 1.645 * np.sqrt(share[0] * (1 - share[0]) / 100)
    assert np.median(widths) == pytest.approx(expected, rel=0.3)


def test_a_rare_class_is_not_known_better_than_its_rows_say():
    """The log odds are as uncertain as those of a logistic regression, not less."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (4000, 1))
    y = rng.random(4000) < expit(-4.5 + 1.5 * X[:, 0])
    fit = model(basis="chebyshev", n_basis=2).fit(X, y)
    _, std = fit.decision_function(X, return_std=True)
    p = fit.predict_proba(X)[:, 1]
    design = np.column_stack([np.ones(4000), X])
    covariance = np.linalg.inv(design.T @ (design * (p * (1 - p))[:, None]))
    expected = np.sqrt(np.sum(design @ covariance * design, axis=1))
    assert 0.7 < np.median(std / expected) < 1.3


@pytest.mark.parametrize(
    ("n", "inputs", "expected"),
    [(100, 2, 12), (100, 30, 4), (1000, 5, 20), (1000, 20, 8), (2079, 19, 13), (10**6, 57, 20)],
)
def test_functions_of_an_input_leave_rows_to_each(n, inputs, expected):
    assert BTNClassifier._defaults.n_basis(n, inputs) == expected


def test_automatic_sizes_count_a_weight_of_k_as_k_rows(data):
    X, y, _ = data
    X, y = X[:60], y[:60]
    # rows held out are not the same in both: a structure is given
    how = {"random_state": 0, "structure": "tensor"}
    weighted = BTNClassifier(**how).fit(X, y, np.full(60, 3.0))
    repeated = BTNClassifier(**how).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-7)


@pytest.mark.parametrize(
    "weight", ["Balanced", 3, [1, 2], {0: 0.0, 1: 1.0}, {0: "a"}, {0: np.nan}, {1: -1.0}]
)
def test_class_weights_that_cannot_be(data, weight):
    X, y, _ = data
    with pytest.raises(ValueError, match="class_weight must be"):
        model(class_weight=weight).fit(X, y)


@pytest.mark.parametrize("labels", [[0, 1], [False, True], [np.int8(3), np.int8(5)]])
def test_labels_in_an_array_of_objects(data, labels):
    X, y, _ = data
    given = np.array([labels[k] for k in y], dtype=object)
    assert model(max_iter=3).fit(X, given).classes_.tolist() == labels


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint64"])
def test_labels_of_a_series_keep_their_type(data, dtype):
    X, y, _ = data
    assert model(max_iter=3).fit(X, pd.Series(y, dtype=dtype)).classes_.dtype == dtype


def test_effects_that_are_small_but_clear_are_not_called_nothing():
    rng = np.random.default_rng(0)
    hour = np.tile(np.arange(24.0), 200)  # a table with a period
    y = rng.random(4800) < expit(0.5 * np.sin(hour / 24 * 2 * np.pi))
    model().fit(hour[:, None], y)


def test_nothing_found_is_said():
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="no input was found to have an effect"):
        model().fit(rng.uniform(-1, 1, (300, 3)), rng.integers(0, 2, 300))


def test_text_and_missing_values():
    X, y, _ = draw(500)
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "sign": np.where(X[:, 2] > 0, "up", "down")})
    frame.loc[rng.random(500) < 0.1, "a"] = np.nan
    frame.loc[rng.random(500) < 0.1, "sign"] = None
    fit = model().fit(frame, y)
    assert fit.score(frame, y) > 0.7
    assert list(fit.feature_names_in_) == ["a", "b", "sign"]
    assert fit.feature_importances_.sum() == pytest.approx(1.0)


def test_the_bound_never_falls(fitted):
    for start in range(2):
        bounds = [
            e["elbo"] for e in fitted.history_ if e["restart"] == start and e["phase"] == "exact"
        ]
        assert np.all(np.diff(bounds) >= -1e-8 * abs(bounds[-1]))
    assert np.isnan(fitted.history_[-1]["noise_std"])
    assert not hasattr(fitted, "noise_std_")


def test_helpers_change_no_result(data, waiting_helper):
    X, y, _ = data
    first = model(n_init=3, n_jobs=1).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(model(n_init=3, n_jobs=2).fit(X, y).predict_proba(X), first)


def test_pickle_and_clone(fitted, data):
    X = data[0]
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    fresh = clone(fitted)
    assert not hasattr(fresh, "classes_")
    assert fresh.get_params().keys() == fitted.get_params().keys()
    assert "noise_prior" not in fresh.get_params()


def test_verbose_says_no_noise(data, capsys):
    model(verbose=1).fit(*data[:2])
    assert "nan" not in capsys.readouterr().out
