"""Options shared by several commands."""

from __future__ import annotations

import argparse
import ast
import codecs
import csv
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import UsageError

if TYPE_CHECKING:
    from ..data.csv_file import Dialect

# the same as in ``classifier`` and ``parameters``, whose import is slow
CLASSIFIER_LIKELIHOODS = ("logistic", "least_squares")
STRUCTURES = ("auto", "tensor", "sums", "sums+tensor", "full")
NOISES = ("auto", "constant", "varying")
CALIBRATIONS = ("cv",)
EXTRAPOLATIONS = ("linear", "flat")
_SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "\\t": "\t"}


class _Store(argparse.Action):
    """Store a value, as argparse does by default."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        """Store the value."""
        setattr(namespace, self.dest, values)


class FilePath(_Store):
    """A path that shells complete as a file."""

    complete = "file"  # read by shtab


class FolderPath(_Store):
    """A path that shells complete as a folder."""

    complete = "directory"


class LikelihoodName(_Store):
    """The name of a likelihood; the library is imported only to check or complete a value."""

    @property
    def choices(self) -> tuple[str, ...]:
        """Names that are allowed."""
        from ..likelihoods import LIKELIHOODS

        return ("auto", *LIKELIHOODS, *CLASSIFIER_LIKELIHOODS)

    @choices.setter
    def choices(self, value: Any) -> None:
        """Ignore the value, which argparse sets to None."""


class Help(argparse.HelpFormatter):
    """A help formatter that wraps paragraphs but not examples."""

    def __init__(self, prog: str) -> None:
        columns = shutil.get_terminal_size((80, 24)).columns
        super().__init__(prog, max_help_position=24, width=min(columns, 100) - 2)
        self._action_max_length = 14  # room for the names of commands

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = [
            part if "\n" in part else super(Help, self)._fill_text(part, width, indent)
            for part in text.split("\n\n")
        ]
        return "\n\n".join(paragraphs)


def command_parser(commands: Any, name: str, description: str, examples: str) -> Any:
    """Add a command with examples at the end of its help."""
    from . import COMMANDS

    parser = commands.add_parser(
        name,
        help=COMMANDS[name],
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.set_defaults(json=False, quiet=False, verbose=False)
    return parser


def add_model(parser: Any) -> None:
    """Add the model file."""
    parser.add_argument(
        "model", action=FilePath, metavar="MODEL", help="model file saved by btnkm fit"
    )


def add_table(parser: Any) -> None:
    """Add the table."""
    parser.add_argument(
        "data", action=FilePath, metavar="TABLE", help="table to read; - for standard input"
    )


def add_names(parser: Any, option: str, text: str, **settings: Any) -> None:
    """Add an option that takes names separated by commas, and may be repeated."""
    parser.add_argument(option, type=names, action="extend", metavar="A,B", help=text, **settings)


def add_output_options(parser: Any, *, verbose: bool = False) -> None:
    """Add options of what is printed."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--json",
        action="store_true",
        help="print the result as one JSON object, and nothing else, on standard output",
    )
    how_much = group.add_mutually_exclusive_group()
    how_much.add_argument("--quiet", action="store_true", help="print only errors")
    if verbose:
        text = "print a line per sweep instead of a progress bar"
        how_much.add_argument("--verbose", action="store_true", help=text)


def add_rows_output(parser: Any) -> None:
    """Add the file to which rows are written."""
    parser.add_argument(
        "-o",
        "--output",
        action=FilePath,
        type=lambda text: None if text == "-" else output_file(text),
        metavar="FILE",
        help="file for the rows: .csv, .tsv (either also with .gz) or .parquet (default: CSV on "
        "standard output)",
    )


def add_table_options(parser: Any) -> None:
    """Add options of reading text files."""
    group = parser.add_argument_group("text files")
    group.add_argument(
        "--separator",
        type=_separator,
        metavar="MARK",
        help="comma, semicolon, tab, bar or any character (default: whichever of these four is "
        "most frequent in the header)",
    )
    group.add_argument(
        "--encoding",
        type=_encoding,
        default="utf-8",
        metavar="NAME",
        help="text encoding (default: %(default)s)",
    )
    group.add_argument(
        "--decimal",
        choices=(".", ","),
        default=".",
        metavar="MARK",
        help="decimal separator of numbers, . or , (default: %(default)s)",
    )
    add_names(
        group,
        "--missing",
        "texts that mean a missing value, in addition to empty fields (default: NA, N/A, NaN, nan, "
        "null, NULL)",
    )


def dialect_of(arguments: argparse.Namespace) -> Dialect:
    """Return how the text of the table is written."""
    from ..data.csv_file import MISSING, Dialect

    given = arguments.missing
    missing = MISSING if given is None else frozenset(["", *given])
    if arguments.separator == arguments.decimal:
        raise UsageError(
            f"--separator and --decimal must differ, got {arguments.decimal!r} for both; change "
            "one of them."
        )
    return Dialect(arguments.separator, arguments.encoding, missing, arguments.decimal)


def add_training_options(parser: Any) -> None:
    """Add options of the columns to fit."""
    group = parser.add_argument_group("columns")
    group.add_argument("--target", required=True, metavar="COLUMN", help="column to predict")
    group.add_argument("--weight", metavar="COLUMN", help="column with the sample weights")
    add_names(group, "--only", "use only these columns as inputs")
    add_names(group, "--drop", "do not use these columns as inputs")
    add_names(group, "--number", "read these columns as numbers; any other value is an error")
    add_names(
        group,
        "--text",
        "read these columns as text even if they look like numbers, for example postcodes",
    )
    kind = group.add_mutually_exclusive_group()
    kind.add_argument(
        "--classify",
        action="store_true",
        help="predict classes (default if the target is text or boolean, or has exactly two "
        "different values, both integers)",
    )
    kind.add_argument("--regress", action="store_true", help="predict numbers")


def add_model_options(parser: Any) -> None:
    """Add parameters of the estimators."""
    group = parser.add_argument_group("model (the defaults suit most tables)")
    group.add_argument(
        "--likelihood",
        action=LikelihoodName,
        metavar="NAME",
        help="for numbers: auto, gaussian, student_t (robust to outliers), log_normal or gamma "
        "(above 0, such as prices), logit_normal (between 0 and 1, such as proportions), poisson, "
        "negative_binomial or zero_inflated_negative_binomial (counts); for classes: logistic or "
        "least_squares",
    )
    _add_uncertainty(group)
    group.add_argument(
        "--structure",
        choices=STRUCTURES,
        metavar="NAME",
        help="form of the model: sums (main effects only), tensor (interactions of all inputs, as "
        "a low-rank tensor), sums+tensor (both), full (main effects and a tensor of unlimited "
        "rank, for small tables), or auto, which compares and averages these (default: auto)",
    )
    group.add_argument(
        "--full-rows",
        type=_rows,
        metavar="N",
        help="maximum number of rows for the structure full (default: 2000)",
    )
    group.add_argument(
        "--network",
        choices=("cp", "tt"),
        help="form of the low-rank tensor: cp (CP decomposition, a sum of products) or tt (tensor "
        "train, for steps in a fixed order) (default: cp)",
    )
    group.add_argument(
        "--max-rank", type=count, metavar="N", help="maximum rank of the low-rank tensor"
    )
    group.add_argument(
        "--n-init",
        type=count,
        metavar="N",
        help="number of random restarts, which are averaged",
    )
    group.add_argument("--random-state", type=_seed, metavar="N", help="random seed (default: 0)")
    group.add_argument(
        "--memory-limit", type=_amount, metavar="GIB", help="maximum memory of the fit, in GiB"
    )
    group.add_argument("--jobs", type=_jobs, metavar="N", help="number of cores to use, -1 for all")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        type=_assignment,
        metavar="NAME=VALUE",
        help="set another parameter of the estimator, for example n_basis=12, "
        "solver.warm_sweeps=20 or 'priors.noise=(1e-3,1e-3)'",
    )


def _add_uncertainty(group: Any) -> None:
    """Add parameters of what intervals depend on."""
    group.add_argument(
        "--noise",
        choices=NOISES,
        help="for numbers, whether the noise level may vary with the inputs: constant, varying, or "
        "auto, which lets it vary if held-out rows show that it does (default: auto)",
    )
    group.add_argument(
        "--extrapolate",
        choices=EXTRAPOLATIONS,
        help="beyond the range of the training rows: linear, where straight parts of main effects "
        "run on, or flat, where an input is held at the nearer end of its range; both widen "
        "intervals (default: linear)",
    )
    group.add_argument(
        "--calibration",
        choices=CALIBRATIONS,
        help="recalibrate intervals, or probabilities of classes, by cross-validation (cv), which "
        "takes about five times as long (default: none; see also btnkm calibrate)",
    )


def model_parameters(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters given on the command line."""
    given = {
        "random_state": arguments.random_state,
        "likelihood": arguments.likelihood,
        "noise": arguments.noise,
        "calibration": arguments.calibration,
        "structure": arguments.structure,
        "solver.full_rows": arguments.full_rows,
        "network": arguments.network,
        "max_rank": arguments.max_rank,
        "n_init": arguments.n_init,
        "extrapolate": arguments.extrapolate,
        "memory_limit": arguments.memory_limit,
        "n_jobs": arguments.jobs,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    more = dict(arguments.set)
    for name in set(chosen) & set(more):
        option = "jobs" if name == "n_jobs" else name.rpartition(".")[2].replace("_", "-")
        raise UsageError(
            f"--set must not repeat --{option}, got {name}={more[name]!r}; leave one of them out."
        )
    return {"random_state": 0, **chosen, **more}


def seed_of(arguments: argparse.Namespace) -> int:
    """Return the random seed for drawing rows: that of the model if it is a number."""
    seed = model_parameters(arguments)["random_state"]
    return seed if type(seed) is int else 0


def names(text: str) -> list[str]:
    """Return a list of names separated by commas; names that contain a comma are quoted."""
    try:
        (row,) = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f'must be names separated by commas, got {text!r} ({error}); for example: a,"b,c"'
        ) from None
    return [name.strip() for name in row if name.strip()]


def _checked(kind: type, allowed: Callable[[Any], bool], what: str) -> Callable[[str], Any]:
    """Return a function that converts text to a number, and raises an error if not allowed."""

    def convert(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not allowed(value):
            raise argparse.ArgumentTypeError(f"must {what}, got {text!r}")
        return value

    return convert


count = _checked(int, lambda n: n >= 1, "be a whole number above 0")
_rows = _checked(int, lambda n: n >= 0, "be a whole number of rows, 0 or more")
_seed = _checked(int, lambda n: 0 <= n < 2**32, "be a whole number of at least 0 and below 2**32")
_jobs = _checked(int, lambda n: n != 0, "be a whole number other than 0 (-1 for all cores)")
_amount = _checked(float, lambda size: 0 <= size < math.inf, "be a number of GiB, 0 or more")
probability = _checked(float, lambda p: 0 < p < 1, "lie between 0 and 1")


def probabilities(text: str) -> list[float]:
    """Return numbers between 0 and 1, separated by commas."""
    return [probability(item) for item in text.split(",")]


def output_file(text: str) -> Path:
    """Return the path of an output file, or raise an error if it cannot be written there."""
    path = Path(text).expanduser()
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"must name a file, got the folder {text!r}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"must be in an existing folder, got {text!r}; create {str(path.parent)!r} first"
        )
    return path


def _separator(text: str) -> str:
    separator = _SEPARATORS.get(text, text)
    if len(separator) != 1 or separator in '"\r\n':
        raise argparse.ArgumentTypeError(
            f"must be comma, semicolon, tab, bar or one character, got {text!r}"
        )
    return separator


def _encoding(text: str) -> str:
    try:
        name = codecs.lookup(text).name
    except LookupError:
        raise argparse.ArgumentTypeError(
            f"must be an encoding that Python knows, got {text!r}"
        ) from None
    if name.startswith(("utf-16", "utf-32")):
        raise argparse.ArgumentTypeError(
            f"must not be UTF-16 or UTF-32, got {text!r}; save the file as UTF-8"
        )
    return name


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not all(part.isidentifier() for part in name.split(".")):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}; try n_basis=12")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value  # text
