"""The suites of scale: what is measured, what is skipped, and that the page says what was."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import scale, scale_compare
from benchmarks.pages import latest
from benchmarks.runs.experiment import Cell
from benchmarks.scale import exponent, measured, pooled, quiet, render
from benchmarks.scale_compare import (
    SCALE_CLASSIFIERS,
    SYNTHETIC,
    TEST_ROWS,
    friedman,
    measure_compare,
    why_not,
)
from benchmarks.scale_sweep import (
    BASE,
    EPOCH,
    LARGE,
    Shape,
    Turns,
    measure_epoch,
    measure_sweep,
    moved_bytes,
    shapes,
)
from benchmarks.suites import SUITES, cells_of

SMALL = Shape(600, 3, 4, 2)
QUICK = {"n_jobs": 2, "warm_sweeps": 1, "max_iter": 4}


def needs(library):
    actual = pytest.importorskip(library, reason=f"{library} is in the dependency group 'scale'")
    if library == "gpytorch":
        import torch

        torch.set_num_threads(1)  # on busy cores two wait for each other
    return actual


# Sweeps


def test_a_shape_has_a_name_that_tells_it():
    assert str(BASE) == "n40000-D8-M20-R10"
    assert [str(Shape.of(name)) for name in shapes()] == list(shapes())
    assert {str(BASE), str(LARGE)} <= set(shapes())
    with pytest.raises(ValueError, match="must read like"):
        Shape.of("n40000-D8")


def test_a_sweep_is_measured_beside_its_limit():
    actual = measure_sweep(Cell(str(SMALL), 0, "kept", QUICK | {"memory_limit": 1.0}))
    parts = [actual[f"{name}_seconds"] for name in ("products", "traffic", "solve")]
    assert min(parts) > 0
    assert actual["limit_seconds"] == pytest.approx(max(parts[:2]) + parts[2])
    assert actual["over_limit"] == pytest.approx(actual["sweep_seconds"] / actual["limit_seconds"])
    assert [actual[name] for name in "nDMR"] == [600, 3, 4, 2]
    assert actual["keep_features"]
    assert actual["stride"] == 1


def test_a_shape_that_fits_below_the_default_is_not_measured_twice():
    actual = measure_sweep(Cell(str(SMALL), 0, "default", QUICK | {"memory_limit": 1.4}))
    assert "as `kept`" in actual["skipped"]


def test_bytes_are_counted_for_every_mode_but_one():
    # 3 products of 2 means and 3 second moments, twice 7 functions (or inputs), and y
    assert moved_bytes(SMALL, True) == 8 * 600 * 2 * (3 * 5 + 2 * 7 + 1)
    assert moved_bytes(SMALL, False) == 8 * 600 * 2 * (3 * 5 + 2 * 1 + 1)


def test_turns_leave_out_all_before_the_second_exact_sweep():
    turns = Turns(10, {"other": lambda: 3.0})
    for n in (5, 10):  # a sample's do not count
        for phase in ("warm", "annealing", "exact", "exact", "exact"):
            turns({"phase": phase, "rows": n})
    assert turns.median("other") == 3.0
    assert len(turns.taken["sweep"]) == len(turns.taken["other"]) == 2


def test_an_epoch_of_tnkm_takes_turns_with_sweeps():
    needs("tnkm")
    actual = measure_epoch(Cell(str(SMALL), 0, "float32", QUICK | {"dtype": "float32"}))
    ratio = actual["epoch_seconds"] / actual["sweep_seconds"]
    assert actual["epoch_over_sweep"] == pytest.approx(ratio)
    assert actual["repetitions"] == 3


# Other libraries


def test_friedmans_noise_is_what_it_is_said_to_be():
    X, y, X_test, y_test = friedman(2000, 0)
    assert X.shape == (2000, 10)
    assert X_test.shape == (TEST_ROWS, 10)
    truth = 10 * np.sin(np.pi * X_test[:, 0] * X_test[:, 1]) + 20 * (X_test[:, 2] - 0.5) ** 2
    truth += 10 * X_test[:, 3] + 5 * X_test[:, 4]
    assert np.std(y_test - truth) == pytest.approx(1, rel=0.03)
    assert not np.array_equal(y, friedman(2000, 1)[1])


def test_what_is_not_measured_has_a_reason():
    suite = SUITES["scale-compare"]
    for cell in cells_of(suite, n_splits=1):
        reason = why_not(cell.dataset, cell.method)
        if reason is not None:
            assert measure_compare(cell) == {"skipped": reason}
    assert "at most 4,000 rows" in why_not("friedman-10000", "gp")
    assert why_not("friedman-1000", "gp") is None
    assert "least squares" in why_not("adult", "tnkm")
    assert all(why_not(dataset, "btn-short") is None for dataset in suite.datasets)


QUICK_METHODS = {
    "tnkm": ("tnkm", {"n_basis": 4, "rank": 2, "n_epoch": 2}),
    "svgp": ("gpytorch", {"n_inducing": 16, "steps": 20, "batch": 128, "rate": 0.1}),
    "ngboost": ("ngboost", {"n_estimators": 20}),
}


@pytest.mark.parametrize("method", QUICK_METHODS)
@pytest.mark.filterwarnings("default")  # of libraries that are not ours to mend
def test_other_libraries_predict(method, monkeypatch):
    library, config = QUICK_METHODS[method]
    needs(library)
    monkeypatch.setattr(scale_compare, "TEST_ROWS", 500)
    actual = measure_compare(Cell(SYNTHETIC[0], 0, method, config | {"random_state": 0}))
    assert 1 < actual["rmse"] < 5  # a constant has 5
    assert 1.4 < actual["nll"] < 3.5
    assert actual["library"].startswith(library)


@pytest.mark.parametrize("method", ["svgp", "ngboost"])
@pytest.mark.filterwarnings("default")
def test_other_libraries_classify_a_table(method):
    pandas = needs("pandas")
    library, config = QUICK_METHODS[method]
    needs(library)
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=400)
    level = rng.choice(["a", "b", "c"], size=400)
    y = np.where((x > 0) ^ (level == "b"), "yes", "no")
    X = pandas.DataFrame({"x": x, "level": pandas.Categorical(level)})
    predictive = SCALE_CLASSIFIERS[method][0](**config).fit(X, y).predictive(X)
    assert list(predictive.classes) == ["no", "yes"]
    np.testing.assert_allclose(predictive.probabilities.sum(axis=1), 1)
    actual = predictive.classes[predictive.probabilities.argmax(axis=1)]
    assert np.mean(actual == y) > 0.6


# The page


def test_an_exponent_is_a_slope():
    metrics = {x: {"sweep_seconds": 0.1 * x**1.5} for x in (2, 4, 8)}
    assert exponent(metrics) == pytest.approx(1.5)
    assert exponent({2: {"sweep_seconds": 1.0}}) is None
    assert exponent({2: {"t": 3.0}, 3: {"t": 6.0}, 5: {"t": 12.0}}, "t", 1) == pytest.approx(1)


def test_repetitions_are_pooled_by_the_yardstick():
    def record(split, seconds, yardstick):
        metrics = {"sweep_seconds": seconds, "yardstick_seconds": yardstick, "stride": 1}
        return {"dataset": str(BASE), "split": split, "method": "kept", "metrics": metrics}

    skipped = {"dataset": str(BASE), "method": "default", "metrics": {"skipped": "why"}}
    # the second had two thirds of the processor, the fourth next to nothing of it
    times = [record(0, 1.0, 0.1), record(1, 1.5, 0.15), record(2, 3.0, 0.1), record(3, 9.0, 0.3)]
    actual = pooled([*times, skipped])
    assert set(actual) == {(BASE, "kept")}
    assert actual[BASE, "kept"]["sweep_seconds"] == pytest.approx(1.0)
    assert actual[BASE, "kept"]["stride"] == 1
    assert quiet([*times, skipped]) == times[:3]
    # a shape that has no quiet repetition keeps what it has
    alone = record(0, 9.0, 0.3) | {"dataset": str(LARGE)}
    assert quiet([*times, alone]) == [*times[:3], alone]
    assert measured([skipped]) == []


def test_the_page_is_what_the_results_say():
    records = {suite: latest(suite) for suite in scale.SUITES}
    assert scale.PAGE.read_text(encoding="utf-8") == render(records)
    for name in ("sweep", "limit", "compare"):
        assert (scale.PICTURES / f"{name}.png").exists()
    assert {(LARGE, "kept"), (BASE, "kept")} <= set(pooled(records["scale-sweep"]))
    assert {r["dataset"] for r in records["scale-tnkm"]} == {str(EPOCH)}
    told = {(r["dataset"], r["method"]) for r in records["scale-compare"]}
    wanted = {(c.dataset, c.method) for c in cells_of(SUITES["scale-compare"], n_splits=1)}
    assert wanted == told
