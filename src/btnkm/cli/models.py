"""Models of files: what they are, what their inputs hold, and rows as they want them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..data.frames import Frame
from .console import counted
from .csv_files import Part
from .errors import DataError, Misuse
from .inputs import Table, check_columns, values_of
from .output import check_output
from .parse import DATE, DURATION, FLAG, NUMBER, TEXT

Array = np.ndarray


def load_model(path: str) -> Any:
    """Return the model in a file."""
    import btnkm

    os.stat(path)  # a file that is not there is told in the same words everywhere
    if os.path.isdir(path):
        raise DataError("the model must be a file, got a folder; name a file in it.", path)
    try:
        return btnkm.load(path)
    except ValueError as error:
        begin = f"path must name a model saved by btnkm, got {str(Path(path))!r}, "
        said = str(error).removeprefix(begin)
        raise DataError(f"the model must be one saved by btnkm, got {said}", path) from None


def check_model_path(path: Path, data: str) -> None:
    """Say so, before hours are spent, if a model cannot be saved there."""
    if path.exists() and not path.is_file():
        raise Misuse(f"--output must be a file, got {str(path)!r}; name another, such as m.btn.")
    check_output(path, table=data)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"no file can be written to the folder {str(path.parent)!r}.")


def is_classifier(model: Any) -> bool:
    """Tell a model of classes."""
    return hasattr(model, "classes_")


def described(model: Any) -> dict[str, Any]:
    """Return what is worth knowing of any model."""
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


def lines_of(found: dict[str, Any], why: str = "") -> list[tuple[str, str]]:
    """Return the same for people, structure to end; ``why`` there are classes."""
    rank, classes, noise = found["rank"], found["classes"], found["noise_std"]
    rows = [("structure", found["structure"])]
    if np.any(rank):  # else there is no tensor of low rank in the best restart
        ranks = ", ".join(map(str, rank)) if isinstance(rank, tuple) else str(rank)
        rows.append(("rank", ranks))
    if classes is not None:
        listed = ", ".join(map(str, classes[:8])) + (", …" if len(classes) > 8 else "")
        rows.insert(0, ("classes", f"{len(classes)}: {listed}{f' ({why})' if why else ''}"))
    elif noise == noise:
        rows.append(("noise", f"{noise:.4g} (standard deviation)"))
    return [*rows, ("end", found["stop_reason"])]


def input_kind(column: Any) -> str:
    """Return what an input of a model holds."""
    if column.kind in ("M", "m"):
        return DATE if column.kind == "M" else DURATION
    if column.kind == "O":
        return TEXT
    two = column.levels is None and set(np.asarray(column.knots).tolist()) <= {0.0, 1.0}
    return FLAG if two else NUMBER


class Inputs:
    """The columns of a table that a model wants.

    Parameters
    ----------
    model : estimator
    table : Table
        A column that is not there is told; those that are not wanted do no harm. Where the model
        knows no names, columns count by their place.
    ignored : set of str
        Columns that are none of the inputs of a model without names.
    """

    def __init__(self, model: Any, table: Table, ignored: set[str | None] | None = None) -> None:
        self.table = table
        if hasattr(model, "feature_names_in_"):
            self.names = [str(name) for name in model.feature_names_in_]
            check_columns(table, self.names, "an input of the model")
        else:
            self.names = [name for name in table.names if name not in (ignored or ())]
            if len(self.names) != model.n_features_in_:
                raise DataError(
                    f"must have {model.n_features_in_} columns, as the model knows no names, got "
                    f"{len(self.names)}; leave out the others.",
                    table.name,
                )
        # text of Parquet may be numbers that are levels: the model knows
        kinds = [input_kind(column) for column in model.columns_]
        self.kinds = [None if kind == TEXT else kind for kind in kinds]

    def of(self, part: Part) -> Frame:
        """Return rows as the model wants them."""
        columns = [
            values_of(self.table, part, name, kind)
            for name, kind in zip(self.names, self.kinds, strict=True)
        ]
        return Frame(dict(zip(self.names, columns, strict=True)))


class Unseen:
    """Rows with what the fit has not seen: levels, and gaps where it saw none.

    Attributes
    ----------
    levels, gaps : dict of str to int
        Rows of every input that has such, over all tables looked at.
    """

    def __init__(self, model: Any) -> None:
        self.columns = model.columns_
        self.levels: dict[str, int] = {}
        self.gaps: dict[str, int] = {}
        self._first: dict[str, Any] = {}

    def look(self, X: Frame) -> None:
        """Look at more rows, in the order of the model's inputs."""
        for column, (name, values) in zip(self.columns, X.columns.items(), strict=True):
            if column.levels is not None:
                codes = column.encode(values)
                gaps, new = np.isnan(codes), codes < 0
                if np.any(new):
                    self.levels[name] = self.levels.get(name, 0) + int(np.sum(new))
                    self._first.setdefault(name, values[new][0])
            else:
                gaps = values != values  # of numbers and dates alike
            if np.any(gaps) and not column.basis.knows_gaps:
                self.gaps[name] = self.gaps.get(name, 0) + int(np.sum(gaps))

    def tell(self, note: Any) -> dict[str, Any]:
        """Say so, once for every column; return the same for machines."""
        for name, n in self.levels.items():
            note(
                f"column {name!r} has levels that the fit has not seen in {counted(n, 'row')}, the "
                f"first of them {self._first[name]!r}."
            )
        for name, n in self.gaps.items():
            note(f"column {name!r} has gaps in {counted(n, 'row')}, while the fit has seen none.")
        return {"unseen_levels": self.levels, "unseen_gaps": self.gaps}


def rows_with_targets(model: Any, table: Table, target: str, note: Any, watch: Any) -> Frame:
    """Return all rows of a table that have a target, with it, as the model knows them."""
    check_columns(table, [target], "--target")
    inputs = Inputs(model, table, {target})
    kind, convert = _targets_of(model)
    frames, targets, left_out = [], [], 0
    for part in table.parts(dict.fromkeys([*inputs.names, target])):
        watch(table.done, table.total)
        y = values_of(table, part, target, kind)
        gaps = [v is None or v != v for v in y.tolist()]
        present = ~np.array(gaps)
        left_out += sum(gaps)
        frames.append(inputs.of(part).take(present))
        targets.append(y[present])
    if not sum(map(len, targets)):
        raise DataError("must have rows with a target, got none.", table.name, column=target)
    if left_out:
        note(f"{left_out:,} of the rows have no {target!r} and are left out.")
    columns = {name: np.concatenate([one[name] for one in frames]) for name in inputs.names}
    return Frame(columns | {target: np.concatenate(targets).astype(convert)})


def _targets_of(model: Any) -> tuple[str, Any]:
    """Return what a file's targets are to be read as, and the type they then have."""
    if not is_classifier(model):
        return FLAG, float
    kind = model.classes_.dtype.kind
    if kind == "b":
        return FLAG, bool
    return (NUMBER, model.classes_.dtype) if kind in "iuf" else (TEXT, object)
