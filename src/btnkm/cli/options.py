"""Options that several commands have."""

from __future__ import annotations

import argparse
import ast
import codecs
import csv
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    from ..data.csv_file import Dialect

CLASS_LIKELIHOODS = ("logistic", "least_squares")
# as ``parameters.STRUCTURES``, which takes long to import
STRUCTURES = ("auto", "tensor", "sums", "sums+tensor", "full")
_SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "\\t": "\t"}


class Likelihoods:
    """Names that ``--likelihood`` may have; the library is imported when they are looked at."""

    def __iter__(self) -> Iterator[str]:
        from ..likelihoods import LIKELIHOODS

        return iter(("auto", *LIKELIHOODS, *CLASS_LIKELIHOODS))

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)


class Help(argparse.HelpFormatter):
    """Help that leaves lines of examples as they are, and wraps all else."""

    def __init__(self, prog: str) -> None:
        columns = shutil.get_terminal_size((80, 24)).columns
        super().__init__(prog, max_help_position=24, width=min(columns, 100) - 2)
        self._action_max_length = 14  # commands beside what they do

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = [
            part if "\n" in part else super(Help, self)._fill_text(part, width, indent)
            for part in text.split("\n\n")
        ]
        return "\n\n".join(paragraphs)


def command_parser(commands: Any, name: str, description: str, examples: str) -> Any:
    """Add a command, with examples below its help."""
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


def add_output_options(parser: Any, *, verbose: bool = False) -> None:
    """Add what all commands have."""
    group = parser.add_argument_group("what it prints")
    group.add_argument(
        "--json",
        action="store_true",
        help="one JSON object on standard output and nothing else",
    )
    how_much = group.add_mutually_exclusive_group()
    how_much.add_argument("--quiet", action="store_true", help="nothing but errors")
    if verbose:
        how_much.add_argument("--verbose", action="store_true", help="lines in place of a bar")


def add_rows_output(parser: Any) -> None:
    """Add where rows are written."""
    parser.add_argument(
        "-o",
        "--output",
        type=lambda text: None if text == "-" else output_file(text),
        metavar="FILE",
        help=".csv, .tsv (also .gz) or .parquet; - or nothing for text on standard output",
    )


def add_table_options(parser: Any) -> None:
    """Add how the text of a table is read."""
    group = parser.add_argument_group("how text is read")
    group.add_argument(
        "--separator",
        type=_separator,
        metavar="MARK",
        help="comma, semicolon, tab, bar or any character (default: what the header has)",
    )
    group.add_argument(
        "--encoding", type=_encoding, default="utf-8", metavar="NAME", help="(default: %(default)s)"
    )
    group.add_argument(
        "--decimal",
        choices=(".", ","),
        default=".",
        metavar="MARK",
        help="point or comma of numbers, . or , (default: %(default)s)",
    )
    group.add_argument(
        "--missing",
        type=names,
        action="extend",
        metavar="A,B",
        help="texts for a missing value, beside none (default: NA, N/A, NaN, nan, null, NULL)",
    )


def dialect_of(arguments: argparse.Namespace) -> Dialect:
    """Return how the text of a table is read."""
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
    """Add which columns of a table are learned from."""
    group = parser.add_argument_group("columns")
    group.add_argument("--target", required=True, metavar="COLUMN", help="what is to be predicted")
    group.add_argument("--weight", metavar="COLUMN", help="how often each row counts")
    group.add_argument(
        "--only", type=names, action="extend", metavar="A,B", help="inputs (default: all)"
    )
    group.add_argument(
        "--drop", type=names, action="extend", metavar="A,B", help="what is no input"
    )
    group.add_argument(
        "--number",
        type=names,
        action="extend",
        metavar="A,B",
        help="must hold numbers: anything else in these columns is an error",
    )
    group.add_argument(
        "--text",
        type=names,
        action="extend",
        metavar="A,B",
        help="hold names, even if these look like numbers: postcodes, codes of products",
    )
    kind = group.add_mutually_exclusive_group()
    kind.add_argument(
        "--classify",
        action="store_true",
        help="the target is a class (default: if it is text, true or false, or two whole numbers)",
    )
    kind.add_argument("--regress", action="store_true", help="the target is a number")


def add_model_options(parser: Any) -> None:
    """Add parameters of the estimators."""
    group = parser.add_argument_group("model (all have good defaults)")
    group.add_argument(
        "--likelihood",
        choices=Likelihoods(),
        metavar="NAME",
        help="auto, gaussian, student_t (outliers), negative_binomial or another for counts; of "
        "classes logistic or least_squares",
    )
    group.add_argument(
        "--structure",
        choices=STRUCTURES,
        metavar="NAME",
        help="tensor, sums (of main effects), sums+tensor, full (exact, of few rows) or auto, "
        "which compares them (default: auto)",
    )
    group.add_argument(
        "--full-rows",
        type=_rows,
        metavar="N",
        help="most rows of structure full (default: 2000)",
    )
    group.add_argument(
        "--network", choices=("cp", "tt"), help="sum of products, or tensor train (default: cp)"
    )
    group.add_argument("--max-rank", type=count, metavar="N", help="most components")
    group.add_argument("--n-init", type=count, metavar="N", help="random starts")
    group.add_argument(
        "--random-state", type=_seed, metavar="N", help="what chance begins with (default: 0)"
    )
    group.add_argument("--memory-limit", type=_amount, metavar="GIB", help="most memory of the fit")
    group.add_argument("--jobs", type=_jobs, metavar="N", help="cores to use, -1 for all")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        type=_assignment,
        metavar="NAME=VALUE",
        help="any other parameter, such as n_basis=12 or solver.warm_sweeps=20",
    )


def model_parameters(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters that were given."""
    given = {
        "random_state": arguments.random_state,
        "likelihood": arguments.likelihood,
        "structure": arguments.structure,
        "solver.full_rows": arguments.full_rows,
        "network": arguments.network,
        "max_rank": arguments.max_rank,
        "n_init": arguments.n_init,
        "memory_limit": arguments.memory_limit,
        "n_jobs": arguments.jobs,
    }
    found = {name: value for name, value in given.items() if value is not None}
    more = dict(arguments.set)
    for name in set(found) & set(more):
        option = "--jobs" if name == "n_jobs" else f"--{name.rpartition('.')[2].replace('_', '-')}"
        raise UsageError(
            f"--set must not name what {option} gives, got {name}={more[name]!r}; leave one out."
        )
    return {"random_state": 0, **found, **more}


def seed_of(arguments: argparse.Namespace) -> int:
    """Return what draws of rows begin with: that of the model, where it is a number."""
    seed = model_parameters(arguments)["random_state"]
    return seed if type(seed) is int else 0


def names(text: str) -> list[str]:
    """Return names between commas; one with a comma in it is within quotation marks."""
    try:
        (row,) = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f'must be names between commas, got {text!r} ({error}); for example: a,"b,c"'
        ) from None
    return [name.strip() for name in row if name.strip()]


def count(text: str) -> int:
    """Return an integer of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return value


def _rows(text: str) -> int:
    value = int(_number(text, int, -1))
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be a whole number of rows, 0 or more, got {text!r}")
    return value


def _seed(text: str) -> int:
    value = _number(text, int, -1)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least 0 and below 2**32, got {text!r}"
        )
    return int(value)


def _amount(text: str) -> float:
    value = _number(text, float, -1)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of GiB, 0 or more, got {text!r}")
    return value


def _jobs(text: str) -> int:
    value = int(_number(text, int, 0))
    if not value:
        raise argparse.ArgumentTypeError(
            f"must be a whole number other than 0, got {text!r}; -1 is for all cores"
        )
    return value


def _number(text: str, kind: type, otherwise: float) -> float:
    """Return a number, or what stands for none."""
    try:
        return float(text) if kind is float else int(text)
    except ValueError:
        return otherwise


def probability(text: str) -> float:
    """Return a number between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"must lie between 0 and 1, got {text!r}; try 0.9")
    return value


def probabilities(text: str) -> list[float]:
    """Return numbers between 0 and 1, between commas."""
    return [probability(one) for one in text.split(",")]


def output_file(text: str) -> Path:
    """Return where a file is to be, or say why it cannot be there."""
    path = Path(text).expanduser()
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"must name a file, got the folder {text!r}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"must be in a folder that is there, got {text!r}; make {str(path.parent)!r} first"
        )
    return path


def _separator(text: str) -> str:
    found = _SEPARATORS.get(text, text)
    if len(found) != 1 or found in '"\r\n':
        raise argparse.ArgumentTypeError(
            f"must be comma, semicolon, tab, bar or one character, got {text!r}"
        )
    return found


def _encoding(text: str) -> str:
    try:
        name = codecs.lookup(text).name
    except LookupError:
        raise argparse.ArgumentTypeError(f"must be known to Python, got {text!r}") from None
    if name.startswith(("utf-16", "utf-32")):
        raise argparse.ArgumentTypeError(f"must have bytes for lines, got {text!r}; save as UTF-8")
    return name


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not all(part.isidentifier() for part in name.split(".")):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}; try n_basis=12")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value  # a word
