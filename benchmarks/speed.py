"""Time and memory of one coordinate sweep: ``python -m benchmarks.speed``.

Three times are taken in turn inside one process, and compared as ratios of medians, because the
machine may be shared: a sweep with the product basis, the same sweep with the packed fallback (all
pairs of functions), and the bare matrix products and Cholesky factorisations that a sweep cannot do
without. A sweep of a tensor train is compared with its own bare work, too. Peak memory is that of a
whole fit, over its input, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.runs.machine import ROOT, PeakMemory, code_version, cpu_model, versions
from btnkm import BTNRegressor, Gamma, Solver
from btnkm.bases import Basis, Chebyshev
from btnkm.core.cavi import Data
from btnkm.core.cp import CP
from btnkm.core.growing import initial_state
from btnkm.core.layout import Layout, components, core
from btnkm.core.likelihoods import Gaussian
from btnkm.core.linalg import inverse_cholesky
from btnkm.core.network import Network
from btnkm.core.schedule import Schedule
from btnkm.core.state import Priors
from btnkm.core.sweeper import Sweeper
from btnkm.core.tt import TT
from btnkm.execution import local
from btnkm.execution.modes import make_mode

PAUSE = 0.2  # seconds: threads of BLAS spin for a while after their work, at the next one's cost


class Packed(Basis):
    """Chebyshev polynomials by ``phi`` alone: the fallback a user's own basis gets."""

    def __init__(self, n_basis: int = 20) -> None:
        self.n_basis = n_basis

    def phi(self, x: Any) -> Any:
        """Return T_0 .. T_{M-1}: (n,) -> (n, M)."""
        return np.polynomial.chebyshev.chebvander(x, self.n_basis - 1)


def make_sweeper(
    kind: type,
    x: np.ndarray,
    y: np.ndarray,
    m: int,
    rank: int,
    pool: local.Threads,
    network: Network,
) -> Sweeper:
    """Return a sweeper in its exact phase, features evaluated, on the given rows."""
    bases = [kind(n_basis=m).fit(column) for column in x.T]
    sizes = [(b.n_functions_, b.n_products_) for b in bases]
    footprint = network.footprint(rank, len(sizes))
    plan = local.make_plan(len(y), sizes, footprint, 1, 1, 64.0)
    chunks = local.make_chunks(plan, bases, list(x.T), y, None)
    chunks = local.share_chunks(chunks, len(bases), plan.stride, network)
    modes = tuple(make_mode(basis, 1.0) for basis in bases)
    sums = local.feature_sums(local.LocalExecutor(chunks), len(modes))
    grams = tuple(
        mode.gram(psi[:, None])[0] / len(y) for mode, (_, psi) in zip(modes, sums, strict=True)
    )
    priors = Priors(Gamma(1e-3, 1e-3), Gamma(1e-5, 1e-6), Gamma(1.0, 1.0))
    schedule = Schedule()
    likelihood = Gaussian(Gamma(1.0, 0.01))
    state = initial_state(
        network, modes, grams, rank, priors, likelihood, schedule, np.random.default_rng(0)
    )
    data = Data(float(len(y)), float(y @ y))
    sweeper = Sweeper(local.LocalExecutor(chunks, pool), state, data, priors)
    for _ in range(2):
        sweeper.sweep()
    sweeper.switch(spread=1.0)
    sweeper.sweep()
    return sweeper


def bare_products(x: np.ndarray, m: int, columns: Layout) -> Any:
    """Return a function that does one mode's matrix products, into memory at hand."""
    n = len(x)
    basis = Chebyshev(n_basis=m).fit(x[:, 0])
    phi, psi = basis.features(x[:, 0])  # a contiguous row of memory per function
    count, rank = len(columns.multiplicity), columns.n_columns
    rng = np.random.default_rng(0)
    second, mean = rng.standard_normal((count, n)).T, rng.standard_normal((rank, n)).T
    coefficients = rng.standard_normal((count, psi.shape[1]))
    factor = rng.standard_normal((rank, m))
    moments, means = np.empty((count, n)), np.empty((rank, n))

    def work() -> None:
        psi.T @ second, mean.T @ phi
        np.matmul(coefficients, psi.T, out=moments)
        np.matmul(factor, phi.T, out=means)

    return work


def bare_solve(m: int, columns: Layout) -> Any:
    """Return a function that does one mode's Cholesky inverse."""
    size = m * columns.n_columns
    root = np.random.default_rng(0).standard_normal((size, size))
    block = root @ root.T + size * np.eye(size)

    def work() -> None:
        inverse = inverse_cholesky(block)[0]  # faster than LAPACK's potrf and potri
        inverse.T @ inverse

    return work


def bare_work(x: np.ndarray, m: int, columns: Layout) -> Any:
    """Return a function that does one mode's matrix products and its Cholesky inverse."""
    products, solve = bare_products(x, m, columns), bare_solve(m, columns)

    def work() -> None:
        products()
        solve()

    return work


def measure(n: int, m: int, rank: int, inputs: int, repeats: int, threads: int) -> dict[str, Any]:
    """Return the medians, in seconds per mode, of the three kinds of work."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, size=(n, inputs))
    y = np.sin(3.0 * x).prod(axis=1) + 0.1 * rng.standard_normal(n)
    y = (y - y.mean()) / y.std()
    times: dict[str, list[float]] = {"product": [], "packed": [], "bare": []}
    with local.Threads(threads) as pool:
        with threadpool_limits(1):
            sweepers = {
                "product": make_sweeper(Chebyshev, x, y, m, rank, pool, CP()),
                "packed": make_sweeper(Packed, x, y, m, rank, pool, CP()),
            }
        bare = bare_work(x, m, components(rank))
        for _ in range(repeats):
            for name, sweeper in sweepers.items():
                time.sleep(PAUSE)
                with threadpool_limits(1):
                    begin = time.perf_counter()
                    sweeper.sweep()
                    times[name].append((time.perf_counter() - begin) / (inputs - 1))
            with threadpool_limits(threads):
                begin = time.perf_counter()
                bare()
                times["bare"].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values) for name, values in times.items()}
    np.testing.assert_allclose(
        sweepers["product"].state.likelihood.error,
        sweepers["packed"].state.likelihood.error,
        1e-6,
    )
    return medians


def measure_train(
    n: int, m: int, rank: int, inputs: int, repeats: int, threads: int
) -> dict[str, float]:
    """Return the medians, in seconds, of a sweep of a train and of the bare work in it."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, size=(n, inputs))
    y = np.sin(3.0 * x).prod(axis=1) + 0.1 * rng.standard_normal(n)
    y = (y - y.mean()) / y.std()
    sweeps, bare = [], []
    with local.Threads(threads) as pool:
        with threadpool_limits(1):
            sweeper = make_sweeper(Chebyshev, x, y, m, rank, pool, TT())
        end, inner = bare_work(x, m, core(1, rank)), bare_work(x, m, core(rank, rank))
        for _ in range(repeats):
            time.sleep(PAUSE)
            with threadpool_limits(1):
                begin = time.perf_counter()
                sweeper.sweep()
                sweeps.append(time.perf_counter() - begin)
            with threadpool_limits(threads):
                begin = time.perf_counter()
                inner()
                middle = time.perf_counter()
                end()  # a sweep leaves out the mode that was solved last, at the other end
                bare.append((inputs - 2) * (middle - begin) + time.perf_counter() - middle)
    return {"train": statistics.median(sweeps), "train_bare": statistics.median(bare)}


def _fit_memory(n: int, m: int, rank: int, inputs: int, out: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, size=(n, inputs))
    y = np.sin(3.0 * x[:, 0]) * x[:, 1] + 0.1 * rng.standard_normal(n)
    model = BTNRegressor(
        n_basis=m, max_rank=rank, n_init=2, max_iter=3, solver=Solver(warm_sweeps=2)
    )
    with PeakMemory() as peak:
        model.fit(x, y)
    out.put(peak.mb)


def fit_memory(n: int, m: int, rank: int, inputs: int) -> float:
    """Return the peak memory of a fit over its input, in MiB, from a process of its own."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    process = context.Process(target=_fit_memory, args=(n, m, rank, inputs, out))
    process.start()
    peak = float(out.get(timeout=600))
    process.join()
    return peak


def main() -> None:
    """Measure and print, with the ratios that matter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_700)
    parser.add_argument("--functions", type=int, default=40)
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--inputs", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-inputs", type=int, default=20)
    parser.add_argument("--train-functions", type=int, default=20)
    parser.add_argument("--train-rank", type=int, default=6)
    parser.add_argument("--train-inputs", type=int, default=8)
    args = parser.parse_args()
    shape = (args.rows, args.functions, args.rank)
    medians = measure(*shape, args.inputs, args.repeats, args.threads)
    medians["packed_over_product"] = medians["packed"] / medians["product"]
    medians["product_over_bare"] = medians["product"] / medians["bare"]
    train = args.train_functions, args.train_rank, args.train_inputs
    medians |= measure_train(args.rows, *train, args.repeats, args.threads)
    medians["train_over_bare"] = medians["train"] / medians["train_bare"]
    medians["peak_mib"] = fit_memory(*shape, args.memory_inputs)
    machine = {"cpu": cpu_model(), "versions": versions(), **code_version()}
    record = {**vars(args), **medians, **machine}
    print(json.dumps(record, indent=2))
    path = ROOT / "benchmarks" / "results" / "speed.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
