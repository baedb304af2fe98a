"""Data sets of the suites, and the split protocol of the paper."""

import os
from pathlib import Path

import numpy as np
from scipy.special import softmax

FOLDER_VARIABLE = "BTNKM_DATA"


def data_folder():
    """Return the folder that holds the downloaded tables.

    Returns
    -------
    folder : pathlib.Path

    Raises
    ------
    FileNotFoundError
        If the environment does not name an existing folder.
    """
    value = os.environ.get(FOLDER_VARIABLE)
    if not value:
        got, remedy = "is not set", "set"
    elif not Path(value).is_dir():
        got, remedy = f"is {value!r}, which is not a folder", "correct"
    else:
        return Path(value)
    raise FileNotFoundError(
        f"{FOLDER_VARIABLE} must name the folder with the files that benchmarks/README.md lists, "
        f"but it {got}; {remedy} it (export {FOLDER_VARIABLE}=FOLDER) or run a suite that needs no "
        "folder: smoke, sklearn, small, multiclass."
    )


def _paper(name, **keywords):
    """Return a loader of one of the paper's sets."""

    def load():
        from btnkm import datasets

        loader = getattr(datasets, f"load_{name}")
        return loader(return_X_y=True, data_dir=data_folder(), **keywords)

    return load


def _adult():
    """Return the 14 native columns as a DataFrame, text as categories; 1 stands for >50K."""
    X, y = _paper("adult")()
    return X, y.to_numpy()


def _bundled(name, **keywords):
    def load():
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")(return_X_y=True, **keywords)

    return load


def _friedman(number):
    def load():
        from sklearn import datasets

        make = getattr(datasets, f"make_friedman{number}")
        return make(n_samples=1000, noise=1.0, random_state=0)

    return load


def five_probabilities(X):
    """Return the true probabilities of the data set `five`.

    Parameters
    ----------
    X : ndarray of shape (n, 6)
        Inputs in [-1, 1]; the last one has no effect.

    Returns
    -------
    probabilities : ndarray of shape (n, 5)
        The softmax of 3 sin(3 x0) x1, 2 x2, 4 x0 x3, 0 and 3 x4^2 - 1.
    """
    scores = (
        3 * np.sin(3 * X[:, 0]) * X[:, 1],
        2 * X[:, 2],
        4 * X[:, 0] * X[:, 3],
        np.zeros(len(X)),
        3 * X[:, 4] ** 2 - 1,
    )
    return softmax(np.stack(scores, axis=1), axis=1)


def _five():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 6))
    steps = np.cumsum(five_probabilities(X)[:, :-1], axis=1)
    return X, np.sum(rng.uniform(size=(3000, 1)) > steps, axis=1)


def _matrices(diagonal=False, columns=None):
    """Return a loader of a product of 3 by 3 matrices, each a function of one of six inputs.

    If these are diagonal, f is a sum of three products, a CP tensor; else it goes from input to
    input along a chain. The noise is a tenth of the spread of f.
    """

    def load():
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, size=(1200, 6))
        state = np.ones((len(X), 3))
        for x in X.T:
            a, b = (np.eye(3) if diagonal else 0.5) * rng.standard_normal((2, 3, 3))
            step = np.eye(3) + np.multiply.outer(np.sin(2 * x), a)
            step += np.multiply.outer(np.cos(3 * x), b)
            state = np.einsum("nab,nb->na", step, state)
        f = state.sum(axis=1) if diagonal else state[:, 0]
        y = f / np.std(f) + 0.1 * rng.standard_normal(len(f))
        return X if columns is None else X[:, columns], y

    return load


SMALL_ROWS = (16, 20, 30, 45, 70, 100)
SHAPES = (
    lambda x: x,
    lambda x: x**2,
    lambda x: np.sin(2.0 * x),
    np.abs,
    lambda x: np.exp(0.7 * x),
)


def small_table(split):
    """Return the training and the test part of a small random table: another one for each split.

    y is a sum of functions of one to four of two to eight inputs, for half of the tables with a
    product of two of them, in units of its spread, with noise of .05 to .8.
    """
    rng = np.random.default_rng(1000 + split)
    n, d = SMALL_ROWS[split % len(SMALL_ROWS)], int(rng.integers(2, 9))
    shape = (n + 500, d)
    X = rng.standard_normal(shape) if split % 2 else rng.uniform(-1.0, 1.0, shape)
    used = rng.permutation(d)[: int(rng.integers(1, min(d, 4) + 1))]
    f = np.zeros(len(X))
    for j in used:
        function = SHAPES[rng.integers(len(SHAPES))]
        f += (rng.normal() + 0.5 * np.sign(rng.normal())) * function(X[:, j])
    if len(used) > 1 and rng.uniform() < 0.5:
        f += 1.5 * rng.normal() * X[:, used[0]] * X[:, used[1]]
    noise = (0.05, 0.2, 0.5, 0.8)[rng.integers(4)]
    y = f / f.std() + noise * rng.standard_normal(len(f))
    return X[:n], y[:n], X[n:], y[n:]


#: Data sets of which each split is a table of its own: name to a function of the split.
TABLES = {"small": small_table}

#: Name to a function without arguments that returns X, an array (n, D) or a DataFrame, and y (n,).
DATASETS = {
    "yacht": _paper("yacht"),
    "energy-paper": _paper("energy", variant="paper"),
    "energy": _paper("energy"),
    "concrete": _paper("concrete"),
    "airfoil": _paper("airfoil"),
    "diabetes": _bundled("diabetes", scaled=False),
    "friedman1": _friedman(1),
    "friedman2": _friedman(2),
    "friedman3": _friedman(3),
    "spambase": _paper("spambase"),
    "adult": _adult,
    "adult-96": _paper("adult", form="paper96"),
    "digits": _bundled("digits"),
    "wine": _bundled("wine"),
    "five": _five,
    "components": _matrices(diagonal=True),
    "chain": _matrices(),
    "chain-mixed": _matrices(columns=[3, 0, 4, 1, 5, 2]),
}

#: Those that are read from the folder named by BTNKM_DATA.
FOLDER_DATASETS = frozenset(
    {"yacht", "energy-paper", "energy", "concrete", "airfoil", "spambase", "adult", "adult-96"}
)

#: Those whose y are labels.
CLASS_DATASETS = frozenset({"spambase", "adult", "adult-96", "digits", "wine", "five"})


def load_split(dataset, split):
    """Return the training and the test part of one split, in original units.

    Parameters
    ----------
    dataset : str
        A key of `DATASETS` or `TABLES`.
    split : int

    Returns
    -------
    X_train, y_train, X_test, y_test : ndarray
        The inputs are DataFrames where the data set is one.
    """
    if dataset in TABLES:
        return TABLES[dataset](split)
    X, y = DATASETS[dataset]()
    from btnkm.datasets import paper_splits

    train, test = paper_splits(len(y), split)
    rows = getattr(X, "iloc", X)
    return rows[train], y[train], rows[test], y[test]
