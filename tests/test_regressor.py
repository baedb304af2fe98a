"""BTNRegressor from outside: odd data, equivalences, attributes, parameters, progress."""

from __future__ import annotations

import contextlib
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError

from btnkm import BTNClassifier, BTNRegressor, Gamma, Priors, Solver, TensorTrain
from btnkm.bases import Chebyshev
from btnkm.core.cp import CP
from btnkm.core.sweeper import Sweeper
from btnkm.execution.local import make_plan
from btnkm.parameters import option_names, with_options

SMALL = {"n_init": 1, "max_iter": 10, "max_rank": 5, "n_basis": 8, "random_state": 0}
SMALL |= {"structure": "tensor"}


def model(**changes):
    return BTNRegressor(**{**SMALL, **changes})


def draw(n=100, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def data():
    return draw()


@pytest.fixture(scope="module")
def fitted(data):
    return model(n_init=2, max_iter=30).fit(*data)


# odd inputs


@pytest.mark.parametrize("scale", [1e12, 1e-12, 1e300, 1e-300, -1e5])
def test_the_scale_of_inputs_does_not_matter(data, scale):
    X, y = data
    expected, spread = model().fit(X, y).predict(X, return_std=True)
    if scale < 0:  # a mirrored input is another start, so only the fit is alike
        assert model().fit(X * scale, y).score(X * scale, y) > 0.9
        return
    mean, std = model().fit(X * scale, y).predict(X * scale, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    np.testing.assert_allclose(std, spread, rtol=1e-6)


def test_inputs_of_very_different_scales(data):
    X, y = data
    expected = model().fit(X, y).predict(X)
    uneven = X * [1e300, 1e-300, 1.0] + [0.0, 0.0, 1e6]
    np.testing.assert_allclose(model().fit(uneven, y).predict(uneven), expected, atol=1e-6)


@pytest.mark.parametrize(("scale", "shift"), [(1e8, 0.0), (1e-8, 0.0), (1.0, 1e6), (-3.0, 5.0)])
def test_the_scale_of_y_carries_over(data, scale, shift):
    X, y = data
    plain, moved = model().fit(X, y), model().fit(X, scale * y + shift)
    if scale < 0:
        assert moved.score(X, scale * y + shift) > 0.9
        return
    mean, std = plain.predict(X, return_std=True)
    new_mean, new_std = moved.predict(X, return_std=True)
    np.testing.assert_allclose((new_mean - shift) / scale, mean, atol=1e-6)
    np.testing.assert_allclose(new_std / scale, std, rtol=1e-5)
    assert moved.noise_std_ == pytest.approx(scale * plain.noise_std_, rel=1e-5)
    interval = (moved.predict_interval(X) - shift) / scale
    np.testing.assert_allclose(interval, plain.predict_interval(X), atol=1e-5)


def test_constant_and_empty_columns_change_nothing(data):
    X, y = data
    expected = model().fit(X, y)
    wide = np.column_stack([np.full(100, 7.0), X[:, :2], np.full(100, np.nan), X[:, 2]])
    wider = model().fit(wide, y)
    np.testing.assert_array_equal(wider.predict(wide), expected.predict(X))
    np.testing.assert_array_equal(wider.n_basis_[[0, 3]], 1)
    np.testing.assert_array_equal(wider.feature_importances_[[0, 3]], 0.0)
    # whatever comes in such a column later changes nothing either
    wide[:, 0], wide[:, 3] = np.nan, 5.0
    np.testing.assert_array_equal(wider.predict(wide), expected.predict(X))


@pytest.mark.filterwarnings("ignore:no input was found")
@pytest.mark.parametrize("value", [3.0, np.nan], ids=["constant", "missing"])
def test_only_constant_columns_predict_the_mean(data, value):
    y = data[1]
    constant = model().fit(np.full((100, 2), value), y)
    mean, std = constant.predict([[value, value], [9.0, np.nan]], return_std=True)
    np.testing.assert_allclose(mean, y.mean(), atol=0.02)
    np.testing.assert_allclose(std, y.std(), rtol=0.1)
    np.testing.assert_array_equal(constant.feature_importances_, 0.0)


@pytest.mark.filterwarnings("ignore:no input was found")
def test_empty_columns_take_text_later(data):
    empty = model().fit(np.full((100, 1), np.nan), data[1])
    assert empty.predict(np.array([["a"]], dtype=object))[0] == empty.predict([[np.nan]])[0]


def test_equal_columns(data):
    X, y = data
    twice = np.column_stack([X, X])
    assert model().fit(twice, y).score(twice, y) > 0.7


def test_one_row_raises(data):
    X, y = data
    with pytest.raises(ValueError, match="at least 2 rows, got 1 sample"):
        model().fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="at least 2 rows, got 1 sample"):
        model().fit(X[:2], y[:2], [1.0, 0.0])


def test_two_rows():
    mean, std = model().fit([[1.0], [2.0]], [0.0, 1.0]).predict([[1.0], [2.0], [9.0]], True)
    assert np.all((mean >= -0.5) & (mean <= 1.5))
    assert np.all(np.isfinite(std))
    assert np.all(std > 0)


@pytest.mark.filterwarnings("ignore:no input was found")
def test_fewer_rows_than_inputs():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((8, 30)), rng.standard_normal(8)
    mean, std = model().fit(X, y).predict(rng.standard_normal((20, 30)), return_std=True)
    assert np.all(np.abs(mean) < 10)
    assert np.all((std > 0) & (std < 10))


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6, 1e-12])
def test_constant_targets(data, value):
    X = data[0]
    constant = model().fit(X, np.full(100, value))
    mean, std = constant.predict(X, return_std=True)
    np.testing.assert_allclose(mean, value, rtol=1e-6, atol=1e-6)
    assert np.all((std > 0) & (std < 0.1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_targets_must_be_finite(data, value):
    X, y = data
    bad = y.copy()
    bad[3] = value
    with pytest.raises(ValueError, match="Input y contains"):
        model().fit(X, bad)


@pytest.mark.parametrize("dtype", [str, object])
def test_targets_must_be_numbers(data, dtype):
    with pytest.raises(ValueError, match="y must hold numbers, got .*'a'.*convert"):
        model().fit(data[0], np.array(["a", "b"] * 50, dtype=dtype))


@pytest.mark.filterwarnings("ignore:no input was found")
def test_numbers_of_any_type_are_targets(data):
    X = data[0]
    y = np.arange(100) % 5
    expected = model().fit(X, y.astype(float)).predict(X)
    for given in (y, y.tolist(), y.astype(object), y.astype(np.float32)):
        np.testing.assert_array_equal(model().fit(X, given).predict(X), expected)


def test_column_vector_of_targets_warns(data):
    X, y = data
    with pytest.warns(DataConversionWarning, match="column-vector y was passed"):
        column = model().fit(X, y[:, None])
    np.testing.assert_array_equal(column.predict(X), model().fit(X, y).predict(X))


def test_lengths_must_agree(data):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model().fit(data[0], data[1][:-1])


@pytest.mark.parametrize("basis", ["auto", "bspline", "fourier", "polynomial"])
def test_outside_the_training_range_the_edge_holds(data, basis):
    X, y = data
    held = model(basis=basis).fit(X, y)
    low, high = X.min(axis=0), X.max(axis=0)
    away = np.random.default_rng(5).uniform(-9, 9, (200, 3))
    inside = np.clip(away, low, high)
    np.testing.assert_allclose(held.predict(away), held.predict(inside), rtol=1e-9, atol=1e-9)
    extreme = np.array([[1e300, -1e300, 1e300]])
    np.testing.assert_allclose(
        held.predict_interval(extreme), held.predict_interval(np.clip(extreme, low, high))
    )


# weights


@pytest.mark.parametrize("jobs", [1, 2])
def test_integer_weights_are_repeated_rows(data, jobs):
    X, y = data
    weight = np.random.default_rng(2).integers(1, 4, 100)
    weighted = model(n_jobs=jobs).fit(X, y, weight)
    repeated = model(n_jobs=jobs).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    for a, b in zip(weighted.predict(X, True), repeated.predict(X, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-8)
    np.testing.assert_allclose(
        weighted.feature_importances_, repeated.feature_importances_, atol=1e-6
    )


def test_zero_weights_are_dropped_rows():
    X, y = draw(100)
    table = np.column_stack([X.astype(object), np.where(np.arange(100) < 60, "kept", "dropped")])
    weight = (np.arange(100) < 60).astype(float)
    weighted = model().fit(table, y, weight)
    dropped = model().fit(table[:60], y[:60])
    np.testing.assert_array_equal(weighted.predict(table), dropped.predict(table))
    assert weighted.columns_[3].categories == {"kept": 0}


def test_equal_weights_are_no_weights(data):
    expected = model().fit(*data).predict(data[0])
    np.testing.assert_array_equal(model().fit(*data, np.ones(100)).predict(data[0]), expected)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-np.ones(100), "[Nn]egative"),
        (np.zeros(100), "non-zero|positive entry"),
        (np.full(100, np.nan), "NaN"),
        (np.ones(99), "shape"),
    ],
)
def test_bad_weights_raise(data, weight, message):
    with pytest.raises(ValueError, match=message):
        model().fit(*data, weight)


# what a fit leaves behind


def test_fitted_attributes_have_their_documented_shapes(fitted, data):
    n, inputs = data[0].shape
    assert fitted.n_features_in_ == inputs
    assert not hasattr(fitted, "feature_names_in_")
    assert fitted.ranks_.shape == (2,)
    assert fitted.rank_ in fitted.ranks_
    assert isinstance(fitted.rank_, int)
    assert 1 <= fitted.rank_ <= 5
    for name in ("n_basis_", "feature_importances_", "feature_importances_std_"):
        assert getattr(fitted, name).shape == (inputs,)
    assert np.all((fitted.n_basis_ >= 1) & (fitted.n_basis_ <= 8))
    assert np.all(fitted.feature_importances_std_ >= 0)
    assert fitted.noise_std_ == pytest.approx(0.1, rel=0.5)
    assert isinstance(fitted.converged_, bool)
    assert fitted.stop_reason_.endswith(".")
    assert fitted.lower_bound_ == fitted.lower_bounds_[-1]
    exact = [e for e in fitted.history_ if e["phase"] == "exact"]
    last = {e["restart"]: e["elbo"] for e in exact}
    best = max(last, key=last.get)
    assert fitted.lower_bound_ == last[best]
    assert fitted.rank_ == fitted.ranks_[best]
    assert fitted.n_iter_ == sum(e["restart"] == best for e in fitted.history_)


def test_the_bound_never_falls():
    X, y = draw(150, seed=3)
    how = {"structure": "tensor", "max_rank": 8, "n_basis": 10, "random_state": 1}
    long = BTNRegressor(n_init=2, tol=0, max_iter=60, **how)
    long.fit(X, y)
    assert len(long.lower_bounds_) == 60
    for start in range(2):
        bounds = [e["elbo"] for e in long.history_ if e["restart"] == start][10:]
        assert np.min(np.diff(bounds)) >= -1e-8 * abs(bounds[-1])
    assert not long.converged_
    assert long.stop_reason_ == "2 of 2 restarts used all their sweeps and had not converged."


def test_history_has_an_entry_for_every_sweep(fitted):
    keys = {
        "restart",
        "sweep",
        "rows",
        "phase",
        "elbo",
        "terms",
        "rank",
        "noise_std",
        "seconds",
        "jitter",
        "trial",
        "stage",
    }
    for start in range(2):
        entries = [e for e in fitted.history_ if e["restart"] == start]
        assert [e["sweep"] for e in entries] == list(range(1, len(entries) + 1))
        assert [e["phase"] for e in entries[:11]] == ["warm"] * 10 + ["exact"]
        assert all(set(e) == keys for e in entries)
        assert all(np.isnan(e["elbo"]) for e in entries[:10])
        for e in entries[10:]:
            assert sum(e["terms"].values()) == pytest.approx(e["elbo"])
        ranks = [e["rank"] for e in entries]
        assert ranks == sorted(ranks, reverse=True)
        seconds = [e["seconds"] for e in entries]
        assert seconds == sorted(seconds)


def test_an_easy_fit_converges():
    X = np.linspace(-1, 1, 60)[:, None]
    easy = model(max_iter=200, tol=1e-4).fit(X, X[:, 0])
    assert easy.converged_
    assert easy.n_iter_ < 210
    assert "tol=0.0001" in easy.stop_reason_


def test_importance_is_the_share_of_the_variance():
    rng = np.random.default_rng(6)
    X = rng.uniform(-1, 1, (300, 3))
    y = 2 * X[:, 0] + X[:, 1] + 0.01 * rng.standard_normal(300)
    additive = model(max_iter=50).fit(X, y)
    np.testing.assert_allclose(additive.feature_importances_, [0.8, 0.2, 0.0], atol=0.04)
    assert additive.feature_importances_.sum() == pytest.approx(1.0)
    assert additive.feature_importances_[2] < 0.005
    assert np.all(additive.feature_importances_std_ < 0.05)


def test_importance_of_an_interaction_counts_for_both():
    rng = np.random.default_rng(6)
    X = rng.uniform(-1, 1, (300, 3))
    product = model(max_iter=50).fit(X, X[:, 0] * X[:, 1] + 0.01 * rng.standard_normal(300))
    np.testing.assert_allclose(product.feature_importances_, [0.5, 0.5, 0.0], atol=0.04)


def test_the_rank_of_a_separable_function_is_one():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (300, 3))
    y = np.sin(2 * X[:, 0]) * (1 + X[:, 1]) * np.exp(X[:, 2]) + 0.2 * rng.standard_normal(300)
    separable = model(n_init=3, max_iter=100).fit(X, y)
    assert separable.rank_ == 1
    assert separable.noise_std_ == pytest.approx(0.2, rel=0.1)


def test_the_basis_follows_the_distinct_values():
    rng = np.random.default_rng(8)
    X = np.column_stack([rng.integers(0, 2, 60), rng.integers(0, 4, 60), rng.uniform(size=60)])
    few = model(n_basis=8, solver=Solver(prune=False)).fit(X, X.sum(axis=1))
    np.testing.assert_array_equal(few.n_basis_, [2, 4, 8])


def test_repeated_fits_agree(data):
    X, y = data
    once = model()
    first = once.fit(X, y).predict(X)
    np.testing.assert_array_equal(once.fit(X, y).predict(X), first)
    np.testing.assert_array_equal(clone(once).fit(X, y).predict(X), first)
    other = model(random_state=1).fit(X, y).predict(X)
    assert np.max(np.abs(other - first)) > 1e-6
    states = [np.random.RandomState(3) for _ in range(2)]
    a, b = (model(random_state=s).fit(X, y).predict(X) for s in states)
    np.testing.assert_array_equal(a, b)


def test_refitting_forgets_the_last_fit(data):
    X, y = data
    reused, fresh = model().fit(np.column_stack([X, X]), -y), model().fit(X, y)
    np.testing.assert_array_equal(reused.fit(X, y).predict(X), fresh.predict(X))
    assert len(reused.columns_) == reused.n_features_in_ == 3
    assert len(reused.history_) == len(fresh.history_)


def test_rows_that_cannot_be_fitted_leave_the_model_as_it_was(data):
    X, y = data
    reused = model().fit(X, y)
    expected = reused.predict(X)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        reused.fit(X[:, :2], np.full(100, np.nan))
    with pytest.raises(ValueError, match="at least 2 rows"):
        reused.fit(X[:1, :2], y[:1])
    with pytest.raises(ValueError, match="n_basis must be"):
        reused.set_params(n_basis=-1).fit(X[:, :2], y)
    np.testing.assert_array_equal(reused.predict(X), expected)
    reused = BTNClassifier(structure="sums", max_iter=2).fit(X, y > 0)
    expected = reused.predict_proba(X)
    with pytest.raises(ValueError, match="at least two classes"):
        reused.fit(X[:, :2], np.ones(len(y)))
    np.testing.assert_array_equal(reused.predict_proba(X), expected)


def test_a_fit_that_fails_on_its_way_leaves_nothing_behind(data):
    X, y = data
    reused = model().fit(X, y)

    def fails(entry):
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        reused.set_params(callback=fails).fit(X[:, :2], y)
    with pytest.raises(NotFittedError):
        reused.predict(X)


def test_fit_never_touches_a_parameter(data):
    params = {
        "basis": {0: Chebyshev(n_basis=3)},
        "priors": Priors(noise=Gamma(1.0, 0.5)),
        "random_state": 3,
        "n_init": 1,
        "max_rank": 3,
        "max_iter": 6,
    }
    stored = BTNRegressor(**params)
    before = stored.get_params(deep=True)
    text = repr(stored)
    stored.fit(*data)
    after = stored.get_params(deep=True)
    assert before.keys() == after.keys()
    assert all(after[name] is value for name, value in before.items())
    assert repr(stored) == text
    assert not hasattr(params["basis"][0], "n_functions_")


# parameters


def test_parameters_come_in_as_documented():
    params = BTNRegressor().get_params()
    assert set(params) == set(BTNRegressor.__init__.__annotations__) - {"return"}
    for name in params:
        assert f"    {name} : " in BTNRegressor.__doc__


BAD = {
    "n_basis": [0, 1.5, "20", True],
    "max_rank": [0, -1, 2.0],
    "solver.initial_rank": [0, 2.5, "few"],
    "n_init": [0, "some", 1.5, None],
    "max_iter": [0, 1e3],
    "solver.warm_sweeps": [-1, 0.5],
    "tol": [-1e-3, np.nan, np.inf, "small"],
    "priors.smoothness": [-1.0, None, 100.0],
    "solver.anchored": ["yes", None, 1],
    "memory_limit": [-1.0, "2GB", np.inf],
    "priors.noise": [1.0, (1, 1), Gamma(0.0, 1.0), Gamma(1.0, np.inf)],
    "priors.rank": ["off", Gamma(1.0, -1.0)],
    "priors.basis": ["on", 0, Gamma(np.nan, 1.0)],
    "n_jobs": [0, 1.5, "all", True],
    "verbose": [-1, 0.5, "much", None],
    "warm_start": ["yes", 1, None],
}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, values in BAD.items() for v in values])
def test_a_bad_parameter_raises_and_is_named(data, name, value):
    _, _, option = name.partition(".")
    named = rf"\w+\({option}=\.\.\.\)" if option else name
    with pytest.raises(ValueError, match=rf"^{named} must .*got"):
        model(**with_options({name: value})).fit(*data)


def test_options_of_a_group_have_dotted_names():
    how = with_options({"max_iter": 3, "solver.prune": False, "solver.warm_sweeps": 4})
    assert how == {"max_iter": 3, "solver": Solver(prune=False, warm_sweeps=4)}
    how = with_options({**how, "solver.warm_sweeps": 5, "network": "tt", "network.cores": "full"})
    assert how["solver"] == Solver(prune=False, warm_sweeps=5)
    assert how["network"] == TensorTrain(cores="full")
    with pytest.raises(ValueError, match="network must be 'tt' .* got 'cp' and network.order"):
        with_options({"network": "cp", "network.order": "given"})
    groups = {"solver": Solver(), "priors": Priors(), "network": TensorTrain()}
    known = {f"{group}.{name}" for group, value in groups.items() for name in vars(value)}
    assert known == set(option_names())


GOOD = {
    "priors.noise": Gamma(2.0, 1e-2),
    "priors.rank": Gamma(1.0, 1.0),
    "priors.basis": Gamma(3.0, 0.5),
    "priors.smoothness": 0.0,
    "solver.warm_sweeps": 3,
    "solver.initial_rank": 3,
    "n_basis": np.int64(4),
    "n_init": 2,
    "max_rank": np.int32(2),
}


@pytest.mark.parametrize(("name", "value"), GOOD.items(), ids=GOOD)
def test_every_parameter_changes_the_fit(data, name, value):
    X, y = data
    plain, changed = model().fit(X, y), model(**with_options({name: value})).fit(X, y)
    assert changed.score(X, y) > 0.8
    assert np.max(np.abs(plain.predict(X) - changed.predict(X))) > 1e-6


@pytest.mark.parametrize("smoothness", [0.0, 1.25])
@pytest.mark.parametrize("rows", [slice(None), slice(25)], ids=["many", "few"])
def test_precisions_of_functions_can_be_held(data, smoothness, rows):
    X, y = data[0][rows], data[1][rows]
    held = model(priors=Priors(basis="off", smoothness=smoothness)).fit(X, y)
    for state in held.posterior_:
        for gamma, mode in zip(state.basis, state.modes, strict=True):
            np.testing.assert_allclose(gamma.mean, (1.0 + mode.keep) ** (2.0 * smoothness))


def test_held_precisions_bear_more_functions_than_needed():
    few, many = (model(priors=Priors(basis="off"), n_basis=k).fit(*draw(300)) for k in (8, 40))
    new = draw(300, seed=1)
    assert few.score(*new) > 0.95
    assert many.score(*new) > few.score(*new) - 0.02


def test_without_pruning_nothing_is_dropped(data):
    kept = model(solver=Solver(prune=False), max_iter=20).fit(*data)
    assert kept.rank_ == 5
    np.testing.assert_array_equal(kept.n_basis_, 8)
    assert model(solver=Solver(prune=True), max_iter=40).fit(*data).rank_ < 5


def friedman(n, n_inputs, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, n_inputs))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    return X, y + 10 * X[:, 3] + 5 * X[:, 4] + rng.standard_normal(n)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_few_rows_are_enough_where_restarts_go_gently(seed):
    """With all the covariances at once these starts lose what they had: R2 0.00, 0.37, 0.30."""
    X, y = friedman(1150, 10, 0)
    few = model(
        n_basis=10, max_rank=20, max_iter=30, solver=Solver(anchored=False), random_state=seed
    )
    few.fit(X[:150], y[:150])
    assert few.score(X[150:], y[150:]) > 0.85
    phases = [e["phase"] for e in few.history_[:23]]
    assert phases == ["warm"] * 10 + ["annealing"] * 12 + ["exact"]


@pytest.mark.parametrize("basis", ["chebyshev", "bspline", "fourier", "polynomial"])
def test_every_numeric_basis_fits(basis):
    X, y = friedman(1600, 5, 0)
    fit = model(basis=basis, n_basis=12, max_rank=8, max_iter=30).fit(X[:600], y[:600])
    assert fit.score(X[600:], y[600:]) > 0.9


@pytest.mark.parametrize(("weight", "phases"), [(1.0, 3), (5.0, 2)])
def test_weights_are_rows_where_few_are_counted(data, weight, phases):
    X, y = data
    fit = model(n_basis=12).fit(X, y, np.full(len(y), weight))
    assert len({e["phase"] for e in fit.history_}) == phases


def test_says_so_when_too_few_rows_show_nothing():
    X, _ = friedman(100, 40, 0)
    y = np.random.default_rng(1).standard_normal(100)
    with pytest.warns(UserWarning, match="no input was found.*too few for 40 input"):
        model(n_basis=5, max_iter=30, solver=Solver(anchored=False)).fit(X, y)


def test_without_a_warm_phase_there_is_still_a_fit(data):
    cold = model(solver=Solver(warm_sweeps=0)).fit(*data)
    assert {e["phase"] for e in cold.history_} == {"exact"}
    assert np.all(np.isfinite(cold.predict(data[0])))


def test_memory_limit_changes_no_result():
    X, y = draw(3000, seed=4)
    high = model(max_iter=4, max_rank=4).fit(X, y)
    sizes = [(8, 15)] * 3
    footprint = CP().footprint(4, 3)
    plans = {make_plan(3000, sizes, footprint, 1, 1, k) for k in (2.0, 0.005, 0.003, 0.001)}
    assert len(plans) == 4
    for limit in (0.005, 0.003, 0.001):
        low = model(max_iter=4, max_rank=4, memory_limit=limit).fit(X, y)
        np.testing.assert_allclose(low.predict(X), high.predict(X), rtol=1e-10, atol=1e-12)
        assert low.lower_bound_ == pytest.approx(high.lower_bound_, rel=1e-10)


@pytest.mark.parametrize("limit", [0.2, 0.05, 0.012])
def test_memory_stays_below_its_limit(limit):
    X, y = draw(20_000, seed=5)
    tracemalloc.start()
    try:
        model(max_iter=3, max_rank=6, n_init=2, memory_limit=limit).fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= limit * 2**30


def test_memory_of_over_relaxation_and_many_blocks_stays_below_the_limit(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 8))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.3 * rng.standard_normal(4000)
    assert not make_plan(4000, [(16, 31)] * 8, CP().footprint(8, 8), 1, 1, 0.015).stride
    steps, over_relax = [], Sweeper.over_relax
    monkeypatch.setattr(Sweeper, "over_relax", lambda *args: (steps.append(1), over_relax(*args)))
    hungry = model(
        n_jobs=1,
        n_basis=16,
        max_rank=8,
        max_iter=22,
        memory_limit=0.015,
        solver=Solver(warm_sweeps=2, prune=False),
        callback=lambda _: bool(steps),
    )
    tracemalloc.start()
    try:
        hungry.fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert steps
    assert peak <= 0.015 * 2**30


@pytest.mark.parametrize("inputs", [3, 40])
def test_memory_limit_changes_no_bit(inputs):
    """Environments that are kept, in arrays used before, and those made anew."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (900, inputs))
    y = X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(900)
    limits, footprint = {}, CP().footprint(5, inputs, 10)
    for limit in np.geomspace(1.0, 0.001, 400):
        with contextlib.suppress(MemoryError):
            plan = make_plan(900, [(6, 11)] * inputs, footprint, 1, 1, limit)
            limits[plan.stride, plan.block_rows] = limit
    rows = max(rows for _, rows in limits)
    assert inputs < 9 or len({stride for stride, _ in limits}) == 3
    kept, anew = (
        model(n_jobs=1, n_basis=6, max_iter=4, memory_limit=limits[keep, rows]).fit(X, y)
        for keep in (1, 0)
    )
    np.testing.assert_array_equal(kept.predict(X), anew.predict(X))


def test_many_inputs_and_few_rows_still_find_the_signal():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(350, 20))
    y = 2 * X[:, 0] + X[:, 1] + 0.1 * rng.normal(size=350)
    actual = BTNRegressor(n_init=1, max_iter=60, random_state=0).fit(X[:150], y[:150])
    assert actual.score(X[150:], y[150:]) > 0.95
    assert set(np.argsort(-actual.feature_importances_)[:2]) == {0, 1}


def test_automatic_restarts_give_way_to_the_memory_limit(data):
    X, y = data
    footprint = CP().footprint(5, X.shape[1])
    need = make_plan(len(y), [(8, 15)] * X.shape[1], footprint, 2, 1, 1.0).n_bytes
    with pytest.warns(UserWarning, match=r"memory limit of .* GiB has room for \d of 8 restarts"):
        limited = model(n_init="auto", memory_limit=(need + 1) / 2**30).fit(X, y)
    assert 1 <= len(limited.posterior_) < 8


def test_dates_are_no_targets(data):
    dates = np.datetime64("2020-01-01") + np.arange(len(data[1]))
    with pytest.raises(ValueError, match="y must hold numbers, got dates"):
        model().fit(data[0], dates)


def test_a_callback_cannot_spoil_the_history(data):
    spoilt = model(callback=lambda entry: entry.clear()).fit(*data)
    assert spoilt.history_[0]["sweep"] == 1


@pytest.mark.parametrize("value", [1e200, -1e151])
def test_targets_whose_squares_overflow_raise(data, value):
    X, y = data
    with pytest.raises(ValueError, match=r"y must lie within 1e150 of zero, got .*another unit"):
        model().fit(X, np.append(y[1:], value))


@pytest.mark.parametrize("limit", [0, 1e-5])
def test_too_little_memory_raises_and_says_how_much_is_needed(data, limit):
    with pytest.raises(MemoryError, match=r"memory_limit must be at least .* GiB.*lower"):
        model(memory_limit=limit).fit(*data)


# progress


def test_silent_by_default(data, capfd):
    model().fit(*data)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("verbose", "lines"), [(1, 2), (2, 20)])
def test_verbose_prints_aligned_lines(data, capsys, verbose, lines):
    loud = model(verbose=verbose, solver=Solver(prune=False)).fit(*data)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == lines
    assert len({len(line) for line in printed}) == 1
    assert f"{loud.lower_bound_:.3f}" in printed[-1]
    assert "warm" in printed[0]
    assert "exact" in printed[-1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_callback_sees_every_sweep(data, jobs):
    seen = []
    watched = model(n_init=3, n_jobs=jobs, callback=seen.append).fit(*data)
    assert sorted(seen, key=lambda e: (e["restart"], e["sweep"])) == watched.history_
    assert len(seen) >= 3 * 16
    unwatched = model(n_init=3, n_jobs=jobs).fit(*data)
    np.testing.assert_array_equal(watched.predict(data[0]), unwatched.predict(data[0]))


def test_callback_stops_the_fit(data):
    stopped = model(n_init=3, n_jobs=1, callback=lambda e: e["sweep"] == 13).fit(*data)
    assert max(e["sweep"] for e in stopped.history_) <= 14
    assert len(stopped.history_) < 3 * 20
    assert not stopped.converged_
    assert stopped.stop_reason_.startswith("A callback stopped the fit")
    assert np.all(np.isfinite(stopped.predict(data[0])))


def test_callback_stops_a_fit_with_helpers(data, waiting_helper):
    """Nothing else would end it; a helper ends after the sweeps that are under way."""
    endless = model(n_init=3, n_jobs=2, max_iter=10**6, tol=0, callback=lambda e: e["sweep"] == 13)
    stopped = endless.fit(*data)
    assert {e["restart"] for e in stopped.history_} == {0, 1}
    assert not stopped.converged_
    assert stopped.stop_reason_.startswith("A callback stopped the fit")
    assert np.all(np.isfinite(stopped.predict(data[0])))


def test_a_stop_before_the_exact_phase_of_a_later_restart_is_no_convergence(data):
    stopped = model(
        n_init=3, n_jobs=1, tol=1e3, callback=lambda e: (e["restart"], e["sweep"]) == (1, 2)
    ).fit(*data)
    assert len(stopped.posterior_) == 1
    assert not stopped.converged_
    assert stopped.stop_reason_.startswith("A callback stopped the fit: the posteriors of 1 of 3")


def test_callback_must_not_stop_before_the_exact_phase(data):
    early = model(callback=lambda e: True)
    with pytest.raises(RuntimeError, match="must not stop before the exact phase.*'exact'"):
        early.fit(*data)
    with pytest.raises(NotFittedError):
        early.predict(data[0])


def three_products(n=400):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    f = np.sin(2 * X[:, 0]) * X[:, 1] + np.cos(3 * X[:, 2]) * X[:, 0] + X[:, 1] * X[:, 2] ** 2
    return X, f + 0.02 * rng.standard_normal(n)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_rank_grows_while_all_components_are_of_use(n_jobs):
    X, y = three_products()
    few = BTNRegressor(max_rank=1, n_init=2, random_state=0, structure="tensor").fit(X, y)
    model = BTNRegressor(
        max_rank=16,
        solver=Solver(initial_rank=1),
        n_init=2,
        n_jobs=n_jobs,
        random_state=0,
        structure="tensor",
    )
    model.fit(X, y)
    assert few.score(X, y) < 0.8
    assert model.score(X, y) > 0.98
    assert 3 <= model.rank_ <= 8
    phases = [entry["phase"] for entry in model.history_ if entry["restart"] == 0]
    turns = [a for a, b in zip(phases, phases[1:] + [""], strict=True) if a != b]
    assert turns == ["warm", "exact"] * (len(turns) // 2)
    assert len(turns) >= 6  # from one over two to four, at least
    sweeps = [entry["sweep"] for entry in model.history_ if entry["restart"] == 0]
    assert sweeps == list(range(1, len(sweeps) + 1))
    assert np.all(np.diff(model.lower_bounds_) > -1e-7 * np.abs(model.lower_bounds_[1:]))
    assert len(model.lower_bounds_) < phases.count("exact")


def test_the_rank_stays_where_components_are_too_many_or_at_the_limit():
    X, y = three_products()
    y = X[:, 0] * X[:, 1]
    model = BTNRegressor(
        max_rank=16, solver=Solver(initial_rank=6), n_init=1, random_state=0, structure="tensor"
    ).fit(X, y)
    assert max(entry["rank"] for entry in model.history_) <= 12  # those to spare
    assert [entry["phase"] for entry in model.history_].count("warm") == 10
    X, y = three_products()
    model = BTNRegressor(
        max_rank=3, solver=Solver(initial_rank=2), n_init=1, random_state=0, structure="tensor"
    ).fit(X, y)
    assert max(e["rank"] for e in model.history_ if e["phase"] == "exact") == 3


def test_the_initial_rank_is_at_most_the_largest(data):
    with pytest.raises(
        ValueError, match=r"Solver\(initial_rank=...\) must be at most max_rank, which is 80 here"
    ):
        BTNRegressor(solver=Solver(initial_rank=81)).fit(*data)


def test_the_rank_grows_as_far_as_memory_has_room():
    X, y = three_products(300)
    how = {
        "solver": Solver(initial_rank=2),
        "n_init": 1,
        "n_basis": 20,
        "random_state": 0,
        "structure": "tensor",
    }
    model = BTNRegressor(max_rank=40, memory_limit=0.005, **how).fit(X, y)
    most = max(entry["rank"] for entry in model.history_ if entry["phase"] == "exact")
    assert 2 < most < 40
    with pytest.raises(MemoryError, match="memory_limit must be at least"):
        BTNRegressor(max_rank=40, memory_limit=0.005, n_init=1, n_basis=20, structure="tensor").fit(
            X, y
        )


def test_a_fit_stopped_while_it_grows_keeps_what_it_had():
    X, y = three_products(200)
    seen = []

    def stop(entry):
        seen.append(entry["phase"])
        return entry["stage"] == 1 and entry["phase"] == "warm"

    how = {
        "max_rank": 8,
        "solver": Solver(initial_rank=1),
        "n_init": 1,
        "random_state": 0,
        "structure": "tensor",
    }
    stopped = BTNRegressor(callback=stop, **how).fit(X, y)
    assert seen[-1] == "warm"
    assert stopped.rank_ == 1
    alone = BTNRegressor(max_rank=1, n_init=1, random_state=0, structure="tensor").fit(X, y)
    np.testing.assert_allclose(stopped.predict(X), alone.predict(X))
    assert np.all(np.diff(stopped.lower_bounds_) > -1e-7)


def test_without_a_warm_phase_the_bound_counts_from_the_last_growth():
    X, y = three_products(200)
    how = {
        "max_rank": 4,
        "solver": Solver(initial_rank=1, warm_sweeps=0),
        "n_init": 1,
        "random_state": 0,
    }
    model = BTNRegressor(structure="tensor", **how).fit(X, y)
    assert np.all(np.diff(model.lower_bounds_) > -1e-7 * np.abs(model.lower_bounds_[1:]))


def test_a_rank_that_cannot_fall_does_not_grow():
    X, y = three_products(100)
    how = {"structure": "tensor", "n_init": 1, "random_state": 0}
    model = BTNRegressor(max_rank=8, solver=Solver(initial_rank=1, prune=False), **how)
    assert model.fit(X, y).rank_ == 1
