"""A small language for what a value in a file must be, and the checker that reads it.

A kind is a short text in Python's syntax, which is parsed but never run:

    bool  flag  int  count  number  float  str  name  any  None  'first'
    numbers(M, C)  doubles(N)  ints(M)  flags(D)  integers(D)  texts(D)  array(N)  csr(M * M, K)
    size(M)  list(kind, D)  tuple(kind, D)  (kind, kind)  dict(kind, kind)  {'key': kind}
    Factor(M, C)
    kind | kind    0 <= kind < 1

``count`` is an integer >= 0, ``flag`` is a bool of Python or NumPy, ``number`` is finite where
``float`` need not be, ``name`` is what a table may call a column. Arrays are finite: ``numbers`` of
any float type, ``doubles`` of float64, ``ints`` of int64, ``flags`` of bool; ``array`` is of any
type. ``Factor`` is an object of that class, with the dimensions that its form declares.

A dimension has one size wherever its name stands in an object; the first array that has it sets it.
``M[i]`` has a size for each item of the list around it, ``_`` is any size, and None as a dimension
says that an object has none. The size of a dimension is the value of a field of kind ``size``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from .archive import Unreadable

Rule = Callable[..., Iterator[Any]]  # yields what must be true, of an object and its sizes


class Sizes(dict[str, int]):
    """Sizes of the dimensions of an object, and a function ``of`` for those of others."""

    def __init__(self, of: Callable[[Any], Sizes]) -> None:
        self.of = of


@dataclass(frozen=True)
class Form:
    """What an object of a class must be."""

    part: str  # of a model, as an error message names it
    fields: dict[str, str]  # kinds by name; a field whose name ends in "?" may be absent
    dims: tuple[str, ...] = ()  # known outside of the object, in the order in which kinds give them
    rules: tuple[Rule, ...] = ()  # what the kinds cannot say

    @property
    def names(self) -> dict[str, bool]:
        """The fields, and whether each must be there."""
        return {name.removesuffix("?"): not name.endswith("?") for name in self.fields}


def is_int(value: Any, low: int = -(2**63)) -> bool:
    """Whether a value is an integer of at least ``low`` that fits in 64 bits."""
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return integer and low <= value < 2**63


def is_float(value: Any) -> bool:
    """Whether a value is a number, which may be NaN or infinite."""
    return isinstance(value, float | np.floating) or is_int(value)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return is_float(value) and bool(np.isfinite(value))


def is_name(value: Any) -> bool:
    """Whether a table may call a column so: text, a number, None, or a tuple of these."""
    if isinstance(value, tuple):
        return all(map(is_name, value))
    return value is None or isinstance(value, str | int | float | np.generic)


SCALARS: dict[str, Callable[[Any], bool]] = {
    "any": lambda value: True,
    "bool": lambda value: isinstance(value, bool),
    "flag": lambda value: isinstance(value, bool | np.bool_),
    "str": lambda value: isinstance(value, str),
    "int": is_int,
    "count": lambda value: is_int(value, 0),
    "number": is_number,
    "float": is_float,
    "name": is_name,
}
ARRAYS: dict[str, Callable[[Any], Any]] = {
    "numbers": lambda array: array.dtype.kind == "f" and np.all(np.isfinite(array)),
    "doubles": lambda array: array.dtype == np.float64 and np.all(np.isfinite(array)),
    "ints": lambda array: array.dtype == np.int64,
    "integers": lambda array: array.dtype.kind in "iu",
    "flags": lambda array: array.dtype == np.bool_,
    "texts": lambda array: all(isinstance(item, str) for item in array.ravel().tolist()),
    "array": lambda array: True,
    "csr": lambda matrix: matrix.dtype.kind == "f" and np.all(np.isfinite(matrix.data)),
}
_COMPARE = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}


@lru_cache(maxsize=512)
def _parsed(kind: str) -> ast.expr:
    return ast.parse(kind, mode="eval").body


class Checker:
    """Check objects against their forms, each once, and remember their sizes.

    An object of a subclass has the form of its first base that has one. ``families`` are further
    names of classes in kinds.
    """

    def __init__(self, forms: Mapping[type, Form], families: Mapping[str, Any]) -> None:
        self._forms = forms
        self._names = {kind.__name__: kind for kind in forms} | dict(families)
        self._sizes: dict[int, tuple[Any, Sizes]] = {}  # by identity, which lasts as it is kept

    def form(self, kind: type) -> Form | None:
        """Return the form of a class, None if it has none."""
        return next((self._forms[base] for base in kind.__mro__ if base in self._forms), None)

    def sizes(self, value: Any) -> Sizes:
        """Return the sizes of an object that is checked the first time, see ``check``."""
        if id(value) not in self._sizes:
            form = self.form(type(value))
            sizes = Sizes(self.sizes) if form is None else self.check(value, form)
            self._sizes[id(value)] = (value, sizes)
        return self._sizes[id(value)][1]

    def check(self, value: Any, form: Form) -> Sizes:
        """Return the sizes of an object, or raise ``Unreadable`` unless it has this form."""
        what, sizes = type(value).__name__, Sizes(self.sizes)
        fitted = [name for name in form.names if name.endswith("_")]
        # parameters may hold a basis that is yet to be fitted; it has no sizes
        later = isinstance(value, BaseEstimator) and not any(hasattr(value, f) for f in fitted)
        for (name, needed), kind in zip(form.names.items(), form.fields.values(), strict=True):
            if (later and name in fitted) or (not needed and not hasattr(value, name)):
                continue
            fits = hasattr(value, name) and self.fits(_parsed(kind), getattr(value, name), sizes)
            if not fits:
                raise Unreadable(
                    f"one with {form.part} that do not fit together ({what}.{name} must be {kind})"
                )
        for rule in () if later else form.rules:
            if not all(rule(value, sizes)):
                broken = rule.__name__.replace("_", " ")
                raise Unreadable(
                    f"one with {form.part} that do not fit together ({what}: {broken!r} is false)"
                )
        return sizes

    def fits(self, kind: ast.expr, value: Any, sizes: dict[str, int], item: int = -1) -> bool:
        """Whether a value is of a kind; a dimension that has no size yet gets one."""
        match kind:
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                for choice in (left, right):
                    tried = dict(sizes)  # what does not fit sets no size
                    if self.fits(choice, value, tried, item):
                        sizes.update(tried)
                        return True
                return False
            case ast.Compare(left=left, ops=ops, comparators=others):
                parts = [left, *others]
                (inner,) = (p for p in parts if not isinstance(p, ast.Constant | ast.UnaryOp))
                ends = [value if part is inner else ast.literal_eval(part) for part in parts]
                return self.fits(inner, value, sizes, item) and (
                    value is None
                    or all(
                        bool(np.all(_COMPARE[type(op)](a, b)))
                        for op, (a, b) in zip(ops, pairwise(ends), strict=True)
                    )
                )
            case ast.Constant(value=wanted):
                return type(value) is type(wanted) and bool(value == wanted)
            case ast.Tuple(elts=kinds):
                return (isinstance(value, tuple) and len(value) == len(kinds)) and all(
                    self.fits(inner, part, sizes, item)
                    for inner, part in zip(kinds, value, strict=True)
                )
            case ast.Dict(keys=keys, values=kinds):
                return isinstance(value, dict) and all(
                    key.value in value and self.fits(inner, value[key.value], sizes, item)  # type: ignore[union-attr]
                    for key, inner in zip(keys, kinds, strict=True)
                )
            case ast.Name(id=name):
                return self._is_a(name, [], value, sizes, item)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._is_a(name, args, value, sizes, item)
        raise TypeError(f"no kind: {ast.unparse(kind)}")

    def _is_a(
        self, name: str, args: list[ast.expr], value: Any, sizes: dict[str, int], item: int
    ) -> bool:
        """Whether a value is of the kind of this name."""
        if name in SCALARS:
            return SCALARS[name](value)
        if name == "size":
            return is_int(value, 0) and self._sized(args[0], int(value), sizes, item)
        if name in ("list", "tuple"):
            if not isinstance(value, list if name == "list" else tuple):
                return False
            sized = len(args) == 1 or self._sized(args[1], len(value), sizes, item)
            return sized and all(self.fits(args[0], v, sizes, k) for k, v in enumerate(value))
        if name == "dict":
            return isinstance(value, dict) and all(
                self.fits(kind, part, sizes, item)
                for pair in value.items()
                for kind, part in zip(args, pair, strict=True)
            )
        if name in ARRAYS:
            kind = sp.csr_array if name == "csr" else np.ndarray
            if not isinstance(value, kind) or len(value.shape) != len(args):
                return False
            sized = all(map(lambda dim, n: self._sized(dim, n, sizes, item), args, value.shape))
            return sized and bool(ARRAYS[name](value))
        if not isinstance(value, self._names[name]):
            return False
        inner, form = self.sizes(value), self.form(type(value))
        dims = () if form is None else form.dims
        sizes_of_dims = map(inner.get, dims)
        return all(map(lambda dim, n: self._sized(dim, n, sizes, item), args, sizes_of_dims))

    def _sized(self, dim: ast.expr, n: int | None, sizes: dict[str, int], item: int) -> bool:
        """Whether a dimension has this size; one without a size gets it."""
        match dim:
            case ast.Constant(value=None):
                return n is None
            case ast.Name(id="_"):
                return n is not None
            case ast.Name() | ast.Subscript() if n is not None:
                return sizes.setdefault(_key(dim, item), n) == n
        return n is not None and n == _computed(dim, sizes, item)


def _key(dim: ast.expr, item: int) -> str:
    match dim:
        case ast.Subscript(value=ast.Name(id=name)):
            return f"{name}[{item}]"
        case ast.Name(id=name):
            return name
    raise TypeError(f"no dimension: {ast.unparse(dim)}")


def _computed(dim: ast.expr, sizes: dict[str, int], item: int) -> int | None:
    """Return a size that follows from others, None unless all of these are known."""
    match dim:
        case ast.Constant(value=int(n)):
            return n
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _computed(left, sizes, item), _computed(right, sizes, item)
            if a is None or b is None:
                return None
            return a * b if isinstance(op, ast.Mult) else a + b
    return sizes.get(_key(dim, item))
