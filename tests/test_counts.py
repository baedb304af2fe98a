"""Counts: effects that a GLM finds, no effects in noise, zero inflation, and hints."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.feature_selection import SelectFromModel

import btnkm
from btnkm import BTNClassifier, BTNRegressor, TargetHint
from btnkm.core.evidence import Evidence, Pairs, Parts
from btnkm.core.full_fit import FullFit
from btnkm.core.full_sites import Observations
from btnkm.core.gamma import Gamma
from btnkm.core.likelihoods import NegativeBinomial, ZeroInflatedNegativeBinomial
from btnkm.explain import interactions, sobol_indices, summary
from btnkm.hints import _skewness
from btnkm.testing import check_likelihood
from btnkm.warn import passing_on, warn

SUMS = {"structure": "sums", "n_init": 1, "random_state": 0}
PRIOR = Gamma(1e-6, 1e-6)


def zero_inflated(n, seed=0, effect=0.5, inputs=6):
    """Return rows of which half are always zero, and two of the inputs matter."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, inputs))
    rate = np.exp(0.8 + effect * (X[:, 0] - X[:, 1])) * rng.gamma(0.7, 1 / 0.7, n)
    return X, rng.poisson(rate) * (rng.random(n) < 0.5).astype(float)


@pytest.mark.parametrize("structure", ["sums", "full"])
def test_effects_of_a_glm_are_found(structure):
    """By the ELBO of the bound, f = 0 is best for the full tensor of such rows."""
    sm = pytest.importorskip("statsmodels.api")
    X, y = zero_inflated(1300)
    X, y, new, y_new = X[:300], y[:300], X[300:], y[300:]
    glm = sm.NegativeBinomial(y, sm.add_constant(X)).fit(disp=0)
    alone = sm.NegativeBinomial(y, np.ones((300, 1))).fit(disp=0)
    assert np.all(np.abs(glm.tvalues[1:3]) > 3.0)
    assert np.all(np.abs(glm.tvalues[3:-1]) < 3.0)
    model = BTNRegressor(likelihood="negative_binomial", **SUMS | {"structure": structure})
    model.fit(X, y)
    nothing = replace(NegativeBinomial(size=1.0 / alone.params[-1]), offset=alone.params[0])
    nothing = nothing.moved(np.log(alone.params[-1])).predictive(
        np.zeros(len(new)), np.zeros(len(new))
    )
    gain = len(y) * (model.predict_dist(new).logpdf(y_new) - nothing.logpdf(y_new)).mean()
    assert gain > 5.0
    assert sorted(np.argsort(-model.feature_importances_)[:2]) == [0, 1]
    assert model.feature_importances_[:2].min() > 0.1


def test_the_evidence_of_sites_has_the_slope_of_the_elbo():
    X, y = zero_inflated(60, inputs=2)
    columns = tuple(np.column_stack([x, x, np.ones(60)]) for x in X.T)
    every = np.arange(2)
    parts = Parts(np.zeros(2, bool), every, every, np.array([], int), every)
    rows = Observations(columns, y, np.ones(60))
    fit = FullFit(parts, NegativeBinomial(size=0.5).begin(y, None).likelihood, None, PRIOR)
    theta = fit.layout.begin()

    def elbo(theta):
        matrix = fit._matrix(rows, theta)
        sites = fit._refined(rows, matrix, begun)
        known = sites.updated(rows, matrix, PRIOR, refresh=False)
        return known.elbo(rows, PRIOR) + fit.layout.prior(theta)[0]

    begun = None
    begun = fit._refined(rows, fit._matrix(rows, theta))
    evidence = Evidence(Pairs(columns, parts), fit.layout, begun.target, begun.noise)
    slopes = -evidence(theta)[1]
    step = 1e-3 * np.eye(len(theta))
    numerical = np.array([(elbo(theta + s) - elbo(theta - s)) / 2e-3 for s in step])
    # the refinement averages the sigmoid to about 0.01
    np.testing.assert_allclose(slopes, numerical, atol=0.05 * np.abs(numerical).max())


def test_in_noise_nothing_is_found_and_nothing_is_claimed(tmp_path):
    X, y = zero_inflated(200, effect=0.0)
    for model in (
        BTNRegressor(likelihood="negative_binomial", **SUMS),
        BTNRegressor(**SUMS, likelihood="gaussian"),
        BTNClassifier(**SUMS),
    ):
        with pytest.warns(UserWarning, match="no input was found to have an effect"):
            model.fit(X, np.random.default_rng(5).permutation(y > 0) * 1)
        np.testing.assert_array_equal(model.feature_importances_, 0.0)
        np.testing.assert_array_equal(model.feature_importances_std_, 0.0)
        assert sobol_indices(model).variance == 0.0
        assert all(pair.importance == 0.0 for pair in interactions(model))
        assert "the data show no effect of any input" in str(summary(model))
        assert SelectFromModel(model, prefit=True).transform(X).shape == X.shape
        model.save(tmp_path / "model.btn")
        again = btnkm.load(tmp_path / "model.btn")
        np.testing.assert_array_equal(again.feature_importances_, 0.0)
        text = model.report(tmp_path / "report.html").read_text()
        assert "The data show no effect of any input" in text
    X, y = zero_inflated(200, effect=1.0)
    found = model.fit(X, (X[:, 0] > 0) * 1).feature_importances_
    assert found.sum() == pytest.approx(1.0)  # and the next fit starts anew


# ---- zero inflation


@pytest.mark.parametrize("held", [{}, {"zero": 0.3}])
def test_conformance(held):
    y = zero_inflated(200)[1]
    check_likelihood(ZeroInflatedNegativeBinomial(**held), y)


def test_structural_zeros_are_found_as_by_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    X, y = zero_inflated(800, inputs=2)
    design = sm.add_constant(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = sm.ZeroInflatedNegativeBinomialP(y, design)
        start = [0.0, 0.8, 0.5, -0.5, 1.4]
        other = other.fit(start_params=start, disp=0, maxiter=500, method="bfgs")
    zero = 1.0 / (1.0 + np.exp(-other.params[0]))
    model = BTNRegressor(likelihood="zero_inflated_negative_binomial", **SUMS).fit(X, y)
    assert model.likelihood_.zero == pytest.approx(zero, abs=0.04)
    assert np.log(model.likelihood_.size * other.params[-1]) == pytest.approx(0.0, abs=0.3)
    slopes = np.linalg.lstsq(design, np.log(model.predict(X)), rcond=None)[0][1:]
    np.testing.assert_allclose(slopes, other.params[2:4], atol=1.2 * other.bse[2:4].max())
    terms = [entry["elbo"] for entry in model.history_ if entry["phase"] == "exact"]
    assert np.all(np.diff(terms) > -1e-8 * np.abs(terms[1:]))


def test_the_distribution_is_a_mixture():
    likelihood = ZeroInflatedNegativeBinomial(size=1.5, zero=0.3, offset=0.4)
    counts = np.arange(2000.0)
    for moments in ((-0.5, 0.05), (1.0, 0.3)):
        mean, variance = (np.full(2000, moment) for moment in moments)
        density = likelihood.predictive(mean, variance)
        inner = NegativeBinomial(size=1.5, offset=0.4).predictive(mean, variance)
        p = np.exp(density.logpdf(counts))
        assert p.sum() == pytest.approx(1.0, abs=1e-4)
        assert p[0] == pytest.approx(0.3 + 0.7 * np.exp(inner.logpdf(counts)[0]))
        assert p @ counts == pytest.approx(density.mean[0], rel=1e-3)
        total = density.model_variance[0] + density.noise_variance[0]
        assert p @ counts**2 - (p @ counts) ** 2 == pytest.approx(total, rel=0.02)
        np.testing.assert_allclose(density.cdf(counts), np.cumsum(p), rtol=1e-6)


def test_zero_inflation_goes_everywhere(tmp_path):
    X, y = zero_inflated(150, inputs=2)
    model = BTNRegressor(likelihood="zero_inflated_negative_binomial", **SUMS)
    model.fit(X, y, exposure=np.linspace(0.5, 2.0, 150))
    assert "zero-inflated negative binomial (size" in str(summary(model))
    np.testing.assert_allclose(model.predict(X, exposure=np.full(150, 2.0)), 2 * model.predict(X))
    model.save(tmp_path / "model.btn")
    again = btnkm.load(tmp_path / "model.btn")
    assert again.likelihood_ == model.likelihood_
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    pytest.importorskip("onnxruntime")
    from tests.test_onnx import check

    check(model, X)


# ---- hints


def hints(y, **how):
    """Return the texts of the hints after a fit to a single input that explains little."""
    X = np.column_stack([np.random.default_rng(1).standard_normal(len(y)), np.argsort(y)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        BTNRegressor(**SUMS, **how).fit(X, y)
    return [str(w.message) for w in caught if issubclass(w.category, TargetHint)]


def test_tiny_and_huge_targets_have_the_skewness_of_others():
    y = np.exp(np.random.default_rng(0).normal(size=100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scale in (1e-200, 1.0, 1e200):
            np.testing.assert_allclose(_skewness(scale * y), stats.skew(y))


def test_warnings_are_passed_on_to_the_nearest_receiver():
    outer, inner = [], []
    with passing_on(outer.append):
        with passing_on(inner.append):
            warn("one")
        warn("two")
    assert ([str(w) for w in inner], [str(w) for w in outer]) == (["one"], ["two"])


def test_exposures_need_their_name_on_dask_collections():
    da = pytest.importorskip("dask.array")
    X, y = zero_inflated(60)
    model = BTNRegressor(likelihood="poisson", max_iter=3, **SUMS).fit(X, y, exposure=np.ones(60))
    lazy = da.from_array(X, chunks=(30, 6))
    for call in (model.predict, model.predict_interval):
        with pytest.raises(TypeError, match="positional argument"):
            call(lazy, 0.5, np.ones(60))
        with pytest.raises(TypeError, match="exposure needs a table in memory"):
            call(lazy, 0.5, exposure=np.ones(60))


def test_targets_that_suit_another_likelihood_give_a_hint():
    rng = np.random.default_rng(0)
    counts = rng.negative_binomial(1, 0.2, 100)
    prices = np.exp(rng.normal(0.0, 1.5, 100))
    (text,) = hints(rng.integers(0, 2, 100))
    assert "BTNClassifier" in text
    (text,) = hints(counts)
    assert "likelihood='negative_binomial'" in text
    (text,) = hints(prices)
    assert "likelihood='log_normal'" in text
    for y in (
        rng.normal(size=100),
        rng.uniform(1.0, 2.0, 100),  # positive, as are its intervals
        rng.integers(1, 6, 100),  # ratings
        rng.integers(0, 11, 100),
        rng.binomial(4, 0.2, 100),  # few distinct
        counts[:30],  # few rows
    ):
        assert hints(y) == []
    assert hints(counts, likelihood="gaussian") == []


def test_classes_of_several_structures_have_a_level_each():
    """Structures hold the variance of the mean of f as a number or one for each class."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = (X[:, 0] > 0.4).astype(int) + (X[:, 0] > -0.4)
    model = BTNClassifier(n_init=1, max_iter=3, random_state=0).fit(X, y)
    assert model.feature_importances_.sum() == pytest.approx(1.0)
