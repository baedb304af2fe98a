"""The experiments of the paper's section 4: which runs each of them is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.runs.experiment import Cell

from .methods import CLASS_DATASETS, METHODS

SYNTHETIC = "synthetic"  # what cells of a known tensor have for a data set
N_SPLITS = 10
#: Methods that have few splits of the larger sets, for which the paper prints no figure of theirs.
SLOW, FEW_SPLITS = ("btn-signs", "gp-ard", "spbtn", "literal"), 3
SEEDS_A_SPLIT = 10  # of the synthetic experiment, which has 100
SETS = ("airfoil", "concrete", "energy-paper")
ALL_SETS = ("yacht", "energy-paper", "concrete", "airfoil", "spambase", "adult-96")
NOISES = (1e-3, 1e-2, 1e-1)
RANKS = (10, 25, 50)
RANK, FUNCTIONS = 25, 20  # where the other one is varied
MANY_FUNCTIONS = (20, 50)
PRIORS = ("on", "off")


class Experiment(NamedTuple):
    """A table or figure: what it shows, and its runs on so many splits."""

    title: str
    cells: Callable[[int], Iterator[Cell]]


def config_of(rank: int, functions: int, prior: str = "on") -> dict[str, Any]:
    """Return the configuration of ``btn`` from a given rank and number of functions on."""
    config: dict[str, Any] = {"random_state": 0, "initial_rank": rank, "n_basis": functions}
    config["max_rank"] = max(RANKS)
    return config if prior == "on" else config | {"basis_prior": "off"}


def literal_config_of(rank: int) -> dict[str, Any]:
    """Return the configuration of the paper's equations from a given rank on."""
    return {"n_basis": FUNCTIONS, "max_rank": rank, "random_state": 0}


def synthetic_config_of(sigma: float) -> dict[str, Any]:
    """Return the configuration of the recovery of a known tensor."""
    return {"sigma": sigma, "n_init": 4, "noise_rate": 1e-14}


def methods_of(dataset: str) -> tuple[str, ...]:
    """Return the methods of Table 4 that a data set has: an exact GP has no room for Adult."""
    return tuple(
        method
        for method in METHODS
        if not (method == "btn-signs" and dataset not in CLASS_DATASETS)
        and not (method.startswith("gp") and dataset == "adult-96")
    )


def _figure_3(n_splits: int) -> Iterator[Cell]:
    for sigma in NOISES:
        for seed in range(SEEDS_A_SPLIT * n_splits):
            yield Cell(SYNTHETIC, seed, "btn", synthetic_config_of(sigma))


def _figure_4(n_splits: int) -> Iterator[Cell]:
    for dataset in SETS:
        for rank in RANKS:
            yield Cell(dataset, 0, "btn", config_of(rank, FUNCTIONS))
            yield Cell(dataset, 0, "literal", literal_config_of(rank))


def _ranks(n_splits: int) -> Iterator[Cell]:
    for dataset in SETS:
        for rank in RANKS:
            for split in range(n_splits):
                yield Cell(dataset, split, "btn", config_of(rank, FUNCTIONS))


def _functions(n_splits: int) -> Iterator[Cell]:
    for dataset in SETS:
        for functions in MANY_FUNCTIONS:
            for prior in PRIORS:
                for split in range(n_splits):
                    yield Cell(dataset, split, "btn", config_of(RANK, functions, prior))


def _table_4(n_splits: int) -> Iterator[Cell]:
    for dataset in ALL_SETS:
        for method in methods_of(dataset):
            slow = dataset in CLASS_DATASETS and method in SLOW
            for split in range(min(n_splits, FEW_SPLITS) if slow else n_splits):
                yield Cell(dataset, split, method, METHODS[method].config(dataset))


EXPERIMENTS = {
    "fig3": Experiment("A known tensor recovered", _figure_3),
    "fig4": Experiment("Effective rank and ELBO during a fit", _figure_4),
    "table1": Experiment("Error by initial rank", _ranks),
    "table2": Experiment("Effective rank by initial rank", _ranks),
    "fig5": Experiment("Effective number of functions, with and without λ_M", _functions),
    "table3": Experiment("Error by number of functions, with and without λ_M", _functions),
    "table4": Experiment("Against other methods", _table_4),
}


def cells_of(
    names: Sequence[str],
    n_splits: int = N_SPLITS,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
) -> list[Cell]:
    """Return the runs of some experiments, each once, of some data sets and methods only."""
    cells: dict[Any, Cell] = {}
    for name in names:
        for cell in EXPERIMENTS[name].cells(n_splits):
            if datasets is not None and cell.dataset not in datasets:
                continue
            if methods is not None and cell.method not in methods:
                continue
            cells.setdefault(cell.key, cell)
    return list(cells.values())
