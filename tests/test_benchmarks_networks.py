"""The study of CP against trains: what is measured, and that it says what was measured."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import networks
from benchmarks.data import DATASETS, FOLDER_DATASETS
from benchmarks.networks import measure_network, render
from benchmarks.pages import latest
from benchmarks.runs.experiment import Cell
from benchmarks.suites import SUITES, cells_of

QUICK = {"n_init": 2, "max_iter": 6, "max_rank": 2, "n_basis": 4, "random_state": 0}


@pytest.mark.parametrize("config", [{}, {"network": "tt"}, {"network": "tt", "cores": "full"}])
def test_a_cell_tells_what_the_study_needs(config):
    actual = measure_network(Cell("components", 0, "any", QUICK | config))
    assert actual["rmse"] > 0
    assert np.isfinite(actual["nll"])
    assert 1 <= actual["rank"] <= 2
    assert actual["parameters"] <= 2 * 2 * 4 * 6
    assert 0 <= actual["full"] <= 1
    assert ("order_kept" in actual) == ("network" in config)
    if not config:
        assert actual["full_sweep_seconds"] is None
        assert 0 < actual["sweep_seconds"] < np.inf
    if "cores" in config:
        assert actual["full"] == 1
        assert actual["sweep_seconds"] is None


def test_the_truths_are_what_they_are_said_to_be():
    (X, y), (mixed, same) = DATASETS["chain"](), DATASETS["chain-mixed"]()
    np.testing.assert_array_equal(y, same)
    np.testing.assert_array_equal(mixed, X[:, [3, 0, 4, 1, 5, 2]])
    assert "4, 1, 5, 2, 6, 3" in networks.TRUTHS["chain-mixed"]
    for name in networks.TRUTHS:
        assert name not in FOLDER_DATASETS
        assert np.std(DATASETS[name]()[1]) == pytest.approx(np.sqrt(1.01), rel=0.02)


def record(dataset, split, method, error, nll, **more):
    name = "error" if dataset in ("spambase", "adult") else "rmse"
    metrics = {name: error, "nll": nll, "rank": 3.0, "parameters": 10.0, "fit_seconds": 1.0}
    metrics |= {"sweep_seconds": 0.01, "full_sweep_seconds": 0.02, "full": 0.25, "order_kept": True}
    return {
        "dataset": dataset,
        "split": split,
        "method": method,
        "config": SUITES["networks"].defaults[method],
        "metrics": metrics | more,
        "cpu": "some",
        "threads": {"blas": 1},
    }


def test_networks_are_compared_on_the_same_splits():
    records = [record("yacht", k, "cp", 1.0 + k, 0.5) for k in range(2)]
    records += [record("yacht", 0, "tt", 1.02, 0.4)]
    records += [record("spambase", 0, "cp", 0.05, 0.1), record("spambase", 0, "tt", 0.04, 0.1)]
    records += [record("chain", 0, "tt-full", 0.1, 0.0, order_kept=False)]
    records += [record("chain", 0, "tt-full-given", 0.2, 0.3)]
    text = render(records)
    assert "| yacht (2, 1, 0) | 1.500 | 1.020 | - |" in text
    assert "| yacht | +2.0%, -0.100 | - | 25% |" in text
    assert "| spambase | -20.0%, +0.000 | - | 25% |" in text
    assert "| chain (1) | 0.200, 0.300 | 0.100, 0.000 | 100% |" in text
    assert "On `chain`" not in text  # there is no CP to compare with
    assert "7 runs on some, BLAS on 1 threads" in text


def test_the_study_is_what_the_results_say():
    records = latest("networks")
    assert networks.STUDY.read_text(encoding="utf-8") == render(records)
    measured = {(r["dataset"], r["split"], r["method"]) for r in records}
    wanted = {(c.dataset, 0, c.method) for c in cells_of(SUITES["networks"], n_splits=1)}
    assert wanted <= measured
