"""``btnkm fit``, run as a user would."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import btnkm
from btnkm import explain
from btnkm.cli import program
from btnkm.cli.console import Console
from tests.cli_data import HEADER, INPUTS, QUICK, ROWS, houses, run, start, write

NO_SIGNALS = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("houses.csv", houses(60))
    return tmp_path


def fit(*arguments):
    """Run a quick fit in this process; return its exit code."""
    return program.main(["fit", *QUICK, *map(str, arguments)])  # what is given later counts


def told(capsys):
    """Return the JSON object that a command has printed, and nothing else."""
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    return json.loads(out)


def test_a_model_of_the_program_is_that_of_the_library(sold_houses):
    frame = pd.read_csv(
        sold_houses / "houses.csv", parse_dates=["built"], dtype={"zip": str, "garden": bool}
    )
    parameters = {
        "n_init": 1,
        "max_iter": 6,
        "solver": btnkm.Solver(warm_sweeps=4),
        "n_jobs": 1,
        "random_state": 0,
    }
    parameters["structure"] = "tensor"
    model = btnkm.BTNRegressor(**parameters).fit(frame[list(INPUTS)], frame["price"])
    loaded = btnkm.load(sold_houses / "houses.btn")
    assert list(loaded.feature_names_in_) == list(INPUTS)
    assert [column.kind for column in loaded.columns_] == [c.kind for c in model.columns_]
    mean, std = loaded.predict(frame[list(INPUTS)], return_std=True)
    expected, spread = model.predict(frame[list(INPUTS)], return_std=True)
    assert loaded.lower_bound_ == model.lower_bound_
    np.testing.assert_array_equal(mean, expected)
    np.testing.assert_array_equal(std, spread)
    given = loaded.get_params()
    assert all(given[name] == value for name, value in parameters.items())


@pytest.mark.parametrize("target", ["price", "sold"])
def test_a_small_table_is_fitted_as_the_frame_of_the_library(target, folder):
    """The whole default fit: what decides structures, restarts and functions is the same."""
    fits = ("fit", "houses.csv", "--target", target, "--only", "area,rooms,city,built", "--quiet")
    assert program.main([*fits, "--set", "max_iter=8", "--jobs", "1", "-o", "m.btn"]) == 0
    frame = pd.read_csv("houses.csv", parse_dates=["built"])
    X, estimator = frame[["area", "rooms", "city", "built"]], btnkm.BTNRegressor
    if target == "sold":
        estimator = btnkm.BTNClassifier
    model = estimator(random_state=0, max_iter=8, n_jobs=1).fit(X, frame[target])
    loaded = btnkm.load("m.btn")
    assert loaded.lower_bound_ == model.lower_bound_
    for ours, theirs in zip(loaded.structures_, model.structures_, strict=True):
        assert (ours["name"], ours["weight"]) == (theirs["name"], theirs["weight"])
    name = "predict" if target == "price" else "predict_proba"
    np.testing.assert_array_equal(getattr(loaded, name)(X), getattr(model, name)(X))


def test_a_table_beyond_memory_is_fitted_in_batches_to_the_same_model(folder, monkeypatch):
    from btnkm.cli import tables
    from btnkm.data import csv_file

    rows = [(*row, "1.5" if row[2] == "" else row[2]) for row in houses(60)]
    write("houses.csv", rows, (*HEADER, "w"))
    options = ("--target", "price", "--weight", "w", "--drop", "id,sold", "--test", "0.2")
    assert fit("houses.csv", *options, "--quiet", "-o", "memory.btn") == 0
    monkeypatch.setattr(tables, "MAX_IN_MEMORY", 0)
    monkeypatch.setattr(tables, "BATCH_ROWS", 16)
    monkeypatch.setattr(csv_file, "BLOCK_ROWS", 8)
    assert fit("houses.csv", *options, "--quiet", "-o", "batches.btn") == 0
    memory, batches = btnkm.load("memory.btn"), btnkm.load("batches.btn")
    assert memory.lower_bound_ == batches.lower_bound_
    X = pd.read_csv("houses.csv", parse_dates=["built"])[list(INPUTS)]
    np.testing.assert_array_equal(memory.predict(X), batches.predict(X))


def test_a_summary_says_what_was_done(folder, capsys):
    fits = ("fit", "houses.csv", "--target", "price", "--drop", "id,sold", *QUICK)
    status, out, err = run(*fits, "--test", "0.3", "-o", "m.btn", cwd=folder)
    assert (status, err) == (0, "")
    assert out.startswith("Saved m.btn: BTNRegressor of 'price', fitted in ")
    for words in ("of houses.csv", "6: 3 numbers, 1 text, 1 date, 1 boolean", "RMSE", "area"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80
    assert program.main(["explain", "m.btn"]) == 0
    told = capsys.readouterr().out
    assert out.endswith(told.split("\n\n")[1] + "\n")  # the same importances
    assert 'feature_importances_ in Python is the column "with others" scaled to sum to 1' in told
    assert program.main([*fits, "--quiet", "-o", "m.btn"]) == 0
    assert capsys.readouterr() == ("", "")


def test_views_of_a_model_that_was_just_fitted_know_the_target(folder, monkeypatch):
    from btnkm.cli import fit as module

    described, views = module.described, []
    monkeypatch.setattr(
        module, "described", lambda model: views.append(model.fitted_) or described(model)
    )
    options = ("--likelihood", "poisson", "--only", "area", *QUICK)
    assert fit("houses.csv", "--target", "rooms", *options, "--quiet", "-o", "m.btn") == 0
    assert views[0].target_name == "rooms"


def test_a_terminal_is_told_of_every_sweep(folder, monkeypatch, capsys):
    told = []

    @contextmanager
    def progress(self, what, unit=""):
        yield SimpleNamespace(update=lambda *told_of: told.append((unit, *told_of)))

    monkeypatch.setattr(Console, "progress", progress)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fits = ("houses.csv", "--target", "price", "--only", "area", "-o", "m.btn")
    fits = (*fits, "--max-rank", "3", "--set")
    assert fit(*fits, "structure=tensor") == 0
    sweeps = [what for unit, *what in told if unit == "sweeps"]
    assert len(sweeps) == len(btnkm.load("m.btn").history_)
    assert all(total == 0 for _, total, _ in sweeps)  # nobody knows how many there will be
    assert re.fullmatch(r"fitting, restart 1, sweep 1 \(warm\), rank \d+", sweeps[0][2])
    assert re.search(r"\(exact\), rank \d+, ELBO -?[\d.]+$", sweeps[-1][2])
    told.clear()
    assert fit(*fits, "structure=sums") == 0
    assert re.search(r"\(exact\), ELBO -?[\d.]+$", told[-1][-1])  # there is no rank


def test_json_is_one_object_with_the_scores_of_rows_held_out(folder, capsys):
    options = ("--target", "price", "--only", "area,city", "--test", "0.3", "--json", "-o", "m.btn")
    assert fit("houses.csv", *options) == 0
    printed = told(capsys)
    assert printed["rows"] + printed["test"]["rows"] == 60
    assert 5 < printed["test"]["rows"] < 40
    assert [entry["name"] for entry in printed["inputs"]] == ["area", "city"]
    assert [entry["kind"] for entry in printed["inputs"]] == ["number", "text"]
    assert printed["interrupted"] is False
    # the same rows are held out every time, and scored as the library would
    frame = pd.read_csv("houses.csv")
    held = np.random.default_rng([0, 1]).random(60) < 0.3
    model = btnkm.load("m.btn")
    shares = explain.sobol_indices(model)
    assert [entry["importance"] for entry in printed["inputs"]] == pytest.approx(shares.total)
    assert [entry["importance_std"] for entry in printed["inputs"]] == pytest.approx(
        shares.total_std
    )
    answers = model.predict_dist(frame.loc[held, ["area", "city"]])
    y = frame.loc[held, "price"].to_numpy()
    assert printed["test"]["rmse"] == pytest.approx(np.sqrt(np.mean((answers.mean - y) ** 2)))
    assert printed["test"]["nll"] == pytest.approx(-np.mean(answers.logpdf(y)))
    low, high = answers.interval(0.9).T
    assert printed["test"]["coverage_90"] == pytest.approx(np.mean((low <= y) & (y <= high)))


@pytest.mark.parametrize(
    ("target", "classes"),
    [
        (["a", "b", "c"], ["a", "b", "c"]),
        (["true", "false"], [False, True]),
        (["0", "1", "1.0"], [0, 1]),
        (["1", "2", "3"], None),
        (["0.5", "1.5"], None),
    ],
)
def test_what_a_target_holds_tells_what_is_fitted(target, classes, tmp_path, capsys):
    rows = [(f"{i % 7}", target[i % len(target)]) for i in range(30)]
    data, out = write(tmp_path / "t.csv", rows, ("x", "y")), tmp_path / "m.btn"
    assert fit(data, "--target", "y", "--json", "-o", out) == 0
    printed = told(capsys)
    assert printed["classes"] == classes
    assert type(btnkm.load(out)).__name__ == printed["estimator"]
    few = [note for note in printed["notes"] if "--classify" in note]
    assert len(few) == (target == ["1", "2", "3"])
    if target == ["1", "2", "3"]:
        assert fit(data, "--target", "y", "--classify", "--json", "-o", out) == 0
        assert told(capsys)["classes"] == [1, 2, 3]
    if classes == [0, 1]:
        assert fit(data, "--target", "y", "--regress", "--json", "-o", out) == 0
        assert told(capsys)["classes"] is None


def test_a_likelihood_tells_what_is_fitted(folder, capsys):
    assert fit("houses.csv", "--target", "rooms", "--likelihood", "negative_binomial",
               "--only", "area", "--json", "-o", "m.btn", "--max-rank", "3") == 0  # fmt: skip
    assert told(capsys)["estimator"] == "BTNRegressor"
    assert fit("houses.csv", "--target", "price", "--classify", "--likelihood", "student_t",
               "-o", "m.btn") == 2  # fmt: skip
    assert "--classify" in capsys.readouterr().err


def test_rows_without_a_target_are_left_out_and_told(tmp_path, capsys):
    rows = [
        (f"{i}", "" if i in (3, 8) else f"{(i - 20) ** 2}.5", f"{1 + i % 2}") for i in range(40)
    ]
    data, out = write(tmp_path / "t.csv", rows, ("x", "y", "w")), tmp_path / "m.btn"
    rank = ("--max-rank", "3")
    assert fit(data, "--target", "y", "--weight", "w", "--json", "-o", out, *rank) == 0
    printed = told(capsys)
    assert (printed["rows"], printed["rows_left_out"]) == (38, 2)
    assert [entry["name"] for entry in printed["inputs"]] == ["x"]
    assert any("left out 2 rows without 'y', the first in line 5" in n for n in printed["notes"])
    frame = pd.read_csv(data).dropna()
    parameters = {
        "n_init": 1,
        "max_iter": 6,
        "solver": btnkm.Solver(warm_sweeps=4),
        "random_state": 0,
    }
    parameters |= {"structure": "tensor", "max_rank": 3}
    model = btnkm.BTNRegressor(**parameters).fit(frame[["x"]], frame["y"], frame["w"])
    np.testing.assert_allclose(
        btnkm.load(out).predict(frame[["x"]]), model.predict(frame[["x"]]), rtol=1e-8
    )
    rows[4] = ("4", "1.5", "-1")
    write(data, rows, ("x", "y", "w"))
    assert fit(data, "--target", "y", "--weight", "w", "-o", out) == 1
    assert "line 6, column 'w': a weight must be" in capsys.readouterr().err


def test_targets_that_are_all_the_same_are_told(tmp_path, capsys):
    rows = [(f"{i}", f"{i % 3}", "7.0" if i % 2 else "7") for i in range(40)]
    data, out = write(tmp_path / "t.csv", rows, ("x", "z", "y")), tmp_path / "m.btn"
    message = "every row has the same target (7): there is nothing to predict."
    assert fit(data, "--target", "y", "--json", "-o", out) == 0
    output = told(capsys)
    assert output["notes"] == [message]
    assert [entry["importance"] for entry in output["inputs"]] == [0.0, 0.0]
    assert fit(data, "--target", "y", "-o", out) == 0
    printed, err = capsys.readouterr()
    assert err == f"note: {message}\n"
    assert printed.endswith("The data show no effect of any input.\n")
    assert program.main(["explain", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [printed.splitlines()[-1]]


def test_a_number_column_with_a_text_becomes_text_with_a_note_or_an_error(folder, capsys):
    rows = [list(row) for row in houses(60)]
    rows[45][1] = "big"
    write("late.csv", rows)
    options = ("--target", "price", "--only", "area", "-o", "m.btn")
    assert fit("late.csv", *options, "--json") == 0
    printed = told(capsys)
    assert printed["inputs"][0]["kind"] == "text"
    note, *others = printed["notes"]  # a category for each row has no effect that could be found
    assert all("no input was found to have an effect" in other for other in others)
    assert "column 'area' is read as text because of 'big' in line 47 of late.csv" in note
    Path("m.btn").unlink()
    assert fit("late.csv", *options, "--number", "area", "--json") == 1
    error = json.loads(capsys.readouterr().err)
    assert (error["file"], error["line"], error["column"]) == ("late.csv", 47, "area")
    assert "must hold a number, got 'big'" in error["error"]
    assert not Path("m.btn").exists()
    # a target that does so is no class
    rows[45][1], rows[50][7] = "90", "dear"
    write("late.csv", rows)
    assert fit("late.csv", *options) == 1
    assert "late.csv, line 52, column 'price'" in capsys.readouterr().err


def test_codes_are_text_if_that_is_said(folder, capsys):
    options = ("houses.csv", "--target", "price", "--only", "zip", "--json", "-o", "m.btn")
    kinds = []
    for more in ((), ("--text", "zip")):
        assert fit(*options, *more) == 0
        kinds.append(told(capsys)["inputs"][0]["kind"])
    assert kinds == ["number", "text"]
    assert btnkm.load("m.btn").columns_[0].categories == {"1010": 0, "2020": 1, "3030": 2}


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["31.12.2020", "1.2.2021"], "text", "is read as text; write dates as 2020-12-31"),
        (["12/31/2020", "", "1/2/21"], "text", "is read as text; write dates as 2020-12-31"),
        (["1,000.5", "999", "12,345,678"], "text", "is read as text; write numbers as 1000.5"),
        (["1.000,5", "999,5"], "text", "is read as text; write numbers as 1000.5"),
        (
            ["01234", "99999"],
            "number",
            "is read as numbers; --text 'x' keeps leading zeros, as in '01234'",
        ),
        (["2020-12-31", "2021-01-01"], "date", None),
        (["0.5", "0", "10", "-0.1"], "number", None),
        (["1.2.3", "1.2.4"], "text", None),
    ],
)
def test_what_looks_like_something_else_is_told(values, kind, expected, tmp_path, capsys):
    rows = [(values[i % len(values)], f"{i}.5") for i in range(30)]
    data, out = write(tmp_path / "t.csv", rows, ("x", "y")), tmp_path / "m.btn"
    assert fit(data, "--target", "y", "--json", "-o", out) == 0
    printed = told(capsys)
    assert printed["inputs"][0]["kind"] == kind
    notes = [note for note in printed["notes"] if note.startswith("column 'x'")]
    assert len(notes) == (expected is not None)
    assert expected is None or expected in notes[0]
    assert fit(data, "--target", "y", "--text", "x", "--json", "-o", out) == 0
    assert not [note for note in told(capsys)["notes"] if note.startswith("column 'x'")]


def _decimal_commas(rows):
    return [[v.replace(".", ",") if j in (1, 7) else v for j, v in enumerate(r)] for r in rows]


VARIANTS = {
    "plain": ({}, ()),
    "crlf": ({"lineterminator": "\r\n"}, ()),
    "mark": ({"encoding": "utf-8-sig"}, ()),
    "semicolons": ({"delimiter": ";"}, ()),
    "commas": ({"delimiter": ";"}, ("--decimal", ",")),
    "tabs": ({"delimiter": "\t"}, ()),
    "quotes": ({"quoting": 1}, ()),
    "latin": ({"encoding": "latin-1"}, ("--encoding", "latin-1")),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_table_in_another_guise_gives_the_same_model(name, sold_houses, tmp_path, capsys):
    how, options = VARIANTS[name]
    rows = houses(ROWS)
    data = write(tmp_path / "t.csv", _decimal_commas(rows) if name == "commas" else rows, **how)
    out = tmp_path / "m.btn"
    fits = (data, "--target", "price", "--drop", "id,sold", "--text", "zip", *options)
    assert fit(*fits, "--json", "-o", out) == 0
    notes = told(capsys)["notes"]
    assert [n for n in notes if "semicolons" in n] == notes
    assert bool(notes) == (how.get("delimiter") == ";")
    _same(btnkm.load(out), btnkm.load(sold_houses / "houses.btn"))


def _same(model, other):
    assert model.lower_bound_ == pytest.approx(other.lower_bound_, rel=1e-9)
    assert list(model.feature_names_in_) == list(other.feature_names_in_)
    for a, b in zip(model.columns_, other.columns_, strict=True):
        assert (a.name, a.kind, a.categories) == (b.name, b.kind, b.categories)


def test_packed_text_standard_input_and_parquet_give_the_same_model(sold_houses, tmp_path):
    fits = ("--target", "price", "--drop", "id,sold", "--text", "zip", *QUICK)
    text = (sold_houses / "houses.csv").read_text(encoding="utf-8")
    packed = tmp_path / "houses.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    known = btnkm.load(sold_houses / "houses.btn")
    out = tmp_path / "m.btn"
    status, _, err = run("fit", "-", *fits, "-o", out, given=text)
    assert (status, err) == (0, "")
    _same(btnkm.load(out), known)
    for data in (packed, sold_houses / "houses.parquet"):
        assert program.main(["fit", str(data), *fits, "-o", str(out), "--quiet"]) == 0
        _same(btnkm.load(out), known)


def test_folders_of_parquet_files_larger_than_a_block(tmp_path, monkeypatch, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from btnkm.cli import tables
    from btnkm.data import table_files

    monkeypatch.setattr(table_files, "PARQUET_ROWS", 16)
    monkeypatch.setattr(tables, "MAX_IN_MEMORY", 0)  # every pass reads the files anew
    rng = np.random.default_rng(0)
    (tmp_path / "rows").mkdir()
    for k in range(3):
        X = rng.uniform(size=(40, 2))
        y = [None, *(X[1:, 0] > X[1:, 1])]
        pq.write_table(
            pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}), tmp_path / f"rows/{k}.parquet"
        )
    for data in (tmp_path / "rows", tmp_path / "rows" / "*.parquet"):
        assert fit(data, "--target", "y", "--json", "-o", tmp_path / "m.btn") == 0
        printed = told(capsys)
        assert (printed["rows"], printed["rows_left_out"]) == (117, 3)
        assert printed["classes"] == [False, True]


def test_names_of_any_kind(tmp_path, capsys):
    header = ("größe, in m", "город", "", "y")
    rows = [(f"{i % 9}", "аб"[i % 2], f"{i}", f"{(i % 9) + (i % 2)}.5") for i in range(40)]
    data, out = write(tmp_path / "t.csv", rows, header), tmp_path / "m.btn"
    assert fit(data, "--target", "y", "--json", "-o", out) == 0
    printed = told(capsys)
    assert [entry["name"] for entry in printed["inputs"]] == ["größe, in m", "город", "column 3"]
    assert any("'column 3'" in note for note in printed["notes"])
    dropped = '"größe, in m",column 3'
    assert fit(data, "--target", "y", "--drop", dropped, "--json", "-o", out) == 0
    assert [entry["name"] for entry in told(capsys)["inputs"]] == ["город"]


BROKEN = {
    "empty": (b"", "must have a header and rows, got an empty file"),
    "blank": (b"\n\n", "got only blank lines"),
    "header": (b"x,y\n", "must have rows, got only a header"),
    "one row": (b"x,y\n1,2\n", "at least 2 rows with a target, got 1"),
    "wide": (b"x,y\n1,2\n1,2,3\n", "line 3: every row must have 2 fields"),
    "narrow": (b"x,y\n1,2\n\n1\n", "line 4: every row must have 2 fields"),
    "open quote": (b'x,y\n1,2\n"1,2\n3,4\n', "line 3: the quotation mark that opens here"),
    "stray quote": (b'x,y\n1,2\n"a"b,2\n', "line 3: a quotation mark inside a quoted field"),
    "bytes": (b"x,y\n1,2\n\xe9,2\n", "line 3: must be utf-8, got the byte 0xe9"),
    "nul": (b"x,y\n1,2\n\0,2\n", "line 3: must be text, got a NUL byte"),
    "twice": (b"x,y,x\n1,2,3\n", "line 1: column names must be unique, got 'x' 2"),
    "no target": (b"x,z\n1,2\n1,3\n", ": has no column 'y' (--target)"),
    "infinite": (b"x,y\n1,2.5\ninf,3\n2,4\n", "line 3, column 'x': must hold a finite number"),
    "utf-16": ("x,y\n1,2\n".encode("utf-16"), "must be UTF-8, got UTF-16"),
    "zip": (b"PK\x03\x04rest", "got a spreadsheet or a zip file"),
    "old": (b"x,y\r1,2\r", "lines must end with LF or CRLF"),
    "cut gzip": (gzip.compress(b"x,y\n" + b"1,2\n3,4\n" * 5000)[:-20], "got a damaged gzip file"),
    "commas": (b"x;y\n1;1,5\n2;2,5\n", "got numbers with decimal commas; add --decimal ,"),
    "days": (b"x,y\n1,31.12.2020\n2,1.1.2021\n", "write dates as 2020-12-31, or add --classify"),
    "dates": (b"x,y\n1,2024-01-01\n2,2024-01-02\n", "column 'y': a target must hold numbers or"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_table_is_one_sentence_with_file_and_line(name, tmp_path, capsys):
    content, message = BROKEN[name]
    data, out = tmp_path / "t.csv", tmp_path / "m.btn"
    data.write_bytes(content)
    assert fit(data, "--target", "y", "-o", out) == 1
    printed, err = capsys.readouterr()
    assert printed == ""
    assert err.startswith(f"error: {data}")
    assert message in err
    assert err.count("\n") == 1
    assert os.listdir(tmp_path) == ["t.csv"]


def test_a_quotation_mark_that_is_never_closed_is_found_in_a_long_file(tmp_path, capsys):
    data = tmp_path / "t.csv"
    data.write_text("x,y\n" + "1,2\n" * 99 + '"1,2\n' + "1,2\n" * 100_000)
    assert fit(data, "--target", "y", "-o", tmp_path / "m.btn") == 1
    assert "line 101: a field must be shorter" in capsys.readouterr().err


MISUSED = {
    "unknown option": (("houses.csv", "--target", "price", "--deep"), "--deep"),
    "no target": (("houses.csv",), "--target"),
    "a share": (("houses.csv", "--target", "price", "--test", "1.5"), "must lie between 0 and 1"),
    "nothing left": (("houses.csv", "--target", "price", "--only", "price"), "must be an input"),
    "both": (("houses.csv", "--target", "price", "--text", "zip", "--number", "zip"), "'zip'"),
    "parameter": (("houses.csv", "--target", "price", "--set", "depth=3"), "got 'depth'"),
    "separator": (("houses.csv", "--target", "price", "--separator", "ab"), "--separator"),
    "same mark": (
        ("houses.csv", "--target", "price", "--separator", ",", "--decimal", ","),
        "must differ",
    ),
    "encoding": (("houses.csv", "--target", "price", "--encoding", "klingon"), "klingon"),
    "jobs": (("houses.csv", "--target", "price", "--jobs", "0"), "--jobs: must be a whole number"),
    "memory": (("houses.csv", "--target", "price", "--memory-limit", "-1"), "--memory-limit: must"),
    "endless": (("houses.csv", "--target", "price", "--memory-limit", "inf"), "got 'inf'"),
    "seed": (("houses.csv", "--target", "price", "--random-state", "-1"), "--random-state: must"),
    "seeds": (
        ("houses.csv", "--target", "price", "--set", "random_state=3", "--random-state", "4"),
        "--set must not repeat --random-state, got random_state=3",
    ),
    "quiet": (("houses.csv", "--target", "price", "--quiet", "--verbose"), "not allowed with"),
    "weight": (("houses.csv", "--target", "price", "--weight", "price"), "--weight must not be"),
}


@pytest.mark.parametrize("name", MISUSED)
def test_misuse_is_one_sentence(name, folder, capsys):
    arguments, message = MISUSED[name]
    assert program.main(["fit", *arguments, "-o", "m.btn", "--json"]) == 2
    error = json.loads(capsys.readouterr().err)
    assert message in error.pop("error")
    assert error == {"file": None, "line": None, "column": None}
    assert program.main(["fit", *arguments, "-o", "m.btn"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("m.btn").exists()


def test_a_place_where_no_model_can_be_is_told_before_the_fit(folder, capsys):
    options = ["fit", "houses.csv", "--target", "price", "-o"]
    for place, message in (
        ("no/m.btn", "must be in an existing folder"),
        (".", "must name a file, got the folder"),
        ("houses.csv", "must not be the table itself"),
    ):
        assert program.main([*options, place]) == 2
        assert message in capsys.readouterr().err
    assert Path("houses.csv").read_text(encoding="utf-8").startswith(",".join(HEADER))
    if Path("/dev/null").exists():
        assert program.main([*options, "/dev/null"]) == 2
        assert not Path("/dev/null").is_file()
    assert program.main(["fit", "nothing.csv", "--target", "y", "-o", "m.btn"]) == 1
    assert capsys.readouterr().err.endswith("error: nothing.csv: No such file or directory.\n")


def _wait_for(process, sign):
    """Read what a process says until a line has the sign."""
    deadline = time.monotonic() + 600
    for line in process.stderr:
        if sign in line:
            return
        assert time.monotonic() < deadline
    raise AssertionError(f"the program ended without {sign!r}: {process.communicate()}")


@NO_SIGNALS
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_fit_that_is_stopped_keeps_what_it_has(how, folder):
    endless = ("--set", "max_iter=1000000", "--set", "tol=0", "--n-init", 1, "--jobs", 1)
    fits = ("fit", "houses.csv", "--target", "price", "--only", "area,city", "--verbose", *endless)
    process = start(*fits, "-o", "m.btn", cwd=folder)
    _wait_for(process, "exact")
    process.send_signal(how)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0
    assert "fitted until it was interrupted" in out
    told = r"note: Interrupted: the posteriors of (\d+) of \1 restarts are kept."
    assert re.search(told, err)
    model = btnkm.load(folder / "m.btn")
    assert np.all(np.isfinite(model.predict(pd.read_csv(folder / "houses.csv")[["area", "city"]])))


@NO_SIGNALS
def test_a_fit_that_is_stopped_too_early_says_that_nothing_is_saved(folder):
    # of a tensor alone: trial fits that weigh structures print no sweeps
    tensor = ("--set", "structure=tensor", "--verbose")
    endless = ("--set", "solver.warm_sweeps=1000000", "--n-init", "1", "--jobs", "1", *tensor)
    process = start("fit", "houses.csv", "--target", "price", *endless, "-o", "m.btn", cwd=folder)
    _wait_for(process, "warm")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "Interrupted before the first result: no model is saved."
    assert not (folder / "m.btn").exists()


@NO_SIGNALS
def test_a_fit_that_was_killed_goes_on_from_its_checkpoint(folder, capsys):
    sweeps = ("--set", "max_iter=60", "--set", "tol=0", "--n-init", "2", "--jobs", "1")
    sweeps += ("--set", "structure=tensor")
    fits = ("fit", "houses.csv", "--target", "price", "--only", "area,city,rooms", *sweeps)
    process = start(*fits, "--checkpoint", "c", "--verbose", "-o", "killed.btn", cwd=folder)
    _wait_for(process, "start  1")
    process.kill()
    process.communicate(timeout=600)
    assert Path("c").exists()
    assert not Path("killed.btn").exists()
    assert program.main([*fits, "--checkpoint", "c", "-o", "killed.btn", "--quiet"]) == 0
    assert program.main([*fits, "-o", "whole.btn", "--quiet"]) == 0
    _same(btnkm.load("killed.btn"), btnkm.load("whole.btn"))
