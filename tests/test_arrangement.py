"""How networks lie over a table: candidates, the rows that judge them, and starts of many kinds."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from btnkm import BTNClassifier, BTNRegressor
from btnkm.arrangement import Arrangement, arrange
from btnkm.bases import Chebyshev
from btnkm.choosing import folds, not_clearly_worse, share_out
from btnkm.core.cp import CP
from btnkm.core.tt import TT

SMALL = {"network": "tt", "n_basis": 5, "max_rank": 3, "max_iter": 12, "random_state": 0}


def kinds(*full):
    return [Arrangement(one, [], [], False) for one in full]


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
    ("n", "count", "held_out"), [(20, 5, 20), (240, 3, 144), (1000, 1, 200), (9000, 1, 800)]
)
def test_folds_hold_out_enough_rows_and_none_twice(n, count, held_out):
    cuts = list(folds(n, np.random.default_rng(0)))
    assert len(cuts) == count
    out = np.concatenate([away for _, away in cuts])
    assert len(out) == len(set(out)) == held_out
    for rows, away in cuts:
        assert not set(rows) & set(away)
        assert len(rows) + len(away) == min(n, 4000)


def test_only_what_is_clearly_worse_is_left_out():
    rng = np.random.default_rng(0)
    base = rng.standard_normal(400)
    alike = base - 0.01 + 0.2 * rng.standard_normal(400)
    worse = base - 0.3 + 0.2 * rng.standard_normal(400)
    scores = np.array([worse, alike, base])
    assert not_clearly_worse(scores, np.ones(400)) == [2, 1]
    assert not_clearly_worse(scores[:, :3], np.ones(3))[0] == np.argmax(scores[:, :3].sum(axis=1))
    # a row of weight 2 is two rows, but not two chances to be lucky
    heavy = np.where(np.arange(400) < 200, 1.0, 0.0)
    half = np.array([base, np.where(heavy > 0, base + 1.0, base - 9.0)])
    assert not_clearly_worse(half, heavy) == [1]
    assert not_clearly_worse(np.zeros((2, 5)), np.ones(5)) == [0, 1]


@pytest.mark.parametrize(
    ("n_starts", "full", "counts"),
    [
        (8, (True, False, True), [1, 6, 1]),
        (8, (False, True), [6, 2]),
        (4, (False, True, True), [3, 1, 0]),
        (2, (True, False), [1, 1]),
        (1, (True, False), [1, 0]),
        (1, (False, True, True), [1, 0, 0]),
        (5, (True, True), [3, 2]),
        (3, (False,), [3]),
    ],
)
def test_starts_are_shared_out(n_starts, full, counts):
    assert share_out(n_starts, kinds(*full)) == counts


def test_arranged_inputs_have_their_own_features():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (30, 4))
    bases = [Chebyshev(n_basis=3 + j).fit(x) for j, x in enumerate(X.T)]
    for full, anchored, extra in [(False, False, 0), (False, True, 1), (True, True, 0)]:
        one = arrange(
            [3, 0, 2], bases, X.T, np.ones(30), full=full, anchored=anchored, many_outputs=False
        )
        assert one.first_input == extra
        features = one.features(X.T, slice(5, 15))
        assert [phi.shape[0] for phi, _ in features] == [10] * (3 + extra)
        np.testing.assert_allclose(one.codes(X.T)[extra], X[:, 3])
        wide = [phi.shape[1] for phi, _ in features][extra:]
        assert wide == [6, 3, 5]


def test_rows_held_out_tell_a_chain_from_a_sum_of_products():
    rng = np.random.default_rng(2)
    for diagonal in (True, False):
        X, y = matrices(900, rng, diagonal)
        settings = {**SMALL, "max_rank": 10 if diagonal else 4, "max_iter": 30, "n_init": 1}
        model = BTNRegressor(**settings, mode_order="given").fit(X, y)
        assert model.cores_ == ["diagonal" if diagonal else "full"]
        assert len(model.rank_) == 5
        assert model.score(X, y) > 0.9


def test_starts_of_two_kinds_make_one_prediction(capsys):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1.0, 1.0, (150, 4))
    y = np.sin(2.0 * X[:, 0] + X[:, 1]) + X[:, 2] + 0.3 * rng.standard_normal(150)
    model = BTNRegressor(**SMALL, n_init=4, verbose=1).fit(X, y)
    assert "held out" in capsys.readouterr().out
    assert sorted(set(model.cores_)) == ["diagonal", "full"]
    assert [c["cores"] for c in model.candidates_][-1] == "diagonal"
    assert sum(c["kept"] for c in model.candidates_) >= 2
    densities = np.array([c["log_density"] for c in model.candidates_])
    assert np.all(np.abs(densities - model.predict_dist(X).logpdf(y).mean()) < 0.3)  # of y itself
    assert model.cores_.count("diagonal") == 3
    assert {type(state.network) for state in model.posterior_} == {CP, TT}
    assert model.ranks_.shape == (4, 3)
    assert {entry["start"] for entry in model.history_} == {0, 1, 2, 3}
    parts = []
    for k in range(4):
        single = pickle.loads(pickle.dumps(model))
        single.posterior_ = single.posterior_[k : k + 1]
        single._arrangements_ = single._arrangements_[k : k + 1]
        parts.append(single.predict(X, return_std=True))
    means, stds = np.array(parts).transpose(1, 0, 2)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, means.mean(axis=0))
    np.testing.assert_allclose(std**2, (stds**2).mean(axis=0) + means.var(axis=0))
    assert np.ptp(means, axis=0).max() > 1e-3  # they do differ
    draws = model.sample_y(X[:10], 4000)
    assert np.all(np.abs(draws.mean(axis=1) - mean[:10]) < 6 * std[:10] / np.sqrt(4000))
    assert model.feature_relevance_.sum() == pytest.approx(1.0)
    assert np.argmin(model.feature_relevance_) == 3
    again = BTNRegressor(**SMALL, n_init=4).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), mean)


def test_tables_and_classes_of_every_kind():
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


def test_a_stop_keeps_the_starts_of_the_kinds_before():
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (120, 3))
    y = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.standard_normal(120)
    whole = BTNRegressor(**SMALL, n_init=4, n_jobs=1).fit(X, y)
    first = whole.cores_[0]
    others = next(k for k, kind in enumerate(whole.cores_) if kind != first)

    def stop(entry):
        return entry["start"] == others and entry["phase"] == "warm"

    stopped = BTNRegressor(**SMALL, n_init=4, n_jobs=1, callback=stop).fit(X, y)
    assert set(stopped.cores_) == {first}
    assert len(stopped.posterior_) == others
    assert "callback" in stopped.stop_reason_
    assert not stopped.converged_

    def interrupt(entry):
        if stop(entry):
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="Interrupted"):
        stopped = BTNRegressor(**SMALL, n_init=4, n_jobs=1, callback=interrupt).fit(X, y)
    assert len(stopped.posterior_) == others


@pytest.mark.filterwarnings("ignore:no input was found")
@pytest.mark.parametrize("n", [2, 5, 30])
def test_few_rows_are_fitted_too(n):
    rng = np.random.default_rng(6)
    X = rng.uniform(-1.0, 1.0, (n, 4))
    model = BTNRegressor(**SMALL, n_init=2).fit(X, X[:, 0])
    assert np.all(np.isfinite(model.predict(X, return_std=True)))


def test_cores_must_be_of_a_kind():
    with pytest.raises(ValueError, match="cores must be one of"):
        BTNRegressor(network="tt", cores="diagonal").fit(np.eye(3), np.arange(3.0))
