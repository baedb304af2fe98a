"""The tensor train: f(x) = z^(1)(x) z^(2)(x) ... z^(D)(x), a product of matrices.

Mode d has a core W^(d) (R_d, M_d, R_{d+1}) with R_1 = R_{D+1} = 1, and z^(d)_ab = w_ab . phi^(d).
Its weights are a matrix (M, C) with a column for each pair (a, b), a outer. Between two cores is a
*bond*, whose R indices have a precision each: w_mab has the precision lambda_m lambda_a lambda_b.

The product left of a mode is a row vector, with means (n, R) and packed second moments (n, P); the
product right of it is a column vector. One more mode is one more matrix product in each row, and
the moments around a mode are L_a R_b and L_p R_q.

A bond may be rotated: a matrix G between two cores and its inverse beside it leave f unchanged. One
G makes the energies of both sides diagonal and equal (as balanced truncation does in control
theory): then every index stands for itself, and the priors show which are redundant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from . import layout, rows
from .arrays import like
from .gamma import Gamma
from .network import Family, Footprint, Network, Take, rough
from .rows import Moments, Scratch

if TYPE_CHECKING:
    from .state import State

Array = np.ndarray
MOST_TURNED = 1e6  # condition number of G above which rounding matters
SCRATCH = Scratch()


@dataclass(frozen=True)
class TT(Network):
    """Product of matrices.

    Modes of very many categories are anchored: z is the identity plus the contribution of a
    category.
    """

    scratch: ClassVar[Scratch | None] = SCRATCH
    carries_responses: ClassVar[bool] = True
    turns: ClassVar[bool] = True
    # its many weights would fit noise, and their covariances all at once outweigh the data
    # (docs/experiments.md)
    smoothing: ClassVar[float] = 1.5
    annealing_sweeps: ClassVar[int] = 20

    def begin(
        self,
        modes: Sequence[Any],
        grams: Sequence[Array],
        rank: Any,
        schedule: Any,
        rng: np.random.Generator,
        output: int | None,
    ) -> tuple[tuple[Any, ...], tuple[Gamma, ...]]:
        """Return the identity times the constant 1 plus a perturbation in every core."""
        n_modes = len(modes)
        ranks = self.ranks(rank, modes)
        sides = list(pairwise([1, *ranks, 1]))
        size = np.sqrt(schedule.train_power ** (1.0 / n_modes) - 1.0)
        scale = np.mean(ranks) ** (-1.0 / n_modes) if ranks else 1.0
        free = sum(not mode.anchored for mode in modes)
        ends = scale ** (n_modes / max(free, 1))  # which have the scale of all
        factors = []
        for d, (mode, gram) in enumerate(zip(modes, grams, strict=True)):
            shape = layout.core(*sides[d])
            left, right = shape.shape
            m = len(mode.keep)
            if d == output:
                mean = rng.standard_normal((m, left)) * scale / np.sqrt(left)
            else:
                same = np.eye(left, right) if min(left, right) > 1 else np.ones((left, right))
                share = np.where(same, 1.0, schedule.train_mixing / np.sqrt(max(left, right)))
                w = rough(mode, gram, left * right, schedule, rng)
                mean = size * share.ravel() * w
                if not mode.anchored:
                    mean = (mode.constant[:, None] * same.ravel() + mean) * ends
            factors.append(mode.point(mean, shape))
        return tuple(factors), tuple(Gamma(np.ones(r), np.ones(r)) for r in ranks)

    def ranks(self, rank: Any, modes: Sequence[Any]) -> list[int]:
        """Return the indices of each bond, at most the dimension of either side."""
        sizes = [float(len(mode.keep) + mode.anchored) for mode in modes]
        with np.errstate(over="ignore"):  # of hundreds of inputs
            left, right = np.cumprod(sizes[:-1]), np.cumprod(sizes[:0:-1])[::-1]
        limits = np.minimum(left, right)
        return [int(r) for r in np.minimum(np.broadcast_to(rank, len(sizes) - 1), limits)]

    def footprint(self, rank: Any, n_modes: int, warm_rank: int = 0) -> Footprint:
        """Return the memory of the bonds, and of the moments of a core and around it."""
        ranks = [1, *np.broadcast_to(rank, n_modes - 1).tolist(), 1]
        kept = [r * (r + 1) // 2 for r in ranks]
        columns = [a * b for a, b in pairwise(ranks)]
        passing = max(c + p * q for c, (p, q) in zip(columns, pairwise(kept), strict=True))
        return Footprint(max(kept) + max(ranks), 2 * passing, passing, columns, max(columns))

    def places(self, smaller: layout.Layout, larger: layout.Layout) -> Array:
        """Return the columns of the first indices of either bond."""
        left, right = smaller.shape
        return larger.groups[0][:left, :right].ravel()

    def zero_columns(
        self, smaller: layout.Layout, larger: layout.Layout, d: int, modes: Sequence[Any]
    ) -> Array:
        """Return those from an old index to a new one: no path leaves the old ones."""
        left, right = smaller.shape
        return larger.groups[0][:left, right:].ravel()

    def extend(self, before: Moments, step: Moments, take: Take, to_the_right: bool) -> Moments:
        """Return the row (column) vector times one more matrix."""
        into = take()
        rank = before.mean.shape[1]
        ones = np.ones(rank)
        mean = _apply(before.mean, step.mean, ones, to_the_right, into and into.mean)
        second = None
        if before.second is not None and step.second is not None:
            times = layout.pairs(rank)[2]
            out = into and into.second
            second = _apply(before.second, step.second, times, to_the_right, out)
        return Moments(mean, second, before.exponent)

    def join(self, left: Moments | None, right: Moments | None) -> Moments | None:
        """Return L_a R_b and L_p R_q; second moments are there in the warm phase, too."""
        if left is None or right is None:
            side = right if left is None else left
            if side is None or side.second is not None:
                return side
            return side._replace(second=rows.outer(side.mean))
        a, b = (rows.outer(m.mean) if m.second is None else m.second for m in (left, right))
        return Moments(
            _outer(left.mean, right.mean, "mean"),
            _outer(a, b, "second"),
            rows.sum_exponents(left, right),
        )

    def product_layout(self, last: layout.Layout) -> layout.Layout:
        """Return a single column: f itself."""
        return layout.core(1, 1)

    def rescale(self, product: Moments) -> Moments:
        """Return the moments at a size far from the limits of a double, one exponent a row."""
        return rows.rescale(product, together=True)

    def sides(self, state: State, d: int) -> list[tuple[int, Any]]:
        """Return the two bonds."""
        left, right = state.factors[d].layout.shape
        entries = np.divmod(np.arange(left * right), right)
        bonds = [(d - 1, entries[0]), (d, entries[1])]
        return [(b, e) for b, e in bonds if 0 <= b < len(state.modes) - 1]

    def users(self, state: State, vector: int) -> list[int]:
        """Return the modes at both ends of a bond."""
        return [vector, vector + 1]

    def families(self, state: State, d: int) -> list[Family]:
        """Return the indices of both bonds; those that an anchor holds cannot be zero."""
        families = []
        for bond in (d - 1, d):
            if not 0 <= bond < len(state.modes) - 1:
                continue
            columns = {k: state.factors[k].layout.groups[g] for k, g in ((bond, 1), (bond + 1, 0))}
            if state.modes[d].anchored and np.any(state.factors[d].layout.anchor[columns[d]]):
                continue
            entries = {bond: np.arange(len(columns[bond]))[:, None]}
            families.append(Family(columns, {bond: 1, bond + 1: 0}, entries))
        return families

    def without(self, state: State, family: Family, kept: Array) -> dict[int, tuple[Array, Any]]:
        """Return the columns of the indices kept, in the two modes at the bond."""
        cores = {}
        for k, groups in family.columns.items():
            columns = np.sort(groups[kept].ravel())
            before = state.factors[k].layout
            left, right = before.shape
            shape = (left, len(kept)) if family.group_set[k] else (len(kept), right)
            after = layout.core(*shape)
            if state.modes[k].anchored:
                after = replace(after, anchor=before.anchor[columns])
            cores[k] = columns, after
        return cores

    def rebalance(self, state: State, priors: Any) -> tuple[State, list[Array] | None]:
        """Rotate every bond to where the ELBO is highest, its precisions included.

        With A and B the energies (R, R) of the two cores at the bond, without its precisions, G
        changes the ELBO by -k sum_s log(d + (G^T A G + G^-1 B G^-T)_ss / 2) + (a - b) log|det G|,
        where a and b are the cores' weights for each index, k = c + (a + b) / 2, and c and d are
        the prior's. At a = b it is highest where both energies are the same diagonal matrix.
        """
        for bond in range(len(state.modes) - 1):
            if not (state.modes[bond].anchored or state.modes[bond + 1].anchored):
                state = _turned(state, bond, priors.rank)
        return state, None

    def rank(self, state: State) -> tuple[int, ...]:
        """Return the number of indices of every bond."""
        return tuple(factor.layout.shape[1] for factor in state.factors[:-1])

    def whole(self, parts: Sequence[Array]) -> Array:
        """Return the product of all matrices."""
        return np.asarray(reduce(np.matmul, _matrices(parts))[:, 0, 0])

    def replaced(self, parts: Sequence[Array], others: Sequence[Array]) -> Array:
        """Return the product with one mode's part replaced, for each mode."""
        matrices = _matrices(parts)
        lefts, rights = [np.ones((1, 1, 1))], [np.ones((1, 1, 1))]
        for matrix in matrices[:-1]:
            lefts.append(lefts[-1] @ matrix)
        for matrix in matrices[:0:-1]:
            rights.append(matrix @ rights[-1])
        cores = [
            (left @ other @ right)[:, 0, 0]
            for left, other, right in zip(lefts, _matrices(others), rights[::-1], strict=True)
        ]
        return np.array(np.broadcast_arrays(*cores))


def _shapes(columns: list[int]) -> list[tuple[int, int]]:
    """Return left and right ranks of each core from their products."""
    shapes, left = [], 1
    for count in columns:
        shapes.append((left, count // left))
        left = count // left
    return shapes


def _matrices(parts: Sequence[Array]) -> list[Array]:
    """Return z of every mode as matrices (n, R, R'), E[z z^T] as (n, R R, R' R')."""
    shapes = _shapes([part.shape[1] for part in parts])
    if parts[0].ndim == 2:
        return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]
    return [
        part.reshape(-1, *shape, *shape).swapaxes(2, 3).reshape(-1, shape[0] ** 2, shape[1] ** 2)
        for part, shape in zip(parts, shapes, strict=True)
    ]


def _apply(vector: Any, matrix: Any, times: Array, to_the_right: bool, out: Any) -> Any:
    """Return sum_p times_p v_p M_pq of every row, or over q of v_q M_pq: (n, P), (n, P Q)."""
    xp = array_namespace(vector)
    count, n = vector.shape[1], vector.shape[0]
    other = matrix.shape[1] // count
    shape = (count, other, n) if to_the_right else (other, count, n)
    lines, squares = vector.T, xp.reshape(matrix.T, shape)
    if not to_the_right:
        squares = xp.permute_dims(squares, (1, 0, 2))
    if not is_numpy_array(vector):
        weighted = lines * like(times, lines)[:, None]
        return xp.sum(weighted[:, None, :] * squares, axis=0).T
    if out is None or out.shape != (n, other) or not out.flags.f_contiguous:
        out = np.empty((other, n)).T
    total = out.T
    part = SCRATCH.array("part", n, other).T
    np.multiply(squares[0], lines[0] * times[0], out=total)
    for p in range(1, count):
        np.multiply(squares[p], lines[p] * times[p], out=part)
        total += part
    return out


def _outer(left: Any, right: Any, name: str) -> Any:
    """Return the products of every row of one with that of the other: (n, P Q)."""
    xp = array_namespace(left)
    n, count = left.shape[0], left.shape[1] * right.shape[1]
    a, b = left.T[:, None, :], right.T[None, :, :]
    if not is_numpy_array(left):
        return xp.reshape(a * b, (count, n)).T
    out = SCRATCH.array(name, n, count)
    np.multiply(a, b, out=out.T.reshape(left.shape[1], right.shape[1], n))
    return out


def _turned(state: State, bond: int, prior: Gamma) -> State:
    """Return the state with the axes of one bond rotated, and its precisions updated."""
    first, second = state.factors[bond], state.factors[bond + 1]
    (left, size), (_, right) = first.layout.shape, second.layout.shape
    of_first = first.energies(state.basis[bond].mean).reshape(left, size, left, size)
    of_second = second.energies(state.basis[bond + 1].mean).reshape(size, right, size, right)
    before = state.rank[bond - 1].mean if bond else np.ones(1)
    last = bond + 1 == len(state.modes) - 1
    after = np.ones(1) if last else state.rank[bond + 1].mean
    a = np.einsum("asat,a->st", of_first, before)
    b = np.einsum("sbtb,b->st", of_second, after)
    weights_a, weights_b = left * first.mean.shape[0], right * second.mean.shape[0]
    shape = prior.shape + 0.5 * (weights_a + weights_b)

    def value(energies: Array, log_det: float) -> float:
        rates = prior.rate + 0.5 * energies
        return float(-shape * np.sum(np.log(rates)) + (weights_a - weights_b) * log_det)

    energies = np.diagonal(a) + np.diagonal(b)
    turn = _balance(a, b, (weights_a / weights_b) ** 0.25)
    if turn is not None:
        inverse = np.linalg.inv(turn)
        turned = np.diagonal(turn.T @ a @ turn) + np.diagonal(inverse @ b @ inverse.T)
        if value(turned, float(np.linalg.slogdet(turn)[1])) > value(energies, 0.0):
            first = first.turn(np.kron(np.eye(left), turn))
            second = second.turn(np.kron(inverse.T, np.eye(right)))
            energies = turned
    factors = (*state.factors[:bond], first, second, *state.factors[bond + 2 :])
    rank = list(state.rank)
    rank[bond] = Gamma(np.full(size, shape), prior.rate + 0.5 * energies)
    return replace(state, factors=factors, rank=tuple(rank))


def _balance(a: Array, b: Array, scale: float) -> Array | None:
    """Return G with G^T A G = scale^2 L and G^-1 B G^-T = L / scale^2, L diagonal; None if ill."""
    try:
        root = np.linalg.cholesky(a)
        values, vectors = np.linalg.eigh(root.T @ b @ root)
        if values[0] <= 0:
            return None
        turn = np.linalg.solve(root.T, vectors[:, ::-1]) * values[::-1] ** 0.25
    except np.linalg.LinAlgError:
        return None
    return scale * turn if np.linalg.cond(turn) < MOST_TURNED else None
