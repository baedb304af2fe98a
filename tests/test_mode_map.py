"""How networks lie over a table: candidates, the rows that judge them, and starts of many kinds."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from btnkm import BTNClassifier, BTNRegressor, TensorTrain
from btnkm.bases import Chebyshev
from btnkm.core.cp import CP
from btnkm.core.tt import TT
from btnkm.execution import fitting
from btnkm.structures import search
from btnkm.structures.candidates import share_out
from btnkm.structures.mode_map import make_mode_map
from btnkm.structures.stacking import copies, folds, stack

SMALL = {"network": "tt", "n_basis": 5, "max_rank": 3, "max_iter": 12, "random_state": 0}
SMALL |= {"structure": "tensor"}


def matrices(n, rng, diagonal):
    """Return six inputs and a product of 3 by 3 matrices of them, with little noise."""
    X = rng.uniform(-1.0, 1.0, (n, 6))
    state = np.ones((n, 3))
    for x in X.T:
        a = 0.7 * rng.standard_normal((3, 3)) * (np.eye(3) if diagonal else 1.0)
        step = np.eye(3) + np.multiply.outer(np.sin(2.0 * x), a)
        state = np.einsum("nab,nb->na", step, state)
    f = state.sum(axis=1) if diagonal else state[:, 0]
    return X, f / f.std() + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize(
    ("n", "count", "held_out"), [(20, 5, 20), (240, 5, 240), (1000, 1, 200), (9000, 1, 800)]
)
def test_folds_hold_out_enough_rows_and_none_twice(n, count, held_out):
    cuts = list(folds(n, 200, np.random.default_rng(0)))
    assert len(cuts) == count
    out = np.concatenate([away for _, away in cuts])
    assert len(out) == len(set(out)) == held_out
    for rows, away in cuts:
        assert not set(rows) & set(away)
        assert len(rows) + len(away) == min(n, 4000)


def test_weights_are_those_of_the_best_mixture():
    rng = np.random.default_rng(0)
    y = np.where(rng.uniform(size=4000) < 0.3, -2.0, 2.0) + rng.standard_normal(4000)
    scores = np.array([-0.5 * (y - at) ** 2 for at in (-2.0, 2.0, 8.0)])
    weights = stack(scores, np.ones(4000), np.zeros(3))
    np.testing.assert_allclose(weights, [0.3, 0.7, 0.0], atol=0.02)

    def value(w, weight):
        return weight @ np.log(w @ np.exp(scores))

    for other in rng.dirichlet(np.ones(3), 200):
        assert value(other, np.ones(4000)) <= value(weights, np.ones(4000)) + 1e-6
    # a weight of k is k rows
    times = rng.integers(1, 4, 4000)
    prior = np.array([0.0, 0.0, 300.0])
    first, other = (
        stack(scores, times.astype(float), prior),
        stack(np.repeat(scores, times, axis=1), np.ones(sum(times)), prior),
    )
    np.testing.assert_allclose(first, other)
    assert first[2] == pytest.approx(300 / (300 + sum(times)), rel=0.05)
    # what could not be fitted has no weight
    scores[1] = -np.inf
    assert stack(scores, np.ones(4000), np.zeros(3))[1] == 0.0
    np.testing.assert_allclose(stack(np.zeros((2, 5)), np.ones(5), np.zeros(2)), 0.5)


@pytest.mark.parametrize(
    ("n_starts", "weights", "counts"),
    [
        (8, (0.09, 0.0, 0.91), [1, 0, 7]),
        (8, (0.39, 0.61, 0.0), [3, 5, 0]),
        (8, (0.01, 0.04, 0.95), [0, 0, 8]),
        (2, (0.16, 0.5, 0.34), [0, 1, 1]),
        (1, (0.4, 0.6), [0, 1]),
        (3, (0.5, 0.5), [2, 1]),
        (3, (1.0,), [3]),
    ],
)
def test_restarts_are_shared_out(n_starts, weights, counts):
    assert share_out(n_starts, np.array(weights)) == counts


def test_folds_divide_every_class():
    labels = np.repeat([0, 1, 2], [60, 12, 3])
    cuts = list(folds(75, 200, np.random.default_rng(8), labels))
    for rows, out in cuts:
        assert np.sum(labels[rows] == 2) == 3
        counts = np.bincount(labels[out], minlength=2)
        assert counts[0] == 12
        assert counts[1] in (2, 3)
    assert sorted(np.concatenate([out for _, out in cuts])) == list(range(72))


def test_copies_of_a_row_are_held_out_together():
    rng = np.random.default_rng(1)
    distinct = rng.standard_normal((60, 2))
    distinct[:3, 1] = np.nan
    chosen = rng.integers(0, 60, 200)
    sample = SimpleNamespace(n=200, codes=list(distinct[chosen].T), y=np.arange(60.0)[chosen])
    numbers = copies(sample)
    np.testing.assert_array_equal(numbers[:, None] == numbers, chosen[:, None] == chosen)
    cuts = list(folds(200, 200, np.random.default_rng(0), group=numbers))
    assert cuts
    for fitted, out in cuts:
        assert not set(chosen[fitted]) & set(chosen[out])
        assert set(chosen[fitted]) | set(chosen[out]) == set(chosen)


def test_rows_that_may_agree_by_chance_are_no_copies():
    rng = np.random.default_rng(1)
    codes = list(rng.integers(0, 2, (3, 400)).astype(float))
    sample = SimpleNamespace(n=400, codes=codes, y=rng.integers(0, 2, 400).astype(float))
    np.testing.assert_array_equal(copies(sample), np.arange(400))
    sample.y = rng.poisson(2.0, 400).astype(float)
    np.testing.assert_array_equal(copies(sample), np.arange(400))
    sample.y = rng.standard_normal(400)  # tells all rows apart
    assert len(np.unique(copies(sample))) == 400


def test_copies_need_no_column_that_tells_all_rows_apart():
    rng = np.random.default_rng(1)
    distinct = rng.integers(0, 60, (5, 200)).astype(float)
    codes = list(np.tile(distinct, 2))
    sample = SimpleNamespace(n=400, codes=codes[:4], y=codes[4])
    np.testing.assert_array_equal(copies(sample)[:200], copies(sample)[200:])


def test_parts_of_copied_rows_are_no_larger_than_those_of_others():
    group = np.repeat(np.arange(2_000), 20)
    for fitted, out in folds(len(group), 200, np.random.default_rng(0), group=group):
        assert len(fitted) + len(out) <= 10_000
        assert len(out) == pytest.approx(2_000, rel=0.05)


def test_arranged_inputs_have_their_own_features():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (30, 4))
    bases = [Chebyshev(n_basis=3 + j).fit(x) for j, x in enumerate(X.T)]
    for full, anchored, extra in [(False, False, 0), (False, True, 1), (True, True, 0)]:
        mode_map = make_mode_map(
            [3, 0, 2],
            bases,
            X.T,
            np.ones((4, 30)),
            full_cores=full,
            anchored=anchored,
            many_outputs=False,
        )
        assert mode_map.first_input == extra
        features = mode_map.features(X.T, slice(5, 15))
        assert [phi.shape[0] for phi, _ in features] == [10] * (3 + extra)
        np.testing.assert_allclose(mode_map.codes(X.T)[extra], X[:, 3])
        wide = [phi.shape[1] for phi, _ in features][extra:]
        assert wide == [6, 3, 5]


def test_rows_held_out_tell_a_chain_from_a_sum_of_products():
    rng = np.random.default_rng(2)
    for diagonal in (True, False):
        X, y = matrices(900, rng, diagonal)
        settings = {**SMALL, "max_rank": 10 if diagonal else 4, "max_iter": 30, "n_init": 1}
        model = BTNRegressor(**settings | {"network": TensorTrain("given")}).fit(X, y)
        assert model.cores_ == ["diagonal" if diagonal else "full"]
        assert len(model.rank_) == 5
        assert model.score(X, y) > 0.9


@pytest.fixture
def evenly(monkeypatch):
    """Give every candidate the same weight."""
    monkeypatch.setattr(search, "stack", lambda scores, *_: np.full(len(scores), 1 / len(scores)))


def test_restarts_of_two_kinds_make_one_prediction(capsys, evenly):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1.0, 1.0, (150, 4))
    y = np.sin(2.0 * X[:, 0] + X[:, 1]) + X[:, 2] + 0.3 * rng.standard_normal(150)
    model = BTNRegressor(**SMALL, n_init=4, verbose=1).fit(X, y)
    assert "held out" in capsys.readouterr().out
    assert sorted(set(model.cores_)) == ["diagonal", "full"]
    assert sum(c["weight"] for c in model.structures_) == pytest.approx(1.0)
    densities = np.array([c["log_density"] for c in model.structures_])
    assert np.all(np.abs(densities - model.predict_dist(X).logpdf(y).mean()) < 0.3)  # of y itself
    for candidate in model.structures_:
        cores = {model.cores_[k] for k in candidate["restarts"]}
        assert cores <= {candidate["cores"]}
    assert sorted(k for c in model.structures_ for k in c["restarts"]) == [0, 1, 2, 3]
    assert {len(entry["rank"]) for entry in model.history_} == {3}
    assert {type(state.network) for state in model.posterior_} == {CP, TT}
    assert model.ranks_.shape == (4, 3)
    assert {entry["restart"] for entry in model.history_} == {0, 1, 2, 3}
    parts = []
    for k in range(4):
        single = pickle.loads(pickle.dumps(model))
        single.posterior_ = single.posterior_[k : k + 1]
        single._mode_maps = single._mode_maps[k : k + 1]
        single._widenings = single._widenings[k : k + 1]
        single.weights_ = np.ones(1)
        parts.append(single.predict(X, return_std=True))
    means, stds = np.array(parts).transpose(1, 0, 2)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, model.weights_ @ means)
    between = model.weights_ @ (means - mean) ** 2
    np.testing.assert_allclose(std**2, model.weights_ @ stds**2 + between)
    assert np.ptp(means, axis=0).max() > 1e-3  # they do differ
    draws = model.sample_y(X[:10], 4000)
    assert np.all(np.abs(draws.mean(axis=1) - mean[:10]) < 6 * std[:10] / np.sqrt(4000))
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert np.argmin(model.feature_importances_) == 3
    again = BTNRegressor(**SMALL, n_init=4).fit(X, y)
    np.testing.assert_array_equal(again.predict(X, return_std=True)[0], mean)


def test_tables_and_classes_of_every_kind(evenly):
    rng = np.random.default_rng(4)
    n = 240
    frame = pd.DataFrame(
        {
            "x": rng.uniform(-1.0, 1.0, n),
            "colour": rng.choice(["red", "green", None], n),
            "shop": [f"s{k}" for k in rng.integers(12, size=n)],
            "z": rng.uniform(-1.0, 1.0, n),
            "same": 1.0,
        }
    )
    frame.loc[:20, "x"] = np.nan
    f = frame["x"].fillna(0.5) * 2.0 + (frame["colour"] == "red") + frame["z"] * frame["x"].abs()
    label = np.digitize(f.fillna(0.0) + 0.2 * rng.standard_normal(n), [0.0, 1.0])
    weight = rng.integers(1, 3, n)
    model = BTNClassifier(**SMALL, n_init=3).fit(frame, label, sample_weight=weight)
    assert model.predict_proba(frame).shape == (n, 3)
    assert model.score(frame, label) > 0.6
    assert model.predict_proba_interval(frame[:3]).shape == (3, 3, 2)
    counts = BTNRegressor(**SMALL, n_init=3, likelihood="negative_binomial").fit(frame, label)
    assert np.all(np.isfinite(counts.sample_y(frame[:30], 5)))
    assert counts.n_basis_[4] == 1


def test_a_stop_keeps_the_restarts_of_the_kinds_before(evenly):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (120, 3))
    y = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.standard_normal(120)
    whole = BTNRegressor(**SMALL, n_init=4, n_jobs=1).fit(X, y)
    first = whole.cores_[0]
    others = next(k for k, kind in enumerate(whole.cores_) if kind != first)

    def stop(entry):
        return entry["restart"] == others

    stopped = BTNRegressor(**SMALL, n_init=4, n_jobs=1, callback=stop).fit(X, y)
    assert stopped.cores_ == whole.cores_[: others + 1]  # it went on from a posterior
    assert "callback" in stopped.stop_reason_
    assert not stopped.converged_

    def interrupt(entry):
        if stop(entry):
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="Interrupted"):
        stopped = BTNRegressor(**SMALL, n_init=4, n_jobs=1, callback=interrupt).fit(X, y)
    assert stopped.cores_ == whole.cores_[: others + 1]


def test_ctrl_c_and_want_of_memory_between_kinds_keep_what_there_is(monkeypatch, evenly):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (120, 3))
    y = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.standard_normal(120)
    how = {**SMALL, "max_iter": 26}  # more than fits of some rows have
    whole = BTNRegressor(**how, n_init=4, n_jobs=1).fit(X, y)
    first = whole.cores_[0], whole.structures_[0]["restarts"]
    plan = fitting.plan_restarts
    for stops, warning in ((KeyboardInterrupt, ConvergenceWarning), (MemoryError, UserWarning)):
        left = [len(whole.structures_[0]["restarts"])]

        def fails(settings, n, *rest, left=left, stops=stops, **where):
            if n == len(y) and settings.schedule.max_iter == 26:  # in earnest, of all rows
                if not left[0]:
                    raise stops
                left[0] -= settings.n_init
            return plan(settings, n, *rest, **where)

        monkeypatch.setattr(fitting, "plan_restarts", fails)
        model = BTNRegressor(**how, n_init=4, n_jobs=1)
        with pytest.warns(warning):
            model.fit(X, y)
        assert (model.cores_[0], model.structures_[0]["restarts"]) == first
        assert len(model.posterior_) == len(first[1])


def test_a_candidate_without_room_has_no_restart():
    rng = np.random.default_rng(12)
    X = rng.uniform(-1.0, 1.0, (200, 4))
    y = X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(200)
    large = {**SMALL, "max_rank": 30, "n_basis": 8, "max_iter": 3, "n_init": 1}
    large |= {"memory_limit": 0.02}
    model = BTNRegressor(**large | {"network": TensorTrain("given")}).fit(X, y)
    assert model.cores_ == ["diagonal"]
    assert model.structures_[1]["weight"] == 0.0
    with pytest.raises(MemoryError):
        BTNRegressor(**large | {"network": TensorTrain("given", "full")}).fit(X, y)


def test_a_failed_fit_leaves_nothing():
    X = np.random.default_rng(9).uniform(-1.0, 1.0, (60, 3))
    how = SMALL | {"network": TensorTrain("given", "full")}
    model = BTNRegressor(**how, n_init=2, n_jobs=1)
    model.callback = lambda entry: True
    with pytest.raises(RuntimeError, match="callback"):
        model.fit(X, X[:, 0])
    assert not [name for name in vars(model) if name.endswith("_") and name != "n_features_in_"]


def test_many_inputs_have_as_many_bonds_in_every_restart(evenly):
    rng = np.random.default_rng(10)
    X = rng.uniform(-1.0, 1.0, (100, 10))  # components are anchored, with amplitudes
    y = X[:, 0] + 0.5 * rng.standard_normal(100)
    model = BTNRegressor(**{**SMALL, "n_basis": 3, "max_iter": 4}, n_init=4).fit(X, y)
    assert model.ranks_.shape == (4, 9)
    assert len(model.rank_) == 9


@pytest.mark.filterwarnings("ignore:no input was found")
def test_a_class_of_one_row_does_not_stop_the_choice():
    rng = np.random.default_rng(11)
    X = rng.uniform(-1.0, 1.0, (40, 3))
    alone = np.arange(40) == 7
    for labels in (alone, np.where(alone, 2, X[:, 0] > 0)):
        model = BTNClassifier(**SMALL, n_init=1).fit(X, labels)
        assert np.all(np.isfinite(model.predict_proba(X)))
    counts = BTNRegressor(**SMALL, n_init=1, likelihood="negative_binomial").fit(X, 1.0 * alone)
    assert np.all(np.isfinite(counts.predict(X)))


@pytest.mark.filterwarnings("ignore:no input was found")
@pytest.mark.parametrize("n", [2, 5, 30])
def test_few_rows_are_fitted_too(n):
    rng = np.random.default_rng(6)
    X = rng.uniform(-1.0, 1.0, (n, 4))
    model = BTNRegressor(**SMALL, n_init=2).fit(X, X[:, 0])
    assert np.all(np.isfinite(model.predict(X, return_std=True)))


def test_cores_must_be_of_a_kind():
    with pytest.raises(
        ValueError, match=r"TensorTrain\(cores=...\) must be 'auto' or 'full', got 'diagonal'"
    ):
        BTNRegressor(network=TensorTrain(cores="diagonal")).fit(np.eye(3), np.arange(3.0))
