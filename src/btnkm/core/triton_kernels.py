"""The two products of a CP mode on a CUDA device, each in one pass over the rows.

They are ``rows.block_sums`` without the product of both sides ever written down, and the moments of
a mode multiplied to those before it as they are made. Imported only where Triton is.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

ROWS, STEPS = 32, 32  # that one program sums at a time, and how often
# Products of single precision go by tensor cores in three parts, which lose next to nothing.
TILE = 64  # statistics that one program looks at
MOST_PRODUCTS = 128  # columns of psi, which all are in one program
ROWS_AT_ONCE = 512  # of one program


@triton.jit  # type: ignore[untyped-decorator]
def _sums(  # type: ignore[no-untyped-def]
    psi_at,
    left_at,
    right_at,
    weight_at,
    out_at,
    n,
    n_products,
    n_columns,
    psi_stride,
    left_stride,
    right_stride,
    weighted: tl.constexpr,
    both: tl.constexpr,
    width: tl.constexpr,
    tile: tl.constexpr,
    rows: tl.constexpr,
    steps: tl.constexpr,
):
    group = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, width).to(tl.int64)
    p = (tl.program_id(1) * tile + tl.arange(0, tile)).to(tl.int64)
    total = tl.zeros((width, tile), dtype=psi_at.dtype.element_ty)
    for step in range(steps):
        row = (group * steps + step) * rows + tl.arange(0, rows)
        inside = row < n
        psi = tl.load(
            psi_at + k[:, None] * psi_stride + row[None, :],
            mask=(k < n_products)[:, None] & inside[None, :],
            other=0.0,
        )
        mask = inside[:, None] & (p < n_columns)[None, :]
        h = tl.load(left_at + row[:, None] + p[None, :] * left_stride, mask=mask, other=0.0)
        if both:
            h *= tl.load(right_at + row[:, None] + p[None, :] * right_stride, mask=mask, other=0.0)
        if weighted:
            h *= tl.load(weight_at + row, mask=inside, other=0.0)[:, None]
        total = tl.dot(psi, h, total, input_precision="tf32x3", out_dtype=total.dtype)
    at = out_at + (group * n_products + k[:, None]) * n_columns + p[None, :]
    tl.store(at, total, mask=(k < n_products)[:, None] & (p < n_columns)[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _times_moments(  # type: ignore[no-untyped-def]
    features_at,
    coefficients_at,
    before_at,
    out_at,
    n,
    n_functions,
    n_columns,
    features_stride,
    before_stride,
    width: tl.constexpr,
    tile: tl.constexpr,
    rows: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    k = tl.arange(0, width).to(tl.int64)
    p = (tl.program_id(1) * tile + tl.arange(0, tile)).to(tl.int64)
    inside = row < n
    features = tl.load(
        features_at + row[:, None] + k[None, :] * features_stride,
        mask=inside[:, None] & (k < n_functions)[None, :],
        other=0.0,
    )
    coefficients = tl.load(
        coefficients_at + k[:, None] * n_columns + p[None, :],
        mask=(k < n_functions)[:, None] & (p < n_columns)[None, :],
        other=0.0,
    )
    z = tl.dot(features, coefficients, input_precision="tf32x3", out_dtype=features.dtype)
    mask = inside[:, None] & (p < n_columns)[None, :]
    z *= tl.load(before_at + row[:, None] + p[None, :] * before_stride, mask=mask, other=0.0)
    tl.store(out_at + row[:, None] + p[None, :] * n, z, mask=mask)


def fits(*arrays: Any) -> bool:
    """Tell whether arrays have columns that are contiguous, as all moments and features here."""
    return all(a is None or a.stride(0) == 1 for a in arrays)


def sums(features: Any, left: Any, right: Any, weight: Any) -> Any:
    """Return features^T (left * right * weight): (n, K), (n, P), (n, P), (n,) -> (K, P) doubles.

    Either side, and the weight, may be None for ones, but not both sides.
    """
    if left is None:
        left, right = right, None
    n, count = features.shape
    columns = left.shape[1]
    groups = triton.cdiv(n, ROWS * STEPS)
    out = torch.empty((groups, count, columns), dtype=features.dtype, device=features.device)
    tile = min(TILE, max(16, triton.next_power_of_2(columns)))
    with torch.cuda.device(features.device):
        _sums[(groups, triton.cdiv(columns, tile))](
            features,
            left,
            left if right is None else right,
            left if weight is None else weight,
            out,
            n,
            count,
            columns,
            features.stride(1),
            left.stride(1),
            0 if right is None else right.stride(1),
            weighted=weight is not None,
            both=right is not None,
            width=max(16, triton.next_power_of_2(count)),
            tile=tile,
            rows=ROWS,
            steps=STEPS,
            num_warps=8,
        )
    return torch.sum(out, dim=0, dtype=torch.float64)


def times_moments(features: Any, coefficients: Any, before: Any) -> Any:
    """Return (features coefficients) * before: (n, K), (K, P), (n, P) -> (n, P)."""
    n, columns = before.shape
    count = coefficients.shape[0]
    out = torch.empty((columns, n), dtype=before.dtype, device=before.device)
    tile = min(TILE, max(16, triton.next_power_of_2(columns)))
    with torch.cuda.device(before.device):
        _times_moments[(triton.cdiv(n, ROWS), triton.cdiv(columns, tile))](
            features,
            coefficients.contiguous(),
            before,
            out,
            n,
            count,
            columns,
            features.stride(1),
            before.stride(1),
            width=max(16, triton.next_power_of_2(count)),
            tile=tile,
            rows=ROWS,
            num_warps=4,
        )
    return out.T


@triton.jit  # type: ignore[untyped-decorator]
def _chebyshev(x_at, out_at, n, count, rows: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    inside = row < n
    x = tl.load(x_at + row, mask=inside, other=0.0)
    x = tl.minimum(tl.maximum(x, -1.0), 1.0)
    here, after = x * 0.0 + 1.0, x
    for _ in range(count):
        tl.store(out_at + row, here, mask=inside)
        out_at += n
        here, after = after, 2.0 * x * after - here


def chebyshev(x: Any, count: int) -> Any:
    """Return T_0 .. T_{count-1} at x, held within [-1, 1]: (n,) -> (n, count)."""
    n = x.shape[0]
    out = torch.empty((count, n), dtype=x.dtype, device=x.device)
    with torch.cuda.device(x.device):
        _chebyshev[(triton.cdiv(n, ROWS_AT_ONCE),)](
            x.contiguous(), out, n, count, rows=ROWS_AT_ONCE
        )
    return out.T
