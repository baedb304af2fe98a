"""The plan of a fit: its parameters, with what "auto" means to a table of some size.

What needs fits of some of the rows is decided in ``structures``: the structures to compare
(``candidates``) and their weights (``search``), the inputs of the sum and of the tensor
(``screening``), the order and the cores of a tensor train (``candidates``, ``tt_order``), and
whether noise has heavy tails or varies (``search``). The basis of a column follows from its type
(``data.columns``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from . import checks
from .core.ascent import FULL
from .core.cp import CP
from .core.likelihoods import Likelihood, StudentT, Varying
from .core.network import Network
from .core.schedule import Schedule
from .core.state import Priors
from .core.tt import TT
from .execution.restarts import RestartSettings
from .parameters import Solver, TensorTrain, priors_of, solver_of, train_of
from .structures.mode_map import ModeMap
from .structures.stacking import MOST_ROWS

# "auto" of n_basis: functions of all inputs together, and least and most of each input
_FUNCTIONS, _N_BASIS = 160, (8, 20)
_FEWEST_FUNCTIONS = 4  # of each input where rows are few
# with many rows: one function of all inputs together for so many rows, and one more of each input
# at most for so many
_ROWS_A_FUNCTION, _ROWS_OF_MANY, _MOST_FUNCTIONS = 16, 250, 40
_ROWS_A_COMPONENT, _LEAST_RANK = 25, 4  # "auto" of the initial rank
# of main effects: polynomials of all inputs together, most of each and, up to so many inputs, least
_CURVES, _MOST_CURVE = 200, 100
_LEAST_CURVE = ((60, 6), (250, 3), (np.inf, 0))
# of the log precision of the noise: polynomials of an input, up to so many inputs
_NOISE_CURVE, _MOST_NOISE_CURVES = 4, 60
_ANCHOR_CATEGORIES = 10  # of a column, from which on components are anchored
# "auto" where components are anchored: few of them die, as an unused input costs nothing
_ANCHORED_RANK = 10
_TRAIN_RANK = 6  # "auto" of every bond
_MANY_ROWS = 10_000
_MOST_RESTARTS = 8
FEWEST_RESTARTS = 2  # of tensors of low rank with any weight, if there may be so many
_SWEEPS_TO_RESUME = 20  # "auto" where restarts continue from posteriors
# at most, of a short fit, and fewest in its exact phase, which has fewer with more than MOST_ROWS
_WARM_SWEEPS_TO_TRY, _FEWEST_TO_TRY = 10, 12
_FEWEST_WARM_SWEEPS = 5  # of a warm phase with extra components
# annealing sweeps; without them most interactions of anchored components are lost
# (docs/experiments.md)
_ANCHORED_ANNEALING, _FEW_ROWS_ANNEALING = 10, 12
_FEW_ROWS = 4.0  # per basis function, all inputs together, below which there is annealing
HEAVY_TAILED = StudentT(dof=4.0)  # initial noise with heavy tails; its dof are learned


class Comparing(NamedTuple):
    """How thoroughly structures are compared by rows held out."""

    enough_rows: int = 200  # to hold out, if necessary in several folds
    sweeps: int = 25  # at most, of the exact phase of a fit to the other rows
    variants: bool = True  # whether the best candidates are tried with splines and heavy tails


class Defaults(NamedTuple):
    """What "auto" means to an estimator (docs/experiments.md says why)."""

    many_inputs: int  # from which on components are anchored
    rank: int  # of a restart without anchors
    rows: int  # of all restarts together: n_init, within limits, is this over the rows
    least_restarts: int
    sweeps: int  # max_iter up to 10,000 rows
    sweeps_of_many: int  # and above
    # how many times the initial rank the rank may become, up to 10,000 rows and above
    growth: tuple[int, int] = (4, 2)
    # least, all inputs together: n_basis is lower if need be, and higher with twice as many
    rows_per_function: int = 0
    warm_rank: int = 0  # of the warm phase without anchors, up to 10,000 rows
    new_components: int = 6  # at most, of a posterior that continues with another batch
    comparing: Comparing = Comparing()

    def n_basis(self, n: int, n_inputs: int) -> int:
        """Return the number of functions of an input in the tensor."""
        (least, most), every = _N_BASIS, _FUNCTIONS
        if not self.rows_per_function:
            most = int(np.clip(n // _ROWS_OF_MANY, most, _MOST_FUNCTIONS))
            return int(np.clip(max(every, n // _ROWS_A_FUNCTION) // n_inputs, least, most))
        each = n // (self.rows_per_function * n_inputs)
        few = int(np.clip(each, _FEWEST_FUNCTIONS, np.clip(every // n_inputs, least, most)))
        return max(few, min(each // 2, most))

    def n_curve(self, n: int, n_inputs: int) -> int:
        """Return the number of polynomials of a main effect."""
        least = next(k for most, k in _LEAST_CURVE if n_inputs <= most)
        return int(np.clip(min(n, _CURVES) // n_inputs, least, _MOST_CURVE))

    def n_init(self, n: int) -> int:
        """Return the number of restarts."""
        return int(np.clip(self.rows // n, self.least_restarts, _MOST_RESTARTS))


@dataclass(frozen=True)
class FitPlan:
    """What a fit does: the parameters of an estimator, checked, for a table of n rows.

    What depends on a structure, or on the rows of a single fit (a fold has fewer than the table),
    is resolved by ``settings``. Estimators themselves read ``likelihood`` (and ``class_weight``) to
    make the target, ``basis`` to read the table, ``random_state`` for the seeds of a task, and
    what says whether a fit may continue from another (``warm_start``, ``structure``).

    None stands for what only a single fit can resolve.
    """

    defaults: Defaults
    target: Any  # a structures.task.Target
    n: int  # rows of the table, a row of weight k counted k times
    structure: str  # "auto" where structures are compared
    train: TensorTrain | None  # None for a CP tensor
    basis: Any  # as it was given
    n_basis: int  # most smooth functions of an input in the tensor
    max_rank: Any  # a number, or one for each bond; None where it depends on the structure
    n_init: int  # restarts of a structure with a tensor of low rank
    n_init_given: bool  # otherwise there may be fewer restarts
    max_iter: int
    max_iter_to_resume: int  # of a fit that continues from posteriors
    tol: float
    core_priors: Priors
    smoothness: float
    solver: Solver
    memory_limit: float | None  # in GiB; None for the usual limit where the rows are
    n_jobs: int | None
    verbose: int
    runs_on: bool  # whether straight lines run on beyond the training range
    may_resume: bool  # whether a later fit continues from this one, and needs sums over rows
    # receives the entry of each sweep in ``history_``, and may stop the fit
    report: Callable[[dict[str, Any]], bool | None] | None

    @classmethod
    def of(
        cls,
        estimator: Any,
        defaults: Defaults,
        target: Any,
        n: int,
        n_inputs: int,
        *,
        stream: bool = False,
    ) -> FitPlan:
        """Return the plan of an estimator for a table; ``stream`` is that of ``partial_fit``."""
        # a stream keeps the structure of its first rows, which are too few to choose by
        structure = estimator.structure
        structure = "tensor" if stream and structure == "auto" else structure
        priors, max_rank, limit = priors_of(estimator), estimator.max_rank, estimator.memory_limit
        sweeps = defaults.sweeps_of_many if n > _MANY_ROWS else defaults.sweeps
        return cls(
            defaults=defaults,
            target=target,
            n=n,
            structure=structure,
            train=train_of(estimator.network),
            basis=estimator.basis,
            n_basis=_given(estimator.n_basis, defaults.n_basis(n, n_inputs)),
            max_rank=None if isinstance(max_rank, str) else max_rank,
            n_init=_given(estimator.n_init, defaults.n_init(n)),
            n_init_given=not isinstance(estimator.n_init, str),
            max_iter=_given(estimator.max_iter, sweeps),
            max_iter_to_resume=_given(estimator.max_iter, _SWEEPS_TO_RESUME),
            tol=float(estimator.tol),
            core_priors=Priors(priors.noise, priors.rank, priors.learned_basis),
            smoothness=float(priors.smoothness),
            solver=solver_of(estimator),
            memory_limit=None if isinstance(limit, str) else float(limit),
            n_jobs=estimator.n_jobs,
            verbose=int(estimator.verbose),
            runs_on=estimator.extrapolate == "linear",
            may_resume=bool(estimator.warm_start),
            report=estimator.callback,
        )

    def n_noise_curve(self, n_active: int) -> int:
        """Return the number of polynomials of an input that the noise may vary with."""
        return _NOISE_CURVE if n_active <= _MOST_NOISE_CURVES else 0

    def n_curve(self, n_active: int) -> int:
        """Return the number of polynomials of a main effect, given inputs that vary."""
        return self.defaults.n_curve(self.n, n_active)

    @property
    def default_basis(self) -> bool:
        """Whether the bases of all columns are those of "auto"."""
        return isinstance(self.basis, str) and self.basis == "auto"

    @property
    def may_be_anchored(self) -> bool:
        """Whether components are anchored in a table with many inputs or categories."""
        return isinstance(self.solver.anchored, str) or bool(self.solver.anchored)

    def anchored(self, columns: Sequence[Any], n_active: int, *, full_cores: bool = False) -> bool:
        """Return whether components are anchored, given the number of inputs that vary.

        With "auto" they are, without full cores, where there are so many inputs, or categories
        of a column.
        """
        if not isinstance(self.solver.anchored, str):
            return bool(self.solver.anchored)
        return not full_cores and (
            n_active >= self.defaults.many_inputs
            or any(
                c.categories is not None and c.basis.n_functions_ >= _ANCHOR_CATEGORIES
                for c in columns
            )
        )

    @property
    def lists_ranks(self) -> bool:
        """Whether every bond of a tensor train has a rank of its own."""
        return isinstance(self.max_rank, list | tuple | np.ndarray)

    def restarts(self, mode_map: ModeMap) -> int:
        """Return the number of restarts of a structure; without a tensor nothing is random."""
        return self.n_init if self.n_init_given or mode_map.low_rank else 1

    def fewer_restarts(self, candidates: Sequence[Any], n_init: int) -> int:
        """Return how many restarts "auto" means where the rank of a tensor is about to grow.

        Each then takes several times as long, and larger tensors differ less. ``candidates`` have
        posteriors of short fits (``structures.search.Candidate``).
        """
        tensors = [
            candidate
            for candidate in candidates
            if candidate.mode_map.low_rank and candidate.weight > 0
        ]
        for candidate in tensors:
            initial_rank, max_rank = self.ranks(candidate.mode_map, self.n)
            full = [at_full_rank(state, initial_rank) for state in candidate.states]
            if full and all(full) and np.any(np.greater(max_rank, initial_rank)):
                return min(n_init, max(len(tensors), FEWEST_RESTARTS))
        return n_init

    def memory(self, rows: Any) -> float:
        """Return the memory limit of a fit, in GiB."""
        return float(rows.usual_memory if self.memory_limit is None else self.memory_limit)

    def settings(
        self, mode_map: ModeMap, rows: Any, restarts: int, memory_limit: float | None = None
    ) -> RestartSettings:
        """Return what a fit of a structure to all rows needs, with so many restarts.

        Less than the memory limit may be left.
        """
        return self._settings(
            mode_map,
            rows,
            self.n,
            ranks=self.ranks(mode_map, self.n),
            n_init=restarts,
            warm_sweeps=int(self.solver.warm_sweeps),
            max_iter=self.max_iter,
            memory_limit=memory_limit,
        )

    def settings_to_resume(self, settings: RestartSettings, count: int) -> RestartSettings:
        """Return the settings of a fit that continues from so many posteriors."""
        schedule = replace(
            settings.schedule,
            warm_sweeps=0,
            annealing_sweeps=0,
            max_iter=self.max_iter_to_resume,
        )
        return replace(settings, n_init=count, may_reduce_restarts=False, schedule=schedule)

    def settings_to_try(
        self,
        mode_map: ModeMap,
        rows: Any,
        n: int,
        restarts: int,
        *,
        default_rank: bool = False,
    ) -> RestartSettings:
        """Return the settings of a short fit of n rows (by weight), with so many restarts at most.

        It has no more restarts or sweeps than the final fit, and its rank does not grow.
        ``default_rank`` ignores the ranks that were given.
        """
        most = self.defaults.comparing.sweeps
        sweeps = min(most, max(_FEWEST_TO_TRY, most * MOST_ROWS // max(rows.n, 1)))
        rank, _ = self.ranks(mode_map, n, default_rank=default_rank)
        return self._settings(
            mode_map,
            rows,
            n,
            ranks=(rank, rank),
            n_init=min(restarts, self.restarts(mode_map)),
            warm_sweeps=min(_WARM_SWEEPS_TO_TRY, int(self.solver.warm_sweeps)),
            max_iter=min(sweeps, self.max_iter),
        )

    def ranks(self, mode_map: ModeMap, n: int, *, default_rank: bool = False) -> tuple[Any, Any]:
        """Return the initial and the maximal rank of a structure for n rows."""
        train = mode_map.full_cores
        rank: Any = self.defaults.rank
        rank = _TRAIN_RANK if train else _ANCHORED_RANK if mode_map.anchored else rank
        if self.lists_ranks and not default_rank:
            n_bonds = len(mode_map.bases) - (self.target.n_outputs is None) if train else 0
            rank = checks.check_ranks("max_rank", self.max_rank, n_bonds)
        elif self.max_rank is not None and not default_rank:
            rank = int(self.max_rank)
        initial_rank: Any = rank
        if self.max_rank is None and not train:
            initial_rank = int(np.clip(n // _ROWS_A_COMPONENT, min(_LEAST_RANK, rank), rank))
            rank = rank * self.defaults.growth[n > _MANY_ROWS]
        given = self.solver.initial_rank
        if not isinstance(given, str) and not default_rank:
            given = int(given)
            if given > np.max(rank):
                raise ValueError(
                    f"Solver(initial_rank=...) must be at most max_rank, which is {rank} here, got "
                    f"{given}; raise max_rank, or leave initial_rank out to begin there."
                )
            initial_rank = np.minimum(given, rank).tolist() if train else given
        return initial_rank, rank

    def _settings(
        self,
        mode_map: ModeMap,
        rows: Any,
        n: int,
        *,
        ranks: tuple[Any, Any],
        n_init: int,
        warm_sweeps: int,
        max_iter: int,
        memory_limit: float | None = None,
    ) -> RestartSettings:
        """Return the settings of a fit, given what differs between a short and the final one."""
        likelihood: Any = HEAVY_TAILED if mode_map.heavy else self.target.likelihood
        if mode_map.noise_effects:
            first = len(mode_map.bases) + len(mode_map.effects)
            likelihood = Varying.over(likelihood, mode_map.noise_effects, first)
        network = TT() if mode_map.full_cores else CP(own=mode_map.anchored)
        worth, warm_rank = likelihood.worth * rows.data().n, 0
        schedule = Schedule(
            warm_sweeps=warm_sweeps,
            max_iter=max_iter,
            tol=self.tol,
            drop_components=bool(self.solver.prune),
            drop_functions=bool(self.solver.prune),
            new_components=self.defaults.new_components,
        )
        # nothing is random without a tensor, but noise that is not held low at first hides curves
        constant = getattr(likelihood, "noise_at_zero", likelihood)
        held = constant.additive and not constant.fixed
        of_sums = replace(schedule, warm_sweeps=warm_sweeps if held else 0)
        if not mode_map.low_rank:  # noise that varies begins where one level of noise has led
            schedule = replace(schedule, warm_sweeps=0) if mode_map.noise_effects else of_sums
        elif warm_sweeps:
            smoothing, annealing = _annealing(mode_map, network, likelihood, worth)
            schedule = replace(schedule, warm_smoothing=smoothing, annealing_sweeps=annealing)
            if warm_sweeps >= _FEWEST_WARM_SWEEPS and n <= _MANY_ROWS:
                warm_rank = self._warm_rank(mode_map, int(worth / schedule.rows_per_component))
        return RestartSettings(
            priors=self.core_priors,
            likelihood=likelihood,
            schedule=schedule,
            schedule_of_sums=of_sums,
            smoothness=self.smoothness,
            network=network,
            initial_rank=ranks[0],
            max_rank=ranks[1],
            warm_rank=warm_rank,
            n_init=n_init,
            may_reduce_restarts=not self.n_init_given,
            memory_limit=self.memory(rows) if memory_limit is None else memory_limit,
            n_jobs=self.n_jobs,
        )

    def _warm_rank(self, mode_map: ModeMap, most: int) -> int:
        """Return the components of a warm phase, at most so many; 0 for no extra ones."""
        many = len(mode_map.bases) > 1 and self.target.n_outputs is None
        if mode_map.full_cores or mode_map.has_anchors or not many:
            return 0
        return min(self.defaults.warm_rank, most)


def at_full_rank(state: Any, initial_rank: Any) -> bool:
    """Return whether nearly all components of a posterior are in use, so that more may help."""
    full = FULL * float(np.sum(initial_rank))
    return bool(state.modes) and float(np.sum(state.network.rank(state))) >= full


def _annealing(
    mode_map: ModeMap, network: Network, likelihood: Likelihood, worth: float
) -> tuple[float, int]:
    """Return the smoothing of the warm phase, and the sweeps of annealing after it.

    ``worth`` is the weight of the rows times what a row is worth to the likelihood.
    """
    if network.annealing_sweeps:
        return network.smoothing, network.annealing_sweeps
    if mode_map.has_anchors:
        return 1.0, _ANCHORED_ANNEALING
    if worth < _FEW_ROWS * mode_map.n_functions:
        # a rough beginning interpolates, and covariances all at once outweigh the data: nothing is
        # found then where there is much to find (docs/experiments.md)
        return likelihood.gentle, _FEW_ROWS_ANNEALING
    return 1.0, 0


def _given(value: Any, otherwise: int) -> int:
    """Return a parameter as an integer, or another number for "auto"."""
    return otherwise if isinstance(value, str) else int(value)
