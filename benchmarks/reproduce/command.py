"""``python -m benchmarks.reproduce``: run what is missing, then draw tables and figures."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import options
from benchmarks.runs.records import read_records
from benchmarks.runs.runner import run

from . import methods
from .experiments import ALL_SETS, EXPERIMENTS, N_SPLITS, SEEDS_A_SPLIT, SYNTHETIC, cells_of

RESULTS = "results.jsonl"
#: What results depend on besides the package.
FOLDERS = (Path(__file__).parent, Path(__file__).parents[1] / "runs")
_KINDS = {Path.is_dir: "folder", Path.is_file: "file"}
_EXAMPLES = """\
examples:
  python -m benchmarks.reproduce fig3                      recovery of a known tensor; no data
  python -m benchmarks.reproduce table4 --datasets yacht   one row of the comparison
  python -m benchmarks.reproduce all --splits 2            everything, on two of ten splits
  python -m benchmarks.reproduce all --render              draw again what was measured
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    listing = "\n".join(f"  {name:8} {e.title}" for name, e in EXPERIMENTS.items())
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce",
        description="Run the experiments of the paper's section 4 and write tables, figures and a "
        "page with our figures beside the printed ones. What an earlier run measured with the same "
        "code is kept: the same command continues an interrupted run.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"experiments:\n{listing}\n\ndata sets: {', '.join(ALL_SETS)}\n"
        "  (energy-paper and adult-96 are what the paper made of Energy and Adult)\n"
        f"methods: {', '.join(methods.METHODS)}\n\n{_EXAMPLES}",
    )
    made.add_argument("what", choices=[*EXPERIMENTS, "all"], metavar="EXPERIMENT")
    made.add_argument(
        "--splits",
        type=int,
        default=N_SPLITS,
        metavar="N",
        help=f"the first N of {N_SPLITS} splits, and {SEEDS_A_SPLIT} N seeds in fig3",
    )
    made.add_argument("--datasets", type=options.names, metavar="A,B", help="these data sets only")
    made.add_argument("--methods", type=options.names, metavar="A,B", help="these methods only")
    made.add_argument(
        "--out", type=Path, default=Path("reproduction"), metavar="DIR", help="default: %(default)s"
    )
    made.add_argument(
        "--document", type=Path, metavar="FILE", help="default: reproduction.md in DIR"
    )
    made.add_argument(
        "--jobs", type=int, metavar="N", help="runs side by side (default: one for each core)"
    )
    made.add_argument(
        "--any-version",
        action="store_true",
        help="keep, and draw, results of other code or libraries as well",
    )
    made.add_argument(
        "--render", action="store_true", help="run nothing, only draw all that is in DIR"
    )
    return made


def reproduce(arguments: argparse.Namespace) -> int:
    """Do what the command line asks for, and return the exit status."""
    from btnkm.execution.restarts import n_cores

    jobs = n_cores() if arguments.jobs is None else arguments.jobs
    names = list(EXPERIMENTS) if arguments.what == "all" else [arguments.what]
    output = arguments.out / RESULTS
    document = arguments.document or arguments.out / "reproduction.md"
    _check_options(arguments, jobs)
    _check_paths(arguments.out, output, document)
    status = 0
    if not arguments.render:
        status = _measure(arguments, names, output, jobs)
        if status == 130 or not read_records(output)[0]:
            return status
    from .render import render

    for path in render(output, arguments.out, document, names, arguments.any_version):
        print(f"Wrote {path}")
    return status


def _check_options(arguments: argparse.Namespace, jobs: int) -> None:
    """Raise a ValueError for options that are not allowed, or cannot be carried out."""
    _check("--splits", 1 <= arguments.splits <= N_SPLITS, f"1 to {N_SPLITS}", arguments.splits)
    _check("--jobs", jobs >= 1, "1 or more", jobs)
    _check_names("--datasets", arguments.datasets, (SYNTHETIC, *ALL_SETS))
    _check_names("--methods", arguments.methods, tuple(methods.METHODS))
    if arguments.render and (arguments.datasets or arguments.methods):
        raise ValueError(
            "--render must come without --datasets and --methods, as it draws all that is there; "
            "leave them out."
        )
    if find_spec("matplotlib") is None:
        raise ValueError(
            "the figures must be drawn by matplotlib, which is not installed; "
            "run: pip install matplotlib rich"
        )


def _check_paths(folder: Path, output: Path, document: Path) -> None:
    """Raise a ValueError for paths that cannot be written."""
    for path, right in ((folder, Path.is_dir), (output, Path.is_file)):
        if path.exists() and not right(path):
            raise ValueError(f"{path} must be a {_KINDS[right]}, got something else; name another.")
    if document.is_dir():
        raise ValueError(
            f"--document must be a file, got the folder {document}; name a file in it."
        )


def _measure(arguments: argparse.Namespace, names: list[str], output: Path, jobs: int) -> int:
    """Run what is missing, and return the exit status."""
    from .measures import measure

    cells = cells_of(names, arguments.splits, arguments.datasets, arguments.methods)
    if not cells:
        every = cells_of(names, 1)
        has = (sorted({getattr(c, kind) for c in every}) for kind in ("dataset", "method"))
        raise ValueError(
            f"the choice must leave a run of {arguments.what}, got none; it has the data sets "
            "{} and the methods {}.".format(*map(", ".join, has))
        )
    # better one sentence now than the same failure in every run
    sets = dict.fromkeys(cell.dataset for cell in cells)
    data = {name: methods.content(name) for name in sets if name != SYNTHETIC}
    for dataset, (n_rows, _) in data.items():
        if n_rows != methods.N_ROWS[dataset]:
            print(
                f"Note: {dataset} has {n_rows} rows here and {methods.N_ROWS[dataset]} in the "
                "paper: the figures do not compare."
            )
    return run(
        arguments.what,
        measure,
        cells,
        output,
        data={name: identity for name, (_, identity) in data.items()},
        folders=FOLDERS,
        any_version=arguments.any_version,
        n_jobs=jobs,
    )


def _check(option: str, right: bool, expected: str, got: Any) -> None:
    if not right:
        raise ValueError(f"{option} must be {expected}, got {got}; leave it out for the default.")


def _check_names(option: str, asked: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in asked or ():
        _check(option, name in known, f"among {', '.join(known)}", name)
