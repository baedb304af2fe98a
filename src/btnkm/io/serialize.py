"""Objects of the library as plain data, and back: numbers, text, lists, and arrays by number.

JSON objects have one key each, which says what they stand for::

    {"tuple": [..]}  {"dict": [key, value, ..]}  {"float": "nan"}  {"scalar": ["int64", 3]}
    {"array": k}     {"dates": [k, "<M8[us]"]}   {"text": ["<U3", shape, [..]]}
    {"objects": [shape, [..]]}                   {"object": k}

The last is one of a list of objects, each with its kind and its fields, which may refer to those
before it: what was one object is one again. Kinds are looked up in a dict, never imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..bases import BUILT_IN as BASES
from ..bases import Basis, Gapped, Spiked
from ..bases.anchored import Anchored
from ..bases.coordinates import Coordinates
from ..bases.effect import MainEffect
from ..bases.levels import Levels
from ..core.batch_stats import Past, Said, SumsSaid
from ..core.cavi import Data
from ..core.cp import CP
from ..core.full import FullPosterior
from ..core.gamma import Gamma
from ..core.kernel import Kernel
from ..core.layout import Layout, components, core
from ..core.levels import LevelFactor, LevelMode
from ..core.likelihoods import BUILT_IN as LIKELIHOODS
from ..core.posterior import EffectAverages
from ..core.state import Factor, Mode, State
from ..core.sums import Group, Sums
from ..core.tt import TT
from ..data.column_stats import Batch
from ..data.columns import Column
from ..streaming import Window
from ..structures.mode_map import Arrangement
from .archive import TYPES, Unreadable

Array = np.ndarray
#: Classes whose objects a file may hold, by name; csr_array is written by its parts.
_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Anchored, Arrangement, Batch, CP, Column, Coordinates, Data),
        *(EffectAverages, Factor, FullPosterior, Gamma, Gapped, Kernel, LevelFactor),
        *(LevelMode, Levels, MainEffect, Mode),
        *(Past, Said, Spiked, State, Sums, SumsSaid, TT),
        Window,
        *BASES,
        *LIKELIHOODS,
    )
}
_OF_ATTRIBUTES = Basis | Coordinates | MainEffect  # which are written by their attributes
_UNITS = re.compile(r"<[mM]8\[(\d{0,6})(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]")
_TEXT = re.compile(r"<U\d{1,7}")
_MOST_ROOM = 16  # characters that an array of text may have room for, for each it holds, or item
_INFINITE = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


class Encoder:
    """Plain data of some objects, with the arrays and the shared objects they refer to."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self.objects: list[Any] = []
        self._known: dict[Any, Any] = {}  # by identity, and by content for product tables
        self._held: list[Any] = []  # as long as they are, no other has their identity

    def node(self, value: Any, what: str) -> Any:
        """Return plain data that stands for a value; ``what`` it is of is told where it cannot."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if np.isfinite(value) else {"float": repr(value)}
        if type(value) is list:
            return [self.node(item, what) for item in value]
        if type(value) is tuple:
            return {"tuple": [self.node(item, what) for item in value]}
        if isinstance(value, Mapping):
            return {"dict": [self.node(x, what) for pair in value.items() for x in pair]}
        if isinstance(value, np.str_):
            return {"scalar": ["str", str(value)]}
        if isinstance(value, np.generic) and value.dtype.name in TYPES:
            return {"scalar": [value.dtype.name, self.node(value.item(), what)]}
        if id(value) not in self._known:
            self._held.append(value)
            self._known[id(value)] = self._shared(value, what)
        return self._known[id(value)]

    def _shared(self, value: Any, what: str) -> Any:
        if isinstance(value, np.ndarray):
            return self._array(value, what)
        parts = _parts(value)
        if parts is None:
            raise ValueError(
                f"{what} must be plain data to be saved (numbers, text, arrays, lists, dicts) or "
                f"an object of btnkm, got {value!r} of type {type(value).__name__}; replace it, "
                "or use pickle."
            )
        kind, content = parts
        if kind == "csr":  # helper processes send copies of product tables
            key = tuple(
                part if isinstance(part, tuple) else part.tobytes() for part in content.values()
            )
            if key not in self._known:
                self._known[key] = self._object({"kind": kind}, content, what)
            return self._known[key]
        own = (
            {"own": True} if isinstance(value, Basis) and type(value) not in _KINDS.values() else {}
        )
        return self._object({"kind": kind, **own}, content, what)

    def _object(self, head: dict[str, Any], content: dict[str, Any], what: str) -> Any:
        inside = what if not head.get("own") else f"the basis {head['kind']}"
        plain = {name: self.node(value, inside) for name, value in content.items()}
        self.objects.append({**head, "fields": plain})
        return {"object": len(self.objects) - 1}

    def _array(self, array: Array, what: str) -> Any:
        kind, shape = array.dtype.kind, list(array.shape)
        if kind == "U":
            items = array.ravel().tolist()
            tight = array if _is_tight(items, array.itemsize // 4) else np.array(items)
            if _is_tight(items, tight.itemsize // 4):
                return {"text": [tight.dtype.newbyteorder("<").str, shape, items]}
        if kind in "OU":
            return {"objects": [shape, [self.node(item, what) for item in array.ravel().tolist()]]}
        numbers = array.view(np.int64) if kind in "mM" else array
        if numbers.dtype.name not in TYPES:
            raise ValueError(
                f"{what} must hold numbers, dates or text to be saved, got an array of "
                f"{array.dtype}; convert it."
            )
        self.arrays.append(numbers)
        place = len(self.arrays) - 1
        if kind in "mM":
            return {"dates": [place, array.dtype.newbyteorder("<").str]}
        return {"array": place}


def _parts(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the kind of an object and what it is made of, None if it is of no kind known."""
    if isinstance(value, sp.csr_array):
        return "csr", {
            "data": value.data,
            "indices": value.indices,
            "indptr": value.indptr,
            "shape": tuple(int(size) for size in value.shape),
        }
    if isinstance(value, Basis) or type(value) in (Coordinates, MainEffect):
        return type(value).__name__, dict(vars(value))
    if type(value) not in _KINDS.values():
        return None
    content = {name: getattr(value, name) for name in _fields(type(value))}
    if isinstance(value, Factor | LevelFactor):  # what a layout is follows from its size
        content["layout"] = None if value.layout.other is None else value.layout.shape
    if isinstance(value, Sums):
        content["groups"] = [list(group) for group in value.groups]
    return type(value).__name__, content


def _fields(kind: type) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return kind._fields  # type: ignore[attr-defined,no-any-return]  # a named tuple


class Decoder:
    """Objects from plain data, with the arrays that it refers to.

    Parameters
    ----------
    arrays : list of ndarray
    objects : list
        As ``Encoder`` made it.
    bases : iterable of type
        Bases that are not the library's, any of which the file may have used.
    """

    def __init__(self, arrays: list[Array], objects: Any, bases: Iterable[type]) -> None:
        self._arrays = arrays
        self._own = {basis.__name__: basis for basis in bases}
        self._objects: list[Any] = []
        if not isinstance(objects, list):
            raise Unreadable("one without a list of its objects")
        for item in objects:
            self._objects.append(self._made(item))

    def value(self, node: Any) -> Any:
        """Return what plain data stand for."""
        if node is None or isinstance(node, bool | int | str | float):
            return node
        if isinstance(node, list):
            return [self.value(item) for item in node]
        match node:
            case {"tuple": list(items)}:
                return tuple(self.value(item) for item in items)
            case {"dict": list(items)} if len(items) % 2 == 0:
                both = [self.value(item) for item in items]
                return dict(zip(both[::2], both[1::2], strict=True))
            case {"float": str(name)} if name in _INFINITE:
                return _INFINITE[name]
            case {"scalar": [str(name), inner]}:
                return self._scalar(name, self.value(inner))
            case {"array": int(place)}:
                return _at(self._arrays, place)
            case {"object": int(place)}:
                return _at(self._objects, place)
            case {"dates": [int(place), str(dtype)]} if _UNITS.fullmatch(dtype):
                array = _at(self._arrays, place)
                if array.dtype == np.int64:
                    return array.view(np.dtype(dtype).newbyteorder("="))
            case {"text": [str(dtype), list(shape), list(items)]} if _TEXT.fullmatch(dtype):
                width = int(dtype[2:])
                known = all(isinstance(item, str) and len(item) <= width for item in items)
                if known and _is_tight(items, width):
                    found = np.array(items, dtype=np.dtype(dtype).newbyteorder("="))
                    return _shaped(found, shape)
            case {"objects": [list(shape), list(items)]}:
                found = np.empty(len(items), dtype=object)
                for k, item in enumerate(items):
                    found[k] = self.value(item)
                return _shaped(found, shape)
        raise Unreadable("one with a value of a kind that it must not hold")

    def _scalar(self, name: str, value: Any) -> Any:
        if name == "str" and isinstance(value, str):
            return np.str_(value)
        if name in TYPES and isinstance(value, bool | int | float):
            return np.dtype(name).type(value)
        raise Unreadable("one with a number of a type that it must not hold")

    def _made(self, item: Any) -> Any:
        """Return one of the objects."""
        match item:
            case {"kind": str(kind), "fields": dict(plain)} if len(item) == 2:
                content = {name: self.value(node) for name, node in plain.items()}
                if kind in _KINDS and issubclass(_KINDS[kind], _OF_ATTRIBUTES):
                    return _basis(_KINDS[kind], content)
                return _of_library(kind, content)
            case {"kind": str(kind), "own": True, "fields": dict(plain)} if len(item) == 3:
                if kind not in self._own:
                    raise Unreadable(
                        f"one with a basis that is not btnkm's, {kind[:80]!r}",
                        "pass its class, as in btnkm.load(path, bases=[Hinges])",
                    )
                content = {name: self.value(node) for name, node in plain.items()}
                return _basis(self._own[kind], content)
        raise Unreadable("one with an object of a kind that it must not hold")


def _of_library(kind: str, content: dict[str, Any]) -> Any:
    match kind, content:
        case "csr", {"data": np.ndarray(), "indices": _, "indptr": _, "shape": _}:
            return _csr(**content)
        case "Factor" | "LevelFactor", {"mean": np.ndarray(), "layout": shape}:
            content = {**content, "layout": _layout(content["mean"], shape)}
        case "Sums", {"groups": list(groups)}:
            content = {**content, "groups": tuple(Group(*group) for group in groups)}
    if kind in _KINDS and set(content) == set(_fields(_KINDS[kind])):
        return _KINDS[kind](**content)
    raise Unreadable("one with an object of a kind that it must not hold")


def _layout(mean: Array, shape: Any) -> Layout:
    """Return the layout of as many columns as there are weights for."""
    if mean.size == 0 or mean.ndim != 2:
        raise Unreadable("one with weights of nothing")
    if shape is None:
        return components(mean.shape[1])
    match shape:
        case (int(left), int(right)) if left > 0 and left * right == mean.shape[1]:
            return core(left, right)
    raise Unreadable("one with weights that do not fit their network")


def _csr(data: Any, indices: Any, indptr: Any, shape: Any) -> sp.csr_array:
    """Return a sparse matrix, none of whose indices leads out of it."""
    whole = all(
        isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype in (np.int32, np.int64)
        for part in (indices, indptr)
    )
    square = isinstance(shape, tuple) and len(shape) == 2 and all(type(n) is int for n in shape)
    if not whole or not square or data.ndim != 1 or data.dtype != np.float64:
        raise Unreadable("one with a sparse matrix that is none")
    rows, columns = shape
    inside = len(indices) == 0 or (indices.min() >= 0 and indices.max() < columns)
    runs = len(indptr) == rows + 1 and indptr[0] == 0 and np.all(np.diff(indptr) >= 0)
    if not inside or not runs or not indptr[-1] == len(data) == len(indices) or columns < 0:
        raise Unreadable("one with a sparse matrix that is none")
    return sp.csr_array((data, indices, indptr), shape=shape)


def _basis(kind: Any, content: dict[str, Any]) -> Any:
    """Return functions with these attributes, none of which may hide what their class does."""
    for name in content:
        of_class = getattr(kind, name, None)
        if not name.isidentifier() or name.startswith("__") or callable(of_class):
            raise Unreadable(f"one with a basis that has an attribute {name!r}")
    basis = kind.__new__(kind)
    basis.__dict__.update(content)
    return basis


def _is_tight(items: list[str], width: int) -> bool:
    """Tell whether an array so wide is not much larger in memory than its text is in a file."""
    return len(items) * width <= _MOST_ROOM * (len(items) + sum(map(len, items)))


def _at(listed: list[Any], place: int) -> Any:
    if not 0 <= place < len(listed):
        raise Unreadable("one that refers to what is not there")
    return listed[place]


def _shaped(flat: Array, shape: list[Any]) -> Array:
    if not all(type(size) is int and size >= 0 for size in shape):
        raise Unreadable("one with an array of a shape that cannot be")
    return flat.reshape(shape)
