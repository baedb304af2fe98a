"""The CP network: f(x) = sum_r prod_d z_r^(d)(x).

Moments of several modes are products, component by component and pair by pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from array_api_compat import is_numpy_array

from . import layout, rows
from .gamma import Gamma
from .network import Family, Footprint, Network, Take, rough
from .rows import Moments

if TYPE_CHECKING:
    from .state import State

Array = np.ndarray
_SCRATCH = rows.Scratch()


def _free(modes: Sequence[Any]) -> int:
    """Return the first mode without anchor, at one end: all, the amplitudes, or the outputs."""
    return [mode.anchored for mode in modes].index(False)


@dataclass(frozen=True)
class CP(Network):
    """Sum of products."""

    joint_steps: ClassVar[bool] = True
    # whether every mode has its own rank precisions, as where components are anchored; otherwise
    # all share one vector (R,)
    own: bool = False

    def begin(
        self,
        modes: Sequence[Any],
        grams: Sequence[Array],
        rank: Any,
        schedule: Any,
        rng: np.random.Generator,
        output: int | None,
    ) -> tuple[tuple[Any, ...], tuple[Gamma, ...]]:
        """Return the constant 1 plus a perturbation in every mode of every component."""
        rank = int(rank)
        anchored = any(mode.anchored for mode in modes)
        if anchored:
            size, scale = np.sqrt(schedule.anchored_power / len(modes)), 1.0
        else:
            size = np.sqrt(schedule.initial_power ** (1.0 / len(modes)) - 1.0)
            scale = rank ** (-1.0 / len(modes))
        factors = []
        for d, (mode, gram) in enumerate(zip(modes, grams, strict=True)):
            m = len(mode.keep)
            if d == output:
                factors.append(mode.point(rng.standard_normal((m, rank)) * scale / np.sqrt(rank)))
                continue
            if anchored and not mode.anchored:  # the amplitudes: of either sign, f of size one
                factors.append(mode.point(rng.choice([-1.0, 1.0], (m, rank)) / np.sqrt(rank)))
                continue
            w = rough(mode, gram, rank, schedule, rng)
            factors.append(mode.point((mode.constant[:, None] + size * w) * scale))
        held = [1.0]
        if self.own:
            held = [schedule.anchored_precision if mode.anchored else 1.0 for mode in modes]
        return tuple(factors), tuple(Gamma(np.full(rank, h), np.ones(rank)) for h in held)

    def ranks(self, rank: Any, modes: Sequence[Any]) -> int:
        """Return the number of components."""
        return int(rank)

    def footprint(self, rank: Any, n_modes: int, warm_rank: int = 0) -> Footprint:
        """Return R means and P second moments for each product; one is made of two."""
        wide = max(rank, warm_rank)
        kept, passing = (r * (r + 1) // 2 + r for r in (rank, wide))
        return Footprint(kept, 5 * passing, kept, [rank] * n_modes, wide)

    def places(self, smaller: layout.Layout, larger: layout.Layout) -> Array:
        """Return the first components."""
        return np.arange(smaller.n_columns)

    def zero_columns(
        self, smaller: layout.Layout, larger: layout.Layout, d: int, modes: Sequence[Any]
    ) -> Array:
        """Return all that are new, in a mode without anchor."""
        first = smaller.n_columns if d == _free(modes) else larger.n_columns
        return np.arange(first, larger.n_columns)

    def first_mode(self, state: State) -> int | None:
        """Return the mode without anchor, unless all sweeps begin there anyhow."""
        return _free(state.modes) or None

    def extend(self, before: Moments, step: Moments, take: Take, to_the_right: bool) -> Moments:
        """Return the product."""
        product = rows.multiply(before, step, step if is_numpy_array(step.mean) else None)
        assert product is not None
        return product

    def join(self, left: Moments | None, right: Moments | None) -> Moments | None:
        """Return the product."""
        if left is None or right is None or not is_numpy_array(left.mean):
            return rows.multiply(left, right)
        n, columns = left.mean.shape
        second = None
        if left.second is not None:
            second = _SCRATCH.array("second", n, left.second.shape[1])
        return rows.multiply(left, right, Moments(_SCRATCH.array("mean", n, columns), second, None))

    def product_layout(self, last: layout.Layout) -> layout.Layout:
        """Return the components, yet to be summed."""
        return last

    def rescale(self, product: Moments) -> Moments:
        """Return the moments at a size far from the limits of a double."""
        return rows.rescale(product)

    def sides(self, state: State, d: int) -> list[tuple[int, Any]]:
        """Return the one vector of each mode."""
        return [(d if self.own else 0, slice(None))]

    def users(self, state: State, vector: int) -> Any:
        """Return all modes, or the one whose own they are."""
        return [vector] if self.own else range(len(state.modes))

    def families(self, state: State, d: int) -> list[Family]:
        """Return the components; in an anchored mode none can be zero."""
        if state.modes[d].anchored:
            return []
        each = np.arange(state.n_components)[:, None]
        modes = range(len(state.modes))
        return [
            Family(
                dict.fromkeys(modes, each),
                dict.fromkeys(modes, 0),
                dict.fromkeys(range(len(state.rank)), each),
            )
        ]

    def without(self, state: State, family: Family, kept: Array) -> dict[int, tuple[Array, Any]]:
        """Return the components kept, in every mode."""
        return dict.fromkeys(family.columns, (kept, layout.components(len(kept))))

    def rebalance(self, state: State, priors: Any) -> tuple[State, list[Array] | None]:
        """Move each component's scale between modes to where the ELBO is highest.

        Scaling w_r^(d) by c_d with prod_d c_d = 1 changes the ELBO by
        sum_d M_d log c_d - (c_d^2 - 1) q_d / 2, q_d = E[lambda_r] sum_m E[lambda_m] E[w_mr^2]. At
        the maximum c_d^2 q_d = M_d + nu, with one nu per component that Newton's method finds.
        """
        energy = np.array(
            [
                (b.mean @ f.second) * state.precisions(d).mean
                for d, (b, f) in enumerate(zip(state.basis, state.factors, strict=True))
            ]
        )
        energy = np.maximum(energy, np.finfo(float).tiny)
        sizes = np.array([[float(len(mode.keep))] for mode in state.modes])
        excess = sizes - sizes.min()
        target = np.sum(np.log(energy), axis=0)
        u = target / len(sizes)  # log(nu + min M_d)
        for _ in range(20):
            terms = excess + np.exp(u)
            step = (np.log(terms).sum(axis=0) - target) / (np.exp(u) / terms).sum(axis=0)
            u = u - step
            if np.abs(step).max() < 1e-9:
                break
        log_scale = 0.5 * (np.log(excess + np.exp(u)) - np.log(energy))
        log_scale -= log_scale.mean(axis=0)
        scale = np.exp(log_scale)
        gain = np.sum(sizes * log_scale - 0.5 * (scale**2 - 1.0) * energy, axis=0)
        scale = np.where(gain > 0, scale, 1.0)  # also where Newton's method did not end
        factors = tuple(f.scale(c) for f, c in zip(state.factors, scale, strict=True))
        return replace(state, factors=factors), list(scale)

    def rank(self, state: State) -> int:
        """Return the number of components."""
        return state.n_components

    def whole(self, parts: Sequence[Array]) -> Array:
        """Return the sum over components, or pairs of them, of the product of all modes."""
        return _summed(reduce(np.multiply, parts))

    def replaced(self, parts: Sequence[Array], others: Sequence[Array]) -> Array:
        """Return the same with one mode's part replaced, for each."""
        ones = np.ones_like(parts[0][:1])
        left = accumulate(parts[:-1], np.multiply, initial=ones)
        right = list(accumulate(parts[:0:-1], np.multiply, initial=ones))[::-1]
        summed = [_summed(o * a * b) for o, a, b in zip(others, left, right, strict=True)]
        return np.array(np.broadcast_arrays(*summed))


def _summed(product: Array) -> Array:
    return np.asarray(product.reshape(len(product), -1).sum(axis=1))
