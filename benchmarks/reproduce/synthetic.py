"""Recovery of a known tensor: the data of the paper's section 4.1, for any seed and noise.

N = 500 rows, D = 3 inputs ~ N(0, 1), three components with weights 10 N(0, 1), a random subset of
the five functions of each input. The features are those of the raw inputs, and y is scaled but not
centred: the constant is no combination of the functions, so that a centred tensor would have
another rank.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from btnkm.baselines.base import Powers
from btnkm.core.cp import CP
from btnkm.core.gamma import Gamma
from btnkm.core.likelihoods import Gaussian
from btnkm.core.schedule import Schedule
from btnkm.core.state import Priors, State
from btnkm.execution import fitting
from btnkm.execution.local import LocalRows
from btnkm.execution.restarts import RestartSettings

Array = np.ndarray
N_ROWS, N_INPUTS, N_FUNCTIONS, N_COMPONENTS = 500, 3, 5, 3
MAX_RANK = 5


@dataclass(frozen=True)
class Truth:
    """Inputs (N, D), targets divided by ``scale``, weights, functions used, rank of the tensor."""

    X: Array
    y: Array
    scale: float
    factors: list[Array]
    support: list[Array]
    rank: int


def tensor_rank(factors: list[Array]) -> int:
    """Return the CP rank over the reals of a sum of random components, from the sizes used.

    Two inputs of one function: 1. One: the rank of a matrix. 2 x 2 x 2: 2 or 3, by the sign of
    Cayley's hyperdeterminant. Else as many as there are components, up to the size that any tensor
    of the shape can be written with.
    """
    used = [w[np.any(w != 0, axis=1)] for w in factors]
    sizes = sorted(len(w) for w in used)
    count = factors[0].shape[1]
    if sizes[1] == 1:
        return 1
    if sizes[0] == 1:
        return min(count, sizes[1])
    if sizes == [2, 2, 2]:
        tensor = np.einsum("ir,jr,kr->ijk", *used)
        pencil = np.linalg.solve(tensor[:, :, 0], tensor[:, :, 1])
        return 2 if np.trace(pencil) ** 2 > 4 * np.linalg.det(pencil) else 3
    return min(count, sizes[0] * sizes[1])


def make_truth(seed: int, sigma: float = 1e-3) -> Truth:
    """Return the data of one seed."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N_ROWS, N_INPUTS))
    factors, support = [], []
    for _ in range(N_INPUTS):
        size = rng.integers(1, N_FUNCTIONS + 1)
        used = np.sort(rng.choice(N_FUNCTIONS, size, replace=False))
        w = np.zeros((N_FUNCTIONS, N_COMPONENTS))
        w[used] = 10.0 * rng.standard_normal((size, N_COMPONENTS))
        factors.append(w)
        support.append(used)
    z = [b.phi(X[:, d]) @ w for d, (b, w) in enumerate(zip(_bases(X), factors, strict=True))]
    f = np.prod(z, axis=0).sum(axis=1)
    y = f + sigma * rng.standard_normal(N_ROWS)
    scale = float(np.sqrt(np.mean(y**2)))
    return Truth(X, y / scale, scale, factors, support, tensor_rank(factors))


def recover(truth: Truth, seed: int, n_init: int = 4, noise_rate: float = 1e-14) -> State:
    """Return the posterior of the restart with the highest ELBO.

    Everything is the engine's default but the number of restarts and the prior of the noise. With
    the prior of the estimators the noise cannot fall below about 1e-6 of the spread of y.
    """
    settings = RestartSettings(
        priors=Priors(Gamma(1e-6, noise_rate), Gamma(1e-5, 1e-6), Gamma(1.0, 1.0)),
        likelihood=Gaussian(),
        schedule=Schedule(),
        smoothness=1.25,
        network=CP(),
        initial_rank=MAX_RANK,
        max_rank=MAX_RANK,
        n_init=n_init,
        memory_limit=1.4,
        n_jobs=1,
    )
    problem = fitting.Problem(_bases(truth.X), LocalRows(list(truth.X.T), truth.y, None))
    with warnings.catch_warnings():
        # the last digits of the ELBO are lost if the noise is 1e-6 of y or less
        warnings.simplefilter("ignore", RuntimeWarning)
        result = fitting.fit(problem, settings, [seed, 1], lambda restart, progress: None)
    state = result.best.state
    assert state is not None
    return state


def _bases(X: Array) -> list[Any]:
    return [Powers(n_basis=N_FUNCTIONS).fit(x) for x in X.T]
