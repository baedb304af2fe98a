"""Models with main effects leave the process as what they are: files, graphs and pages."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import warnings
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import btnkm
import btnkm.report
from btnkm import BTNClassifier, BTNRegressor, Solver
from btnkm.bases.effect import MainEffect
from btnkm.core.sums import Group
from btnkm.explain.summary import structure_line
from btnkm.io.portable import portable
from btnkm.report.panel import ENGINE_FILES, embedded, with_categories
from btnkm.structures import layouts
from btnkm.structures.mode_map import main_effects
from tests.model_files import refusals
from tests.test_files_models import answers, unlike
from tests.test_onnx import check as check_graph
from tests.test_portable import excess, rows_of, widening
from tests.test_what_if import compare

N, NEW = 110, 24
HOW = {"n_init": 2, "n_basis": 5, "max_rank": 3, "max_iter": 8, "random_state": 0, "n_jobs": 1}
STRUCTURES = ("sums", "sums+tensor")
TARGETS = ("numbers", "counts", "two classes", "three classes")
NODE = shutil.which("node")


def table(seed=0, n_places=4):
    """Return numbers, one of them with a spike, dates, categories and missing values, and f."""
    rng = np.random.default_rng(seed)
    n = N + NEW
    place, size = rng.integers(n_places, size=n), rng.normal(size=n)
    pay = np.where(rng.random(n) < 0.5, 0.0, rng.gamma(2.0, 2.0, n))
    X = pd.DataFrame(
        {
            "size": size,
            "place": np.array([f"place {k}" for k in range(n_places)], dtype=object)[place],
            "pay": pay,
            "day": pd.Timestamp("2024-02-01") + pd.to_timedelta(rng.integers(0, 900, n), "h"),
            "flag": rng.random(n) < 0.5,
            "whole": rng.uniform(size=n),
        }
    )
    whole = X["whole"].to_numpy()
    f = np.sin(size) + 0.7 * (place % 3) + 0.8 * (pay == 0) + size * whole + 2.0 * (whole > 2 / 3)
    for name in ("size", "place", "pay"):
        X[name] = X[name].mask(rng.random(n) < 0.12)
    X.loc[N, "place"] = X.loc[N + 1, "place"] = "never seen"
    X.loc[[N + 1, N + 2], "whole"] = np.nan  # which was never missing before
    X.loc[[N + 3, N + 4], "size"] = [-50.0, 50.0]
    return X, f - f.mean()


def target(kind, f):
    noise = 0.2 * np.random.default_rng(1).standard_normal(len(f))
    if kind == "numbers":
        return 300.0 + 20.0 * (f + noise)
    if kind == "counts":
        return np.random.default_rng(2).poisson(np.exp(0.5 + f)).astype(float)
    cuts = [0.0] if kind == "two classes" else [-0.5, 0.5]
    return np.array(["low", "middle", "high"], dtype=object)[np.digitize(f + noise, cuts)]


@contextmanager
def steps_everywhere():
    """Give every number two steps, whether the fit would look for them or not."""

    def with_steps(inputs, columns, codes, weights, n_curve, steps=None, **options):
        more = {}
        for j in inputs:
            seen = np.unique(codes[j][~np.isnan(codes[j])])
            if columns[j].categories is None and len(seen) > 2:
                between = 0.5 * (seen[1:] + seen[:-1])
                more[j] = np.unique(between[[len(between) // 3, 2 * len(between) // 3]])
        steps = steps or {}
        more = {j: np.union1d(steps_of, steps.get(j, ())) for j, steps_of in more.items()}
        return main_effects(inputs, columns, codes, weights, n_curve, more, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "main_effects", with_steps)
        yield


@cache
def fitted(structure, kind, n_places=4):
    """Return a model whose restarts have other weights than each other, and new rows."""
    X, f = table(n_places=n_places)
    y = target(kind, f)
    more = {"likelihood": "negative_binomial"} if kind == "counts" else {}
    if kind != "numbers":  # whose steps are found to be needed
        more["solver"] = Solver(prune=False)
    estimator = BTNClassifier if "classes" in kind else BTNRegressor
    with warnings.catch_warnings(), steps_everywhere():
        warnings.simplefilter("ignore", UserWarning)  # that quick fits found little
        model = estimator(**HOW, structure=structure, **more).fit(X.iloc[:N], y[:N])
    return model, X.iloc[N:].reset_index(drop=True)


@cache
def mixture(kind):
    """Return a model of three structures, as if each had been fitted in one."""
    parts = [fitted(name, kind)[0] for name in ("sums", "tensor", "sums+tensor")]
    return combined(parts), fitted("sums", kind)[1]


def combined(parts):
    """Return a model of the restarts of others, with weights that differ."""
    model = copy.deepcopy(parts[0])
    for name in ("posterior_", "_mode_maps", "_averages", "_effect_averages", "_widenings"):
        setattr(model, name, sum((getattr(part, name) for part in parts), ()))
    model._pasts, model.structure = [], "auto"
    model._begun_with = model._begun_with | {"structure": "'auto'"}
    model.ranks_ = np.concatenate([part.ranks_ for part in parts])
    model.weights_ = np.linspace(1.0, 2.0, len(model.posterior_))
    model.weights_ /= model.weights_.sum()
    return model


EVERY = [*product(STRUCTURES, TARGETS), *product(["mixture"], TARGETS)]


def model_of(structure, kind):
    return mixture(kind) if structure == "mixture" else fitted(structure, kind)


def test_the_models_have_what_is_to_be_tested():
    model, _ = fitted("sums+tensor", "numbers")
    assert len(set(model.weights_)) == 2
    mode_map = model._mode_maps[0]
    effects = dict(zip(mode_map.effect_inputs, mode_map.effects, strict=True))
    assert effects[0].has_missing_
    assert len(effects[1].codes_) == 4
    assert len(effects[2].spikes) == 1
    assert not effects[5].has_missing_
    assert [len(effects[j].steps) >= 2 for j in range(6)] == [True, False, True, True, False, True]
    alone, _ = fitted("sums", "three classes")
    assert alone.posterior_[0].modes == ()
    assert alone.posterior_[0].n_outputs == 3


@pytest.mark.parametrize(("structure", "kind"), EVERY[:8])
def test_the_models_have_steps_that_were_not_dropped(structure, kind):
    for state in fitted(structure, kind)[0].posterior_:
        assert "steps" in {state.sums.groups[g].part for g in state.sums.kept}


# ---- files ------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.btn"


def again(model, path):
    model.save(path)
    return btnkm.load(path)


def effects_of(model):
    return [vars(effect) for mode_map in model._mode_maps for effect in mode_map.effects]


@pytest.mark.parametrize(("structure", "kind"), EVERY)
def test_a_file_says_the_same_to_the_last_bit(structure, kind, path):
    model, X = model_of(structure, kind)
    same = again(model, path)
    for a, b in zip(answers(model, X), answers(same, X), strict=True):
        assert np.array_equal(a, b)
    assert unlike(effects_of(model), effects_of(same)) is None
    for name in ("posterior_", "_averages", "_effect_averages", "_pasts", "weights_", "columns_"):
        assert unlike(getattr(model, name), getattr(same, name)) is None, name
    assert same.structures_ == model.structures_ or "nan" in repr(model.structures_)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", ["numbers", "three classes"])
def test_a_model_learns_on_after_it_was_read(structure, kind, path):
    model, X = fitted(structure, kind)
    both = copy.deepcopy(model), again(model, path)
    y = target(kind, np.linspace(-1.0, 1.0, len(X)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for item in both:
            item.partial_fit(X, y, forget=0.9)
    assert unlike(both[0]._pasts, both[1]._pasts) is None
    for a, b in zip(answers(both[0], X), answers(again(both[1], path), X), strict=True):
        assert np.array_equal(a, b)


def _sums(model, **changes):
    state = model.posterior_[0]
    changed = replace(state, sums=replace(state.sums, **changes))
    model.posterior_ = (changed, *model.posterior_[1:])


def _changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def _effect(model, **changes):
    mode_map = model._mode_maps[0]
    effect = MainEffect()
    vars(effect).update(vars(mode_map.effects[0]) | changes)
    after = replace(mode_map, effects=(effect, *mode_map.effects[1:]))
    model._mode_maps = tuple(after for _ in model._mode_maps)


def _arranged(model, **changes):
    after = replace(model._mode_maps[0], **changes)
    model._mode_maps = tuple(after for _ in model._mode_maps)


def _averages(model, **changes):
    first, *rest = model._effect_averages[0]
    model._effect_averages = ([first._replace(**changes), *rest], *model._effect_averages[1:])


def _past(model, **changes):
    past = model._pasts[0]
    changed = replace(past, sums=past.sums._replace(**changes))
    model._pasts = [changed, *model._pasts[1:]]


def _own(model):
    return model.posterior_[0].sums


FORGED = {
    "weights below zero": lambda m: setattr(m, "weights_", np.array([1.5, -0.5])),
    "weights of another sum": lambda m: setattr(m, "weights_", np.array([0.5, 0.6])),
    "a weight that is none": lambda m: setattr(m, "weights_", np.array([np.nan, 1.0])),
    "a weight too few": lambda m: setattr(m, "weights_", np.array([1.0])),
    "other groups": lambda m: _sums(m, groups=_own(m).groups[::-1]),
    "a group of no input": lambda m: _sums(m, groups=(Group(77, "line"), *_own(m).groups[1:])),
    "a group out of range": lambda m: _sums(m, group=_changed(_own(m).group, -1, 999)),
    "no intercept": lambda m: _sums(m, group=_changed(_own(m).group, 0, 0)),
    "groups of fractions": lambda m: _sums(m, group=_own(m).group.astype(float)),
    "a function out of range": lambda m: _sums(m, column=_changed(_own(m).column, -1, 999)),
    "another degree": lambda m: _sums(m, degree=_changed(_own(m).degree, -1, 0.0)),
    "a mean that is none": lambda m: _sums(m, mean=_changed(_own(m).mean, (0, 0), np.inf)),
    "a mean too short": lambda m: _sums(m, mean=_own(m).mean[:, 1:]),
    "a variance below zero": lambda m: _sums(m, cov=_changed(_own(m).cov, (0, 1, 1), -1.0)),
    "a covariance too small": lambda m: _sums(m, cov=_own(m).cov[:, 1:, 1:]),
    "smoothness of other groups": lambda m: _sums(m, smoothness=_own(m).smoothness[1:]),
    "a prior of other groups": lambda m: _sums(m, prior=_own(m).prior.take([0])),
    "a prior that is none": lambda m: _sums(m, prior=_own(m).prior.take([])),
    "precisions of other groups": lambda m: _sums(m, precision=_own(m).precision.take([0])),
    "no posterior": lambda m: setattr(
        m, "posterior_", tuple(replace(state, sums=None) for state in m.posterior_)
    ),
    "effects of other columns": lambda m: _arranged(m, effect_inputs=(1, 0, 2, 3, 4, 5)),
    "effects of no column": lambda m: _arranged(m, effect_inputs=(0, 1, 2, 3, 4, 77)),
    "effects of a column twice": lambda m: _arranged(m, effect_inputs=(0, 1, 2, 3, 4, 4)),
    "an effect too few": lambda m: _arranged(m, effects=m._mode_maps[0].effects[1:]),
    "neither effects nor tensor": lambda m: _arranged(
        m, effects=(), effect_inputs=(), inputs=[], bases=[]
    ),
    "a line too short": lambda m: _effect(m, line_=np.zeros(2)),
    "another degree of a curve": lambda m: _effect(m, degree_=10**12),
    "other knots": lambda m: _effect(m, knots=np.arange(3.0)),
    "steps of other functions": lambda m: _effect(m, steps=np.arange(7.0)),
    "steps that are none": lambda m: _effect(m, steps=np.array([0.0, np.nan])),
    "steps in disorder": lambda m: _effect(m, steps=m._mode_maps[0].effects[0].steps[::-1]),
    "means too few": lambda m: _effect(m, center_=np.zeros(1)),
    "parts of other functions": lambda m: _effect(m, parts_=["line"]),
    "a number with categories": lambda m: _effect(m, n_categories=3),
    "averages of other functions": lambda m: _averages(m, mean=np.zeros(1)),
    "averages of another mode": lambda m: _averages(m, mode=3),
    "averages too narrow": lambda m: _averages(m, cross=np.zeros((1, 1))),
    "no averages": lambda m: setattr(m, "_effect_averages", ([], [])),
    "past rows too narrow": lambda m: _past(m, linear=np.zeros((1, 2))),
    "past rows that are none": lambda m: _past(m, gram=np.nan * m._pasts[0].sums.gram),
    "past rows of a smaller sum": lambda m: _past(m, sums=_own(m).without(_own(m).kept)),
    "no past rows": lambda m: setattr(m, "_pasts", [replace(p, sums=None) for p in m._pasts]),
    "structures without a name": lambda m: setattr(m, "structures_", [{"weight": 1.0}]),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_does_not_fit_together_is_refused(name, path):
    model = copy.deepcopy(fitted("sums+tensor", "numbers")[0])
    FORGED[name](model)
    model.save(path)
    with pytest.raises(ValueError, match="^path must name a model saved by btnkm, got"):
        btnkm.load(path)


def test_hostile_manifests_are_refused_or_harmless(path):
    model, X = fitted("sums", "numbers")
    model.save(path)
    kinds = ("MainEffect", "Sums", "EffectStats", "EffectAverages", "ModeMap")
    others = [None, True, -1, 10**12, 0.5, "x", [], [[]], [[0, "line"]], {"tuple": []}]
    others += [{"array": 0}, {"array": 10**9}, {"object": 0}, {"float": "nan"}]
    assert refusals(path, X, kinds, others, 120) > 80


# ---- plain data, graphs and pages --------------------------------------------------------------


def effect(column, basis, value):
    """Return the functions of a main effect at a raw value, as ``portable`` describes them."""
    known = len(basis["center"]) - basis["missing"]
    values = np.zeros(known)
    unknown = value is None
    if column["categories"] is not None:
        code = -1 if unknown else column["categories"].get(value, -1)
        unknown = unknown or code < 0
        values = (basis["codes"] == code).astype(float)
    elif basis["line"] is not None and not unknown:
        x = np.interp(value, column["knots"], column["positions"])
        curve = [np.cos(k * np.arccos(x)) for k in range(1, basis["degree"] + 1)]
        rise = basis["line"][-1] - basis["line"][0]
        line = np.interp(x, column["positions"], basis["line"])
        line += basis["runs_on"] * excess(column, value) * rise
        values = np.array([line, *curve, *(x > basis["steps"]), *(basis["spikes"] == x)])
    values = np.zeros(known) if unknown else values - basis["center"][:known]
    return np.append(values, [float(value is None) - basis["center"][-1]] * basis["missing"])


@pytest.mark.parametrize("kind", ["numbers", "three classes"])
def test_plain_data_tell_all_that_main_effects_need(kind):
    model, X = fitted("sums", kind)
    data = portable(model)
    (start,) = data["restarts"]
    assert start["modes"] == []
    assert data["format"] == 5
    sums, rows, least = start["sums"], rows_of(X), np.atleast_1d(start["least"])
    assert sums["mean"].shape[0] == (3 if kind == "three classes" else 1)
    means, variances = [], []
    for row in rows:
        g = [np.ones(1)]
        for entry in sums["inputs"]:
            column = data["columns"][entry["column"]]
            basis_values = effect(column, column["effects"][entry["effect"]], row[entry["column"]])
            g.append(basis_values[entry["functions"]])
        g = np.concatenate(g)
        first, second = np.triu_indices(len(g))
        pairs = np.where(first == second, 1.0, 2.0) * g[first] * g[second]
        means.append(sums["mean"] @ g)
        variances.append(np.maximum(sums["cov"] @ pairs, least) + widening(data, start, row))
    actual = np.squeeze([means, variances])
    moments = model.fitted_.predict(model.fitted_.encode(X), lambda p, rows: p.moments(rows), 2)
    expected = moments[:, 0]
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


def test_functions_that_were_dropped_are_not_stored():
    model, _ = copy.deepcopy(fitted("sums", "numbers"))
    (state,) = model.posterior_
    lost = state.sums.kept[::2]
    model.posterior_ = (replace(state, sums=state.sums.without(lost)),)
    (start,) = portable(model)["restarts"]
    size = model.posterior_[0].sums.size
    assert size < state.sums.size
    assert start["sums"]["cov"].shape == (1, size * (size + 1) // 2)
    assert 1 + sum(len(entry["functions"]) for entry in start["sums"]["inputs"]) == size


@pytest.mark.parametrize(("structure", "kind"), EVERY)
def test_a_graph_says_what_the_model_says(structure, kind):
    check_graph(*model_of(structure, kind))


def asked(data, rows):
    """Return what the engine of the page says of raw rows, by Node."""
    if NODE is None:
        pytest.skip("Node is not installed")
    folder = Path(btnkm.report.__file__).parent
    engine = "\n".join((folder / name).read_text(encoding="utf-8") for name in ENGINE_FILES)
    text, numbers = embedded(data)
    script = f"""
        {engine.replace('"use strict";', "")}
        const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
        const model = new WhatIf.Model(JSON.parse(given.text), given.numbers);
        const said = given.rows.map((row) => {{
            const {{ mixture, ...found }} = model.predict(row);
            return mixture ? {{ pdf: mixture.pdf(found.interval[0]), ...found }} : found;
        }});
        console.log(JSON.stringify(said));
    """
    given = json.dumps({"text": text, "numbers": numbers, "rows": [list(row) for row in rows]})
    told = subprocess.run(
        [NODE, "-e", script], input=given, capture_output=True, text=True, check=True, timeout=600
    )
    return json.loads(told.stdout)


@pytest.mark.parametrize(("structure", "kind"), EVERY)
def test_the_page_says_what_the_model_says(structure, kind):
    model, X = model_of(structure, kind)
    compare(model, X, asked(portable(model), rows_of(X)))


def test_a_page_that_knows_some_categories_takes_the_others_for_new_ones():
    model, X = fitted("sums+tensor", "numbers", n_places=24)
    assert model.columns_[1].basis.n_functions_ == 25
    names = list(model.columns_[1].categories)
    kept = names[1:15:2]
    data = with_categories(portable(model), {1: kept})
    X = X.assign(place=np.resize(np.array([*kept, None, "never seen"], dtype=object), len(X)))
    compare(model, X, asked(data, rows_of(X)))
    output = asked(data, rows_of(X.assign(place=names[0])))
    compare(model, X.assign(place="never seen"), output)


@pytest.mark.parametrize("kind", ["numbers", "three classes"])
@pytest.mark.parametrize("structure", ["sums", "mixture"])
def test_a_report_is_written_with_its_panel(structure, kind, tmp_path):
    model, X = model_of(structure, kind)
    text = model.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="what-if-numbers"' in text
    assert "equal weight" not in text
    line = structure_line(model)
    assert line == "sums" or line.startswith("sums + tensor (weight 0.")
    assert f"<dt>Structure</dt><dd>{line}</dd>" in text
    assert "<dt>Structure</dt><dd>sums" in text.split('<section id="fit"')[0]
    told = ", ".join(f"{weight:.2f}" for weight in model.weights_)
    count = len(model.weights_)
    told = "1" if count == 1 else f"{count}, averaged with weights {told}"
    assert f"<dt>Restarts</dt><dd>{told}</dd>" in text
    assert ("<dt>Ranks</dt>" in text) == (structure == "mixture")
