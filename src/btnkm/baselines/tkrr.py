"""T-KRR: kernel ridge regression with weights of low CP rank, by alternating least squares."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from .. import checks
from ..core.cavi import Block
from ..core.layout import components
from ..core.linalg import solve
from ..core.rows import Terms
from ..execution.local import LocalExecutor
from .base import Baseline, sums

Array = np.ndarray


class TKRR(Baseline):
    """Deterministic kernel ridge regression whose weight tensor is a sum of R rank-one terms.

    f(x) = sum_r prod_d w_r^(d) . phi^(d)(x_d) minimises sum_n (y_n - f(x_n))^2 + alpha ||W||^2,
    where ||W||^2 = sum_rs prod_d (w_r^(d) . w_s^(d)) is the exact norm of the whole tensor. Each
    step solves for the weights of one input, given the others; sweeps alternate in direction.

    Parameters
    ----------
    basis : str or Basis, default="polynomial"
        Functions of all inputs: "polynomial" (powers at unit norm, as in the paper's comparison),
        "fourier" (sines weighted by a spectral density, as T-KRR was introduced), or another.
    n_basis : int, default=20
        Functions of each input.
    max_rank : int, default=10
        R.
    alpha : float, default=1e-6
        Weight of the penalty for each training row; targets have variance one.
    max_iter : int, default=50
        Sweeps at most.
    tol : float, default=1e-6
        Stop when the relative decrease of the loss in a sweep is below this.
    memory_limit : float, default=1.4
        GiB beyond the input.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    factors_ : list of ndarray of shape (M_d, R)
    losses_ : ndarray
        The loss after each sweep, for targets of variance one.
    n_iter_ : int

    Notes
    -----
    Wesel and Batselier (2021), Large-scale learning with Fourier features and tensor
    decompositions.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.baselines import TKRR
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(200, 3))
    >>> y = X[:, 0] * X[:, 1] + X[:, 2]
    >>> bool(TKRR(n_basis=5, random_state=0).fit(X, y).score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        basis: Any = "polynomial",
        *,
        n_basis: int = 20,
        max_rank: int = 10,
        alpha: float = 1e-6,
        max_iter: int = 50,
        tol: float = 1e-6,
        memory_limit: float = 1.4,
        random_state: Any = None,
    ) -> None:
        self.basis = basis
        self.n_basis = n_basis
        self.max_rank = max_rank
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.memory_limit = memory_limit
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the weights to inputs X (n, D) and targets y (n,)."""
        for name in ("n_basis", "max_rank", "max_iter"):
            checks.check_integer(name, getattr(self, name), 1)
        for name in ("alpha", "tol", "memory_limit"):
            checks.check_number(name, getattr(self, name))
        codes, modes, target = self._begin(X, y)
        executor = LocalExecutor(self._blocks(codes, target))
        rng = check_random_state(self.random_state)
        rank, penalty = int(self.max_rank), float(self.alpha) * len(target)
        factors = [_unit(rng.standard_normal((len(mode.keep), rank))) for mode in modes]
        terms = [Terms(w, None) for w in factors]
        square, previous = float(target @ target), np.inf
        losses, last = [], 0
        if not square:  # y is constant, and so is the prediction
            factors, losses = [np.zeros_like(w) for w in factors], [0.0]
            terms = [Terms(w, None) for w in factors]
        for sweep in range(self.max_iter if square else 0):
            order = range(len(modes)) if sweep % 2 == 0 else range(len(modes) - 1, -1, -1)
            for d in order:
                # whoever was solved last holds the scale, which mode d is about to find
                factors[last] = _unit(factors[last])
                terms[last] = Terms(factors[last], None)
                _forget(executor, last)
                of_rows = sums(executor, d, terms, modes[d], rank)
                block = Block(modes[d], *of_rows, components(rank))
                factors[d], gain = _solve(block, penalty * _others(factors, d))
                terms[d] = Terms(factors[d], None)
                _forget(executor, d)
                last = d
            losses.append(square - gain)
            if previous - losses[-1] <= self.tol * losses[-1]:
                break
            previous = losses[-1]
        self.factors_, self._terms = factors, terms
        self.losses_, self.n_iter_ = np.array(losses), len(losses)
        return self

    def predict(self, X: Any) -> Array:  # type: ignore[override]
        """Return f at each row: (n,)."""
        return np.asarray(super().predict(X))


def _unit(weights: Array) -> Array:
    """Return the columns at unit length."""
    return weights / np.maximum(np.linalg.norm(weights, axis=0), np.finfo(float).tiny)


def _others(factors: list[Array], d: int) -> Array:
    """Return the product over all modes but d of W^T W: (R, R)."""
    rank = factors[0].shape[1]
    out = np.ones((rank, rank))
    for k, w in enumerate(factors):
        if k != d:
            out *= w.T @ w
    return out


def _solve(block: Block, penalty: Array) -> tuple[Array, float]:
    """Return the best weights of one mode (M, R), and what they take off the sum of squares."""
    m, rank = len(block.mode.keep), len(penalty)
    a, b = block.system(1.0, np.zeros((m, rank)))
    every = np.arange(m)
    a[:, every, :, every] += penalty
    weights, _ = solve(a.reshape(rank * m, rank * m), b.T.ravel())
    return weights.reshape(rank, m).T, float(b.T.ravel() @ weights)


def _forget(executor: Any, d: int) -> None:
    executor.each(lambda chunk: chunk.environments.changed(d))
