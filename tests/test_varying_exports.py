"""Models whose noise varies say the same as graphs and pages."""

from __future__ import annotations

import numpy as np
import pytest

from btnkm import BTNRegressor, explain
from btnkm.io.portable import portable
from btnkm.likelihoods import StudentT
from btnkm.report.panel import _likely_range, with_levels
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
    names = list(model.columns_[PLACE].levels)
    kept = names[1:15:2]
    data = with_levels(portable(model), {PLACE: kept})
    X = X.assign(place=np.resize(np.array([*kept, None, "never seen"], dtype=object), len(X)))
    compare(model, X, asked(data, rows_of(X)))
    said = asked(data, rows_of(X.assign(place=names[0])))
    compare(model, X.assign(place="never seen"), said)


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
