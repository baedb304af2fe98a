"""Positive numbers with a gamma distribution: against quadrature and a GLM, and in every part."""

from __future__ import annotations

import tracemalloc
from functools import cache

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import integrate, special, stats

import btnkm
from btnkm import BTNRegressor, explain
from btnkm.cli.program import main
from btnkm.core.likelihoods.gamma_mean import GammaDensity
from btnkm.io.portable import portable
from btnkm.likelihoods import GammaLikelihood
from btnkm.testing import check_likelihood
from tests.test_onnx import check as check_onnx
from tests.test_portable import rows_of
from tests.test_sums_exports import asked

HOW = {"n_init": 1, "random_state": 0, "n_jobs": 1, "max_rank": 3, "n_basis": 5, "max_iter": 40}
RNG = np.random.default_rng(0)
TARGETS = {
    "skewed": (GammaLikelihood(), RNG.gamma(0.5, 3.0, 150)),
    "held": (GammaLikelihood(shape=2.0, least=1e-3), RNG.gamma(9.0, 1.0, 150)),
}


def problem(n=400, seed=0, shape=3.0):
    """Return inputs, means and numbers."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    mean = np.exp(0.8 * X[:, 0] - 0.5 * X[:, 1])
    return X, mean, mean * rng.gamma(shape, 1.0 / shape, n)


@cache
def fitted(structure="sums", likelihood="gamma"):
    X, _, y = problem(120 if structure == "full" else 400)
    return BTNRegressor(likelihood=likelihood, structure=structure, **HOW).fit(X, y)


@pytest.mark.parametrize("name", TARGETS)
def test_it_keeps_the_contract(name):
    check_likelihood(*TARGETS[name])


def averaged(function, location, variance, least):
    """Return E function(mean), mean = least (1 + exp(x)), x ~ N(location, variance)."""
    normal = stats.norm(location, np.sqrt(variance))

    def integrand(x):
        return function(least * (1.0 + np.exp(x))) * normal.pdf(x)

    ends = normal.ppf([1e-14, 1.0 - 1e-14])
    return integrate.quad(integrand, *ends, points=[location], limit=200)[0]


@pytest.mark.parametrize("shape", [0.4, 7.0])
@pytest.mark.parametrize("where", [(-1.0, 0.3, 0.2), (2.0, 0.02, 0.2), (1.0, 1.5, 0.2)])
def test_the_distribution_is_that_of_quadrature(shape, where):
    location, variance, least = where
    ours = GammaDensity(np.array([location]), np.array([variance]), shape, least)

    def given(mean):
        return stats.gamma(shape, scale=mean / shape)

    mean = averaged(lambda m: m, *where)
    expected = {
        "mean": mean,
        "model_variance": averaged(lambda m: (m - mean) ** 2, *where),
        "noise_variance": averaged(lambda m: m**2 / shape, *where),
    }
    for name, value in expected.items():
        assert getattr(ours, name)[0] == pytest.approx(value)
    pdf, cdf = (averaged(lambda m, f=f: getattr(given(m), f)(1.3), *where) for f in ("pdf", "cdf"))
    assert np.exp(ours.logpdf(1.3))[0] == pytest.approx(pdf)
    assert ours.cdf(1.3)[0] == pytest.approx(cdf)
    for y in (0.0, -1.0):
        assert np.exp(ours.logpdf(y))[0] == ours.cdf(y)[0] == 0.0


def test_predictions_are_those_of_a_generalised_linear_model():
    X, _, y = problem()
    family = sm.families.Gamma(sm.families.links.Log())
    glm = sm.GLM(y, sm.add_constant(X), family=family).fit()
    model = fitted()
    Z, truth, z = problem(1500, seed=1)
    apart = np.log(model.predict(Z) / glm.predict(sm.add_constant(Z)))
    assert np.mean(np.abs(apart)) < 0.03
    assert model.likelihood_.shape == pytest.approx(1.0 / glm.scale, rel=0.15)
    distribution = model.predict_dist(Z)
    low, high = distribution.interval(0.9).T
    inside, order = (low <= z) & (z <= high), np.argsort(truth)
    for part in np.array_split(order, 3):
        assert np.mean(inside[part]) == pytest.approx(0.9, abs=0.05)
    assert np.all(low > 0.0)
    theirs = stats.gamma(1.0 / glm.scale, scale=glm.predict(sm.add_constant(Z)) * glm.scale)
    assert distribution.logpdf(z).mean() > theirs.logpdf(z).mean() - 0.01


def test_the_shape_is_right_where_the_bound_is_loose():
    X, mean, _ = problem(600)
    mean = mean**4
    y = mean * np.random.default_rng(2).gamma(10.0, 0.1, len(mean))
    model = BTNRegressor(likelihood="gamma", structure="sums", **HOW).fit(X, y)
    assert np.quantile(mean, 0.99) / model.likelihood_.least > 1000.0
    assert model.likelihood_.shape == pytest.approx(10.0, rel=0.2)


@pytest.mark.parametrize("structure", ["sums", "tensor", "full"])
def test_the_bound_of_a_fit_never_falls(structure):
    model = fitted(structure)
    bounds = model.lower_bounds_
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:]))
    X, truth, _ = problem(500, seed=1)
    assert np.mean(np.abs(np.log(model.predict(X) / truth))) < (
        0.25 if structure == "full" else 0.12
    )


def test_units_of_y_do_not_matter():
    X, _, y = problem()
    other = BTNRegressor(likelihood="gamma", structure="sums", **HOW).fit(X, 1e6 * y)
    np.testing.assert_allclose(other.predict(X), 1e6 * fitted().predict(X), rtol=1e-6)


def test_parameters_that_are_given_stay():
    model = fitted("sums", GammaLikelihood(shape=2.0, least=0.01))
    assert (model.likelihood_.shape, model.likelihood_.least) == (2.0, 0.01)
    assert repr(model.likelihood_) == "GammaLikelihood(shape=2.0, least=0.01)"


@pytest.mark.parametrize(
    ("likelihood", "wrong", "sentence"),
    [
        ("gamma", 0.0, "y must be above 0 for gamma, got 0; use 'gaussian'"),
        ("gamma", -3.0, "y must be above 0 for gamma, got -3; use 'gaussian'"),
        (GammaLikelihood(shape=-1.0), 1.0, "shape must be a positive finite number, got -1"),
        (GammaLikelihood(least=0.0), 1.0, "least must be a positive finite number, got 0"),
        (GammaLikelihood(least=1e9), 1.0, "least must be below the mean of y"),
    ],
)
def test_what_does_not_suit_is_refused(likelihood, wrong, sentence):
    X, _, y = problem(30)
    y[3] = wrong
    with pytest.raises(ValueError, match="^" + sentence):
        BTNRegressor(likelihood=likelihood, structure="sums", **HOW).fit(X, y)


@pytest.mark.parametrize("structure", ["sums", "tensor"])
def test_files_graphs_and_pages_say_what_the_model_says(structure, tmp_path):
    model, X = fitted(structure), problem(20, seed=1)[0]
    model.save(tmp_path / "m.btn")
    read = btnkm.load(tmp_path / "m.btn")
    np.testing.assert_array_equal(read.predict(X), model.predict(X))
    check_onnx(model, X)
    told, distribution = asked(portable(model), rows_of(X)), model.predict_dist(X)
    interval = distribution.interval()
    expected = {"mean": distribution.mean, "interval": interval}
    expected["pdf"] = distribution.pdf(interval[:, 0])
    for name, values in expected.items():
        np.testing.assert_allclose([row[name] for row in told], values, rtol=1e-7)


def test_explanations_and_reports_name_the_mean(tmp_path):
    model = fitted()
    assert explain.effects(model, [0])[0].unit == "log of the mean of y"
    assert "gamma (shape" in str(explain.summary(model))
    text = model.report(tmp_path / "m.html").read_text(encoding="utf-8")
    assert "a difference of 0.7 doubles the expected y" in text
    X, _, y = problem()
    draws = model.sample_y(X[:5], 4000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), model.predict(X[:5]), rtol=0.06)


def test_streams_go_on():
    X, truth, y = problem(300)
    model = BTNRegressor(likelihood="gamma", structure="sums", **HOW)
    for rows in (slice(0, 150), slice(150, 200), slice(200, 300)):
        model.partial_fit(X[rows], y[rows])
    assert np.mean(np.abs(np.log(model.predict(X) / truth))) < 0.1
    with pytest.raises(ValueError, match="^y must be above 0 for gamma, got 0"):
        model.partial_fit(X[:3], np.zeros(3))


def test_the_program_fits(tmp_path, capsys):
    X, _, y = problem(60)
    rows = np.column_stack([X, y])
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",", header="a,b,c,y", comments="")
    names = [str(tmp_path / name) for name in ("t.csv", "m.btn")]
    how = ["--likelihood", "gamma", "--set", "structure=sums", "--jobs", "1", "--n-init", "1"]
    assert main(["fit", names[0], "--target", "y", *how, "-o", names[1]]) == 0
    capsys.readouterr()
    assert main(["info", names[1]]) == 0
    assert "gamma (shape" in capsys.readouterr().out


def test_log_densities_need_no_memory_for_every_node():
    n = 20_000
    density = GammaDensity(np.zeros(n), np.full(n, 4.0), 100.0, 1.0)
    assert len(density._grid[0]) > 100
    tracemalloc.start()
    logs = density.logpdf(np.linspace(0.1, 9.0, n))
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 20 * n * 8  # arrays of one number for each row
    parts = [np.log(weight) + 100.0 * (np.log(r) - r) for r, weight in density._ratios(9.0)]
    constant = 100.0 * np.log(100.0) - special.gammaln(100.0) - np.log(9.0)
    np.testing.assert_allclose(logs[-1], constant + special.logsumexp(parts, axis=0)[-1])
