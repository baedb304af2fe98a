"""Small fitted models of every kind, and rows to ask them about."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from btnkm import BTNClassifier, BTNRegressor, Solver, TensorTrain
from btnkm.bases import BSpline, Fourier, Polynomial, Spiked

SMALL = {"n_init": 2, "n_basis": 5, "max_rank": 3, "max_iter": 6, "random_state": 0, "n_jobs": 1}
SMALL |= {"structure": "tensor"}  # main effects: see test_sums_exports
TRAIN = {**SMALL, "network": TensorTrain(cores="full", order="given")}
N, NEW = 160, 40


def smooth(n_inputs: int, seed: int = 0, n: int = N + NEW) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (n, n_inputs), the last rows out of range, and a function of two of them."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, n_inputs))
    X[-5:] *= 2.0
    return X, np.sin(X[:, 0]) + 0.5 * X[:, -1] * np.cos(X[:, 0])


def mixed(
    seed: int = 1, n_categories: int = 4, gaps: float = 0.15
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return columns of every kind with missing values, and a target; new rows are last.

    Of those, some have categories never seen and missing values where training saw none.
    """
    rng = np.random.default_rng(seed)
    n = N + NEW
    level = rng.integers(n_categories, size=n)
    days = rng.integers(0, 700, n)
    size = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "size": size,
            "place": np.array([f"level {k}" for k in range(n_categories)], dtype=object)[level],
            "since": pd.Timestamp("2021-03-01") + pd.to_timedelta(days, "D"),
            "took": pd.to_timedelta(rng.integers(1, 9000, n), "s"),
            "flag": rng.random(n) < 0.4,
            "pay": np.where(rng.random(n) < 0.4, 0.0, rng.gamma(2.0, 10.0, n)),
            "whole": rng.uniform(size=n),
        }
    )
    y = np.sin(size) + 0.4 * (level % 3) + 0.001 * days + 0.5 * (frame["pay"] == 0)
    y = y.to_numpy() + 0.1 * rng.standard_normal(n)
    for name in ("size", "place", "since", "pay"):
        frame[name] = frame[name].mask(rng.random(n) < gaps)
    frame.loc[N + 1, "place"] = frame.loc[N + 2, "place"] = "never seen"
    frame.loc[[N + 2, N + 4], "whole"] = np.nan
    return frame, y


def _numbers(y: np.ndarray, scale: float = 0.1) -> np.ndarray:
    return y + scale * np.random.default_rng(9).standard_normal(len(y))


def uneven(frame: pd.DataFrame, y: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a mixed table and its target with noise whose level depends on three columns."""
    level = 0.05 + np.maximum(frame["size"].fillna(0.0), 0.0) + 0.5 * (frame["place"] == "level 1")
    level += 1.0 * frame["pay"].isna()
    return frame, y + level.to_numpy() * np.random.default_rng(9).standard_normal(len(y))


def _regressor(X, y, **parameters):
    some = slice(0, N)
    X_new = X.iloc[N:] if hasattr(X, "iloc") else X[N:]
    known = X.iloc[some] if hasattr(X, "iloc") else X[some]
    return BTNRegressor(**(SMALL | parameters)).fit(known, y[some]), X_new


def _classifier(X, labels, **parameters):
    return BTNClassifier(**(SMALL | parameters)).fit(X[:N], labels[:N]), X[N:]


def _bases():
    X, y = smooth(4)
    basis = {
        0: Fourier(n_basis=5, lengthscale=0.5),
        1: BSpline(n_basis=6, degree=2),
        2: Polynomial(n_basis=4),
        3: Spiked(Polynomial(n_basis=4, offset=0.0)),
    }
    X[: N // 3, 3] = 0.5
    return _regressor(X, _numbers(y), basis=basis)


def _gone_on():
    X, y = mixed(n_categories=3)
    known = X.iloc[:N].ffill().bfill()
    model = BTNRegressor(**(SMALL | {"warm_start": True})).fit(known.iloc[: N // 2], y[: N // 2])
    # categories and missing values that come later stand at the end
    more = X.iloc[N // 2 : N].copy()
    more.loc[more.index[:30], "place"] = "later"
    return model.fit(more, y[N // 2 : N]), X.iloc[N:]


def _three(X, y):
    return np.array(["low", "middle", "high"], dtype=object)[np.digitize(y, [-0.5, 0.5])]


def _counts(X, y):
    return np.random.default_rng(3).poisson(np.exp(1.0 + y)).astype(float)


MAKERS = {
    "gaussian": lambda: _regressor(smooth(3)[0], 300.0 + 20.0 * _numbers(smooth(3)[1])),
    "one input": lambda: _regressor(smooth(1)[0], _numbers(smooth(1)[1])),
    "bases": _bases,
    "mixed": lambda: _regressor(*mixed()),
    "no gaps in training": lambda: _regressor(*mixed(gaps=0.0)),
    "many levels": lambda: _regressor(*mixed(n_categories=30), solver=Solver(anchored=True)),
    "gone on": _gone_on,
    "twelve inputs": lambda: _regressor(smooth(12)[0], _numbers(smooth(12)[1])),
    "sixty inputs": lambda: _regressor(smooth(60)[0], _numbers(smooth(60)[1]), max_iter=3),
    "student t": lambda: _regressor(
        smooth(3)[0], _numbers(smooth(3)[1], 0.3), likelihood="student_t"
    ),
    "counts": lambda: _regressor(smooth(3)[0], _counts(*smooth(3)), likelihood="negative_binomial"),
    "varying noise": lambda: _regressor(
        *uneven(*mixed()), noise="varying", structure="sums+tensor"
    ),
    "varying noise, student t": lambda: _regressor(
        *uneven(*mixed(n_categories=30)), noise="varying", likelihood="student_t"
    ),
    "two classes": lambda: _classifier(smooth(3)[0], _numbers(smooth(3)[1]) > 0.2),
    "balanced": lambda: _classifier(
        smooth(3)[0], _numbers(smooth(3)[1]) > 1.0, class_weight="balanced"
    ),
    "least squares": lambda: _classifier(
        smooth(3)[0], _numbers(smooth(3)[1]) > 0.2, likelihood="least_squares"
    ),
    "three classes": lambda: _classifier(smooth(3)[0], _three(*smooth(3))),
    "three classes, twelve inputs": lambda: _classifier(smooth(12)[0], _three(*smooth(12))),
    "train": lambda: _regressor(smooth(4)[0], _numbers(smooth(4)[1]), **TRAIN),
    "train of a mixed table": lambda: _regressor(
        *mixed(n_categories=30), **TRAIN, solver=Solver(prune=False)
    ),
    "train of three classes": lambda: _classifier(smooth(3)[0], _three(*smooth(3)), **TRAIN),
}


@cache
def fitted(name: str):
    """Return a fitted model and rows it has not seen."""
    return MAKERS[name]()
