"""``python -m benchmarks.reproduce``: run as a user would, killed in the middle, and drawn."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reproduce import printed, synthetic
from benchmarks.reproduce.__main__ import main
from benchmarks.reproduce.experiments import (
    ALL_SETS,
    EXPERIMENTS,
    RANKS,
    SETS,
    cells_of,
    config_of,
    methods_of,
    synthetic_config_of,
)
from benchmarks.reproduce.measures import effective_functions, effective_rank, measure
from benchmarks.reproduce.methods import METHODS
from benchmarks.reproduce.render import render, tables
from benchmarks.reproduce.render.page import prose
from benchmarks.reproduce.render.results import Results
from benchmarks.runs import machine, runner
from benchmarks.runs.experiment import Cell, CellError
from benchmarks.runs.records import append_record, claimed, read_records, repair
from benchmarks.runs.worker import Worker
from btnkm.baselines.base import Powers

SHAPES = {"yacht": (40, 7, True), "airfoil": (50, 6, True)}
#: The program as it is, with smaller models.
SMALL = """
import sys

from benchmarks.reproduce.__main__ import main
from benchmarks.reproduce.methods import METHODS

given = {"structure": "tensor", "n_init": 1, "max_rank": 4}
sizes = {"btn": given, "literal": {"n_basis": 5, "max_rank": 5}}
for name, size in sizes.items():
    method = METHODS[name]
    METHODS[name] = method._replace(
        config=lambda dataset, of=method.config, size=size: of(dataset) | size
    )
sys.exit(main())
"""
WHOLE = json.dumps(
    dict.fromkeys(("dataset", "split", "method", "config", "config_hash", "metrics", "code"))
).encode()
DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with small tables of the shapes of two of the real ones, with an effect in them."""
    rng = np.random.default_rng(0)
    data = tmp_path / "data"
    data.mkdir()
    for name, (n_rows, n_columns, _) in SHAPES.items():
        table = rng.uniform(-1, 1, size=(n_rows, n_columns))
        table[:, -1] = np.sin(3 * table[:, 0]) + table[:, 1] + 0.1 * rng.normal(size=n_rows)
        lines = [",".join(f"c{j}" for j in range(n_columns))]
        lines += [",".join(f"{value:.17g}" for value in row) for row in table]
        (data / f"{name}.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("BTNKM_DATA", str(data))
    return data


def start(*arguments, program=("-m", "benchmarks.reproduce")):
    return subprocess.Popen(
        [sys.executable, *program, *map(str, arguments)],
        cwd=DOCS.parent,  # the package of a checkout
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process, seconds=300):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def metrics_of(path):
    """Return the results of every run, without what differs from time to time."""
    records, n_broken = read_records(path)
    assert n_broken == 0
    return {
        (r["dataset"], r["split"], r["method"]): {
            name: value for name, value in r["metrics"].items() if name != "fit_seconds"
        }
        for r in records
    }


def test_two_splits_of_two_sets_from_end_to_end(folder, tmp_path):
    out = tmp_path / "out"
    methods = "btn,gp,tkrr,literal"
    small = ("-c", SMALL)
    chosen = ("--splits", 2, "--datasets", "yacht,airfoil", "--methods", methods, "--out", out)
    status, output, err = finish(start("table4", *chosen, "--jobs", 2, program=small))
    assert (status, err) == (0, "")
    assert "16 new result(s)" in output
    assert "Note: yacht has 40 rows here and 308 in the paper" in output
    assert "left]" in output  # an estimate of the time
    records, _ = read_records(out / "results.jsonl")
    assert {(r["dataset"], r["split"]) for r in records} == {
        (name, split) for name in SHAPES for split in (0, 1)
    }
    for record in records:
        for name in ("config", "versions", "code", "cpu", "threads", "seconds", "timestamp"):
            assert record[name] is not None
        assert record["threads"].get("blas", 1) == 1
        assert np.isfinite(record["metrics"]["rmse"])
        assert ("nll" in record["metrics"]) == (record["method"] != "tkrr")
    with (out / "table4.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    ours = [row for row in rows if row["method"] == "btnkm" and row["score"] == "RMSE"]
    assert [row["data set"] for row in ours] == ["Yacht", "Airfoil"]
    values = [
        r["metrics"]["rmse"] for r in records if r["dataset"] == "yacht" and r["method"] == "btn"
    ]
    assert float(ours[0]["ours"]) == pytest.approx(np.mean(values), rel=1e-5)
    assert float(ours[0]["printed"]) == 0.379
    assert float(ours[0]["difference"]) == pytest.approx(np.mean(values) - 0.379, abs=1e-4)
    assert ours[0]["splits"] == "2"
    assert "random_state=0" in ours[0]["configuration"]
    for name in ("version", "machine", "seeds"):
        assert ours[0][name]
    for name in ("table4.png", "table4.svg", "table4.md", "glance.md", "reproduction.md"):
        assert (out / name).stat().st_size > 0
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "<svg role=" in page
    assert "0.379 ± 0.132" in page
    assert "http-equiv" not in page
    assert 'src="' not in page  # needs no other file
    # again: nothing is left to do, and one process alone finds the same
    status, output, _ = finish(start("table4", *chosen, program=small))
    assert status == 0
    assert "16 of 16 runs are in" in output
    alone = tmp_path / "alone"
    picked = ("--splits", 1, "--datasets", "yacht", "--methods", "btn,literal", "--out", alone)
    assert finish(start("table4", *picked, "--jobs", 1, program=small))[0] == 0
    both = metrics_of(out / "results.jsonl")
    for key, actual in metrics_of(alone / "results.jsonl").items():
        assert actual == both[key]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_killed_run_goes_on_where_it_was(folder, tmp_path):
    out = tmp_path / "out"
    results = out / "results.jsonl"
    chosen = ("table4", "--datasets", "yacht", "--methods", "tkrr", "--out", out, "--jobs", 2)
    chosen += ("--splits", 6)
    process = start(*chosen)
    deadline = time.monotonic() + 120
    while not results.exists() or results.read_bytes().count(b"\n") < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = children_of(process.pid)
    assert len(workers) == 2 or not Path("/proc").exists()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    while any(map(is_running, workers)):  # they do not outlive it
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kept = results.read_bytes()
    n_kept = kept.count(b"\n")
    assert 2 <= n_kept < 6
    with results.open("ab") as file:
        file.write(kept[:50])  # killed while writing
    status, output, err = finish(start(*chosen))
    assert (status, err) == (0, "")
    assert "Cut off a line" in output
    assert f"{n_kept} of 6 runs are in" in output
    assert results.read_bytes().startswith(kept)
    assert sorted(split for _, split, _ in metrics_of(results)) == list(range(6))


def children_of(pid):
    """Return the processes that any thread of a process has started."""
    listings = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for listing in listings for child in listing.read_text().split()]


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT")
def test_an_interrupt_leaves_what_is_finished(folder, tmp_path):
    out = tmp_path / "out"
    results = out / "results.jsonl"
    process = start("table4", "--datasets", "yacht", "--methods", "tkrr", "--out", out, "--jobs", 1)
    deadline = time.monotonic() + 120
    while not results.exists() or results.read_bytes().count(b"\n") < 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    status, output, err = finish(process)
    assert (status, err) == (130, "")
    assert "The same command continues" in output
    assert not (out / "index.html").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["table4", "--splits", "11"], "--splits must be 1 to 10"),
        (["table4", "--jobs", "0"], "--jobs must be 1 or more"),
        (["table4", "--datasets", "iris"], "--datasets must be among"),
        (["table4", "--methods", "magic"], "--methods must be among"),
        (["fig3", "--datasets", "yacht"], "must leave a run of fig3"),
        (["table4", "--datasets", "concrete"], r"concrete.csv must be in"),
        (["all", "--render"], "must hold at least one result to draw"),
        (["all", "--render", "--methods", "btn"], "--render must come without"),
    ],
)
def test_misuse_is_a_sentence(arguments, expected, folder, tmp_path, capsys):
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert expected in message
    assert message.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_is_a_sentence(folder, tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    assert main(["fig3", "--out", str(file)]) == 2
    assert "must be a folder, got something else" in capsys.readouterr().err
    (tmp_path / "out" / "results.jsonl").mkdir(parents=True)
    assert main(["fig3", "--out", str(tmp_path / "out")]) == 2
    assert "results.jsonl must be a file" in capsys.readouterr().err
    arguments = ["--out", str(tmp_path / "new"), "--document", str(tmp_path)]
    assert main(["fig3", *arguments]) == 2
    assert "--document must be a file" in capsys.readouterr().err


def test_without_matplotlib_it_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("benchmarks.reproduce.command.find_spec", lambda name: None)
    assert main(["fig3", "--out", str(tmp_path / "out")]) == 2
    assert "pip install matplotlib rich" in capsys.readouterr().err


# What is run


def test_every_run_is_made_once():
    cells = cells_of(list(EXPERIMENTS))
    assert len({cell.key for cell in cells}) == len(cells)
    # Tables 1 to 3 and Figures 4 and 5 share their runs
    shared = cells_of(["table1", "table3"])
    assert len(shared) == len(SETS) * 10 * (3 + 3)
    of_figure = [cell for cell in cells_of(["fig4"]) if cell.method == "btn"]
    assert {cell.key for cell in of_figure} < {cell.key for cell in shared}
    assert len(cells_of(["fig3"])) == 300
    assert len(cells_of(["fig3"], n_splits=2)) == 60


def test_every_printed_figure_has_its_run():
    assert {*printed.TABLE_1} == {*printed.TABLE_2} == {*printed.TABLE_3} == {*SETS}
    assert {*printed.TABLE_4} == {*ALL_SETS}
    for dataset in ALL_SETS:
        answers = printed.TABLE_4[dataset]
        for method, entry in {**answers["error"], **answers["nll"]}.items():
            assert entry is None or method in methods_of(dataset)


def test_configurations_survive_json():
    for cell in cells_of(list(EXPERIMENTS), n_splits=1):
        assert Cell(**json.loads(json.dumps(cell.as_dict()))) == cell


# What is measured


def test_ranks_of_tensors():
    rng = np.random.default_rng(0)

    def factors(*sizes):
        out = []
        for size in sizes:
            w = np.zeros((5, 3))
            w[:size] = rng.standard_normal((size, 3))
            out.append(w)
        return out

    assert synthetic.tensor_rank(factors(1, 1, 4)) == 1
    assert synthetic.tensor_rank(factors(1, 2, 4)) == 2
    assert synthetic.tensor_rank(factors(1, 4, 3)) == 3  # the paper's example
    assert synthetic.tensor_rank(factors(2, 3, 4)) == 3
    ranks = [synthetic.tensor_rank(factors(2, 2, 2)) for _ in range(40)]
    assert {*ranks} == {2, 3}


def test_the_truth_is_the_papers():
    truth = synthetic.make_truth(3, sigma=0.0)
    assert truth.X.shape == (500, 3)
    f = np.zeros(500)
    bases = [Powers(n_basis=5).fit(x) for x in truth.X.T]
    for r in range(3):
        columns = [
            b.phi(x) @ w[:, r] for b, x, w in zip(bases, truth.X.T, truth.factors, strict=True)
        ]
        f += np.prod(columns, axis=0)
    np.testing.assert_allclose(truth.y * truth.scale, f)


def test_a_recovery_tells_what_it_found():
    metrics = measure(Cell("synthetic", 0, "btn", synthetic_config_of(1e-2)))
    assert metrics["rank_found"]
    assert metrics["support"] == metrics["support_true"]
    assert metrics["noise_std"] == pytest.approx(1e-2, rel=0.2)
    assert np.shape(metrics["factors"][0]) == (len(metrics["support"][0]), metrics["rank"])
    json.dumps(metrics)


def test_sizes_are_counted_as_the_paper_counts_them(folder):
    from benchmarks.reproduce.methods import load_split
    from btnkm import BTNRegressor

    X, y, _, _ = load_split("yacht", 0)
    model = BTNRegressor(structure="tensor", n_init=1, random_state=0).fit(X, y)
    (state,) = model.posterior_
    stacked = np.concatenate([factor.mean for factor in state.factors])
    power = np.diag(stacked.T @ stacked)
    assert effective_rank(state) == np.sum(power > 1e-5 * power.sum())
    for factor, count in zip(state.factors, effective_functions(state), strict=True):
        power = np.diag(factor.mean @ factor.mean.T)
        assert count == np.sum(power > 0.0025 * power.sum())


# What is written


def fake(dataset, split, method, config, **metrics):
    cell = Cell(dataset, split, method, config)
    versions = {"btnkm": "0.1.0", "python": "3.12", "numpy": "2.4"}
    more = {"config_hash": cell.config_hash, "code": "abc", "cpu": "a processor", "seconds": 3.0}
    return cell.as_dict() | more | {"versions": versions, "metrics": metrics}


def test_everything_is_drawn_from_results(tmp_path):
    source = tmp_path / "results.jsonl"
    course = {"phase": ["warm", "exact", "exact"], "bound": [None, -9e3, -5e3], "rank": [9, 8, 8]}
    for dataset in SETS:
        for split in (0, 1):
            for cell in (c for c in cells_of(["table1", "table3"], 1) if c.dataset == dataset):
                actual = {"rmse": 1.0 + split, "nll": 0.5, "rank": 8.0, "functions": [3.0, 4.0]}
                actual |= {"course": course} if split == 0 else {}
                append_record(source, fake(dataset, split, "btn", cell.config, **actual))
    worst = config_of(RANKS[0], 20)
    append_record(source, fake("airfoil", 1, "btn", worst, rmse=3.0, nll=0.55, rank=8.0))
    for dataset in ("airfoil", "adult-96"):
        for method in methods_of(dataset):
            config = METHODS[method].config(dataset)
            actual = {"rmse" if dataset == "airfoil" else "error": 0.1, "nll": 0.3}
            if (dataset, method) == ("airfoil", "btn"):
                actual["rmse"] = 0.09
            if method == "btn-signs":
                actual["nll_of_signs"] = 0.4
            append_record(source, fake(dataset, 0, method, config, **actual))
    place = tmp_path / "docs" / "text.md"
    written = list(render(source, tmp_path / "out", place, list(EXPERIMENTS)))
    assert place in written
    names = {path.name for path in written}
    assert {"fig4.png", "fig4.svg", "fig5.png", "table1.csv", "table3.md", "index.html"} <= names
    assert "fig3.png" not in names  # was not run
    text = place.read_text(encoding="utf-8")
    assert "](../out/fig4.png)" in text
    assert "| Airfoil | 10 | RMSE | 2.047 ± 0.204 | 2.000 ± 1.414 | −0.047 | 2 |" in text
    assert (
        "| Airfoil | RMSE | 20.4% | 33.3% | 5%: not met | rank 10, 20 functions, λ_M on |" in text
    )
    assert "| Concrete | NLL | 2.064 | 0.000 | 0.1: met |" in text
    # airfoil, and signs of adult
    assert "printed results, in 1 of 2 errors and in 1 of 3 NLLs." in text
    assert (
        "| Adult | error | **0.100** | – | – | **0.100** | **0.100** | **0.100** | 0.144 |" in text
    )
    # what the paper prints as the NLL of labels is a density of signs
    assert "| Adult | NLL | **0.300** | – | – | **0.300** | **0.300** | **0.300** | – |" in text
    assert "| Adult | NLL of ±1 | 0.400 | – | – | – | – | – | 0.674 |" in text
    assert "| Airfoil | 6.2" not in text
    with (tmp_path / "out" / "glance.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    assert row["machine"] == "a processor, Python 3.12"
    assert "btn: random_state=0; gp: " in row["configuration"]
    before = {path: path.read_bytes() for path in written}
    assert list(render(source, tmp_path / "out", place, list(EXPERIMENTS))) == written
    assert {path: path.read_bytes() for path in written} == before


def test_the_committed_text_is_what_the_committed_results_say(tmp_path):
    """Numbers in docs/reproduction.md cannot drift away from the runs."""
    source = DOCS / "reproduction" / "results.jsonl"
    if not DOCS.exists():
        pytest.skip("an sdist leaves out docs/")
    place = tmp_path / "reproduction.md"
    out = tmp_path / "reproduction"
    written = list(render(source, out, place, list(EXPERIMENTS)))
    for path in written:
        committed = DOCS / path.relative_to(tmp_path)
        assert committed.exists()
        if path.suffix in (".md", ".csv"):
            assert path.read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")


def test_means_are_of_one_code(tmp_path):
    config = METHODS["btn"].config("yacht")
    old = [fake("yacht", split, "btn", config, rmse=2.0) | {"code": "old"} for split in (0, 1)]
    new = fake("yacht", 0, "btn", config, rmse=1.0)
    assert Results([*old, new]).summary("yacht", "btn", config, "rmse").mean == 1.0
    assert Results([*old, new]).n_hidden == 2
    assert (
        Results([*old, new], any_version=True).summary("yacht", "btn", config, "rmse").mean == 1.5
    )


def test_the_best_is_the_lowest_whatever_its_sign_or_size():
    def row(score, *values):
        records = [
            fake("yacht", 0, method, METHODS[method].config("yacht"), **{score: value})
            for method, value in zip(("btn", "gp"), values, strict=True)
        ]
        (cells,) = tables.glance(Results(records)).rows
        return cells[2:4]

    assert row("nll", -0.9, -0.1) == ("**−0.900**", "−0.100")
    assert row("rmse", 4.1, 10.5) == ("**4.100**", "10.50")


def test_a_comparison_is_of_the_splits_that_both_have():
    config, rival = (METHODS[method].config("yacht") for method in ("btn", "gp"))
    records = [fake("yacht", s, "btn", config, rmse=rmse) for s, rmse in enumerate((0.2, 0.1, 0.1))]
    records.append(fake("yacht", 0, "gp", rival, rmse=0.15))
    results = Results(records)
    assert "in 0 of 1 errors" in tables.verdict(results)
    # nothing to win where splits differ
    assert tables.glance(results).rows[0][2:4] == ("0.133 ± 0.058", "0.150 (1)")


def test_one_run_at_a_time_writes_to_a_file(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "r.jsonl"
    with claimed(path), pytest.raises(BlockingIOError, match="one run at a time"), claimed(path):
        pass
    with claimed(path):
        pass


def test_sources_must_not_change_during_a_run(tmp_path, monkeypatch, capsys):
    hashes = iter(["before", "before", "after"])
    monkeypatch.setattr(machine, "source_hash", lambda *_: next(hashes))
    cells = [Cell("yacht", split, "btn") for split in (0, 1)]
    output = tmp_path / "r.jsonl"

    def execute(measure, cell):
        return {"metrics": {}}

    assert runner.run("a", None, cells, output, execute=execute) == 1
    assert "the sources have changed" in capsys.readouterr().out
    assert len(read_records(output)[0]) == 1


@pytest.mark.parametrize("name", ["code", "versions"])
def test_other_code_or_libraries_are_measured_again(name):
    cell = Cell("yacht", 0, "btn")
    record = fake("yacht", 0, "btn", {})
    context = {"code": record["code"], "versions": record["versions"]}
    assert runner.pending([cell], [record], context, {}) == []
    other = context | {name: "another"}
    assert runner.pending([cell], [record], other, {}) == [cell]
    assert runner.pending([cell], [record], other, {}, any_version=True) == []
    # never those of other data
    assert runner.pending([cell], [record], context, {"yacht": "changed"}, any_version=True) == [
        cell
    ]


def test_a_worker_takes_no_module_from_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "queue.py").write_text("raise RuntimeError('not this one')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    worker = Worker(threads=1)
    try:
        with pytest.raises(CellError, match="KeyError"):
            worker.measure(measure, Cell("synthetic", 0, "btn"))
        assert worker.alive
    finally:
        worker.stop()
    assert not worker.alive


def test_prose_is_escaped():
    html = prose("a <b> & `c<d>` **e**\n\n- one\n  more\n- two [x](y.md)")
    assert html == (
        "<p>a &lt;b&gt; &amp; <code>c&lt;d&gt;</code> <strong>e</strong></p>"
        '<ul><li>one more</li><li>two <a href="y.md">x</a></li></ul>'
    )


@pytest.mark.parametrize(
    ("body", "left", "cut"),
    [
        (WHOLE + b"\n", WHOLE + b"\n", False),
        (WHOLE + b'\n{"met', WHOLE + b"\n", True),
        (WHOLE, WHOLE + b"\n", False),
        (b'{"metr', b"", True),
        (b"", b"", False),
    ],
)
def test_a_torn_last_line_is_repaired(body, left, cut, tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(body)
    assert repair(path) is cut
    assert path.read_bytes() == left
    assert repair(path) is False


def test_a_choice_keeps_the_distribution_of_what_was_chosen(folder):
    from benchmarks.reproduce import methods

    X, y, X_test, y_test = methods.load_split("yacht", 0)
    config = METHODS["spbtn"].config("yacht") | {"max_iter": 20, "n_basis": 4}
    model = methods.fit("yacht", "spbtn", config, X, y)
    assert set(model.best_params_) == {"basis", "learning_rate"}
    assert np.isfinite(methods.scores("yacht", model, X_test, y_test)["nll"])
