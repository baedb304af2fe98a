"""Scorers for scikit-learn's model selection, against closed forms and scoringrules."""

from functools import partial

import numpy as np
import pytest
import scoringrules
from scipy import stats
from sklearn import clone, config_context
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
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


class Told:
    """An estimator whose predictive distribution is given."""

    def __init__(self, quantile, cdf):
        self.discrete, self.quantile, self.cdf = True, quantile, cdf

    def predict_dist(self, X):
        return self

    def __len__(self):
        return 50


@pytest.mark.parametrize("mean", [0.05, 2.0, 40.0, 5000.0])
def test_crps_of_counts_is_that_of_scoringrules(mean):
    y = np.random.default_rng(0).poisson(mean, 50).astype(float)
    size, p = 2.0, 2.0 / (2.0 + mean)
    cases = [(stats.nbinom(size, p), scoringrules.crps_negbinom(y, size, p))]
    if mean < 100.0:  # beyond, that of scoringrules overflows
        cases.append((stats.poisson(mean), scoringrules.crps_poisson(y, mean)))
    for law, expected in cases:
        estimator = Told(lambda q, law=law: np.full(50, law.ppf(q)), law.cdf)
        tolerance = 1e-6 if mean < 100.0 else 1e-3  # large counts have quadrature
        score = scorers.neg_crps(estimator, None, y)
        assert score == pytest.approx(-expected.mean(), rel=tolerance)


def test_counts_of_a_model_are_scored(model):
    y = np.random.default_rng(1).poisson(np.exp(X[:, 0])).astype(float)
    counts = BTNRegressor(structure="sums", likelihood="poisson", random_state=0).fit(X, y)
    draws = counts.predict_dist(X).sample(4000, random_state=0)
    expected = scoringrules.crps_ensemble(y, draws).mean()
    assert scorers.neg_crps(counts, X, y) == pytest.approx(-expected, rel=0.01)
    low, high = counts.predict_interval(X).T
    expected = scoringrules.interval_score(y, low, high, 0.05).mean()
    assert scorers.neg_interval_score(counts, X, y) == pytest.approx(-expected)
    assert scorers.coverage(counts, X, y) == np.mean((low <= y) & (y <= high))


def test_weights_reach_the_scorers_of_model_selection():
    weight = np.where(np.arange(160) % 2, 1.0, 5.0)
    scoring = {
        "all": scorers.weighted(scorers.neg_crps),
        "half": scorers.weighted(partial(scorers.coverage, level=0.5)),
        "even": scorers.neg_crps,
    }
    model = BTNRegressor(structure="sums", random_state=0)
    expected = {name: [] for name in scoring}
    for train, test in KFold(2).split(X):
        fold = clone(model).fit(X[train], Y[train], sample_weight=weight[train])
        for name, scorer in scoring.items():
            some = None if name == "even" else weight[test]
            expected[name].append(scorer(fold, X[test], Y[test], some))
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True)
        scaler = StandardScaler(with_mean=False, with_std=False)
        pipeline = make_pipeline(scaler.set_fit_request(sample_weight=False), model)
        how = {"cv": KFold(2), "scoring": scoring}
        found = cross_validate(pipeline, X, Y, **how, params={"sample_weight": weight})
        grid = {"likelihood": ["gaussian"]}
        search = GridSearchCV(model, grid, **how, refit="all").fit(X, Y, sample_weight=weight)
    for name, scores in expected.items():
        assert found[f"test_{name}"] == pytest.approx(scores)
        assert search.cv_results_[f"mean_test_{name}"][0] == pytest.approx(np.mean(scores))
    assert scorers.neg_crps(search, X, Y) < 0.0


@pytest.mark.parametrize("name", ALL)
def test_targets_that_do_not_match_the_rows_are_refused(model, name):
    for wrong in (Y_NEW[:, None], Y_NEW[:1]):
        with pytest.raises(ValueError, match=r"y must .*\(80,\), one value per .* got shape"):
            ALL[name](model, NEW, wrong)


def test_an_estimator_without_a_distribution_is_refused():
    model = BTNClassifier(structure="sums").fit(X, Y > 0)
    with pytest.raises(TypeError, match="must have predict_dist, as BTNRegressor has, got BTNCl"):
        scorers.log_density(model, X, Y > 0)
