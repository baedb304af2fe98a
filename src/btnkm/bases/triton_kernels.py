"""Functions of a basis on a CUDA device in one pass; imported only if Triton is installed."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

ROWS = 512  # of one program


@triton.jit
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
        _chebyshev[(triton.cdiv(n, ROWS),)](x.contiguous(), out, n, count, rows=ROWS)
    return out.T
