"""Models as files: what ``model.save("m.btn")`` writes and ``btnkm.load("m.btn")`` reads.

A file holds what predictions and further learning need: parameters, fitted attributes, sums over
earlier rows and, of a short stream, its latest rows. It holds no code, and none is imported because
of it: kinds of objects are names in a dict of classes, and an estimator hands over its state.

Objects of the library are plain data in it: numbers, text, lists, and JSON objects of one key,
which names what they stand for::

    {"tuple": [..]}  {"dict": [key, value, ..]}  {"float": "nan"}  {"scalar": ["int64", 3]}
    {"array": k}     {"dates": [k, "<M8[us]"]}   {"text": ["<U3", shape, [..]]}
    {"objects": [shape, [..]]}                   {"object": k}

``k`` is the number of an array, or of an object in a list of objects. Each of these has its kind
and its fields, which may refer to objects before it: an object that is used twice is stored once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..bases import Basis
from ..core.categories import CategoryFactor
from ..core.layout import Layout, components, core
from ..core.state import Factor
from ..core.sums import Group, Sums
from ..version import __version__
from .archive import TYPES, Archive, Unreadable, write
from .atomic_write import file_path
from .contents import FAMILIES, FORMS, MODEL
from .migrate import VERSION, migrated, migrated_state
from .rules import MOST_FULL_ROWS
from .schema import Checker

Array = np.ndarray
FORMAT = "btnkm model"
#: Classes whose objects a file may hold, by name; a csr_array is a kind as well.
KINDS: dict[str, Any] = {kind.__name__: kind for kind in FORMS if kind not in (Basis, Group)}
_UNITS = re.compile(r"<[mM]8\[(\d{0,6})(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]")
_TEXT = re.compile(r"<U\d{1,7}")
_MOST_ROOM = 16  # characters of memory that an array of text may take for each that it holds
_INFINITE = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


@dataclass(frozen=True)
class FittedState:
    """What a file holds of a fitted model."""

    estimator: str  # the name of its class
    parameters: dict[str, Any]
    attributes: dict[str, Any]  # those that the schema does not have are left out of a file


class Model(SimpleNamespace):
    """The attributes of a model, as the schema has them."""


def write_model(path: Any, state: FittedState) -> None:
    """Write the state of a fitted model to a file."""
    for posterior in state.attributes["posterior_"]:
        rows = len(getattr(posterior, "share", ()))
        if rows > MOST_FULL_ROWS:
            raise ValueError(
                f"a full tensor must have at most {MOST_FULL_ROWS:,} rows to be saved, got one of "
                f"{rows:,}; lower Solver(full_rows=...) and fit again, or use pickle."
            )
    encoder, names = Encoder(), MODEL.names
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "btnkm": __version__,
        "estimator": state.estimator,
        "parameters": {
            name: encoder.node(value, f"the parameter {name}")
            for name, value in state.parameters.items()
        },
        "attributes": {
            name: encoder.node(value, f"the attribute {name}")
            for name, value in state.attributes.items()
            if name in names
        },
        "objects": encoder.objects,
    }
    write(file_path(path), manifest, encoder.arrays)


def read_model(path: Any, estimators: Mapping[str, Any], bases: Iterable[type[Basis]] = ()) -> Any:
    """Return the model in a file, or raise a ValueError if there is no sound one.

    Parameters
    ----------
    path : str or path
    estimators : dict of str to type
        Those that the file may name, with a method ``from_fitted_state``.
    bases : iterable of type
        Those bases of the model that are not the library's.
    """
    bases = list(bases)
    for basis in bases:
        if not isinstance(basis, type) or not issubclass(basis, Basis):
            raise TypeError(f"bases must be classes of bases, got {basis!r}; pass its class.")
    place = file_path(path)
    try:
        with Archive(place) as archive:
            version: Any = archive.manifest.get("version")
            if archive.manifest.get("format") != FORMAT:
                raise Unreadable("a zip of something else")
            manifest = migrated(archive.manifest, __version__)
            arrays = archive.arrays(manifest.get("arrays"))
        estimator = estimators.get(manifest["estimator"])
        if estimator is None:
            raise Unreadable("one of another estimator")
        decoder = Decoder(arrays, manifest["objects"], bases)
        parameters, attributes = (
            {name: decoder.value(node) for name, node in manifest[part].items()}
            for part in ("parameters", "attributes")
        )
        if not set(attributes) <= set(MODEL.names):
            raise Unreadable("one with other attributes than a model has")
        decoder.checker.check(Model(**attributes), MODEL)
        parameters, attributes = migrated_state(parameters, attributes, version)
        state = FittedState(manifest["estimator"], parameters, attributes)
        return estimator.from_fitted_state(state)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a hostile file may cause any
        raise ValueError(
            f"path must name a model saved by btnkm, got {str(place)!r}, {_reason(error)}."
        ) from error


def _reason(error: Exception) -> str:
    """Return what is wrong with a file, and what to do, in one sentence."""
    if isinstance(error, Unreadable):
        return f"{error}; {error.remedy}"
    text = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")
    return f"one with parts that do not fit together ({text}); {Unreadable('').remedy}"


# ---- objects as plain data


class Encoder:
    """Plain data of some objects, with the arrays and the shared objects they refer to."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self.objects: list[Any] = []
        self._known: dict[Any, Any] = {}  # by identity, and by content for product tables
        self._held: list[Any] = []  # no other object gets their identity while they are held

    def node(self, value: Any, what: str) -> Any:
        """Return plain data that stands for a value; errors name ``what`` it belongs to."""
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
        parts = self._parts(value)
        if parts is None:
            raise ValueError(
                f"{what} must be plain data to be saved (numbers, text, arrays, lists, dicts) or "
                f"an object of btnkm, got {value!r} of type {type(value).__name__}; replace it, "
                "or use pickle."
            )
        kind, content = parts
        if kind == "csr":  # helper processes send copies of product tables
            arrays = (content[name].tobytes() for name in ("data", "indices", "indptr"))
            key = (*arrays, content["shape"])
            if key not in self._known:
                self._known[key] = self._object({"kind": kind}, content, what)
            return self._known[key]
        foreign = {} if type(value) in KINDS.values() else {"own": True}
        return self._object({"kind": kind, **foreign}, content, what)

    def _parts(self, value: Any) -> tuple[str, dict[str, Any]] | None:
        """Return the kind of an object and what it is made of, None if it is of no kind known."""
        kind = type(value)
        if isinstance(value, sp.csr_array):
            shape = tuple(int(size) for size in value.shape)
            arrays = {name: getattr(value, name) for name in ("data", "indices", "indptr")}
            return "csr", {**arrays, "shape": shape}
        if kind not in KINDS.values() and not isinstance(value, Basis):
            return None
        names = _constructed(kind)
        if names is None:
            return kind.__name__, dict(vars(value))
        content = {name: getattr(value, name) for name in names}
        if isinstance(value, Factor | CategoryFactor):  # what a layout is follows from its size
            content["layout"] = None if value.layout.other is None else value.layout.shape
        if isinstance(value, Sums):
            content["groups"] = [list(group) for group in value.groups]
        return kind.__name__, content

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


def _constructed(kind: Any) -> tuple[str, ...] | None:
    """Return the fields of a dataclass or named tuple, None for classes with free attributes."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return kind.__match_args__ if issubclass(kind, tuple) else None


class Decoder:
    """Objects from plain data, as ``Encoder`` made it; each is checked when it is made.

    ``bases`` are those not of the library which the file may use.
    """

    def __init__(self, arrays: list[Array], objects: Any, bases: Iterable[type]) -> None:
        self._arrays = arrays
        self._foreign = {basis.__name__: basis for basis in bases}
        self.checker = Checker(FORMS, FAMILIES)
        self._objects: list[Any] = []
        if not isinstance(objects, list):
            raise Unreadable("one without a list of its objects")
        for item in objects:
            made = self._made(item)
            self.checker.sizes(made)  # checks it, before another object is made of it
            self._objects.append(made)

    def value(self, node: Any) -> Any:
        """Return the value that plain data stand for."""
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
                    text = np.array(items, dtype=np.dtype(dtype).newbyteorder("="))
                    return _shaped(text, shape)
            case {"objects": [list(shape), list(items)]}:
                flat = np.empty(len(items), dtype=object)
                for k, item in enumerate(items):
                    flat[k] = self.value(item)
                return _shaped(flat, shape)
        raise Unreadable("one with a value of a kind that no file has")

    def _scalar(self, name: str, value: Any) -> Any:
        if name == "str" and isinstance(value, str):
            return np.str_(value)
        if name in TYPES and isinstance(value, bool | int | float):
            return np.dtype(name).type(value)
        raise Unreadable("one with a number of a type that no file has")

    def _made(self, item: Any) -> Any:
        """Return one of the objects."""
        match item:
            case {"kind": "csr", "fields": dict(plain)} if len(item) == 2:
                return _csr(**self._content(plain))
            case {"kind": str(kind), "fields": dict(plain)} if len(item) == 2:
                if kind in KINDS:
                    return _of_library(KINDS[kind], self._content(plain))
            case {"kind": str(kind), "own": True, "fields": dict(plain)} if len(item) == 3:
                if kind not in self._foreign:
                    raise Unreadable(
                        f"one with a basis that is not btnkm's, {kind[:80]!r}",
                        "pass its class, as in btnkm.load(path, bases=[Hinges])",
                    )
                return _with_attributes(self._foreign[kind], self._content(plain))
        raise Unreadable("one with an object of a kind that no file has")

    def _content(self, plain: dict[str, Any]) -> dict[str, Any]:
        return {name: self.value(node) for name, node in plain.items()}


def _of_library(kind: Any, content: dict[str, Any]) -> Any:
    names = FORMS[kind].names
    # a basis that is not fitted yet has parameters alone; the checker knows which these are
    needed = () if issubclass(kind, Basis) else {name for name, must in names.items() if must}
    if not set(needed) <= set(content) <= set(names):
        raise Unreadable(f"one with a {kind.__name__} of other fields")
    if kind in (Factor, CategoryFactor):
        content["layout"] = _layout(content["mean"], content["cov"], content["layout"])
    if kind is Sums:
        content["groups"] = tuple(Group(*group) for group in content["groups"])
    return _with_attributes(kind, content) if _constructed(kind) is None else kind(**content)


def _layout(mean: Any, cov: Any, shape: Any) -> Layout:
    """Return the layout of a factor, which has a covariance for every two columns."""
    arrays = all(isinstance(array, np.ndarray) for array in (mean, cov))
    # so has a layout: its size is bounded by that of the file
    if not arrays or mean.size == 0 or mean.ndim != 2 or cov.size < mean.shape[1] ** 2:
        raise Unreadable("one with weights that have no covariance")
    if shape is None:
        return components(mean.shape[1])
    match shape:
        case (int(left), int(right)) if left > 0 and left * right == mean.shape[1]:
            return core(left, right)
    raise Unreadable("one with weights that do not fit their network")


def _csr(data: Any, indices: Any, indptr: Any, shape: Any) -> sp.csr_array:
    """Return a sparse matrix, none of whose indices leads out of it."""
    integers = all(
        isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype in (np.int32, np.int64)
        for part in (indices, indptr)
    )
    matrix = isinstance(shape, tuple) and len(shape) == 2 and all(type(n) is int for n in shape)
    if not integers or not matrix or data.ndim != 1 or data.dtype != np.float64:
        raise Unreadable("one with an impossible sparse matrix")
    rows, columns = shape
    inside = len(indices) == 0 or (indices.min() >= 0 and indices.max() < columns)
    runs = len(indptr) == rows + 1 and indptr[0] == 0 and np.all(np.diff(indptr) >= 0)
    if not inside or not runs or not indptr[-1] == len(data) == len(indices) or columns < 0:
        raise Unreadable("one with an impossible sparse matrix")
    return sp.csr_array((data, indices, indptr), shape=shape)


def _with_attributes(kind: Any, content: dict[str, Any]) -> Any:
    """Return an object with these attributes, none of which may replace a method."""
    for name in content:
        of_class = getattr(kind, name, None)
        if not name.isidentifier() or name.startswith("__") or callable(of_class):
            raise Unreadable(f"one with a {kind.__name__} that has an attribute {name[:80]!r}")
    made = kind.__new__(kind)
    vars(made).update(content)
    return made


def _is_tight(items: list[str], width: int) -> bool:
    """Whether an array of this width is not much larger in memory than in a file."""
    return len(items) * width <= _MOST_ROOM * (len(items) + sum(map(len, items)))


def _at(items: list[Any], place: int) -> Any:
    if not 0 <= place < len(items):
        raise Unreadable("one that refers to an array or object that it does not have")
    return items[place]


def _shaped(flat: Array, shape: list[Any]) -> Array:
    if not all(type(size) is int and size >= 0 for size in shape):
        raise Unreadable("one with an array of an impossible shape")
    return flat.reshape(shape)
