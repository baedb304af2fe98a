"""Imports run one way.

checks and core/arrays <- bases, core <- execution <- estimators <- explain, io <- report <- cli.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import btnkm

ROOT = Path(btnkm.__file__).parent
ALLOWED = {
    "core": {"numpy", "scipy", "array_api_compat", "torch", "triton", "btnkm.core"},
    "bases": {
        "numpy",
        "scipy",
        "array_api_compat",
        "sklearn.base",
        "torch",
        "triton",
        "btnkm.bases",
        "btnkm.checks",
        "btnkm.core.arrays",
        "btnkm.core.formula",
    },
    "execution": {
        "numpy",
        "array_api_compat",
        "distributed",
        "torch",
        "threadpoolctl",
        "joblib.externals.loky",
        "btnkm.bases",
        "btnkm.core",
        "btnkm.execution",
    },
}
#: Rooms that may import from anywhere but from these.
APART = {
    "explain": {"cli", "io", "report"},
    "io": {"cli", "report"},
    "report": {"cli", "io.onnx"},
    "cli": {"bases", "core", "execution", "io.onnx", "io.portable"},
}


def files_of(rooms):
    found = {room: [ROOT / room, *sorted((ROOT / room).rglob("*.py"))] for room in rooms}
    return [
        pytest.param(room, path, id=f"{room}/{path.name}")
        for room, paths in found.items()
        for path in paths
        if path.is_file()
    ]


FILES = files_of(ALLOWED)


def imported(source, package):
    """Return the absolute names of everything a module imports, wherever in it."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            parent = ".".join(base) if node.level else ""
            full = ".".join(part for part in (parent, node.module) if part)
            names += [f"{full}.{alias.name}" for alias in node.names]
    return names


def is_allowed(name, allowed):
    if name.split(".")[0] in sys.stdlib_module_names:
        return True
    return any(name == a or name.startswith(a + ".") for a in allowed)


@pytest.mark.parametrize(("room", "path"), FILES)
def test_a_room_imports_only_what_it_may(room, path):
    package = ".".join(("btnkm", *path.relative_to(ROOT).parent.parts))
    names = imported(path.read_text(encoding="utf-8"), package)
    assert [name for name in names if not is_allowed(name, ALLOWED[room])] == []


@pytest.mark.parametrize(("room", "path"), files_of(APART))
def test_a_room_imports_nothing_of_those_above_or_beside_it(room, path):
    package = ".".join(("btnkm", *path.relative_to(ROOT).parent.parts))
    names = imported(path.read_text(encoding="utf-8"), package)
    apart = {f"btnkm.{other}" for other in APART[room]}
    assert [n for n in names if any(n == a or n.startswith(a + ".") for a in apart)] == []


def test_checks_know_nothing_of_the_rest():
    names = imported((ROOT / "checks.py").read_text(encoding="utf-8"), "btnkm")
    assert [name for name in names if name.startswith("btnkm")] == []


def test_every_room_has_modules():
    assert {p.values[0] for p in FILES} == set(ALLOWED)
    assert {p.values[0] for p in files_of(APART)} == set(APART)


@pytest.mark.parametrize(
    ("line", "package", "expected"),
    [
        ("from ..regressor import BTNRegressor", "btnkm.core", "btnkm.regressor.BTNRegressor"),
        ("from .. import checks", "btnkm.bases", "btnkm.checks"),
        ("from . import cp", "btnkm.core", "btnkm.core.cp"),
        ("import pandas as pd", "btnkm.core", "pandas"),
    ],
)
def test_the_reader_of_imports_resolves_relative_names(line, package, expected):
    assert imported(line, package) == [expected]
    assert is_allowed(expected, ALLOWED["core"]) == (expected == "btnkm.core.cp")
