"""The report: one file, complete, inert to any text of the user's, and right in its figures."""

from __future__ import annotations

import base64
import hashlib
import re
from copy import copy
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, r2_score
from sklearn.model_selection import KFold, StratifiedKFold

import btnkm
from btnkm import BTNClassifier, BTNRegressor, Solver
from btnkm.core.posterior import found_nothing
from btnkm.explain.diagnostics import History, Search, history
from btnkm.explain.sobol import interactions, sobol_indices
from btnkm.report import format
from btnkm.report import page as report_page
from btnkm.report.charts import axis
from btnkm.report.metrics import evaluate
from btnkm.report.warnings import notices
from tests.models import MAKERS, SMALL, fitted, smooth
from tests.problems import Hinges

NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(2)</script>",
    "",
    "x" * 300,
    "\U0001f600 \u202e txt \u2028",
    "{{style}} &amp; ${1+1} {{script}}",
    "' onmouseover='alert(3)",
]


class Page(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.scripts, self._inside = [], "", [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else None
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside is None:
            self.text += data


def written(model, folder, *args, **kwargs):
    return model.report(folder / "model.html", *args, **kwargs).read_text(encoding="utf-8")


def nasty_table():
    """Return a table whose names and categories would be markup if they were not escaped."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(160, len(NASTY))), columns=NASTY)
    place = rng.integers(len(NASTY), size=160)
    X[NASTY[1]] = np.array(NASTY, dtype=object)[place]
    y = pd.Series(X[NASTY[0]] + 0.3 * place + X[NASTY[4]] * X[NASTY[3]], name=NASTY[2])
    return X, y


@pytest.mark.parametrize("name", MAKERS)
def test_every_kind_of_model_has_a_report(name, tmp_path):
    model, X = fitted(name)
    page = Page(written(model, tmp_path))
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert [tag for tag, _ in page.elements if tag == "h1"] == ["h1"]
    assert [tag for tag, _ in page.elements if tag == "main"] == ["main"]
    assert "what-if-panel" in ids
    assert "nan" not in page.text
    assert "–" not in page.text.split("The fit")[-1]
    for tag, attributes in page.elements:
        for key in ("aria-labelledby", "aria-describedby", "for"):
            assert set(attributes.get(key, "").split()) <= set(ids), (tag, attributes)
        if tag == "svg" and attributes.get("role") == "img":
            assert "aria-labelledby" in attributes
        if tag == "a":
            assert attributes["href"].removeprefix("#") in ids


def test_a_page_is_complete_and_may_run_only_what_is_its_own(tmp_path):
    model, X = fitted("gaussian")
    text = written(model, tmp_path)
    page = Page(text)
    policy = next(a["content"] for _, a in page.elements if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; ")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    for kind, part in (("style", style), ("script", page.scripts[-1])):
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    for tag, attributes in page.elements:
        assert not {"src", "srcset", "data", "action", "style", "poster"} & set(attributes), tag
        assert not [key for key in attributes if key.startswith("on")]
        assert attributes.get("href", "#").startswith(("#", "data:,"))
    assert "http" not in style
    # the name of SVG, which is no address
    assert set(re.findall(r"https?://[^\"' ]*", page.scripts[-1])) == {"http://www.w3.org/2000/svg"}


def harmless(page):
    """Tell whether a page has the scripts it should have, and nothing that would run otherwise."""
    kinds = [a.get("type") for tag, a in page.elements if tag == "script"]
    handlers = [key for _, a in page.elements for key in a if key.startswith("on")]
    others = {tag for tag, _ in page.elements} & {"img", "iframe", "object", "embed", "base"}
    return kinds == ["application/json", "text/plain", None] and not handlers and not others


def test_no_text_of_the_users_is_markup(tmp_path):
    X, y = nasty_table()
    model = BTNRegressor(**SMALL).fit(X[:120], y[:120])
    text = written(model, tmp_path, X[120:], y[120:], title=NASTY[1])
    page = Page(text)
    assert harmless(page)
    assert "<script>alert" not in text
    for name in (NASTY[0], NASTY[1], NASTY[2], NASTY[6], NASTY[7]):
        assert name in page.text
    assert "(no name)" in page.text
    assert "\u202e" not in "".join(page.scripts)  # in JSON it is an escape
    classes = np.where(y > 0.0, NASTY[0], NASTY[2])
    model = BTNClassifier(**SMALL).fit(X[:120], classes[:120])
    page = Page(written(model, tmp_path, X[120:], classes[120:]))
    assert harmless(page)
    assert NASTY[0] in page.text


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    model, X = fitted("gaussian")
    path = tmp_path / "model.html"
    path.write_text("before")
    monkeypatch.setattr("btnkm.io.atomic_write.os.fsync", _refuse)
    with pytest.raises(OSError, match="no"):
        model.report(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    assert model.report(str(path)) == path
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr("btnkm.report.page.page", _refuse)  # the folder is checked before any work
    with pytest.raises(FileNotFoundError, match="path must be in a folder that can be written to"):
        model.report(tmp_path / "none" / "model.html")
    monkeypatch.setattr("btnkm.io.atomic_write.os.access", lambda *_: False)
    with pytest.raises(PermissionError, match="path must be in a folder that can be written to"):
        model.report(tmp_path / "model.html")


def _refuse(*_):
    raise OSError("no")


def test_paths_are_what_they_are_elsewhere(tmp_path, monkeypatch):
    model, _ = fitted("gaussian")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert model.report("~/home.html") == tmp_path / "home.html"
    assert (tmp_path / "home.html").is_file()
    for wrong in (None, 3, b"model.html"):
        with pytest.raises(TypeError, match="path must name a file, got .*'model.html'"):
            model.report(wrong)
    with pytest.raises(IsADirectoryError, match="path must name a file, got the folder"):
        model.report(tmp_path)


def test_half_a_character_in_a_name_is_no_matter(tmp_path):
    page = Page(written(fitted("gaussian")[0], tmp_path, title="half \ud800"))
    assert "half ?" in page.text


def test_rows_and_targets_come_together(tmp_path):
    model, X = fitted("gaussian")
    with pytest.raises(ValueError, match="X and y must be given together"):
        model.report(tmp_path / "model.html", X)
    with pytest.raises(ValueError, match="cv needs the training rows"):
        model.report(tmp_path / "model.html", cv=5)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.report(tmp_path / "model.html", X, np.zeros(3))


def test_held_out_figures_are_those_of_scikit_learn(tmp_path):
    model, X = fitted("gaussian")
    y = model.predict(X) + 3.0 * np.sin(np.arange(len(X)))
    actual = {metric.name: metric.value for metric in evaluate(model, X, y).metrics}
    mean = model.predict(X)
    assert actual["R²"] == pytest.approx(r2_score(y, mean))
    assert actual["MAE"] == pytest.approx(mean_absolute_error(y, mean))
    assert actual["RMSE"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert actual["NLL"] == pytest.approx(-np.mean(model.predict_dist(X).logpdf(y)))
    interval = model.predict_interval(X)
    inside = np.mean((interval[:, 0] <= y) & (y <= interval[:, 1]))
    coverage = evaluate(model, X, y).calibration
    assert coverage.coverage[coverage.levels == 0.95] == pytest.approx(inside)
    page = Page(written(model, tmp_path, X, pd.Series(y, name="price")))
    assert f"Measured on the {len(X)} rows given with this report" in page.text
    assert format.number(actual["R²"]) in page.text
    assert "What predicts price?" in page.text
    assert "feature_importances_ holds the same importances scaled to sum to 1" in page.text
    model, frame = fitted("mixed")
    named = Page(written(model, tmp_path, frame.assign(cost=model.predict(frame)), "cost"))
    assert "What predicts cost?" in named.text


def test_figures_of_classes_are_those_of_scikit_learn():
    model, X = fitted("three classes")
    y = model.predict(X)
    y[:6] = "low"
    actual = {metric.name: metric.value for metric in evaluate(model, X, y).metrics}
    assert actual["Accuracy"] == pytest.approx(accuracy_score(y, model.predict(X)))
    probability = model.predict_proba(X)
    assert actual["Log loss"] == pytest.approx(log_loss(y, probability, labels=model.classes_))


def test_folds_are_predicted_by_models_that_have_not_seen_them(tmp_path):
    X, y = smooth(2)
    X, y = X[:90], y[:90]
    model = BTNRegressor(**SMALL).fit(X, y)
    actual = evaluate(model, X, y, cv=3)
    mean = np.empty(90)
    for known, left_out in KFold(3).split(X):
        mean[left_out] = clone(model).fit(X[known], y[known]).predict(X[left_out])
    np.testing.assert_allclose(actual.predicted, mean)
    assert actual.folds == 3
    text = Page(written(model, tmp_path, X, y, cv=3)).text
    assert "Cross-validated: the 90 rows were divided into 3 parts" in text
    assert "all rows with the same weight" in text
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    labels = np.where(y > 0.0, "yes", "no")
    model = BTNClassifier(**SMALL).fit(frame, labels)
    actual = evaluate(model, frame, labels, cv=3)
    hits = []
    for known, left_out in StratifiedKFold(3).split(X, labels):
        other = clone(model).fit(frame.iloc[known], labels[known])
        hits.append(other.predict(frame.iloc[left_out]) == labels[left_out])
    assert actual.metrics[0].value == pytest.approx(np.mean(np.concatenate(hits)))
    with pytest.raises(ValueError, match="cv must leave out every row once"):
        evaluate(model, frame, labels, cv=[(np.arange(40), np.arange(40, 90))])


def titles(model, X=None, evaluation=None, drawn=None):
    vars(model).pop("fitted_", None)  # tests set attributes of a fitted model
    shares = model.feature_importances_
    return {notice.title: notice for notice in notices(model, shares, X, evaluation, drawn)}


def test_rows_unlike_those_of_the_fit_are_told():
    model, X = fitted("no gaps in training")
    X = X.copy()
    X["size"] = 0.0
    X["place"] = "level 0"
    X["whole"] = 0.5
    plain = titles(model, X)
    assert not {"New categories", "Missing values"} & set(plain)
    X.loc[X.index[:3], "place"] = "elsewhere"
    X.loc[X.index[:7], "whole"] = np.nan
    X.loc[X.index[:9], "size"] = 1e3
    shown = titles(model, X)
    assert "in “place” (3 rows)" in shown["New categories"].text
    assert "in “whole” (7 rows)" in shown["Missing values"].text
    assert "“size” (9 rows)" in shown["Extrapolation"].text
    assert shown["Extrapolation"].serious
    X["size"] = X["size"].where(X["size"] < 10.0, 0.0)
    assert "“size”" not in titles(model, X).get("Extrapolation", shown["Missing values"]).text


def test_what_the_fit_lacked_is_told():
    X, y = smooth(12)
    model = BTNRegressor(**SMALL).fit(X, y)
    text = titles(model)["Few rows for the rank"].text
    assert f"(rank {model.rank_})" in text
    assert "A smaller max_rank or n_basis, or more rows, would reduce" in text
    X, y = smooth(2)
    frame = pd.DataFrame({"a": X[:, 0], "same": 1.0, "b": X[:, 1]})
    how = {**SMALL, "max_iter": 200, "structure": "tensor"}
    model = BTNRegressor(**how).fit(frame, y)
    shown = titles(model)
    assert "“same” had the same value" in shown["A constant input"].text
    drawn = np.zeros((2, 30)), np.ones((2, 30))
    model._found_nothing = True
    del model.fitted_
    assert titles(model, drawn=drawn)["No effect was found"].serious
    model._found_nothing = False
    del model.fitted_
    apart = np.array([np.linspace(-1, 1, 30), np.linspace(1, -1.2, 30)]), np.full((2, 30), 1e-9)
    model.weights_ = np.array([0.5, 0.5])
    assert "The restarts disagree" in titles(model, drawn=apart)
    model.weights_ = np.array([0.99, 0.01])
    assert "The restarts disagree" not in titles(model, drawn=apart)


def test_whether_anything_was_found_is_asked_of_the_mixture():
    rise = np.linspace(-1.0, 1.0, 30)
    moments = np.array([rise, -rise]), np.full((2, 30), 0.01)
    # with equal weights one restart undoes what the other says
    assert found_nothing(np.array([0.5, 0.5]), *moments, [0.0, 0.0])
    assert not found_nothing(np.array([0.9, 0.1]), *moments, [0.0, 0.0])


def test_weights_of_main_effects_are_counted():
    X, y = smooth(3)
    model = BTNRegressor(**SMALL | {"structure": "sums"}).fit(X, y)
    count = model.posterior_[0].sums.size
    model.n_samples_seen_ = 3 * count
    assert "Few rows for the main effects" not in titles(model)
    model.n_samples_seen_ -= 1
    text = titles(model)["Few rows for the main effects"].text
    assert f"for {count} weights, so the prior" in text
    assert "max_rank" not in text
    both = BTNRegressor(**SMALL | {"structure": "sums+tensor"}).fit(X, y)
    state = both.posterior_[both.best_restart_]
    count = state.sums.size + both.rank_ * both.n_basis_.sum()
    both.n_samples_seen_ = 3 * count - 1
    assert f"for {count:,} weights (rank" in titles(both)["Few rows for the rank"].text


def test_only_a_bound_that_still_rises_by_much_is_serious():
    model = copy(fitted("gaussian")[0])
    model.converged_ = False
    rows = model.n_samples_seen_
    for gain, title in ((0.1, "Not converged"), (0.01, "Nearly converged"), (1e-4, None)):
        # what came before the last four sweeps does not count
        model.lower_bounds_ = rows * np.array([-9.0, 0.0, 0.0, 0.5 * gain, 0.5 * gain, gain])
        shown = titles(model)
        told = {"Not converged", "Nearly converged"} & set(shown)
        assert told == ({title} if title else set())
        assert not told or shown[title].serious == (title == "Not converged")
    model.converged_ = True
    assert "Not converged" not in titles(model)


def test_one_input_is_one_curve_whatever_the_rank():
    X, y = smooth(1)
    model = BTNRegressor(**SMALL).fit(X, y)
    count = int(model.n_basis_.sum())
    model.rank_, model.n_samples_seen_ = 7, 3 * count
    assert not {"Few rows for the rank", "Few rows for the basis functions"} & set(titles(model))
    model.n_samples_seen_ -= 1
    assert (
        f"for {count} weights, so the prior"
        in titles(model)["Few rows for the basis functions"].text
    )


def test_rows_that_may_be_those_of_the_fit_are_told(tmp_path):
    X, y = smooth(2)
    model = BTNRegressor(**SMALL).fit(X, y)
    message = "As many rows as in the fit"
    assert message in titles(model, X, evaluate(model, X, y))
    assert message not in titles(model, X, evaluate(model, X[1:], y[1:]))
    assert message not in titles(model, X, replace(evaluate(model, X, y), folds=5))


def test_targets_have_the_name_that_the_fit_knows(tmp_path):
    X, y = smooth(2)
    model = BTNRegressor(**SMALL).fit(X, pd.Series(y, name="rent"))
    assert "What predicts rent?" in Page(written(model, tmp_path)).text
    assert "What predicts rent?" in Page(written(model, tmp_path, X, y)).text
    named = Page(written(model, tmp_path, X, pd.Series(y, name="price"))).text
    assert "What predicts price?" in named
    assert "adds to the average of price," in named
    assert "doubles" not in named
    model = BTNRegressor(**SMALL).fit(X, y)
    assert "What predicts y?" in Page(written(model, tmp_path)).text


def test_poor_calibration_is_told():
    model, X = fitted("gaussian")
    X = np.repeat(X, 5, axis=0)
    rng = np.random.default_rng(0)
    right = model.sample_y(X, random_state=1)[:, 0]
    assert "Wrong coverage of intervals" not in titles(model, evaluation=evaluate(model, X, right))
    wrong = right + 60.0 * rng.standard_normal(len(right))
    shown = titles(model, evaluation=evaluate(model, X, wrong))
    assert shown["Wrong coverage of intervals"].serious
    assert "too narrow" in shown["Wrong coverage of intervals"].text
    model, X = fitted("two classes")
    X = np.repeat(X, 5, axis=0)
    right = rng.random(len(X)) < model.predict_proba(X)[:, 1]
    assert "Wrong probabilities" not in titles(model, evaluation=evaluate(model, X, right))
    shown = titles(model, evaluation=evaluate(model, X, ~right))
    assert {"Wrong probabilities", "Predictions explain almost nothing"} <= set(shown)


def test_a_restart_without_a_bound_leaves_the_others_their_names():
    bounds = [np.array([np.nan, np.nan]), np.array([-9.0, -8.0]), np.array([-9.0, -7.0])]
    ranks = [np.array([2.0, 2.0]), np.array([5.0, 5.0]), np.array([4.0, 4.0])]
    phases = [["exact", "exact"]] * 3
    searches = [[], *([Search(np.array([1, 2]), elbo)] for elbo in bounds[1:])]
    actual = History(phases, bounds, searches, ranks, bounds, 2, True, "converged")
    chart = report_page.elbo_chart(actual)
    assert chart.table.rows == [["2", "2", "−8.00", "5"], ["3 (best)", "2", "−7.00", "4"]]
    assert [shape.attributes["class"] for shape in chart.shapes].count("line c0") == 1


def test_a_new_search_begins_a_new_line():
    model = copy(fitted("gaussian")[0])
    first, *_ = model.history_
    elbo = [np.nan, -9.0, -7.0, -8.0, -6.0, -9.5]  # that of a later search may begin lower
    model.history_ = [
        first | {"restart": 0, "sweep": k + 1, "elbo": value, "stage": stage, "rows": rows}
        for k, (value, stage, rows) in enumerate(
            zip(elbo, [0, 0, 0, 1, 1, 1], [9, 9, 9, 9, 9, 20], strict=True)
        )
    ]
    actual = history(model)
    assert [search.sweep.tolist() for search in actual.searches[0]] == [[2, 3], [4, 5], [6]]
    assert [search.elbo.tolist() for search in actual.searches[0]] == [
        [-9.0, -7.0],
        [-8.0, -6.0],
        [-9.5],
    ]
    shapes = report_page.elbo_chart(actual).shapes
    assert [shape.tag for shape in shapes].count("polyline") == 3


def test_without_a_panel_the_page_says_why(tmp_path):
    X, y = smooth(2)
    model = BTNRegressor(basis=Hinges(), **SMALL).fit(X, y)
    page = Page(written(model, tmp_path))
    assert "no what-if panel: column 'x0': the basis Hinges has no portable form" in page.text
    assert [a.get("type") for tag, a in page.elements if tag == "script"] == [None]


def test_twenty_inputs_take_less_than_three_megabytes(tmp_path):
    X, y = smooth(20, n=400)
    # of the default size; sweeps would only make it smaller
    how = {"max_iter": 1, "solver": Solver(warm_sweeps=1, prune=False), "random_state": 0}
    model = BTNRegressor(**how, structure="tensor").fit(X, y)
    assert len(model.posterior_) == 8
    assert len(written(model, tmp_path)) < 3_000_000


def test_many_categories_and_inputs_are_folded_away(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"who": [f"customer {k}" for k in rng.integers(300, size=900)]})
    for j in range(15):
        X[f"x{j}"] = rng.normal(size=900)
    y = X["x1"] + X["who"].str.len() + 0.1 * rng.normal(size=900)
    model = BTNRegressor(**SMALL).fit(X, y)
    page = Page(written(model, tmp_path))
    options = [a for tag, a in page.elements if tag == "option"]
    assert len(options) == 202  # the most frequent, one never seen, a gap
    count = len(set(model.columns_[0].categories.values()))
    message = (
        f"The 200 most frequent categories; {count - 200} others would make the page too large"
    )
    assert message in page.text
    assert "Show 4 less important inputs" in page.text
    assert "Show all 16 inputs" in page.text


def test_a_model_from_a_file_has_the_same_report(tmp_path):
    model, X = fitted("mixed")
    model.save(tmp_path / "model.btn")
    again = btnkm.load(tmp_path / "model.btn")
    assert written(model, tmp_path) == written(again, tmp_path)


def test_numbers_are_short_and_plain():
    expected = {
        1234567.0: "1,234,567",
        12345.0: "12,345",
        -1900.0: "−1900",  # it may be a year
        9999.7: "10,000",
        1.5e9: "1.5e+09",
        0.00012345: "0.0001234",
        1.5e-7: "1.5e−07",
        -12.34: "−12.34",
        2.0: "2",
        -0.0: "0",
        np.nan: "–",
        np.inf: "∞",
    }
    for value, text in expected.items():
        assert format.number(value) == text
    assert format.number(-0.004, 2) == "0.00"
    assert format.number(1234567890123.0, 0) == "1,234,567,890,123"
    assert format.number(1.234567e-9, 12) == "1.235e−09"
    assert [format.compact(v) for v in (-2.5e5, 1.5e6, 2e9, 1.5e12, 99000.0)] == [
        "−250k",
        "1.5M",
        "2B",
        "1.5T",
        "99,000",
    ]
    assert format.percent(0.0004) == "<1%"
    assert format.listed(list("abcdefg"), 4) == "a, b, c and 4 others"
    assert format.listed(["a"]) == "a"
    assert format.listed(["a", "b", "c"]) == "a, b and c"


@pytest.mark.parametrize(
    ("days", "first"),
    [(20 * 365, "1975"), (400, "1970-07"), (20, "1970-01-11"), (0.5, "1970-01-01 06")],
)
def test_dates_are_marked_where_people_count_from(days, first):
    marks = axis("date", 1.0, days * format.DAY, 0.0, 1.0).marks
    assert marks[0][1] == first
    assert 1 <= len(marks) <= 5


@pytest.mark.parametrize("middle", [1e12, -1e9, 123456789.0, 3e20, 1.0])
def test_marks_far_from_zero_are_told_apart(middle):
    span = 1e-7 * abs(middle)
    actual = axis("number", middle - span, middle + 0.6 * span, 0.0, 100.0)
    texts = [text for _, text in actual.marks]
    assert len(set(texts)) == len(texts) >= 3
    assert max(map(len, texts)) <= 9
    assert actual.note.endswith(" + …")
    base = float(actual.note.removesuffix(" + …").replace(",", "").replace("−", "-"))
    step = actual.marks[1][0] - actual.marks[0][0]
    for value, text in actual.marks:
        size = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(text[-1], 1.0)
        told = float(text.rstrip("kMBT").replace("−", "-").replace(",", "")) * size
        assert base + told == pytest.approx(value, abs=1e-3 * step, rel=1e-15)


def test_axes_of_durations_have_a_unit(tmp_path):
    assert axis("duration", 0.0, 3e4 * format.SECOND, 0.0, 1.0).note == "hours"
    model, _ = fitted("mixed")
    text = Page(written(model, tmp_path)).text
    assert text.split("Effects")[-1].count("hours") or text.split("Effects")[-1].count("minutes")
    assert "Dates with a time zone are in UTC." in text
    assert "time zone" not in Page(written(fitted("gaussian")[0], tmp_path)).text


def test_pairs_that_hold_less_than_is_said_of_all_are_told(tmp_path, monkeypatch):
    model, _ = fitted("gaussian")
    all_of_it = sobol_indices(model).interactions
    for share, unknown in ((all_of_it, False), (0.3 * all_of_it, True)):
        pair = replace(interactions(model, most=1)[0], importance=share)
        monkeypatch.setattr("btnkm.report.effects.interactions", lambda *a, p=pair, **k: [p])
        text = Page(written(model, tmp_path)).text
        assert ("Up to " in text.split("What if?")[1]) == unknown
        assert (f"together up to {format.percent(all_of_it)}" in text) == unknown


def test_years_have_no_separator():
    assert [text for _, text in axis("number", 1890.0, 2020.0, 0.0, 1.0).marks] == [
        "1900",
        "1950",
        "2000",
    ]


def test_few_numbers_are_told_apart():
    assert format.told_apart([1.0, 2.5]) == ["1", "2.5"]
    assert format.told_apart([1e12, 1e12 + 50]) == ["1,000,000,000,000.0", "1,000,000,000,050.0"]
    assert format.told_apart([3.0, 3.0]) == ["3", "3"]
    assert format.told_apart([999_999_997.0, 1_000_000_004.0]) == [
        "999,999,997.00",
        "1,000,000,004.00",
    ]


def test_effects_say_what_doubles(tmp_path):
    for kind, message in (("counts", "doubles the expected count"), ("two classes", "the odds")):
        assert message in Page(written(fitted(kind)[0], tmp_path)).text
    for kind in ("gaussian", "student t", "least squares"):
        assert "doubles" not in Page(written(fitted(kind)[0], tmp_path)).text


@pytest.mark.parametrize("span", [1e-9, 0.3, 7.0, 4.2e5, 1e15])
def test_marks_are_round_and_few(span):
    for whole in (False, True):
        actual = axis("number", -0.3 * span, 0.7 * span, 0.0, 100.0, whole=whole)
        places = [float(actual.at(value)) for value, _ in actual.marks]
        assert 2 <= len(places) <= 8
        assert min(places) >= -1e-6
        assert max(places) <= 100.0 + 1e-6
        assert len({text for _, text in actual.marks}) == len(places)
