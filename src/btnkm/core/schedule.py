"""The schedule of one restart, and what is reported after each of its sweeps.

A restart goes through these phases:

warm
    Regularised alternating least squares: covariances are left out and precisions are held. From
    random factors the exact updates collapse to f = 0, because the second moments of a product of
    D modes outweigh the data; from a fitted mean they do not. Most random components lead nowhere,
    so the phase may begin with extra components, which are dropped before it ends.
annealing
    Only where rows are few or modes are anchored: the covariances come in gradually, and the
    precisions are free. All at once they would outweigh the data, and the exact phase would find
    nothing worth keeping.
exact
    Coordinate ascent of the ELBO. Only here is the ELBO recorded. It never falls: updates,
    rebalancing and reductions each raise it or leave it as it is. Where few weights are left in
    the end, redundant components are removed (``trimming``); this may take a few sweeps more than
    ``max_iter``.
newton
    Where the likelihood is bounded (classes, counts): Newton refinement, a few sweeps by the
    likelihood itself with the precisions held. The bound is more curved than the likelihood, so
    that q is too narrow where the bound is loose.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from .batch_stats import BatchStats
from .state import State
from .sweeper import Memory


@dataclass(frozen=True)
class Schedule:
    """How a restart begins, how long its phases last and when it stops."""

    warm_sweeps: int = 10
    # extra components of the warm phase; from its middle on, half of those left are dropped with
    # every mode; needs at least five warm sweeps
    extra: int = 0
    # the warm phase holds the basis precisions at those of the prior to this power: above 1,
    # functions are smoother
    warm_smoothing: float = 1.0
    # in which the fraction of the covariances grows from 0.01 to nearly 1
    annealing_sweeps: int = 0
    # mean square of a random component over that of its constant part; it is divided among the
    # modes, so that a product of 5 modes begins with as much variance as one of 500
    initial_power: float = 300.0
    # anchored modes: mean square of what a random component adds to its anchors, and the rank
    # precision that the warm phase holds
    anchored_power: float = 1.0
    anchored_precision: float = 5.0
    # a tensor train: mean square of a random path of cores over that of its constant part, and the
    # size of the entries off a core's diagonal
    train_power: float = 100.0
    train_mixing: float = 0.3
    # the spread of the random part is that of the prior to this power: above 1, functions are
    # smoother than under the prior
    initial_decay: float = 1.6
    # the exact phase ends after ``max_iter`` sweeps, or when the sweeps of a cycle gained less than
    # ``tol`` per row on average; with 0 it never ends early
    max_iter: int = 80
    tol: float = 1e-4
    # exact sweeps before components and functions may be dropped, and before the first cycle that
    # ends in over-relaxation, until which every sweep may drop; over-relaxation from the beginning
    # finds worse optima (docs/experiments.md)
    first_reduction: int = 1
    plain_sweeps: int = 12
    # first step of over-relaxation, as a multiple of the change of the two sweeps before it
    over_relaxation: float = 4.0
    newton_sweeps: int = 2
    # a component or function may be dropped if its part of the mean square is at most this; the
    # ELBO alone would drop more and predict worse (docs/experiments.md)
    negligible: float = 1e-6
    # redundant components are trimmed where the exact phase leaves at most so many weights
    most_weights: int = 200
    drop_components: bool = True
    drop_functions: bool = True
    # the rank grows if twice what is left is at least so many times the rank of the stage
    least_growth: float = 1.25
    # where a posterior continues with another batch: most components that it gets, least rows of
    # the batch for each of them, and the annealing sweeps in which they come in, as all at once
    # their uncertainty would outweigh the data
    new_components: int = 6
    rows_per_component: int = 20
    new_annealing: int = 10
    # fraction of var(y) that main effects which are fitted first are taken to leave at least
    least_residual: float = 1e-6


@dataclass(frozen=True)
class Progress:
    """The state of a restart after one sweep; the state itself may be dropped to save memory.

    While an over-relaxation is on ``trial``, everything but ``sweep`` and ``seconds`` is as it was
    before it. Newton refinement keeps the ELBO and terms of the last exact sweep.
    """

    sweep: int
    phase: str
    bound: float  # the ELBO
    terms: dict[str, float]
    rank: Any  # the number of components, or of the indices of every bond
    noise_std: float
    seconds: float
    jitter: float
    state: State | None
    trial: bool = False
    converged: bool = False
    stage: int = 0  # how often the rank has grown
    pause: Pause | None = None  # to resume from; None while trimming and refining
    past: BatchStats | None = None  # at the end: the sums of earlier batches, for this state

    @property
    def is_posterior(self) -> bool:
        """Whether the state is a posterior: not before the exact phase."""
        return self.phase in ("exact", "newton")


@dataclass(frozen=True)
class Stage:
    """The sweeps of a restart between two growths of its rank."""

    rank: Any = 0  # that it began with, without extra components
    number: int = 0
    sweeps_before: int = 0


@dataclass(frozen=True)
class OverRelaxation:
    """Where the cycle of over-relaxation stands."""

    factor: float  # of the next step, as a multiple of the change of the two sweeps before it
    origin: State | None = None  # where the change that the next step extrapolates began
    fallback: Progress | None = None  # where a step began that has not raised the ELBO yet
    cycle_bound: float = -inf  # the ELBO at the end of the last cycle


@dataclass(frozen=True)
class Pause:
    """All that a restart needs to resume between two sweeps, in any process."""

    schedule: Schedule  # of this stage
    stage: Stage
    step: Progress  # the last sweep
    memory: Memory  # of the sweeper
    over_relaxation: OverRelaxation
    random: Any = None  # state of the generator that growth draws from
