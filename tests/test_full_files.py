"""Models with a full tensor as files: the same to the last bit, or refused."""

from __future__ import annotations

import copy
import json
import tracemalloc
import warnings
import zipfile
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import btnkm
from btnkm import BTNClassifier, BTNRegressor
from btnkm.bases.effect import Coordinates
from btnkm.cli import program
from btnkm.core.full import FullPosterior, Kernel
from btnkm.io import contents, models, rules
from btnkm.structures import candidates, layouts
from tests.cli_data import houses, write
from tests.model_files import forge, refusals
from tests.test_files_models import labels, table, unlike

N, NEW = 70, 20
SIZE, PAY, COLOUR, DAY = range(4)  # columns
HOW = {"structure": "full", "random_state": 0, "n_jobs": 1}
LOW_RANK = {"n_init": 1, "max_iter": 3, "n_basis": 4, "max_rank": 2, "random_state": 0, "n_jobs": 1}
KINDS = ("numbers", "outliers", "counts", "least squares", "two classes", "three classes")


def target(kind, y):
    """Return what a model of this kind is fitted to."""
    if kind == "counts":
        return np.random.default_rng(0).poisson(np.exp(0.5 * y)).astype(float)
    if kind in ("two classes", "least squares"):
        return labels(y, 2)
    return np.array(["low", "middle", "high"])[labels(y, 3)] if kind == "three classes" else y


def made(kind, **how):
    """Return an estimator of this kind."""
    more = {"counts": "negative_binomial", "outliers": "student_t", "least squares": None}
    if kind == "least squares":
        how["likelihood"] = "least_squares"
    elif kind in more:
        how["likelihood"] = more[kind]
    labelled = "classes" in kind or kind == "least squares"
    return (BTNClassifier if labelled else BTNRegressor)(**how)


@cache
def rows():
    """Return numbers with a spike, categories, dates, missing values, and a target; new ones last.

    Of these some have what was never seen.
    """
    X, y = table(N + NEW)
    X.loc[N, "colour"] = X.loc[N + 1, "colour"] = "violet"
    X.loc[[N + 1, N + 2], "pay"] = np.nan
    X.loc[N + 3, "size"] = 50.0
    return X, y


def fit(kind, **how):
    X, y = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that quick fits found little
        return made(kind, **how).fit(X.iloc[:N], target(kind, y)[:N])


@cache
def fitted(kind):
    return fit(kind, **HOW)


@contextmanager
def even_weights(*names):
    """Let ``auto`` give these structures the same weight."""
    judge = candidates.judge

    def evenly(*given):
        judged = judge(*given)
        first = {candidate.mode_map.structure: candidate for candidate in reversed(judged)}
        for chosen in judged:
            structure = chosen.mode_map.structure
            chosen.weight = (structure in names and first[structure] is chosen) / len(names)
        return judged

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "judge", evenly)
        yield


@cache
def mixture(kind):
    """Return a model of a full tensor and of other structures."""
    with even_weights("full", "sums+tensor"):
        return fit(kind, **LOW_RANK, structure="auto")


def low_rank(name):
    """Return an attribute of the one member of a mixture that is no full tensor."""
    model = mixture("numbers")
    place = [mode_map.full_tensor for mode_map in model._mode_maps].index(False)
    return getattr(model, name)[place : place + 1]


def answers(model, X):
    """Return what a model says of rows."""
    if isinstance(model, BTNClassifier):
        return [model.predict(X), model.predict_proba(X), model.predict_proba_interval(X)]
    both = model.predict(X, return_std=True)
    draws = model.sample_y(X, 3, random_state=5)
    return [*both, model.predict_interval(X), model.predict_quantiles(X, [0.1, 0.6]), draws]


def coordinates(model):
    """Return the attributes of every input of a full tensor."""
    return [
        vars(basis)
        for mode_map in model._mode_maps
        if mode_map.full_tensor
        for basis in mode_map.bases
    ]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.btn"


def again(model, path):
    model.save(path)
    return btnkm.load(path)


def check_same(model, same):
    X = rows()[0]
    for a, b in zip(answers(model, X), answers(same, X), strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)
    for name in ("posterior_", "columns_", "weights_", "_averages", "_effect_averages", "_pasts"):
        assert unlike(getattr(model, name), getattr(same, name)) is None, name
    assert unlike(coordinates(model), coordinates(same)) is None
    assert repr(same) == repr(model)
    assert same.structures_ == model.structures_ or "nan" in repr(model.structures_)


def test_the_models_have_what_is_to_be_tested():
    kernel = fitted("numbers").posterior_[0].kernel
    assert kernel.categorical.tolist() == [False, False, True, False]
    assert (kernel.missing > 0).tolist() == [True, False, True, False]
    assert fitted("three classes").posterior_[0].target.shape == (3, N)
    assert fitted("two classes").posterior_[0].target.shape == (1, N)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_comes_back_bit_for_bit(kind, path):
    check_same(fitted(kind), again(fitted(kind), path))


@pytest.mark.parametrize("kind", ["numbers", "two classes", "three classes"])
def test_so_does_one_of_several_structures(kind, path):
    model = mixture(kind)
    assert {mode_map.structure for mode_map in model._mode_maps} == {"full", "sums+tensor"}
    assert model._pasts == []  # beside a full tensor none goes on
    check_same(model, again(model, path))


@pytest.mark.parametrize(
    "X",
    [
        pytest.param(rows()[0][["size"]], id="one column"),
        pytest.param(rows()[0][["colour"]], id="one column of text"),
        pytest.param(rows()[0].assign(same=1.0, none=np.nan), id="columns that never vary"),
        pytest.param(rows()[0][["pay"]].to_numpy(dtype=np.float32), id="single precision"),
    ],
)
def test_any_table_comes_back(X, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = BTNRegressor(**HOW).fit(X[:N], rows()[1][:N])
    same = again(model, path)
    for a, b in zip(answers(model, X), answers(same, X), strict=True):
        assert np.array_equal(a, b)


def test_wide_tables_with_straight_lines_come_back(path, monkeypatch):
    arranged = layouts.full_mode_map

    def changed(*given, **options):
        return arranged(*given[:-1], [SIZE, DAY], **options)

    monkeypatch.setattr(layouts, "full_mode_map", changed)
    model = fit("numbers", **HOW)
    assert any(basis["straight"] for basis in coordinates(model))
    check_same(model, again(model, path))


def test_weights_of_rows_come_back(path):
    X, y = rows()
    weight = np.arange(N) % 3
    model = BTNRegressor(**HOW).fit(X[:N], y[:N], sample_weight=weight)
    assert len(model.posterior_[0].share) == np.sum(weight > 0)
    check_same(model, again(model, path))


def test_a_model_that_was_read_is_written_again_to_the_same_bytes(path, tmp_path):
    again(mixture("numbers"), path).save(tmp_path / "second.btn")
    assert path.read_bytes() == (tmp_path / "second.btn").read_bytes()


def test_what_is_made_of_the_rows_is_not_written(path):
    model = copy.deepcopy(fitted("numbers"))  # without what predictions have made
    model.save(path)
    before = path.read_bytes()
    model.predict(rows()[0], return_std=True)
    assert "_solved" in vars(model.posterior_[0])
    model.save(path)
    assert path.read_bytes() == before


# ---- what does not fit together -------------------------------------------------------------


def _state(model, **changes):
    first, *others = model.posterior_
    model.posterior_ = (replace(first, **changes), *others)


def _kernel(model, **changes):
    _state(model, kernel=replace(model.posterior_[0].kernel, **changes))


def _basis(model, d, **changes):
    mode_map = model._mode_maps[0]
    basis = Coordinates()
    vars(basis).update(vars(mode_map.bases[d]) | changes)
    _arranged(model, bases=[*mode_map.bases[:d], basis, *mode_map.bases[d + 1 :]])


def _arranged(model, **changes):
    after = replace(model._mode_maps[0], **changes)
    model._mode_maps = tuple(after for _ in model._mode_maps)


def _first(model, name, value):
    setattr(model, name, (value, *getattr(model, name)[1:]))


def _changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def _row(model, d, place, value):
    every = list(model.posterior_[0].rows)
    every[d] = _changed(every[d], place, value)
    _state(model, rows=tuple(every))


def _own(model):
    return model.posterior_[0]


FORGED = {
    "too few rows of an input": lambda m: _state(m, rows=(_own(m).rows[0][1:], *_own(m).rows[1:])),
    "an input too few": lambda m: _state(m, rows=_own(m).rows[1:]),
    "inputs in a list": lambda m: _state(m, rows=list(_own(m).rows)),
    "two coordinates": lambda m: _state(m, rows=tuple(part[:, :2] for part in _own(m).rows)),
    "coordinates of little precision": lambda m: _state(
        m, rows=tuple(part.astype(np.float16) for part in _own(m).rows)
    ),
    "a coordinate that is none": lambda m: _row(m, SIZE, (0, 1), np.nan),
    "a coordinate without end": lambda m: _row(m, SIZE, (0, 0), np.inf),
    "a coordinate far away": lambda m: _row(m, PAY, (3, 1), 1e9),
    "a line far away": lambda m: _row(m, PAY, (3, 0), 1e9),
    "a value half known": lambda m: _row(m, SIZE, (1, 2), 0.5),
    "a gap where there is none": lambda m: _row(m, PAY, 0, 0.0),
    "a line of a missing value": lambda m: _row(m, SIZE, (0, 0), 0.1),
    "a category never seen": lambda m: _row(m, COLOUR, (1, 1), -1.0),
    "a category of no level": lambda m: _row(m, COLOUR, (1, 1), 9.0),
    "half a category": lambda m: _row(m, COLOUR, (1, 1), 0.5),
    "a line of a category": lambda m: _row(m, COLOUR, (1, 0), 1.0),
    "shares of another sum": lambda m: _state(m, share=2.0 * _own(m).share),
    "a share of nothing": lambda m: _state(m, share=_changed(_own(m).share, 0, 0.0)),
    "a share below zero": lambda m: _state(m, share=_changed(_own(m).share, 0, -0.1)),
    "shares of other rows": lambda m: _state(m, share=np.full(N + 1, 1.0 / (N + 1))),
    "no rows": lambda m: _state(
        m,
        share=np.empty(0),
        target=np.empty((1, 0)),
        noise=np.empty((1, 0)),
        rows=tuple(part[:0] for part in _own(m).rows),
    ),
    "a target that is none": lambda m: _state(m, target=_changed(_own(m).target, (0, 0), np.nan)),
    "targets of one axis": lambda m: _state(m, target=_own(m).target[0]),
    "targets of two outputs": lambda m: _state(m, target=np.repeat(_own(m).target, 2, axis=0)),
    "targets too few": lambda m: _state(m, target=_own(m).target[:, 1:]),
    "no noise": lambda m: _state(m, noise=_changed(_own(m).noise, (0, 3), 0.0)),
    "noise below zero": lambda m: _state(m, noise=-_own(m).noise),
    "noise without end": lambda m: _state(m, noise=_changed(_own(m).noise, (0, 3), np.inf)),
    "noise of other rows": lambda m: _state(m, noise=_own(m).noise[:, 1:]),
    "outputs of other classes": lambda m: _state(m, n_outputs=3),
    "another likelihood": lambda m: _state(m, likelihood=fitted("counts").likelihood_),
    "a likelihood of nothing": lambda m: _state(
        m, likelihood=replace(_own(m).likelihood, noise=btnkm.Gamma(-1.0, 1.0))
    ),
    "too few hyperparameters": lambda m: _state(m, theta=_own(m).theta[1:]),
    "other hyperparameters": lambda m: _state(m, theta=_own(m).theta + 0.1),
    "a hyperparameter that is none": lambda m: _state(m, theta=_own(m).theta * np.nan),
    "a roughness above 1": lambda m: _kernel(m, rough=_own(m).kernel.rough + 1.0),
    "no flags": lambda m: _kernel(m, categorical=_own(m).kernel.categorical.astype(float)),
    "other flags": lambda m: _kernel(m, categorical=~_own(m).kernel.categorical),
    "flags of other inputs": lambda m: _kernel(m, categorical=_own(m).kernel.categorical[1:]),
    "a constant below zero": lambda m: _kernel(m, constant=-1.0),
    "a product below zero": lambda m: _kernel(m, product=-1.0),
    "a product that is none": lambda m: _kernel(m, product=np.nan),
    "coordinates of a column too few": lambda m: _arranged(m, bases=m._mode_maps[0].bases[1:]),
    "columns in another order": lambda m: _arranged(m, inputs=[2, 1, 0, 3]),
    "a column twice": lambda m: _arranged(m, inputs=[0, 1, 2, 2]),
    "a column that is not there": lambda m: _arranged(m, inputs=[0, 1, 2, 9]),
    "no columns": lambda m: _arranged(m, inputs=[], bases=[]),
    "a kernel of low rank": lambda m: _arranged(m, full_tensor=False),
    "a kernel that is neither": lambda m: _arranged(m, full_tensor=1),
    "a full train": lambda m: _arranged(m, full_cores=True),
    "anchors": lambda m: _arranged(m, anchored=True),
    "splines": lambda m: _arranged(m, splines=True),
    "a sum before": lambda m: _arranged(m, sums_first=True),
    "effects": lambda m: _arranged(
        m,
        effects=low_rank("_mode_maps")[0].effects,
        effect_inputs=(0, 1, 2, 3),
    ),
    "other functions": lambda m: _arranged(m, bases=[column.basis for column in m.columns_]),
    "a number for a category": lambda m: _basis(m, COLOUR, categorical=False),
    "a category for a number": lambda m: _basis(m, PAY, categorical=True),
    "a straight line": lambda m: _basis(m, PAY, straight=True),
    "no variation": lambda m: _basis(m, PAY, varies_=False),
    "gaps of no row": lambda m: _basis(m, PAY, has_missing_=True),
    "no gaps": lambda m: _basis(m, SIZE, has_missing_=False),
    "other knots": lambda m: _basis(m, SIZE, knots=np.arange(3.0)),
    "other positions": lambda m: _basis(m, SIZE, positions=np.arange(3.0)),
    "a line too short": lambda m: _basis(m, SIZE, line_=np.zeros(2)),
    "a line that is none": lambda m: _basis(m, SIZE, line_=np.nan * m._mode_maps[0].bases[0].line_),
    "a line too steep": lambda m: _basis(m, SIZE, line_=1e200 * m._mode_maps[0].bases[0].line_),
    "no scale": lambda m: _basis(m, SIZE, scale_=0.0),
    "a scale of next to nothing": lambda m: _basis(m, SIZE, scale_=1e-300),
    "no center": lambda m: _basis(m, SIZE, center_=np.inf),
    "more attributes": lambda m: _basis(m, SIZE, n_functions_=10**9),
    "averages": lambda m: _first(m, "_averages", low_rank("_averages")[0]),
    "averages of effects": lambda m: _first(m, "_effect_averages", [None]),
    "no averages": lambda m: _first(m, "_averages", None),
    "past rows": lambda m: setattr(m, "_pasts", [None] * len(m.posterior_)),
    "a posterior of low rank": lambda m: _first(m, "posterior_", low_rank("posterior_")[0]),
    "no posterior": lambda m: _first(m, "posterior_", None),
} | {
    f"{name} {what}": lambda m, name=name, change=change: _kernel(
        m, **{name: change(getattr(_own(m).kernel, name))}
    )
    for name in ("line", "curve", "missing", "factor", "curve_length", "factor_length")
    for what, change in {
        "below zero": lambda array: -array - 1.0,
        "that is none": lambda array: array * np.nan,
        "of all inputs but one": lambda array: array[1:],
        "twice as large": lambda array: 2.0 * array,
        "of whole numbers": lambda array: array.astype(int),
    }.items()
}


def check_refused(path):
    with pytest.raises(ValueError, match="^path must name a model saved by btnkm, got") as caught:
        btnkm.load(path)
    assert caught.type is ValueError
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FORGED)
def test_what_does_not_fit_together_is_refused(name, path):
    mixture("numbers")
    model = copy.deepcopy(fitted("numbers"))
    FORGED[name](model)
    model.save(path)
    check_refused(path)


@pytest.mark.parametrize("name", ["last", "factor_length", "curve_length", "noise"])
def test_so_is_a_length_scale_or_a_variance_of_nothing(name, path):
    model = copy.deepcopy(fitted("three classes"))
    if name == "noise":
        _state(model, noise=_changed(_own(model).noise, (2, -1), 0.0))
    elif name == "last":
        _state(model, noise=_own(model).noise[:2])
    else:
        _kernel(model, **{name: _changed(getattr(_own(model).kernel, name), 0, 0.0)})
    model.save(path)
    check_refused(path)


EVERY_FIELD = [
    (kind.__name__, name)
    for kind in (FullPosterior, Kernel, Coordinates)
    for name in contents.FORMS[kind].names
]
FLAGS = ("categorical", "straight", "has_missing_", "varies_", "runs_on")


def test_every_field_of_a_class_has_a_kind():
    for kind in (FullPosterior, Kernel):
        names = [field.name for field in fields(kind)]
        assert sorted(name for owner, name in EVERY_FIELD if owner == kind.__name__) == sorted(
            names
        )
    names = [name for owner, name in EVERY_FIELD if owner == "Coordinates"]
    assert set(names) == set(coordinates(fitted("numbers"))[0])


@pytest.mark.parametrize(("kind", "name"), EVERY_FIELD)
def test_every_field_is_there_and_of_its_kind(kind, name, path):
    fitted("numbers").save(path)
    whole = path.read_bytes()
    for value in (..., "x", None, True, [], {"tuple": []}, {"array": 10**6}, {"dict": []}):
        if name == "n_outputs" and value is None:
            continue  # there is one output
        if value is True and kind == "Coordinates" and name in FLAGS:
            continue  # see what does not fit together

        def change(manifest, value=value):
            (first, *_) = (item for item in manifest["objects"] if item["kind"] == kind)
            if value is ...:
                del first["fields"][name]
            else:
                first["fields"][name] = value
            return manifest

        path.write_bytes(whole)
        forge(path, change)
        check_refused(path)


def test_hostile_manifests_are_refused_or_harmless(path):
    model, X = fitted("numbers"), rows()[0]
    model.save(path)
    with zipfile.ZipFile(path) as file:
        arrays = json.loads(file.read("model.json"))["arrays"]
    kinds = ("FullPosterior", "Kernel", "Coordinates", "ModeMap")
    others = [None, True, -1, 10**12, 0.5, 1e300, "matern", [], {"tuple": []}, {"float": "nan"}]
    others += [{"array": k} for k in range(len(arrays))]
    assert refusals(path, X, kinds, others, 150) > 100


def test_a_small_file_cannot_ask_for_a_large_matrix(path, monkeypatch):
    n = rules.MOST_FULL_ROWS + 1
    X = np.linspace(-1.0, 1.0, 40)[:, None]
    model = BTNRegressor(**HOW).fit(X, np.sin(5.0 * X[:, 0]))
    state = model.posterior_[0]
    _state(
        model,
        rows=(np.resize(state.rows[0], (n, 3)),),
        share=np.full(n, 1.0 / n),
        target=np.resize(state.target, (1, n)),
        noise=np.resize(state.noise, (1, n)),
    )
    with pytest.raises(ValueError, match=r"must have at most 20,000 rows .*, got one of 20,001; "):
        model.save(path)
    assert not path.exists()
    monkeypatch.setattr(models, "MOST_FULL_ROWS", n)
    model.save(path)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="one with a full tensor of 20,001 rows, not 1 to 20"):
            btnkm.load(path)
        assert tracemalloc.get_traced_memory()[1] < 8 * path.stat().st_size
    finally:
        tracemalloc.stop()


# ---- the program ----------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a table, in which the program runs."""
    monkeypatch.chdir(tmp_path)
    write("houses.csv", houses(60))
    return tmp_path


FIT = ("fit", "houses.csv", "--drop", "id", "--jobs", "1", "-o", "m.btn", "--target")


@pytest.mark.parametrize("column", ["price", "sold"])
def test_the_program_fits_tells_and_predicts(column, here, capsys):
    assert program.main([*FIT, column, "--structure", "full", "--full-rows", "60"]) == 0
    model = btnkm.load("m.btn")
    assert model.solver.full_rows == 60
    assert {mode_map.structure for mode_map in model._mode_maps} == {"full"}
    capsys.readouterr()
    assert program.main(["info", "m.btn"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    told = " ".join(out.split())
    assert "structure='full'" in told
    assert "full_rows=60" in told
    assert " rank " not in told  # there is no limit to it
    assert program.main(["info", "m.btn", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["rank"] is None
    assert printed["structures"] == [{"name": "full", "weight": 1.0}]
    assert program.main(["predict", "m.btn", "houses.csv", "-o", "out.csv"]) == 0
    assert len(pd.read_csv("out.csv")) == 60


def test_the_program_refuses_what_cannot_be(here, capsys):
    assert program.main([*FIT, "price", "--structure", "full", "--full-rows", "59"]) != 0
    assert "must have at most 59 rows, got 60" in " ".join(capsys.readouterr().err.split())
    for wrong in (("--full-rows", "-1"), ("--full-rows", "many"), ("--structure", "whole")):
        assert program.main([*FIT, "price", *wrong]) == 2
        assert wrong[0] in capsys.readouterr().err
    assert program.main([*FIT, "price", "--structure", "full", "--set", "structure=sums"]) == 2
    assert "--set must not repeat --structure" in capsys.readouterr().err
    assert program.main([*FIT, "price", "--full-rows", "9", "--set", "solver.full_rows=8"]) == 2
    assert "--set must not repeat --full-rows" in capsys.readouterr().err
    cp = ("--network", "cp", "--set", "network.order=given")
    assert program.main([*FIT, "price", *cp]) == 1
    assert "got 'cp' and network.order" in " ".join(capsys.readouterr().err.split())
    assert not (here / "m.btn").exists()
