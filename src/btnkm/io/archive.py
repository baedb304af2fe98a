"""The file of a model: a zip of one JSON text and a few .npy, checked to the last bit.

``model.json`` says what the model is and names arrays by their number; ``float64.npy`` holds the
numbers of all arrays of that type one behind the other, and so on for every type there is. Nothing
is compressed: covariances shrink by three in a hundred, a whole file by a sixth at most, and what
is not packed cannot unfold to more than the file holds. The comment of the zip is the SHA-256 of
all bytes before it: a bit that has flipped anywhere, the zip's own headers included, is noticed
before anything is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy

from .atomic_write import whole_file

Array = np.ndarray
MANIFEST = "model.json"
#: Types of arrays that a file may hold, each in a .npy of its own.
TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
_DIGEST = 2 * hashlib.sha256().digest_size  # characters
_BLOCK = 2**20  # bytes read at a time


class Unreadable(ValueError):
    """What is wrong with a file, in words that can stand behind "got", and what to do."""

    def __init__(
        self, got: str, remedy: str = "take another copy of it, or save the model again"
    ) -> None:
        super().__init__(got)
        self.remedy = remedy


@dataclass(frozen=True)
class Entry:
    """How an array lies in its file.

    Attributes
    ----------
    dtype : str
    shape : list of int
    axes : list of int
        The order of the axes in memory, which decides in what order sums are made.
    symmetric : bool
        Whether only the upper triangles of its matrices are there.
    sha256 : str
        Of the bytes.
    """

    dtype: str
    shape: list[int]
    axes: list[int]
    symmetric: bool
    sha256: str = ""

    @classmethod
    def of(cls, array: Array) -> Entry:
        """Return how an array is to be stored."""
        axes = list(range(array.ndim))
        if not array.flags.c_contiguous:
            axes.sort(key=lambda axis: -abs(array.strides[axis]))
        shape = list(array.shape)
        symmetric = array.dtype == np.float64 and axes == sorted(axes) and _is_symmetric(array)
        return cls(array.dtype.name, shape, axes, symmetric)

    @property
    def n_stored(self) -> int:
        """How many numbers are stored."""
        if not self.symmetric:
            return math.prod(self.shape)
        count, size = _matrices(self.shape)
        return count * (size * (size + 1) // 2)

    def stored(self, array: Array) -> bytes:
        """Return the bytes of an array."""
        if self.symmetric:
            count, size = _matrices(self.shape)
            flat = array.reshape(count, size, size)[:, *np.triu_indices(size)]
        else:
            flat = array.transpose(self.axes)
        return np.ascontiguousarray(flat, dtype=_little(self.dtype)).tobytes()

    def read(self, stream: Any) -> Array:
        """Return the array whose bytes come next."""
        flat = np.empty(self.n_stored, dtype=_little(self.dtype))
        view = flat.data.cast("B") if flat.size else memoryview(b"")
        done = 0
        while done < len(view):
            got = stream.readinto(view[done : done + _BLOCK])
            if not got:
                raise Unreadable("one that ends too early")
            done += got
        if hashlib.sha256(view).hexdigest() != self.sha256:
            raise Unreadable("one with an array that is not the one it names")
        flat = flat.astype(self.dtype, copy=False)  # in the byte order of this machine
        if not self.symmetric:
            shape = [self.shape[axis] for axis in self.axes]
            return flat.reshape(shape).transpose(np.argsort(self.axes))
        count, size = _matrices(self.shape)
        out = np.empty((count, size, size), dtype=self.dtype)
        i, j = np.triu_indices(size)
        out[:, i, j] = out[:, j, i] = flat.reshape(count, len(i))
        return out.reshape(self.shape)


def _little(dtype: str) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("<")


def _matrices(shape: Sequence[int]) -> tuple[int, int]:
    """Return how many square matrices an array is made of, and their size; 0 if of none."""
    if len(shape) == 4 and shape[:2] == shape[2:]:  # a covariance (C, M, C, M) is one
        return 1, shape[0] * shape[1]
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return 0, 0
    return math.prod(shape[:-2]), shape[-1]


def _is_symmetric(array: Array) -> bool:
    """Tell whether an array is made of matrices that are symmetric to the last bit."""
    count, size = _matrices(array.shape)
    if count == 0 or size < 2:
        return False
    bits = array.reshape(count, size, size).view(np.int64)  # 0 is not -0 there
    return np.array_equal(bits, bits.swapaxes(1, 2))


def write(path: Path, manifest: dict[str, Any], arrays: Sequence[Array]) -> None:
    """Write a file, with ``manifest["arrays"]`` the list of what is known of every array."""
    entries = [Entry.of(array) for array in arrays]
    with whole_file(path) as draft, draft.open("w+b") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for dtype in sorted({entry.dtype for entry in entries}):
                own = [k for k, entry in enumerate(entries) if entry.dtype == dtype]
                with archive.open(_member(f"{dtype}.npy"), "w", force_zip64=True) as stream:
                    count = sum(entries[k].n_stored for k in own)
                    _write_header(stream, dtype, count)
                    for k in own:
                        stored = entries[k].stored(arrays[k])
                        digest = hashlib.sha256(stored).hexdigest()
                        entries[k] = replace(entries[k], sha256=digest)
                        stream.write(stored)
            listed = [asdict(entry) for entry in entries]
            text = json.dumps(manifest | {"arrays": listed}, allow_nan=False, ensure_ascii=True)
            archive.writestr(_member(MANIFEST), text.encode())
            archive.comment = b"0" * _DIGEST
        size = file.seek(0, os.SEEK_END) - _DIGEST
        checksum = _digest(file, size)
        file.seek(size)
        file.write(checksum)


def _member(name: str) -> zipfile.ZipInfo:
    """Return a member without the time of day: the same model makes the same file."""
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o644 << 16
    return info


def _write_header(stream: Any, dtype: str, count: int) -> None:
    described = {"descr": _little(dtype).str, "fortran_order": False, "shape": (count,)}
    npy.write_array_header_1_0(stream, described)


def _digest(file: BinaryIO, size: int) -> bytes:
    """Return the SHA-256 of the first bytes of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    file.seek(0)
    while size > 0:
        block = file.read(min(size, _BLOCK))
        if not block:
            break
        digest.update(block)
        size -= len(block)
    return digest.hexdigest().encode()


class Archive:
    """A file that is open for reading, and what its ``model.json`` says.

    Nothing is given memory before the file is known to be as it was written, and never more than
    twice what the file holds.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        try:
            self._zip = self._opened()
            self.manifest = self._read_manifest()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self) -> zipfile.ZipFile:
        if self._file.read(4) != b"PK\x03\x04":
            raise Unreadable("a file of another kind")
        size = max(self._file.seek(0, os.SEEK_END) - _DIGEST, 0)
        digest = _digest(self._file, size)
        if self._file.read() != digest:
            raise Unreadable("one that was cut short or changed: its checksum differs")
        try:
            archive = zipfile.ZipFile(self._file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError):
            raise Unreadable("a zip that cannot be read") from None
        names = archive.namelist()
        known = {MANIFEST, *(f"{dtype}.npy" for dtype in TYPES)}
        if len(set(names)) < len(names) or MANIFEST not in names or not set(names) <= known:
            raise Unreadable("a zip that does not hold what a model's does")
        for info in archive.infolist():
            stored = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
            if not stored or info.compress_size != info.file_size or info.file_size > size:
                raise Unreadable("a zip that is packed in another way")
        return archive

    def _read_manifest(self) -> dict[str, Any]:
        try:
            text = self._zip.read(MANIFEST).decode("ascii")
            manifest = json.loads(text, parse_constant=_refused, object_pairs_hook=_once)
        except (zipfile.BadZipFile, EOFError, ValueError, RecursionError, NotImplementedError):
            raise Unreadable("one whose model.json cannot be read") from None
        if not isinstance(manifest, dict):
            raise Unreadable("one whose model.json is no description of a model")
        return manifest

    def arrays(self, listed: Any) -> list[Array]:
        """Return the arrays that are listed, having made sure that these are what is there."""
        if not isinstance(listed, list):
            raise Unreadable("one without a list of its arrays")
        entries = [_entry(item) for item in listed]
        used = sorted({entry.dtype for entry in entries})
        if {MANIFEST, *(f"{dtype}.npy" for dtype in used)} != set(self._zip.namelist()):
            raise Unreadable("one with other types of arrays than it lists")
        arrays: list[Any] = [None] * len(entries)
        for dtype in used:
            own = [k for k, entry in enumerate(entries) if entry.dtype == dtype]
            count = sum(entries[k].n_stored for k in own)
            name = f"{dtype}.npy"
            try:
                with self._zip.open(name) as stream:
                    header = _read_header(stream)
                    there = self._zip.getinfo(name).file_size - stream.tell()
                    same = header == ((count,), False, _little(dtype))
                    if not same or there != count * np.dtype(dtype).itemsize:
                        raise Unreadable("one with other arrays than it lists")
                    for k in own:
                        arrays[k] = entries[k].read(stream)
            except (zipfile.BadZipFile, EOFError, NotImplementedError):
                raise Unreadable(f"one whose {name} cannot be read") from None
        return arrays


def _read_header(stream: Any) -> tuple[Any, ...] | None:
    """Return what the header of a .npy says, None if it cannot be read."""
    try:
        if npy.read_magic(stream) != (1, 0):
            return None
        return npy.read_array_header_1_0(stream, max_header_size=1000)
    except ValueError:
        return None


def _entry(item: Any) -> Entry:
    """Return how an array lies in its file, or say that it cannot be so."""
    wrong = Unreadable("one with an array that it describes wrongly")
    if not isinstance(item, dict) or set(item) != {field.name for field in fields(Entry)}:
        raise wrong
    entry = Entry(**item)
    whole = all(isinstance(v, list) and len(v) <= 8 for v in (entry.shape, entry.axes))
    if not whole or not all(type(v) is int and v >= 0 for v in (*entry.shape, *entry.axes)):
        raise wrong
    kinds = isinstance(entry.symmetric, bool) and isinstance(entry.sha256, str)
    in_order = sorted(entry.axes) == list(range(len(entry.shape)))
    if entry.dtype not in TYPES or not kinds or not in_order:
        raise wrong
    if entry.symmetric and (
        entry.dtype != "float64" or entry.axes != sorted(entry.axes) or 0 in _matrices(entry.shape)
    ):
        raise wrong
    return entry


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, none of whose names may come twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _refused(constant: str) -> None:
    """Refuse NaN and infinity, which are no JSON."""
    raise ValueError(constant)
