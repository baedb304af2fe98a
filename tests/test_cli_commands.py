"""The commands that explain, evaluate and help, and what all of them have in common."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import btnkm
from btnkm import classifier, explain, metrics, parameters
from btnkm.cli import COMMANDS, console, demo, evaluate, methods, options, program
from tests.cli_data import INPUTS, QUICK, ROWS, houses, read, run, write


def test_what_the_program_has_copies_of_is_what_the_library_has():
    assert options.STRUCTURES == parameters.STRUCTURES
    assert options.CLASSIFIER_LIKELIHOODS == classifier.CLASSIFIER_LIKELIHOODS
    assert tuple(methods.RIVALS) == evaluate.METHODS
    assert demo.LEVELS == metrics.COVERAGE_LEVELS


@pytest.fixture
def here(sold_houses, tmp_path, monkeypatch):
    """A folder with the tables and models."""
    monkeypatch.chdir(tmp_path)
    for path in sold_houses.iterdir():
        Path(path.name).symlink_to(path)
    return tmp_path


def told(capsys):
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    return json.loads(out)


def test_help_comes_at_once():
    before = os.times()
    status, out, err = run("--help")
    after = os.times()
    assert (status, err) == (0, "")
    assert all(name in out for name in COMMANDS)
    assert "exit codes:" in out
    # its own time, whatever other programs are at work
    used = after.children_user + after.children_system
    assert used - before.children_user - before.children_system < 0.3
    code = (
        "import sys; from btnkm.cli.program import main; "
        "main(['fit', '--help']); print(len(sys.modules))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "numpy" not in process.stderr
    modules = int(process.stdout.splitlines()[-1])
    assert modules < 300  # scikit-learn alone has many more


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples_that_fits_a_narrow_terminal(
    name, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", "60")
    assert program.main([name, "--help"]) == 0
    out = capsys.readouterr().out
    body, examples = out.split("\nexamples:\n")
    assert examples.strip()
    assert "btnkm" in examples
    assert max(map(len, body.splitlines())) <= 60


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_help_run(name, here, monkeypatch, capsys):
    assert program.main([name, "--help"]) == 0
    lines = capsys.readouterr().out.split("\nexamples:\n")[1].strip().splitlines()
    if name == "demo":  # at its defaults it is what users wait for, not tests
        quick = partial(btnkm.BTNRegressor, structure="tensor", n_init=1, max_iter=3, max_rank=3)
        monkeypatch.setattr(btnkm, "BTNRegressor", quick, raising=False)
    for line in lines:
        words = shlex.split(line, comments=True)
        if name == "completion":
            words = re.findall(r"btnkm completion \w+", line)[0].split()
        if "<" in words:
            at = words.index("<")
            with Path(words[at + 1]).open(encoding="utf-8") as file:
                monkeypatch.setattr(sys, "stdin", file)
                status = program.main(words[1:at])
        else:
            quick = QUICK if name in ("fit", "evaluate") else ()
            at = words.index("-o") + 1 if "-o" in words else None
            if at is not None:
                Path(words[at]).unlink(missing_ok=True)
            status = program.main([*words[1:], *quick])
            assert at is None or Path(words[at]).stat().st_size > 0
        assert words[0] == "btnkm"
        assert status == 0, capsys.readouterr()
        assert capsys.readouterr().out


def test_explanations_are_those_of_the_library(here, capsys):
    assert program.main(["explain", "houses.btn", "--json", "--effects", "e.csv"]) == 0
    printed = told(capsys)
    model = btnkm.load("houses.btn")
    shares = explain.sobol_indices(model)
    np.testing.assert_allclose(printed["sobol_indices"]["total"], shares.total)
    np.testing.assert_allclose(printed["sobol_indices"]["first_std"], shares.first_std)
    assert printed["files"] == ["e.csv"]
    table = pd.read_csv("e.csv", keep_default_na=False)
    for effect in explain.effects(model):
        rows = table[table["input"] == effect.name]
        np.testing.assert_allclose(rows["mean"].astype(float), effect.mean)
        np.testing.assert_allclose(rows["high"].astype(float), effect.high)
    assert program.main(["explain", "houses.btn", "--effects", "e.json", "--inputs", "city"]) == 0
    capsys.readouterr()
    (city,) = json.loads(Path("e.json").read_text(encoding="utf-8"))
    assert city["name"] == "city"
    assert "São Paulo" in city["values"]


def test_contributions_of_rows_add_up(here, capsys):
    explains = ["explain", "houses.btn", "--local", "new.csv", "--keep", "id", "--std"]
    assert program.main([*explains, "-o", "l.csv", "--json"]) == 0
    assert told(capsys)["rows"] == 30
    actual = {name: np.array(v, dtype=float) for name, v in read("l.csv").items()}
    parts = sum(actual[f"contribution {name}"] for name in INPUTS)
    np.testing.assert_allclose(actual["base"] + parts, actual["prediction"], rtol=1e-10)
    frame = pd.read_csv("new.csv", parse_dates=["built"], dtype={"zip": str})[list(INPUTS)]
    expected = btnkm.load("houses.btn").predict(frame)
    np.testing.assert_allclose(actual["prediction"], expected, rtol=1e-8)
    assert np.all(actual["std area"] > 0)
    rows = [(f"{x:.2f}", "abc"[int(3 * x)]) for x in np.random.default_rng(0).uniform(size=50)]
    write("t.csv", rows, ("x", "y"))
    assert program.main(["fit", "t.csv", "--target", "y", "-o", "t.btn", "--quiet", *QUICK]) == 0
    assert program.main(["explain", "t.btn", "--local", "t.csv"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "class,base,contribution x,prediction"
    assert len(out) == 1 + 3 * 50


def test_pictures_of_a_model(here, capsys):
    assert program.main(["explain", "sold.btn", "--plots", "pictures", "--json"]) == 0
    files = told(capsys)["files"]
    assert "pictures/importances.png" in files
    assert "pictures/effects.png" in files
    for file in files:
        assert Path(file).read_bytes().startswith(b"\x89PNG")
    assert not list(Path("pictures").glob(".*"))


def test_an_evaluation_is_what_scikit_learn_would_find(here, capsys):
    from sklearn.model_selection import KFold

    options = ["--target", "price", "--only", "area,city", "--folds", "2", "--json", *QUICK]
    assert program.main(["evaluate", "houses.csv", "--against", "gp,boosting", *options]) == 0
    printed = told(capsys)
    assert (printed["task"], printed["rows"], printed["folds"]) == ("regression", ROWS, 2)
    assert list(printed["methods"]) == ["btnkm", "gp", "boosting"]
    assert any("boosting predicts no distribution" in note for note in printed["notes"])
    frame = pd.read_csv("houses.csv")
    X, y = frame[["area", "city"]], frame["price"]
    gaps = []
    for train, test in KFold(2, shuffle=True, random_state=0).split(X):
        how = {"n_init": 1, "max_iter": 6, "solver": btnkm.Solver(warm_sweeps=4), "random_state": 0}
        model = btnkm.BTNRegressor(**how, structure="tensor")
        model.fit(X.iloc[train], y.iloc[train])
        gaps.append(np.sqrt(np.mean((model.predict(X.iloc[test]) - y.iloc[test]) ** 2)))
    assert printed["methods"]["btnkm"]["rmse"]["folds"] == pytest.approx(gaps)
    assert printed["methods"]["btnkm"]["rmse"]["std"] == pytest.approx(np.std(gaps, ddof=1))
    spread = float(np.std(y))
    for method in printed["methods"].values():  # each has learned something, and knows how well
        assert method["rmse"]["mean"] < 0.6 * spread
        assert 0.75 < method["coverage_95"]["mean"] <= 1
        assert method["nll"]["mean"] < np.log(spread) + 1.42


def test_classes_are_evaluated_too(here, capsys):
    options = ["--target", "sold", "--only", "area,city,rooms", "--folds", "2", *QUICK]
    assert program.main(["evaluate", "houses.csv", "--against", "gp,boosting", *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "2-fold cross-validation of 'sold' in houses.csv: 120 rows, 3 inputs"
    assert lines[2].split() == ["btnkm", "gp", "boosting"]
    assert lines[3].startswith("  wrong classes")
    assert all(float(share) < 45 for share in re.findall(r"([\d.]+)% ±", lines[3]))
    for arguments, message in (
        (["--against", "magic"], "--against must be among gp, boosting"),
        (["--folds", "1"], "--folds must be 2 or more"),
        (["--against", "gp", "--weight", "rooms"], "--weight"),
    ):
        assert program.main(["evaluate", "houses.csv", "--target", "sold", *arguments]) == 2
        assert message in capsys.readouterr().err
    write("few.csv", houses(6))
    assert program.main(["evaluate", "few.csv", "--target", "price", "--folds", "5"]) == 1
    assert "must have at least 10 rows" in capsys.readouterr().err


def test_more_rows_than_a_gaussian_process_can_take(here, monkeypatch, capsys):
    from btnkm.cli import methods

    monkeypatch.setattr(methods, "GP_ROWS", 30)
    options = ["--target", "price", "--only", "area", "--folds", "2", "--json", *QUICK]
    assert program.main(["evaluate", "houses.csv", "--against", "gp", *options]) == 0
    printed = told(capsys)
    assert any("gp is fitted to 30 random rows of each fold" in note for note in printed["notes"])


def test_numbers_have_four_digits_and_their_deviation_as_many_decimals():
    values = {0.0: "0.000", 5610.4: "5610", 23021.3: "23021", 0.012345: "0.01235", 1e10: "1e+10"}
    assert {value: console.number(value) for value in values} == values
    assert console.number(903.2, like=5610.4) == "903"
    assert console.number(0.0353, like=11.58) == "0.04"


def test_what_is_in_a_model(here, capsys):
    assert program.main(["info", "houses.btn", "--json"]) == 0
    printed = told(capsys)
    assert (printed["estimator"], printed["rows"]) == ("BTNRegressor", ROWS)
    model = btnkm.load("houses.btn")
    assert printed["restarts"] == len(model.posterior_)
    assert sum(entry["weight"] for entry in printed["structures"]) == pytest.approx(1.0)
    names = [entry["name"].replace("+", " + ") for entry in printed["structures"]]
    assert all(name in printed["structure"] for name in names)
    kinds = [entry["kind"] for entry in printed["inputs"]]
    assert kinds == ["number", "number", "text", "date", "number or boolean", "text"]
    assert printed["inputs"][2]["categories"] == 3
    assert printed["parameters"]["max_iter"] == 6
    assert program.main(["info", "sold.btn"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^  structure +(sums|tensor)", out, re.MULTILINE)
    assert "2: no, yes" in out
    assert "1950-" in out


def test_targets_have_their_name_in_all_that_is_told(here, capsys):
    assert btnkm.load("houses.btn").target_name_ == "price"
    assert program.main(["info", "houses.btn"]) == 0
    assert re.search(r"^  target +price$", capsys.readouterr().out, re.MULTILINE)
    assert program.main(["info", "sold.btn", "--json"]) == 0
    assert told(capsys)["target"] == "sold"
    assert program.main(["explain", "houses.btn", "--effects", "e.csv"]) == 0
    assert capsys.readouterr().out.startswith("What predicts 'price'\n\n")
    assert set(read("e.csv")["unit"]) == {"price"}
    assert program.main(["explain", "houses.btn", "--json"]) == 0
    assert told(capsys)["target"] == "price"
    assert program.main(["report", "houses.btn", "-o", "r.html", "--quiet"]) == 0
    page = Path("r.html").read_text(encoding="utf-8")
    assert "What predicts price?" in page
    assert 'adds to the average of <strong><bdi class="name">price<' in page
    assert "Zero is the average" not in page  # which is of odds and counts


@pytest.mark.parametrize("width", [60, 120])
def test_output_fits_the_terminal(width, here, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    long = "a very long name of an input that nobody wants to type"
    rows = [(f"{i % 11}", f"{i % 7}", f"{(i % 11) * 2 + (i % 7)}.5") for i in range(60)]
    write("long.csv", rows, (long, "x", "y"))
    fits = ["fit", "long.csv", "--target", "y", "--test", "0.2", "-o", "long.btn", *QUICK]
    evaluates = ["evaluate", "long.csv", "--target", "y", "--folds", "2", "--against", "boosting"]
    for arguments in (
        fits,
        [*evaluates, *QUICK],
        ["info", "long.btn"],
        ["explain", "long.btn"],
    ):
        assert program.main(arguments) == 0
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= width
        assert ("…" in out) == (width == 60 and arguments[0] != "evaluate")


def _completed(words, folder):
    """Return what bash offers for the last of some words."""
    script = """
        eval "$(cat completion.bash)"
        COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
        _shtab_btnkm
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    process = subprocess.run(
        ["bash", "-c", script, "bash", *words], cwd=folder, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return set(process.stdout.split("\n")) - {""}


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_bash_completes_commands_options_values_and_files(here):
    status, out, err = run("completion", "bash")
    assert (status, err) == (0, "")
    Path("completion.bash").write_text(out)
    assert _completed(["btnkm", ""], here) >= set(COMMANDS)
    assert _completed(["btnkm", "e"], here) == {"explain", "evaluate"}
    assert _completed(["btnkm", "fit", "--max"], here) == {"--max-rank"}
    assert _completed(["btnkm", "fit", "houses.csv", "--network", ""], here) == {"cp", "tt"}
    assert _completed(["btnkm", "completion", ""], here) == {"bash", "zsh", "fish"}
    assert _completed(["btnkm", "predict", "hou"], here) == {
        "houses.btn",
        "houses.csv",
        "houses.parquet",
    }
    Path("houses").mkdir()
    assert _completed(["btnkm", "explain", "houses.btn", "--plots", "hou"], here) == {"houses"}
    assert "--likelihood" not in _completed(["btnkm", "predict", "--"], here)
    for name in COMMANDS:
        status, out, _ = run(name, "--help") if name == "fit" else (0, "", "")
        for flag in set(re.findall(r"(?<![\w-])--[a-z-]+", out.split("examples:")[0])):
            assert flag in _completed(["btnkm", name, flag], here)


@pytest.mark.parametrize(("shell", "check"), [("zsh", "-n"), ("fish", "--no-execute")])
def test_scripts_of_other_shells_name_everything(shell, check, tmp_path, capsys):
    import shutil

    assert program.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in COMMANDS:
        assert name in script
    for flag in ("target", "interval", "against", "plots"):
        assert flag in script
    if shutil.which(shell):
        path = tmp_path / "script"
        path.write_text(script)
        subprocess.run([shell, check, str(path)], check=True)


def test_without_a_command_or_with_an_unknown_one(capsys):
    for arguments in ([], ["guess"], ["--json", "guess"]):
        assert program.main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        if "--json" in arguments:
            assert "error" in json.loads(err)
    assert program.main(["--version"]) == 0
    assert capsys.readouterr().out == f"btnkm {btnkm.__version__}\n"


def test_without_pyarrow_and_matplotlib_it_says_what_to_install(here, monkeypatch, capsys):
    for module in ("data.table_files", "cli.output", "cli.explain"):
        monkeypatch.setattr(f"btnkm.{module}.find_spec", lambda name: None)
    for arguments in (
        ["predict", "houses.btn", "houses.parquet"],
        ["predict", "houses.btn", "new.csv", "-o", "o.parquet"],
        ["explain", "houses.btn", "--plots", "p"],
    ):
        assert program.main(arguments) == 1
        err = capsys.readouterr().err
        assert "pip install 'btnkm[cli]'" in err
        assert err.count("\n") == 1


def test_a_report_of_rows_held_out(here, capsys):
    reports = ["report", "houses.btn", "-o", "r.html", "--data", "test.csv"]
    assert program.main([*reports, "--target", "price", "--json"]) == 0
    assert told(capsys)["rows"] == 30
    page = Path("r.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html")
    assert "What predicts price?" in page
    assert "São Paulo" in page or "S\\u00e3o Paulo" in page
    assert program.main(["report", "houses.btn", "-o", "r.html", "--quiet"]) == 0
    assert "What predicts price?" in Path("r.html").read_text(encoding="utf-8")
    assert program.main(reports) == 2
    assert "--data and --target must come together" in capsys.readouterr().err
    assert program.main(["report", "sold.btn", "-o", "s.html", "--data", "test.csv",
                     "--target", "sold"]) == 0  # fmt: skip
