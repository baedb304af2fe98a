"""Conversions between the small NumPy arrays of the engine and the arrays of the rows."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_array_api_obj,
    is_numpy_array,
    is_torch_array,
)

Array = Any


def like(small: Any, rows: Array) -> Array:
    """Return a small array in the namespace, on the device and in the precision of the rows'."""
    if is_numpy_array(rows):
        return np.asarray(small, dtype=rows.dtype)
    xp = array_namespace(rows)
    return xp.asarray(np.asarray(small), dtype=rows.dtype, device=device(rows))


def indices(which: np.ndarray, rows: Array) -> Array:
    """Return integers in the namespace and on the device of the rows' arrays."""
    if is_numpy_array(rows):
        return which
    return array_namespace(rows).asarray(which, device=device(rows))


def host(array: Any) -> np.ndarray:
    """Return an array from any device as a NumPy array."""
    if isinstance(array, np.ndarray | np.generic | float | int):
        return np.asarray(array)
    if hasattr(array, "__cuda_array_interface__") and hasattr(array, "get"):  # CuPy
        return np.asarray(array.get())
    if is_torch_array(array):
        array = array.float() if str(array.dtype) == "torch.bfloat16" else array  # NumPy has none
        return np.asarray(array.detach().cpu().numpy())
    return np.asarray(array)


def is_elsewhere(values: Any) -> bool:
    """Return whether a value is an array of another library than NumPy."""
    return is_array_api_obj(values) and not is_numpy_array(values)


def here(values: Any) -> Any:
    """Return an array of another library as NumPy's, and anything else as it is."""
    return host(values) if is_elsewhere(values) else values


def has_triton(rows: Array) -> bool:
    """Return whether rows are on a device with Triton kernels."""
    cuda = is_torch_array(rows) and rows.is_cuda and rows.dtype.itemsize >= 4
    return cuda and importlib.util.find_spec("triton") is not None


def wide(array: Any) -> Any:
    """Return sums in double precision, whatever the precision of the rows."""
    if isinstance(array, np.ndarray | np.generic):
        return array if array.dtype == np.float64 else array.astype(np.float64)
    if not hasattr(array, "dtype"):
        return array
    xp = array_namespace(array)
    return array if array.dtype == xp.float64 else xp.astype(array, xp.float64)


def interpolate(x: Array, at: np.ndarray, values: np.ndarray) -> Array:
    """Return the piecewise linear function with these values, held at its ends: (n,) -> (n,)."""
    if is_numpy_array(x):
        return np.interp(x, at, values).astype(x.dtype, copy=False)
    xp = array_namespace(x)
    slopes = np.append(np.diff(values) / np.diff(at), 0.0)
    knots, heights, rises = (like(a, x) for a in (at, values, slopes))
    x = xp.clip(x, float(at[0]), float(at[-1]))
    place = xp.clip(xp.searchsorted(knots, x, side="right") - 1, 0, len(at) - 1)
    return xp.take(rises, place) * (x - xp.take(knots, place)) + xp.take(heights, place)
