"""The tables of benchmark results."""

import json

import pytest

from benchmarks.accuracy import CLASSIFICATION, REGRESSION, task_of
from benchmarks.runs import runner
from benchmarks.runs.experiment import Cell
from benchmarks.runs.records import append_record
from benchmarks.summary import summarise

KNOWN = {
    REGRESSION: {"rmse": 0.3, "nll": 0.05, "coverage_95": 0.95},
    CLASSIFICATION: {"error": 0.04, "nll": 0.12, "brier": 0.03, "ece": 0.01},
}


def make_record(method="btn", split=0, code="abc", dataset="yacht", config=None, **metrics):
    task = task_of(dataset)
    cell = Cell(dataset, split, method, task.methods[method][1] if config is None else config)
    known = KNOWN[task] | {"rank": None, "fit_seconds": 1.0}
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


def test_summary_leaves_out_what_was_skipped(tmp_path):
    skipped = make_record("gp")
    skipped["metrics"] = {"skipped": "too many rows"}
    text = summarise(write(tmp_path / "r.jsonl", make_record(), skipped))
    assert "too many rows" not in text
    assert "gp" not in text


def test_summary_of_classes_shows_references_and_verdicts(tmp_path):
    files = write(
        tmp_path / "r.jsonl",
        make_record(dataset="spambase", error=0.03, nll=0.2, fit_seconds=3.0),
        make_record(dataset="spambase", error=0.05, nll=0.2, split=1, fit_seconds=5.0),
        make_record("hgb", dataset="spambase", fit_seconds=0.5),
        make_record("btn-ovr", dataset="spambase"),
        make_record("logistic", dataset="spambase"),
    )
    text = summarise(files)
    header, _, *rows = text.splitlines()[1:9]
    assert header.split()[:6] == ["method", "splits", "error", "NLL", "Brier", "ECE"]
    assert rows[0].split()[:5] == ["btn", "2", "0.040", "±", "0.014"]
    # Defaults are not settings: each label is the method's name alone.
    assert [row.split()[0] for row in rows[1:4]] == ["hgb", "btn-ovr", "logistic"]
    assert rows[4].split() == ["paper,", "best", "10", "0.066", "0.499"]
    assert rows[5].split() == ["target", "10", "≤", "0.046", "≤", "0.135", "≤", "0.020"]
    assert text.splitlines()[9] == (
        "btn: error meets the target; NLL misses the target; ECE meets the target; "
        "fit time 3 s is 6 times hgb's 0.5 s, within 10."
    )
    assert text.count("the target;") == 3  # btn alone is judged


def test_summary_says_when_boosting_is_ten_times_as_fast(tmp_path):
    files = write(
        tmp_path / "r.jsonl",
        make_record(dataset="adult", error=0.15, nll=0.31, ece=0.02, fit_seconds=25.0),
        make_record("hgb", dataset="adult", fit_seconds=2.0),
    )
    text = summarise(files)
    assert "btn: error misses the target; NLL misses the target; ECE misses the target; " in text
    assert "fit time 25 s is 12.5 times hgb's 2 s, not within 10." in text
    assert "paper, best" not in text  # it has no figures for the 14 columns


def test_summary_without_targets_compares_times_alone(tmp_path):
    files = write(
        tmp_path / "r.jsonl",
        make_record(dataset="wine", fit_seconds=2.0),
        make_record("hgb", dataset="wine"),
    )
    assert "\nbtn: fit time 2 s is 2 times hgb's 1 s, within 10.\n" in summarise(files)


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
    assert "7.000" in summarise(files, all_versions=True)


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
