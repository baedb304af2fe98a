"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replaced(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a file that takes the place of the one at ``path`` once all of it is on the disk.

    If that fails, or the process is killed, the old one stays what it was. A new one has the rights
    of any new file, or is for its owner alone if ``private``.
    """
    beside = path.parent / f".{secrets.token_hex(8)}.part"
    try:
        rights = 0o600 if private else 0o666
        how = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        handle = os.open(beside, how, rights)
    except OSError as error:
        raise type(error)(
            f"path must be in a folder that can be written to, got {str(path.parent)!r} "
            f"({error.strerror}); make it, or name another."
        ) from None
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):  # of a file that is there already its own
            beside.chmod(stat.S_IMODE(path.stat().st_mode))
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # where folders can be opened: the new name is to last, too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
