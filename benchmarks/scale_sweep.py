"""Seconds and memory of a sweep against rows, inputs, functions and rank, and their limit.

Everything that is compared with a sweep alternates with the sweeps of one fit, in one process. The
machine may be shared, so ratios of other times mean little.
"""

import re
import statistics
import time
from dataclasses import asdict, dataclass, replace

import numpy as np

from benchmarks.methods import parameters_of
from benchmarks.runs import machine
from benchmarks.scale_compare import als_epochs
from btnkm import BTNRegressor
from btnkm.bases import Chebyshev
from btnkm.core.cp import CP
from btnkm.core.layout import components
from btnkm.core.linalg import inverse_cholesky
from btnkm.execution import local
from btnkm.execution.restarts import limit_blas

COPIED = 2**24  # numbers, 128 MiB: several times the size of caches
MOST_BLOCKS = 32  # of rows, whose products are timed; the others take as long
DOUBLE = 8  # bytes
YARD = 20  # products of 400 by 400 matrices in each thread, the same for every shape


@dataclass(frozen=True)
class Shape:
    """What the cost of a sweep depends on.

    Parameters
    ----------
    n, D, M, R : int
        Rows, inputs, functions per input, components.
    """

    n: int
    D: int
    M: int
    R: int

    @classmethod
    def of(cls, name):
        """Return the shape with this name."""
        match = re.fullmatch(r"n(\d+)-D(\d+)-M(\d+)-R(\d+)", name)
        if match is None:
            raise ValueError(
                f"the name of a shape must read like n40000-D8-M20-R10, got {name!r}; correct it."
            )
        return cls(*map(int, match.groups()))

    def __str__(self):
        return f"n{self.n}-D{self.D}-M{self.M}-R{self.R}"

    @property
    def products(self):
        """Chebyshev functions that span the products of two functions."""
        return 2 * self.M - 1

    @property
    def moments(self):
        """Numbers per row and environment: first and second moments of the components."""
        return self.R * (self.R + 1) // 2 + self.R


BASE = Shape(40_000, 8, 20, 10)
#: The numbers that vary, one at a time; the others are those of `BASE`.
VARIED = {
    "n": (10_000, 40_000, 100_000, 300_000, 1_000_000),
    "D": (4, 8, 16, 32),
    "M": (8, 12, 20, 32, 48, 64),
    "R": (4, 7, 10, 14, 20),
}
#: The shape with an aim of twice the limit, and that of an epoch of tnkm.
LARGE = Shape(1_000_000, 20, 20, 10)
EPOCH = Shape(40_700, 8, 40, 10)


def shapes():
    """Return the names of all shapes, each once."""
    varied = [replace(BASE, **{name: v}) for name, values in VARIED.items() for v in values]
    return tuple(dict.fromkeys(map(str, [*varied, LARGE])))


def rows_of(shape):
    """Return inputs uniform on [-1, 1] and a target that depends on the first three."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(shape.n, shape.D))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.1 * rng.standard_normal(shape.n)
    return X, y


def moved_bytes(shape, keep_features):
    """Return the bytes that a sweep must move between processor and memory.

    A sweep updates D - 1 modes (it skips the one updated last), and passes over all rows for each.
    For every row it reads or writes these numbers: the products of the modes to the left, before
    and after the mode just updated is added, and those to the right, P + R numbers each with
    P = R (R + 1) / 2; the functions of the mode just updated and of the next one, 2 M - 1 each, or
    their inputs if features are recomputed; and the target. Rows come in blocks, so other arrays
    stay in the cache.
    """
    features = 2 * (shape.products if keep_features else 1)
    return DOUBLE * shape.n * (shape.D - 1) * (3 * shape.moments + features + 1)


def plan_of(shape, memory_limit, threads):
    """Return what a fit of one restart keeps in memory."""
    sizes = [(shape.M, shape.products)] * shape.D
    footprint = CP().footprint(shape.R, shape.D)
    n_features = shape.D * shape.products  # phi is a part of psi
    return local.make_plan(
        shape.n, sizes, footprint, 1, threads, memory_limit, n_features=n_features
    )


class Turns:
    """A callback that times the sweeps of a fit, and other work after each of them.

    Parameters
    ----------
    n : int
        Rows; sweeps of a sample do not count.
    work : dict of str to callable
        Each returns its time, in seconds or another unit.
    """

    def __init__(self, n, work):
        self.n = n
        self.work = work
        self.taken = {name: [] for name in ("sweep", *work)}
        self.begin = None

    def __call__(self, entry):
        """Record the sweep that has just ended and do the work."""
        end = time.perf_counter()
        if entry["phase"] != "exact" or entry["rows"] != self.n:
            return
        if self.begin is not None:  # the first exact sweep recomputes all environments
            self.taken["sweep"].append(end - self.begin)
            for name, work in self.work.items():
                self.taken[name].append(work())
        self.begin = time.perf_counter()

    def median(self, name):
        """Return the median time of a kind of work."""
        return statistics.median(self.taken[name])


def fit_in_turns(shape, config, work):
    """Fit one restart whose sweeps alternate with other work.

    Parameters
    ----------
    shape : Shape
    config : dict
        Parameters of `BTNRegressor` besides those of the shape.
    work : dict of str to callable

    Returns
    -------
    turns : Turns
    memory : PeakMemory
    """
    X, y = rows_of(shape)
    turns = Turns(shape.n, work)
    fixed = {"n_init": 1, "prune": False, "anchored": False, "tol": 0.0, "random_state": 0}
    size = {"n_basis": shape.M, "max_rank": shape.R}
    model = BTNRegressor("chebyshev", callback=turns, **parameters_of({**size, **fixed, **config}))
    with machine.PeakMemory() as memory:
        model.fit(X, y)
    return turns, memory


def _seconds(work):
    def timed():
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    return timed


def bare_products(x, m, columns):
    """Return a function that does one mode's matrix products, in arrays that exist."""
    n = len(x)
    basis = Chebyshev(n_basis=m).fit(x[:, 0])
    phi, psi = basis.features(x[:, 0])  # a contiguous row of memory per function
    count, rank = len(columns.multiplicity), columns.n_columns
    rng = np.random.default_rng(0)
    second, mean = rng.standard_normal((count, n)).T, rng.standard_normal((rank, n)).T
    coefficients = rng.standard_normal((count, psi.shape[1]))
    factor = rng.standard_normal((rank, m))
    moments, means = np.empty((count, n)), np.empty((rank, n))

    def work():
        psi.T @ second, mean.T @ phi
        np.matmul(coefficients, psi.T, out=moments)
        np.matmul(factor, phi.T, out=means)

    return work


def bare_solve(m, columns):
    """Return a function that does one mode's Cholesky inverse."""
    size = m * columns.n_columns
    root = np.random.default_rng(0).standard_normal((size, size))
    block = root @ root.T + size * np.eye(size)

    def work():
        inverse = inverse_cholesky(block)[0]  # faster than LAPACK's potrf and potri
        inverse.T @ inverse

    return work


def limits(shape, plan, pool):
    """Return the work to time beside a sweep, with the same threads: products, solve and copy.

    Parameters
    ----------
    shape : Shape
    plan : Plan
        Has the rows of a block.
    pool : Threads
        BLAS must use one thread, as during a fit.

    Returns
    -------
    work : dict of str to callable
        Seconds of all products of a sweep, of all its Cholesky inverses (on one thread, as in a
        sweep), of copying a byte, and of a yardstick: products that are the same for all shapes,
        and show how busy the machine is.
    """
    columns, threads = components(shape.R), pool.count
    x = np.random.default_rng(0).uniform(-1, 1, size=(plan.block_rows, 1))
    bare = [bare_products(x, shape.M, columns) for _ in range(threads)]  # arrays of each thread
    blocks = -(-shape.n // plan.block_rows)
    count = min(-(-blocks // threads), MOST_BLOCKS // threads)  # of each thread
    solve = _seconds(bare_solve(shape.M, columns))
    square = np.ones((400, 400))
    source, target = np.ones((threads, COPIED // threads)), np.zeros((threads, COPIED // threads))

    def repeat(k):
        for _ in range(count):
            bare[k]()

    def measure_yard(_):
        for _ in range(YARD):
            square @ square

    def on_all(fn):
        return _seconds(lambda: list(pool.map(fn, range(threads))))

    products, copy = on_all(repeat), on_all(lambda k: np.copyto(target[k], source[k]))
    return {
        "products": lambda: products() / (count * threads) * blocks * (shape.D - 1),
        "solve": lambda: solve() * (shape.D - 1),
        # a copy reads and writes every number
        "byte": lambda: copy() / (2 * DOUBLE * COPIED),
        "yardstick": on_all(measure_yard),
    }


def measure_sweep(cell):
    """Time the exact sweeps of one shape, and their limit, in this process.

    Parameters
    ----------
    cell : Cell
        The data set is a shape, the configuration has `memory_limit` and `n_jobs`.

    Returns
    -------
    metrics : dict
        Medians: sweep_seconds, products_seconds, solve_seconds, traffic_seconds (of the bytes
        that must move, at the speed of a copy), limit_seconds (the longer of products and traffic,
        plus solve), over_limit (sweep over limit) and yardstick_seconds, which makes shapes
        comparable that were measured at different times. Also what the plan keeps
        (keep_features, stride) and peak_memory_mb of the fit over its input. Only `skipped`, a
        reason, if the shape is not measured.
    """
    shape, threads = Shape.of(cell.dataset), cell.config["n_jobs"]
    plan = plan_of(shape, cell.config["memory_limit"], threads)
    if cell.method == "default" and plan.keep_features and plan.stride == 1:
        return {"skipped": "everything fits below the default limit: the same as `kept`"}
    with local.Threads(threads) as pool, limit_blas():
        turns, memory = fit_in_turns(shape, cell.config, limits(shape, plan, pool))
    seconds = {name: turns.median(name) for name in ("sweep", "products", "solve", "yardstick")}
    moved = moved_bytes(shape, plan.keep_features)
    seconds["traffic"] = moved * turns.median("byte")
    seconds["limit"] = max(seconds["products"], seconds["traffic"]) + seconds["solve"]
    return {f"{name}_seconds": value for name, value in seconds.items()} | {
        **asdict(shape),
        "over_limit": seconds["sweep"] / seconds["limit"],
        "moved_mb": moved / 2**20,
        "copy_gb_per_second": 1e-9 / turns.median("byte"),
        "block_rows": plan.block_rows,
        "keep_features": plan.keep_features,
        "stride": plan.stride,
        "peak_memory_mb": memory.mb,
    }


def measure_epoch(cell):
    """Time exact sweeps in turn with epochs of tnkm's alternating least squares, in this process.

    Parameters
    ----------
    cell : Cell
        The data set is a shape, the configuration has `dtype` of tnkm and keywords of
        `BTNRegressor`.

    Returns
    -------
    metrics : dict
        Medians: sweep_seconds, epoch_seconds and epoch_over_sweep.
    """
    shape, config = Shape.of(cell.dataset), dict(cell.config)
    epoch = _seconds(als_epochs(*rows_of(shape), shape.M, shape.R, dtype=config.pop("dtype")))
    epoch()  # compiles
    turns, _ = fit_in_turns(shape, config, {"epoch": epoch})
    return {
        **asdict(shape),
        "sweep_seconds": turns.median("sweep"),
        "epoch_seconds": turns.median("epoch"),
        "epoch_over_sweep": turns.median("epoch") / turns.median("sweep"),
        "repetitions": len(turns.taken["epoch"]),
    }
