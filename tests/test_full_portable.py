"""Kernel machines as plain data, as ONNX graphs and in a browser say what the model says."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from btnkm import BTNClassifier, BTNRegressor, Solver
from btnkm.io.portable import portable
from btnkm.report.panel import embedded, with_categories
from tests.browser import browser, opened
from tests.models import SMALL, N, mixed, smooth
from tests.test_portable import coordinate, excess, listed, rows_of, widening
from tests.test_portable import moments as moments_of_tensor
from tests.test_what_if import ENGINE, asked, compare

FULL = {"structure": "full", "random_state": 0, "n_jobs": 1}


def noisy(n_inputs, scale=0.1):
    X, y = smooth(n_inputs)
    return X, y + scale * np.random.default_rng(9).standard_normal(len(y))


def thirds(y):
    return np.array(["low", "middle", "high"], dtype=object)[np.digitize(y, [-0.5, 0.5])]


def split(model, X, y):
    known = X.iloc[:N] if hasattr(X, "iloc") else X[:N]
    return model.fit(known, y[:N]), X.iloc[N:] if hasattr(X, "iloc") else X[N:]


def blended(estimator, X, y, **parameters):
    """Return a mixture of a full tensor and one of low rank."""
    full, X_new = split(estimator(**FULL, **parameters), X, y)
    other, _ = split(estimator(**SMALL, **parameters), X, y)
    both = copy.copy(other)
    both.posterior_ = full.posterior_ + other.posterior_
    both._mode_maps = full._mode_maps + other._mode_maps
    both._widenings = full._widenings + other._widenings
    both.weights_ = np.concatenate([0.4 * full.weights_, 0.6 * other.weights_])
    return both, X_new


def counts(y):
    return np.random.default_rng(3).poisson(np.exp(1.0 + y)).astype(float)


MAKERS = {
    "numbers": lambda: split(BTNRegressor(**FULL), *noisy(3)),
    "one input": lambda: split(BTNRegressor(**FULL), *noisy(1)),
    "rough": lambda: _rough(),
    "mixed": lambda: split(BTNRegressor(**FULL), *mixed()),
    "no gaps in training": lambda: split(BTNRegressor(**FULL), *mixed(gaps=0.0)),
    "many levels": lambda: split(BTNRegressor(**FULL), *mixed(n_categories=30)),
    "student t": lambda: split(BTNRegressor(**FULL, likelihood="student_t"), *noisy(2, 0.3)),
    "counts": lambda: split(
        BTNRegressor(**FULL, likelihood="negative_binomial"), smooth(2)[0], counts(smooth(2)[1])
    ),
    "two classes": lambda: split(BTNClassifier(**FULL), noisy(3)[0], noisy(3)[1] > 0.2),
    "balanced": lambda: split(
        BTNClassifier(**FULL, class_weight="balanced"), noisy(3)[0], noisy(3)[1] > 1.0
    ),
    "least squares": lambda: split(
        BTNClassifier(**FULL, likelihood="least_squares"), noisy(3)[0], noisy(3)[1] > 0.2
    ),
    "three classes": lambda: split(BTNClassifier(**FULL), noisy(3)[0], thirds(noisy(3)[1])),
    "three classes, mixed": lambda: split(
        BTNClassifier(**FULL), mixed()[0], thirds(mixed()[1] - 1.0)
    ),
    "mixture": lambda: blended(BTNRegressor, *mixed()),
    "mixture of many levels": lambda: blended(
        BTNRegressor, *mixed(n_categories=30), solver=Solver(anchored=True)
    ),
    "mixture of classes": lambda: blended(BTNClassifier, noisy(3)[0], thirds(noisy(3)[1])),
}


def _rough():
    """Return a model whose kernel is once differentiable."""
    X, y = noisy(2)
    model, X_new = split(BTNRegressor(**FULL), X, np.sign(X[:, 0]) + y)
    model.posterior_ = tuple(
        replace(state, kernel=replace(state.kernel, rough=np.ones_like(state.kernel.rough)))
        for state in model.posterior_
    )
    del model.fitted_  # made of the former posteriors
    return model, X_new


@cache
def made(name):
    return MAKERS[name]()


# ---- plain data ----------------------------------------------------------------------------------


def seen(column, part, value):
    """Return t, u and whether it is known."""
    x = coordinate(column, value)
    if x is None:
        return 0.0, 0.0, 0.0
    if column["categories"] is not None:
        return 0.0, x, 1.0
    held = min(max(value, column["knots"][0]), column["knots"][-1])
    if part["runs_on"]:
        held += excess(column, value) * (column["knots"][-1] - column["knots"][0])
    t = part["begin"] + part["slope"] * (held - column["knots"][0]) if part["line"] else 0.0
    return t, (x - part["center"]) / part["scale"], 1.0


def kappa(part, categorical, a, b, length):
    """Return the correlations of values a with values b: (n, m)."""
    (u, known), (v, other) = ((values[1], values[2]) for values in (a, b))
    apart = (u[:, None] - v) / length
    r = np.sqrt(3.0) * np.abs(apart)
    same = (1.0 - part["rough"]) * np.exp(-0.5 * apart**2) + part["rough"] * (1.0 + r) * np.exp(-r)
    if categorical:
        same = (u[:, None] == v) & (u[:, None] >= 0)
    return known[:, None] * other * same


def covariances(data, kernel, rows, others):
    """Return k between rows, each with its t, u and known in every input."""
    total, product = kernel["constant"], kernel["product"]
    for entry, a, b in zip(kernel["inputs"], rows, others, strict=True):
        categorical = data["columns"][entry["column"]]["categories"] is not None
        shared = entry["line"] * np.outer(a[0], b[0])
        shared += entry["missing"] * np.outer(1.0 - a[2], 1.0 - b[2])
        curve = kappa(entry, categorical, a, b, entry["curve_length"])
        factor = kappa(entry, categorical, a, b, entry["factor_length"])
        total = total + shared + entry["curve"] * curve
        product = product * (1.0 + entry["factor"] * factor) / (1.0 + entry["factor"])
    return total + product


def moments_of_kernel(data, kernel, rows):
    """Return E[f] and Var[f]: (n, K) each."""
    alpha, noise = np.array(kernel["alpha"]), np.array(kernel["noise"])
    n = alpha.shape[1]
    empty = {"t": np.zeros(n), "u": np.zeros(n), "known": np.ones(n)}
    then = [
        [empty[k] if entry["rows"][k] is None else np.array(entry["rows"][k]) for k in empty]
        for entry in kernel["inputs"]
    ]
    now = [
        np.transpose([seen(data["columns"][i["column"]], i, row[i["column"]]) for row in rows])
        for i in kernel["inputs"]
    ]
    cross, matrix = (covariances(data, kernel, part, then) for part in (now, then))
    prior, product = kernel["constant"], kernel["product"]
    for item, (t, _, known) in zip(kernel["inputs"], now, strict=True):
        prior = (
            prior + item["line"] * t**2 + item["curve"] * known + item["missing"] * (1.0 - known)
        )
        product = product * (1.0 + item["factor"] * known) / (1.0 + item["factor"])
    prior = prior + product
    variances = []
    for item in noise:
        root = solve_triangular(np.linalg.cholesky(matrix + np.diag(item)), cross.T, lower=True)
        variances.append(np.maximum(prior - np.sum(root**2, axis=0), 1e-12 * prior))
    return cross @ alpha.T, np.transpose(variances)


@pytest.mark.parametrize("name", MAKERS)
def test_plain_data_say_what_the_model_says(name):
    model, X = made(name)
    data = json.loads(json.dumps(listed(portable(model))))
    assert data["format"] == 5
    expected = model.fitted_.predict(
        model.fitted_.encode(X), lambda predictor, rows: predictor.moments(rows), 2
    )
    expected = expected if expected.ndim == 4 else expected[..., None]  # (2, S, n, K)
    for k, start in enumerate(data["restarts"]):
        if start["kernel"] is None:
            actual = [moments_of_tensor(data, start, row) for row in rows_of(X)]
            actual = np.moveaxis(actual, 1, 0)
        else:
            assert (start["network"], start["modes"], start["sums"]) == ("full", [], None)
            actual = moments_of_kernel(data, start["kernel"], rows_of(X))
            actual[1][...] += [widening(data, start, row) for row in rows_of(X)]
        np.testing.assert_allclose(actual[0], expected[0, k], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(actual[1], expected[1, k], rtol=1e-6, atol=1e-9)
    assert any(start["kernel"] for start in data["restarts"])


def test_a_matrix_that_is_nearly_singular_is_told_with_what_was_added():
    X, y = smooth(2)
    X[:N] = X[np.arange(N) % 40]
    model, X = split(BTNRegressor(**FULL), X, np.sin(X[:, 0]))  # rows repeat, without noise
    data = json.loads(json.dumps(listed(portable(model))))
    for start, state, told in zip(
        data["restarts"], model.posterior_, model._moments(X)[0], strict=True
    ):
        assert np.all(np.array(start["kernel"]["noise"]) > state.noise)
        mean, variance = moments_of_kernel(data, start["kernel"], rows_of(X))
        assert np.all(variance > 0.0)
        np.testing.assert_allclose(mean[:, 0], told, atol=1e-6)


# ---- graphs --------------------------------------------------------------------------------------


def check_graph(model, X):
    from tests.test_onnx import told

    actual = told(model, X)
    if hasattr(model, "classes_"):
        label, probability = actual
        np.testing.assert_allclose(probability, model.predict_proba(X), rtol=1e-6, atol=1e-8)
        assert np.array_equal(label[:, 0], model.predict(X))
        return
    mean, std = model.predict(X, return_std=True)
    scale = model._y_scale
    if model.likelihood == "gaussian":
        np.testing.assert_allclose(actual[0][:, 0] / scale, mean / scale, atol=1e-9)
    np.testing.assert_allclose(actual[0][:, 0], mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(actual[1][:, 0], std, rtol=1e-6)


@pytest.mark.parametrize("name", MAKERS)
def test_a_graph_says_what_the_model_says(name):
    check_graph(*made(name))


@pytest.mark.parametrize("name", ["mixed", "no gaps in training", "many levels"])
def test_a_graph_says_the_same_of_rows_like_none_before(name):
    model, X = made(name)
    rng = np.random.default_rng(0)
    wild = X.sample(60, replace=True, random_state=0).reset_index(drop=True)
    wild["size"] *= rng.choice([1.0, -3.0, 1e6], len(wild))
    wild.loc[::4, "place"], wild.loc[1::4, "place"] = "new", None
    for column in ("size", "since", "pay", "whole"):
        wild[column] = wild[column].mask(rng.random(len(wild)) < 0.3)
    check_graph(model, wild)


@pytest.mark.parametrize("name", ["numbers", "three classes"])
def test_no_rows_have_no_answers_and_one_row_has_one(name):
    from tests.test_onnx import session

    model, X = made(name)
    graph = session(model.to_onnx())
    for n in (0, 1):
        actual = graph.run(None, {f"x{j}": X[:n, [j]] for j in range(3)})
        assert [len(part) for part in actual] == [n, n]
    check_graph(model, X[:1])


@pytest.mark.parametrize(("noise", "most"), [(1e-6, 1e-4), (1e-4, 1e-7), (0.1, 1e-7)])
def test_rounding_changes_variances_by_as_little_as_is_said(noise, most):
    pytest.importorskip("onnx")
    from btnkm.io.onnx.kernels import _root

    rng = np.random.default_rng(0)
    x, new = rng.normal(size=(300, 3)), rng.normal(size=(80, 3))
    matrix, cross = (
        20.0 * np.exp(-0.125 * np.sum((x[:, None] - z) ** 2, axis=2)) + x @ z.T for z in (x, new)
    )
    order = dpstrf(matrix, lower=1)[1] - 1
    matrix, cross, rows = matrix[np.ix_(order, order)], cross[order], np.full(300, noise)
    coarse, fine = _root(matrix, rows)
    assert coarse.dtype == fine.dtype == np.float32
    root = coarse.astype(float)
    root[:, : len(fine)] += fine.T
    prior = 20.0 + np.sum(new**2, axis=1)
    lower = np.linalg.cholesky(matrix + np.diag(rows))
    exact = prior - np.sum(solve_triangular(lower, cross, lower=True) ** 2, axis=0)
    actual = prior - np.sum((root @ cross) ** 2, axis=0)
    assert np.max(np.abs(actual - exact) / (exact + noise)) < most
    plain = prior - np.sum((coarse.astype(float) @ cross) ** 2, axis=0)
    assert np.max(np.abs(plain - exact) / (exact + noise)) > 10.0 * most


# ---- a browser -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page():
    with browser() as chromium, opened(chromium) as page:
        page.set_content(f"<script>{ENGINE}</script>")
        yield page


@pytest.mark.parametrize("name", MAKERS)
def test_the_browser_says_what_python_says(page, name):
    model, X = made(name)
    compare(model, X, asked(page, portable(model), rows_of(X)))


@pytest.mark.parametrize("name", ["many levels", "mixture of many levels"])
def test_categories_that_are_left_out_are_those_never_seen(page, name):
    model, X = made(name)
    names = list(model.columns_[1].categories)
    kept = names[3:17:2]
    data = with_categories(portable(model), {1: kept})
    X = X.copy()
    X["place"] = np.resize(np.array([*kept, None, "never seen"], dtype=object), len(X))
    compare(model, X, asked(page, data, rows_of(X)))
    X["place"] = names[0]
    answers = asked(page, data, rows_of(X))
    X["place"] = "never seen"
    compare(model, X, answers)


# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_thousand_rows_of_twenty_inputs_take_less_than_three_megabytes(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(1020, 20)), columns=[f"x{j}" for j in range(20)])
    y = np.sin(2.0 * X["x0"]) + X["x1"] * X["x2"] + 0.1 * rng.normal(size=1020)
    model = BTNRegressor(**FULL).fit(X[:1000], y[:1000])
    assert len(model.to_onnx().SerializeToString()) < 3_000_000
    assert sum(map(len, embedded(portable(model)))) < 1_000_000
    check_graph(model, X[1000:])
