"""Command line: ``python -m benchmarks run SUITE`` and ``python -m benchmarks summarise``."""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.data import FOLDER_DATASETS, data_folder
from benchmarks.options import names
from benchmarks.runs.runner import run
from benchmarks.suites import SUITES, cells_of
from benchmarks.summary import summarise

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


def _setting(text):
    """Read METHOD.PARAMETER=VALUE; the value is JSON, or a plain word."""
    name, equals, value = text.partition("=")
    method, dot, parameter = name.partition(".")
    if not (equals and dot and method and parameter):
        raise argparse.ArgumentTypeError(
            f"a setting must read METHOD.PARAMETER=VALUE, got {text!r}; for example btn.n_init=1"
        )
    try:
        return method, parameter, json.loads(value)
    except json.JSONDecodeError:
        return method, parameter, value


def _parser():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = "\n".join(f"  {name:13} {suite.description}" for name, suite in SUITES.items())
    go = commands.add_parser(
        "run",
        help="measure a suite, or continue an interrupted run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"suites:\n{listing}",
    )
    go.add_argument("suite", choices=SUITES, metavar="SUITE")
    go.add_argument("--splits", type=int, metavar="N", help="the first N splits only")
    go.add_argument("--methods", type=names, metavar="A,B", help="these methods only")
    go.add_argument("--datasets", type=names, metavar="A,B", help="these data sets only")
    go.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="METHOD.PARAMETER=VALUE",
        help="change a method's configuration; may be repeated",
    )
    go.add_argument(
        "--output", type=Path, metavar="FILE", help="default: benchmarks/results/SUITE.jsonl"
    )
    go.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="measure N cells side by side, with one thread each",
    )
    go.add_argument(
        "--any-version", action="store_true", help="skip cells measured with other code too"
    )
    show = commands.add_parser("summarise", help="print the tables of one or more result files")
    show.add_argument(
        "files", type=Path, nargs="*", metavar="FILE", help="default: benchmarks/results/*.jsonl"
    )
    show.add_argument("--markdown", action="store_true", help="tables in Markdown")
    show.add_argument("--all-versions", action="store_true", help="older code as well")
    return parser


def _run(arguments):
    suite = SUITES[arguments.suite]
    overrides = {}
    for method, parameter, value in arguments.set:
        overrides.setdefault(method, {})[parameter] = value
    cells = cells_of(
        suite,
        n_splits=arguments.splits,
        methods=arguments.methods,
        datasets=arguments.datasets,
        overrides=overrides,
    )
    if FOLDER_DATASETS.intersection(cell.dataset for cell in cells):
        # Better one sentence now than the same failure in each child process.
        data_folder()
    output = arguments.output or RESULTS / f"{arguments.suite}.jsonl"
    return run(
        arguments.suite,
        suite.measure,
        cells,
        output,
        folders=(HERE,),
        any_version=arguments.any_version,
        n_jobs=arguments.jobs,
    )


def main(argv=None):
    """Run the command line and return the exit status.

    Parameters
    ----------
    argv : list of str, optional
        Arguments without the program's name; those of the process by default.

    Returns
    -------
    status : int
    """
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "run":
            return _run(arguments)
        files = arguments.files or sorted(RESULTS.glob("*.jsonl"))
        text = summarise(files, markdown=arguments.markdown, all_versions=arguments.all_versions)
    except (FileNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
