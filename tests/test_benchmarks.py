"""The benchmark runner: splits, resuming, incomplete lines. No model is fitted."""

import numpy as np
import pytest
from scipy.stats import norm
from scoringrules import crps_normal, crps_quantile

from benchmarks import __main__ as command_line
from benchmarks.accuracy import measure_accuracy
from benchmarks.data import DATASETS, load_split
from benchmarks.methods import METHODS, OPTIONS, parameters_of
from benchmarks.runs import machine, runner
from benchmarks.runs.experiment import Cell, CellError, measure_here
from benchmarks.runs.records import read_records
from benchmarks.runs.worker import measure_in_child
from benchmarks.suites import SUITES, cells_of
from btnkm import Gamma, Priors, Solver, TensorTrain
from btnkm.datasets import paper_splits
from btnkm.metrics import GaussianPredictive, score
from btnkm.parameters import option_names


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with tables of the shapes of the real ones; y counts the rows."""
    rng = np.random.default_rng(0)
    for name, n_rows, n_columns, header in (("yacht", 41, 7, True), ("energy", 31, 10, False)):
        table = rng.normal(size=(n_rows, n_columns))
        table[:, -1] = np.arange(n_rows)
        table[:, -2] = 1000 + np.arange(n_rows)
        lines = [",".join(f'"c{j}"' for j in range(n_columns))] if header else []
        lines += [" ,".join(f"{value:.17g}" for value in row) for row in table]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("BTNKM_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def in_process(monkeypatch):
    """Measure without child processes, and count the measurements."""
    measured = []

    def execute(measure, cell):
        measured.append(cell)
        return measure_here(measure, cell)

    def run(*arguments, **keywords):
        return runner.run(*arguments, **keywords, execute=execute)

    monkeypatch.setattr(command_line, "run", run)
    pretend(monkeypatch, "abc")
    return measured


def pretend(monkeypatch, code):
    """Have the code be taken for another one."""
    version = {"commit": code, "dirty": False, "code": code}
    monkeypatch.setattr(machine, "code_version", lambda *_: version)
    monkeypatch.setattr(machine, "source_hash", lambda *_: code)


def run_yacht(output, *more, n_splits=3):
    arguments = ["run", "paper", "--datasets", "yacht", "--methods", "constant"]
    return command_line.main(
        [*arguments, "--splits", str(n_splits), "--output", str(output), *more]
    )


# Data and splits


def test_split_is_the_papers():
    train, test = paper_splits(307, 4)
    np.random.seed(4)  # the protocol names the legacy generator
    order = np.random.permutation(307)
    np.testing.assert_array_equal(train, order[:276])
    np.testing.assert_array_equal(test, order[276:])


def test_load_split_takes_the_last_column_and_skips_the_header(folder):
    X_train, y_train, X_test, y_test = load_split("yacht", 0)
    assert X_train.shape == (36, 6)
    assert X_test.shape == (5, 6)
    np.testing.assert_array_equal(np.sort(np.r_[y_train, y_test]), np.arange(41))
    # Inputs travel with their targets.
    np.testing.assert_array_equal(X_test[:, -1], 1000 + y_test)


def test_energy_comes_in_two_kinds(folder):
    X_paper, y_paper = DATASETS["energy-paper"]()
    assert X_paper.shape == (30, 9)
    np.testing.assert_array_equal(y_paper, np.arange(1, 31))
    X, y = DATASETS["energy"]()
    assert X.shape == (31, 8)
    np.testing.assert_array_equal(y, 1000 + np.arange(31))


@pytest.mark.parametrize(
    ("value", "expected"), [(None, "is not set"), ("/no/such", "not a folder")]
)
def test_missing_folder_is_a_sentence(value, expected, monkeypatch, capsys, tmp_path):
    if value is None:
        monkeypatch.delenv("BTNKM_DATA", raising=False)
    else:
        monkeypatch.setenv("BTNKM_DATA", value)
    assert run_yacht(tmp_path / "r.jsonl") == 2
    message = capsys.readouterr().err
    assert "BTNKM_DATA must name the folder" in message
    assert expected in message


def test_missing_table_names_the_file(folder):
    with pytest.raises(FileNotFoundError, match=r"concrete\.csv must be in"):
        DATASETS["concrete"]()


# Scores


def test_scores_of_a_gaussian_agree_with_another_library():
    rng = np.random.default_rng(1)
    mean, std = rng.normal(size=500), rng.uniform(0.5, 2, size=500)
    y = mean + std * rng.normal(size=500)
    metrics = score(GaussianPredictive(mean, std), y)
    assert metrics["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert metrics["nll"] == pytest.approx(-norm(mean, std).logpdf(y).mean())
    for level in (50, 90, 95):
        z = norm.ppf(0.5 + level / 200)
        inside = np.mean(np.abs(y - mean) <= z * std)
        assert metrics[f"coverage_{level}"] == pytest.approx(inside)
    levels = np.arange(1, 100) / 100
    quantiles = norm.ppf(levels, mean[:, None], std[:, None])
    assert metrics["crps"] == pytest.approx(crps_quantile(y, quantiles, levels).mean())
    # Ninety-nine levels leave out the outermost half percent on either side.
    assert metrics["crps"] == pytest.approx(crps_normal(y, mean, std).mean(), rel=0.02)


def test_score_refuses_a_wrong_shape():
    with pytest.raises(ValueError, match="must have the shape of y"):
        score(GaussianPredictive(np.zeros((3, 1)), 1.0), np.zeros(3))


# Running


def test_run_goes_on_where_it_stopped(folder, in_process, tmp_path, capsys):
    output = tmp_path / "results" / "r.jsonl"
    assert run_yacht(output, n_splits=2) == 0
    assert [cell.split for cell in in_process] == [0, 1]
    assert run_yacht(output, n_splits=3) == 0
    assert [cell.split for cell in in_process] == [0, 1, 2]
    assert "2 of 3 runs are in" in capsys.readouterr().out
    records, n_broken = read_records(output)
    assert [record["split"] for record in records] == [0, 1, 2]
    assert n_broken == 0
    for name in ("rmse", "nll", "coverage_50", "coverage_90", "coverage_95", "crps"):
        assert np.isfinite(records[0]["metrics"][name])
    assert set(records[0]["versions"]) == {"python", "numpy", "scipy", "scikit-learn", "btnkm"}


def test_other_code_is_measured_again_unless_told(folder, in_process, tmp_path, monkeypatch):
    output = tmp_path / "r.jsonl"
    run_yacht(output, n_splits=1)
    pretend(monkeypatch, "def")
    run_yacht(output, "--any-version", n_splits=1)
    assert len(in_process) == 1
    run_yacht(output, n_splits=1)
    assert len(in_process) == 2


def test_another_configuration_is_another_cell():
    suite = SUITES["paper"]
    plain = cells_of(suite, n_splits=1, methods=("btn",), datasets=("yacht",))[0]
    changed = cells_of(
        suite,
        n_splits=1,
        methods=("btn",),
        datasets=("yacht",),
        overrides={"btn": {"max_rank": 3}},
    )[0]
    assert changed.config == plain.config | {"max_rank": 3}
    assert changed.key != plain.key
    assert Cell("a", 0, "m", {"x": 1, "y": 2}).key == Cell("a", 0, "m", {"y": 2, "x": 1}).key


def test_half_a_line_is_cut_off(folder, in_process, tmp_path, capsys):
    output = tmp_path / "r.jsonl"
    run_yacht(output, n_splits=2)
    text = output.read_text()
    output.write_text(text[:-40])  # the second line loses its end, as after a kill
    assert run_yacht(output, n_splits=2) == 0
    assert "Cut off a line of" in capsys.readouterr().out
    records, n_broken = read_records(output)
    assert [record["split"] for record in records] == [0, 1]
    assert n_broken == 0
    assert [cell.split for cell in in_process] == [0, 1, 1]


def test_failure_is_reported_and_tried_again(folder, tmp_path, capsys):
    cells = cells_of(SUITES["paper"], n_splits=2, methods=("constant",), datasets=("yacht",))

    def execute(measure, cell):
        if cell.split == 0:
            raise CellError(f"{cell}: on purpose")
        return measure_here(measure, cell)

    output = tmp_path / "r.jsonl"
    assert runner.run("paper", measure_accuracy, cells, output, execute=execute) == 1
    assert "1 run(s) failed: yacht split 0 constant" in capsys.readouterr().out
    assert [record["split"] for record in read_records(output)[0]] == [1]


def test_interrupt_leaves_a_valid_file(folder, tmp_path, capsys):
    cells = cells_of(SUITES["paper"], n_splits=3, methods=("constant",), datasets=("yacht",))

    def execute(measure, cell):
        if cell.split == 1:
            raise KeyboardInterrupt
        return measure_here(measure, cell)

    output = tmp_path / "r.jsonl"
    assert runner.run("paper", measure_accuracy, cells, output, execute=execute) == 130
    assert "2 run(s) are left. The same command continues." in capsys.readouterr().out
    assert len(read_records(output)[0]) == 1


def test_child_process_agrees_with_this_one(folder):
    cell = Cell("yacht", 0, "constant")
    child, here = measure_in_child(measure_accuracy, cell), measure_here(measure_accuracy, cell)
    for name in ("rmse", "nll", "crps", "coverage_95"):
        assert child["metrics"][name] == here["metrics"][name]
    assert child["metrics"]["peak_memory_mb"] >= 0


def test_error_in_a_child_arrives_with_its_reason(folder):
    with pytest.raises(CellError, match=r"concrete\.csv must be in"):
        measure_in_child(measure_accuracy, Cell("concrete", 0, "constant"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--methods", "nothing"], "a method must be among"),
        (["--datasets", "nothing"], "a data set must be among"),
        (["--splits", "11"], "between 1 and 10"),
        (["--set", "gp.alpha=1", "--methods", "constant"], "the method of a setting"),
    ],
)
def test_wrong_choices_are_sentences(arguments, expected, folder, capsys):
    assert command_line.main(["run", "paper", *arguments]) == 2
    assert expected in capsys.readouterr().err


# What a result depends on


def test_records_name_options_of_groups_by_themselves():
    assert sorted(OPTIONS.values()) == sorted(option_names())
    config = {"network": "tt", "cores": "full", "warm_sweeps": 2, "prune": False, "max_iter": 3}
    expected = {
        "network": TensorTrain(cores="full"),
        "solver": Solver(warm_sweeps=2, prune=False),
        "max_iter": 3,
    }
    assert parameters_of(config) == expected
    assert parameters_of({"basis_prior": "off"}) == {"priors": Priors(basis="off")}
    noise = Gamma(1.0, 2.0)
    model = METHODS["btn"][0](**config, noise_prior=noise).model
    assert (model.solver, model.priors) == (expected["solver"], Priors(noise=noise))


def test_an_edited_tree_is_other_code(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "PACKAGE", tmp_path / "package")
    source = tmp_path / "package" / "a.py"
    drawing = tmp_path / "package" / "reproduce" / "render" / "b.py"
    extra = tmp_path / "extra" / "c.py"
    for path in (source, drawing, extra):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a = 1\n")
    changes = ""
    monkeypatch.setattr(
        machine, "_git", lambda command, *_: {"rev-parse": "abc", "status": changes}[command]
    )
    before = machine.code_version(extra.parent)
    assert before["commit"] == "abc"
    assert before["dirty"] is False
    drawing.write_text("a = 2\n")  # draws what was measured, and measures nothing
    assert machine.code_version(extra.parent) == before
    changes = " M a.py"
    for path in (source, extra):
        path.write_text("a = 2\n")
        after = machine.code_version(extra.parent)
        assert after["dirty"]
        assert after["code"] != before["code"]
        before = after


def test_code_outside_a_checkout_has_an_identity_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    version = machine.code_version()
    assert version["commit"] is None
    assert version["dirty"] is None
    assert len(version["code"]) == 12


def test_peak_memory_sees_an_array():
    with machine.PeakMemory() as memory:
        array = np.ones(8 * 2**20)  # 64 MiB
        del array
    assert memory.mb > 50 or memory.probe == "ru_maxrss"


def test_every_split_of_small_is_a_table_of_its_own():
    tables = [load_split("small", split) for split in range(6)]
    assert [len(y) for _, y, _, _ in tables] == [16, 20, 30, 45, 70, 100]
    assert all(X_test.shape == (500, X.shape[1]) for X, _, X_test, _ in tables)
    again = load_split("small", 3)
    for first, second in zip(tables[3], again, strict=True):
        np.testing.assert_array_equal(first, second)
