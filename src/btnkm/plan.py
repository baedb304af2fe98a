"""What "auto" means, and the parameters of an estimator as a fit wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from . import checks
from .bases import BSpline, Gapped, Spiked
from .core.cp import CP
from .core.gamma import Gamma
from .core.likelihoods import StudentT
from .core.schedule import Schedule
from .core.state import Priors
from .core.tt import TT
from .execution import fitting
from .structures.full_tensor import MANY_INPUTS
from .structures.mode_map import Arrangement, arrange, full_arrangement, main_effects

_FUNCTIONS, _N_BASIS = 160, (8, 20)  # "auto": functions of all inputs together, and of each
_FEWEST_FUNCTIONS = 4  # of each where rows are few
# of many rows: one of all functions together for so many, one more of each at most for so many
_ROWS_A_FUNCTION, _ROWS_OF_MANY, _MOST_FUNCTIONS = 16, 250, 40
_FULL_WORK = 4e10  # rows cubed times classes, up to which the full tensor is a candidate
_DEGREE = 1  # of the splines that polynomials are compared with
_ROWS_A_COMPONENT, _LEAST_RANK = 25, 4  # "auto" of the rank that it begins with
# of main effects: polynomials of all inputs together, of each at most and, up to so many inputs,
# at least
_CURVES, _MOST_CURVE = 200, 100
_LEAST_CURVE = ((60, 6), (250, 3), (np.inf, 0))
_CURVE_OF_WIDE = 6  # of the columns of a wider table that need one
# "auto" where components are anchored: few of them die, as an input that is not used costs nothing
_ANCHORED_RANK = 10
_TRAIN_RANK = 6  # "auto" of every bond
_MANY_ROWS = 10_000
_MOST_STARTS = 8
HEAVY_TAILED = StudentT(dof=4.0)  # what noise with heavy tails begins with; it learns its own
SWEEPS_OF_ALL = 20  # "auto", where a sample was fitted before
ANCHOR_LEVELS = 10  # of a column, from which components are anchored


class Auto(NamedTuple):
    """What "auto" means to an estimator (docs/experiments.md says why)."""

    many_inputs: int  # from so many on components are anchored
    rank: int  # of a start without anchors
    rows: int  # of all starts together: n_init, but for its limits, is this over the rows
    least_starts: int
    sweeps: int  # max_iter up to 10,000 rows
    sweeps_of_many: int  # and above
    # the rank may grow to so many times what it begins with, up to 10,000 rows and above
    growth: tuple[int, int] = (4, 2)
    # at least, all inputs together: n_basis is lower if need be, and higher with twice as many
    rows_per_function: int = 0
    warm_rank: int = 0  # of the warm phase without anchors, up to 10,000 rows

    def n_basis(self, n: int, n_inputs: int) -> int:
        """Return how many functions an input has."""
        (least, most), every = _N_BASIS, _FUNCTIONS
        if not self.rows_per_function:
            most = int(np.clip(n // _ROWS_OF_MANY, most, _MOST_FUNCTIONS))
            return int(np.clip(max(every, n // _ROWS_A_FUNCTION) // n_inputs, least, most))
        each = n // (self.rows_per_function * n_inputs)
        few = int(np.clip(each, _FEWEST_FUNCTIONS, np.clip(every // n_inputs, least, most)))
        return max(few, min(each // 2, most))

    def n_curve(self, n: int, n_inputs: int) -> int:
        """Return how many polynomials a main effect has."""
        least = next(k for most, k in _LEAST_CURVE if n_inputs <= most)
        return int(np.clip(min(n, _CURVES) // n_inputs, least, _MOST_CURVE))


def number(machine: Any, name: str, auto: int) -> int:
    """Return a parameter, or what it is if it is "auto"."""
    value = getattr(machine, name)
    return auto if isinstance(value, str) else int(value)


def settings_of(
    machine: Any, target: Any, n: int, arrangement: Arrangement, by_itself: bool = False
) -> fitting.Settings:
    """Return the parameters as the fit of an arrangement wants them.

    ``by_itself`` leaves the rank to "auto".
    """
    basis = None
    if not (isinstance(machine.basis_prior, str) and machine.basis_prior == "off"):
        basis = checks.check_gamma("basis_prior", machine.basis_prior, Gamma(1.0, 1.0))
    priors = Priors(
        checks.check_gamma("noise_prior", machine.noise_prior, Gamma(1e-6, 1e-6)),
        checks.check_gamma("rank_prior", machine.rank_prior, Gamma(1e-5, 1e-6)),
        basis,
    )
    sweeps = machine._auto.sweeps if n <= _MANY_ROWS else machine._auto.sweeps_of_many
    schedule = Schedule(
        warm_sweeps=int(machine.warm_sweeps),
        max_iter=number(machine, "max_iter", sweeps),
        tol=float(machine.tol),
        drop_components=bool(machine.prune),
        drop_functions=bool(machine.prune),
    )
    train, anchored = arrangement.full, arrangement.anchored
    rank: Any = _TRAIN_RANK if train else _ANCHORED_RANK if anchored else machine._auto.rank
    if isinstance(machine.max_rank, list | tuple | np.ndarray) and not by_itself:
        n_bonds = len(arrangement.bases) - (target.n_outputs is None) if train else 0
        rank = checks.check_ranks("max_rank", machine.max_rank, n_bonds)
    elif not by_itself:
        rank = number(machine, "max_rank", rank)
    initial_rank: Any = rank
    if isinstance(machine.max_rank, str) and not train:
        initial_rank = int(np.clip(n // _ROWS_A_COMPONENT, min(_LEAST_RANK, rank), rank))
        rank = rank * machine._auto.growth[n > _MANY_ROWS]
    if not isinstance(machine.initial_rank, str) and not by_itself:
        initial_rank = int(machine.initial_rank)
        if initial_rank > np.max(rank):
            raise ValueError(
                f"initial_rank must be at most max_rank, which is {rank} here, got "
                f"{initial_rank}; raise max_rank, or leave initial_rank out to begin there."
            )
        if train:
            initial_rank = np.minimum(initial_rank, rank).tolist()
    starts = int(np.clip(machine._auto.rows // n, machine._auto.least_starts, _MOST_STARTS))
    if not arrangement.low_rank:  # nothing is random
        starts = 1
    return fitting.Settings(
        priors=priors,
        likelihood=HEAVY_TAILED if arrangement.heavy else target.likelihood,
        schedule=schedule,
        smoothness=float(machine.smoothness),
        max_rank=rank,
        initial_rank=initial_rank,
        network=TT() if train else CP(own=anchored),
        warm_rank=machine._auto.warm_rank if n <= _MANY_ROWS and not train else 0,
        n_init=number(machine, "n_init", starts),
        fewer_starts=isinstance(machine.n_init, str),
        memory_limit=None if isinstance(machine.memory_limit, str) else float(machine.memory_limit),
        n_jobs=machine.n_jobs,
    )


class Layouts:
    """The structures that a table may have: which columns are in the sum and in the tensor."""

    def __init__(self, machine: Any, task: Any, active: list[int], *, stream: bool = False) -> None:
        self.machine, self.task, self.active = machine, task, active
        # what a stream begins with, it keeps: its first rows are too few to choose by
        stream = stream and machine.structure == "auto"
        self.structure = "tensor" if stream else machine.structure
        self.many = len(active) >= machine._auto.many_inputs or any(
            c.levels is not None and c.basis.n_functions_ >= ANCHOR_LEVELS for c in task.columns
        )
        self.effect_inputs = active
        self.curves: set[int] = set()  # columns of a wide table that are not only straight
        self.steps: dict[int, Any] = {}
        self.tensor_inputs = {"tensor": active, "sums+tensor": active}
        self._effects: Any = None

    @property
    def effects(self) -> Any:
        """The main effects of the columns of the sum."""
        if self._effects is None:
            values = self.task.values
            inputs = self.effect_inputs
            n_curve = {j: _CURVE_OF_WIDE if j in self.curves else self.n_curve for j in inputs}
            self._effects = main_effects(
                inputs, self.task.columns, values.codes, values.weights, n_curve, self.steps
            )
        return self._effects

    @property
    def n_curve(self) -> int:
        """How many polynomials a main effect has."""
        return int(self.machine._auto.n_curve(self.task.counted, len(self.active)))

    def change_effects(
        self,
        inputs: Sequence[int] | None = None,
        *,
        curves: Sequence[int] = (),
        steps: Any = None,
    ) -> None:
        """Choose the columns of the sum, and give some of them curves, or steps."""
        self.effect_inputs = self.effect_inputs if inputs is None else list(inputs)
        self.curves |= set(curves)
        self.steps = self.steps | (steps or {})
        self._effects = None

    def with_splines(self, one: Arrangement) -> Arrangement | None:
        """Return a structure with splines instead of polynomials in its tensor, if it has any."""
        by_name = isinstance(self.machine.basis, str) and self.machine.basis == "auto"
        numeric = [j for j in one.inputs if self.task.columns[j].levels is None]
        if not by_name or one.full or not numeric:
            return None
        return self.arranged(one.inputs, one.structure, splines=True, sums_first=one.sums_first)

    def _basis(self, j: int, splines: bool) -> Any:
        """Return the basis of a column in the tensor, fitted."""
        column, values = self.task.columns[j], self.task.values
        if not splines or column.levels is not None:
            return column.basis
        n_basis = column.basis.basis.basis.n_basis  # of what may have spikes and missing values
        basis = Gapped(Spiked(BSpline(n_basis=n_basis, degree=_DEGREE)))
        return basis.fit(values.codes[j], values.weights[j])

    @property
    def may_be_full(self) -> bool:
        """Whether the full tensor is a candidate: few rows, all in memory here.

        A fit that is to be gone on from (warm_start) has none unless it was asked for: it keeps
        rows, not sums over rows.
        """
        task, machine = self.task, self.machine
        goes_on = machine.warm_start and self.structure == "auto"
        few = task.rows.n == task.sample.n <= machine.full_rows
        if self.structure == "auto":
            few = few and (task.target.n_outputs or 1) * task.rows.n**3 <= _FULL_WORK
        return few and not goes_on and (self.structure == "full" or np.ptp(task.sample.y) > 0)

    def full(self) -> Arrangement:
        """Return the full tensor."""
        task, curved = self.task, self.active
        if len(curved) > MANY_INPUTS:
            curved = sorted({*self.tensor_inputs["sums+tensor"], *self.curves})
        return full_arrangement(
            self.active, task.columns, task.values.codes, task.values.weights, curved
        )

    def arranged(
        self,
        order: list[int],
        structure: str,
        *,
        full: bool = False,
        splines: bool = False,
        sums_first: bool = False,
    ) -> Arrangement:
        """Return a structure, with these columns in the tensor if it has one."""
        task, anchored = self.task, self.machine.anchored
        sums, order = "sums" in structure, order if "tensor" in structure else []
        found = arrange(
            order,
            {j: self._basis(j, splines) for j in order},
            task.values.codes,
            task.values.weights,
            full=full,
            anchored=self.many and not full if isinstance(anchored, str) else bool(anchored),
            many_outputs=task.target.n_outputs is not None,
            effects=self.effects if sums else (),
            effect_inputs=self.effect_inputs if sums else (),
            average_missing=self.structure != "tensor",
        )
        return replace(found, splines=splines, sums_first=sums_first)
