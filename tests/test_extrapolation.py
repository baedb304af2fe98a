"""Beyond the range of the training rows: straight lines run on, and intervals widen."""

from __future__ import annotations

import json
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest

import btnkm
from btnkm import BTNClassifier, BTNRegressor, cli
from btnkm.cli import program
from btnkm.core.widening import PLACES, Widening, mean_squares
from btnkm.data.beyond import Beyond, ExtrapolationWarning
from btnkm.data.column_stats import Batch
from btnkm.data.columns import FARTHEST, FARTHEST_LEARNED, Column, _warp
from btnkm.data.readers import coded
from btnkm.io.portable import portable
from btnkm.parameters import EXTRAPOLATIONS
from btnkm.structures import extrapolation
from tests.model_files import forge

QUICK = {"n_init": 1, "max_iter": 8, "n_basis": 6, "max_rank": 3, "random_state": 0, "n_jobs": 1}
STRUCTURES = ("sums", "tensor", "full")
N = 120


def truth(X):
    return 3.0 * X[:, 0] + np.sin(4.0 * X[:, 1])


def rows(seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, truth(X) + 0.2 * rng.standard_normal(n)


@cache
def fitted(structure, extrapolate="linear", target="numbers"):
    X, y = rows()
    parameters = {"structure": structure, "extrapolate": extrapolate, **QUICK}
    if target == "numbers":
        return BTNRegressor(**parameters).fit(X, y)
    if target == "counts":
        counts = np.random.default_rng(1).poisson(np.exp(1.0 + 0.5 * y))
        return BTNRegressor(likelihood="negative_binomial", **parameters).fit(X, counts)
    if target == "prices":
        return BTNRegressor(likelihood="log_normal", **parameters).fit(X, np.exp(8.0 + 0.5 * y))
    labels = y > 0 if target == "labels" else np.digitize(y, [-1.0, 1.0])
    return BTNClassifier(**parameters).fit(X, labels)


def along(distances, d=0, side=1.0):
    """Return rows at these distances beyond an end of the range of an input, in ranges."""
    X = np.zeros((len(distances), 2))
    own = rows()[0][:, d]
    end = own.max() if side > 0 else own.min()
    X[:, d] = end + side * np.ptp(own) * np.asarray(distances)
    return X


# ---- what is predicted ---------------------------------------------------------------------------


@pytest.mark.parametrize("extrapolate", EXTRAPOLATIONS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_intervals_hold_a_known_truth_one_unit_beyond(structure, extrapolate):
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.uniform(1.0, 2.0, 400), rng.uniform(-1.0, 1.0, 400)])
    y = truth(X) + 0.2 * rng.standard_normal(400)
    low, high = fitted(structure, extrapolate).predict_interval(X).T
    assert np.mean((low <= y) & (y <= high)) >= 0.85
    held = fitted("sums", "flat").predict_dist(X)  # without the variance that is added
    assert np.mean(np.abs(y - held.mean) <= 2.0 * held.noise_std) < 0.4


@pytest.mark.parametrize("structure", ["sums", "full"])
def test_straight_parts_run_on_and_the_rest_is_held(structure):
    on, held = (fitted(structure, e) for e in EXTRAPOLATIONS)
    at = along([0.0, 0.5, 1.0, 1.5])
    assert np.ptp(np.diff(on.predict(at))) < 1e-9 * np.ptp(on.predict(at))  # a straight line
    np.testing.assert_allclose(on.predict(at), truth(at), atol=0.5)
    np.testing.assert_allclose(held.predict(at), held.predict(at)[0], rtol=1e-12)


def test_a_plane_without_noise_is_found_beyond_ten_rows():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (10, 2))
    model = BTNRegressor(structure="sums", **QUICK).fit(X, 2.0 * X[:, 0] - X[:, 1] + 1.0)
    new = np.array([[3.0, 0.0], [-2.0, 2.5], [0.5, -4.0]])
    np.testing.assert_allclose(model.predict(new), 2.0 * new[:, 0] - new[:, 1] + 1.0, atol=0.05)


def test_a_sine_is_not_claimed_to_be_known_beyond():
    rng = np.random.default_rng(3)
    x = rng.uniform(-3.0, 3.0, (N, 1))
    model = BTNRegressor(structure="sums", **QUICK).fit(x, np.sin(2.0 * x[:, 0]))
    far = rng.uniform(3.5, 9.0, (200, 1))
    low, high = model.predict_interval(far).T
    inside = np.mean((low <= np.sin(2.0 * far[:, 0])) & (np.sin(2.0 * far[:, 0]) <= high))
    assert inside >= 0.9
    assert np.all(high - low > 1.0)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_in_the_range_nothing_changes(structure):
    on, held = (fitted(structure, e) for e in EXTRAPOLATIONS)
    X = np.vstack([rows()[0], [[np.nan, 0.2]]])
    a, b = on.predict_dist(X), held.predict_dist(X)
    assert np.array_equal(a.mean, b.mean)
    assert np.array_equal(a.std, b.std)
    assert np.array_equal(on.sample_y(X, 3), held.sample_y(X, 3))
    mixed = on.predict_dist(np.vstack([X, [[9.0, 9.0]]]))
    np.testing.assert_allclose(mixed.std[:-1], a.std, rtol=1e-12)


@pytest.mark.parametrize("target", ["numbers", "counts", "prices", "labels", "three"])
@pytest.mark.parametrize("extrapolate", EXTRAPOLATIONS)
def test_uncertainty_grows_with_the_distance(target, extrapolate):
    distances = np.array([0.0, 1e-6, 0.02, 0.2, 0.5, 1.0, 1.5, 4.0, 40.0])
    for d in (0, 1):
        for side in (-1.0, 1.0):
            at = along(distances, d, side)
            model = fitted("tensor", extrapolate, target)
            columns = model.fitted_.encode(at)
            moments = model.fitted_.predict(columns, lambda p, r: p.moments(r), 2)[1, 0]
            variances = moments.reshape(len(at), -1).sum(axis=1)
            rises = np.diff(variances) / variances[0]
            assert np.all(rises > -1e-9)
            assert rises[0] < 1e-3  # without a jump
            assert variances[-1] > 1.5 * variances[0]


def test_values_are_finite_however_far():
    for structure in ("sums", "tensor"):
        for target in ("numbers", "counts", "prices"):
            model = fitted(structure, target=target)
            for far in (1e30, -1e30, 1.7e308):
                at = np.array([[far, 0.0], [far, -far]])
                distribution = model.predict_dist(at)
                parts = [distribution.mean, distribution.std, distribution.interval(0.9)]
                parts += [distribution.cdf(1.0), distribution.logpdf(1.0), model.sample_y(at)]
                assert all(np.all(np.isfinite(part)) for part in parts)
        for target in ("labels", "three"):
            probability = fitted(structure, target=target).predict_proba([[1e30, -1e300]])
            np.testing.assert_allclose(probability.sum(axis=1), 1.0, atol=1e-4)


# ---- the variance that is added ------------------------------------------------------------------


def test_tables_are_averages_of_increments():
    f = np.array([0.0, 1.0, 1.5, 1.0, 3.0, 2.0, 2.0, 4.0, 5.0])
    below, above = mean_squares(((f[:, None] - f) ** 2)[:, :, None])[..., 0]
    for k in range(PLACES):
        every = np.mean((f[k:] - f[: PLACES - k]) ** 2)
        assert below[k] >= 0.5 * (every + (f[k] - f[0]) ** 2)
        assert above[k] >= 0.5 * (every + (f[-1] - f[-1 - k]) ** 2)
    assert below[1] == 0.5 * (np.mean(np.diff(f) ** 2) + 1.0)
    assert np.all(np.diff([below, above]) >= 0)


@pytest.mark.parametrize("structure", ["sums+tensor", "tensor", "full"])
def test_increments_are_those_of_draws(structure):
    X, _ = rows()
    model = BTNRegressor(structure=structure, extrapolate="flat", **QUICK).fit(*rows())
    (state, *_), (mode_map, *_), columns = model.posterior_, model._mode_maps, model.columns_
    chosen, grid = slice(0, 12), np.linspace(columns[0].knots[0], columns[0].knots[-1], PLACES)
    codes = {j: columns[j].encode(X[chosen, j]) for j in (0, 1)}
    kind = extrapolation._FullMoves if structure == "full" else extrapolation._Moves
    moves = kind(state, mode_map, codes, np.random.default_rng(0))
    found = moves.increments(0, columns[0].encode(grid))[..., 0]
    at = np.repeat(X[chosen], PLACES, axis=0)
    at[:, 0] = np.tile(grid, 12)
    model.weights_ = np.eye(len(model.posterior_))[0]
    likelihood = model.posterior_[0].likelihood
    draws = model.sample_y(at, 400, random_state=1)
    f = ((draws - model._y_shift) / model._y_scale).reshape(12, PLACES, -1)
    apart = (f[:, :, None] - f[:, None]) ** 2
    expected = apart.mean(axis=(0, 3)) - 2.0 * likelihood.noise_std**2 * (1.0 - np.eye(PLACES))
    np.testing.assert_allclose(found, expected, atol=0.06 * expected.max())


def test_the_added_variance_by_hand():
    table = np.linspace(0.0, 2.0, PLACES)[None, :, None] * np.array([1.0, 3.0])[:, None, None]
    x = np.array([0.3, np.nan, -1.5, 2.0, 4.0])
    added = Widening((1,), table[None]).added({1: x}, slice(None))[:, 0]
    np.testing.assert_allclose(added, [0.0, 0.0, 1.0, 6.0, 54.0])


@cache
def of_five_inputs(target):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (150, 5))
    f = np.sin(3.0 * X).sum(axis=1)
    if target == "prices":
        parameters, y = {"likelihood": "log_normal"}, np.exp(f)
    elif target == "gamma":
        parameters, y = {"likelihood": "gamma"}, rng.gamma(20.0, np.exp(f) / 20.0)
    else:
        parameters, y = {"likelihood": "poisson"}, rng.poisson(np.exp(1.0 + f))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extrapolation, "MOST_OF_LOGARITHM", 1.0)
        return BTNRegressor(structure="sums", **parameters, **QUICK | {"max_iter": 30}).fit(X, y)


@pytest.mark.parametrize("target", ["prices", "gamma", "counts"])
def test_all_inputs_together_add_a_limited_variance_to_a_logarithm(target, tmp_path):
    model = of_five_inputs(target)
    (widening,) = model._widenings
    scale = model._y_scale if target == "prices" else 1.0
    alone = [np.eye(5)[j : j + 1] * 5.0 for j in range(5)]
    together = np.full((1, 5), 5.0)
    added = [
        float(model.fitted_.variance_beyond(model.fitted_.encode(X), 0)[0, 0]) * scale**2
        for X in (*alone, together)
    ]
    assert sum(added[:5]) > 1.0
    np.testing.assert_allclose(added[5], 1.0)
    assert max(added[:5]) <= 1.0
    model.save(tmp_path / "m.btn")
    same = btnkm.load(tmp_path / "m.btn")
    assert same._widenings[0].most == widening.most
    np.testing.assert_array_equal(same.predict(together), model.predict(together))


def test_files_without_a_limit_have_none(tmp_path):
    def without(manifest):
        for item in manifest["objects"]:
            if item["kind"] == "Widening":
                del item["fields"]["most"]
        return manifest

    model, path = of_five_inputs("prices"), tmp_path / "m.btn"
    model.save(path)
    forge(path, without)
    assert [part.most for part in btnkm.load(path)._widenings] == [np.inf]


def test_graphs_have_the_limit_of_all_inputs_together():
    from tests.test_onnx import check

    pytest.importorskip("onnxruntime")
    check(of_five_inputs("counts"), np.array([[0.0] * 5, [1.2] * 5, [3.0] * 5, [-9.0] * 5]))


def test_coordinates_tell_the_distance():
    (column, _) = fitted("sums").columns_
    low, high = column.knots[[0, -1]]
    values = np.array([low, high, high + 0.25 * (high - low), low - 2.0 * (high - low), 1e300])
    expected = [-1.0, 1.0, 1.25, -3.0, 1.0 + FARTHEST]
    np.testing.assert_allclose(column.encode(values), expected, rtol=1e-12)
    strict = pytest.importorskip("array_api_strict")
    elsewhere = column.encode(strict.asarray(values))
    np.testing.assert_allclose(np.from_dlpack(elsewhere), expected, rtol=1e-12)


def test_a_stream_learns_from_rows_beyond_the_range_of_its_first(monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(btnkm.streaming, "WINDOW", 50)
    x = np.concatenate([rng.uniform(0.0, 1.0, 60), rng.uniform(1.0, 2.0, 60)])[:, None]
    y = 2.0 * x[:, 0] + 0.1 * rng.standard_normal(120)
    model = BTNRegressor(structure="sums", **QUICK)
    for batch in (slice(0, 60), slice(60, 90), slice(90, 120)):
        model.partial_fit(x[batch], y[batch])
    assert model.columns_[0].knots[-1] < 1.0
    np.testing.assert_allclose(model.predict([[1.8], [3.0]]), [3.6, 6.0], atol=0.25)


@pytest.mark.parametrize("target", ["numbers", "counts", "prices", "labels", "three"])
def test_rows_are_learned_from_where_they_are_predicted(target):
    model = fitted("sums", target=target)
    X = np.array([[-40.0, 0.0], [0.5, 4.0], [9.0, 0.0], [90.0, 1.0]])
    y = np.array([True, False, True, False]) if target == "labels" else np.array([1, 2, 1, 2])
    batch = Batch([X[:, 0], X[:, 1]], y, np.ones(4))
    learned = coded(batch, model.columns_, model._same_target()).codes
    predicted = model.fitted_.encode(X)
    most = 1.0 + FARTHEST_LEARNED  # no row is to decide alone
    for of_learned, of_predicted in zip(learned, predicted, strict=True):
        np.testing.assert_array_equal(of_learned, np.clip(of_predicted, -most, most))
    nearest = 2.0 if target in ("counts", "prices") else most
    assert learned[0][-1] == nearest


# ---- warnings ------------------------------------------------------------------------------------


def test_predict_warns_once_for_each_column_and_tells_how_far():
    X, y = rows()
    frame = pd.DataFrame(X, columns=["size", "age"])
    model = BTNRegressor(structure="sums", **QUICK).fit(frame, y)
    far = frame.assign(size=frame["size"].where(frame.index > 2, 1e30))
    with pytest.warns(ExtrapolationWarning) as caught:
        model.predict(far)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_interval(far)
        model.sample_y(far)
    (text,) = [str(w.message) for w in caught]
    assert text.startswith("3 of 120 rows are beyond the range of the training rows: 'size' in 3, ")
    assert "by up to 1e+12 times the range. Predictions are extrapolated there" in text
    assert "intervals widen with the distance; check these values, or fit" in text
    with pytest.warns(ExtrapolationWarning, match="'age' in 120, by up to 2 times the range"):
        model.predict(far.assign(age=frame["age"].max() + 2.0 * np.ptp(frame["age"])))


@pytest.mark.parametrize("draw", ["normal", "uniform", "lognormal", "exponential"])
def test_ordinary_splits_do_not_warn(draw):
    told = 0
    for seed in range(200):
        train, test = np.split(getattr(np.random.default_rng(seed), draw)(size=125), [100])
        column = Column("a", *_warp(train, np.ones(100)), None, "f", None)
        told += Beyond().count([column], [column.encode(test)]).rows > 0
    assert told <= 12


def test_missing_values_categories_and_slight_excess_do_not_warn():
    X, y = rows()
    frame = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "p", "q")})
    model = BTNRegressor(structure="sums", **QUICK).fit(frame, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(pd.DataFrame({"a": [np.nan, 1.15, 0.0], "b": ["p", "q", "new"]}))


def test_parameters_are_checked():
    with pytest.raises(ValueError, match=r"^extrapolate must be one of \['linear', 'flat'\], got"):
        BTNRegressor(extrapolate="cubic").fit(*rows())


# ---- everywhere ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["numbers", "three"])
@pytest.mark.parametrize("structure", ["tensor", "full"])
def test_files_keep_it(structure, target, tmp_path):
    model, at = fitted(structure, target=target), along([0.0, 0.3, 2.0, 1e30], 1, -1.0)
    model.save(tmp_path / "m.btn")
    same = btnkm.load(tmp_path / "m.btn")
    if target == "numbers":
        assert np.array_equal(same.predict_interval(at), model.predict_interval(at))
    else:
        assert np.array_equal(same.predict_proba_interval(at), model.predict_proba_interval(at))
    assert same.extrapolate == "linear"


def test_a_file_with_a_variance_that_falls_is_refused(tmp_path):
    model = BTNRegressor(structure="tensor", **QUICK).fit(*rows())
    (widening, *_) = model._widenings
    wrong = widening.variances.copy()
    wrong[0, 0, -1] = 0.0
    model._widenings = (Widening(widening.inputs, wrong),)
    model.save(tmp_path / "m.btn")
    with pytest.raises(ValueError, match="path must name a model saved by btnkm"):
        btnkm.load(tmp_path / "m.btn")


@pytest.mark.parametrize("structure", STRUCTURES)
def test_graphs_say_the_same(structure):
    from tests.test_onnx import check

    pytest.importorskip("onnxruntime")
    for target, extrapolate in (("numbers", "linear"), ("labels", "flat")):
        model = fitted(structure, extrapolate, target)
        check(model, np.vstack([along([0.0, 0.1, 0.7, 3.0, 1e3], d) for d in (0, 1)]))


def test_the_page_says_the_same():
    from tests.browser import browser, opened
    from tests.test_what_if import ENGINE, asked, compare

    at = np.vstack([along([0.0, 0.1, 0.7, 3.0], d, side) for d in (0, 1) for side in (-1.0, 1.0)])
    with browser() as one, opened(one) as page:
        page.set_content(f"<script>{ENGINE}</script>")
        kinds = ("sums", "linear"), ("full", "linear"), ("tensor", "flat", "three")
        for of in (*kinds, ("sums", "linear", "prices")):
            compare(fitted(*of), at, asked(page, portable(fitted(*of)), at.tolist()))


def test_dask_says_the_same():
    da = pytest.importorskip("dask.array")
    model, at = fitted("tensor"), along([0.0, 0.4, 3.0, 7.0])
    lazy = model.predict_interval(da.from_array(at, chunks=(2, 2)))
    np.testing.assert_allclose(lazy.compute(scheduler="sync"), model.predict_interval(at))
    X, y = rows()
    model = BTNRegressor(structure="sums", **QUICK).fit(X + 10.0, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lazy = model.predict(da.from_array(at, chunks=(2, 2)))
    with pytest.warns(ExtrapolationWarning):
        lazy.compute(scheduler="sync")


def test_contributions_add_up_beyond_the_range():
    for structure in ("sums", "full"):
        model, at = fitted(structure), along([0.5, 2.0])
        local = model.explain_local(at)
        total = local.base + local.contributions.sum(axis=1)
        np.testing.assert_allclose(total, model.predict(at), rtol=1e-9)


def test_the_program_says_it_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, y = rows()
    pd.DataFrame(X, columns=["a", "b"]).assign(y=y).to_csv("t.csv", index=False)
    new = pd.DataFrame(X, columns=["a", "b"])
    new.loc[::10, "a"] = 1e30
    new.to_csv("new.csv", index=False)
    quick = ["--n-init", "1", "--structure", "sums", "--extrapolate", "flat"]
    assert program.main(["fit", "t.csv", "--target", "y", "-o", "m.btn", *quick]) == 0
    assert btnkm.load("m.btn").extrapolate == "flat"
    capsys.readouterr()
    assert program.main(["predict", "m.btn", "new.csv", "-o", "o.csv"]) == 0
    notes = capsys.readouterr().err
    assert notes.count("12 of 120 rows are beyond the range of the training rows: 'a' in 12") == 1
    assert program.main(["explain", "m.btn", "--local", "new.csv", "-o", "e.csv", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["beyond_range"] == {"a": 12}
    assert sum("beyond the range" in note for note in result["notes"]) == 1
    assert np.all(np.isfinite(pd.read_csv("o.csv").to_numpy()))


def test_choices_of_the_program_are_those_of_the_library():
    assert cli.options.EXTRAPOLATIONS == EXTRAPOLATIONS
    assert BTNRegressor().extrapolate == BTNClassifier().extrapolate == EXTRAPOLATIONS[0]


def test_a_recalibration_does_not_warn_again():
    X, y = rows()
    model = BTNRegressor(structure="sums", **QUICK).fit(X, y)
    with pytest.warns(ExtrapolationWarning):
        model.predict(along([3.0]))
    model.calibrate(*rows(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_interval(along([3.0]), 0.8)
    assert model.fitted_.calibration is model.calibration_
