"""What makes a network: how moments of modes come together, and which precisions weights share.

The engine asks this of a network and knows nothing else of it; cp.py and tt.py answer. Whatever
depends on ranks is told by the factors' layouts, so that a network has no state of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from .gamma import Gamma
from .layout import Layout
from .rows import Moments, Scratch, Terms, moments

if TYPE_CHECKING:
    from .state import State

Array = np.ndarray
# Products over modes are brought back to size one every so many modes, so that hundreds of inputs
# neither overflow nor underflow; a handful of modes cannot leave the range of a double.
RESCALE_EVERY = 16
Take = Callable[[], Moments | None]  # hands out moments whose arrays may be overwritten


class Family(NamedTuple):
    """Groups of weights, each of which may be lost: those of a component, or of a bond's index.

    Attributes
    ----------
    columns : dict from mode to ndarray of shape (G, c)
        The columns of each group, in each of the modes that have some.
    group_set : dict from mode to int
        Which of the groups of the mode's layout these are.
    entries : dict from precision vector to ndarray of shape (G, e)
        The rank precisions that are lost with each group.
    """

    columns: dict[int, Array]
    group_set: dict[int, int]
    entries: dict[int, Array]

    @property
    def size(self) -> int:
        """The number of groups, G."""
        return len(next(iter(self.columns.values())))


class Footprint(NamedTuple):
    """What a network needs of memory, in numbers.

    Attributes
    ----------
    kept : int
        For each row and each environment that is kept.
    passing : int
        For each row of the block that is worked on.
    block : int
        For each row, by which the size of a block is chosen.
    columns : list of int
        Of the weights of each mode, which have a covariance.
    widest : int
        Columns of a mode that are solved for at once, at most.
    """

    kept: int
    passing: int
    block: int
    columns: list[int]
    widest: int


class Network(ABC):
    """CP or TT, as the engine sees it."""

    scratch: ClassVar[Scratch | None] = None  # for moments that are not kept
    # whether an environment has what the outputs ask for in it; else that is multiplied with it
    carries_asks: ClassVar[bool] = False

    joint_steps: ClassVar[bool] = False  # whether joint.py knows its derivatives
    turns: ClassVar[bool] = False  # whether rebalancing changes more than scales
    # of the warm phase, and sweeps of the thaw, whatever the rows; 0 leaves both to them
    smoothing: ClassVar[float] = 1.0
    annealing_sweeps: ClassVar[int] = 0

    @abstractmethod
    def begin(
        self,
        modes: Sequence[Any],
        grams: Sequence[Array],
        rank: Any,
        schedule: Any,
        rng: np.random.Generator,
        output: int | None,
    ) -> tuple[tuple[Any, ...], tuple[Gamma, ...]]:
        """Return random factors for a warm phase, f of size one, and the rank precisions it holds.

        ``grams`` holds each mode's average of phi phi^T over the rows, (M, M), for the kept
        functions. Outputs have no constant in common: what they share says nothing of their
        differences.
        """

    @abstractmethod
    def ranks(self, rank: Any, modes: Sequence[Any]) -> Any:
        """Return a number of components, or of every bond's indices, none more than of use."""

    @abstractmethod
    def footprint(self, rank: Any, n_modes: int, warm_rank: int = 0) -> Footprint:
        """Return what a fit of this rank needs, with a warm phase of more components."""

    @abstractmethod
    def places(self, smaller: Layout, larger: Layout) -> Array:
        """Return where the columns of a mode go when the rank has grown."""

    @abstractmethod
    def silent(self, smaller: Layout, larger: Layout, d: int, modes: Sequence[Any]) -> Array:
        """Return which columns of mode d to have at zero, for those that are new to add nothing."""

    def first_to_speak(self, state: State) -> int | None:
        """Return what to take for the mode solved last, for new columns to be heard of first."""
        return None

    @abstractmethod
    def extend(self, before: Moments, step: Moments, take: Take, to_the_right: bool) -> Moments:
        """Return the moments of some modes and one more, which are this one's to overwrite."""

    @abstractmethod
    def join(self, left: Moments | None, right: Moments | None) -> Moments | None:
        """Return what is around a mode from what is on either side of it.

        It may be in memory of this thread's, to be overwritten by the next answer: in memory of the
        rows', it would have to go out of the caches and come back.
        """

    @abstractmethod
    def product_layout(self, last: Layout) -> Layout:
        """Return the layout of a product over all modes, given that of the last."""

    @abstractmethod
    def rescale(self, product: Moments) -> Moments:
        """Return the moments at a size far from the limits of a double, with exponents."""

    @abstractmethod
    def sides(self, state: State, d: int) -> Sequence[tuple[int, Any]]:
        """Return whose product the precision of mode d's columns is: vectors, and their entries."""

    @abstractmethod
    def users(self, state: State, vector: int) -> Sequence[int]:
        """Return the modes whose columns have precisions of this vector."""

    @abstractmethod
    def families(self, state: State, d: int) -> list[Family]:
        """Return the groups whose loss can be decided in mode d."""

    @abstractmethod
    def without(self, state: State, family: Family, kept: Array) -> dict[int, tuple[Array, Any]]:
        """Return the columns that are left in each mode of a family, and their layout."""

    @abstractmethod
    def rebalance(self, state: State, priors: Any) -> tuple[State, list[Array] | None]:
        """Return the state after a change of scales or axes that leaves f and raises the bound.

        Also returns by what every mode's columns were scaled, None if that is not all.
        """

    @abstractmethod
    def rank(self, state: State) -> Any:
        """Return the rank, or ranks, as they are reported."""

    @abstractmethod
    def whole(self, parts: Sequence[Array]) -> Array:
        """Return f from z of every mode, (n, C), or E[f^2] from E[z z^T], (n, C, C): (n,).

        The number of rows is 1 where all have the same.
        """

    @abstractmethod
    def replaced(self, parts: Sequence[Array], others: Sequence[Array]) -> Array:
        """Return ``whole(parts)`` with mode d's part replaced by its other one, each d: (D, n)."""

    def product(self, terms: list[Terms], features_of: Callable[[int], Any]) -> Moments:
        """Return the moments of all modes together, never holding more than two of them."""
        product = moments(features_of(0), terms[0])
        for d in range(1, len(terms)):
            step = moments(features_of(d), terms[d], self.scratch)
            product = self.extend(product, step, lambda: None, True)
            if (d + 1) % RESCALE_EVERY == 0:
                product = self.rescale(product)
        return product


def rough(mode: Any, gram: Array, count: int, schedule: Any, rng: np.random.Generator) -> Array:
    """Return weights of so many random functions of one mode, of mean square 1: (M, count)."""
    spread = mode.rate_scale ** (0.5 * schedule.initial_decay)
    w = rng.standard_normal((len(mode.keep), count)) * spread[:, None]
    return np.asarray(w / np.sqrt(np.maximum(np.sum(w * (gram @ w), axis=0), 1e-12)))
