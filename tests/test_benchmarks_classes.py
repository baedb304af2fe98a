"""Classification in the benchmarks: tables, scores and methods. No btnkm model is fitted."""

import os

import numpy as np
import pytest

from benchmarks.accuracy import measure_accuracy
from benchmarks.classifiers import CLASSIFIERS
from benchmarks.data import (
    CLASS_DATASETS,
    DATASETS,
    five_probabilities,
    load_split,
)
from benchmarks.runs import runner
from benchmarks.runs.experiment import Cell, measure_here
from benchmarks.runs.records import read_records
from benchmarks.suites import SUITES, cells_of
from benchmarks.summary import summarise
from btnkm.datasets import ADULT_COLUMNS, paper_splits
from btnkm.metrics import ClassPredictive, calibration_error, score_classes

#: Levels of each text column of adult in the rows without missing values.
N_LEVELS = {
    "workclass": 7,
    "education": 16,
    "marital-status": 7,
    "occupation": 14,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "native-country": 41,
}


def adult_line(i, **changes):
    """A row of adult; age counts the rows, and 41 rows in turn hold every level."""
    values = {name: i for name in ADULT_COLUMNS}
    values |= {name: f"{name}-{i % n:02}" for name, n in N_LEVELS.items()}
    values["income"] = ">50K" if i % 3 == 0 else "<=50K"
    return ", ".join(str(value) for value in (values | changes).values())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with small tables in the form of the real ones."""
    rng = np.random.default_rng(0)
    table = np.c_[rng.uniform(size=(40, 57)), np.arange(40) % 2]
    lines = [",".join(f"c{j}" for j in range(58))]
    lines += [
        ",".join([*(f"{value:.17g}" for value in row[:-1]), f"{row[-1]:.0f}"]) for row in table
    ]
    (tmp_path / "spambase.csv").write_text("\n".join(lines) + "\n")
    first = [adult_line(i) for i in range(30)]
    first.insert(5, adult_line(99, workclass="?"))
    second = ["|1x3 Cross validator", *(adult_line(i) + "." for i in range(30, 60))]
    second.append(adult_line(98, **{"native-country": "?"}) + ".")
    # The real files end with an empty line.
    (tmp_path / "adult.data").write_text("\n".join(first) + "\n\n")
    (tmp_path / "adult.test").write_text("\n".join(second) + "\n\n")
    monkeypatch.setenv("BTNKM_DATA", str(tmp_path))
    return tmp_path


# Data


def test_spambase_has_its_label_last(folder):
    X, y = DATASETS["spambase"]()
    assert X.shape == (40, 57)
    np.testing.assert_array_equal(y, np.arange(40) % 2)
    assert y.dtype.kind == "i"


def test_adult_joins_both_files_and_drops_incomplete_rows(folder):
    X, y = DATASETS["adult"]()
    assert list(X.columns) == list(ADULT_COLUMNS[:-1])
    np.testing.assert_array_equal(X["age"], np.arange(60))
    np.testing.assert_array_equal(X.index, np.arange(60))
    np.testing.assert_array_equal(y, np.arange(60) % 3 == 0)
    categories = X.select_dtypes("category")
    assert {name: len(categories[name].cat.categories) for name in categories} == N_LEVELS


def test_adult_96_has_96_columns(folder):
    X, y = DATASETS["adult-96"]()
    assert X.shape == (60, 96)
    assert X.dtype == float
    table, labels = DATASETS["adult"]()
    np.testing.assert_array_equal(X[:, :6], table.select_dtypes("number"))
    np.testing.assert_array_equal(y, labels)
    # Without its first category an input of n categories leaves n - 1 columns: here the first.
    np.testing.assert_array_equal(
        X[:, 6:12], table["workclass"].cat.codes.to_numpy()[:, np.newaxis] == np.arange(1, 7)
    )


@pytest.mark.parametrize(
    ("dataset", "file"),
    [
        ("spambase", "spambase.csv"),
        ("adult", "adult.data"),
        ("adult", "adult.test"),
        ("adult-96", "adult.test"),
    ],
)
def test_missing_file_is_named(dataset, file, folder):
    (folder / file).unlink()
    with pytest.raises(FileNotFoundError, match=f"{file} must be in"):
        DATASETS[dataset]()


def test_load_split_takes_rows_of_a_table(folder):
    X_train, y_train, X_test, y_test = load_split("adult", 3)
    train, test = paper_splits(60, 3)
    np.testing.assert_array_equal(X_train["age"], train)
    np.testing.assert_array_equal(X_test["age"], test)
    np.testing.assert_array_equal(y_train, train % 3 == 0)
    np.testing.assert_array_equal(y_test, test % 3 == 0)
    assert X_test["sex"].dtype == X_train["sex"].dtype == "category"


@pytest.mark.parametrize(
    ("dataset", "shape", "n_classes"),
    [("digits", (1797, 64), 10), ("wine", (178, 13), 3), ("five", (3000, 6), 5)],
)
def test_bundled_sets_need_no_folder(dataset, shape, n_classes, monkeypatch):
    monkeypatch.delenv("BTNKM_DATA", raising=False)
    X, y = DATASETS[dataset]()
    assert X.shape == shape
    np.testing.assert_array_equal(np.unique(y), np.arange(n_classes))


def test_five_follows_its_probabilities():
    X, y = DATASETS["five"]()
    probabilities = five_probabilities(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    x = X[0]
    scores = [3 * np.sin(3 * x[0]) * x[1], 2 * x[2], 4 * x[0] * x[3], 0, 3 * x[4] ** 2 - 1]
    np.testing.assert_allclose(probabilities[0], np.exp(scores) / np.exp(scores).sum())
    # The labels are draws: counts differ from their means by a few standard deviations.
    variance = np.sum(probabilities * (1 - probabilities), axis=0)
    assert np.all(np.abs(np.bincount(y) - probabilities.sum(axis=0)) < 4 * np.sqrt(variance))
    np.testing.assert_array_equal(X, DATASETS["five"]()[0])
    np.testing.assert_array_equal(y, DATASETS["five"]()[1])


@pytest.mark.data
@pytest.mark.skipif("BTNKM_DATA" not in os.environ, reason="BTNKM_DATA does not name a folder")
@pytest.mark.parametrize(
    ("dataset", "shape", "n_second"),
    [
        ("spambase", (4601, 57), 1813),
        ("adult", (45222, 14), 11208),
        ("adult-96", (45222, 96), 11208),
    ],
)
def test_real_tables_have_the_papers_shapes(dataset, shape, n_second):
    X, y = DATASETS[dataset]()
    assert X.shape == shape
    assert y.sum() == n_second


# Scores


def test_scores_of_two_classes_by_hand():
    probabilities = np.array([[0.8, 0.2], [0.4, 0.6], [0.7, 0.3], [0.1, 0.9]])
    y = np.array(["no", "yes", "yes", "yes"])
    metrics = score_classes(ClassPredictive(["no", "yes"], probabilities), y)
    assert metrics["error"] == 0.25
    assert metrics["nll"] == pytest.approx(-np.mean(np.log([0.8, 0.6, 0.3, 0.9])))
    # The second class alone.
    assert metrics["brier"] == pytest.approx((0.2**2 + 0.4**2 + 0.7**2 + 0.1**2) / 4)
    # Every row has a bin of its own.
    assert metrics["ece"] == pytest.approx((0.2 + 0.4 + 0.7 + 0.1) / 4)


def test_scores_of_three_classes_by_hand():
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.25, 0.5, 0.25]])
    metrics = score_classes(ClassPredictive([2, 4, 8], probabilities), np.array([2, 8, 8]))
    assert metrics["error"] == pytest.approx(1 / 3)
    assert metrics["nll"] == pytest.approx(-np.mean(np.log([0.5, 0.7, 0.25])))
    brier = (0.25 + 0.09 + 0.04) + (0.01 + 0.04 + 0.09) + (0.0625 + 0.25 + 0.5625)
    assert metrics["brier"] == pytest.approx(brier / 3)
    # Two rows share the bin from 0.5 to 0.6: one of them is right.
    assert metrics["ece"] == pytest.approx((2 / 3) * abs(0.5 - 0.5) + (1 / 3) * abs(1 - 0.7))


def test_calibration_error_weighs_bins_with_their_rows():
    confidence = np.array([0.52, 0.54, 0.58, 0.95, 1.0])
    correct = np.array([True, False, False, True, True])
    low, high = abs(1 / 3 - np.mean(confidence[:3])), abs(1 - np.mean(confidence[3:]))
    assert calibration_error(confidence, correct) == pytest.approx(0.6 * low + 0.4 * high)


def test_no_probability_is_taken_for_less_than_the_smallest():
    sure = ClassPredictive([0, 1], [[1.0, 0.0]])
    assert score_classes(sure, np.array([1]))["nll"] == pytest.approx(-np.log(1e-15))
    assert score_classes(sure, np.array([0]))["nll"] == 0


def test_score_refuses_a_wrong_shape_and_unknown_labels():
    y = np.array([0, 1, 2])
    with pytest.raises(ValueError, match=r"must have the shape \(rows, classes\), \(3, 2\)"):
        score_classes(ClassPredictive([0, 1], np.full((2, 2), 0.5)), y)
    with pytest.raises(ValueError, match=r"must be among the classes .* got \[2\]"):
        score_classes(ClassPredictive([0, 1], np.full((3, 2), 0.5)), y)


# Methods and suites


def test_constant_predicts_the_shares():
    constant = CLASSIFIERS["constant"][0]().fit(np.zeros((4, 1)), np.array([3, 1, 1, 1]))
    predictive = constant.predictive(np.zeros((2, 1)))
    np.testing.assert_array_equal(predictive.classes, [1, 3])
    np.testing.assert_array_equal(predictive.probabilities, [[0.75, 0.25]] * 2)


@pytest.mark.parametrize("dataset", ["spambase", "adult"])
@pytest.mark.parametrize("method", ["hgb", "logistic"])
def test_rivals_take_both_kinds_of_table(dataset, method, folder):
    config = CLASSIFIERS[method][1] | {"max_iter": 200 if method == "logistic" else 2}
    metrics = measure_here(measure_accuracy, Cell(dataset, 0, method, config))["metrics"]
    for name in ("error", "nll", "brier", "ece", "fit_seconds", "predict_seconds"):
        assert np.isfinite(metrics[name])
    assert metrics["rank"] is None


def test_logistic_makes_indicators_of_categories(folder):
    X, y = DATASETS["adult"]()
    method = CLASSIFIERS["logistic"][0](max_iter=200).fit(X, y)
    assert method.model[-1].n_features_in_ == 6 + sum(N_LEVELS.values())


def test_suites_of_classes_know_their_methods():
    for name in ("classify", "multiclass"):
        suite = SUITES[name]
        assert CLASS_DATASETS.issuperset(suite.datasets)
        assert suite.known_methods() == tuple(CLASSIFIERS)
        assert len(cells_of(suite)) == len(suite.datasets) * len(suite.methods) * 10
    with pytest.raises(ValueError, match="a method must be among"):
        cells_of(SUITES["classify"], methods=("gp",))
    with pytest.raises(ValueError, match="a method must be among"):
        cells_of(SUITES["paper"], methods=("logistic",))


def test_suite_runs_and_is_summarised(folder, tmp_path):
    output = tmp_path / "r.jsonl"
    cells = cells_of(SUITES["classify"], n_splits=2, methods=("constant",))
    assert runner.run("classify", measure_accuracy, cells, output, execute=measure_here) == 0
    records, _ = read_records(output)
    assert [record["dataset"] for record in records[::2]] == ["spambase", "adult", "adult-96"]
    text = summarise([output])
    assert "constant" in text
    assert "Classification: error is the fraction of wrong rows" in text
    assert "Regression:" not in text
