"""Scorers for scikit-learn's model selection, against closed forms and scoringrules."""

from functools import partial

import numpy as np
import pytest
import scoringrules
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from btnkm import BTNClassifier, BTNRegressor, scorers

ALL = {
    name: getattr(scorers, name)
    for name in ("log_density", "neg_crps", "neg_interval_score", "coverage")
}
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (160, 2))
Y = 10.0 * np.sin(3.0 * X[:, 0]) + RNG.normal(size=160)
NEW, Y_NEW = X[80:], Y[80:]


@pytest.fixture(scope="module")
def model():
    return BTNRegressor(structure="sums", random_state=0).fit(X[:80], Y[:80])


def test_crps_is_that_of_scoringrules(model):
    distribution = model.predict_dist(NEW)
    draws = distribution.sample(20_000, random_state=0)
    expected = scoringrules.crps_ensemble(Y_NEW, draws).mean()
    assert scorers.neg_crps(model, NEW, Y_NEW) == pytest.approx(-expected, rel=0.01)
    # the noise of a sum with so many rows is close to normal
    normal = scoringrules.crps_normal(Y_NEW, distribution.mean, distribution.std).mean()
    assert scorers.neg_crps(model, NEW, Y_NEW) == pytest.approx(-normal, rel=0.01)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_interval_score_and_coverage_are_those_of_the_intervals(model, level):
    low, high = model.predict_interval(NEW, level=level).T
    expected = scoringrules.interval_score(Y_NEW, low, high, 1.0 - level).mean()
    score = scorers.neg_interval_score(model, NEW, Y_NEW, level=level)
    assert score == pytest.approx(-expected, rel=1e-9)
    inside = np.mean((low <= Y_NEW) & (high >= Y_NEW))
    assert scorers.coverage(model, NEW, Y_NEW, level=level) == inside


def test_log_density_is_that_of_the_distribution(model):
    expected = model.predict_dist(NEW).logpdf(Y_NEW).mean()
    assert scorers.log_density(model, NEW, Y_NEW) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_weights_count_rows(model, name):
    twice = np.repeat(NEW, 2, axis=0), np.repeat(Y_NEW, 2)
    weights = np.ones(80)
    weights[:40] = 3.0
    some = np.concatenate([np.repeat(NEW[:40], 3, axis=0), NEW[40:]])
    y = np.concatenate([np.repeat(Y_NEW[:40], 3), Y_NEW[40:]])
    scorer = ALL[name]
    assert scorer(model, NEW, Y_NEW, weights) == pytest.approx(scorer(model, some, y))
    assert scorer(model, *twice) == pytest.approx(scorer(model, NEW, Y_NEW))


def test_model_selection_takes_them():
    model = BTNRegressor(structure="sums", random_state=0)
    scores = cross_validate(model, X, Y, scoring=ALL, cv=3)
    assert np.all(scores["test_log_density"] < 0.0)
    assert np.all(scores["test_coverage"] > 0.8)
    pipeline = make_pipeline(StandardScaler(), model)
    half = partial(scorers.coverage, level=0.5)
    assert 0.3 < cross_val_score(pipeline, X, Y, scoring=half, cv=3).mean() < 0.7
    grid = {"btnregressor__likelihood": ["gaussian", "student_t"]}
    search = GridSearchCV(pipeline, grid, scoring=scorers.log_density, cv=2).fit(X, Y)
    assert scorers.log_density(search, X, Y) > search.best_score_ - 1.0


def test_an_estimator_without_a_distribution_is_refused():
    model = BTNClassifier(structure="sums").fit(X, Y > 0)
    with pytest.raises(TypeError, match="must have predict_dist, as BTNRegressor has, got BTNCl"):
        scorers.log_density(model, X, Y > 0)
