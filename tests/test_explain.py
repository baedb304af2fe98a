"""Explanations against enumeration of all rows there could be, and draws from the posterior."""

from __future__ import annotations

import json
import re
from itertools import combinations, product
from math import factorial

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from scipy.stats import spearmanr
from sklearn import config_context

from btnkm import BTNClassifier, BTNRegressor, Solver, TensorTrain, explain
from btnkm.bases.anchored import Anchored
from btnkm.core import posterior
from btnkm.explain import shapley
from btnkm.explain.fitted import MISSING, FittedModel
from tests.test_sums_exports import combined, steps_everywhere

SMALL = {"n_init": 2, "random_state": 0, "max_iter": 12, "max_rank": 6}


def table(n=240, seed=0, gaps=False, levels=3):
    """A table of few values in each column, so that all rows there could be are few."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.integers(-2, 3, n) / 2.0, "b": rng.integers(0, 4, n) * 1.0})
    X["g"] = np.array([f"level {k}" for k in range(levels)])[rng.integers(0, levels, n)]
    if gaps:
        X.loc[rng.random(n) < 0.15, "b"] = np.nan
    f = X["a"] * X["b"].fillna(1.0) + X["a"] ** 2 + (X["g"] == "level 0")
    return X, f, rng


def regression(**kwargs):
    X, f, rng = table(**kwargs)
    return X, f + 0.2 * rng.standard_normal(len(f))


def mixture(kind, rows, **parameters):
    """Return a model of all structures, and its rows."""
    names = ("sums", "tensor", "sums+tensor")
    parts = [kind(**SUMS | {"structure": name} | parameters).fit(*rows) for name in names]
    return combined(parts), rows


TENSOR = {**SMALL, "structure": "tensor"}
SUMS = {**SMALL, "structure": "sums", "solver": Solver(prune=False)}  # that steps are not dropped
BOTH = {**SUMS, "structure": "sums+tensor"}
MODELS = {
    "cp": lambda: (BTNRegressor(**TENSOR), regression()),
    "gaps": lambda: (BTNRegressor(**TENSOR), regression(gaps=True)),
    "anchored": lambda: (BTNRegressor(**TENSOR, solver=Solver(anchored=True)), regression()),
    "train": lambda: (
        BTNRegressor(**TENSOR, network=TensorTrain(cores="full", order=["b", "g", "a"])),
        regression(gaps=True),
    ),
    "many levels": lambda: (BTNRegressor(**TENSOR), regression(n=400, levels=25)),
    "outliers": lambda: (BTNRegressor(**TENSOR, likelihood="student_t"), regression()),
    "varying noise": lambda: (BTNRegressor(**BOTH, noise="varying"), noisy()),
    "counts": lambda: (BTNRegressor(**TENSOR, likelihood="negative_binomial"), counts()),
    "two classes": lambda: (BTNClassifier(**TENSOR), classes(2)),
    "three classes": lambda: (BTNClassifier(**TENSOR), classes(3)),
    "sums": lambda: (BTNRegressor(**SUMS), regression(gaps=True)),
    "sums of counts": lambda: (BTNRegressor(**SUMS, likelihood="negative_binomial"), counts()),
    "sums of three classes": lambda: (BTNClassifier(**SUMS), classes(3)),
    "sums and a tensor": lambda: (BTNRegressor(**BOTH), regression(gaps=True)),
    "sums and many levels": lambda: (BTNRegressor(**BOTH), regression(n=400, levels=25)),
    "both of three classes": lambda: (BTNClassifier(**BOTH), classes(3)),
    "mixture": lambda: mixture(BTNRegressor, regression(gaps=True)),
    "mixture of two classes": lambda: mixture(BTNClassifier, classes(2)),
}


def noisy():
    X, f, rng = table(gaps=True)
    return X, f + 0.1 * np.exp(X["a"]) * rng.standard_normal(len(f))


def counts():
    X, f, rng = table()
    return X, rng.poisson(np.exp(0.3 * f)).astype(float)


def classes(count):
    X, f, rng = table(n=400)
    noisy = f + 0.5 * rng.standard_normal(len(f))
    cuts = np.quantile(noisy, np.linspace(0, 1, count + 1)[1:-1])
    return X, np.array(["low", "middle", "top"])[np.searchsorted(cuts, noisy)]


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    return made(request.param)


def made(name):
    """Return a fitted model and its rows."""
    with steps_everywhere():
        model, (X, y) = MODELS[name]()
        return model if hasattr(model, "posterior_") else model.fit(X, y), X, y


@pytest.mark.parametrize("name", [name for name in MODELS if name[:4] in ("sums", "both", "mixt")])
def test_the_models_have_steps(name):
    model, _, _ = made(name)
    sums = [state.sums for state in model.posterior_ if state.sums is not None]
    assert "steps" in {entry.groups[g].part for entry in sums for g in entry.kept}


class World:
    """All rows there could be, and how often each would be were inputs independent.

    To a tensor that averages over the values of a missing number, such a number has one of its
    values, in as many rows: ``hidden`` has it where ``rows`` say that it is missing.
    """

    def __init__(self, X):
        self.names, self.values, self.shares, hidden = list(X), [], [], []
        for name in X:
            count = X[name].value_counts(normalize=True, sort=False)
            missing = X[name].isna().mean()
            behind = list(count.index) if missing else []
            self.values.append([*count.index, *[np.nan] * len(behind)])
            hidden.append([*count.index, *behind])
            shares = (1.0 - missing) * count.to_numpy()
            self.shares.append(np.append(shares, missing * count.to_numpy()[: len(behind)]))
        self.rows = pd.DataFrame(list(product(*self.values)), columns=X.columns)
        self.hidden = pd.DataFrame(list(product(*hidden)), columns=X.columns)

    def shaped(self, f):
        """Return f of all rows as a tensor, an axis for each input and one for classes."""
        return f.reshape(*map(len, self.values), -1)

    def averaged(self, f, known):
        """Return the averages of f over all inputs but some, in axes of length one."""
        f = self.shaped(f)
        for d, share in enumerate(self.shares):
            if self.names[d] not in known:
                f = np.moveaxis(np.tensordot(share, f, (0, d))[None], 0, d)
        return f

    def explained(self, f, known):
        """Return the variance of such averages, summed over classes."""
        square = (self.averaged(f, known) - self.averaged(f, ())) ** 2
        return float(np.sum(self.averaged(np.broadcast_to(square, self.shaped(f).shape), ())))

    def merged(self, moments):
        """Return moments (D, ..., K) with the same for all that may be behind a missing value."""
        for d, (values, shares) in enumerate(zip(self.values, self.shares, strict=True)):
            gaps = np.array([v != v for v in values])
            if gaps.any():
                weights = np.where(gaps, shares, 0.0) / shares[gaps].sum()
                moment = np.tensordot(weights, moments, (0, d + 1))
                slots = np.moveaxis(moments.copy(), d + 1, 0)
                slots[gaps] = moment
                moments = np.moveaxis(slots, 0, d + 1)
        return moments

    def place(self, name, value):
        missing = value == MISSING if isinstance(value, str) else value != value
        known = self.values[self.names.index(name)]
        return next(k for k, v in enumerate(known) if (v != v if missing else v == value))


def f_of(model, rows):
    """E[f] in units of what is explained: (n,), or (n, K) less the mean over classes.

    A missing value has what was learned of missing values.
    """
    view = FittedModel.of(model)
    means = view.predict(view.encode(rows), lambda part, at: (part.mean(at),), 1)[0]
    means = view.mixed(means)
    if view.outputs is not None:
        means = means - means.mean(axis=1, keepdims=True)
    return view.offset + view.scale * means


def features_of(start, seen, hidden):
    """Return all features of rows, given what is seen of them and what may be behind."""
    mode_map = start.mode_map
    features, behind = mode_map.features(seen), mode_map.features(hidden)
    for d, basis in enumerate(mode_map.bases):
        inner = basis.basis if isinstance(basis, Anchored) else basis
        if getattr(inner, "saw_missing_", True) is False:  # it averages
            features[d] = behind[d]
    return features


def draws_of(model, rows, count, seed=0, hidden=None):
    """Draws of the same, so many from a restart of average weight: (draws, n) or (draws, n, K)."""
    view, rng, out = FittedModel.of(model), np.random.default_rng(seed), []
    seen = model.fitted_.encode(rows)
    behind = seen if hidden is None else model.fitted_.encode(hidden)
    ends = np.cumsum(np.append(0.0, view.weights)) * count * len(view.restarts)
    for start, n_draws in zip(view.restarts, np.diff(np.round(ends).astype(int)), strict=True):
        weights = posterior.draw_weights(start.state, n_draws, rng)
        sums = start.state.sums
        beta = [None] * n_draws if sums is None else sums.draw(n_draws, rng)
        features = features_of(start, seen, behind)
        for i in range(n_draws):
            drawn = [w[i] for w in weights]
            f = posterior.evaluate(start.state, drawn, features.__getitem__, beta[i])
            out.append(f if f.ndim == 1 else f - f.mean(axis=1, keepdims=True))
    return view.scale * np.array(out)


def along(tensor, world, name):
    """Return a tensor's values along one axis, with classes: (values, K)."""
    d = world.names.index(name)
    return np.moveaxis(tensor, d, 0).reshape(tensor.shape[d], -1)


def test_main_effects_are_averages_over_the_others(fitted):
    model, X, _ = fitted
    world = World(X)
    f = f_of(model, world.rows)
    for effect in explain.effects(model):
        added = world.averaged(f, [effect.name]) - world.averaged(f, ())
        expected = along(added, world, effect.name)
        order = [world.place(effect.name, value) for value in effect.values]
        gaps = [value != value for value in world.values[world.names.index(effect.name)]]
        assert len(order) == gaps.count(False)
        assert (effect.missing is not None) == any(gaps)
        actual = effect.mean.reshape(len(effect.values), -1)
        np.testing.assert_allclose(actual, expected[order], atol=1e-8)
        if effect.missing is not None:
            gap = expected[world.place(effect.name, np.nan)]
            np.testing.assert_allclose(np.ravel(effect.missing["mean"]), gap, atol=1e-8)


def test_bands_are_those_of_draws(fitted):
    model, X, _ = fitted
    world = World(X)
    drawn = draws_of(model, world.rows, 400, hidden=world.hidden)
    for effect in explain.effects(model):
        order = [world.place(effect.name, value) for value in effect.values]
        curves = [
            along(world.averaged(f, [effect.name]) - world.averaged(f, ()), world, effect.name)
            for f in drawn
        ]
        expected = np.std(curves, axis=0)[order]
        actual = effect.std.reshape(expected.shape)
        np.testing.assert_allclose(actual, expected, rtol=0.25, atol=0.02 * np.std(drawn))


def test_interactions_are_what_main_effects_leave(fitted):
    model, X, _ = fitted
    world = World(X)
    f = f_of(model, world.rows)
    surface = explain.interaction(model, "a", "g")
    center = world.averaged(f, ())
    total = world.averaged(f, ["a", "g"]) - center
    rest = total - (world.averaged(f, ["a"]) + world.averaged(f, ["g"]) - 2.0 * center)
    at = np.ix_(
        [world.place("a", x) for x in surface.x], [0], [world.place("g", g) for g in surface.y]
    )
    for actual, expected in ((surface.mean, rest), (surface.total, total)):
        np.testing.assert_allclose(actual.ravel(), expected[at].ravel(), atol=1e-8)


def variances(world, f):
    """Variance of f, what each input explains alone and with others, and each pair beyond."""
    names = world.names
    total = world.explained(f, names)
    alone = {name: world.explained(f, [name]) for name in names}
    others = {n: total - world.explained(f, [o for o in names if o != n]) for n in names}
    pairs = {p: world.explained(f, p) - alone[p[0]] - alone[p[1]] for p in combinations(names, 2)}
    return total, alone, others, pairs


def test_sobol_indices_are_those_of_draws(fitted):
    model, X, _ = fitted
    world = World(X)
    drawn = draws_of(model, world.rows, 200, hidden=world.hidden)
    actual = [variances(world, f) for f in drawn]
    total = np.mean([v[0] for v in actual])
    indices = explain.sobol_indices(model)
    assert indices.variance == pytest.approx(total, rel=0.1)
    for j, name in enumerate(X):
        for k, value, std in (
            (1, indices.first, indices.first_std),
            (2, indices.total, indices.total_std),
        ):
            drawn = [v[k][name] for v in actual]
            assert value[j] == pytest.approx(np.mean(drawn) / total, rel=0.1, abs=0.012)
            spread = np.std([v[k][name] / v[0] for v in actual])
            assert std[j] == pytest.approx(spread, rel=0.4, abs=0.01)
    for pair in explain.interactions(model):
        expected = np.mean([v[3][pair.names] for v in actual]) / total
        assert pair.importance == pytest.approx(expected, rel=0.1, abs=0.012)


@pytest.mark.parametrize("name", ["cp", "sums", "sums and a tensor", "both of three classes"])
def test_sobol_indices_without_uncertainty_are_exact(name):
    model, X, _ = made(name)
    model.posterior_ = tuple(known(state) for state in model.posterior_[:1])
    for attribute in ("_mode_maps", "_averages", "_effect_averages", "_widenings"):
        setattr(model, attribute, getattr(model, attribute)[:1])
    model.weights_ = np.ones(1)
    del model.fitted_  # made of what it was before
    world = World(X)
    (f,) = draws_of(model, world.rows, 1, hidden=world.hidden)
    total, alone, others, pairs = variances(world, f)
    indices = explain.sobol_indices(model)
    np.testing.assert_allclose(indices.first, [alone[n] / total for n in X], atol=1e-9)
    np.testing.assert_allclose(indices.total, [others[n] / total for n in X], atol=1e-9)
    assert indices.variance == pytest.approx(total)
    assert np.max(indices.first_std) < 1e-9
    for pair in explain.interactions(model):
        assert pair.importance == pytest.approx(pairs[pair.names] / total, abs=1e-9)


def known(state):
    """The posterior with its means known exactly."""
    from dataclasses import replace

    pairs = zip(state.modes, state.factors, strict=True)
    sums = None if state.sums is None else replace(state.sums, cov=0.0 * state.sums.cov)
    factors = tuple(mode.point(f.mean, f.layout) for mode, f in pairs)
    return replace(state, factors=factors, sums=sums)


def shapley_values(world, f):
    """What each input contributes, over all subsets, in every row there could be: (D, ..., K)."""
    names = world.names
    out = []
    for name in names:
        others = [n for n in names if n != name]
        total = 0.0
        for size in range(len(names)):
            share = factorial(size) * factorial(len(others) - size) / factorial(len(names))
            for some in combinations(others, size):
                added = world.averaged(f, [*some, name]) - world.averaged(f, some)
                total = total + share * added
        out.append(total)
    return np.array(np.broadcast_arrays(*out))


def test_contributions_are_shapley_values_and_add_up(fitted):
    model, X, _ = fitted
    world = World(X)
    f = f_of(model, world.rows)
    local = explain.explain_local(model, world.rows)
    whole = ~world.rows.isna().any(axis=1).to_numpy()  # others are averaged over what may be there
    np.testing.assert_allclose(local.prediction[whole], f[whole], rtol=1e-10, atol=1e-10)
    together = local.base + local.contributions.sum(axis=1)
    np.testing.assert_allclose(together, local.prediction, rtol=1e-12)

    def of_whole(values):
        return values.reshape(len(world.names), len(whole), -1)[:, whole]

    def by_input(values):
        return of_whole(np.moveaxis(values, 1, 0))

    expected = of_whole(shapley_values(world, f))
    np.testing.assert_allclose(by_input(local.contributions), expected, atol=1e-8)
    drawn = draws_of(model, world.rows, 200, hidden=world.hidden)
    values = np.array([shapley_values(world, draw) for draw in drawn])
    first, second = (world.merged(np.mean(values**k, axis=0)) for k in (1, 2))
    spread = np.sqrt(np.maximum(second - first**2, 0.0))
    np.testing.assert_allclose(
        by_input(local.std), of_whole(spread), rtol=0.35, atol=0.02 * np.std(f)
    )


def test_contributions_add_up_for_any_row():
    model, (X, y) = MODELS["gaps"]()
    model.fit(X, y)
    odd = pd.DataFrame({"a": [99.0, np.nan], "b": [np.nan, -7.0], "g": ["never seen", None]})
    local = explain.explain_local(model, odd)
    np.testing.assert_allclose(local.prediction, model.predict(odd), rtol=1e-12)
    assert explain.explain_local(model, odd, return_std=False).std.shape == (2, 3)


def test_contributions_of_many_inputs(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 30))
    y = X[:, 0] * X[:, 1] + X[:, 2] + 0.1 * rng.standard_normal(300)
    model = BTNRegressor(**SMALL, structure="sums+tensor").fit(X, y)
    local = explain.explain_local(model, X[:5])
    np.testing.assert_allclose(local.prediction, model.predict(X[:5]), rtol=1e-10)
    monkeypatch.setattr(shapley, "MOST_NODES", 15)  # exact for so many inputs
    monkeypatch.setattr(shapley, "_NUMBERS", 1)  # row by row
    exact = explain.explain_local(model, X[:5])
    np.testing.assert_allclose(local.std, exact.std, rtol=1e-6)
    np.testing.assert_allclose(local.contributions, exact.contributions, rtol=1e-10)
    np.testing.assert_allclose(
        explain.sobol_indices(model).total.sum(), 1.0, atol=0.7
    )  # none is lost in products of thirty


def test_partial_dependence_keeps_other_inputs_as_they_are(fitted):
    model, X, _ = fitted
    some = X.iloc[:40]
    actual = explain.partial_dependence(model, some, "a", draws=300)
    spread = []
    for value, mean in zip(actual.values, actual.mean, strict=True):
        there = some.assign(a=value)
        np.testing.assert_allclose(mean, f_of(model, there).mean(axis=0), atol=1e-8)
        spread.append(draws_of(model, there, 150).mean(axis=1).std(axis=0))
    np.testing.assert_allclose(actual.std, spread, rtol=0.25, atol=0.02 * np.std(f_of(model, X)))


@pytest.mark.parametrize("kind", [BTNRegressor, BTNClassifier])
def test_partial_dependence_of_the_only_input(kind):
    x = np.linspace(-1, 1, 120)[:, None]
    y = np.sin(3 * x[:, 0]) if kind is BTNRegressor else (x[:, 0] > 0.1).astype(int)
    model = kind(n_init=1, max_iter=8, random_state=0).fit(x, y)
    actual = explain.partial_dependence(model, x[:50], 0, draws=4)
    np.testing.assert_allclose(actual.mean, f_of(model, actual.values[:, None]), atol=1e-9)


def test_components_add_up_to_the_best_restart():
    model, (X, y) = MODELS["anchored"]()
    model.set_params(n_init=1).fit(X, y)
    rows = World(X).rows
    total = 0.0
    for term in explain.components(model):
        part = np.full(len(rows), term.amplitude)
        for factor in term.factors:
            values = pd.Series(factor.mean, index=factor.values)
            part = part * rows[factor.name].map(values).to_numpy()
        total = total + part
        assert str(term).count("×") == len(term.factors)
    # but for factors that hardly vary, which are taken as constant
    assert np.std(model._y_shift + total - model.predict(rows)) < 0.1 * np.std(y)
    assert sum(component.importance for component in explain.components(model)) == pytest.approx(
        1.0
    )
    assert len(explain.components(model, most=1)) == 1
    train = BTNRegressor(**SMALL, network=TensorTrain(cores="full", order="given")).fit(X, y)
    with pytest.raises(ValueError, match="not products of functions of one input"):
        explain.components(train)


@pytest.mark.parametrize(
    ("curve", "word"),
    [
        (lambda x: x, "rises"),
        (lambda x: -np.exp(x), "falls"),
        (lambda x: -(x**2), "rises, then falls"),
        (lambda x: x**2, "falls, then rises"),
        (lambda x: np.sin(9 * x), "goes up and down"),
    ],
)
def test_shapes_are_told_in_words(curve, word):
    x = np.linspace(-1, 1, 60)
    factor = explain.ComponentFactor("x", "number", x, curve(x), 0 * x, 1.0)
    assert factor.shape == word


def test_functions_tell_what_was_kept():
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    y = np.cos(4 * X[:, 0])
    y = y + 0.1 * X[:, 1]
    model = BTNRegressor(n_init=1, max_rank=4, random_state=0, structure="tensor").fit(X, y)
    first, second = explain.functions(model)
    assert len(first.numbers) + first.dropped == model.columns_[0].basis.n_functions_
    assert first.importance.sum() == pytest.approx(1.0)
    assert np.all(np.diff(first.numbers) > 0)
    assert len(first.precision) == len(first.numbers)
    even = first.numbers % 2 == 0  # and so is the function, but for the ranks of its values
    assert first.importance[even].sum() > 0.95
    assert len(explain.functions(model, ["x1"])) == 1
    assert second.name == "x1"
    both = BTNRegressor(**SMALL, structure="sums+tensor").fit(X, y)
    actual = explain.functions(both)
    assert [(listed.name, listed.part) for listed in actual] == [
        (name, part) for name in ("x0", "x1") for part in ("tensor", "sums")
    ]
    (mode_map, *_) = both._mode_maps
    for entry, effect in zip(actual[1::2], mode_map.effects, strict=True):
        assert len(entry.numbers) + entry.dropped == effect.n_functions_
        assert len(entry.precision) == len(entry.numbers)


def test_calibration_of_what_is_right_and_wrong():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1500, 1))
    y = X[:, 0] + 0.3 * rng.standard_normal(1500)
    model = BTNRegressor(structure="sums", random_state=0).fit(X[:500], y[:500])
    right = explain.calibration(model, X[500:], y[500:])
    assert right.n == 1000
    assert np.mean((right.coverage >= right.low) & (right.coverage <= right.high)) > 0.6
    low, high = model.predict_interval(X[500:], 0.9).T
    held = np.mean((low <= y[500:]) & (y[500:] <= high))
    assert right.coverage[right.levels == 0.9][0] == pytest.approx(held)
    assert right.histogram.sum() == pytest.approx(1.0)
    dist = model.predict_dist(X[500:])
    assert right.log_density == pytest.approx(np.mean(dist.logpdf(y[500:])))
    wild = explain.calibration(model, X[500:], y[500:] * 3)
    assert np.all(wild.coverage < wild.low)


def test_calibration_of_counts_is_even_where_right():
    X, y = counts()
    model = BTNRegressor(**SMALL, structure="tensor", likelihood="negative_binomial").fit(X, y)
    actual = explain.calibration(model, X, y)
    assert actual.histogram.min() > 0.02
    assert actual.histogram.max() < 0.2
    assert explain.residuals(model, X, y).rmse < np.std(y)


@pytest.mark.parametrize("count", [2, 3])
def test_reliability_of_classes(count):
    X, y = classes(count)
    model = BTNClassifier(**SMALL, structure="tensor").fit(X, y)
    actual = explain.calibration(model, X, y)
    assert len(actual.classes) == (1 if count == 2 else 3)
    for predicted, observed, counted in zip(
        actual.predicted, actual.observed, actual.counts, strict=True
    ):
        assert counted.sum() == len(y)
        assert np.corrcoef(predicted, observed)[0, 1] > 0.9
    assert actual.accuracy == pytest.approx(model.score(X, y))
    likelihoods = model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    assert actual.log_loss == pytest.approx(-np.mean(np.log(likelihoods)))
    with pytest.raises(ValueError, match="classes of the fit only"):
        explain.calibration(model, X, np.full(len(y), "zzz"))
    with pytest.raises(TypeError, match="use calibration"):
        explain.residuals(model, X, y)


def test_residuals_tell_where_the_noise_is_larger():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(0, 1, 600), "b": rng.uniform(0, 1, 600)})
    y = X["a"] + 0.5 * X["b"] * rng.standard_normal(600)
    model = BTNRegressor(structure="sums", random_state=0).fit(X, y)
    actual = explain.residuals(model, X.assign(y=y), "y")
    assert actual.by_input["b"] > 0.3
    coarse = X.assign(b=np.round(X["b"]))  # ties
    model_2 = BTNRegressor(structure="sums", random_state=0).fit(coarse, y)
    ties = explain.residuals(model_2, coarse, y)
    expected = spearmanr(coarse["b"], np.abs(ties.score)).statistic
    assert ties.by_input["b"] == pytest.approx(expected)
    assert abs(actual.by_input["a"]) < 0.2
    np.testing.assert_allclose(actual.residual, y - model.predict(X))
    pit = model.predict_dist(X).cdf(y)
    np.testing.assert_allclose(actual.score, ndtri(pit), atol=1e-9)
    assert np.abs(actual.score[actual.worst[0]]) == np.max(np.abs(actual.score))


def test_history_is_that_of_the_fit(fitted):
    model, _, _ = fitted
    actual = explain.history(model)
    assert sum(map(len, actual.elbo)) == len(model.history_)
    assert actual.elbo[actual.best][-1] == model.lower_bound_
    rank = np.mean(model.rank_) if model.network == "cp" else None
    assert rank is None or actual.ranks[actual.best][-1] == rank
    assert np.all(model.ranks_[model.best_restart_] == model.rank_)
    assert set().union(*actual.phases) <= {"warm", "annealing", "exact", "newton"}


def test_results_are_plain_data(fitted):
    model, X, y = fitted
    results = [
        *explain.effects(model),
        explain.interaction(model, "a", "g"),
        explain.sobol_indices(model),
        *explain.interactions(model, most=2),
        explain.explain_local(model, X.iloc[:2]),
        explain.partial_dependence(model, X.iloc[:9], "g", draws=2),
        *explain.functions(model),
        explain.calibration(model, X, y),
        explain.history(model),
    ]
    for result in results:
        again = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert again.keys() == result.to_dict().keys()
    for result in (results[0], results[2], results[4]):
        if hasattr(result, "to_frame"):
            assert len(result.to_frame()) > 0


def test_kinds_of_columns_and_odd_names():
    rng = np.random.default_rng(0)
    n = 200
    day = np.datetime64("2024-01-01") + rng.integers(0, 300, n).astype("m8[D]")
    X = pd.DataFrame({"day": day, "wait": rng.integers(1, 99, n).astype("m8[h]"), "same": 1.0})
    X["g"] = np.where(rng.random(n) < 0.2, None, np.array(["u", "v"])[rng.integers(0, 2, n)])
    X["zero"] = np.where(rng.random(n) < 0.4, 0.0, rng.uniform(1, 9, n))
    y = (X["g"] == "u") + (day - day.min()).astype(float) / 300 + (X["zero"] == 0)
    y = y + 0.05 * rng.standard_normal(n)
    model = BTNRegressor(**SMALL, structure="sums+tensor").fit(X, y)
    actual = {effect.name: effect for effect in explain.effects(model)}
    assert [e.kind for e in actual.values()] == ["date", "duration", "number", "category", "number"]
    assert actual["day"].values.dtype.kind == "M"
    assert actual["day"].to_dict()["values"][0].startswith("2024-01-0")
    assert np.all(actual["same"].mean == 0)
    assert actual["g"].values.tolist() == ["u", "v", MISSING]
    assert actual["g"].rows[:2].sum() == pytest.approx(1.0)
    spikes = actual["zero"].spikes
    assert spikes["values"].tolist() == [0.0]
    assert spikes["mean"][0] > 0.3
    alone = explain.interaction(model, "same", "g")
    assert np.all(alone.mean == 0.0)
    assert np.all(alone.std == 0.0)
    np.testing.assert_allclose(alone.total[0], actual["g"].mean, atol=1e-10)
    assert explain.partial_dependence(model, X, "same").std.shape == actual["same"].mean.shape


def test_what_cannot_be_explained():
    X, y = regression()
    with pytest.raises(Exception, match="not fitted"):
        explain.effects(BTNRegressor())
    model = BTNRegressor(structure="sums", max_iter=3).fit(X, y)
    for wrong in ("zz", 3, -4, True, None):
        with pytest.raises(ValueError, match="name or position"):
            explain.effects(model, [wrong])
    with pytest.raises(ValueError, match="two different"):
        explain.interaction(model, "a", 0)
    with pytest.raises(ValueError, match="points"):
        explain.effects(model, points=1)
    with pytest.raises(ValueError, match="level"):
        explain.effects(model, level=95)
    with pytest.raises(ValueError, match="one value for each of 240 rows"):
        explain.calibration(model, X, y[:5])


def test_a_stream_and_a_fit_of_tensors_can_be_explained():
    torch = pytest.importorskip("torch")
    X, y = regression()
    X = X.drop(columns="g")
    model = BTNRegressor(n_init=1, max_iter=6, random_state=0)
    model.fit(torch.asarray(X.to_numpy(copy=True)), torch.asarray(y.to_numpy(copy=True)))
    tensor = torch.asarray(X.to_numpy(copy=True)[:4])
    local = explain.explain_local(model, tensor)
    assert isinstance(local.prediction, np.ndarray)
    assert explain.calibration(model, tensor, torch.zeros(4)).n == 4
    assert explain.partial_dependence(model, tensor, 0, draws=2).mean.shape == (5,)
    np.testing.assert_allclose(local.prediction, model.predict(X.to_numpy()[:4]), rtol=1e-10)
    stream = BTNRegressor(n_init=1, max_iter=6, random_state=0)
    for part in range(3):
        stream.partial_fit(X[part::3], y[part::3])
    assert explain.sobol_indices(stream).order[0] == 0
    assert stream.n_samples_seen_ == 240
    assert "240 rows" in explain.summary(stream).title


def test_a_model_at_a_glance():
    X, y = regression()
    model = BTNRegressor(**TENSOR)
    plain = model._repr_html_()
    assert "btnkm-summary" not in plain
    model.fit(X.rename(columns={"a": "<b>a</b>"}), y)
    actual = explain.summary(model)
    assert [entry["name"] for entry in actual.inputs][0] == "<b>a</b>"
    assert sum(entry["functions"] for entry in actual.inputs) == model.n_basis_.sum()
    text = str(actual)
    assert "240 rows" in text
    assert all(name in text for name in ("<b>a</b>", "b", "g", f"{model.noise_std_:.4g}"))
    html = model._repr_html_()
    assert "&lt;b&gt;a&lt;/b&gt;" in html
    assert "<b>a</b>" not in html
    assert html.count("btnkm-summary'") == 1
    assert model._repr_mimebundle_()["text/html"].count("btnkm-summary'") == 1
    json.dumps(actual.to_dict(), allow_nan=False)
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert "text/html" not in model._repr_mimebundle_()
    many = BTNClassifier(n_init=1, max_iter=2, random_state=0, structure="tensor")
    many.fit(np.random.default_rng(0).normal(size=(90, 20)), np.arange(90) % 3)
    assert "and 8 less important inputs" in str(explain.summary(many))
    assert "3 classes from 20 inputs" in explain.summary(many).title


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("cp", r"tensor"),
        ("sums", r"sums"),
        ("sums and a tensor", r"sums \+ tensor"),
        (
            "mixture",
            r"sums \+ tensor \(weight 0\.\d\d\), tensor \(0\.\d\d\), sums \(0\.\d\d\)",
        ),
    ],
)
def test_structures_are_told_in_a_line(name, line):
    model, _, _ = made(name)
    facts = explain.summary(model).facts
    assert re.fullmatch(line, facts["structure"])
    assert facts["restarts"] == str(len(model.posterior_))
    assert ("rank" in facts) == (name not in ("sums", "mixture"))
    assert facts["structure"] in model._repr_html_()
