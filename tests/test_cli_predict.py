"""``btnkm predict``, run as a user would."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import btnkm
from btnkm.cli import program
from tests.cli_data import HEADER, INPUTS, ROWS, houses, read, run, start, write, write_parquet

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Windows is another world")


@pytest.fixture
def here(sold_houses, tmp_path, monkeypatch):
    """An empty folder, from which the tables and models are one step away."""
    monkeypatch.chdir(tmp_path)
    for name in ("houses.btn", "sold.btn", "new.csv"):
        Path(name).symlink_to(sold_houses / name)
    return tmp_path


def frame(path):
    written = pd.read_csv(path, parse_dates=["built"], dtype={"zip": str, "garden": bool})
    return written[list(INPUTS)]


def numbers(column):
    return np.array(column, dtype=float)


def test_means_deviations_intervals_and_quantiles_are_those_of_the_library(here):
    options = ("--interval", "0.8", "--quantiles", "0.1,0.5", "-o", "out.csv")
    status, out, err = run("predict", "houses.btn", "new.csv", *options)
    assert (status, err) == (0, "")
    assert out.startswith("Wrote 30 predictions to out.csv in ")
    written = read("out.csv")
    assert list(written) == ["mean", "std", "low", "high", "q0.1", "q0.5"]
    answers = btnkm.load("houses.btn").predict_dist(frame("new.csv"))
    np.testing.assert_array_equal(numbers(written["mean"]), answers.mean)
    np.testing.assert_array_equal(numbers(written["std"]), answers.std)
    low, high = answers.interval(0.8).T
    np.testing.assert_array_equal(numbers(written["low"]), low)
    np.testing.assert_array_equal(numbers(written["high"]), high)
    np.testing.assert_array_equal(numbers(written["q0.5"]), answers.quantile(0.5))
    assert not list(here.glob(".*"))


def test_classes_and_their_probabilities_on_standard_output(here):
    text = Path("new.csv").read_text(encoding="utf-8")
    status, out, err = run("predict", "sold.btn", "-", "--interval", "0.9", given=text)
    assert (status, err) == (0, "")
    header, *rows = csv.reader(io.StringIO(out))
    assert header == ["label", "probability no", "probability yes", "low yes", "high yes"]
    model = btnkm.load("sold.btn")
    data = pd.read_csv("new.csv", parse_dates=["built"], dtype={"zip": str, "garden": bool})
    X = data[list(model.feature_names_in_)]
    assert [row[0] for row in rows] == model.predict(X).tolist()
    actual = np.array([row[1:] for row in rows], dtype=float)
    np.testing.assert_array_equal(actual[:, :2], model.predict_proba(X))
    np.testing.assert_array_equal(actual[:, 2:], model.predict_proba_interval(X, 0.9))


def test_more_than_two_classes_have_an_interval_each(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [(f"{x:.3f}", "abc"[int(3 * x)]) for x in rng.uniform(size=60)]
    data, model, out = (
        write(tmp_path / "t.csv", rows, ("x", "y")),
        tmp_path / "m",
        tmp_path / "o.csv",
    )
    quick = ["--n-init", "1", "--set", "max_iter=4", "--quiet"]
    assert program.main(["fit", str(data), "--target", "y", "-o", str(model), *quick]) == 0
    assert (
        program.main(["predict", str(model), str(data), "--interval", "0.5", "-o", str(out)]) == 0
    )
    written = read(out)
    assert list(written) == [
        "label", "probability a", "probability b", "probability c",
        "low a", "high a", "low b", "high b", "low c", "high c",
    ]  # fmt: skip
    expected = btnkm.load(model).predict_proba_interval(pd.read_csv(data)[["x"]], 0.5)
    np.testing.assert_array_equal(numbers(written["low b"]), expected[:, 1, 0])
    np.testing.assert_array_equal(numbers(written["high c"]), expected[:, 2, 1])


def test_kept_columns_come_first_as_they_are_and_blocks_join(here, monkeypatch, capsys):
    from btnkm.data import csv_file

    predict = ["predict", "houses.btn", "new.csv", "--keep", "id,city", "-o"]
    assert program.main([*predict, "whole.csv"]) == 0
    monkeypatch.setattr(csv_file, "BLOCK_ROWS", 7)
    assert program.main([*predict, "parts.csv"]) == 0
    actual, whole, given = read("parts.csv"), read("whole.csv"), read("new.csv")
    np.testing.assert_allclose(numbers(actual["mean"]), numbers(whole["mean"]), rtol=1e-12)
    assert list(actual) == ["id", "city", "mean", "std"]
    assert (actual["id"], actual["city"]) == (given["id"], given["city"])
    assert program.main(["predict", "houses.btn", "new.csv", "--keep", "-o", "all.csv.gz"]) == 0
    with gzip.open("all.csv.gz", "rt", encoding="utf-8") as file:
        assert next(csv.reader(file)) == [*HEADER, "mean", "std"]
    write("named.csv", [("1", *row) for row in houses(3)], ("mean", *HEADER))
    assert program.main(["predict", "houses.btn", "named.csv", "--keep", "-o", "o.csv"]) == 2
    assert "got 'mean' from the table and from the model" in capsys.readouterr().err
    named = ["predict", "houses.btn", "named.csv", "--keep", "mean", "--prefix", "price "]
    assert program.main([*named, "-o", "o.tsv"]) == 0
    assert Path("o.tsv").read_text().splitlines()[0] == "mean\tprice mean\tprice std"


def test_parquet_in_and_out(here, sold_houses, capsys):
    import pyarrow.parquet as pq

    rows = sold_houses / "houses.parquet"
    predict = ["predict", "houses.btn", str(rows), "--keep", "id,built,garden"]
    assert program.main([*predict, "-o", "o.parquet", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["columns"][0], told["notes"]) == (ROWS, "id", [])
    written = pq.read_table("o.parquet").to_pandas()
    assert written["id"].tolist() == list(range(ROWS))
    assert written["garden"].dtype == bool
    assert written["built"].iloc[0] == pd.read_parquet(rows)["built"].iloc[0]
    expected = btnkm.load("houses.btn").predict(frame(sold_houses / "houses.csv"))
    np.testing.assert_allclose(written["mean"], expected, rtol=1e-12)
    assert program.main([*predict, "-o", "o.csv"]) == 0
    np.testing.assert_array_equal(numbers(read("o.csv")["mean"]), written["mean"])
    # text in Parquet is read as that of other files is
    table = pd.read_parquet(rows).astype({"area": str})
    table.loc[41, "area"] = "wide"
    table.to_parquet("text.parquet")
    assert program.main(["predict", "houses.btn", "text.parquet", "-o", "o.csv"]) == 1
    assert "text.parquet, row 42, column 'area': must hold a number" in capsys.readouterr().err


def test_columns_in_any_order_with_others_and_missing_values(here, capsys):
    rows = [dict(zip(HEADER, row, strict=True)) for row in houses(5, seed=3)]
    rows[1]["area"] = rows[2]["city"] = "NA"
    rows[3]["garden"], rows[3]["zip"], rows[4]["built"] = "True", "never seen", ""
    order = ("zip", "garden", "more", "city", "built", "area", "rooms")
    write("t.csv", [[row.get(name, "?") for name in order] for row in rows], order)
    assert program.main(["predict", "houses.btn", "t.csv", "-o", "o.csv"]) == 0
    X = pd.DataFrame(rows)[list(INPUTS)]
    X["area"] = pd.to_numeric(X["area"], errors="coerce")
    X["rooms"] = pd.to_numeric(X["rooms"])
    X["garden"] = X["garden"].str.lower() == "true"
    X["built"] = pd.to_datetime(X["built"])
    X["city"] = X["city"].where(X["city"] != "NA", None)
    expected = btnkm.load("houses.btn").predict(X)
    np.testing.assert_array_equal(numbers(read("o.csv")["mean"]), expected)


def test_what_the_fit_has_not_seen_is_counted_and_told(here, monkeypatch, capsys):
    from btnkm.data import csv_file

    monkeypatch.setattr(csv_file, "BLOCK_ROWS", 7)
    rows = houses(30, seed=1)
    rows[3] = _changed(rows[3], "city", "Oslo")
    rows[25] = _changed(rows[25], "city", "Paris")
    rows[26] = _changed(rows[26], "area", "")
    rows[27] = _changed(rows[27], "rooms", "")  # as in the fit
    write("t.csv", rows)
    expected = [
        "column 'city' has categories that no training row had in 2 rows, first 'Oslo'.",
        "column 'area' has missing values in 1 row, but had none in the training rows.",
    ]
    for command in (
        ["predict", "houses.btn", "t.csv"],
        ["explain", "houses.btn", "--local", "t.csv"],
    ):
        assert program.main([*command, "-o", "o.csv", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["notes"] == expected
        assert (printed["unseen_categories"], printed["unseen_missing"]) == (
            {"city": 2},
            {"area": 1},
        )
        assert program.main(command) == 0
        assert capsys.readouterr().err == "".join(f"note: {answer}\n" for answer in expected)


def test_one_row_and_none(here, capsys):
    write("one.csv", houses(1))
    assert program.main(["predict", "houses.btn", "one.csv", "-o", "o.csv"]) == 0
    assert len(read("o.csv")["mean"]) == 1
    write("none.csv", [])
    for out in ("o.csv", "o.parquet"):
        assert program.main(["predict", "sold.btn", "none.csv", "-o", out]) == 0
    assert Path("o.csv").read_text() == "label,probability no,probability yes\n"
    assert pd.read_parquet("o.parquet").shape == (0, 3)


def _changed(row, column, value):
    return tuple(value if name == column else v for name, v in zip(HEADER, row, strict=True))


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("area", "12 m", "must hold a number, got '12 m'"),
        ("area", "1_000", "must hold a number, got '1_000'"),
        ("area", "-inf", "must hold a finite number, got '-inf'"),
        ("built", "31.12.1999", "must hold a date such as 2024-12-31, got '31.12.1999'"),
        ("built", "1999-02-31", "must hold a date such as 2024-12-31, got '1999-02-31'"),
        ("garden", "perhaps", "must hold a number, true or false, got 'perhaps'"),
    ],
)
def test_a_wrong_value_is_told_with_file_line_and_column(column, value, expected, here, capsys):
    rows = houses(4)
    # a field of two lines comes before: lines are those of the file, not rows
    rows[0] = _changed(rows[0], "city", "two\nlines")
    rows[2] = _changed(rows[2], column, value)
    write("bad.csv", rows)
    assert program.main(["predict", "houses.btn", "bad.csv", "-o", "o.csv", "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    error = json.loads(err)
    assert (error["file"], error["line"], error["column"]) == ("bad.csv", 5, column)
    assert error["error"].startswith(f"bad.csv, line 5, column {column!r}: {expected}")
    assert not Path("o.csv").exists()


def test_what_cannot_be_is_one_sentence(here, capsys):
    write("less.csv", [row[2:] for row in houses(3)], HEADER[2:])
    Path("old.csv").write_text("as it was")
    Path("folder").mkdir()
    for status, message, *arguments in (
        (1, "less.csv: has no column 'area' (an input of the model)", "houses.btn", "less.csv"),
        (1, "nothing.csv: No such file", "houses.btn", "nothing.csv"),
        (1, "nothing.btn: No such file", "nothing.btn", "new.csv"),
        (
            1,
            "less.csv: the model must be one saved by btnkm, got a file of another kind;",
            "less.csv",
            "new.csv",
        ),
        (1, "folder: the model must be a file, got a folder", "folder", "new.csv"),
        (
            1,
            "new.csv: has no column 'x' (--keep)",
            "houses.btn",
            "new.csv",
            "--keep",
            "x",
        ),
        (
            2,
            "--quantiles needs a regressor, got a classifier",
            "sold.btn",
            "new.csv",
            "--quantiles",
            ".5",
        ),
        (2, "must lie between 0 and 1, got '95'", "houses.btn", "new.csv", "--interval", "95"),
    ):
        assert program.main(["predict", *arguments, "-o", "old.csv"]) == status
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert message in err
        assert err.count("\n") == 1
    assert Path("old.csv").read_text() == "as it was"
    assert program.main(["predict", "houses.btn", "new.csv", "-o", "o.xlsx"]) == 2
    assert "must end with .csv" in capsys.readouterr().err
    assert program.main(["predict", "houses.btn", "new.csv", "--json"]) == 2
    assert "add -o FILE" in json.loads(capsys.readouterr().err)["error"]


@POSIX
def test_what_is_read_is_never_written_over(here, monkeypatch, capsys):
    for name in ("new.csv", "houses.btn"):
        kept = Path(name).read_bytes()
        Path(name).unlink()
        Path(name).write_bytes(kept)
    Path("link.csv").symlink_to("new.csv")
    Path("model.csv").symlink_to("houses.btn")
    Path("model.html").symlink_to("houses.btn")
    Path("new.html").symlink_to("new.csv")
    Path("rows").mkdir()
    write_parquet("rows/0.parquet", houses(5))
    before = {path: path.read_bytes() for path in (Path("new.csv"), Path("houses.btn"))}
    predicts, table = ("predict", "houses.btn", "new.csv", "-o"), ("--data", "new.csv")
    for what, *arguments in (
        ("table", *predicts, "new.csv"),
        ("table", *predicts, "link.csv"),
        ("model", *predicts, "model.csv"),
        ("table", "predict", "houses.btn", "rows", "-o", "rows/0.parquet"),
        ("table", "predict", "houses.btn", "rows/*.parquet", "-o", "rows/0.parquet"),
        ("table", "explain", "houses.btn", "--local", "new.csv", "-o", "new.csv"),
        ("model", "explain", "houses.btn", "--effects", "model.csv"),
        ("model", "report", "houses.btn", "-o", "model.html"),
        ("table", "report", "houses.btn", "-o", "new.html", *table, "--target", "price"),
        ("table", "fit", "new.csv", "--target", "price", "--checkpoint", "link.csv", "-o", "m"),
    ):
        assert program.main(arguments) == 2
        assert f"must not be the {what} itself" in capsys.readouterr().err
    for name in ("houses.btn", "r.txt"):
        assert program.main(["report", "houses.btn", "-o", name]) == 2
        assert "--output must end with .html or .htm" in capsys.readouterr().err
    with Path("new.csv").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert program.main(["predict", "houses.btn", "-", "-o", "new.csv"]) == 2
    assert "must not be the table itself" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before


@POSIX
def test_what_is_no_file_is_written_to_and_stays_what_it_is(here):
    assert program.main(["predict", "houses.btn", "new.csv", "-o", "/dev/null", "--quiet"]) == 0
    assert Path("/dev/null").is_char_device()


def test_models_without_names_take_columns_by_their_place(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(50, 2))
    model = btnkm.BTNRegressor(n_init=1, max_iter=4, random_state=0).fit(X, X[:, 0] + X[:, 1])
    model.save(tmp_path / "m.btn")
    rows = [[f"{v!r}" for v in row.tolist()] for row in X]
    data, out = write(tmp_path / "t.csv", rows, ("a", "b")), tmp_path / "o.csv"
    assert program.main(["predict", str(tmp_path / "m.btn"), str(data), "-o", str(out)]) == 0
    np.testing.assert_allclose(numbers(read(out)["mean"]), model.predict(X), rtol=1e-12)
    write(data, [[*row, "1"] for row in rows], ("a", "b", "c"))
    assert program.main(["predict", str(tmp_path / "m.btn"), str(data), "-o", str(out)]) == 1
    assert (
        "must have 2 columns, as the model was fitted without names, got 3"
        in capsys.readouterr().err
    )


@POSIX
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
def test_who_is_killed_in_the_middle_leaves_no_half_of_a_file(how, here):
    Path("out.csv").write_text("as it was")
    process = start("predict", "houses.btn", "-", "-o", "out.csv", stdin=subprocess.PIPE)
    rows = "".join(",".join(row) + "\n" for row in houses(500))
    process.stdin.write(",".join(HEADER) + "\n" + rows * 40)  # more than a block: some are written
    process.stdin.flush()
    deadline = time.monotonic() + 600
    while not any(path.stat().st_size for path in here.glob(".*-out.csv")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(getattr(signal, how))
    process.communicate(timeout=600)
    assert Path("out.csv").read_text() == "as it was"
    if how == "SIGTERM":
        assert process.returncode == 130
        assert not list(here.glob(".*"))


@POSIX
def test_memory_does_not_grow_with_the_rows(here):
    code = (
        "import resource, sys; from btnkm.cli.program import main; status = main(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); sys.exit(status)"
    )
    rows = houses(1000)
    peaks = []
    for times in (20, 200):
        write("many.csv", rows * times)
        predict = ("predict", "houses.btn", "many.csv", "--keep", "-o", "o.csv", "--quiet")
        process = subprocess.run(
            [sys.executable, "-c", code, *predict], capture_output=True, text=True, check=True
        )
        peaks.append(int(process.stdout))
        with Path("o.csv").open(encoding="utf-8") as file:
            assert sum(1 for _ in file) == 1000 * times + 1
    # 180,000 rows of nine texts are a hundred megabytes, half of what the rest takes
    assert peaks[1] < 1.25 * peaks[0]


@POSIX
def test_streams_that_are_closed_are_one_sentence_or_none(here):
    def shell(command):
        program = f"{sys.executable} -m btnkm {command}"
        process = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
        return process.returncode, process.stdout, process.stderr

    message = "standard output must be open, got it closed; send it to a file, or add -o FILE and"
    assert shell("predict houses.btn - <&-") == (
        1,
        "",
        "error: standard input: must be open, got it closed; name a file.\n",
    )
    for command in ("info houses.btn >&-", "predict houses.btn new.csv --quiet >&-"):
        assert shell(command) == (1, "", f"error: {message} --quiet.\n")
    assert shell("predict houses.btn nothing.csv 2>&-") == (1, "", "")
    write("t.csv", [_changed(row, "city", "Oslo") for row in houses(3)])  # of which there is a note
    status, out, _ = shell("predict houses.btn t.csv 2>&-")
    assert (status, out.count("\n")) == (0, 4)
    assert shell("predict houses.btn t.csv -o o.csv --quiet <&- >&- 2>&-") == (0, "", "")
    assert Path("o.csv").read_text() == out


@POSIX
def test_a_full_disk_is_told_with_the_file(here, capsys):
    import resource

    write("many.csv", houses(200) * 20)
    fit = "fit new.csv --target price --n-init 1 --set max_iter=2"
    for command, file in (
        ("predict houses.btn many.csv -o o.csv", "o.csv"),
        ("predict houses.btn many.csv -o o.parquet", "o.parquet"),
        ("report houses.btn -o r.html", "r.html"),
        (f"{fit} -o m.btn", "m.btn"),
    ):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
        try:
            status = program.main(command.split())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (status, *capsys.readouterr()) == (1, "", f"error: {file}: File too large.\n")
        assert not Path(file).exists()
    if Path("/dev/full").exists():
        command = f"{sys.executable} -m btnkm info houses.btn > /dev/full"
        process = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        message = "error: standard output: No space left on device.\n"
        assert (process.returncode, process.stderr) == (1, message)


@POSIX
def test_rows_on_a_terminal_have_no_bar_among_them(here):
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "btnkm", "predict", "houses.btn", "new.csv"]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        message = b""
        with contextlib.suppress(OSError):  # of a terminal that nobody has any more
            while some := os.read(ours, 4096):
                message += some
    os.close(ours)
    assert process.returncode == 0
    assert message.startswith(b"mean,std\r\n")
    assert b"\x1b" not in message


@POSIX
def test_a_reader_who_has_seen_enough_is_no_error(here):
    write("many.csv", houses(200) * 100)
    command = f"{sys.executable} -m btnkm predict houses.btn many.csv | head -n 2"
    process = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert process.stdout.startswith("mean,std\n")
    assert process.stderr == ""
