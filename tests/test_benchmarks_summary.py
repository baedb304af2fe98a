"""The tables of benchmark results."""

import json

import pytest

from benchmarks import runner
from benchmarks.cells import Cell
from benchmarks.methods import METHODS
from benchmarks.records import append_record
from benchmarks.summary import summarise


def make_record(method="btn", split=0, code="abc", dataset="yacht", config=None, **metrics):
    cell = Cell(dataset, split, method, METHODS[method][1] if config is None else config)
    known = {"rmse": 0.3, "nll": 0.05, "coverage_95": 0.95, "rank": None, "fit_seconds": 1.0}
    context = {"code": code, "commit": code, "dirty": False, "cpu": "a processor"}
    return runner._record(cell, {"metrics": known | metrics}, context)


def write(path, *records):
    for record in records:
        append_record(path, record)
    return [path]


def test_summary_shows_means_references_and_verdicts(tmp_path):
    files = write(
        tmp_path / "r.jsonl",
        make_record(rmse=0.2, split=0),
        make_record(rmse=0.4, split=1, fit_seconds=3.0),
        make_record("gp", rmse=0.5, fit_seconds=9.0),
    )
    text = summarise(files)
    assert "0.300 ± 0.141" in text
    assert "0.379" in text  # the paper
    assert "≤ 0.350" in text  # the target
    assert "btn: RMSE meets the target; NLL meets the target; coverage is inside" in text
    # Only split 0 is common to both.
    assert "fit time 1 s is below the GP's 9 s" in text
    header, rule, *rows = text.splitlines()[1:5]
    assert len(rule) >= len(header)
    assert "rank" not in header  # no method has one here
    assert [row.split()[0] for row in rows] == ["btn", "gp"]


def test_summary_in_markdown(tmp_path):
    text = summarise(write(tmp_path / "r.jsonl", make_record()), markdown=True)
    assert text.startswith("### yacht\n\n| method | splits | RMSE |")
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in tables}) == 1


def test_summary_hides_older_code_and_counts_a_cell_once(tmp_path):
    files = write(
        tmp_path / "r.jsonl",
        make_record(code="old", rmse=7.0),
        make_record(code="new", rmse=0.6),
        make_record(code="new", rmse=0.5),
        make_record(code="new", rmse=0.1, config={"random_state": 0, "max_rank": 3}),
    )
    text = summarise(files)
    assert "7.000" not in text
    assert "1 result(s) of older code are hidden" in text
    assert "0.500" in text
    assert "0.600" not in text
    assert "btn max_rank=3" in text
    assert "7.000" in summarise(files, all_commits=True)


def test_summary_takes_metrics_it_does_not_know(tmp_path):
    record = make_record("constant", dataset="kernels")
    record["metrics"] = {"seconds_per_sweep": 0.25}
    assert "seconds_per_sweep" in summarise(write(tmp_path / "r.jsonl", record))


def test_summary_without_results_says_what_to_do(tmp_path):
    empty = tmp_path / "r.jsonl"
    with pytest.raises(FileNotFoundError, match="run a suite first"):
        summarise([empty])
    empty.write_text(json.dumps({"half": "a record"}) + "\n")
    with pytest.raises(ValueError, match="python -m benchmarks run smoke"):
        summarise([empty])
