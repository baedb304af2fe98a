"""The methods that are compared: how each is built, trained on a split, and asked.

Labels are predicted by the sign of a regression on -1 and 1, as in the paper, except by ``btn``.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from benchmarks.methods import parameters_of
from btnkm.metrics import ClassPredictive, GaussianPredictive, score, score_classes

Array = np.ndarray
CLASS_DATASETS = ("spambase", "adult-96")
N_ROWS = {
    "yacht": 308,
    "energy-paper": 767,
    "concrete": 1030,
    "airfoil": 1503,
    "spambase": 4601,
    "adult-96": 45_222,
}
#: Functions of each input in the paper's Table 4.
FUNCTIONS = {"spambase": 30, "adult-96": 40}


class Method(NamedTuple):
    """A method: its name in tables, its configuration for a data set, and its estimator."""

    label: str
    config: Callable[[str], dict[str, Any]]
    build: Callable[..., Any]


def _btn(**config: Any) -> Any:
    from btnkm import BTNRegressor

    return BTNRegressor(**parameters_of(config))


def _tkrr(**config: Any) -> Any:
    from btnkm.baselines import TKRR

    return _chosen(TKRR, config)


def _spbtn(**config: Any) -> Any:
    from btnkm.baselines import SPBTN

    return _chosen(SPBTN, config)


def _chosen(kind: Any, config: dict[str, Any]) -> Any:
    """Return an estimator; of parameters given as lists, a fifth of the rows selects one value."""
    from sklearn.model_selection import GridSearchCV, ShuffleSplit

    grid = {name: value for name, value in config.items() if isinstance(value, list)}
    model = kind(**{name: value for name, value in config.items() if name not in grid})
    if not grid:
        return model
    fifth = ShuffleSplit(n_splits=1, test_size=0.2, random_state=0)
    return GridSearchCV(model, grid, scoring="neg_mean_squared_error", cv=fifth)


def _literal(**config: Any) -> Any:
    from btnkm.baselines import LiteralBTN

    return LiteralBTN(**config)


def _gp(**config: Any) -> Any:
    from btnkm.baselines import ExactGP

    return ExactGP(**config)


def _seeded(_: str) -> dict[str, Any]:
    return {"random_state": 0}


def _config_tkrr(dataset: str) -> dict[str, Any]:
    # a choice for Adult would take hours
    alpha: Any = 1e-6 if dataset == "adult-96" else [1e-8, 1e-6, 1e-4]
    size = {"n_basis": FUNCTIONS.get(dataset, 20), "max_rank": 10}
    return size | {"alpha": alpha, "random_state": 0}


def _config_spbtn(dataset: str) -> dict[str, Any]:
    size = {"n_basis": FUNCTIONS.get(dataset, 20), "max_rank": 10, "mean_rank": 30}
    if dataset in CLASS_DATASETS:
        # it learns nothing with any functions, learning rates and priors
        return {**size, "max_iter": 5_000, "learning_rate": 0.005, "random_state": 0}
    # with either kind of functions, the steps diverge on some of the sets
    choices = {"basis": ["polynomial", "chebyshev"], "learning_rate": [0.02, 0.005]}
    return {**choices, **size, "max_iter": 10_000, "random_state": 0}


def _config_literal(dataset: str) -> dict[str, Any]:
    rank = 10 if dataset == "adult-96" else 25
    return {"n_basis": FUNCTIONS.get(dataset, 20), "max_rank": rank, "random_state": 0}


def _config_gp(ard: bool) -> Callable[[str], dict[str, Any]]:
    def config(dataset: str) -> dict[str, Any]:
        # with ARD, scikit-learn's gradients have n^2 D numbers
        rows = 1000 if ard and dataset == "spambase" else 2000
        return {"ard": ard, "max_rows": rows, "random_state": 0}

    return config


METHODS = {
    "btn": Method("btnkm", _seeded, _btn),
    "btn-signs": Method("btnkm, signs", _seeded, _btn),
    "gp": Method("GP", _config_gp(False), _gp),
    "gp-ard": Method("GP, ARD", _config_gp(True), _gp),
    "tkrr": Method("T-KRR", _config_tkrr, _tkrr),
    "spbtn": Method("SP-BTN", _config_spbtn, _spbtn),
    "literal": Method("the paper's equations", _config_literal, _literal),
}


def content(dataset: str) -> tuple[int, str]:
    """Return the number of rows of a data set, and a short hash of all that is in it."""
    X, y, X_test, y_test = load_split(dataset, 0)
    digest = hashlib.sha256()
    for array in (X, y, X_test, y_test):
        digest.update(np.ascontiguousarray(array, dtype=float).tobytes())
    return len(y) + len(y_test), digest.hexdigest()[:12]


def load_split(dataset: str, split: int) -> tuple[Array, Array, Array, Array]:
    """Return training inputs and targets, test inputs and targets, of one of the paper's splits."""
    from btnkm import datasets

    variants = {"energy-paper": ("energy", {"variant": "paper"})}
    variants |= {"adult-96": ("adult", {"form": "paper96"})}
    name, keywords = variants.get(dataset, (dataset, {}))
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True, **keywords)
    train, test = datasets.paper_splits(len(y), split)
    return X[train], y[train], X[test], y[test]


def fit(dataset: str, method: str, config: dict[str, Any], X: Array, y: Array) -> Any:
    """Return the fitted estimator."""
    if dataset in CLASS_DATASETS and method == "btn":
        from btnkm import BTNClassifier

        return BTNClassifier(**parameters_of(config)).fit(X, y)
    target = np.where(y > 0, 1.0, -1.0) if dataset in CLASS_DATASETS else y
    with warnings.catch_warnings():
        # of hyperparameters of the GP at the ends of their ranges, sweeps that ran out
        warnings.simplefilter("ignore")
        return METHODS[method].build(**config).fit(X, target)


def scores(dataset: str, model: Any, X: Array, y: Array) -> dict[str, Any]:
    """Return the scores on test rows; those that need a distribution only where there is one."""
    if hasattr(model, "predict_proba"):
        return score_classes(ClassPredictive(model.classes_, model.predict_proba(X)), y)
    predictive = _predictive(model, X)
    if dataset not in CLASS_DATASETS:
        if predictive.std is None:
            return {"rmse": float(np.sqrt(np.mean((predictive.mean - y) ** 2)))}
        return score(predictive, y)
    sign = np.where(y > 0, 1.0, -1.0)
    out: dict[str, Any] = {
        "error": float(np.mean(np.where(predictive.mean > 0, 1.0, -1.0) != sign))
    }
    if predictive.std is not None:
        second = ndtr(predictive.mean / predictive.std)
        proba = np.column_stack([1.0 - second, second])
        out |= score_classes(ClassPredictive([0, 1], proba), (y > 0).astype(int))
        # what the paper reports of labels: the density of -1 and 1, as if they were numbers
        out["nll_of_signs"] = float(-np.mean(predictive.logpdf(sign)))
    return out


def _predictive(model: Any, X: Array) -> Any:
    model = getattr(model, "best_estimator_", model)
    if hasattr(model, "predict_dist"):
        return model.predict_dist(X)
    if "return_std" in signature(model.predict).parameters:
        return GaussianPredictive(*model.predict(X, return_std=True))
    return _Mean(model.predict(X))


class _Mean(NamedTuple):
    mean: Array
    std: Any = None
