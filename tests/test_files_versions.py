"""Files that earlier versions wrote are read, and their models predict what they did then."""

from __future__ import annotations

import gzip
import json
import zipfile
from dataclasses import make_dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import btnkm
from btnkm import (
    BTNClassifier,
    BTNRegressor,
    Gamma,
    Priors,
    Solver,
    TensorTrain,
    explain,
)
from btnkm.io import migrate
from tests.model_files import forge
from tests.test_files_models import unlike

TESTS = Path(__file__).parent
CORPUS = {  # the folder of each model
    **dict.fromkeys(("regressor", "classifier", "full"), TESTS / "model_files_v1"),
    **dict.fromkeys(("poisson", "kernel", "classes"), TESTS / "model_files_v6"),
    "kernel7": TESTS / "model_files_v7",
}
# the same sums may be rounded in another way by another BLAS
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


@cache
def golden(name):
    return json.loads((CORPUS[name] / "golden.json").read_text())


@cache
def rows(name):
    X = pd.DataFrame(golden(name)["rows"])
    if "when" in X:
        X["when"] = pd.to_datetime(X["when"])
    return X[["size", "colour"]] if name == "poisson" else X


@pytest.fixture
def unpacked(tmp_path):
    """Return a function that returns the path of a file of the corpus."""

    def unpack(name):
        path = tmp_path / f"{name}.btn"
        path.write_bytes(gzip.decompress((CORPUS[name] / f"{name}.btn.gz").read_bytes()))
        return path

    return unpack


@pytest.mark.parametrize("name", CORPUS)
def test_models_predict_what_they_did(name, unpacked):
    model, expected = btnkm.load(unpacked(name)), golden(name)[name]
    X = rows(name)
    if "predict_proba" in expected:
        np.testing.assert_allclose(model.predict_proba(X), expected["predict_proba"], **CLOSE)
    else:
        mean, std = model.predict(X, return_std=True)
        np.testing.assert_allclose(mean, expected["predict"], **CLOSE)
        np.testing.assert_allclose(std, expected["std"], **CLOSE)
        interval = model.predict_interval(X)
        np.testing.assert_allclose(interval, expected["interval"], **CLOSE)
    importances = model.feature_importances_, model.feature_importances_std_
    np.testing.assert_allclose(importances[0], expected["importances"], **CLOSE)
    # of draws: other BLAS kernels change a root of the covariance by some 1e-9
    np.testing.assert_allclose(importances[1], expected["importances_std"], rtol=1e-7)


@pytest.mark.parametrize("name", CORPUS)
def test_attributes_have_their_present_names(name, unpacked):
    model, expected = btnkm.load(unpacked(name)), golden(name)[name]
    assert model.best_restart_ == expected["best_restart"]
    assert [sweep["restart"] for sweep in model.history_] == expected["restarts"]
    elbos = [None if np.isnan(sweep["elbo"]) else sweep["elbo"] for sweep in model.history_]
    assert elbos == expected["elbo"]
    phases = [migrate.PHASES.get(phase, phase) for phase in expected["phases"]]
    assert [sweep["phase"] for sweep in model.history_] == phases
    former = {*migrate.HISTORY, *migrate.ATTRIBUTES} - set(migrate.ATTRIBUTES.values())
    assert not former & {*vars(model), *(key for sweep in model.history_ for key in sweep)}
    assert explain.history(model).to_dict()
    assert str(explain.summary(model))


@pytest.mark.parametrize("name", CORPUS)
def test_a_model_that_is_saved_again_is_of_the_present_version(name, unpacked, tmp_path):
    model = btnkm.load(unpacked(name))
    model.save(tmp_path / "first.btn")
    same = btnkm.load(tmp_path / "first.btn")
    same.save(tmp_path / "second.btn")
    assert (tmp_path / "first.btn").read_bytes() == (tmp_path / "second.btn").read_bytes()
    assert np.array_equal(same.predict(rows(name)), model.predict(rows(name)))


@pytest.mark.parametrize(
    ("name", "y"),
    [
        ("regressor", np.linspace(-1.0, 1.0, 8)),
        ("poisson", np.arange(8.0)),
        ("classes", np.array(["low", "high"] * 4)),
    ],
)
def test_a_stream_goes_on(name, y, unpacked):
    model, X = btnkm.load(unpacked(name)), rows(name)
    before = model.n_samples_seen_
    model.partial_fit(X, y)
    assert model.n_samples_seen_ == before + len(X)


def test_the_corpus_of_format_6_covers_what_it_says(unpacked):
    models = {}
    for name in ("poisson", "kernel", "classes"):
        path = unpacked(name)
        with zipfile.ZipFile(path) as file:
            assert json.loads(file.read("model.json"))["version"] == 6, name
        models[name] = btnkm.load(path)
        assert any(column.categories for column in models[name].columns_), name
    assert models["poisson"].likelihood == "poisson"
    assert any(mode_map.full_tensor for mode_map in models["kernel"]._mode_maps)
    assert [column.kind for column in models["kernel"].columns_] == ["f", "M", "O"]
    assert len(models["classes"].classes_) == 3
    assert models["classes"].cores_


def older(manifest, version):
    """Return a manifest of the corpus as versions 3 and 4 have written it."""
    for item in manifest["objects"]:
        if item["kind"] == "ModeMap":
            del item["fields"]["heavy"]
            if version == 3:
                del item["fields"]["kernel"]
    if version == 3:
        del manifest["parameters"]["full_rows"]
    return manifest | {"version": version}


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_files_of_versions_before_the_corpus_are_read(name, version, unpacked):
    path = unpacked(name)
    expected = btnkm.load(path)
    forge(path, lambda manifest: older(manifest, version))
    model = btnkm.load(path)
    assert repr(model) == repr(expected)
    assert model.get_params() == expected.get_params()
    for part in ("posterior_", "columns_", "weights_", "_averages", "_effect_averages", "_pasts"):
        assert unlike(getattr(model, part), getattr(expected, part)) is None, part
    assert np.array_equal(model.predict(rows(name)), expected.predict(rows(name)))


def test_a_full_tensor_of_another_kernel_is_refused(unpacked):
    path = unpacked("full")
    forge(path, lambda manifest: older(manifest, 4))
    with pytest.raises(ValueError, match="whose kernel has changed; fit the model again"):
        btnkm.load(path)


@pytest.mark.parametrize("change", [{}, {"dict": 3}, {"dict": [1]}, {"dict": [{}, 1]}, "x"])
def test_sweeps_that_cannot_be_renamed_are_refused(change, unpacked):
    path = unpacked("full")

    def wrong(manifest):
        manifest["attributes"]["history_"][0] = change
        return manifest

    forge(path, wrong)
    with pytest.raises(ValueError, match="^path must name a model saved by btnkm, got"):
        btnkm.load(path)


def test_a_renamed_class_is_read(unpacked, monkeypatch):
    path = unpacked("regressor")

    def older(manifest):
        for item in manifest["objects"]:
            if item["kind"] == "Column":
                item["kind"] = "Field"
        return manifest

    forge(path, older)
    with pytest.raises(ValueError, match="an object of a kind that no file has"):
        btnkm.load(path)
    monkeypatch.setitem(migrate.CLASSES, "Field", "Column")
    assert btnkm.load(path).columns_[0].name == "size"


OLD = {
    **{"basis": "auto", "structure": "auto", "network": "cp", "cores": "auto"},
    **{"mode_order": "auto", "initial_rank": "auto", "warm_sweeps": 10, "prune": True},
    **{"anchored": "auto", "full_rows": 2000, "rank_prior": None, "basis_prior": None},
    **{"noise_prior": None, "smoothness": 1.25, "max_iter": 6},
}
BEGUN_WITH = ("basis", "structure", "network", "n_basis", "likelihood")
BEGUN_WITH += ("cores", "mode_order", "basis_prior", "smoothness", "anchored")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {}),
        ({"network": "tt"}, {"network": "tt"}),
        ({"network": "tt", "cores": "full"}, {"network": TensorTrain(cores="full")}),
        ({"network": "tt", "mode_order": [1, 0]}, {"network": TensorTrain(order=[1, 0])}),
        ({"cores": "full"}, {}),  # of no effect without a tensor train
        ({"rank_prior": Gamma(2.0, 1.0)}, {"priors": Priors(rank=Gamma(2.0, 1.0))}),
        ({"noise_prior": Gamma(2.0, 1.0)}, {"priors": Priors(noise=Gamma(2.0, 1.0))}),
        ({"basis_prior": "off"}, {"priors": Priors(basis="off")}),
        ({"smoothness": 1.0}, {"priors": Priors(smoothness=1.0)}),
        ({"initial_rank": 3}, {"solver": Solver(initial_rank=3)}),
        ({"warm_sweeps": 0}, {"solver": Solver(warm_sweeps=0)}),
        ({"anchored": True, "prune": False}, {"solver": Solver(anchored=True, prune=False)}),
    ],
)
def test_parameters_that_moved_into_a_group_are_read(old, new):
    rest = {"basis": "auto", "structure": "auto", "network": "cp", "max_iter": 6}
    expected = {**rest, "priors": None, "solver": None, **new}
    attributes = {"begun_with": dict.fromkeys(BEGUN_WITH)}
    assert migrate.migrated_state({**OLD, **old}, attributes, 5)[0] == expected


@pytest.mark.parametrize("name", ["cores", "mode_order", "smoothness", "rank_prior", "prune"])
def test_former_parameters_that_cannot_be_are_refused(name, unpacked):
    path = unpacked("regressor")
    for value in ("x", {"tuple": []}, {"array": 0}, ...):
        if name == "mode_order" and value not in ("x", ...):
            continue  # an order is known to be wrong where there are columns

        def wrong(manifest, value=value):
            if value is ...:
                del manifest["parameters"][name]
            else:
                manifest["parameters"][name] = value
            return manifest

        whole = path.read_bytes()
        forge(path, wrong)
        with pytest.raises(ValueError, match="^path must name a model saved by btnkm, got"):
            btnkm.load(path)
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (None, {}),
        ("cores", {"network": "before"}),
        ("network", {"network": "before"}),
        ("anchored", {"solver.anchored": "before"}),
        ("basis_prior", {"priors.basis": "before"}),
    ],
)
def test_parameters_that_changed_since_the_fit_are_known(changed, expected):
    begun_with = {name: "before" if name == changed else None for name in BEGUN_WITH}
    _, attributes = migrate.migrated_state(OLD, {"begun_with": begun_with}, 5)
    names = (*BEGUN_WITH[:5], "priors.basis", "priors.smoothness", "solver.anchored")
    assert attributes["begun_with"] == {**dict.fromkeys(names), **expected}


def test_a_later_option_of_the_solver_does_not_matter_to_earlier_files(monkeypatch, unpacked):
    later = make_dataclass("Solver", [("later", int, 1)], bases=(Solver,))
    monkeypatch.setattr(migrate, "Solver", later)
    assert btnkm.load(unpacked("regressor")).solver == later(warm_sweeps=3)


def test_the_corpus_has_parameters_in_groups(unpacked):
    model = btnkm.load(unpacked("regressor"))
    assert model.solver == Solver(warm_sweeps=3)
    assert model.priors is None
    assert (model.max_iter, model.max_rank, model.network) == (6, 2, "cp")


def test_a_model_is_of_the_estimator_that_its_attributes_are_of():
    X = np.linspace(-1.0, 1.0, 30)[:, None]
    model = BTNRegressor(n_init=1, max_iter=2, random_state=0, n_jobs=1, structure="sums")
    state = model.fit(X, X[:, 0]).fitted_state()
    with pytest.raises(ValueError, match="parameters must be those of BTNClassifier"):
        BTNClassifier.from_fitted_state(state)
