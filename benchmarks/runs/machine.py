"""What a result depends on besides the model: machine, versions, code; and peak memory."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import btnkm

PACKAGE = Path(btnkm.__file__).resolve().parent
#: The checkout.
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "scipy", "scikit-learn", "btnkm")
#: Folders whose code only draws what was measured: it may change, and results stand.
DRAWING = "render"


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the packages that matter; None if not installed."""
    installed: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = None
    return installed


def cpu_model() -> str:
    """Return the name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def threads() -> dict[str, Any]:
    """Return the number of threads per native library pool loaded now, and of cores."""
    from threadpoolctl import threadpool_info

    count: dict[str, Any] = {"cores": os.cpu_count()}
    for pool in threadpool_info():
        name = pool["user_api"]
        count[name] = max(count.get(name, 0), pool["num_threads"])
    return count


def _git(*arguments: str) -> str | None:
    if not (ROOT / ".git").exists():  # unpacked, maybe inside somebody else's repository
        return None
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def code_version(*folders: Path) -> dict[str, Any]:
    """Return the identity of the measured code.

    Parameters
    ----------
    *folders : Path
        Besides the package, what the results depend on.

    Returns
    -------
    code : dict
        ``code``, the identity by which results are matched: a hash of the sources that can make a
        difference. For readers, ``commit`` (None outside a checkout) and ``dirty``, whether
        sources differ from it.
    """
    commit = _git("rev-parse", "HEAD")
    paths = [str(folder) for folder in (PACKAGE, *folders)]
    changes = _git("status", "--porcelain", "--", *paths)
    dirty = None if commit is None else changes != ""
    return {"commit": commit, "dirty": dirty, "code": source_hash(*folders)}


def source_hash(*folders: Path) -> str:
    """Return a short hash of the package's sources and of those in other folders."""
    digest = hashlib.sha256()
    for folder in (PACKAGE, *folders):
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder).as_posix()
            if DRAWING not in path.relative_to(folder).parts[:-1]:
                digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _status_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status must have a line {field}, got none; use ru_maxrss.")


def _maxrss_mb() -> float:
    if sys.platform == "win32":
        return 0.0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


class PeakMemory:
    """Context that measures by how much the memory of this process rises inside it.

    Attributes
    ----------
    mb : float
        Peak inside minus use at the start, in MiB; 0 if the system does not report it (Windows).
    probe : str
        Where the figure comes from.

    Notes
    -----
    On Linux ``ru_maxrss`` starts, in a new process, at the peak of the process that started
    it, which may hide a small fit altogether. The peak in /proc/self/status does not, and can
    be reset; it is preferred where it exists.
    """

    mb: float
    probe: str

    def __enter__(self) -> Self:
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self._start, self.probe = _status_mb("VmRSS"), "VmHWM"
            _status_mb("VmHWM")
        except OSError:
            self._start, self.probe = _maxrss_mb(), "ru_maxrss"
        return self

    def __exit__(self, *exception: object) -> None:
        peak = _status_mb("VmHWM") if self.probe == "VmHWM" else _maxrss_mb()
        self.mb = max(0.0, peak - self._start)
