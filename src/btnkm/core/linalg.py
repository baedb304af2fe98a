"""Cholesky factors and inverses of the small dense blocks, with the jitter they needed.

Plain LAPACK ``potri`` runs at a fraction of matrix-product speed and, through SciPy, holds the
interpreter lock, so restarts in threads would queue behind each other. Splitting the matrix in
halves turns nearly all of the work into matrix products, which do neither.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

Array = np.ndarray

_LEAF = 96  # below this size LAPACK's own triangular inverse is the faster one
JITTER = 1e-8  # of kernel matrices, relative to the median of the diagonal
MORE_JITTER = 100.0  # factor by which it grows where it is not enough
_FIRST_JITTER = 1e-14  # relative to a unit diagonal: about the rounding of the sums over rows


class NotPositiveDefiniteError(np.linalg.LinAlgError):
    """A block is indefinite with every jitter that was tried."""


def _inverse_factor(a: Array) -> tuple[Array, Array]:
    """Return L^-1 and diag(L) of A = L L^T, reading only the lower triangle of A."""
    n = a.shape[0]
    if n <= _LEAF:
        factor, info = lapack.dpotrf(a, lower=1, clean=1)
        if info:
            raise np.linalg.LinAlgError
        inverse, _ = lapack.dtrtri(factor, lower=1)
        return inverse, factor.diagonal()
    h = n // 2
    top, top_diagonal = _inverse_factor(a[:h, :h])
    below = a[h:, :h] @ top.T
    bottom, bottom_diagonal = _inverse_factor(a[h:, h:] - below @ below.T)
    inverse = np.zeros((n, n))
    inverse[:h, :h] = top
    inverse[h:, h:] = bottom
    np.matmul(-bottom, below @ top, out=inverse[h:, :h])
    return inverse, np.concatenate([top_diagonal, bottom_diagonal])


def _log_det(diagonal: Array) -> float:
    """Return log det A from diag(L); NaN or infinite where A was."""
    return 2.0 * float(np.log(diagonal).sum())


def solve(a: Array, b: Array) -> tuple[Array, float]:
    """Return A^-1 b, reading only the lower triangle of A, and the jitter that was needed."""
    try:
        x = _solve(a, b)
    except np.linalg.LinAlgError:
        pass
    else:
        if np.isfinite(x).all():
            return x, 0.0
    inverse, _, jitter = inverse_cholesky(a)
    return inverse.T @ (inverse @ b), jitter


def _solve(a: Array, b: Array) -> Array:
    n = a.shape[0]
    if n <= 2 * _LEAF:
        _, x, info = lapack.dposv(a, b, lower=1)
        if info:
            raise np.linalg.LinAlgError
        return np.asarray(x)
    h = n // 2
    top, _ = _inverse_factor(a[:h, :h])
    below = a[h:, :h] @ top.T
    white = top @ b[:h]
    bottom = _solve(a[h:, h:] - below @ below.T, b[h:] - below @ white)
    return np.concatenate([top.T @ (white - below.T @ bottom), bottom])


def inverse_cholesky(a: Array) -> tuple[Array, float, float]:
    """Return L^-1 of a positive definite A = L L^T, log det A, and the jitter that was needed.

    A^-1 is the transpose of L^-1 times itself. Only the lower triangle of A is read. The jitter is
    what was added to the diagonal of A at unit diagonal, 0 where nothing was needed. Cholesky's
    rounding errors do not change when rows and columns are scaled, so the matrix is brought to unit
    diagonal only where a jitter must be measured against it.
    """
    try:
        inverse, diagonal = _inverse_factor(a)
    except np.linalg.LinAlgError:
        pass
    else:
        log_det = _log_det(diagonal)
        if math.isfinite(log_det):
            return inverse, log_det, 0.0
    positive = bool(np.all((np.diag(a) > 0) & np.isfinite(np.diag(a))))
    scale = np.sqrt(np.diag(a)) if positive else np.ones(len(a))
    unit = a / scale[:, None] / scale
    jitter = _FIRST_JITTER
    while positive and jitter < 1e-2:
        np.fill_diagonal(unit, 1.0 + jitter)
        try:
            inverse, diagonal = _inverse_factor(unit)
        except np.linalg.LinAlgError:
            jitter *= 10.0
            continue
        log_det = _log_det(diagonal * scale)
        if not math.isfinite(log_det):
            break
        return inverse / scale, log_det, jitter
    raise NotPositiveDefiniteError(
        f"a block of size {a.shape[0]} must be positive definite, but even a jitter of 1e-2 on its "
        "unit diagonal did not make it so; check the inputs for values beyond 1e150"
    )


def square_root(a: Array) -> Array:
    """Return S with S S^T = A for a symmetric positive semidefinite A, however near singular."""
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(a)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


class Solved(NamedTuple):
    """(K + V)^-1, its product with the targets, and the logarithm of the determinant."""

    inverse: Array
    alpha: Array
    log_det: float


def whitened(matrix: Array, noise: Array, target: Array) -> tuple[Array, Array]:
    """Return alpha, and the lower triangle R with (K + V)^-1 = R^T R."""
    root, _ = lapack.dtrtri(factor_of(matrix, noise), lower=1)
    return root.T @ (root @ target), np.ascontiguousarray(root)


def solve_noisy(matrix: Array, noise: Array, target: Array) -> Solved:
    """Solve for targets with noise of these variances (n,), and f with this covariance (n, n)."""
    n = len(matrix)
    factor = factor_of(matrix, noise)
    log_det = 2.0 * float(np.sum(np.log(np.diagonal(factor))))
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)  # the other half is zero
    diagonal = np.diagonal(inverse).copy()
    inverse = inverse + inverse.T
    inverse[np.diag_indices(n)] = diagonal
    return Solved(inverse, inverse @ target, log_det)


def factor_of(matrix: Array, noise: Array) -> Array:
    """Return the lower Cholesky factor of a matrix and noise: see ``factor_and_jitter``."""
    return factor_and_jitter(matrix, noise)[0]


def factor_and_jitter(matrix: Array, noise: Array) -> tuple[Array, float]:
    """Return the lower Cholesky factor of a matrix plus noise, and the jitter added.

    The jitter is larger where the matrix is not positive definite in floating point.
    """
    n = len(matrix)
    jitter = JITTER * float(np.median(np.diagonal(matrix)))
    while True:
        full = matrix.copy()
        full[np.diag_indices(n)] += noise + jitter
        factor, failed = lapack.dpotrf(full, lower=1, overwrite_a=0, clean=1)
        if not failed:
            return np.asarray(factor), jitter
        jitter *= MORE_JITTER
        if not np.isfinite(jitter) or jitter > 1e6 * np.max(full):
            raise np.linalg.LinAlgError("the kernel matrix is not finite")
