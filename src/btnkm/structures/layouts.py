"""The structures that a table may have: which columns are in the sum and which in the tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..bases import BSpline, Spiked, WithMissing
from ..plan import FitPlan
from .mode_map import ModeMap, full_mode_map, main_effects, make_mode_map
from .task import Task

FULL_WORK = 4e10  # rows cubed times classes, up to which the full tensor is a candidate of "auto"
MANY_INPUTS = 60  # from which on the full tensor has curves only where screening found some
_DEGREE = 1  # of the splines that are tried instead of polynomials
_CURVE_OF_WIDE = 6  # polynomials of the columns of a wide table that need a curve


@dataclass(frozen=True)
class Layouts:
    """What screening decides about the columns, and the structures made of them."""

    plan: FitPlan
    task: Task
    active: list[int]  # columns that vary
    effect_inputs: tuple[int, ...]  # columns of the sum
    tensor_inputs: Mapping[str, list[int]]  # columns of the tensor, by structure
    curves: frozenset[int] = frozenset()  # columns of a wide table with more than a straight line
    steps: Mapping[int, Any] = field(default_factory=dict)  # of the main effects, by column

    @classmethod
    def of(cls, plan: FitPlan, task: Task, active: list[int]) -> Layouts:
        """Return the layouts before screening: all columns everywhere."""
        return cls(plan, task, active, tuple(active), {"tensor": active, "sums+tensor": active})

    @property
    def n_curve(self) -> int:
        """Number of polynomials of a main effect."""
        return self.plan.n_curve(len(self.active))

    @cached_property
    def effects(self) -> tuple[Any, ...]:
        """The main effects of the columns of the sum."""
        values, inputs = self.task.values, self.effect_inputs
        n_curve = {j: _CURVE_OF_WIDE if j in self.curves else self.n_curve for j in inputs}
        columns, steps = self.task.columns, self.steps
        given = values.codes, values.weights, n_curve, steps
        return main_effects(inputs, columns, *given, runs_on=self.plan.runs_on)

    @property
    def may_be_full(self) -> bool:
        """Whether the full tensor is a candidate: few rows, all of them in local memory.

        A fit that others continue from (``warm_start``) has none unless it was asked for: it
        keeps rows, not sums over rows.
        """
        task, plan = self.task, self.plan
        few = task.rows.n == task.sample.n <= plan.solver.full_rows
        if plan.structure != "auto":
            return few and (plan.structure == "full" or np.ptp(task.sample.y) > 0)
        few = few and (task.target.n_outputs or 1) * task.rows.n**3 <= FULL_WORK
        return few and not plan.may_resume and np.ptp(task.sample.y) > 0

    def full_tensor(self) -> ModeMap:
        """Return the full tensor."""
        task, plan, curved = self.task, self.plan, self.active
        if len(curved) > MANY_INPUTS:
            curved = sorted({*self.tensor_inputs["sums+tensor"], *self.curves})
        values = task.values
        given = task.columns, values.codes, values.weights, curved
        return full_mode_map(self.active, *given, runs_on=plan.runs_on)

    def arranged(
        self,
        order: Sequence[int],
        structure: str,
        *,
        full_cores: bool = False,
        splines: bool = False,
        sums_first: bool = False,
    ) -> ModeMap:
        """Return a structure; ``order`` lists the columns of its tensor, if it has one."""
        task, plan = self.task, self.plan
        sums, inputs = "sums" in structure, list(order) if "tensor" in structure else []
        mode_map = make_mode_map(
            inputs,
            {j: self._basis(j, splines) for j in inputs},
            task.values.codes,
            task.values.weights,
            full_cores=full_cores,
            anchored=plan.anchored(task.columns, len(self.active), full_cores=full_cores),
            many_outputs=task.target.n_outputs is not None,
            effects=self.effects if sums else (),
            effect_inputs=self.effect_inputs if sums else (),
            average_missing=plan.structure != "tensor",
        )
        return replace(mode_map, splines=splines, sums_first=sums_first)

    @cached_property
    def _noise_effects(self) -> tuple[Any, ...]:
        """The functions that the log precision of the noise may be a sum of."""
        values, count = self.task.values, self.plan.n_noise_curve(len(self.active))
        n_curve = dict.fromkeys(self.active, count)
        return main_effects(self.active, self.task.columns, values.codes, values.weights, n_curve)

    def with_varying_noise(self, mode_map: ModeMap) -> ModeMap:
        """Return a structure whose noise may vary with the inputs."""
        inputs = tuple(self.active)
        return replace(mode_map, noise_effects=self._noise_effects, noise_inputs=inputs)

    def with_splines(self, mode_map: ModeMap) -> ModeMap | None:
        """Return a structure with splines instead of polynomials in its tensor, if it has any."""
        numeric = [j for j in mode_map.inputs if self.task.columns[j].categories is None]
        if not self.plan.default_basis or mode_map.full_cores or not numeric:
            return None
        first = mode_map.sums_first
        other = self.arranged(mode_map.inputs, mode_map.structure, splines=True, sums_first=first)
        return self.with_varying_noise(other) if mode_map.noise_effects else other

    def _basis(self, j: int, splines: bool) -> Any:
        """Return the fitted basis of a column in the tensor."""
        column, values = self.task.columns[j], self.task.values
        if not splines or column.categories is not None:
            return column.basis
        n_basis = column.basis.basis.basis.n_basis  # inside of WithMissing and Spiked
        basis = WithMissing(Spiked(BSpline(n_basis=n_basis, degree=_DEGREE)))
        return basis.fit(values.codes[j], values.weights[j])
