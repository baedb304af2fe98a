"""Estimators with a tensor train: whatever works with components works with it."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

from btnkm import BTNClassifier, BTNRegressor, Solver, TensorTrain
from btnkm.core import cavi
from btnkm.core.state import State
from btnkm.core.tt import TT

SMALL = {
    "structure": "tensor",
    "network": TensorTrain(cores="full"),
    "n_basis": 6,
    "max_rank": 3,
    "n_init": 1,
    "max_iter": 30,
    "random_state": 0,
}


def trained(order, **changed):
    """Return an estimator with full cores in the given order."""
    return BTNRegressor(**SMALL | {"network": TensorTrain(order, cores="full")} | changed)


def chain(n, n_inputs, rng, noise=0.1):
    """Return inputs and a function whose every input meets its neighbours only."""
    X = rng.uniform(-1.0, 1.0, (n, n_inputs))
    f = np.sum(np.sin(2.0 * X[:, :-1] + X[:, 1:]), axis=1)
    return X, f + noise * rng.standard_normal(n)


def never_falls(model):
    bounds = model.lower_bounds_
    return np.all(np.diff(bounds) >= -1e-8 * np.abs(bounds[-1]))


def test_a_chain_is_found_and_its_ranks_are_told():
    rng = np.random.default_rng(0)
    X, y = chain(900, 5, rng)
    model = BTNRegressor(**{**SMALL, "max_rank": 5}).fit(X[:600], y[:600])
    assert model.score(X[600:], y[600:]) > 0.95
    assert never_falls(model)
    assert isinstance(model.posterior_[0], State)
    assert isinstance(model.posterior_[0].network, TT)
    assert len(model.rank_) == 4
    assert all(1 <= r <= 5 for r in model.rank_)
    assert model.ranks_.shape == (1, 4)
    interval = model.predict_interval(X[600:], 0.9)
    inside = np.mean((interval[:, 0] <= y[600:]) & (y[600:] <= interval[:, 1]))
    assert 0.8 < inside < 0.98
    assert model.feature_importances_.sum() == pytest.approx(1.0)


def test_ranks_may_be_given_for_every_bond():
    X, y = chain(200, 4, np.random.default_rng(1))
    model = BTNRegressor(**{**SMALL, "max_rank": [2, 4, 1], "solver": Solver(prune=False)}).fit(
        X, y
    )
    assert model.rank_ == (2, 4, 1)
    model = BTNRegressor(**{**SMALL, "max_rank": np.array([2, 1, 2])}).fit(X, y)
    assert all(r <= most for r, most in zip(model.rank_, (2, 1, 2), strict=True))
    grown = BTNRegressor(**{**SMALL, "max_rank": 4, "solver": Solver(initial_rank=1)}).fit(X, y)
    assert max(grown.rank_) > 1


ORDER = r"TensorTrain\(order=...\) must be"


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"network": "mps"}, "network must be"),
        ({"max_rank": [2, 2]}, "max_rank must be"),
        ({"max_rank": [2, 2, 0]}, "max_rank must be"),
        ({"max_rank": [2, 2, 2.5]}, "max_rank must be"),
        ({"network": "cp", "max_rank": [2, 2, 2]}, "max_rank must be"),
        ({"network": TensorTrain("sorted")}, ORDER),
        ({"network": TensorTrain([0, 1, 2])}, ORDER),
        ({"network": TensorTrain([0, 1, 2, 2])}, ORDER),
        ({"network": TensorTrain(["a", "b", "c", "d"])}, ORDER),
        ({"network": TensorTrain([[0], 1, 2, 3])}, ORDER),
        ({"network": TensorTrain(3)}, ORDER),
        ({"network": TensorTrain({0, 1, 2, 3})}, ORDER),
        ({"network": TensorTrain(k for k in range(4))}, ORDER),
        ({"max_rank": np.array(2)}, "max_rank must be"),
        (
            {"solver": Solver(initial_rank=4)},
            r"Solver\(initial_rank=...\) must be at most max_rank",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(changed, match):
    X, y = chain(30, 4, np.random.default_rng(2))
    with pytest.raises(ValueError, match=match):
        BTNRegressor(**{**SMALL, **changed}).fit(X, y)


def test_the_order_is_given_named_or_found():
    rng = np.random.default_rng(3)
    X, y = chain(500, 6, rng, noise=0.02)
    shuffled = rng.permutation(6)
    model = BTNRegressor(**SMALL).fit(X[:, shuffled], y)
    # neighbours of the truth are neighbours again, whichever end comes first
    actual = shuffled[model.mode_order_]
    steps = np.abs(np.diff(actual))
    assert np.sum(steps == 1) >= 4
    frame = pd.DataFrame(X, columns=list("abcdef"))
    named = trained(list("fedcba")).fit(frame, y)
    assert named.mode_order_.tolist() == [5, 4, 3, 2, 1, 0]
    given = trained("given").fit(X, y)
    assert given.mode_order_.tolist() == list(range(6))
    by_place = trained([5, 4, 3, 2, 1, 0]).fit(X, y)
    np.testing.assert_allclose(by_place.predict(X), named.predict(frame))


def test_names_of_columns_may_be_numbers():
    X, y = chain(60, 3, np.random.default_rng(12))
    frame = pd.DataFrame(X, columns=[2, 0, 1])
    model = trained(frame.columns, max_iter=2).fit(frame, y)
    assert model.mode_order_.tolist() == [0, 1, 2]


def test_an_interrupted_choice_of_order_ends_the_fit(monkeypatch):
    X, y = chain(80, 4, np.random.default_rng(14))
    shuffled = [2, 0, 3, 1]
    calls = []

    def interrupted(*args):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return elbo_terms(*args)

    elbo_terms = cavi.elbo_terms
    monkeypatch.setattr(cavi, "elbo_terms", interrupted)
    with pytest.raises(KeyboardInterrupt):
        BTNRegressor(**SMALL, n_jobs=1).fit(X[:, shuffled], y)


@pytest.mark.filterwarnings("ignore:no input was found")
def test_categories_alone_are_shrunk_to_the_average():
    rng = np.random.default_rng(15)
    levels = np.append(np.repeat(np.arange(35), 12), np.repeat(np.arange(35, 45), 2))
    y = 10.0 + 0.3 * rng.standard_normal(45)[levels] + rng.standard_normal(len(levels))
    frame = pd.DataFrame({"level": [f"l{k}" for k in levels]})
    model = BTNRegressor(**SMALL).fit(frame, y)
    few = model.predict(frame[levels >= 35])
    assert np.abs(few.mean() - y.mean()) < 0.15


def test_importance_and_functions_stand_at_their_columns():
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, (300, 5))
    X[:, 3] = 2.0  # never varies, and has no core
    y = 3.0 * X[:, 4] + X[:, 1] * X[:, 4] + 0.1 * rng.standard_normal(300)
    model = trained([4, 3, 2, 1, 0]).fit(X, y)
    assert np.argmax(model.feature_importances_) == 4
    assert model.feature_importances_[1] > 10 * model.feature_importances_[[0, 2]].max()
    assert model.feature_importances_[3] == 0.0
    assert model.n_basis_[3] == 1
    assert model.mode_order_.tolist() == [4, 2, 1, 0, 3]
    again = trained(model.mode_order_).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "negative_binomial"])
def test_likelihoods_weights_and_draws(likelihood):
    rng = np.random.default_rng(5)
    X, y = chain(300, 3, rng)
    if likelihood == "negative_binomial":
        y = rng.poisson(np.exp(0.5 + 0.5 * y)).astype(float)
    weight = rng.integers(1, 3, 300).astype(float)
    model = BTNRegressor(**SMALL, likelihood=likelihood).fit(X, y, sample_weight=weight)
    assert never_falls(model)
    assert model.score(X, y) > (0.15 if likelihood == "negative_binomial" else 0.9)
    draws = model.sample_y(X[:20], 1000)
    distribution = model.predict_dist(X[:20])
    spread = distribution.std / np.sqrt(1000)
    assert np.all(np.abs(draws.mean(axis=1) - distribution.mean) < 6 * spread)


def test_tables_with_missing_values_text_and_many_categories():
    rng = np.random.default_rng(6)
    n = 600
    shop = rng.integers(60, size=n)
    effect = rng.standard_normal(60)
    frame = pd.DataFrame(
        {
            "x": rng.uniform(-1.0, 1.0, n),
            "colour": rng.choice(["red", "green", None], n),
            "shop": [f"s{k}" for k in shop],
            "z": rng.uniform(-1.0, 1.0, n),
        }
    )
    y = frame["x"] * frame["z"] + effect[shop] + (frame["colour"] == "red")
    y = y + 0.1 * rng.standard_normal(n)
    frame.loc[:40, "x"] = np.nan
    model = BTNRegressor(**{**SMALL, "max_iter": 40}).fit(frame[100:], y[100:])
    assert never_falls(model)
    assert model.score(frame[:100], y[:100]) > 0.7
    new = frame[:3].copy()
    new.loc[new.index[0], "shop"] = "never seen"
    assert np.all(np.isfinite(model.predict(new)))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_classes(n_classes):
    rng = np.random.default_rng(7)
    X, f = chain(700, 4, rng)
    edges = np.quantile(f, np.linspace(0, 1, n_classes + 1)[1:-1])
    label = np.searchsorted(edges, f)
    model = BTNClassifier(**SMALL).fit(X[:500], label[:500])
    assert never_falls(model)
    assert model.score(X[500:], label[500:]) > (0.85 if n_classes == 2 else 0.6)
    proba = model.predict_proba(X[500:])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert len(model.rank_) == (3 if n_classes == 2 else 4)
    bonds = [2] * len(model.rank_)
    few = {**SMALL, "max_rank": bonds, "max_iter": 3}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "no input was found")  # in 100 rows
        listed = BTNClassifier(**few).fit(X[:100], label[:100])
    assert max(listed.rank_) <= 2
    weights = np.ones(500)
    np.testing.assert_allclose(
        BTNClassifier(**SMALL).fit(X[:500], label[:500], weights).predict_proba(X[500:]), proba
    )


def test_restarts_blocks_and_processes_make_no_difference():
    X, y = chain(400, 4, np.random.default_rng(8))
    settings = {**SMALL, "n_init": 3, "max_iter": 12}
    first = BTNRegressor(**settings, n_jobs=1).fit(X, y)
    two = BTNRegressor(**settings, n_jobs=2).fit(X, y)
    np.testing.assert_allclose(first.predict(X), two.predict(X), rtol=1e-6, atol=1e-8)
    assert len(first.posterior_) == 3
    tight = BTNRegressor(**settings, n_jobs=1, memory_limit=0.02).fit(X, y)
    np.testing.assert_allclose(first.predict(X), tight.predict(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(MemoryError, match="memory_limit must be at least"):
        BTNRegressor(**{**settings, "max_rank": 60, "n_basis": 20}, memory_limit=0.02).fit(X, y)
    again = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(again.predict(X), first.predict(X))


def test_a_hundred_inputs_neither_overflow_nor_vanish():
    rng = np.random.default_rng(9)
    X = rng.uniform(-1.0, 1.0, (1200, 100))
    y = 5.0 * X[:, 3] * X[:, 4] + 3.0 * X[:, 90] + 0.1 * rng.standard_normal(1200)
    settings = {"n_basis": 3, "max_rank": 4, "max_iter": 15, "solver": Solver(anchored=True)}
    model = trained("given", **settings).fit(X[:1000], y[:1000])
    assert never_falls(model)
    assert np.all(np.isfinite(model.predict(X[1000:], return_std=True)))
    assert model.score(X[1000:], y[1000:]) > 0.5
    assert model.feature_importances_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("n_inputs", [1, 2])
def test_one_and_two_inputs(n_inputs):
    rng = np.random.default_rng(10)
    X = rng.uniform(-1.0, 1.0, (120, n_inputs))
    y = np.sin(3.0 * X.sum(axis=1)) + 0.05 * rng.standard_normal(120)
    model = BTNRegressor(**SMALL).fit(X, y)
    assert len(model.rank_) == n_inputs - 1
    assert model.score(X, y) > 0.9


def test_it_can_be_searched_over():
    X, y = chain(120, 3, np.random.default_rng(11))
    search = GridSearchCV(
        BTNRegressor(**{**SMALL, "max_iter": 5}), {"network": ["cp", "tt"]}, cv=2
    ).fit(X, y)
    assert search.best_params_["network"] in ("cp", "tt")
