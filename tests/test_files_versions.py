"""Files that earlier versions wrote are read, and their models predict what they did then."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import btnkm
from btnkm import BTNClassifier, BTNRegressor, explain, saving
from btnkm.io import migrate
from btnkm.io.models import FittedState
from tests.model_files import forge

CORPUS = Path(__file__).parent / "model_files_v1"
NAMES = ("regressor", "classifier", "full")
# the same sums may be rounded in another way by another BLAS
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


@cache
def golden():
    return json.loads((CORPUS / "golden.json").read_text())


@cache
def rows():
    return pd.DataFrame(golden()["rows"])


@pytest.fixture
def unpacked(tmp_path):
    """Return a function that returns the path of a file of the corpus."""

    def unpack(name):
        path = tmp_path / f"{name}.btn"
        path.write_bytes(gzip.decompress((CORPUS / f"{name}.btn.gz").read_bytes()))
        return path

    return unpack


@pytest.mark.parametrize("name", NAMES)
def test_models_predict_what_they_did(name, unpacked):
    model, expected = btnkm.load(unpacked(name)), golden()[name]
    if name == "classifier":
        np.testing.assert_allclose(model.predict_proba(rows()), expected["predict_proba"], **CLOSE)
    else:
        mean, std = model.predict(rows(), return_std=True)
        np.testing.assert_allclose(mean, expected["predict"], **CLOSE)
        np.testing.assert_allclose(std, expected["std"], **CLOSE)
        interval = model.predict_interval(rows())
        np.testing.assert_allclose(interval, expected["interval"], **CLOSE)
    importances = model.feature_importances_, model.feature_importances_std_
    np.testing.assert_allclose(importances[0], expected["importances"], **CLOSE)
    np.testing.assert_allclose(importances[1], expected["importances_std"], **CLOSE)


@pytest.mark.parametrize("name", NAMES)
def test_attributes_have_their_present_names(name, unpacked):
    model, expected = btnkm.load(unpacked(name)), golden()[name]
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


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_is_saved_again_is_of_the_present_version(name, unpacked, tmp_path):
    model = btnkm.load(unpacked(name))
    model.save(tmp_path / "first.btn")
    same = btnkm.load(tmp_path / "first.btn")
    same.save(tmp_path / "second.btn")
    assert (tmp_path / "first.btn").read_bytes() == (tmp_path / "second.btn").read_bytes()
    assert np.array_equal(same.predict(rows()), model.predict(rows()))


def test_a_stream_goes_on(unpacked):
    model = btnkm.load(unpacked("regressor"))
    before = model.n_samples_seen_
    model.partial_fit(rows(), np.linspace(-1.0, 1.0, len(rows())))
    assert model.n_samples_seen_ == before + len(rows())


@pytest.mark.parametrize("change", [{}, {"dict": 3}, {"dict": [1]}, {"dict": [{}, 1]}, "x"])
def test_sweeps_that_cannot_be_renamed_are_refused(change, unpacked):
    path = unpacked("full")

    def wrong(manifest):
        manifest["attributes"]["history_"][0] = change
        return manifest

    forge(path, wrong)
    with pytest.raises(ValueError, match="^path must name a model saved by btnkm, got"):
        btnkm.load(path)


def test_a_renamed_class_and_its_fields_are_read(unpacked, monkeypatch):
    path = unpacked("regressor")

    def older(manifest):
        for item in manifest["objects"]:
            if item["kind"] == "Column":
                item["kind"] = "Field"
                item["fields"]["title"] = item["fields"].pop("name")
        return manifest

    forge(path, older)
    with pytest.raises(ValueError, match="an object of a kind that no file has"):
        btnkm.load(path)
    monkeypatch.setitem(migrate.CLASSES, "Field", "Column")
    monkeypatch.setitem(migrate.FIELDS, "Column", {"title": "name"})
    assert btnkm.load(path).columns_[0].name == "size"


def test_parameters_that_moved_into_another_are_migrated(monkeypatch, unpacked):
    monkeypatch.setattr(
        saving, "migrate_parameters", lambda old: {**old, "max_iter": old["max_iter"] + 1}
    )
    assert btnkm.load(unpacked("regressor")).max_iter == 7
    lasting = ("basis", "solver")
    for text, expected in ((None, None), ("0.5", "0.5")):
        attributes = {"begun_with": {"basis": "'auto'", "prune": None, "anchored": text}}
        state = saving.migrated(FittedState("BTNRegressor", {"max_iter": 1}, attributes), lasting)
        assert state.attributes["begun_with"] == {"basis": "'auto'", "solver": expected}
        assert state.parameters == {"max_iter": 2}


def test_a_model_is_of_the_estimator_that_its_attributes_are_of():
    X = np.linspace(-1.0, 1.0, 30)[:, None]
    model = BTNRegressor(n_init=1, max_iter=2, random_state=0, n_jobs=1, structure="sums")
    state = model.fit(X, X[:, 0]).fitted_state()
    with pytest.raises(ValueError, match="parameters must be those of BTNClassifier"):
        BTNClassifier.from_fitted_state(state)
