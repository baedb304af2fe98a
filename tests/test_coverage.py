"""Coverage of intervals in groups of rows: sums, bands, tests, and known truths."""

from __future__ import annotations

import json

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm, poisson
from sklearn.model_selection import KFold
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import binom_test, proportion_confint

from btnkm import BTNClassifier, BTNRegressor
from btnkm.cli import program
from btnkm.explain import conditional_coverage, plot_conditional_coverage
from btnkm.explain.coverage import SPREAD, Intervals, Property, coverage_of, holm, properties
from btnkm.metrics import GaussianPredictive
from btnkm.report.intervals import intervals_section
from btnkm.report.metrics import evaluate

mpl.use("Agg")


class Known(GaussianPredictive):
    """A normal distribution with intervals."""

    discrete = False

    def interval(self, level=0.95):
        return np.column_stack([self.quantile(0.5 - level / 2), self.quantile(0.5 + level / 2)])


class Counts:
    """Poisson distributions."""

    discrete = True

    def __init__(self, mean):
        self.mean, self.std, self.cdf = mean, np.sqrt(mean), lambda y: poisson.cdf(y, mean)

    def interval(self, level=0.95):
        return np.column_stack(poisson.interval(level, self.mean))


def judged(std, true_std, seed=0, level=0.95, bins=5):
    """Return the coverage of N(0, std) where the truth is N(0, true_std), by one input."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=3000)
    y = true_std(x) * rng.standard_normal(3000)
    intervals = Intervals.of(Known(np.zeros(3000), std(x)), level)
    return coverage_of(intervals, y, [Property("x", "number", x)], level, bins=bins)


def table(n=400, seed=0):
    """Return a table of every kind of column with missing values, and y with uneven noise."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "size": rng.gamma(2.0, 30.0, n),
            "rooms": rng.integers(1, 4, n).astype(float),
            "place": rng.choice(["north", "south", "west"], n, p=[0.6, 0.3, 0.1]),
            "since": pd.Timestamp("2021-03-01") + pd.to_timedelta(rng.integers(0, 99, n), "D"),
            "took": pd.to_timedelta(rng.integers(1, 9000, n), "s"),
        }
    )
    y = X["size"] / 50 + np.where(X["place"] == "north", 0.1, 2.0) * rng.standard_normal(n)
    X["size"] = X["size"].mask(rng.random(n) < 0.1)
    X["place"] = X["place"].astype(object).mask(rng.random(n) < 0.1)
    return X, y.to_numpy()


@pytest.fixture(scope="module")
def uneven():
    """Return a model with constant noise, and rows where the noise varies."""
    X, y = table()
    model = BTNRegressor(structure="sums", noise="constant", random_state=0)
    X_new = X[150:].copy()
    X_new.loc[X_new.index[:30], "place"] = "unknown"
    return model.fit(X[:150], y[:150]), X_new, y[150:]


def test_groups_hold_every_row_once(uneven):
    model, X, y = uneven
    result = conditional_coverage(model, X, y)
    low, high = model.predict_interval(X).T
    inside = (low <= y) & (y <= high)
    assert result.n == len(y)
    assert result.coverage == pytest.approx(inside.mean())
    assert [part.kind for part in result.groups].count("spread") == 1
    assert {part.name for part in result.groups[1:]} == {*X, "range of the training rows"}
    for part in result.groups:
        assert part.rows.sum() == len(y)
        assert part.inside.sum() == inside.sum()
        assert part.rows @ part.width == pytest.approx(np.sum(high - low))
        np.testing.assert_allclose(part.coverage, part.inside / part.rows)
        assert part.to_frame().shape == (len(part.labels), 8)
    assert result.n_groups == sum(len(part.labels) for part in result.groups)


def test_groups_are_the_rows_that_their_labels_name(uneven):
    model, X, y = uneven
    by_name = {part.name: part for part in conditional_coverage(model, X, y).groups}
    low, high = model.predict_interval(X).T
    inside = (low <= y) & (y <= high)
    place = by_name["place"]
    names = [*X["place"].value_counts().index.drop("unknown")]
    assert place.labels == [*names, "(not in the training rows)", "(missing)"]
    for label, rows, hits in zip(place.labels, place.rows, place.inside, strict=True):
        chosen = X["place"].isna() if label == "(missing)" else X["place"] == label
        chosen = X["place"] == "unknown" if label.startswith("(not") else chosen
        assert (rows, hits) == (chosen.sum(), inside[chosen].sum())
    size = by_name["size"]
    assert size.labels[-1] == "(missing)"
    assert size.rows[-1] == X["size"].isna().sum()
    for k in range(5):
        chosen = X["size"].between(size.lowest[k], size.highest[k])
        assert (size.rows[k], size.inside[k]) == (chosen.sum(), inside[chosen].sum())
    assert np.ptp(size.rows[:-1]) <= 1
    assert by_name["rooms"].labels == ["1", "2", "3"]
    names = ["size", "rooms", "since", "took"]
    known = table()[0][:150][names]
    outside = np.any([(X[k] < known[k].min()) | (X[k] > known[k].max()) for k in names], axis=0)
    within = by_name["range of the training rows"]
    assert within.labels == ["inside", "outside"]
    assert within.rows.tolist() == [np.sum(~outside), np.sum(outside)]
    assert within.inside[1] == np.sum(inside[outside])
    assert by_name["since"].lowest[0] == X["since"].min().to_datetime64()
    assert by_name["took"].labels[-1].endswith(" to 2.5 hours")


def test_bands_and_tests_are_those_of_statsmodels():
    result = judged(lambda x: np.ones_like(x), lambda x: 0.5 + x)
    hits = np.concatenate([part.inside for part in result.groups])
    rows = np.concatenate([part.rows for part in result.groups])
    low, high = proportion_confint(hits, rows, method="beta")
    np.testing.assert_allclose(np.concatenate([part.low for part in result.groups]), low)
    np.testing.assert_allclose(np.concatenate([part.high for part in result.groups]), high)
    p = np.concatenate([part.p_value for part in result.groups])
    expected = [binom_test(k, n, 0.95) for k, n in zip(hits, rows, strict=True)]
    np.testing.assert_allclose(p, expected, rtol=1e-6)
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1])
    # the ends of the bands are where the tail of a binomial distribution has 2.5%
    tails = binom.sf(hits - 1, rows, low), binom.cdf(hits, rows, high)
    np.testing.assert_allclose(tails[0][hits > 0], 0.025)
    np.testing.assert_allclose(tails[1][hits < rows], 0.025)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_a_wrong_spread_is_named_and_a_right_one_is_not(level):
    wrong = judged(lambda x: np.full_like(x, 0.6), lambda x: 0.2 + 0.8 * x, level=level)
    named = {failure.group: failure.too_narrow for failure in wrong.failures if failure.name == "x"}
    assert named["0.0 to 0.2"] is False
    assert named["0.8 to 1.0"] is True
    assert wrong.coverage == pytest.approx(level, abs=0.1)
    assert "0.8 to 1.0" in wrong.conclusion
    x = wrong.groups[0]  # the predicted spread is constant, so that it has one group
    inner = (x.lowest + x.highest) / 2
    reach = norm.ppf(0.5 + level / 2) * 0.6
    np.testing.assert_allclose(x.coverage, 2 * norm.cdf(reach / (0.2 + 0.8 * inner)) - 1, atol=0.05)


def test_right_intervals_are_named_as_rarely_as_the_level_of_the_test_says():
    def right(x):
        return 0.2 + 0.8 * x

    wrong = sum(bool(judged(right, right, seed).failures) for seed in range(60))
    assert wrong <= binom.ppf(0.999, 60, 0.01)
    assert "In none of the 10 groups" in judged(right, right).conclusion


def test_a_certain_but_small_difference_does_not_matter():
    y = np.repeat(norm.ppf((np.arange(10_000) + 0.5) / 10_000), 20)  # exactly normal
    intervals = Intervals.of(Known(np.zeros(200_000), np.full(200_000, 0.96)))
    x = np.random.default_rng(0).uniform(size=200_000)
    result = coverage_of(intervals, y, [Property("x", "number", x)])
    assert result.coverage == pytest.approx(0.94, abs=0.001)
    assert np.all(result.groups[0].p_value < 1e-8)
    assert not result.failures


def test_counts_are_expected_more_often_than_the_level():
    rng = np.random.default_rng(0)
    mean = rng.uniform(0.2, 3.0, 4000)
    y = rng.poisson(mean).astype(float)
    result = coverage_of(Intervals.of(Counts(mean)), y, [Property("x", "number", mean)])
    low, high = poisson.interval(0.95, mean)
    inside = [
        np.sum(poisson.pmf(np.arange(a, b + 1), m)) for a, b, m in zip(low, high, mean, strict=True)
    ]
    assert result.expected == pytest.approx(np.mean(inside))
    assert np.all(result.groups[0].expected > 0.95)
    assert not result.failures
    y = rng.poisson(3.0 * mean).astype(float)
    result = coverage_of(Intervals.of(Counts(mean)), y, [Property("x", "number", mean)])
    assert all(failure.too_narrow for failure in result.failures)
    assert len(result.failures) == 10


def test_rare_categories_and_few_rows():
    rng = np.random.default_rng(0)
    names = np.array([f"c{k}" for k in range(40)], dtype=object)[
        rng.geometric(0.15, 600).clip(0, 39)
    ]
    intervals = Intervals.of(Known(np.zeros(600), np.ones(600)))
    result = coverage_of(intervals, rng.normal(size=600), [Property("n", "category", names)])
    (part,) = result.groups
    counts = pd.Series(names).value_counts()
    assert (
        part.labels[:-1] == counts.index[: len(part.labels) - 1].tolist() or len(part.labels) == 10
    )
    assert part.labels[-1] == f"{len(counts) - 9} others"
    assert part.rows.sum() == 600
    assert np.all(part.rows[:-1] >= 10)
    few = Intervals(*(values[:30] for values in intervals))
    x = Property("x", "number", np.arange(30.0))
    result = coverage_of(few, np.zeros(30), [x])
    assert not result.groups
    assert result.conclusion == "There are too few rows to judge the 95% intervals in groups."


def test_json_is_finite_and_inputs_are_checked(uneven):
    model, X, y = uneven
    text = json.dumps(conditional_coverage(model, X, y).to_dict(), allow_nan=False)
    assert json.loads(text)["groups"][1]["rows"]
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        conditional_coverage(model, X, y, level=1.0)
    with pytest.raises(ValueError, match="bins must be an integer >= 2, got 1"):
        conditional_coverage(model, X, y, bins=1)
    classifier = BTNClassifier(structure="sums").fit(y[:, None], y > 1)
    with pytest.raises(TypeError, match="must be a regressor to have intervals of y"):
        conditional_coverage(classifier, y[:, None], y > 1)
    infinite = Intervals(np.full(60, -np.inf), np.full(60, np.inf), np.ones(60), np.full(60, 0.95))
    result = coverage_of(infinite, np.zeros(60), [Property("x", "number", np.arange(60.0))])
    json.dumps(result.to_dict(), allow_nan=False)
    assert result.groups[0].to_dict()["width"] == [None, None]


def test_it_is_drawn_and_reported(uneven, tmp_path):
    model, X, y = uneven
    result = conditional_coverage(model, X, y)
    axes = plot_conditional_coverage(model, X, y)
    assert len(axes) == 6
    titles = [ax.get_title() for ax in axes]
    assert titles[:2] == ["predicted spread", "place"]
    dots = [line for line in axes[1].lines if line.get_marker() in "oD" and len(line.get_xdata())]
    drawn = np.sort(np.concatenate([line.get_ydata() for line in dots]))
    np.testing.assert_allclose(drawn, np.sort(result.groups[1].coverage))
    mpl.pyplot.close("all")
    (axis,) = plot_conditional_coverage(model, X, y, most=1)
    axis.figure.canvas.draw()
    mpl.pyplot.close("all")
    text = model.report(tmp_path / "m.html", X, y).read_text(encoding="utf-8")
    assert "Do the intervals hold everywhere?" in text
    assert "Intervals do not hold everywhere" in text
    assert f"{len(result.failures)} of {result.n_groups} groups" in text
    assert 'noise="varying"' in text
    few = model.report(tmp_path / "m.html", X[:20], y[:20]).read_text(encoding="utf-8")
    assert "Do the intervals hold everywhere?" not in few.replace(" The section", "")


def test_the_report_says_that_none_fails():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (700, 2))
    y = X[:, 0] + 0.3 * rng.standard_normal(700)
    model = BTNRegressor(structure="sums", random_state=0).fit(X[:200], y[:200])
    evaluation = evaluate(model, X[200:], y[200:])
    section = intervals_section(model.fitted_, evaluation.coverage)
    assert section["failures"] is None
    assert [chart.title.removeprefix("Coverage by ") for chart in section["charts"]][0] == SPREAD
    assert len(section["charts"]) == 4
    # rows of all folds are those of the table
    crossed = evaluate(model, X[:200], y[:200], cv=KFold(2)).coverage
    parts = []
    for train, test in KFold(2).split(X[:200]):
        fold = BTNRegressor(structure="sums", random_state=0).fit(X[train], y[train])
        low, high = fold.predict_interval(X[test]).T
        parts.append((low <= y[test]) & (y[test] <= high))
    assert crossed.coverage == pytest.approx(np.mean(np.concatenate(parts)))


def test_the_program_prints_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, y = table(300)
    X["took"] = X["took"].dt.total_seconds()
    X = X.rename(columns={"place": "the place on which the noise depends"})
    X.assign(y=y).to_csv("t.csv", index=False)
    quick = ["--set", "structure=sums", "--set", "noise=constant", "--folds", "2", "--jobs", "1"]
    assert program.main(["evaluate", "t.csv", "--target", "y", *quick, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["conditional_coverage"]
    assert found["n"] == 300
    named = {(failure["name"], failure["group"]) for failure in found["failures"]}
    assert ("the place on which the noise depends", "south") in named
    monkeypatch.setenv("COLUMNS", "60")
    assert program.main(["evaluate", "t.csv", "--target", "y", *quick]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = lines.index("Rows inside the 95% intervals of btnkm")
    assert max(map(len, lines[begin:])) <= 60
    spread = next(part for part in found["groups"] if part["kind"] == "spread")
    for line, rows, coverage in zip(
        lines[begin + 2 :], spread["rows"], spread["coverage"], strict=False
    ):
        assert str(rows) in line.split()
        assert f"{coverage:.1%}" in line
    assert any("… south" in line and "*" in line for line in lines[begin:])
    assert lines[-1].endswith(f"as in {len(named)} of {found['n_groups']} groups")


def test_properties_take_tables_of_any_kind(uneven):
    model, X, _ = uneven
    frame = {part.name: part.values for part in properties(model, X)}
    assert frame["place"].tolist().count("(not in the training rows)") == 30
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(60, 2))
    model = BTNRegressor(structure="sums", basis={1: "categorical"}).fit(
        np.column_stack([rows[:, 0], rng.integers(3, size=60)]), rows[:, 0]
    )
    second = properties(model, [[0.5, 1], [0.1, 7], [None, None]])
    assert [part.kind for part in second] == ["number", "category"]
    assert second[1].values.tolist() == ["1", "(not in the training rows)", None]
    assert np.isnan(second[0].values[2])
