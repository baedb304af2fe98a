"""Cholesky factors and their inverses, from one number to matrices split in halves."""

from __future__ import annotations

import numpy as np
import pytest

from btnkm.core.linalg import NotPositiveDefiniteError, inverse_cholesky, solve, square_root
from btnkm.core.state import Factor

SIZES = [1, 5, 96, 97, 300]


def spd(size, rng):
    root = rng.standard_normal((size, size + 3))
    return root @ root.T / size + 0.1 * np.eye(size)


@pytest.mark.parametrize("size", SIZES)
def test_inverse_cholesky_against_numpy(size):
    a = spd(size, np.random.default_rng(size))
    inverse, log_det, jitter = inverse_cholesky(a)
    assert jitter == 0.0
    np.testing.assert_array_equal(inverse, np.tril(inverse))
    np.testing.assert_allclose(inverse, np.linalg.inv(np.linalg.cholesky(a)), atol=1e-10)
    np.testing.assert_allclose(inverse.T @ inverse, np.linalg.inv(a), atol=1e-9)
    assert log_det == pytest.approx(np.linalg.slogdet(a)[1], rel=1e-10)


@pytest.mark.parametrize("size", [5, 97])
def test_only_the_lower_triangle_is_read(size):
    a = spd(size, np.random.default_rng(size))
    before = a.copy()
    garbage = np.tril(a) + np.triu(np.full_like(a, np.nan), 1)
    for x, y in zip(inverse_cholesky(a), inverse_cholesky(garbage), strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(a, before)


@pytest.mark.parametrize("size", [*SIZES, 401])
def test_solve_against_numpy(size):
    rng = np.random.default_rng(size)
    a, b = spd(size, rng), rng.standard_normal(size)
    garbage = np.tril(a) + np.triu(np.full_like(a, np.nan), 1)
    x, jitter = solve(garbage, b)
    assert jitter == 0.0
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("size", [4, 200, 300])
def test_solve_falls_back_on_jitter_and_then_gives_up(size):
    a = singular(size, np.random.default_rng(size))
    a -= 1e-13 * np.diag(np.diag(a))
    x, jitter = solve(a, a @ np.ones(size))
    assert jitter > 0
    assert np.all(np.isfinite(x))
    a[size - 1, size - 1] *= -1.0
    with pytest.raises(NotPositiveDefiniteError, match=f"size {size}"):
        solve(a, np.ones(size))


@pytest.mark.parametrize("size", [5, 97, 200])
def test_badly_scaled(size):
    rng = np.random.default_rng(size)
    well = spd(size, rng)
    scale = 10.0 ** rng.permutation(np.linspace(-6, 6, size))  # diagonal 1e-12 .. 1e12
    inverse, log_det, jitter = inverse_cholesky(well * np.outer(scale, scale))
    assert jitter == 0.0
    np.testing.assert_allclose(
        (inverse.T @ inverse) * np.outer(scale, scale), np.linalg.inv(well), atol=1e-8
    )
    expected = np.linalg.slogdet(well)[1] + 2 * np.sum(np.log(scale))
    assert log_det == pytest.approx(expected, rel=1e-9, abs=1e-7)


def singular(size, rng):
    """Return a rank-deficient matrix whose diagonal runs over ten orders of magnitude."""
    root = rng.standard_normal((size, max(1, size // 2)))
    scale = 10.0 ** np.linspace(-4, 6, size)
    return (root @ root.T) * np.outer(scale, scale)


@pytest.mark.parametrize("size", [4, 96, 200])
def test_near_singular_reports_its_jitter(size):
    a = singular(size, np.random.default_rng(size))
    # far enough below zero that rounding cannot save the plain factorisation
    a -= 1e-13 * np.diag(np.diag(a))
    inverse, log_det, jitter = inverse_cholesky(a)
    assert 0.0 < jitter <= 1e-9
    d = np.sqrt(np.diag(a))
    # relative to unit diagonal it is the inverse of the matrix with the jitter added
    unit = a / np.outer(d, d)
    np.fill_diagonal(unit, 1.0 + jitter)
    product = (inverse * d) @ unit @ (inverse * d).T
    np.testing.assert_allclose(product, np.eye(size), atol=0.2)
    expected = np.linalg.slogdet(unit)[1] + 2.0 * np.sum(np.log(d))
    assert log_det == pytest.approx(expected, abs=0.1 * size)


@pytest.mark.parametrize(
    "a",
    [
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.diag([1.0, -1.0]),
        -np.eye(3),
        np.full((2, 2), np.nan),
        np.array([[1.0, 0.0], [np.nan, 1.0]]),
        np.array([[np.inf, 0.0], [0.0, 1.0]]),
    ],
    ids=["indefinite", "negative-entry", "negative", "nan", "nan-off-diagonal", "inf"],
)
def test_not_positive_definite_raises(a):
    with np.errstate(all="ignore"), pytest.raises(NotPositiveDefiniteError, match="must be"):
        inverse_cholesky(a)


def test_indefinite_in_the_second_half_raises():
    a = spd(200, np.random.default_rng(0))
    a[150, 150] = -5.0
    with pytest.raises(NotPositiveDefiniteError, match="size 200"):
        inverse_cholesky(a)


@pytest.mark.parametrize("method", [Factor.solve, Factor.solve_mean], ids=["full", "mean"])
def test_a_factor_with_a_singular_precision_is_solved_with_jitter(method):
    """Two equal functions and next to no prior: the jitter is reported, nothing raises."""
    phi = np.ones((2, 1))
    gram = phi @ phi.T + 1e-18 * np.eye(2)
    precision = np.zeros((2, 2, 2, 2))
    precision[0, :, 0] = precision[1, :, 1] = gram
    factor, jitter = method(precision, np.ones((2, 2)))
    assert jitter > 0
    assert np.all(np.isfinite(factor.mean))
    np.testing.assert_allclose(phi.T @ factor.mean, 1.0, rtol=1e-2)


@pytest.mark.parametrize("size", [1, 5, 97])
def test_square_root(size):
    rng = np.random.default_rng(size)
    a = spd(size, rng)
    root = square_root(a)
    np.testing.assert_allclose(root @ root.T, a, atol=1e-10)
    thin = rng.standard_normal((size, 1))
    for flat in (thin @ thin.T, np.zeros((size, size))):
        root = square_root(flat)
        np.testing.assert_allclose(root @ root.T, flat, atol=1e-10)
