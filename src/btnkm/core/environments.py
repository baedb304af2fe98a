"""Products of the modes left and right of each mode, for one block of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from array_api_compat import is_numpy_array

from .cp import CP
from .network import RESCALE_EVERY, Network
from .rows import Moments, Scratch, expand

Array = Any
# of a mode, in arrays that may be those of the second argument
MomentsOf = Callable[[int, Moments | Scratch | None], Moments | None]


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

    def __init__(self, n_modes: int, *, stride: int, network: Network | None = None) -> None:
        self.n_modes = n_modes
        self.stride = stride
        self.network = CP() if network is None else network
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
