"""The engine of the what-if panel says in a real browser what Python says, to 1e-9."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special

import btnkm.report
from btnkm import BTNRegressor, classifier
from btnkm.classifier import INTERVAL_POINTS
from btnkm.core.likelihoods.softmax import even_points
from btnkm.io.portable import portable
from btnkm.report import panel
from btnkm.report.panel import ENGINE_FILES, embedded, sobol_directions, with_categories
from tests.browser import browser, opened
from tests.models import MAKERS, SMALL, fitted
from tests.test_portable import rows_of

FOLDER = Path(btnkm.report.__file__).parent
ENGINE = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in ENGINE_FILES)
LEVELS = [0.025, 0.975]


@pytest.fixture(scope="module")
def page():
    with browser() as chromium, opened(chromium) as page:
        page.set_content(f"<script>{ENGINE}</script>")
        yield page


def asked(page, data, rows):
    """Return what the browser says of raw rows."""
    text, numbers = embedded(data)
    return page.evaluate(
        """([text, numbers, rows]) => {
            const model = new WhatIf.Model(JSON.parse(text), numbers);
            return rows.map((row) => {
                const { mixture, ...said } = model.predict(row);
                return mixture ? { pdf: mixture.pdf(said.interval[0]), ...said } : said;
            });
        }""",
        [text, numbers, [list(row) for row in rows]],
    )


def compare(model, X, answers):
    if not hasattr(model, "classes_"):
        distribution = model.predict_dist(X)
        interval = distribution.quantile(LEVELS)
        scale = model._y_scale if not distribution.discrete else np.maximum(distribution.mean, 1.0)
        close(np.array([answer["mean"] for answer in answers]) / scale, distribution.mean / scale)
        ends = np.array([answer["interval"] for answer in answers])
        density = np.array([answer["pdf"] for answer in answers])
        if distribution.discrete:
            np.testing.assert_array_equal(ends, interval)
            close(density, distribution.pdf(interval[:, 0]), 1e-7)
        else:
            close(ends / scale, interval / scale)
            close(density * scale, distribution.pdf(interval[:, 0]) * scale)
        return
    close(np.array([answer["probabilities"] for answer in answers]), model.predict_proba(X))
    intervals = np.array([answer["intervals"] for answer in answers])  # (n, K, 2)
    expected = model.predict_proba_interval(X)
    close(intervals[:, 1] if expected.ndim == 2 else intervals, expected)


def close(actual, expected, tolerance=1e-9):
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=tolerance)  # some are far away


@pytest.mark.parametrize("name", MAKERS)
def test_the_browser_says_what_python_says(page, name):
    model, X = fitted(name)
    compare(model, X, asked(page, portable(model), rows_of(X)))


def test_the_browser_takes_as_many_points_as_python(page, monkeypatch):
    model, X = fitted("three classes")
    for module in (classifier, panel):
        monkeypatch.setattr(module, "PROBABILITY_POINTS", 32)
        monkeypatch.setattr(module, "INTERVAL_POINTS", 256)
    compare(model, X, asked(page, portable(model), rows_of(X)))


def applied(page, name, arguments):
    """Return what one of the engine's functions says of lists of arguments."""
    return np.array(
        page.evaluate(
            "([name, all]) => all.map((some) => Numerics[name](...some))",
            [name, np.transpose(arguments).tolist()],
        )
    )


def grid(*axes):
    return [part.ravel() for part in np.meshgrid(*axes)]


def test_special_functions_have_all_digits(page):
    x = np.concatenate([np.linspace(-20.0, 8.0, 400), [-1.5, 1.5, 0.0]])
    np.testing.assert_allclose(applied(page, "normalCdf", [x]), special.ndtr(x), rtol=2e-13)
    p = np.concatenate([np.geomspace(1e-9, 0.49, 200), 1.0 - np.geomspace(1e-9, 0.49, 200), [0.5]])
    close(applied(page, "normalQuantile", [p]), special.ndtri(p), 1e-13)
    z = np.geomspace(1e-3, 1e7, 200)
    size = np.maximum(np.abs(special.gammaln(z)), 1.0)
    close(applied(page, "logGamma", [z]) / size, special.gammaln(z) / size, 2e-14)
    dof, t = grid(np.geomspace(1.0, 1e9, 40), np.linspace(-9.0, 9.0))
    close(applied(page, "studentCdf", [dof, t]), special.stdtr(dof, t), 1e-13)
    sizes, counts = np.geomspace(0.05, 1e3, 12), np.arange(1.0, 900.0, 60.0)
    size, k, failure = grid(sizes, counts, np.linspace(0.01, 0.99, 15))
    actual = applied(page, "incompleteBeta", [size, k, failure, 1.0 - failure])
    close(actual, special.betainc(size, k, failure), 1e-12)
    large = np.geomspace(50.0, 1e5, 20)
    shape, x = grid(np.append(np.arange(1.0, 40.0), large), np.geomspace(1e-6, 1e5))
    close(applied(page, "gammaSf", [shape, x]), special.gammaincc(shape, x), 1e-9)
    shape, x = grid(np.arange(1.0, 300.0, 7.0), np.geomspace(1e-6, 400.0))
    close(applied(page, "gammaSf", [shape, x]), special.gammaincc(shape, x), 1e-12)


def test_a_square_root_is_symmetric_and_its_square_the_matrix(page):
    rng = np.random.default_rng(0)
    half = rng.normal(size=(9, 6)) * np.geomspace(1e-3, 10.0, 6)
    matrix = half @ half.T  # of rank 6
    root = page.evaluate(
        "(rows) => Numerics.squareRoot(rows).map((row) => Array.from(row))",
        matrix.tolist(),
    )
    close(root, np.transpose(root), 1e-13)
    close(np.array(root) @ root, matrix, 1e-11)


def test_directions_make_the_points_of_three_classes():
    even = even_points(7, INTERVAL_POINTS) * 2.0**30
    directions = sobol_directions(7).astype(int)
    point = directions[0].copy()
    for n in range(1, INTERVAL_POINTS):
        point ^= directions[1 + (n & -n).bit_length() - 1]
        assert np.array_equal(point, even[n])


def test_categories_that_are_left_out_are_those_never_seen(page):
    model, X = fitted("many levels")
    names = list(model.columns_[1].categories)
    kept = names[3:17:2]
    data = with_categories(portable(model), {1: kept})
    assert len(embedded(data)[1]) < len(embedded(portable(model))[1])
    mean = {mode["column"]: mode["mean"] for mode in data["restarts"][0]["modes"]}
    fills = model.fitted_.fills.codes[1]
    stay = {model.columns_[1].categories[name] for name in kept} | set(fills[fills >= 0])
    assert len(mean[1]) == len(stay) + 2  # a gap, and what was never seen
    X = X.copy()
    X["place"] = np.resize(np.array([*kept, None, "never seen"], dtype=object), len(X))
    compare(model, X, asked(page, data, rows_of(X)))
    X["place"] = names[0]
    answers = asked(page, data, rows_of(X))
    X["place"] = "never seen"
    compare(model, X, answers)


def test_no_text_of_the_users_means_anything_to_the_engine(page):
    names = ["__proto__", "constructor", "array", "</script>", "\u2028", "", "\U0001f600"]
    rng = np.random.default_rng(0)
    place = rng.integers(len(names), size=140)
    X = np.empty((140, 2), dtype=object)
    X[:, 0] = np.array(names, dtype=object)[place]
    X[:, 1] = rng.normal(size=140)
    model = BTNRegressor(**SMALL).fit(X, place + X[:, 1].astype(float))
    X[5, 0], X[6, 0] = "toString", "hasOwnProperty"  # never seen
    text, _ = embedded(portable(model))
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text)["columns"][0]["categories"][0][0] in names
    compare(model, X[:20], asked(page, portable(model), rows_of(X[:20])))
