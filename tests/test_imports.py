"""The package's shape: imports run one way, without cycles; privates stay private; short functions.

Everything is read from the source, so an import inside a function or under TYPE_CHECKING counts.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import btnkm

ROOT = Path(btnkm.__file__).parent
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
LONGEST = 60  # lines of a function without its docstring

#: From the bottom up: a module may import from its own layer and from those above it in this list.
#: A module belongs to the longest name that its own begins with.
LAYERS = [
    ["version", "checks", "warn"],
    ["core"],
    ["bases", "likelihoods", "predictive", "parameters", "hints"],
    ["recalibrated"],
    ["execution"],
    ["data", "datasets", "metrics", "scorers"],
    ["structures.mode_map"],
    ["structures.full_tensor"],
    ["explain", "baselines"],
    ["io"],
    ["report"],
    ["plan", "structures"],
    ["calibrating", "streaming", "saving"],
    ["estimator"],
    ["regressor", "classifier"],
    ["loading"],
    ["testing"],
    [""],  # btnkm itself
    ["cli"],
    ["__main__"],
]
#: Rooms of one layer that may import each other; modules of theirs do so in no circle either.
SIDEWAYS = {frozenset({"plan", "structures"})}
#: Packages from elsewhere that a room may use; rooms that are not here may use any.
OUTSIDE = {
    "core": {"numpy", "scipy", "array_api_compat", "torch", "triton"},
    "bases": {"numpy", "scipy", "array_api_compat", "sklearn.base", "torch", "triton"},
    "execution": {
        "numpy",
        "array_api_compat",
        "cloudpickle",
        "concurrent",
        "distributed",
        "joblib",
        "multiprocessing",
        "torch",
        "threadpoolctl",
    },
}
#: What a room may import of another; bases need only how arrays and formulas are handled.
NARROW = {"bases": {"core.arrays", "core.formula", "core.triton_kernels"}}
#: Underscored names that their owners document: named tuples, IPython, os.
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_repr_html_", "_repr_mimebundle_", "_exit"}
#: Those of other packages, which have no public name for it.
PUBLIC |= {"_flags", "_meta", "_meta_nonempty", "_actions", "_SubParsersAction", "_fill_text"}


class Module(NamedTuple):
    """One source file; ``name`` is without the package's, "" of the package itself."""

    name: str
    is_package: bool
    tree: ast.Module

    @property
    def package(self):
        """What relative imports start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


def parsed(name, source, is_package=False):
    return Module(name, is_package, ast.parse(source))


@cache
def modules():
    result = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        result[name] = parsed(name, path.read_text(encoding="utf-8"), is_package)
    return result


def imported(module):
    """Yield (package, dotted name) of every import; package is "btnkm" or one from elsewhere."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (split(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (split(f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ["btnkm", *filter(None, module.package.split("."))]
            base = base[: len(base) - node.level + 1] + ([node.module] if node.module else [])
            yield from (split(".".join([*base, alias.name])) for alias in node.names)


def split(name):
    package, _, rest = name.partition(".")
    return ("btnkm", rest) if package == "btnkm" else (package, name)


def of_ours(module, known):
    """Return the modules of the library that a module imports."""
    result = set()
    for package, name in imported(module):
        if package == "btnkm":
            while name not in known:  # a name in a module
                name = name.rpartition(".")[0]
            result.add(name)
    return result - {module.name}


def layer(name):
    """Return the layer of a module, and the entry of LAYERS that it belongs to."""
    entries = [
        (place, entry)
        for place, row in enumerate(LAYERS)
        for entry in row
        if name == entry or (entry and name.startswith(entry + "."))
    ]
    assert entries, f"{name} is in no layer: add it to LAYERS"
    return max(entries, key=lambda pair: len(pair[1]))


def wrong_direction(name, target):
    """Tell whether a module must not import another."""
    (level, room), (other, there) = layer(name), layer(target)
    if room == there:
        return False
    if level == other:
        return frozenset({room, there}) not in SIDEWAYS
    if room in NARROW and there == "core":
        return target not in NARROW[room]
    return other > level


@pytest.mark.parametrize("name", modules())
def test_imports_run_one_way(name):
    module = modules()[name]
    assert [t for t in sorted(of_ours(module, modules())) if wrong_direction(name, t)] == []
    allowed = OUTSIDE.get(name.split(".")[0])
    if allowed is not None:
        others = [
            other
            for package, other in imported(module)
            if package != "btnkm" and package not in sys.stdlib_module_names
        ]
        assert [
            o for o in others if not any(o == a or o.startswith(a + ".") for a in allowed)
        ] == []


def cycles(graph):
    """Return the strongly connected components of more than one module."""

    def reached(start, edges):
        seen, left = set(), [start]
        while left:
            for other in edges.get(left.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    left.append(other)
        return seen

    backwards = {}
    for name, targets in graph.items():
        for target in targets:
            backwards.setdefault(target, set()).add(name)
    actual = {frozenset(reached(name, graph) & reached(name, backwards)) for name in graph}
    return sorted(sorted(part) for part in actual if len(part) > 1)


def test_no_modules_import_each_other_in_a_circle():
    graph = {name: set(of_ours(module, modules())) for name, module in modules().items()}
    assert cycles(graph) == []


def private_reads(module):
    """Return underscored names of other objects that a module reads and does not define itself."""
    defined, read = set(), set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            ours = node.level or (node.module or "").split(".")[0] == "btnkm"
            read |= {alias.name for alias in node.names if ours}
        elif isinstance(node, ast.Attribute):
            mine = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            called = isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
            if mine and isinstance(node.ctx, ast.Store):
                defined.add(node.attr)
            if not mine and not (called and node.value.func.id == "super"):
                read.add(node.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            by_name = node.func.id in ("getattr", "hasattr", "setattr", "delattr")
            if by_name and isinstance(node.args[1], ast.Constant):
                mine = isinstance(node.args[0], ast.Name) and node.args[0].id in ("self", "cls")
                read |= {node.args[1].value} if not mine else set()
    hidden = {name for name in read if name.startswith("_") and not name.startswith("__")}
    return sorted(hidden - defined - PUBLIC)


@pytest.mark.parametrize("name", list(modules()))
def test_no_module_reads_what_is_private_to_another(name):
    assert private_reads(modules()[name]) == []


def long_functions(module):
    """Return the functions of more than LONGEST lines, their docstrings aside."""
    result = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) is not None and len(node.body) > 1
            first = node.body[1] if documented else node.body[0]
            if node.end_lineno - first.lineno + 1 > LONGEST:
                result.append(f"{module.name}.{node.name}")
    return result


def benchmarks():
    for path in sorted(BENCHMARKS.rglob("*.py")):
        name = path.relative_to(BENCHMARKS.parent).as_posix()
        yield parsed(name, path.read_text(encoding="utf-8"))


def test_functions_fit_on_a_screen():
    every = [*modules().values(), *benchmarks()]
    assert {"benchmarks/runs/runner.py"} <= {module.name for module in every}
    assert {name for module in every for name in long_functions(module)} == set()


def test_every_layer_has_modules():
    entries = {layer(name)[1] for name in modules()}
    assert {"core", "bases", "data", "execution", "explain", "io", "report", "cli"} <= entries


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        ("from ..regressor import BTNRegressor", "core.cp", ("btnkm", "regressor.BTNRegressor")),
        ("from .. import checks", "bases.base", ("btnkm", "checks")),
        ("def f():\n    from . import cp", "core.tt", ("btnkm", "core.cp")),
        ("from .. import explain", "cli.fit", ("btnkm", "explain")),
        ("from . import bases", "regressor", ("btnkm", "bases")),
        ("import pandas as pd", "core.cp", ("pandas", "pandas")),
    ],
)
def test_the_reader_of_imports_resolves_relative_names(line, name, expected):
    assert list(imported(parsed(name, line))) == [expected]


def test_the_checks_see_what_they_look_for():
    assert wrong_direction("core.cp", "bases.fourier")
    assert wrong_direction("bases.fourier", "core.state")
    assert wrong_direction("explain.effects", "report.page")
    assert wrong_direction("io.models", "report.page")
    assert wrong_direction("regressor", "classifier")
    assert wrong_direction("io.portable", "estimator")
    assert wrong_direction("report.page", "")
    assert not wrong_direction("report.page", "explain.fitted")
    assert not wrong_direction("cli.fit", "")
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    source = "x = model._threshold\nself._own = 1\ny = other._own\nz = row._replace(a=1)"
    assert private_reads(parsed("cli.fit", source)) == ["_threshold"]
    assert private_reads(parsed("cli.fit", 'getattr(model, "_threshold", None)')) == ["_threshold"]
    assert private_reads(parsed("cli.fit", 'getattr(self, "_threshold", None)')) == []
    long = "def f():\n" + "    pass\n" * (LONGEST + 1)
    assert long_functions(parsed("a", long)) == ["a.f"]
    assert long_functions(parsed("a", long.replace("pass", '"""Do."""', 1))) == []
