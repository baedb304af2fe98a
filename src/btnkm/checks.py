"""What bases and estimators ask of their parameters and targets: must, got, do this."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Set
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, column_or_1d

Array = np.ndarray


def check_integer(name: str, value: Any, low: int) -> None:
    """Raise a ValueError unless ``value`` is an integer of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(
            f"{name} must be an integer >= {low}, got {value!r}; leave it out for the default."
        )


def check_above(name: str, value: Any, above: float, example: float) -> None:
    """Raise a ValueError unless ``value`` is a finite number greater than ``above``."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not above < value < np.inf:
        bound = f" greater than {above:g}" if np.isfinite(above) else ""
        raise ValueError(
            f"{name} must be a finite number{bound}, got {value!r}; "
            f"pass for example {name}={example:g}."
        )


def check_number(name: str, value: Any) -> None:
    """Raise a ValueError unless ``value`` is a finite number of at least 0."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0 <= float(value) < np.inf:
        raise ValueError(
            f"{name} must be a finite number >= 0, got {value!r}; leave it out for the default."
        )


def check_gamma(name: str, value: Any, other: str = "") -> None:
    """Raise a ValueError unless ``value`` has a positive finite shape and rate, as a Gamma."""
    if not (hasattr(value, "shape") and hasattr(value, "rate")):
        raise ValueError(
            f"{name} must be a Gamma{other}, got {value!r}; "
            "leave it out for the default, or try Gamma(1.0, 1.0)."
        )
    for part in ("shape", "rate"):
        number = getattr(value, part)
        if not isinstance(number, numbers.Real) or not 0 < float(number) < np.inf:
            raise ValueError(
                f"{name} must have a positive finite {part}, got {number!r}; try Gamma(1.0, 1.0)."
            )


def gamma_or_default(name: str, value: Any, default: Any) -> Any:
    """Return ``value``, checked to be a Gamma, or the default for None."""
    if value is not None:
        check_gamma(name, value)
    return default if value is None else value


def check_target(name: str, y: Any) -> Array:
    """Return y as finite floats, or say what is wrong with it; ``name`` is the estimator's."""
    y = _column(name, y)
    if y.dtype.kind in "mM":
        raise ValueError("y must hold numbers, got dates or durations; convert it to floats.")
    if y.dtype.kind in "OUS":
        try:
            y = y.astype(float)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"y must hold numbers, got something else ({error}); convert it to floats."
            ) from None
    y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
    if np.max(np.abs(y)) > 1e150:  # squares of anything larger overflow
        raise ValueError(
            f"y must lie within 1e150 of zero, got {np.max(np.abs(y)):.3g}; use another unit."
        )
    return y


def _column(name: str, y: Any) -> Array:
    """Return y as an array (n,); ``name`` is the estimator's."""
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    return np.asarray(column_or_1d(y, warn=True))


def check_labels(name: str, y: Any) -> Array:
    """Return y as an array of labels, or say what is wrong with it; ``name`` is the estimator's."""
    missing = "y must have a label in every row, got missing ones; leave them out."
    if hasattr(y, "isna") and np.any(y.isna().to_numpy() if hasattr(y, "iloc") else y.isna()):
        raise ValueError(missing)
    frame = y.iloc[:, 0] if getattr(y, "ndim", 1) == 2 and hasattr(y, "iloc") else y
    plain = getattr(getattr(frame, "dtype", None), "numpy_dtype", None)
    if plain is not None and plain.kind in "biuf" and np.size(y) == len(y):
        y = frame.to_numpy(dtype=plain)  # a nullable type would become floats
    y = _column(name, y)
    if y.dtype.kind == "O" and any(v is None or v != v for v in y.tolist()):
        raise ValueError(missing)
    if y.dtype.kind == "O" and all(isinstance(v, int | np.integer | np.bool_) for v in y.tolist()):
        y = np.array(y.tolist())  # integers, or all of them True or False
    if y.dtype.kind == "O":
        text = [isinstance(v, str | bytes) for v in y.tolist()]
        if any(text) and not all(text):
            other = type(y.tolist()[text.index(False)]).__name__
            raise ValueError(
                f"y must have labels of one type, got text and {other} mixed; make them all text."
            )
    if y.dtype.kind not in "OUSmM":
        y = check_array(y, dtype=None, ensure_2d=False, input_name="y")
    check_classification_targets(y)
    return y


def check_weight(sample_weight: Any, n: int, *, all_zero: bool = False) -> Array:
    """Return the weights as floats; they may be ``all_zero`` in a batch."""
    weight = _check_sample_weight(
        sample_weight, np.empty((n, 1)), dtype=np.float64, ensure_non_negative=True
    )
    if not all_zero and not np.any(weight > 0):
        raise ValueError(
            "sample_weight must have a positive entry, got zeros only; leave it out or fix it."
        )
    return np.asarray(weight)


def check_order(name: str, value: Any, names: list[Any]) -> list[int]:
    """Return the positions of all columns in the order in which they are listed."""
    known = {column: j for j, column in enumerate(names)}
    # names come first, as everywhere; an index of pandas is as good as a list
    try:
        places = [known.get(item, item) for item in value]
    except TypeError:
        places = []
    if isinstance(value, Set | Mapping) or not hasattr(value, "__len__"):
        places = []  # of no order, or not to be read twice
    complete = _all_integers(places) and sorted(int(j) for j in places) == list(range(len(names)))
    if isinstance(value, str) or not complete:
        strange = [
            p for p in places if not isinstance(p, numbers.Integral) or p not in range(len(names))
        ]
        missing = [column for j, column in enumerate(names) if j not in places]
        wrong = f", where {strange[0]!r} is no column" if strange else ""
        wrong = wrong or (f", where {missing[0]!r} is missing" if missing else "")
        raise ValueError(
            f"{name} must be 'auto', 'given' or a list with the name or position of every column "
            f"once, got {value!r}{wrong}; use 'auto'."
        )
    return [int(j) for j in places]


def _all_integers(values: list[Any]) -> bool:
    return all(isinstance(v, numbers.Integral) and not isinstance(v, bool) for v in values)


def check_ranks(name: str, value: Any, n_bonds: int) -> list[int]:
    """Return the ranks of every bond."""
    ranks = list(value) if np.ndim(value) == 1 else []
    if (
        n_bonds == 0
        or len(ranks) != n_bonds
        or not _all_integers(ranks)
        or min(ranks, default=1) < 1
    ):
        wanted = "an integer >= 1 or 'auto'"
        if n_bonds:
            wanted += f", or one integer for each of the {n_bonds} bonds"
            wanted += " (inputs that vary, less one; one more with three classes or more)"
        raise ValueError(f"{name} must be {wanted}, got {value!r}; use 'auto'.")
    return [int(r) for r in ranks]
