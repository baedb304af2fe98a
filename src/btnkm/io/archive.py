"""The file of a model: a zip of one JSON text and a few .npy files, with a checksum.

``model.json`` describes the model and refers to arrays by number. ``float64.npy`` holds the numbers
of all arrays of that type one after the other, and so on for every type that occurs. Nothing is
compressed: that would save a sixth at most, and what is not compressed cannot expand to more than
the file holds. The comment of the zip is the SHA-256 of all bytes before it, so a bit that has
flipped anywhere, the headers of the zip included, is detected before anything is read.
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
    """What is wrong with a file, as a text that can follow "got", and what to do about it."""

    def __init__(
        self, got: str, remedy: str = "take another copy of it, or save the model again"
    ) -> None:
        super().__init__(got)
        self.remedy = remedy


@dataclass(frozen=True)
class Entry:
    """How an array is stored."""

    dtype: str
    shape: list[int]
    axes: list[int]  # their order in memory, on which the rounding of sums depends
    symmetric: bool  # whether only the upper triangles of its matrices are stored
    sha256: str = ""  # of its bytes

    @classmethod
    def of(cls, array: Array) -> Entry:
        """Return the entry of an array, without its checksum."""
        axes = list(range(array.ndim))
        if not array.flags.c_contiguous:
            axes.sort(key=lambda axis: -abs(array.strides[axis]))
        shape = list(array.shape)
        symmetric = array.dtype == np.float64 and axes == sorted(axes) and _is_symmetric(array)
        return cls(array.dtype.name, shape, axes, symmetric)

    @property
    def n_stored(self) -> int:
        """The number of stored numbers."""
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
        """Return the array whose bytes are next in a stream."""
        flat = np.empty(self.n_stored, dtype=_little(self.dtype))
        view = flat.data.cast("B") if flat.size else memoryview(b"")
        done = 0
        while done < len(view):
            got = stream.readinto(view[done : done + _BLOCK])
            if not got:
                raise Unreadable("one that ends too early")
            done += got
        if hashlib.sha256(view).hexdigest() != self.sha256:
            raise Unreadable("one with an array that differs from its checksum")
        flat = flat.astype(self.dtype, copy=False)  # native byte order
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
    """Return how many square matrices an array consists of, and their size; zeros if of none."""
    if len(shape) == 4 and shape[:2] == shape[2:]:  # a covariance (C, M, C, M) is one
        return 1, shape[0] * shape[1]
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return 0, 0
    return math.prod(shape[:-2]), shape[-1]


def _is_symmetric(array: Array) -> bool:
    """Whether an array consists of matrices that are symmetric to the last bit."""
    count, size = _matrices(array.shape)
    if count == 0 or size < 2:
        return False
    bits = array.reshape(count, size, size).view(np.int64)  # 0 is not -0 there
    return np.array_equal(bits, bits.swapaxes(1, 2))


def write(path: Path, manifest: dict[str, Any], arrays: Sequence[Array]) -> None:
    """Write a file; ``manifest["arrays"]`` becomes the list of the entries of all arrays."""
    entries = [Entry.of(array) for array in arrays]
    with whole_file(path) as draft, draft.open("w+b") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for dtype in sorted({entry.dtype for entry in entries}):
                places = [k for k, entry in enumerate(entries) if entry.dtype == dtype]
                with archive.open(_member(f"{dtype}.npy"), "w", force_zip64=True) as stream:
                    count = sum(entries[k].n_stored for k in places)
                    header = {"descr": _little(dtype).str, "fortran_order": False}
                    npy.write_array_header_1_0(stream, header | {"shape": (count,)})
                    for k in places:
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
    """Return a member without the time of writing: the same model makes the same file."""
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o644 << 16
    return info


def _digest(file: BinaryIO, size: int) -> bytes:
    """Return the SHA-256 of the first bytes of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    file.seek(0)
    while block := file.read(min(size, _BLOCK)):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest().encode()


class Archive:
    """A file that is open for reading, and its ``model.json`` as ``manifest``.

    No memory is allocated before the checksum has been verified, and never more than twice the size
    of the file.
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
        """Close the file."""
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
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
            raise Unreadable("a zip that cannot be read") from error
        names = archive.namelist()
        known = {MANIFEST, *(f"{dtype}.npy" for dtype in TYPES)}
        if len(set(names)) < len(names) or MANIFEST not in names or not set(names) <= known:
            raise Unreadable("a zip with other members than a model has")
        for info in archive.infolist():
            stored = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
            if not stored or info.compress_size != info.file_size or info.file_size > size:
                raise Unreadable("a zip that is compressed or encrypted")
        return archive

    def _read_manifest(self) -> dict[str, Any]:
        try:
            text = self._zip.read(MANIFEST).decode("ascii")
            manifest = json.loads(text, parse_constant=_refused, object_pairs_hook=_once)
        except (zipfile.BadZipFile, EOFError, ValueError, RecursionError, NotImplementedError) as e:
            raise Unreadable("one whose model.json cannot be read") from e
        if not isinstance(manifest, dict):
            raise Unreadable("one whose model.json does not describe a model")
        return manifest

    def arrays(self, listed: Any) -> list[Array]:
        """Return the arrays that are listed, which must be exactly those in the file."""
        if not isinstance(listed, list):
            raise Unreadable("one without a list of its arrays")
        entries = [_entry(item) for item in listed]
        used = sorted({entry.dtype for entry in entries})
        if {MANIFEST, *(f"{dtype}.npy" for dtype in used)} != set(self._zip.namelist()):
            raise Unreadable("one with other types of arrays than it lists")
        arrays: list[Any] = [None] * len(entries)
        for dtype in used:
            places = [k for k, entry in enumerate(entries) if entry.dtype == dtype]
            count = sum(entries[k].n_stored for k in places)
            name = f"{dtype}.npy"
            try:
                with self._zip.open(name) as stream:
                    header = _read_header(stream)
                    size = self._zip.getinfo(name).file_size - stream.tell()
                    same = header == ((count,), False, _little(dtype))
                    if not same or size != count * np.dtype(dtype).itemsize:
                        raise Unreadable("one with other arrays than it lists")
                    for k in places:
                        arrays[k] = entries[k].read(stream)
            except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
                raise Unreadable(f"one whose {name} cannot be read") from error
        return arrays


def _read_header(stream: Any) -> tuple[Any, ...] | None:
    """Return shape, order and type of a .npy, None if they cannot be read."""
    try:
        if npy.read_magic(stream) != (1, 0):
            return None
        return npy.read_array_header_1_0(stream, max_header_size=1000)
    except ValueError:
        return None


def _entry(item: Any) -> Entry:
    """Return an entry from plain data, or raise ``Unreadable``."""
    wrong = Unreadable("one with an impossible description of an array")
    if not isinstance(item, dict) or set(item) != {field.name for field in fields(Entry)}:
        raise wrong
    entry = Entry(**item)
    lists = all(isinstance(v, list) and len(v) <= 8 for v in (entry.shape, entry.axes))
    if not lists or not all(type(v) is int and v >= 0 for v in (*entry.shape, *entry.axes)):
        raise wrong
    typed = isinstance(entry.symmetric, bool) and isinstance(entry.sha256, str)
    in_order = sorted(entry.axes) == list(range(len(entry.shape)))
    if entry.dtype not in TYPES or not typed or not in_order:
        raise wrong
    if entry.symmetric and (
        entry.dtype != "float64" or entry.axes != sorted(entry.axes) or 0 in _matrices(entry.shape)
    ):
        raise wrong
    return entry


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, in which no name may be repeated."""
    plain = dict(pairs)
    if len(plain) < len(pairs):
        raise ValueError("a name is repeated")
    return plain


def _refused(constant: str) -> None:
    """Refuse NaN and infinity, which are no JSON."""
    raise ValueError(constant)
