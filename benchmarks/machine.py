"""What a result depends on besides the model: machine, versions, code; and peak memory."""

import hashlib
import os
import platform
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("numpy", "scipy", "scikit-learn", "btnkm")


def versions():
    """Return the versions of Python and of the packages that matter; None if not installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def cpu_model():
    """Return the name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def threads():
    """Return the number of threads per native library pool loaded now, and of cores."""
    from threadpoolctl import threadpool_info

    count = {"cores": os.cpu_count()}
    for pool in threadpool_info():
        name = pool["user_api"]
        count[name] = max(count.get(name, 0), pool["num_threads"])
    return count


def _git(*arguments):
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def code_version():
    """Tell which code is measured.

    Returns
    -------
    code : dict
        `commit` (None outside git or before the first commit), `dirty` (whether files under
        src or benchmarks differ from it) and `code`, the identity by which results are
        matched: the commit when clean, else the commit and a hash of the sources, so that an
        edited tree is never taken for the one measured before.
    """
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--", "src", "benchmarks")
    dirty = commit is None or changes is None or changes != ""
    if not dirty:
        return {"commit": commit, "dirty": False, "code": commit}
    digest = hashlib.sha256()
    for folder in ("src", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return {
        "commit": commit,
        "dirty": True,
        "code": f"{commit or 'no-commit'}+{digest.hexdigest()[:12]}",
    }


def _status_mb(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status must have a line {field}, got none; use ru_maxrss.")


def _maxrss_mb():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


class PeakMemory:
    """Context that measures by how much the memory of this process rises inside it.

    Attributes
    ----------
    mb : float
        Peak inside minus use at the start, in MiB.
    probe : str
        Where the figure comes from.

    Notes
    -----
    On Linux `ru_maxrss` starts, in a new process, at the peak of the process that started
    it, which may hide a small fit altogether. The peak in /proc/self/status does not, and can
    be reset; it is preferred where it exists.
    """

    def __enter__(self):
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self._start, self.probe = _status_mb("VmRSS"), "VmHWM"
            _status_mb("VmHWM")
        except OSError:
            self._start, self.probe = _maxrss_mb(), "ru_maxrss"
        return self

    def __exit__(self, *exception):
        peak = _status_mb("VmHWM") if self.probe == "VmHWM" else _maxrss_mb()
        self.mb = max(0.0, peak - self._start)
