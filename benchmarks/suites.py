"""The suites that ``python -m benchmarks run`` knows.

A new suite is one entry of `SUITES`. A suite that measures something other than accuracy
gives its own `measure`: a function at the top level of a module that takes a Cell and
returns a dict that JSON can hold.
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.accuracy import measure_accuracy, task_of
from benchmarks.networks import measure_network
from benchmarks.runs.experiment import Cell
from benchmarks.scale_compare import SYNTHETIC, measure_compare
from benchmarks.scale_stream import STREAMS, measure_stream
from benchmarks.scale_sweep import EPOCH, measure_epoch, measure_sweep, shapes


@dataclass(frozen=True)
class Suite:
    """Describe a suite.

    Parameters
    ----------
    description : str
        One line for the help text.
    datasets : tuple of str
        All of one task, which says what methods there are, unless `defaults` does.
    methods : tuple of str
        What runs unless the user asks for others.
    n_splits : int
    measure : callable
    defaults : dict
        Default configuration of each method, by name.
    """

    description: str
    datasets: tuple
    methods: tuple = ("btn", "gp", "hgb")
    n_splits: int = 10
    measure: Callable = measure_accuracy
    defaults: dict | None = None

    def default_config(self, method):
        """Return the configuration a method has unless the user changes it."""
        if self.defaults is not None:
            return dict(self.defaults.get(method, {}))
        return dict(self._methods[method][1])

    def known_methods(self):
        """Return the names a user may ask for."""
        return tuple(self._methods) if self.defaults is None else tuple(self.defaults)

    @property
    def _methods(self):
        return task_of(self.datasets[0]).methods


SUITES = {
    "paper": Suite(
        "the paper's regression sets on its ten splits (needs BTNKM_DATA)",
        ("yacht", "energy-paper", "concrete", "airfoil"),
    ),
    "energy": Suite(
        "energy as the literature uses it: 8 inputs to heating load (needs BTNKM_DATA)",
        ("energy",),
    ),
    "sklearn": Suite(
        "sets that come with scikit-learn: diabetes and Friedman's three functions",
        ("diabetes", "friedman1", "friedman2", "friedman3"),
    ),
    "small": Suite(
        "sixty random tables of 16 to 100 rows, a split each",
        ("small",),
        n_splits=60,
    ),
    "classify": Suite(
        "the paper's two sets of two classes on its ten splits (needs BTNKM_DATA)",
        ("spambase", "adult", "adult-96"),
        ("btn", "hgb", "logistic"),
    ),
    "boosting": Suite(
        "btnkm, boosting and NGBoost on the paper's six sets (needs BTNKM_DATA and ngboost)",
        ("yacht", "energy-paper", "concrete", "airfoil", "spambase", "adult"),
        ("btn", "hgb", "ngboost"),
        measure=measure_compare,
        defaults={
            "btn": {"random_state": 0, "n_jobs": 1},
            "hgb": {"random_state": 0},
            "ngboost": {"random_state": 0},
        },
    ),
    "multiclass": Suite(
        "sets of three to ten classes: digits, wine and one with known probabilities",
        ("digits", "wine", "five"),
        ("btn", "btn-ovr", "hgb", "logistic"),
    ),
    "networks": Suite(
        "CP against tensor trains: the paper's six sets and three known truths (needs BTNKM_DATA)",
        (
            "yacht",
            "energy-paper",
            "concrete",
            "airfoil",
            "spambase",
            "adult",
            "components",
            "chain",
            "chain-mixed",
        ),
        ("cp", "tt", "tt-full"),
        measure=measure_network,
        defaults={
            "cp": {"random_state": 0},
            "tt": {"network": "tt", "random_state": 0},
            "tt-full": {"network": "tt", "cores": "full", "random_state": 0},
            "tt-full-given": {
                "network": "tt",
                "cores": "full",
                "mode_order": "given",
                "random_state": 0,
            },
        },
    ),
    "scale-sweep": Suite(
        "time and memory of a sweep against rows, inputs, functions and rank, and their limit",
        shapes(),
        ("kept", "default"),
        3,
        measure_sweep,
        {
            "kept": {"memory_limit": 18.0, "n_jobs": 2, "warm_sweeps": 2, "max_iter": 9},
            "default": {"memory_limit": 1.4, "n_jobs": 2, "warm_sweeps": 2, "max_iter": 4},
        },
    ),
    "scale-tnkm": Suite(
        "a sweep in turn with an epoch of tnkm's alternating least squares (needs tnkm)",
        (str(EPOCH),),
        ("float32", "float64"),
        3,
        measure_epoch,
        {
            dtype: {"dtype": dtype, "n_jobs": 2, "warm_sweeps": 2, "max_iter": 6}
            for dtype in ("float32", "float64")
        },
    ),
    "scale-compare": Suite(
        "btnkm beside other libraries, 1,000 to a million rows and Adult (needs BTNKM_DATA)",
        (*SYNTHETIC, "adult"),
        ("btn", "btn-short", "tnkm", "svgp", "gp", "hgb", "ngboost"),
        3,
        measure_compare,
        {
            name: {"random_state": 0, **more}
            for name, more in {
                "btn": {},
                "btn-short": {"n_init": 1, "max_iter": 20, "memory_limit": 8.0},
                "tnkm": {},
                "svgp": {},
                "gp": {},
                "hgb": {},
                "ngboost": {},
            }.items()
        },
    ),
    "scale-stream": Suite(
        "batches one after the other beside all rows at once",
        tuple(STREAMS),
        ("at-once", "first", "stream", "sums", "forget"),
        3,
        measure_stream,
        {
            name: {"n_init": 2, "random_state": 0, **more}
            for name, more in {
                "at-once": {},
                "first": {},
                "stream": {},
                "sums": {},
                "forget": {"forget": 0.9},
            }.items()
        },
    ),
    "smoke": Suite("one split of diabetes, to see that everything runs", ("diabetes",), n_splits=1),
}


def _chosen(what, asked, known):
    for name in asked:
        if name not in known:
            raise ValueError(
                f"{what} must be among {', '.join(known)}, got {name!r}; choose from that list."
            )
    return asked


def cells_of(suite, *, n_splits=None, methods=None, datasets=None, overrides=None):
    """List the cells of a suite, data set by data set and split by split.

    Parameters
    ----------
    suite : Suite
    n_splits : int, optional
        Take the first splits only.
    methods, datasets : sequence of str, optional
        Take these instead of all.
    overrides : dict of str to dict, optional
        Changes to the default configuration, by method.

    Returns
    -------
    cells : list of Cell
    """
    methods = _chosen("a method", methods or suite.methods, suite.known_methods())
    datasets = _chosen("a data set", datasets or suite.datasets, suite.datasets)
    overrides = overrides or {}
    _chosen("the method of a setting", tuple(overrides), methods)
    if n_splits is not None and not 1 <= n_splits <= suite.n_splits:
        raise ValueError(
            f"the number of splits must be between 1 and {suite.n_splits} in this suite, "
            f"got {n_splits}; leave --splits out for all."
        )
    return [
        Cell(dataset, split, method, suite.default_config(method) | overrides.get(method, {}))
        for dataset in datasets
        for split in range(n_splits or suite.n_splits)
        for method in methods
    ]
