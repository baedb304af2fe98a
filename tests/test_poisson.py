"""Poisson counts: the likelihood against quadrature and other libraries, and in every part."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit
from sklearn.linear_model import PoissonRegressor

import btnkm
from btnkm import BTNRegressor
from btnkm.cli.program import main
from btnkm.core.likelihoods.counts import PoissonCounts
from btnkm.explain import effects, summary
from btnkm.io.portable import portable
from btnkm.likelihoods import LIKELIHOODS, Poisson
from btnkm.testing import check_likelihood
from tests.cli_data import QUICK
from tests.test_onnx import check as check_onnx
from tests.test_onnx import told
from tests.test_portable import rows_of
from tests.test_what_if import asked, compare, page  # noqa: F401

HOW = {"n_init": 2, "random_state": 0, "n_jobs": 1}
RNG = np.random.default_rng(0)
TARGETS = {
    "some": (Poisson(), RNG.poisson(3.0, 300)),
    "rare": (Poisson(), RNG.poisson(0.1, 300)),
    "large": (Poisson(), RNG.poisson(500.0, 300)),
    "uneven": (Poisson(), RNG.poisson(np.exp(RNG.normal(0.0, 1.5, 300)))),
    "held": (Poisson(limit=25.0), RNG.poisson(3.0, 300)),
}


def problem(kind, n, seed=0):
    """Return inputs, rates and counts."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    f = {
        "linear": 1.0 + 0.8 * X[:, 0] - 0.5 * X[:, 1],
        "curved": 1.5 + np.sin(3.0 * X[:, 0]) + 0.7 * X[:, 1] * X[:, 2],
        "large": 5.0 + 0.5 * np.sin(3.0 * X[:, 0]) + 0.3 * X[:, 1],
    }[kind]
    return X, np.exp(f), rng.poisson(np.exp(f)).astype(float)


@cache
def fitted(kind="curved", structure="tensor", likelihood="poisson"):
    X, _, y = problem(kind, 800)
    return BTNRegressor(likelihood=likelihood, structure=structure, **HOW).fit(X, y)


def log_score(model, kind):
    X, _, y = problem(kind, 4000, seed=1)
    return model.predict_dist(X).logpdf(y).mean()


@pytest.mark.parametrize("case", TARGETS.values(), ids=TARGETS)
def test_conformance(case):
    check_likelihood(*case)


def test_the_bound_is_the_likelihood_where_f_is_known():
    y = np.array([0.0, 1.0, 4.0, 60.0])
    likelihood = Poisson(limit=200.0, offset=-3.0)
    for f in (-6.0, -0.3, 1.0, 5.0):
        known = np.full(4, f)
        rows = likelihood.rows(y, None, known, known**2)
        rate = 200.0 * expit(f - 3.0)
        assert rows.sums[0] == pytest.approx(stats.poisson(rate).logpmf(y).sum(), rel=1e-12)
        p = rate / 200.0
        slope = (1.0 - p) * (y - rate)
        np.testing.assert_allclose(rows.response - rows.weight * f, slope, atol=1e-10)
        weight, response = likelihood.expected(y, None, known, known**2)
        np.testing.assert_allclose(weight, rate * (1.0 - p) ** 2)
        np.testing.assert_allclose(response - weight * f, slope, atol=1e-10)
        np.testing.assert_array_less(weight, rows.weight)  # the bound is more curved


def test_the_refinement_averages_over_f():
    y, mean, std = np.array([3.0]), np.array([0.4]), 0.6
    likelihood = Poisson(limit=90.0, offset=-2.5)
    weight, response = likelihood.expected(y, None, mean, mean**2 + std**2)
    z, w = np.polynomial.hermite_e.hermegauss(60)
    p = expit(mean - 2.5 + std * z)
    w = w / w.sum()
    assert weight[0] == pytest.approx(w @ (90.0 * p * (1.0 - p) ** 2), rel=1e-6)
    slope = w @ ((1.0 - p) * (3.0 - 90.0 * p))
    assert response[0] - weight[0] * mean[0] == pytest.approx(slope, rel=1e-6)


def test_counts_integrate_over_f():
    d = PoissonCounts(np.array([-2.0]), np.array([0.7]), 80.0)
    z, w = np.polynomial.hermite_e.hermegauss(100)
    rate, w = 80.0 * expit(-2.0 + np.sqrt(0.7) * z), w / w.sum()
    assert d.mean[0] == pytest.approx(w @ rate, rel=1e-10)
    assert d.model_variance[0] == pytest.approx(w @ (rate - w @ rate) ** 2, rel=1e-8)
    assert d.noise_variance[0] == pytest.approx(w @ rate, rel=1e-10)
    for k in (0.0, 3.0, 11.0, 60.0):
        assert d.cdf(np.array([k]))[0] == pytest.approx(w @ stats.poisson(rate).cdf(k), rel=1e-7)
        exact = w @ stats.poisson(rate).pmf(k)
        assert np.exp(d.logpdf(np.array([k]))[0]) == pytest.approx(exact, rel=1e-7)


def test_a_linear_truth_is_found_as_by_poisson_regression():
    X, rate, _ = problem("linear", 4000, seed=1)
    glm = PoissonRegressor(alpha=1e-3, max_iter=1000).fit(*problem("linear", 800)[::2])
    model = fitted("linear", "sums")
    error, of_glm = (np.sqrt(np.mean((np.log(m.predict(X) / rate)) ** 2)) for m in (model, glm))
    assert error < 0.06
    assert of_glm < 0.06
    np.testing.assert_allclose(model.predict(X), glm.predict(X), rtol=0.15)
    X, _, y = problem("linear", 4000, seed=1)
    assert log_score(model, "linear") > stats.poisson(glm.predict(X)).logpmf(y).mean() - 0.003


@pytest.mark.parametrize("kind", ["curved", "large"])
def test_scores_and_intervals_are_better_than_those_of_the_negative_binomial(kind):
    X, rate, y = problem(kind, 4000, seed=1)
    truth = stats.poisson(rate).logpmf(y).mean()
    poisson, other = fitted(kind), fitted(kind, likelihood="negative_binomial")
    assert truth - 0.02 < log_score(poisson, kind) < truth
    assert log_score(poisson, kind) > log_score(other, kind)
    off = []
    for model in (poisson, other):
        d = model.predict_dist(X)
        low, high = d.interval(0.9).T
        expected = np.mean(d.cdf(high) - d.cdf(low - 1.0))  # at least 0.9, since y is a count
        off.append(abs(np.mean((low <= y) & (y <= high)) - expected))
        assert np.all(d.cdf(d.quantile(0.5)) >= 0.5)
    assert off[0] < 0.012 < off[1]


@pytest.mark.parametrize("structure", ["tensor", "sums", "sums+tensor"])
def test_the_elbo_never_falls_within_a_phase(structure):
    for restart in {entry["restart"] for entry in fitted("curved", structure).history_}:
        entries = [e for e in fitted("curved", structure).history_ if e["restart"] == restart]
        exact = np.array([e["elbo"] for e in entries if e["phase"] == "exact"])
        exact = exact[np.isfinite(exact)]
        ranks = [e["rank"] for e in entries if e["phase"] == "exact"]
        kept = np.array([a == b for a, b in zip(ranks, ranks[1:], strict=False)])
        falls = np.diff(exact) < -1e-8 * np.abs(exact[1:])
        assert not np.any(falls & kept)


@pytest.mark.parametrize("more", [{"structure": "full"}, {"network": "tt", "structure": "tensor"}])
def test_other_structures_find_the_rate(more):
    X, _, y = problem("curved", 300)
    model = BTNRegressor(likelihood="poisson", **more, **HOW).fit(X, y)
    new, rate, _ = problem("curved", 1000, seed=1)
    assert np.corrcoef(np.log(model.predict(new)), np.log(rate))[0, 1] > 0.97


def test_weights_count_as_repeated_rows():
    X, _, y = problem("linear", 300)
    times = np.random.default_rng(3).integers(0, 3, 300)
    how = {"likelihood": "poisson", "structure": "sums", **HOW}
    once = BTNRegressor(**how).fit(X, y, sample_weight=times)
    again = BTNRegressor(**how).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert once.lower_bound_ == pytest.approx(again.lower_bound_, rel=1e-3)


def test_draws_have_the_distribution():
    X = problem("curved", 4)[0]
    d, draws = fitted().predict_dist(X), fitted().sample_y(X, 4000, random_state=0)
    assert d.discrete
    np.testing.assert_array_equal(draws, np.round(draws))
    np.testing.assert_allclose(draws.mean(axis=1), d.mean, rtol=0.1)
    np.testing.assert_allclose(d.sample(4000, random_state=0).std(axis=1), d.std, rtol=0.1)


def test_a_file_holds_it(tmp_path):
    X = problem("curved", 40)[0]
    model = fitted()
    model.save(tmp_path / "counts.btn")
    again = btnkm.load(tmp_path / "counts.btn")
    assert again.likelihood_ == model.likelihood_
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))


def test_onnx_says_the_same():
    pytest.importorskip("onnxruntime")
    check_onnx(fitted(), problem("curved", 40)[0])
    X = problem("linear", 40)[0]
    for structure in ("tensor", "sums"):  # a full tensor's variance has lost more digits
        model = fitted("linear", structure)
        mean, std = model.predict(X, return_std=True)
        np.testing.assert_allclose(told(model, X), np.stack([mean, std])[:, :, None], rtol=1e-12)


def test_the_browser_says_the_same(page):  # noqa: F811
    X = problem("curved", 25)[0]
    compare(fitted(), X, asked(page, portable(fitted()), rows_of(X)))


def test_summaries_and_effects_name_it():
    assert f"Poisson (limit {fitted().likelihood_.limit:.3g})" in str(summary(fitted()))
    assert effects(fitted(), [0])[0].unit.startswith("log of the mean of")


def test_the_command_line_knows_it(tmp_path, capsys):
    X, _, y = problem("linear", 120)
    table = np.column_stack([X, y])
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="a,b,c,n", comments="", fmt="%.6g")
    where = str(tmp_path / "t.csv"), "--target", "n", "--likelihood"
    out = "-o", str(tmp_path / "t.btn")
    assert main(["fit", *where, "poisson", *QUICK, *out]) == 0
    assert main(["info", str(tmp_path / "t.btn")]) == 0
    assert "Poisson (limit" in capsys.readouterr().out
    assert main(["fit", *where, "binomial", *out]) == 2
    assert "'poisson'" in capsys.readouterr().err


def test_the_limit_comes_from_the_counts_or_the_user():
    begin = Poisson().begin(np.array([0.0, 4.0, 9.0]), None).likelihood
    assert begin.limit == pytest.approx(62.5)
    assert begin.offset == pytest.approx(logit(13.0 / 3.0 / 62.5))
    assert Poisson(limit=50.0).begin(np.array([0.0, 9.0]), None).likelihood.limit == 50.0
    assert LIKELIHOODS["poisson"] is Poisson
    assert repr(Poisson()) == "Poisson(limit=None)"


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (Poisson(), [1.0, -1.0], "counts .*got -1"),
        (Poisson(), [1.0, 0.5], "counts .*got 0.5"),
        (Poisson(), [0.0, 0.0], "above 0"),
        (Poisson(limit=-1.0), [0.0, 1.0], "limit must be a positive"),
        (Poisson(limit=2.0), [3.0, 4.0], "limit must be above the mean count, 3.5"),
    ],
)
def test_what_is_no_count_is_refused(likelihood, y, message):
    with pytest.raises(ValueError, match=message):
        BTNRegressor(likelihood=likelihood).fit([[0.0], [1.0]], y)


def test_rows_of_another_array_library():
    strict = pytest.importorskip("array_api_strict")
    rng = np.random.default_rng(0)
    y, f, s = rng.integers(0, 5, 9).astype(float), rng.standard_normal(9), rng.random(9)
    likelihood = Poisson(limit=40.0, offset=-1.0)
    given = y, s, f, f**2 + 0.1
    other = tuple(strict.asarray(part) for part in given)
    expected, actual = likelihood.rows(*given), likelihood.rows(*other)
    pairs = [*zip(expected.sums, actual.sums, strict=True)]
    pairs += [(expected.weight, actual.weight), (expected.response, actual.response)]
    pairs += zip(likelihood.expected(*given), likelihood.expected(*other), strict=True)
    pairs += zip(likelihood.newton(*given[:3]), likelihood.newton(*other[:3]), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(np.asarray(b), a, rtol=1e-12)
