"""Exposures of counts: against GLMs, repeated rows, and everywhere a model goes."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import btnkm
from btnkm import BTNRegressor, scorers
from btnkm.cli import program
from btnkm.explain import conditional_coverage, summary

sm = pytest.importorskip("statsmodels.api")

SUMS = {"structure": "sums", "n_init": 1, "random_state": 0}


def claims(n=300, seed=0):
    """Return inputs, exposures and counts of a linear truth."""
    rng = np.random.default_rng(seed)
    X, exposure = rng.standard_normal((n, 2)), np.exp(rng.normal(0.0, 1.0, n))
    mean = exposure * np.exp(0.5 + 0.5 * X[:, 0] - 0.3 * X[:, 1])
    return X, exposure, rng.poisson(mean).astype(float)


@pytest.mark.parametrize("structure", ["sums", "full"])
def test_a_linear_truth_is_found_as_by_a_glm(structure):
    X, exposure, y = claims(150)
    design = sm.add_constant(X)
    glm = sm.GLM(y, design, family=sm.families.Poisson(), exposure=exposure).fit()
    for likelihood in ("poisson", "negative_binomial"):
        model = BTNRegressor(likelihood=likelihood, **SUMS | {"structure": structure})
        model.fit(X, y, exposure=exposure)
        rate = np.log(model.predict(X))
        found, *_ = np.linalg.lstsq(design, rate, rcond=None)
        np.testing.assert_allclose(found, glm.params, atol=1.2 * glm.bse.max())
        without = BTNRegressor(likelihood=likelihood, **SUMS).fit(X, y)
        gain = scorers.log_density(model, X, y, exposure=exposure) - scorers.log_density(
            without, X, y
        )
        assert gain > 0.2


def test_an_exposure_of_k_is_k_rows_of_a_poisson():
    """The sum of k Poisson counts of one rate is a Poisson count with exposure k."""
    rng = np.random.default_rng(1)
    X, k = rng.standard_normal((60, 2)), rng.integers(1, 5, 60)
    rows = np.repeat(np.arange(60), k)
    each = rng.poisson(np.exp(0.3 + 0.6 * X[rows, 0])).astype(float)
    total = np.bincount(rows, each)
    likelihood = btnkm.core.likelihoods.Poisson(limit=100.0)
    model = BTNRegressor(likelihood=likelihood, **SUMS, tol=0, max_iter=60)
    apart = model.fit(X[rows], each).predict(X)
    together = model.fit(X, total, exposure=k).predict(X)
    # inputs are scaled by the rows, which are not the same
    np.testing.assert_allclose(together, apart, rtol=0.02)


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_an_exposure_of_one_changes_nothing(likelihood):
    X, exposure, y = claims(120)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(years=1.0, claims=y)
    model = BTNRegressor(likelihood=likelihood, **SUMS)
    before = model.fit(X, y).predict(X)
    model.fit(frame, "claims", exposure="years")
    assert (model.fitted_.exposed, model.fitted_.exposure_name) == (True, "years")
    assert model.target_name_ == "claims"
    np.testing.assert_allclose(model.predict(frame[["a", "b"]]), before, rtol=1e-6)
    model.partial_fit(frame[["a", "b"]], y, exposure=exposure)  # it had one every time
    with pytest.raises(ValueError, match="exposure needs a likelihood of counts"):
        BTNRegressor(**SUMS).fit(X, y, exposure=np.ones(120))


def test_compared_structures_and_streams_have_exposures():
    X, exposure, y = claims(80)
    model = BTNRegressor(likelihood="negative_binomial", n_init=1, max_iter=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, exposure=exposure)
        stream = BTNRegressor(likelihood="poisson", **SUMS)
        for part in np.split(np.arange(80), 2):
            stream.partial_fit(X[part], y[part], exposure=exposure[part])
    truth = 0.5 + 0.5 * X[:, 0] - 0.3 * X[:, 1]
    for fitted in (model, stream):
        assert np.sqrt(np.mean((np.log(fitted.predict(X)) - truth) ** 2)) < 0.4
    with pytest.raises(ValueError, match="exposure must be given for all batches"):
        stream.partial_fit(X, y)


def test_a_warm_start_has_exposures_always_or_never():
    X, exposure, y = claims(60)
    model = BTNRegressor(**SUMS, likelihood="gaussian", warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="^exposure must be given for all batches.*without it"):
        model.fit(X, y, exposure=exposure)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(years=exposure, months=12 * exposure)
    how = {"structure": "tensor", "n_init": 2, "max_iter": 3, "warm_start": True}
    model = BTNRegressor(likelihood="poisson", random_state=0, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(frame.drop(columns="months"), y, exposure="years")
        with pytest.raises(ValueError, match="^exposure must be given for all batches.*with it"):
            model.fit(frame[["a", "b"]], y)
        before = model.posterior_
        model.set_params(callback=lambda sweep: True)
        model.fit(frame.drop(columns="years"), y, exposure="months")
        assert model.posterior_ is before
        assert model.fitted_.exposure_name == "years"
        model.set_params(callback=None).fit(frame.drop(columns="years"), y, exposure="months")
    assert model.fitted_.exposure_name == "months"


def test_every_prediction_has_exposures(tmp_path):
    X, exposure, y = claims(150)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(years=exposure, claims=y)
    model = BTNRegressor(likelihood="negative_binomial", **SUMS)
    model.fit(frame, "claims", exposure="years")
    assert model.target_name_ == "claims"
    assert list(model.feature_names_in_) == ["a", "b"]
    new = frame[["a", "b", "years"]]
    rate = model.predict(frame[["a", "b"]])
    np.testing.assert_allclose(model.predict(new, exposure="years"), exposure * rate)
    distribution = model.predict_dist(frame[["a", "b"]], exposure=exposure)
    np.testing.assert_array_equal(
        model.predict_interval(new, exposure="years"), distribution.interval()
    )
    np.testing.assert_array_equal(
        model.predict_quantiles(new, 0.9, exposure="years"), distribution.quantile(0.9)
    )
    draws = model.sample_y(new, 4000, exposure="years")
    np.testing.assert_allclose(draws.mean(axis=1), distribution.mean, rtol=0.25, atol=0.05)
    assert model.score(new, y, exposure="years") > 0.3
    for score in (model.score, partial(scorers.neg_crps, model)):
        with pytest.raises(ValueError, match="^exposure must be given to score a model"):
            score(frame[["a", "b"]], y)
    model.save(tmp_path / "claims.btn")
    loaded = btnkm.load(tmp_path / "claims.btn")
    assert loaded.fitted_.exposure_name == "years"
    np.testing.assert_array_equal(loaded.predict(new, exposure="years"), distribution.mean)


def test_exposures_are_routed_through_pipelines():
    X, exposure, y = claims(100)
    with sklearn.config_context(enable_metadata_routing=True):
        model = BTNRegressor(likelihood="poisson", **SUMS)
        model.set_fit_request(exposure=True).set_predict_request(exposure=True)
        pipeline = make_pipeline(StandardScaler(), model).fit(X, y, exposure=exposure)
        predicted = pipeline.predict(X, exposure=exposure)
        np.testing.assert_allclose(predicted, exposure * pipeline.predict(X))
        cv, scoring = KFold(2), scorers.weighted(scorers.log_density)
        params = {"exposure": exposure}
        found = cross_val_score(pipeline, X, y, cv=cv, params=params, scoring=scoring)
    for score, (train, test) in zip(found, cv.split(X), strict=True):
        scaler = StandardScaler().fit(X[train])
        fold = clone(model).fit(scaler.transform(X[train]), y[train], exposure=exposure[train])
        rows = scaler.transform(X[test])
        expected = scorers.log_density(fold, rows, y[test], exposure=exposure[test])
        assert score == pytest.approx(expected)


def test_the_program_reads_exposures(tmp_path, capsys):
    X, exposure, y = claims(120)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(years=exposure, claims=y.astype(int))
    table, model, out = (str(tmp_path / name) for name in ("t.csv", "m.btn", "p.csv"))
    frame.to_csv(table, index=False)
    options = ["--target", "claims", "--exposure", "years", "--likelihood", "poisson"]
    how = ["--set", "structure=sums", "--json"]
    assert program.main(["fit", table, *options, *how, "-o", model]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(one["name"] for one in found["inputs"]) == ["a", "b"]
    assert program.main(["predict", model, table, "-o", out]) == 0
    loaded = btnkm.load(model)
    expected = loaded.predict(frame[["a", "b", "years"]], exposure="years")
    np.testing.assert_allclose(pd.read_csv(out)["mean"], expected, rtol=1e-6)
    assert program.main(["info", model]) == 0
    assert "exposure    years" in capsys.readouterr().out
    frame.drop(columns="years").to_csv(table, index=False)
    assert program.main(["predict", model, table, "-o", out]) != 0
    assert "years" in capsys.readouterr().err
    recalibrate = ["calibrate", model, table, "-o", str(tmp_path / "c.btn")]
    assert program.main(recalibrate) != 0
    assert "model.calibrate(X, y, exposure=...) in Python" in capsys.readouterr().err


def test_an_exposure_without_a_name_is_noted(tmp_path, capsys):
    X, exposure, y = claims(60)
    fitted = BTNRegressor(**SUMS, likelihood="poisson").fit(X, y, exposure=exposure)
    assert "exposure" in summary(fitted).facts
    table, model, out = (str(tmp_path / name) for name in ("t.csv", "m.btn", "p.csv"))
    pd.DataFrame(X).to_csv(table, index=False)
    fitted.save(model)
    assert program.main(["predict", model, table, "-o", out]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "whose column has no name: predictions are for an exposure of 1." in said
    np.testing.assert_allclose(pd.read_csv(out)["mean"], fitted.predict(X), rtol=1e-6)
    assert program.main(["info", model]) == 0
    assert "exposure    given, without a name" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("likelihood", "wrong"),
    [
        ("gaussian", {"_exposed": True}),
        ("poisson", {"_exposure_name": "years"}),
        ("zero_inflated_negative_binomial", {"zero": 1.5}),
    ],
)
def test_files_whose_exposures_cannot_be_are_refused(likelihood, wrong, tmp_path):
    X, _, y = claims(60)
    model = BTNRegressor(**SUMS, likelihood=likelihood, max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    path = tmp_path / "wrong.btn"
    model.save(path)
    btnkm.load(path)
    if "zero" in wrong:
        model.likelihood_ = replace(model.likelihood_, **wrong)
    else:
        vars(model).update(wrong)
    model.save(path)
    with pytest.raises(ValueError, match="^path must name a model saved by btnkm"):
        btnkm.load(path)


@pytest.mark.parametrize(
    ("exposure", "message"),
    [
        ("typo", "^exposure must name a column of X, got 'typo'"),
        (2.0, r"^exposure must be one positive number per row, got 2.0; pass np.full\("),
        (["a"] * 60, r"^exposure must be one positive number per row, got \['a', 'a'"),
        (np.ones((60, 2)), r"^exposure must be one positive number per row, got shape \(60, 2\);"),
    ],
)
def test_what_is_no_exposure_is_named(exposure, message):
    X, _, y = claims(60)
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = BTNRegressor(**SUMS, likelihood="poisson", max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in (partial(model.fit, y=y), model.fit(frame, y).predict):
            with pytest.raises(ValueError, match=message):
                method(frame, exposure=exposure)


def test_what_has_no_exposure_is_refused(tmp_path):
    X, exposure, y = claims(60)
    model = BTNRegressor(**SUMS, likelihood="gaussian")
    with pytest.raises(ValueError, match="exposure needs a likelihood of counts"):
        model.fit(X, y, exposure=exposure)
    with pytest.raises(ValueError, match="exposure is for counts"):
        model.fit(X, y).predict(X, exposure=exposure)
    counts = BTNRegressor(**SUMS, likelihood="poisson")
    with pytest.raises(ValueError, match="exposure must be positive"):
        counts.fit(X, y, exposure=0.0 * exposure)
    stored = np.memmap(tmp_path / "rows", dtype=float, mode="w+", shape=X.shape)
    with pytest.raises(TypeError, match="exposure needs a table in memory"):
        counts.fit(stored, y, exposure=exposure)
    with pytest.raises(TypeError, match="exposure needs a table in memory, got an iterable"):
        counts.fit([(X, y)], exposure=exposure)
    counts.fit(X, y, exposure=exposure)
    with pytest.raises(ValueError, match="targets must be left out"):
        counts.report(tmp_path / "r.html", X, y)
    with pytest.raises(ValueError, match="targets must be left out"):
        conditional_coverage(counts, X, y)
