"""Batches one after the other come close to all rows at once, and a fit can go on from another."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from btnkm import BTNClassifier, BTNRegressor
from btnkm.core.cavi import Data
from btnkm.core.past import Past

SMALL = {"n_basis": 6, "max_rank": 4, "n_init": 2, "max_iter": 30, "random_state": 0, "n_jobs": 1}


def rows(n, seed, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    f = np.sin(3.0 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2
    return X, f, f + noise * rng.standard_normal(n)


def batches(n, count):
    return np.array_split(np.arange(n), count)


@pytest.mark.parametrize("kind", ["cp", "tt", "student_t"])
def test_batches_come_close_to_all_rows(kind):
    X, _, y = rows(2000, 0)
    new, f, y_new = rows(1000, 1)
    more = {"likelihood": "student_t"} if kind == "student_t" else {"network": kind}
    if kind == "tt":
        more |= {"cores": "full", "mode_order": "given"}
    model = BTNRegressor(**SMALL, **more)

    def gap():
        distribution = model.predict_dist(new)
        low, high = model.predict_interval(new, level=0.9).T
        return (
            np.sqrt(np.mean((distribution.mean - f) ** 2)),
            -np.mean(distribution.logpdf(y_new)),
            np.mean((y_new >= low) & (y_new <= high)),
        )

    model.fit(X[:250], y[:250])
    first = gap()
    model.fit(X, y)
    whole = gap()
    streamed = BTNRegressor(**SMALL, **more)
    for part in batches(2000, 8):
        streamed.partial_fit(X[part], y[part])
    model = streamed
    error, nll, coverage = gap()
    assert error < whole[0] + 0.25 * (first[0] - whole[0])
    assert nll < whole[1] + 0.01
    assert 0.86 < coverage < 0.94
    assert streamed.noise_std_ == pytest.approx(0.3, rel=0.05)


def test_labels_in_batches():
    X, _, y = rows(2000, 0)
    new, _, y_new = rows(1000, 1)
    nll = []
    for count in (1, 4):
        model = BTNClassifier(**SMALL)
        for part in batches(2000, count):
            model.partial_fit(X[part], y[part] > 0.3)
        p = model.predict_proba(new)
        nll.append(-np.mean(np.log(p[np.arange(len(new)), (y_new > 0.3).astype(int)])))
    assert nll[1] < nll[0] + 0.01
    before = model.predict_proba(new)
    with pytest.raises(ValueError, match=r"classes of the first rows, \[False, True\], got 2"):
        model.partial_fit(X, np.full(2000, 2))
    np.testing.assert_array_equal(model.predict_proba(new), before)


def test_what_is_forgotten_makes_room_for_what_is_new():
    X, f, y = rows(600, 0, noise=0.1)
    other, g, z = rows(600, 1, noise=0.1)
    errors = {}
    for forget in (1.0, 0.2):
        model = BTNRegressor(**SMALL).partial_fit(X, y)
        for _ in range(3):
            model.partial_fit(other, -z, forget=forget)  # the world has turned
        errors[forget] = np.sqrt(np.mean((model.predict(other) + g) ** 2))
    assert errors[0.2] < 0.3 * errors[1.0]


def test_a_streamed_model_can_be_stored_on_the_way():
    X, _, y = rows(600, 0)
    model = BTNRegressor(**SMALL).partial_fit(X[:300], y[:300])
    stored = pickle.loads(pickle.dumps(model))
    for m in (model, stored):
        m.partial_fit(X[300:], y[300:])
    np.testing.assert_array_equal(model.predict(X), stored.predict(X))


def test_batches_may_follow_a_fit():
    X, _, y = rows(600, 0)
    models = [BTNRegressor(**SMALL).fit(X[:300], y[:300])]
    models.append(BTNRegressor(**SMALL).partial_fit(X[:300], y[:300]))
    for model in models:
        model.partial_fit(X[300:], y[300:])
    np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X))


def test_relevance_is_that_of_the_function_whatever_the_batch():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (630, 2))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(630)
    model = BTNRegressor(**SMALL).partial_fit(X[:600], y[:600]).partial_fit(X[600:], y[600:])
    assert model.feature_relevance_[0] > 0.98


def test_later_batches_must_hold_what_the_likelihood_is_for():
    X, f, _ = rows(300, 0)
    counts = np.random.default_rng(0).poisson(np.exp(f)).astype(float)
    model = BTNRegressor(**SMALL, likelihood="negative_binomial").partial_fit(X, counts)
    with pytest.raises(ValueError, match="must hold counts"):
        model.partial_fit(X, counts - 3.0)
    model.partial_fit(X[:5], np.zeros(5))
    assert np.all(np.isfinite(model.predict(X)))


def test_a_stop_before_all_starts_have_gone_on_changes_nothing():
    X, _, y = rows(300, 0)
    model = BTNRegressor(**SMALL, warm_start=True).fit(X, y)
    before = model.predict(X)
    model.set_params(callback=lambda entry: True)
    with pytest.warns(ConvergenceWarning, match="the model is as it was"):
        model.fit(X, y)
    np.testing.assert_array_equal(model.predict(X), before)
    assert len(model.posterior_) == 2


def test_partial_fit_says_what_it_cannot_do():
    X, _, y = rows(100, 0)
    model = BTNRegressor(**{**SMALL, "max_iter": 3})
    for forget in (0.0, 1.5, "much", True):
        with pytest.raises(ValueError, match="forget must be above 0 and at most 1"):
            model.partial_fit(X, y, forget=forget)
    going_on = BTNRegressor(**{**SMALL, "max_iter": 3}, warm_start=True).fit(X, y).fit(X, y)
    with pytest.raises(ValueError, match="must go on from up to 262,144 rows"):
        going_on.partial_fit(X, y)
    with pytest.raises(ValueError, match=r"got none of \[2\]; make it larger"):
        BTNClassifier(**SMALL).partial_fit(X, y > 0.3, classes=[0, 1, 2])
    fresh = BTNRegressor(**{**SMALL, "max_iter": 3}).partial_fit(X, y)
    with pytest.raises(ValueError, match="3 features"):
        fresh.partial_fit(X[:, :2], y)


@pytest.mark.parametrize("estimator", [BTNRegressor, BTNClassifier])
def test_a_fit_goes_on_from_the_posterior_there_is(estimator):
    X, _, y = rows(500, 0)
    y = y if estimator is BTNRegressor else y > 0.3
    short = estimator(**{**SMALL, "max_iter": 4, "tol": 0.0}, warm_start=True).fit(X, y)
    bound, sweeps = short.lower_bound_, short.n_iter_
    short.fit(X, y)
    assert short.n_iter_ < sweeps  # no phase before the exact one
    assert short.lower_bounds_[0] >= bound - 1e-6 * abs(bound)
    assert short.lower_bound_ > bound
    anew = estimator(**{**SMALL, "max_iter": 4, "tol": 0.0}).fit(X, y)
    assert anew.fit(X, y).n_iter_ == sweeps
    with pytest.raises(ValueError, match="leave one of them out"):
        short.fit(X, y, checkpoint="somewhere")


def test_classes_that_weigh_more_still_do_after_going_on():
    X, _, y = rows(500, 0)
    model = BTNClassifier(**SMALL, class_weight="balanced", warm_start=True).fit(X, y > 0.8)
    before = model.predict_proba(X)[:, 1].mean()
    for _ in range(2):
        model.fit(X, y > 0.8)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(before, abs=0.02)


def test_the_past_is_a_sum():
    rng = np.random.default_rng(0)

    def make():
        modes = tuple((rng.random((3, 3)), rng.random((2, 2))) for _ in range(2))
        return Past(Data(*rng.random(2)), modes, (rng.random(),), rng.random(2))

    a, b = make(), make()
    both = a + b.weighed(0.5)
    assert both.data.n == pytest.approx(a.data.n + 0.5 * b.data.n)
    np.testing.assert_allclose(both.modes[1][0], a.modes[1][0] + 0.5 * b.modes[1][0])
    np.testing.assert_allclose(both.information, a.information + 0.5 * b.information)
