"""Time of one coordinate sweep beside the least that it needs: ``python -m benchmarks.speed``.

Sweeps alternate with bare work in one process, since the machine may be shared; compare the ratios.
CP sweeps are timed with the basis of products and with the packed fallback (all pairs of
functions), tensor trains with full cores. The bare work is the matrix products and the Cholesky
inverse of each input.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.pages import RESULTS
from benchmarks.runs.machine import code_version, cpu_model, versions
from benchmarks.scale_sweep import bare_products, bare_solve
from btnkm import Gamma
from btnkm.bases import Basis, Chebyshev
from btnkm.core.cavi import Data
from btnkm.core.cp import CP
from btnkm.core.growing import initial_state
from btnkm.core.layout import Layout, components, core
from btnkm.core.likelihoods import Gaussian
from btnkm.core.network import Network
from btnkm.core.schedule import Schedule
from btnkm.core.state import Priors
from btnkm.core.sweeper import Sweeper
from btnkm.core.tt import TT
from btnkm.execution import local
from btnkm.execution.modes import make_mode

PAUSE = 0.2  # seconds, until threads of BLAS no longer wait actively for work


class Packed(Basis):
    """Chebyshev polynomials with ``phi`` only, as a custom basis has."""

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


def bare_work(x: np.ndarray, m: int, columns: Layout) -> Callable[[], None]:
    """Return a function that does one mode's matrix products and its Cholesky inverse."""
    products, solve = bare_products(x, m, columns), bare_solve(m, columns)

    def work() -> None:
        products()
        solve()

    return work


def rows(n: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and a standardised target."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, size=(n, inputs))
    y = np.sin(3.0 * x).prod(axis=1) + 0.1 * rng.standard_normal(n)
    return x, (y - y.mean()) / y.std()


def alternate(
    sweepers: dict[str, Sweeper],
    bare: dict[str, Callable[[], None]],
    repeats: int,
    threads: int,
) -> dict[str, float]:
    """Return the median seconds of sweeps and of bare work, which alternate."""
    times: dict[str, list[float]] = defaultdict(list)

    def add(name: str, work: Callable[[], Any]) -> None:
        begin = time.perf_counter()
        work()
        times[name].append(time.perf_counter() - begin)

    for _ in range(repeats):
        for name, sweeper in sweepers.items():
            time.sleep(PAUSE)
            with threadpool_limits(1):
                add(name, sweeper.sweep)
        with threadpool_limits(threads):
            for name, work in bare.items():
                add(name, work)
    return {name: statistics.median(values) for name, values in times.items()}


def measure(n: int, m: int, rank: int, inputs: int, repeats: int, threads: int) -> dict[str, float]:
    """Return the median seconds of one mode of a CP sweep, with both bases, and of bare work."""
    x, y = rows(n, inputs)
    with local.Threads(threads) as pool:
        with threadpool_limits(1):
            sweepers = {
                "product": make_sweeper(Chebyshev, x, y, m, rank, pool, CP()),
                "packed": make_sweeper(Packed, x, y, m, rank, pool, CP()),
            }
        bare = {"bare": bare_work(x, m, components(rank))}
        medians = alternate(sweepers, bare, repeats, threads)
    errors = [sweeper.state.likelihood.error for sweeper in sweepers.values()]
    np.testing.assert_allclose(*errors, 1e-6)
    # a sweep skips the mode that was updated last
    return medians | {name: medians[name] / (inputs - 1) for name in sweepers}


def measure_train(
    n: int, m: int, rank: int, inputs: int, repeats: int, threads: int
) -> dict[str, float]:
    """Return the median seconds of a sweep of a tensor train and of its bare work."""
    x, y = rows(n, inputs)
    with local.Threads(threads) as pool:
        with threadpool_limits(1):
            sweeper = make_sweeper(Chebyshev, x, y, m, rank, pool, TT())
        bare = {
            "inner": bare_work(x, m, core(rank, rank)),
            "end": bare_work(x, m, core(1, rank)),
        }
        medians = alternate({"train": sweeper}, bare, repeats, threads)
    # a sweep skips the mode that was updated last, which is one of the two ends
    train_bare = (inputs - 2) * medians["inner"] + medians["end"]
    return {"train": medians["train"], "train_bare": train_bare}


def main() -> None:
    """Measure, print the times and their ratios, and add them to the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_700)
    parser.add_argument("--functions", type=int, default=40)
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--inputs", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--train-functions", type=int, default=20)
    parser.add_argument("--train-rank", type=int, default=6)
    parser.add_argument("--train-inputs", type=int, default=8)
    args = parser.parse_args()
    shape = args.functions, args.rank, args.inputs
    medians = measure(args.rows, *shape, args.repeats, args.threads)
    medians["packed_over_product"] = medians["packed"] / medians["product"]
    medians["product_over_bare"] = medians["product"] / medians["bare"]
    train = args.train_functions, args.train_rank, args.train_inputs
    medians |= measure_train(args.rows, *train, args.repeats, args.threads)
    medians["train_over_bare"] = medians["train"] / medians["train_bare"]
    machine = {"cpu": cpu_model(), "versions": versions(), **code_version()}
    record = {**vars(args), **medians, **machine}
    print(json.dumps(record, indent=2))
    with (RESULTS / "speed.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
