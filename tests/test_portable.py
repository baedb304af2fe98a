"""Plain data tell all that predictions need: loops over them say what the model says."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from btnkm import BTNRegressor
from btnkm.data.frames import as_numbers, split_columns
from btnkm.io.portable import portable
from btnkm.likelihoods import StudentT
from tests.models import MAKERS, SMALL, fitted, smooth
from tests.problems import Hinges


def listed(value):
    """Return plain data with lists for arrays; whatever else is no plain data fails in JSON."""
    if isinstance(value, dict):
        return {key: listed(part) for key, part in value.items()}
    if isinstance(value, list):
        return [listed(part) for part in value]
    if isinstance(value, np.ndarray):
        assert value.dtype == np.float64
        return value.tolist()
    return value


def coordinate(column, value):
    """Return what a raw value is to the basis of its column; None where it is missing."""
    if column["categories"] is not None:
        return None if value is None else float(column["categories"].get(value, -1))
    if value is None or not column["knots"]:
        return None
    knots, positions = column["knots"], column["positions"]
    if value >= knots[-1]:
        return positions[-1]
    if value <= knots[0]:
        return positions[0]
    for (x0, x1), (p0, p1) in zip(pairwise(knots), pairwise(positions), strict=True):
        if x0 <= value < x1:
            return (p1 - p0) / (x1 - x0) * (value - x0) + p0
    raise AssertionError(value)


def excess(column, value):
    """Return how far a number is beyond the knots, in units of their distance."""
    if column["categories"] is not None or value is None or len(column["knots"]) < 2:
        return 0.0
    first, last, far = column["knots"][0], column["knots"][-1], column["farthest"]
    beyond = max(value - last, 0.0) + min(value - first, 0.0)
    return min(max(beyond / (last - first), -far), far)


def widening(data, start, row):
    """Return what is added to the variance of one row, by output."""
    total = [0.0] * np.size(start["least"])
    for item in start["widening"]:
        e = excess(data["columns"][item["column"]], row[item["column"]])
        tables, e = item["below" if e < 0.0 else "above"], abs(e)
        places = np.linspace(0.0, 1.0, len(tables))
        for k, table in enumerate(zip(*tables, strict=True)):
            total[k] += float(np.interp(e, places, table)) * max(e, 1.0) ** 2
    return total


def features(basis, x):
    """Return phi and psi at a coordinate; None where it is missing."""
    m, k = basis["n_functions"], basis["n_products"]
    kind = basis["kind"]
    if kind == "constant":
        return [1.0], [1.0]
    if kind == "many_categories":
        missing = m - 1 if basis["missing"] is None else basis["missing"]
        code = missing if x is None else m - 1 if x < 0 else int(x)
        return ([float(i == code) for i in range(m)],) * 2
    if kind == "with_missing":
        inner = basis["basis"]
        never = inner["kind"] == "categorical" and x is not None and x < 0
        if never or (x is None and not basis["saw_missing"]):
            return basis["average_phi"], basis["average_psi"]
        phi, psi = features(inner, basis["typical"] if x is None else x)
        gap = [float(x is None)]
        if basis["indicator"] == "first":
            return gap + phi, gap + psi
        return (phi + gap, psi + gap) if basis["indicator"] == "last" else (phi, psi)
    if kind == "categorical":
        return ([float(i == x) for i in range(m)],) * 2
    assert kind == "formula"
    actual = run(basis, {"x": min(max(x, -1.0), 1.0)})
    assert [len(actual["phi"]), len(actual["psi"])] == [m, k]
    return actual["phi"], actual["psi"]


def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


#: Operations on numbers; the others are in ``apply``.
ELEMENTARY = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "power": lambda a, b: a**b,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "sin": math.sin,
    "floor": math.floor,
    "clip": lambda a, low, high: min(max(a, low), high),
    "equal": lambda a, b: float(a == b),
    "above": lambda a, b: float(a > b),
    "sigmoid": sigmoid,
    "log_sigmoid": lambda x: math.log(sigmoid(x)),
    "log_gamma": math.lgamma,
    "normal_cdf": NormalDist().cdf,
    "student_cdf": lambda t, dof: stats.t.cdf(t, dof),
    "student_log_pdf": lambda t, dof: stats.t.logpdf(t, dof),
    "beta_cdf": lambda x, a, b, rest: stats.beta.cdf(x, a, b),
    "gamma_sf": lambda x, a: stats.gamma.sf(x, a),
}


def apply(operation, parts):
    """Return what an operation makes of rows of numbers."""
    if operation == "concat":
        return [value for part in parts for value in part]
    if operation == "columns":
        return [parts[0][int(place)] for place in parts[1]]
    if operation == "matmul":
        return [
            sum(a * b for a, b in zip(parts[0], column, strict=True))
            for column in zip(*parts[1], strict=True)
        ]
    if operation == "sum":
        return [math.fsum(parts[0])]
    if operation == "grid":
        (step,), (end,) = parts
        return [-end + k * step for k in range(math.ceil((2.0 * end + 0.5 * step) / step))]
    length = max(map(len, parts))
    rows = zip(*(part * length if len(part) == 1 else part for part in parts), strict=True)
    return [ELEMENTARY[operation](*row) for row in rows]


def run(formula, inputs):
    """Return all outputs of a formula, as lists."""
    values = {name: [value] for name, value in inputs.items()}

    def row(argument):
        if isinstance(argument, str):
            return values[argument]
        return argument if isinstance(argument, list) else [argument]

    for k, (operation, *arguments) in enumerate(formula["steps"]):
        values[str(k)] = apply(operation, [row(argument) for argument in arguments])
    return {name: row(argument) for name, argument in formula["outputs"].items()}


def times(vector, matrix):
    """Return a vector times as many leading rows of a matrix as there are."""
    return [
        sum(v * row[c] for v, row in zip(vector, matrix, strict=False))
        for c in range(len(matrix[0]))
    ]


def pair_counts(rank):
    return [1.0 if r == s else 2.0 for r in range(rank) for s in range(r, rank)]


def effect(column, basis, value):
    """Return the functions of a main effect at a raw value; None where it is missing."""
    known = len(basis["center"]) - basis["missing"]
    x = coordinate(column, value)
    values = [0.0] * known
    if column["categories"] is not None and x is not None and x >= 0:
        values = [float(x == code) for code in basis["codes"]]
        values = [v - c for v, c in zip(values, basis["center"][:known], strict=True)]
    elif column["categories"] is None and basis["line"] is not None and x is not None:
        line = float(np.interp(x, column["positions"], basis["line"]))
        rise = basis["line"][-1] - basis["line"][0]
        line += basis["runs_on"] * excess(column, value) * rise
        curve = [math.cos(k * math.acos(x)) for k in range(1, basis["degree"] + 1)]
        values = [line, *curve, *(float(x > step) for step in basis["steps"])]
        values += [float(x == spike) for spike in basis["spikes"]]
        values = [v - c for v, c in zip(values, basis["center"][:known], strict=True)]
    return values + [float(value is None) - basis["center"][-1]] * basis["missing"]


def summed(data, sums, row):
    """Return E[a] and Var[a] of the main effects of one row, of every output."""
    g = [1.0]
    for entry in sums["inputs"]:
        column = data["columns"][entry["column"]]
        values = effect(column, column["effects"][entry["effect"]], row[entry["column"]])
        g += [values[k] for k in entry["functions"]]
    pairs = [
        (1.0 if p == q else 2.0) * g[p] * g[q] for p in range(len(g)) for q in range(p, len(g))
    ]
    means = [sum(a * b for a, b in zip(row, g, strict=True)) for row in sums["mean"]]
    return means, [sum(a * b for a, b in zip(row, pairs, strict=True)) for row in sums["cov"]]


def noise_moments(data, start, X):
    """Return E[g] and Var[g] of every row by name, where the noise varies."""
    if start["noise"] is None:
        return [{}] * len(X)
    both = [summed(data, start["noise"], row) for row in rows_of(X)]
    return [{"g_mean": mean, "g_variance": variance} for (mean,), (variance,) in both]


def copies_of(data, row):
    """Return a row, or its copies with other raw values where it has none."""
    columns = data["columns"]
    missing = [
        j for j, own in enumerate(columns) if own["active"] and own["fills"] and row[j] is None
    ]
    if not missing:
        return [row]
    copies = []
    for q in range(len(columns[missing[0]]["fills"]["values"])):
        copy = list(row)
        for j in missing:
            own, value = columns[j]["fills"], columns[j]["fills"]["values"][q]
            if value != value:
                continue
            if columns[j]["categories"] is not None:
                names = {code: name for name, code in columns[j]["categories"].items()}
                copy[j] = names[int(value)]
                continue
            place = coordinate(columns[j], value)
            known, alone = own["center"] + own["spread"] * (place - own["center"]), place
            for k, slope, center in zip(own["inputs"], own["slopes"], own["centers"], strict=True):
                if row[k] is None:
                    known = None
                    continue
                at = min(max(coordinate(columns[k], row[k]), -1.0), 1.0)
                if known is not None:
                    known += slope * (at - center)
                like = columns[k]["fills"]["values"][q] if columns[k]["fills"] else np.nan
                if like == like:
                    alone += slope * (at - coordinate(columns[k], like))
            x = alone if known is None else known
            held = min(max(x, -1.0), 1.0)
            raw = float(np.interp(held, columns[j]["positions"], columns[j]["knots"]))
            copy[j] = raw if own["inputs"] else value
        copies.append(tuple(copy))
    return copies


def moments(data, start, row):
    """Return E[f] and Var[f] of one row: lists of one entry, or of one for every class."""
    least = start["least"] if isinstance(start["least"], list) else [start["least"]]
    means, variances = [0.0] * len(least), [0.0] * len(least)
    parts = []
    if start["modes"]:
        parts.append(tensor_moments(data, start, row))
    if start["sums"] is not None:
        parts.append(summed(data, start["sums"], row))
    for mean, variance in parts:
        means = [a + b for a, b in zip(means, mean, strict=True)]
        variances = [a + b for a, b in zip(variances, variance, strict=True)]
    variances = [max(v, low) for v, low in zip(variances, least, strict=True)]
    added = widening(data, start, row)
    return means, [v + more for v, more in zip(variances, added, strict=True)]


def tensor_moments(data, start, row):
    """Return E[T] and Var[T] of the tensor."""
    mean = second = None
    for mode in start["modes"]:
        phi, psi = [1.0], [1.0]
        if mode["column"] is not None:
            column = data["columns"][mode["column"]]
            basis = column["bases"][mode["basis"]]
            phi, psi = features(basis, coordinate(column, row[mode["column"]]))
        z, zz = times(phi, mode["mean"]), times(psi, mode["second"])
        if mean is None:
            mean, second = z, zz
        elif start["network"] == "cp":
            mean = [a * b for a, b in zip(mean, z, strict=True)]
            second = [a * b for a, b in zip(second, zz, strict=True)]
        else:
            left, right = mode["shape"]
            counts, width = pair_counts(left), right * (right + 1) // 2
            mean = [sum(mean[a] * z[a * right + b] for a in range(left)) for b in range(right)]
            second = [
                sum(counts[p] * second[p] * zz[p * width + q] for p in range(len(counts)))
                for q in range(width)
            ]
    second = [m * s for m, s in zip(start["multiplicity"], second, strict=True)]
    if start["output"] is None:
        means, seconds = [sum(mean)], [sum(second)]
    else:
        output = start["output"]
        means = [sum(a * b for a, b in zip(mean, w, strict=True)) for w in output["mean"]]
        seconds = [sum(a * b for a, b in zip(second, w, strict=True)) for w in output["second"]]
    return means, [s - m * m for m, s in zip(means, seconds, strict=True)]


def rows_of(X):
    """Return raw rows: numbers, microseconds, text, None where missing."""
    columns = [as_numbers(column).tolist() for column in split_columns(X)[0]]
    clean = [[None if v is None or v != v else v for v in column] for column in columns]
    return list(zip(*clean, strict=True))


@pytest.mark.parametrize("name", MAKERS)
def test_loops_over_plain_data_say_what_the_model_says(name):
    model, X = fitted(name)
    plain = portable(model)
    data = json.loads(json.dumps(listed(plain)))
    actual = np.array(
        [[moments(data, start, row) for row in rows_of(X)] for start in data["restarts"]]
    )  # (S, n, 2, K)
    columns = model.fitted_.encode(X)
    expected = model.fitted_.predict(columns, lambda part, rows: part.moments(rows), 2)
    expected = expected if expected.ndim == 4 else expected[..., None]
    np.testing.assert_allclose(np.moveaxis(actual, 2, 0), expected, rtol=1e-10, atol=1e-10)
    if data["classes"] is not None:
        return
    whole = np.array([len(copies_of(data, row)) == 1 for row in rows_of(X)])
    X, actual = X[whole], actual[:, whole]
    distribution = model.predict_dist(X)
    weights, y = np.array(data["weights"]), (model.predict(X) - data["shift"]) / data["scale"]
    y = np.round(y) if distribution.discrete else y + 0.1
    answers = [
        [
            run(start["likelihood"], dict(zip(("mean", "variance"), two, strict=True), y=at) | g)
            for two, at, g in zip(
                actual[k, ..., 0].tolist(), y.tolist(), noise_moments(data, start, X), strict=True
            )
        ]
        for k, start in enumerate(data["restarts"])
    ]

    def mixed(name):
        parts = np.array([[row[name][0] for row in rows] for rows in answers])
        return weights @ parts, parts

    mean, means = mixed("mean")
    np.testing.assert_allclose(data["shift"] + data["scale"] * mean, distribution.mean, rtol=1e-10)
    spread = mixed("model_variance")[0] + weights @ (means - mean) ** 2
    noise = mixed("noise_variance")[0]
    np.testing.assert_allclose(data["scale"] * np.sqrt(spread), distribution.model_std, rtol=1e-7)
    std = data["scale"] * np.sqrt(spread + noise)
    np.testing.assert_allclose(std, distribution.std, rtol=1e-9)
    at = data["shift"] + data["scale"] * y
    np.testing.assert_allclose(mixed("cdf")[0], distribution.cdf(at), rtol=1e-9)
    density = mixed("pdf")[0] / (1.0 if distribution.discrete else data["scale"])
    np.testing.assert_allclose(density, distribution.pdf(at), rtol=1e-9)
    likelihoods = model.fitted_.likelihoods_at(model.fitted_.encode(X))
    for k, likelihood in enumerate(likelihoods):
        part = likelihood.predictive(*actual[k, ..., 0].T)
        widths = [row["width"][0] for row in answers[k]]
        np.testing.assert_allclose(widths, part.width(), rtol=1e-12)


@pytest.mark.parametrize("structure", ["sums", "tensor", "sums+tensor"])
def test_copies_of_rows_with_missing_values_mix_to_what_the_model_says(structure):
    rng = np.random.default_rng(0)
    z = rng.standard_normal(60)
    X = pd.DataFrame({"a": z + 0.5 * rng.standard_normal(60), "b": z, "c": list("xyz") * 20})
    y = X["a"] * X["b"] + 2.0 * (X["c"] == "x") + 0.1 * rng.standard_normal(60)
    X.loc[:4, "b"] = np.nan
    settings = {**SMALL, "structure": structure, "noise": "constant"}
    model = BTNRegressor(**settings).fit(X, y)
    assert len(model.fitted_.fills.fills[0].inputs)  # a is told from b
    new = pd.DataFrame({"a": [np.nan, 1.0, np.nan], "b": [0.5, 0.2, np.nan], "c": [*"xy", None]})
    new.loc[3] = [0.3, 0.4, None]
    data = json.loads(json.dumps(listed(portable(model))))
    mean, std = model.predict(new, return_std=True)
    noise, weights = model.predict_dist(new).noise_std, np.array(data["weights"])
    for k, row in enumerate(rows_of(new)):
        copies = copies_of(data, row)
        assert len(copies) == (1 if k == 1 else 32)
        both = np.array([[moments(data, s, copy) for copy in copies] for s in data["restarts"]])
        means, variances = both[..., 0, 0], both[..., 1, 0]  # (restarts, copies)
        center = np.mean(weights @ means)
        assert data["shift"] + data["scale"] * center == pytest.approx(mean[k], rel=1e-9)
        variance = data["scale"] ** 2 * np.mean(weights @ (variances + (means - center) ** 2))
        assert variance + noise[k] ** 2 == pytest.approx(std[k] ** 2, rel=1e-9)


def test_what_classes_need_is_there():
    assert portable(fitted("least squares")[0])["threshold"] is not None
    assert portable(fitted("two classes")[0])["classes"] == [False, True]
    kinds = ["two classes", "three classes", "least squares", "gaussian"]
    actual = [portable(fitted(name)[0])["restarts"][0]["likelihood"]["kind"] for name in kinds]
    assert actual == ["bernoulli", "softmax", "density", "density"]


def test_constant_columns_have_no_part():
    X, y = smooth(2)
    frame = pd.DataFrame({"a": X[:, 0], "same": 1.0, "b": X[:, 1]})
    columns = portable(BTNRegressor(**SMALL).fit(frame, y))["columns"]
    assert [column["active"] for column in columns] == [True, False, True]
    assert columns[1]["bases"] == columns[1]["effects"] == []


def test_a_class_without_a_portable_form_is_refused_in_one_sentence():
    X, y = smooth(2)
    model = BTNRegressor(basis=Hinges(), **SMALL).fit(X, y)
    with pytest.raises(TypeError, match=r"^column 'x0': the basis Hinges has no portable form; "):
        portable(model)

    class Own(StudentT):
        pass

    model = BTNRegressor(likelihood=Own(dof=5.0), **SMALL).fit(X, y)
    with pytest.raises(TypeError, match=r"^the likelihood Own has no portable form; define"):
        portable(model)
