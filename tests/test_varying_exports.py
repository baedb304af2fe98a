"""Models whose noise varies say the same as graphs and pages."""

from __future__ import annotations

import array_api_strict as strict
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from btnkm import BTNRegressor, explain
from btnkm.cli import program
from btnkm.io.portable import portable
from btnkm.likelihoods import StudentT
from btnkm.report.panel import _likely_range, with_categories
from btnkm.testing import check_likelihood
from tests.test_files_models import answers
from tests.test_onnx import check as check_graph
from tests.test_portable import rows_of
from tests.test_sums_exports import asked
from tests.test_varying_files import MODELS, PLACE, VARYING, fitted, numbers, own, quietly
from tests.test_what_if import compare


def test_plain_data_tell_which_restarts_have_noise_that_varies():
    data = portable(fitted("mixture")[0])
    assert data["format"] == 5
    assert [start["noise"] is None for start in data["restarts"]] == [False, False, True]
    noise = data["restarts"][0]["noise"]
    size = own(fitted("mixture")[0]).sums.size
    assert noise["mean"].shape == (1, size)
    assert noise["cov"].shape == (1, size * (size + 1) // 2)


def test_noise_without_a_portable_form_is_refused_in_one_sentence():
    class Own(StudentT):
        pass

    X, y = numbers(80)
    model = quietly(BTNRegressor(**VARYING, structure="sums", likelihood=Own(dof=5.0)).fit, X, y)
    with pytest.raises(TypeError, match=r"^the likelihood Own has no portable form; define"):
        portable(model)


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_says_what_the_model_says(name):
    check_graph(*fitted(name))


def test_a_graph_says_the_same_of_rows_like_none_before():
    model, X = fitted("sums+tensor")
    rng = np.random.default_rng(0)
    wild = X.sample(60, replace=True, random_state=0).reset_index(drop=True)
    wild["size"] *= rng.choice([1.0, -3.0, 1e6], len(wild))
    wild.loc[::4, "place"], wild.loc[1::4, "place"] = "new", None
    for column in ("size", "since", "pay", "whole"):
        wild[column] = wild[column].mask(rng.random(len(wild)) < 0.3)
    check_graph(model, wild)


@pytest.mark.parametrize("name", MODELS)
def test_the_page_says_what_the_model_says(name):
    model, X = fitted(name)
    compare(model, X, asked(portable(model), rows_of(X)))


def test_a_page_that_knows_some_categories_takes_the_others_for_new_ones():
    model, X = fitted("many categories")
    names = list(model.columns_[PLACE].categories)
    kept = names[1:15:2]
    data = with_categories(portable(model), {PLACE: kept})
    X = X.assign(place=np.resize(np.array([*kept, None, "never seen"], dtype=object), len(X)))
    compare(model, X, asked(data, rows_of(X)))
    output = asked(data, rows_of(X.assign(place=names[0])))
    compare(model, X.assign(place="never seen"), output)


@pytest.mark.parametrize("name", ["sums", "full", "mixture"])
def test_a_report_is_written_with_its_panel(name, tmp_path):
    model, X = fitted(name)
    y = model.predict(X)
    text = model.report(tmp_path / "report.html", X, y).read_text(encoding="utf-8")
    assert 'id="what-if-numbers"' in text
    assert str(explain.summary(model))


def test_the_axis_of_the_panel_has_room_for_the_noise_of_most_rows():
    model, X = fitted("sums")
    X, (low, high) = X.dropna(), _likely_range(model)  # missing values are not drawn
    ends = model.predict_dist(X).interval(0.95)
    assert np.mean(ends[:, 0] >= low) > 0.9
    assert np.mean(ends[:, 1] <= high) > 0.9
    quiet = model.predict_dist(X.assign(size=X["size"].min(), place="level 0", pay=0.0))
    assert high - low > 2.0 * np.max(np.ptp(quiet.interval(0.95), axis=1))


# ---- whatever else asks for the distribution of rows ---------------------------------------------


@pytest.mark.parametrize("name", ["sums+tensor", "full", "train", "mixture"])
def test_draws_have_the_noise_of_their_rows(name):
    model, X = fitted(name)
    X = X[X["place"] != "never seen"]
    draws = model.sample_y(X, 2000, random_state=1)
    pit = np.mean(draws[:, :, None] <= model.predict_quantiles(X, [0.1, 0.5, 0.9])[:, None], axis=1)
    np.testing.assert_allclose(pit, np.tile([0.1, 0.5, 0.9], (len(X), 1)), atol=0.06)


def test_calibration_is_that_of_the_predictive_distribution():
    model, X = fitted("sums+tensor")
    y = model.sample_y(X, random_state=0)[:, 0]
    distribution = model.predict_dist(X)
    told = explain.calibration(model, X, y)
    np.testing.assert_allclose(told.pit, distribution.cdf(y))
    assert told.log_density == pytest.approx(np.mean(distribution.logpdf(y)))
    residuals = explain.residuals(model, X, y)
    np.testing.assert_allclose(residuals.std, distribution.std)


@pytest.mark.parametrize("name", ["sums+tensor", "full", "mixture"])
def test_predictions_do_not_depend_on_how_many_rows_there_are(name):
    model, X = fitted(name)
    expected = model.predict_interval(X)
    for part in (slice(0, 1), slice(3, 20), slice(0, 0)):
        told = model.predict_interval(X.iloc[part])
        np.testing.assert_allclose(told, expected[part], rtol=1e-9, atol=1e-9)
    many = X.sample(9000, replace=True, random_state=0)  # in several blocks
    means, stds = model.predict(many, return_std=True)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(means, mean[many.index], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(stds, std[many.index], rtol=1e-9)


@pytest.mark.parametrize("structure", ["sums+tensor", "full"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_of_another_array_library_have_the_same_noise(structure, dtype):
    X, y = numbers()
    X[::9, 2] = np.nan
    estimator = BTNRegressor(**VARYING, structure=structure)
    model = quietly(clone(estimator).fit, X, y)
    kind = getattr(strict, dtype)
    there = strict.asarray(X, dtype=kind)
    again = quietly(clone(estimator).fit, there, strict.asarray(y, dtype=kind))
    expected = answers(model, X)[1:5]
    for each in (model, again):
        told = answers(each, there)[1:5]
        for a, b in zip(told, expected, strict=True):
            assert a.dtype == kind
            np.testing.assert_allclose(np.asarray(a), b, atol=1e-5 if dtype == "float64" else 1e-3)


def test_the_program_predicts_intervals_and_quantiles(tmp_path, capsys):
    X, y = numbers()
    X = pd.DataFrame(X, columns=list("abc"))
    model = quietly(BTNRegressor(**VARYING, structure="sums+tensor").fit, X, y)
    model.save(tmp_path / "m.btn")
    X.to_csv(tmp_path / "new.csv", index=False)
    names = [str(tmp_path / name) for name in ("m.btn", "new.csv", "out.csv")]
    how = ["--interval", "0.8", "--quantiles", "0.1,0.7"]
    assert program.main(["predict", *names[:2], *how, "-o", names[2]]) == 0
    told, (mean, std) = pd.read_csv(names[2]), model.predict(X, return_std=True)
    expected = [mean, std, *model.predict_interval(X, 0.8).T]
    expected += list(model.predict_quantiles(X, [0.1, 0.7]).T)
    assert list(told) == ["mean", "std", "low", "high", "q0.1", "q0.7"]
    np.testing.assert_allclose(told.to_numpy(), np.column_stack(expected), rtol=1e-9)
    assert np.ptp(told["std"]) > 0.1


def test_noise_that_was_fitted_is_no_likelihood_to_begin_with():
    model, X = fitted("sums")
    y = model.predict(X)
    assert repr(model.likelihood_) == "Varying(noise_at_zero=Gaussian())"
    with pytest.raises(ValueError, match=r"^likelihood must be 'auto', one of .*, got Varying\("):
        BTNRegressor(likelihood=model.likelihood_).fit(X, y)
    with pytest.raises(TypeError, match="depends on the inputs, Varying.*; check its noise_at_ze"):
        check_likelihood(model.likelihood_, np.resize(y, 200))
