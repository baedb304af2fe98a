"""The order of the inputs in a train: those that interact stand side by side.

A bond carries whatever the inputs on its left have to do with those on its right. So inputs that
interact should be near each other. How strongly two of them do is seen from what an additive fit
leaves of the targets: its correlation with products of a few functions of each. Of all ways to lay
the inputs out on a line, that which keeps strong pairs near is the second eigenvector of the
graph's Laplacian (spectral seriation); the inputs are taken in its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse

Array = np.ndarray
_FUNCTIONS = 3  # of each input, the smoothest that are not constant
_ROWS = 5000  # at most


def chain_order(
    bases: Sequence[Any], codes: Sequence[Array], y: Array, weight: Array, rng: np.random.Generator
) -> list[int]:
    """Return the inputs in the order of a train."""
    if len(bases) < 3:
        return list(range(len(bases)))
    rows = np.flatnonzero(weight)
    if len(rows) > _ROWS:
        rows = np.sort(rng.choice(rows, _ROWS, replace=False))
    parts = [
        _functions(basis, column[rows], weight[rows])
        for basis, column in zip(bases, codes, strict=True)
    ]
    strength = interactions(parts, y[rows], weight[rows])
    return [int(d) for d in seriate(strength)]


def interactions(parts: Sequence[Array], y: Array, weight: Array) -> Array:
    """Return how strongly each two inputs interact, as seen by functions of each: (D, D).

    For every pair of functions this is the share of what is left of y by an additive fit that their
    product explains; those of two inputs are added up.
    """
    root = np.sqrt(weight / weight.sum())
    every = np.concatenate(parts, axis=1)
    additive = np.column_stack([np.ones(len(y)), every]) * root[:, None]
    coefficients = np.linalg.lstsq(additive, root * y, rcond=1e-8)[0]
    left = root * y - additive @ coefficients
    left = left / max(float(np.linalg.norm(left)), np.finfo(float).tiny)
    slopes = every.T @ ((root * left)[:, None] * every)
    squares = (every**2).T @ (root[:, None] ** 2 * every**2)
    shares = slopes**2 / np.maximum(squares, np.finfo(float).tiny)
    counts = np.array([part.shape[1] for part in parts])  # 0 where nothing varies in these rows
    belongs = np.repeat(np.eye(len(parts)), counts, axis=1)
    strength = belongs @ shares @ belongs.T
    counts = np.maximum(counts, 1)
    by_chance = np.multiply.outer(counts, counts) / weight.sum()
    # what is left by chance alone must not decide, but keeps the graph in one piece
    strength = np.maximum(strength - by_chance, 1e-3 * by_chance)
    np.fill_diagonal(strength, 0.0)
    return np.asarray(strength)


def seriate(strength: Array) -> Array:
    """Return an order of the rows in which those with large entries in common are near."""
    laplacian = np.diag(strength.sum(axis=1)) - strength
    second = np.linalg.eigh(laplacian)[1][:, 1]
    # either end may come first; the same one always does
    return np.argsort(second * (np.sign(second[np.argmax(np.abs(second))]) or 1.0), kind="stable")


def _functions(basis: Any, codes: Array, weight: Array) -> Array:
    """Return some functions of an input, of mean 0 and mean square 1: (n, up to 3)."""
    phi = basis.features(codes)[0]
    if issparse(phi):  # of very many levels, of which the most frequent are looked at
        counts = np.asarray(weight @ phi).ravel()
        phi = phi[:, np.argsort(-counts, kind="stable")[:_FUNCTIONS]].toarray()
    phi = np.asarray(phi, dtype=float)
    phi = phi - np.average(phi, axis=0, weights=weight)
    sizes = np.sqrt(np.average(phi**2, axis=0, weights=weight))
    degrees = np.zeros(len(sizes))
    if len(getattr(basis, "degrees_", ())) == len(sizes):
        degrees = np.asarray(basis.degrees_, dtype=float)
    varies = np.flatnonzero(sizes > 1e-9)
    # the smoothest first; of levels, the most frequent
    chosen = varies[np.lexsort((-sizes[varies], degrees[varies]))][:_FUNCTIONS]
    return phi[:, chosen] / sizes[chosen]
