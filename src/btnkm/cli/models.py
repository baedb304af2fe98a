"""Models in files: loading, describing, and reading the columns they need from a table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..data.csv_file import Block, DataError
from ..data.frames import Frame
from ..data.table_files import TableFile, check_columns, values_of
from ..data.text import DATE, DURATION, FLAG, NUMBER, TEXT
from .console import counted
from .errors import UsageError
from .output import check_output

Array = np.ndarray


def load_model(path: str) -> Any:
    """Return the model in a file."""
    import btnkm

    os.stat(path)  # a missing file has the same message in every command
    if os.path.isdir(path):
        raise DataError("the model must be a file, got a folder; name a file in it.", path)
    try:
        return btnkm.load(path)
    except ValueError as error:
        begin = f"path must name a model saved by btnkm, got {str(Path(path))!r}, "
        reason = str(error).removeprefix(begin)
        raise DataError(f"the model must be one saved by btnkm, got {reason}", path) from None


def check_model_path(path: Path, data: str) -> None:
    """Raise an error before the fit if the model could not be saved to ``path``."""
    if path.exists() and not path.is_file():
        raise UsageError(
            f"--output must be a file, got {str(path)!r}; name another, such as model.btn."
        )
    check_output(path, table=data)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"no file can be written to the folder {str(path.parent)!r}.")


def is_classifier(model: Any) -> bool:
    """Whether a model is a classifier."""
    return hasattr(model, "classes_")


def described(model: Any) -> dict[str, Any]:
    """Return a description of a model, for JSON."""
    from ..explain.summary import structure_line, structure_weights

    weights = structure_weights(model)
    full = model.fitted_.is_full  # whose rank has no limit
    return {
        "estimator": type(model).__name__,
        "target": model.target_name_,
        "rows": model.n_samples_seen_,
        "classes": model.classes_.tolist() if is_classifier(model) else None,
        "structure": structure_line(model),
        "structures": [{"name": name, "weight": weight} for name, weight in weights.items()],
        "rank": None if full else model.rank_,
        "noise_std": None if is_classifier(model) else model.noise_std_,
        "restarts": len(model.posterior_),
        "converged": model.converged_,
        "stop_reason": model.stop_reason_,
    }


def lines_of(model: dict[str, Any], reason: str = "") -> list[tuple[str, str]]:
    """Return names and values to print of a description; ``reason`` says why there are classes."""
    rank, classes, noise = model["rank"], model["classes"], model["noise_std"]
    rows = [("structure", model["structure"])]
    if np.any(rank):  # main effects and full tensors have none
        ranks = ", ".join(map(str, rank)) if isinstance(rank, tuple) else str(rank)
        rows.append(("rank", ranks))
    if classes is not None:
        listed = ", ".join(map(str, classes[:8])) + (", …" if len(classes) > 8 else "")
        rows.insert(0, ("classes", f"{len(classes)}: {listed}{f' ({reason})' if reason else ''}"))
    elif noise == noise:
        rows.append(("noise", f"{noise:.4g} (standard deviation)"))
    return [*rows, ("stopped", model["stop_reason"])]


def input_kind(column: Any) -> str:
    """Return what an input of a model holds."""
    if column.kind in ("M", "m"):
        return DATE if column.kind == "M" else DURATION
    if column.kind == "O":
        return TEXT
    binary = column.levels is None and set(np.asarray(column.knots).tolist()) <= {0.0, 1.0}
    return FLAG if binary else NUMBER


class Inputs:
    """The columns of a table that a model needs; others are ignored.

    Parameters
    ----------
    model : estimator
        Columns go by name, or by position if the model was fitted without names.
    table : TableFile
    ignored : set of str
        Columns that are not inputs of a model without names.
    """

    def __init__(self, model: Any, table: TableFile, ignored: set[str] | None = None) -> None:
        self.table = table
        if hasattr(model, "feature_names_in_"):
            self.names = [str(name) for name in model.feature_names_in_]
            check_columns(table, self.names, "an input of the model")
        else:
            self.names = [name for name in table.names if name not in (ignored or ())]
            if len(self.names) != model.n_features_in_:
                raise DataError(
                    f"must have {model.n_features_in_} columns, as the model was fitted without "
                    f"names, got {len(self.names)}; leave out the others.",
                    table.name,
                )
        # numbers in Parquet may be categories: the model converts them itself
        kinds = [input_kind(column) for column in model.columns_]
        self.kinds = [None if kind == TEXT else kind for kind in kinds]

    def of(self, block: Block) -> Frame:
        """Return the inputs in the rows of a block."""
        pairs = zip(self.names, self.kinds, strict=True)
        return Frame({name: values_of(self.table, block, name, kind) for name, kind in pairs})


class Unseen:
    """Counts rows with categories, or with missing values, that did not occur in the fit.

    Attributes
    ----------
    categories, missing : dict of str to int
        Number of such rows of every input that has any.
    """

    def __init__(self, model: Any) -> None:
        self.columns = model.columns_
        self.categories: dict[str, int] = {}
        self.missing: dict[str, int] = {}
        self._first: dict[str, Any] = {}

    def count(self, X: Frame) -> None:
        """Count the rows of a table with the model's inputs in order."""
        for column, (name, values) in zip(self.columns, X.columns.items(), strict=True):
            if column.levels is not None:
                codes = column.encode(values)
                missing, new = np.isnan(codes), codes < 0
                if np.any(new):
                    self.categories[name] = self.categories.get(name, 0) + int(np.sum(new))
                    self._first.setdefault(name, values[new][0])
            else:
                missing = values != values  # NaN and NaT
            if np.any(missing) and not column.basis.knows_missing:
                self.missing[name] = self.missing.get(name, 0) + int(np.sum(missing))

    def report(self, note: Any) -> dict[str, Any]:
        """Print a note for every such column; return the counts for JSON."""
        for name, n in self.categories.items():
            note(
                f"column {name!r} has categories that did not occur in the fit in "
                f"{counted(n, 'row')}, the first of them {self._first[name]!r}."
            )
        for name, n in self.missing.items():
            note(
                f"column {name!r} has missing values in {counted(n, 'row')}, but had none in the "
                "fit."
            )
        return {"unseen_categories": self.categories, "unseen_missing": self.missing}


def rows_with_targets(model: Any, table: TableFile, target: str, note: Any, watch: Any) -> Frame:
    """Return the inputs of a model and the target, in all rows that have a target."""
    check_columns(table, [target], "--target")
    inputs = Inputs(model, table, {target})
    kind, convert = _type_of_targets(model)
    frames, targets, n_missing = [], [], 0
    for block in table.blocks(dict.fromkeys([*inputs.names, target])):
        watch(table.done, table.total)
        y = values_of(table, block, target, kind)
        present = np.array([v is not None and v == v for v in y.tolist()])
        n_missing += int(np.sum(~present))
        frames.append(inputs.of(block).take(present))
        targets.append(y[present])
    if not sum(map(len, targets)):
        raise DataError("must have rows with a target, got none.", table.name, column=target)
    if n_missing:
        note(f"left out {counted(n_missing, 'row')} without {target!r}.")
    columns = {name: np.concatenate([frame[name] for frame in frames]) for name in inputs.names}
    return Frame(columns | {target: np.concatenate(targets).astype(convert)})


def _type_of_targets(model: Any) -> tuple[str, Any]:
    """Return the type in which targets are read, and the one to which they are converted."""
    if not is_classifier(model):
        return FLAG, float
    kind = model.classes_.dtype.kind
    if kind == "b":
        return FLAG, bool
    return (NUMBER, model.classes_.dtype) if kind in "iuf" else (TEXT, object)
