"""What a full tensor cannot do is said in a sentence; what looks like it but can be, is done."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import btnkm
from btnkm import BTNClassifier, BTNRegressor, Solver, TensorTrain, estimator
from btnkm.data import column_stats, readers
from btnkm.structures import candidates
from tests.test_files_models import labels, numbers
from tests.test_full_files import even_weights

HOW = {"n_init": 1, "n_basis": 4, "max_rank": 2, "max_iter": 3, "random_state": 0, "n_jobs": 1}
KEEPS = "keeps the rows"


def rows(n=60):
    return numbers(n, inputs=2)


def quietly(method, *args, **how):
    """Return what a method does, but for warnings that so small a fit finds little."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return method(*args, **how)


def refused(match, method, *args, **how):
    """Make sure that something is refused in one sentence with a remedy."""
    with pytest.raises(ValueError, match=match) as caught:
        method(*args, **how)
    text = str(caught.value)
    assert re.fullmatch(r".* must .*, got .*; .*\.", text), text
    assert "\n" not in text


# ---- learning on ----------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [BTNRegressor, BTNClassifier])
def test_a_full_tensor_does_not_learn_on(estimator):
    X, y = rows()
    y = y if estimator is BTNRegressor else labels(y, 3)
    model = estimator(**HOW, structure="full").fit(X, y)
    before = model.predict(X)
    refused(f"which {KEEPS}; fit it with structure='tensor' or", model.partial_fit, X, y)
    model.warm_start = True
    refused(f"which {KEEPS}; fit it with structure='tensor' or", model.fit, X, y)
    assert np.array_equal(model.predict(X), before)
    model.warm_start = False
    assert np.array_equal(model.fit(X, y).predict(X), before)


def test_a_mixture_with_one_fits_its_rows_again(tmp_path):
    X, y = rows()
    with even_weights("full", "sums"):
        model = quietly(BTNRegressor(**HOW).fit, X, y)
    assert {mode_map.structure for mode_map in model._mode_maps} == {"full", "sums"}
    model.save(tmp_path / "m.btn")
    for fitted in (model, btnkm.load(tmp_path / "m.btn")):
        refused(KEEPS, fitted.set_params(warm_start=True).fit, X, y)
        quietly(fitted.set_params(warm_start=False).partial_fit, X[:20], y[:20])
        assert fitted.n_samples_seen_ == len(y) + 20
        assert {other.structure for other in fitted._mode_maps} == {"tensor"}
        assert fitted.score(X, y) > 0.5


def test_a_stream_does_not_begin_with_a_full_tensor():
    X, y = rows()
    model = BTNRegressor(**HOW, structure="full")
    refused(f"partial_fit, got 'full', which {KEEPS}; use 'tensor' or", model.partial_fit, X, y)
    assert not hasattr(model, "posterior_")
    assert model.fit(X, y).structures_[0]["name"] == "full"


def test_a_stream_of_any_structure_learns_on():
    X, y = rows(90)
    model = BTNRegressor(**HOW)
    for some in np.array_split(np.arange(90), 3):
        quietly(model.partial_fit, X[some], y[some])
    assert model.n_samples_seen_ == 90
    assert {mode_map.structure for mode_map in model._mode_maps} == {"tensor"}


def test_a_fit_that_is_to_go_on_is_not_compared_with_a_full_tensor():
    X, y = rows()
    names = {}
    for warm_start in (False, True):
        model = quietly(BTNRegressor(**HOW, warm_start=warm_start).fit, X, y)
        names[warm_start] = {entry["name"] for entry in model.structures_}
    assert names[False] - names[True] == {"full"}
    quietly(model.fit, X, y)
    quietly(model.partial_fit, X, y)
    assert model.n_samples_seen_ == 120


def test_a_full_tensor_that_was_asked_for_may_have_warm_start():
    X, y = rows()
    model = BTNRegressor(**HOW, structure="full", warm_start=True).fit(X, y)
    assert {mode_map.structure for mode_map in model._mode_maps} == {"full"}
    refused(KEEPS, model.fit, X, y)


# ---- rows that are too many -----------------------------------------------------------------

TOO_MANY = (
    r"^structure='full' must have at most 59 rows, got 60: it takes memory that grows with their "
    r"square and time that grows with their cube; raise Solver\(full_rows=...\), "
    r"or use structure='auto'\.$"
)


def test_more_rows_than_full_rows_are_refused():
    X, y = rows()
    model = BTNRegressor(**HOW, structure="full", solver=Solver(full_rows=59))
    refused(TOO_MANY, model.fit, X, y)
    assert not hasattr(model, "posterior_")
    refused(
        TOO_MANY,
        BTNRegressor(**HOW, structure="full", network="tt", solver=Solver(full_rows=59)).fit,
        X,
        y,
    )
    refused(
        TOO_MANY, BTNClassifier(**HOW, structure="full", solver=Solver(full_rows=59)).fit, X, y > 0
    )
    assert model.set_params(solver=Solver(full_rows=60)).fit(X, y).structures_[0]["name"] == "full"


def test_rows_that_are_left_out_do_not_count():
    X, y = rows(61)
    weight = np.ones(61)
    weight[3] = 0.0
    model = BTNRegressor(**HOW, structure="full", solver=Solver(full_rows=60))
    assert len(model.fit(X, y, weight).posterior_[0].share) == 60


def test_auto_leaves_out_what_has_too_many_rows():
    X, y = rows()
    for most in (59, 0):
        model = quietly(BTNRegressor(**HOW, solver=Solver(full_rows=most)).fit, X, y)
        assert "full" not in {entry["name"] for entry in model.structures_}


def test_rows_that_are_not_all_in_memory_are_refused(monkeypatch):
    for module in (column_stats, readers, estimator, candidates):
        monkeypatch.setattr(module, "MOST_ROWS", 50)
    X, y = rows()
    model = BTNRegressor(**HOW, structure="full")
    refused("at most 50 rows, got 60: .* cube; use structure='auto'", model.fit, X, y)
    batches = [(X[:30], y[:30]), (X[30:], y[30:])]
    refused("at most 50 rows, got 60: .* cube; use structure='auto'", model.fit, batches)


def test_few_rows_may_come_from_anywhere(tmp_path):
    X, y = rows()
    how = {**HOW, "structure": "full"}
    expected = BTNRegressor(**how).fit(X, y).predict(X)
    np.save(tmp_path / "rows.npy", X)
    stored = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert np.allclose(BTNRegressor(**how).fit(stored, y).predict(X), expected)
    batches = [(X[:30], y[:30]), (X[30:], y[30:])]
    assert np.allclose(BTNRegressor(**how).fit(batches).predict(X), expected)
    refused(TOO_MANY, BTNRegressor(**how, solver=Solver(full_rows=59)).fit, batches)


def test_few_rows_may_come_from_dask():
    da = pytest.importorskip("dask.array")
    distributed = pytest.importorskip("distributed")
    X, y = rows()
    expected = BTNRegressor(**HOW, structure="full").fit(X, y).predict(X)
    with (
        warnings.catch_warnings(),
        distributed.Client(processes=False, n_workers=1, dashboard_address=None),
    ):
        warnings.simplefilter("ignore")  # Dask's own
        lazy = da.from_array(X, chunks=(30, 2)), da.from_array(y, chunks=30)
        model = BTNRegressor(**HOW, structure="full").fit(*lazy)
        assert np.allclose(model.predict(X), expected)
        refused(
            TOO_MANY, BTNRegressor(**HOW, structure="full", solver=Solver(full_rows=59)).fit, *lazy
        )


@pytest.mark.parametrize("wrong", [-1, 2.5, "many", None])
def test_full_rows_is_a_number_of_rows(wrong):
    refused(
        r"Solver\(full_rows=...\) must be an integer >= 0, got",
        BTNRegressor(solver=Solver(full_rows=wrong)).fit,
        *rows(),
    )


# ---- networks -------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", [1, 3])
@pytest.mark.parametrize("network", ["tt", TensorTrain(cores="full"), TensorTrain(order="given")])
def test_the_network_does_not_matter(inputs, network, tmp_path):
    X, y = numbers(60, inputs=inputs)
    first = BTNRegressor(structure="full", random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = BTNRegressor(structure="full", random_state=0, network=network).fit(X, y)
    answers = [model.predict(X, return_std=True) for model in (first, other)]
    assert np.array_equal(*answers)
    other.save(tmp_path / "m.btn")
    assert np.array_equal(btnkm.load(tmp_path / "m.btn").predict(X), first.predict(X))


# ---- checkpoints ----------------------------------------------------------------------------


def told(model):
    return [(e["restart"], e["sweep"], e["phase"], e["rows"]) for e in model.history_]


@pytest.mark.parametrize("structure", ["full", "auto"])
@pytest.mark.parametrize("every", [1, 1000])
def test_a_fit_with_a_checkpoint_ends_and_goes_on(structure, every, tmp_path):
    X, y = rows()
    path, names = tmp_path / "c", ("full", "sums+tensor") if structure == "auto" else ("full",)
    with even_weights(*names):
        models = [
            quietly(BTNRegressor(**HOW, structure=structure).fit, X, y, **how)
            for how in ({}, *2 * [{"checkpoint": path, "checkpoint_every": every}])
        ]
    assert {mode_map.structure for mode_map in models[0]._mode_maps} == set(names)
    for model in models[1:]:
        assert np.array_equal(model.predict(X), models[0].predict(X))
        assert np.array_equal(model.weights_, models[0].weights_)
        assert told(model) == told(models[0])


def test_a_fit_that_was_stopped_goes_on(tmp_path):
    X, y = rows()
    seen = []

    def stop(entry):
        seen.append(entry)
        if len(seen) == 12:
            raise RuntimeError("stop here")

    with even_weights("full", "sums+tensor"):
        expected = quietly(BTNRegressor(**HOW).fit, X, y)
        how = {"checkpoint": tmp_path / "c", "checkpoint_every": 2}
        with pytest.raises(RuntimeError, match="stop here"):
            quietly(BTNRegressor(**HOW, callback=stop).fit, X, y, **how)
        model = quietly(BTNRegressor(**HOW).fit, X, y, **how)
    np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=1e-8)
    assert told(model) == told(expected)
