"""Files that are whole or not there: written beside their place, and moved there at the end."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_FULL = {getattr(errno, name, None) for name in ("ENOSPC", "EDQUOT", "EFBIG")}  # not all anywhere


def file_path(path: Any, example: str = "model.btn") -> Path:
    """Return where a user wants a file, or say why none can be there."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f"path must name a file, got {path!r}; use for example {example!r}.")
    found = Path(path).expanduser()
    if found.is_dir():
        raise IsADirectoryError(
            f"path must name a file, got the folder {str(found)!r}; name a file in it."
        )
    return found


@contextmanager
def naming(path: Any) -> Iterator[None]:
    """Let the error of a full disk, which names no file, name this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None and error.errno in _FULL:
            error.filename = os.fspath(path)
            error.strerror = os.strerror(error.errno)  # Arrow has more words
        raise


@contextmanager
def whole_file(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a path to write to; what is there at the end takes the place of ``path``, at once.

    If writing fails, or the process is killed, a file that was there before stays what it was. A
    new one has the rights of any new file, or is for its owner alone if ``private``. What is no
    file, such as /dev/null, is written to as it is.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        with naming(path):
            yield place
        return
    draft = place.parent / f".{secrets.token_hex(8)}-{place.name}"  # its suffix may tell the format
    try:
        rights = 0o600 if private else 0o666
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, rights))
    except OSError as error:
        raise type(error)(
            f"path must be in a folder that can be written to, got {str(place.parent)!r} "
            f"({error.strerror}); make it, or name another."
        ) from None
    try:
        with naming(path):
            yield draft
            _to_disk(draft, os.O_RDWR)  # Windows refuses it for a file opened to read
        with suppress(FileNotFoundError):  # of a file that is there already its own
            draft.chmod(stat.S_IMODE(place.stat().st_mode))
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)
    with suppress(OSError):  # where folders can be opened: the new name is to last, too
        _to_disk(place.parent, os.O_RDONLY)


def _to_disk(path: Path, how: int) -> None:
    handle = os.open(path, how)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
