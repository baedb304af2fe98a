"""Recovery of a known tensor: the paper's synthetic experiment (section 4.1) over many seeds.

    python -m benchmarks.recovery --seeds 100 --sigma 0.001

N = 500 rows, D = 3 inputs ~ N(0, 1), three components with weights 10 N(0, 1), a random subset of
the five functions of each input. Counted is in how many seeds the rank of the tensor and the
functions that it uses are found, by the start with the highest bound: the components left, and the
functions not dropped. The features are those of the raw inputs, and y is scaled but not centred:
the constant is no combination of the functions, so that a centred tensor would have another rank.
"""

import argparse
import time
import warnings
from dataclasses import dataclass

import numpy as np

from btnkm import Gamma, fitting
from btnkm.bases import Polynomial
from btnkm.core.likelihoods import Gaussian
from btnkm.core.schedule import Schedule
from btnkm.core.state import Priors

N_ROWS, N_INPUTS, N_FUNCTIONS, N_COMPONENTS = 500, 3, 5, 3
MAX_RANK = 5


class RawPolynomial(Polynomial):
    """The paper's functions of the input as it is, not held within [-1, 1]."""

    def hold(self, x):
        """Return ``x`` unchanged."""
        return x


@dataclass(frozen=True)
class Truth:
    """Inputs (N, D), targets, scale by which they were divided, weights, functions used."""

    X: np.ndarray
    y: np.ndarray
    scale: float
    factors: list
    support: list
    rank: int


def tensor_rank(factors):
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


def make_truth(seed, sigma=1e-3):
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
    z = [b.phi(X[:, d]) @ w for d, (b, w) in enumerate(zip(bases(X), factors, strict=True))]
    f = np.prod(z, axis=0).sum(axis=1)
    y = f + sigma * rng.standard_normal(N_ROWS)
    scale = float(np.sqrt(np.mean(y**2)))
    return Truth(X, y / scale, scale, factors, support, tensor_rank(factors))


def bases(X):
    """Return a fitted basis for each input."""
    return [RawPolynomial(n_basis=N_FUNCTIONS).fit(x) for x in X.T]


def make_settings(n_init=4, noise_rate=1e-14, **schedule):
    """Return the settings of a fit: the engine's defaults but for starts and the noise prior."""
    return fitting.Settings(
        priors=Priors(Gamma(1e-6, noise_rate), Gamma(1e-5, 1e-6), Gamma(1.0, 1.0)),
        likelihood=Gaussian(),
        schedule=Schedule(**schedule),
        smoothness=1.25,
        max_rank=MAX_RANK,
        n_init=n_init,
        memory_limit=1.4,
        n_jobs=1,
    )


def recover(truth, settings, seed):
    """Return whether the rank and the support were found."""
    problem = fitting.Problem(bases(truth.X), list(truth.X.T), truth.y, None)
    with warnings.catch_warnings():
        # the last digits of the bound are lost where the noise is 1e-6 of y or less
        warnings.simplefilter("ignore", RuntimeWarning)
        result = fitting.fit(problem, settings, [seed, 1], lambda start, progress: None)
    state = result.starts[result.best].state
    pairs = zip(state.modes, truth.support, strict=True)
    found = all(np.array_equal(mode.keep, used) for mode, used in pairs)
    return state.n_components == truth.rank, found


def main():
    """Count, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--sigma", type=float, default=1e-3)
    parser.add_argument("--n-init", type=int, default=4)
    parser.add_argument("--noise-rate", type=float, default=1e-14)
    given = parser.parse_args()
    settings = make_settings(given.n_init, given.noise_rate)
    begin = time.perf_counter()
    found = [recover(make_truth(s, given.sigma), settings, s) for s in range(given.seeds)]
    seconds = (time.perf_counter() - begin) / given.seeds
    rank, support = np.sum(found, axis=0)
    print(f"rank {rank}, support {support} of {given.seeds}, {seconds:.2f} s a fit")


if __name__ == "__main__":
    main()
