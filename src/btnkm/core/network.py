"""The interface of networks: how moments of modes combine, and which precisions weights share.

This is all that the engine uses of a network; cp.py and tt.py implement it. Whatever depends on
ranks is in the layouts of the factors, so a network has no state of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from array_api_compat import is_numpy_array

from .gamma import Gamma
from .layout import Layout
from .rows import Moments, Scratch, Terms, expand, moments

if TYPE_CHECKING:
    from .state import State

Array = np.ndarray
# Products over modes are rescaled to size one every so many modes, so that hundreds of inputs
# neither overflow nor underflow; a few modes cannot leave the range of a double.
RESCALE_EVERY = 16
Take = Callable[[], Moments | None]  # returns moments whose arrays may be overwritten
# of a mode, in arrays that may be those of the second argument
MomentsOf = Callable[[int, Moments | Scratch | None], Moments | None]


class Family(NamedTuple):
    """Groups of weights that may be dropped: those of a component, or of an index of a bond."""

    # (G, c): the columns of each group, in each of the modes that have some
    columns: dict[int, Array]
    group_set: dict[int, int]  # which of the groups of the mode's layout these are
    entries: dict[int, Array]  # (G, e): the rank precisions that are dropped with each group

    @property
    def size(self) -> int:
        """The number of groups, G."""
        return len(next(iter(self.columns.values())))


class Footprint(NamedTuple):
    """The memory that a network needs, in numbers."""

    kept: int  # for each row and each environment that is kept
    passing: int  # for each row of the block at work
    block: int  # for each row, by which the size of a block is chosen
    columns: list[int]  # of the weights of each mode, which have a covariance
    widest: int  # columns of a mode that are solved for at once, at most


class Network(ABC):
    """CP or TT, as the engine sees it."""

    scratch: ClassVar[Scratch | None] = None  # for moments that are not kept
    # whether environments contain the working responses of the outputs, or are multiplied by them
    carries_responses: ClassVar[bool] = False

    joint_steps: ClassVar[bool] = False  # whether trimming.py knows its derivatives
    turns: ClassVar[bool] = False  # whether rebalancing changes more than scales
    # smoothing of the warm phase, and sweeps of annealing, whatever the rows; with 0 annealing
    # sweeps both depend on the rows
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
        """Return random factors with f of size one, and the rank precisions of the warm phase.

        ``grams`` holds each mode's average of phi phi^T over the rows, (M, M), for the kept
        functions. Outputs have no common constant: it would say nothing about their
        differences.
        """

    @abstractmethod
    def ranks(self, rank: Any, modes: Sequence[Any]) -> Any:
        """Return the number of components, or of the indices of each bond, at most those of use."""

    @abstractmethod
    def footprint(self, rank: Any, n_modes: int, warm_rank: int = 0) -> Footprint:
        """Return the memory of a fit of this rank; its warm phase may have another."""

    @abstractmethod
    def places(self, smaller: Layout, larger: Layout) -> Array:
        """Return the positions of the columns of a mode after the rank has grown."""

    @abstractmethod
    def zero_columns(self, smaller: Layout, larger: Layout, d: int, modes: Sequence[Any]) -> Array:
        """Return the columns of mode d that must be zero for the new ones to add nothing to f."""

    def first_mode(self, state: State) -> int | None:
        """Return the mode to take for the one solved last, so that new columns are solved first."""
        return None

    @abstractmethod
    def extend(self, before: Moments, step: Moments, take: Take, to_the_right: bool) -> Moments:
        """Return the moments of some modes and one more; those of the latter may be overwritten."""

    @abstractmethod
    def join(self, left: Moments | None, right: Moments | None) -> Moments | None:
        """Return the moments around a mode from those on either side of it.

        They may be in scratch memory of this thread, which the next call overwrites: memory of the
        rows would leave the processor's caches and come back.
        """

    @abstractmethod
    def product_layout(self, last: Layout) -> Layout:
        """Return the layout of a product over all modes, given that of the last."""

    @abstractmethod
    def rescale(self, product: Moments) -> Moments:
        """Return the moments at a size far from the limits of a double, with exponents."""

    @abstractmethod
    def sides(self, state: State, d: int) -> Sequence[tuple[int, Any]]:
        """Return the vectors, and entries, whose product is the precision of mode d's columns."""

    @abstractmethod
    def users(self, state: State, vector: int) -> Sequence[int]:
        """Return the modes whose columns have precisions of this vector."""

    @abstractmethod
    def families(self, state: State, d: int) -> list[Family]:
        """Return the groups that can be dropped in mode d."""

    @abstractmethod
    def without(self, state: State, family: Family, kept: Array) -> dict[int, tuple[Array, Any]]:
        """Return the remaining columns of each mode of a family, and their layout."""

    @abstractmethod
    def rebalance(self, state: State, priors: Any) -> tuple[State, list[Array] | None]:
        """Return the state after a change of scales or axes that keeps f and raises the ELBO.

        Also returns the scale of every mode's columns, None if axes have changed as well.
        """

    @abstractmethod
    def rank(self, state: State) -> Any:
        """Return the rank, or the ranks, as reported."""

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
    """Return weights of ``count`` random functions of one mode, of mean square 1: (M, count)."""
    spread = mode.rate_scale ** (0.5 * schedule.initial_decay)
    w = rng.standard_normal((len(mode.keep), count)) * spread[:, None]
    return np.asarray(w / np.sqrt(np.maximum(np.sum(w * (gram @ w), axis=0), 1e-12)))


class Environments:
    """Products of the modes left and right of each mode, for one block of rows.

    Moving from mode to mode extends one side by one mode and reuses the rest, whatever the order of
    the updates. Arrays that are no longer needed are kept and overwritten: allocating new memory
    costs several times as much as a multiplication.

    Parameters
    ----------
    n_modes : int
    stride : int
        1 keeps every product. A larger stride keeps every so many-th product of either side and
        those from there to the current mode, and computes the others twice: the square root of the
        memory for a second evaluation of each mode. 0 keeps nothing and computes every product
        again for every mode.
    network : Network
        Which combines the moments of modes.
    """

    def __init__(self, n_modes: int, *, stride: int, network: Network) -> None:
        self.n_modes = n_modes
        self.stride = stride
        self.network = network
        # where a device has a kernel for it: the moments of a mode times those before, or None
        self.times: Callable[[int, Moments], Moments | None] | None = None
        # products by the number of modes in them, from the first on and from the last on
        self._left: dict[int, Moments | None] = {0: None}
        self._right: dict[int, Moments | None] = {0: None}
        self._free: list[Moments] = []

    def reset(self) -> None:
        """Forget all products: the factors changed in more than one mode."""
        for side in (self._left, self._right):
            self._drop(side, [length for length in side if length])

    def changed(self, d: int) -> None:
        """Forget what depends on mode ``d``."""
        self._drop(self._left, [length for length in self._left if length > d])
        self._drop(self._right, [length for length in self._right if length >= self.n_modes - d])

    def sides(self, d: int, moments_of: MomentsOf) -> tuple[Moments | None, Moments | None]:
        """Return the products over the modes before ``d`` and over those behind it.

        ``moments_of(k, into)`` returns the moments of mode k, in arrays that are the caller's to
        overwrite, or None for the constant 1; those of ``into`` are free for it.
        """
        left = self._reach(self._left, d, moments_of)
        right = self._reach(self._right, self.n_modes - 1 - d, moments_of)
        if not self.stride:
            self.reset()
        return left, right

    def outside(self, d: int, moments_of: MomentsOf) -> Moments | None:
        """Return the product over all modes but ``d``; None if there is no other.

        The result is valid until the next call in this thread, for any rows.
        """
        both = self.network.join(*self.sides(d, moments_of))
        return None if both is None else expand(both)

    def before(self, d: int, moments_of: MomentsOf) -> Moments | None:
        """Return the product over all modes before ``d``; see ``outside``."""
        left = self._reach(self._left, d, moments_of)
        if not self.stride:
            self.reset()
        return None if left is None else expand(left)

    def _reach(
        self, side: dict[int, Moments | None], length: int, moments_of: MomentsOf
    ) -> Moments | None:
        """Return the product of the first modes of a side, from the longest one at hand."""
        to_the_right = side is self._left
        base = length - length % self.stride if self.stride else length
        have = length
        while have not in side:  # the empty product always is
            have -= 1
        for k in range(have, length):
            before, mode = side[k], k if to_the_right else self.n_modes - 1 - k
            if before is not None and self.times is not None:
                product = self.times(mode, before)
                if product is not None:
                    self._keep(side, k, base, product)
                    continue
            room = self._take() if before is None else self.network.scratch or self._take()
            step = moments_of(mode, room)
            if before is None or step is None:
                product = step if before is None else before
            else:
                product = self.network.extend(before, step, self._take, to_the_right)
            self._keep(side, k, base, product)
        if self.stride > 1:
            self._drop(side, [k for k in side if k % self.stride and not base <= k <= length])
        return side[length]

    def _keep(
        self, side: dict[int, Moments | None], k: int, base: int, product: Moments | None
    ) -> None:
        """Keep the product of k + 1 modes, and that of k only if it will be of use."""
        if product is not None and (k + 1) % RESCALE_EVERY == 0:
            product = self.network.rescale(product)
        side[k + 1] = product
        if k and k < base and (not self.stride or k % self.stride):
            self._drop(side, [k])

    def _drop(self, side: dict[int, Moments | None], lengths: list[int]) -> None:
        for length in lengths:
            self._give_back(side.pop(length))

    def _take(self) -> Moments | None:
        return self._free.pop() if self._free else None

    def _give_back(self, product: Moments | None) -> None:
        # other libraries pool their memory themselves, and cannot write to a given array
        if self.stride and product is not None and is_numpy_array(product.mean):
            self._free.append(product)
