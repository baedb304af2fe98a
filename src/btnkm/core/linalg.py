"""Cholesky factors and inverses of the small dense blocks, with the jitter they needed.

Plain LAPACK ``potri`` runs at a fraction of matrix-product speed and, through SciPy, holds the
interpreter lock, so starts in threads would queue behind each other. Splitting the matrix in
halves turns nearly all of the work into matrix products, which do neither.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import lapack

Array = np.ndarray

_LEAF = 96  # below this size LAPACK's own triangular inverse is the faster one
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
    """Invert the Cholesky factor of a symmetric positive definite matrix.

    Cholesky's rounding errors do not change when rows and columns are scaled, so the matrix is
    brought to unit diagonal only where a jitter must be measured against it.

    Parameters
    ----------
    a : ndarray of shape (N, N)
        Only the lower triangle is read.

    Returns
    -------
    inverse : ndarray of shape (N, N)
        L^-1, lower triangular, with A = L L^T; A^-1 is its transpose times itself.
    log_det : float
        log det A.
    jitter : float
        What was added to the unit diagonal, 0 where nothing was needed.
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
