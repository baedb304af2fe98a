"""Files that are written completely or not at all: a complete draft replaces the file."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# errors of a full disk, where the system has them
_FULL = {getattr(errno, name, None) for name in ("ENOSPC", "EDQUOT", "EFBIG")}


def file_path(path: Any, example: str = "model.btn", name: str = "path") -> Path:
    """Return the path of a file, or raise an error that names the parameter ``name``."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f"{name} must name a file, got {path!r}; use for example {example!r}.")
    place = Path(path).expanduser()
    if place.is_dir():
        raise IsADirectoryError(
            f"{name} must name a file, got the folder {str(place)!r}; name a file in it."
        )
    return place


def folder_error(error: OSError, folder: Path, name: str = "path") -> OSError:
    """Return an error that says that no file can be written to a folder."""
    return type(error)(
        f"{name} must be in a folder that can be written to, got {str(folder)!r} "
        f"({error.strerror}); create it, or name another."
    )


def check_folder(path: Path, name: str = "path") -> None:
    """Raise an error before any work if no file can be written to the folder of a path."""
    if path.exists() and not path.is_file():  # such as /dev/null
        return
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        code = errno.EACCES if folder.is_dir() else errno.ENOENT
        raise folder_error(OSError(code, os.strerror(code)), folder, name)


@contextmanager
def naming(path: Any) -> Iterator[None]:
    """Add the name of a file to errors of a full disk, which have none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None and error.errno in _FULL:
            error.filename = os.fspath(path)
            error.strerror = os.strerror(error.errno)  # Arrow has a longer text
        raise


@contextmanager
def whole_file(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield the path of a draft, which replaces the file at ``path`` once it is complete.

    If writing fails or the process is killed, an existing file stays as it was. A new file has the
    default permissions, or is readable by its owner alone if ``private``. A path that is no regular
    file, such as /dev/null, is written to directly.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        with naming(path):
            yield place
        return
    draft = place.parent / f".{secrets.token_hex(8)}-{place.name}"  # writers may go by the suffix
    try:
        mode = 0o600 if private else 0o666
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    except OSError as error:
        raise folder_error(error, place.parent) from None
    try:
        with naming(path):
            yield draft
            _to_disk(draft, os.O_RDWR)  # Windows refuses to flush a file opened for reading
        with suppress(FileNotFoundError):  # keep the permissions of an existing file
            draft.chmod(stat.S_IMODE(place.stat().st_mode))
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)
    with suppress(OSError):  # flush the new name as well, where folders can be opened
        _to_disk(place.parent, os.O_RDONLY)


def _to_disk(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
