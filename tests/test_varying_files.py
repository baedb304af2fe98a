"""Models whose noise varies as files: the same to the last bit, or refused."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
import zipfile
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone

import btnkm
from btnkm import BTNClassifier, BTNRegressor, Solver
from btnkm.bases.effect import MainEffect
from btnkm.core.likelihoods import Varying
from btnkm.core.sums import Group
from btnkm.io import contents
from btnkm.likelihoods import StudentT
from tests.model_files import forge, refusals
from tests.models import N, mixed, uneven
from tests.test_files_models import answers, labels, unlike
from tests.test_sums_exports import combined

HOW = {"n_init": 2, "n_basis": 5, "max_rank": 3, "max_iter": 8, "random_state": 0, "n_jobs": 1}
VARYING = {**HOW, "noise": "varying"}
SIZE, PLACE, PAY = 0, 1, 5  # columns that the noise depends on
STATE = ("posterior_", "_mode_maps", "_averages", "_effect_averages", "_pasts", "columns_")


def quietly(method, *args, **how):
    """Return what a method does, but for warnings that quick fits found little."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return method(*args, **how)


def fit(n_levels=4, **how):
    X, y = uneven(*mixed(n_categories=n_levels))
    model = quietly(BTNRegressor(**VARYING | how).fit, X.iloc[:N], y[:N])
    return model, X.iloc[N:].reset_index(drop=True)


def numbers(n=200):
    """Return numbers, and a target whose noise depends on the first."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    noise = 0.05 + 0.8 * np.maximum(X[:, 0], 0.0)
    return X, np.sin(3 * X[:, 1]) + noise * rng.standard_normal(n)


def _stream():
    X, y = uneven(*mixed())
    model = BTNRegressor(**VARYING, structure="sums+tensor")
    for rows in np.array_split(np.arange(N), 3):
        quietly(model.partial_fit, X.iloc[rows], y[rows])
    return model, X.iloc[N:].reset_index(drop=True)


def _mixture():
    """Return a model of restarts whose noise varies and of others whose noise does not."""
    parts = [fitted("sums+tensor")[0], fit(structure="sums", noise="constant")[0]]
    return combined(parts), fitted("sums+tensor")[1]


def _chosen():
    """Return a model whose held-out rows have chosen the noise."""
    X, y = numbers(400)
    model = quietly(BTNRegressor(**HOW, solver=Solver(full_rows=0)).fit, X[:360], y[:360])
    assert any(entry["varying"] for entry in model.structures_)
    return model, X[360:]


MODELS = {
    "sums": lambda: fit(structure="sums"),
    "sums+tensor": lambda: fit(structure="sums+tensor"),
    "tensor": lambda: fit(structure="tensor"),
    "full": lambda: fit(structure="full"),
    "train": lambda: fit(structure="sums+tensor", network="tt"),
    "student t": lambda: fit(structure="sums+tensor", likelihood="student_t"),
    "dof held": lambda: fit(structure="sums", likelihood=StudentT(dof=5.0)),
    "full, student t": lambda: fit(structure="full", likelihood="student_t"),
    "many categories": lambda: fit(n_levels=30, structure="sums+tensor"),
    "stream": _stream,
    "mixture": _mixture,
    "auto": _chosen,
}


@cache
def fitted(name):
    return MODELS[name]()


def own(model):
    """Return the noise of the first restart."""
    return model.posterior_[0].likelihood


def test_the_models_have_what_is_to_be_tested():
    for name in MODELS:
        noises = [state.likelihood for state in fitted(name)[0].posterior_]
        varying = [noise for noise in noises if isinstance(noise, Varying)]
        kept = [len(noise.sums.kept) > 0 for noise in varying]
        # the tails of Student-t noise, and many categories, leave nothing that varies, and one of
        # two restarts of the tensor train finds nothing
        if name not in ("student t", "many categories"):
            assert any(kept) if name == "train" else all(kept), name
        assert name == "auto" or (len(varying) < len(noises)) == (name == "mixture"), name
    model, _ = fitted("sums")
    sums = own(model).sums
    kept = {sums.groups[g] for g in sums.kept}
    assert SIZE in {group.mode for group in kept}
    assert (PAY, "missing") in kept
    sums = own(fitted("auto")[0]).sums
    assert len(sums.kept) < len(sums.groups)  # some were dropped
    assert isinstance(own(fitted("dof held")[0]).noise_at_zero, StudentT)


# ---- files -------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.btn"


def again(model, path):
    model.save(path)
    return btnkm.load(path)


def check_same(model, same, X):
    for a, b in zip(answers(model, X), answers(same, X), strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_bit_for_bit(name, path, tmp_path):
    model, X = fitted(name)
    same = again(model, path)
    check_same(model, same, X)
    for part in (*STATE, "likelihood_", "weights_"):
        if part == "_mode_maps":  # compared as what they are, but for the functions of a column
            pairs = zip(model._mode_maps, same._mode_maps, strict=True)
            assert all(unlike(a.noise_effects, b.noise_effects) is None for a, b in pairs)
            continue
        assert unlike(getattr(model, part), getattr(same, part)) is None, part
    assert repr(same) == repr(model)
    assert [entry["varying"] for entry in same.structures_] == [
        entry["varying"] for entry in model.structures_
    ]
    same.save(tmp_path / "second.btn")
    assert path.read_bytes() == (tmp_path / "second.btn").read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_a_pickle_is_the_same_model(name):
    model, X = fitted(name)
    check_same(model, pickle.loads(pickle.dumps(model)), X)
    assert clone(model).get_params().keys() == model.get_params().keys()


@pytest.mark.parametrize("name", ["sums", "sums+tensor", "student t", "train", "stream"])
def test_a_model_learns_on_after_it_was_read(name, path):
    model, X = fitted(name)
    both = copy.deepcopy(model), again(model, path)
    y = np.linspace(-1.0, 1.0, len(X))
    for each in both:
        quietly(each.partial_fit, X, y, forget=0.9)
    assert unlike(both[0]._pasts, both[1]._pasts) is None
    assert all(isinstance(state.likelihood, Varying) for state in both[0].posterior_)
    check_same(both[0], again(both[1], path), X)


def test_a_stream_takes_new_categories_after_it_was_read(path):
    model, X = fitted("stream")
    more, y = X.assign(place="later"), np.linspace(-1.0, 1.0, len(X))
    more.loc[::5, "whole"] = np.nan
    both = copy.deepcopy(model), again(model, path)
    for each in both:
        quietly(each.partial_fit, more, y)
    assert "later" in both[0].columns_[PLACE].categories
    check_same(both[0], again(both[1], path), more)
    check_same(both[0], again(both[1], path), X)


@pytest.mark.parametrize("name", ["sums+tensor", "student t", "mixture"])
def test_warm_start_goes_on_after_it_was_read(name, path):
    model, X = copy.deepcopy(fitted(name))
    model.warm_start = True
    y = np.linspace(-1.0, 1.0, len(X))
    same = again(model, path)
    for each in (model, same):
        quietly(each.fit, X, y)
    kinds = [type(state.likelihood) for state in fitted(name)[0].posterior_]
    assert [type(state.likelihood) for state in model.posterior_] == kinds
    assert all(
        not isinstance(state.likelihood.noise_at_zero, Varying)
        for state in model.posterior_
        if isinstance(state.likelihood, Varying)
    )
    check_same(model, same, X)


@pytest.mark.parametrize("structure", ["sums+tensor", "full", "auto"])
def test_a_fit_that_was_stopped_goes_on(structure, tmp_path):
    X, y = numbers(90)
    seen = []

    def stop(entry):
        seen.append(entry)
        if len(seen) == 10:
            raise RuntimeError("stop here")

    model = BTNRegressor(**VARYING, structure=structure)
    expected = quietly(clone(model).fit, X, y)
    how = {"checkpoint": tmp_path / "c", "checkpoint_every": 2}
    with pytest.raises(RuntimeError, match="stop here"):
        quietly(clone(model).set_params(callback=stop).fit, X, y, **how)
    resumed = quietly(clone(model).fit, X, y, **how)
    for a, b in zip(
        resumed.predict(X, return_std=True), expected.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-8)


# ---- what does not fit together ----------------------------------------------------------------


def _state(model, **changes):
    first, *others = model.posterior_
    model.posterior_ = (replace(first, **changes), *others)


def _noise(model, **changes):
    _state(model, likelihood=replace(own(model), **changes))


def _sums(model, **changes):
    _noise(model, sums=replace(own(model).sums, **changes))


def _changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def _learned(model, place, value):
    parts = list(own(model).learned_from)
    parts[place] = value
    _noise(model, learned_from=tuple(parts))


def _arranged(model, **changes):
    after = replace(model._mode_maps[0], **changes)
    model._mode_maps = tuple(after for _ in model._mode_maps)


def _effect(model, **changes):
    first, *rest = model._mode_maps[0].noise_effects
    effect = MainEffect()
    vars(effect).update(vars(first) | changes)
    _arranged(model, noise_effects=(effect, *rest))


def _all(model, likelihood):
    model.posterior_ = tuple(replace(state, likelihood=likelihood) for state in model.posterior_)
    model.likelihood_ = likelihood


def _past(model, change):
    sums = change(model._pasts[0].likelihood_sums)
    model._pasts = [replace(model._pasts[0], likelihood_sums=sums), *model._pasts[1:]]


FORGED = {
    "noise without its effects": lambda m: _arranged(m, noise_effects=(), noise_inputs=()),
    "noise that does not vary": lambda m: _all(m, own(m).noise_at_zero),
    "one restart that does not vary": lambda m: _state(m, likelihood=own(m).noise_at_zero),
    "noise in noise": lambda m: _noise(m, noise_at_zero=own(m)),
    "noise of counts": lambda m: _noise(m, noise_at_zero=btnkm.likelihoods.Poisson()),
    "noise that is not fitted": lambda m: _noise(m, noise_at_zero=StudentT()),
    "noise of nothing": lambda m: _noise(
        m, noise_at_zero=replace(own(m).noise_at_zero, noise=btnkm.Gamma(-1.0, 1.0))
    ),
    "another likelihood of the model": lambda m: setattr(
        m, "likelihood_", replace(own(m), first=own(m).first + 1)
    ),
    "effects of other columns": lambda m: _arranged(
        m, noise_inputs=m._mode_maps[0].noise_inputs[::-1]
    ),
    "effects of no column": lambda m: _arranged(
        m, noise_inputs=(77, *m._mode_maps[0].noise_inputs[1:])
    ),
    "effects of a column twice": lambda m: _arranged(
        m, noise_inputs=(1, *m._mode_maps[0].noise_inputs[1:])
    ),
    "an effect too few": lambda m: _arranged(m, noise_effects=m._mode_maps[0].noise_effects[:-1]),
    "a column too few": lambda m: _arranged(m, noise_inputs=m._mode_maps[0].noise_inputs[:-1]),
    "both too few": lambda m: _arranged(
        m,
        noise_effects=m._mode_maps[0].noise_effects[:2],
        noise_inputs=m._mode_maps[0].noise_inputs[:2],
    ),
    "effects in a list": lambda m: _arranged(m, noise_effects=list(m._mode_maps[0].noise_effects)),
    "another degree of a curve": lambda m: _effect(m, degree_=10**12),
    "other knots": lambda m: _effect(m, knots=np.arange(3.0)),
    "means too few": lambda m: _effect(m, center_=np.zeros(1)),
    "parts of other functions": lambda m: _effect(m, parts_=["line"]),
    "functions elsewhere": lambda m: _noise(m, first=own(m).first + 1),
    "functions of f": lambda m: _noise(m, first=0),
    "functions below zero": lambda m: _noise(m, first=-1),
    "a place that is none": lambda m: _noise(m, first=True),
    "other groups": lambda m: _sums(m, groups=own(m).sums.groups[::-1]),
    "a group of no input": lambda m: _sums(m, groups=(Group(77, "line"), *own(m).sums.groups[1:])),
    "a group out of range": lambda m: _sums(m, group=_changed(own(m).sums.group, -1, 999)),
    "no intercept": lambda m: _sums(m, group=_changed(own(m).sums.group, 0, 0)),
    "a function out of range": lambda m: _sums(m, column=_changed(own(m).sums.column, -1, 999)),
    "another degree": lambda m: _sums(m, degree=_changed(own(m).sums.degree, -1, 0.0)),
    "a mean that is none": lambda m: _sums(m, mean=_changed(own(m).sums.mean, (0, 0), np.inf)),
    "a mean too short": lambda m: _sums(m, mean=own(m).sums.mean[:, 1:]),
    "means of two outputs": lambda m: _sums(
        m,
        mean=np.repeat(own(m).sums.mean, 2, axis=0),
        cov=np.repeat(own(m).sums.cov, 2, axis=0),
    ),
    "means of no output": lambda m: _sums(m, mean=own(m).sums.mean[:0], cov=own(m).sums.cov[:0]),
    "a variance below zero": lambda m: _sums(m, cov=_changed(own(m).sums.cov, (0, 1, 1), -1.0)),
    "a covariance too small": lambda m: _sums(m, cov=own(m).sums.cov[:, 1:, 1:]),
    "precisions of other groups": lambda m: _sums(m, precision=own(m).sums.precision.take([0])),
    "no sums": lambda m: _noise(m, sums=None),
    "the sums of f": lambda m: _noise(m, sums=m.posterior_[0].sums),
    "nothing learned": lambda m: _noise(m, learned_from=()),
    "learned in a list": lambda m: _noise(m, learned_from=list(own(m).learned_from)),
    "products too few": lambda m: _learned(m, 0, own(m).learned_from[0][1:, 1:]),
    "products of other functions": lambda m: _learned(m, 1, np.zeros((2, 2))),
    "squared errors that are none": lambda m: _learned(m, 1, np.nan * own(m).learned_from[1]),
    "totals too few": lambda m: _learned(m, 2, own(m).learned_from[2][1:]),
    "no rows": lambda m: _learned(m, 2, 0.0 * own(m).learned_from[2]),
    "no noise": lambda m: _learned(m, 4, 0.0),
    "noise that is none": lambda m: _learned(m, 4, np.nan),
    "past rows of other functions": lambda m: _past(m, lambda sums: (*sums[:-5], *sums[-4:])),
    "past rows of constant noise": lambda m: _past(m, lambda sums: sums[:-5]),
    "past products too few": lambda m: _past(
        m, lambda sums: (*sums[:-5], sums[-5][1:, 1:], *sums[-4:])
    ),
    "past products that are none": lambda m: _past(
        m, lambda sums: (*sums[:-5], np.nan * sums[-5], *sums[-4:])
    ),
    "structures that may vary": lambda m: m.structures_[0].update(varying="perhaps"),
}


def check_refused(path):
    with pytest.raises(ValueError, match="^path must name a model saved by btnkm, got") as caught:
        btnkm.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FORGED)
def test_what_does_not_fit_together_is_refused(name, path):
    model = copy.deepcopy(fitted("sums+tensor")[0])
    FORGED[name](model)
    model.save(path)
    check_refused(path)


def test_labels_have_no_noise_that_varies(path):
    X, y = numbers(80)
    model = quietly(
        BTNClassifier(**HOW, structure="sums", likelihood="least_squares").fit, X, labels(y, 2)
    )
    other = quietly(BTNRegressor(**VARYING, structure="sums").fit, X, y)
    again(model, path)
    _arranged(model, noise_effects=other._mode_maps[0].noise_effects, noise_inputs=(0, 1, 2))
    _all(model, own(other))
    model.save(path)
    check_refused(path)


def test_every_field_is_there_and_of_its_kind(path):
    fitted("sums")[0].save(path)
    whole = path.read_bytes()
    fields = [("Varying", name) for name in contents.FORMS[Varying].names]
    fields += [("ModeMap", name) for name in ("noise_effects", "noise_inputs")]
    for kind, name in fields:
        for value in (..., "x", None, True, [], {"tuple": []}, {"array": 10**6}, {"dict": []}):

            def change(manifest, kind=kind, name=name, value=value):
                (first, *_) = (item for item in manifest["objects"] if item["kind"] == kind)
                if value is ...:
                    del first["fields"][name]
                else:
                    first["fields"][name] = value
                return manifest

            path.write_bytes(whole)
            forge(path, change)
            check_refused(path)


@pytest.mark.parametrize("name", ["sums", "full"])
def test_hostile_manifests_are_refused_or_harmless(name, path):
    model, X = fitted(name)
    model.save(path)
    with zipfile.ZipFile(path) as file:
        manifest = json.loads(file.read("model.json"))
    objects = manifest["objects"]
    noises = {o["fields"]["sums"]["object"] for o in objects if o["kind"] == "Varying"}
    others = [None, True, -1, 10**12, 0.5, 1e300, "x", [], [[0, "line"]], {"tuple": []}]
    others += [{"array": k} for k in range(len(manifest["arrays"]))]
    others += [{"object": k} for k in range(len(objects))]
    assert refusals(path, X, ("Varying", "ModeMap"), others, 120, noises) > 80


@pytest.mark.parametrize("estimator", [BTNRegressor, BTNClassifier])
def test_files_from_before_noise_could_vary_are_read(estimator, path):
    X, y = numbers(80)
    y = y if estimator is BTNRegressor else labels(y, 2)
    model = quietly(estimator(**HOW, structure="sums+tensor", extrapolate="flat").fit, X, y)
    model.save(path)

    def older(manifest):
        for item in manifest["objects"]:
            if item["kind"] == "ModeMap":
                del item["fields"]["noise_effects"], item["fields"]["noise_inputs"]
        begun_with = manifest["attributes"]["begun_with"]["dict"]
        for name in ("noise", "extrapolate"):
            manifest["parameters"].pop(name, None)
            if name in begun_with[::2]:
                place = begun_with.index(name)
                del begun_with[place : place + 2]
        for entry in manifest["attributes"]["structures_"]:
            place = entry["dict"].index("varying")
            del entry["dict"][place : place + 2]
        return manifest | {"version": 7}

    forge(path, older)
    same = btnkm.load(path)
    assert repr(same) == repr(model)
    assert [entry["varying"] for entry in same.structures_] == [False]
    check_same(model, same, X)
