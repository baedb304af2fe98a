"""The full tensor: kernel, evidence, posterior and functionals against brute force and others."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.linear_model import Ridge

from btnkm.core.evidence import Evidence, Pairs, Parts, Theta
from btnkm.core.full import (
    FullPosterior,
    Kernel,
    correlation,
    correlation_and_slopes,
    decays,
)
from btnkm.core.full_fit import FullFit
from btnkm.core.full_functionals import FullAverages, Functional, Variances
from btnkm.core.full_sites import Observations
from btnkm.core.gamma import Gamma
from btnkm.core.likelihoods import Bernoulli, Gaussian, NegativeBinomial, StudentT
from btnkm.core.likelihoods.softmax import Softmax

PRIOR = Gamma(1e-6, 1e-6)
N, D = 30, 4


def coordinates(n: int = N, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return two numbers, a number with missing values, and a category."""
    rng = np.random.default_rng(seed)
    result = []
    for d in range(D):
        u, known = rng.standard_normal(n), np.ones(n)
        line = u.copy()
        if d == 2:
            known[rng.random(n) < 0.3] = 0.0
            u, line = u * known, line * known
        if d == 3:
            u, line = rng.integers(0, 3, n).astype(float), np.zeros(n)
        result.append(np.column_stack([line, u, known]))
    return tuple(result)


PARTS = Parts(
    categorical=np.array([False, False, False, True]),
    line=np.arange(3),
    curve=np.arange(4),
    missing=np.array([2]),
    factor=np.arange(4),
)


def kernel_of(seed: int = 0) -> Kernel:
    theta = Theta(PARTS, learns_noise=False)
    rng = np.random.default_rng(seed)
    return theta.kernel(0.3 * rng.standard_normal(len(theta.begin())))


def posterior_of(outputs: int | None = None) -> FullPosterior:
    rng = np.random.default_rng(1)
    k = outputs or 1
    share = rng.uniform(0.5, 1.5, N)
    return FullPosterior(
        kernel=kernel_of(),
        rows=coordinates(),
        share=share / share.sum(),
        target=rng.standard_normal((k, N)),
        noise=rng.uniform(0.1, 0.5, (k, N)),
        likelihood=Gaussian(),
        n_outputs=outputs,
        theta=np.zeros(1),
        evidence=0.0,
    )


def test_slopes_of_the_evidence():
    rng = np.random.default_rng(0)
    theta = Theta(PARTS, learns_noise=True)
    pairs = Pairs(coordinates(), PARTS)
    noise = rng.uniform(0.5, 1.5, (N, 2))
    evidence = Evidence(pairs, theta, rng.standard_normal((N, 2)), noise, repeats=3.0)
    at = theta.begin() + 0.3 * rng.standard_normal(len(theta.begin()))
    step = 1e-5
    numeric = [
        (evidence(at + step * item)[0] - evidence(at - step * item)[0]) / (2.0 * step)
        for item in np.eye(len(at))
    ]
    slopes = evidence(at)[1]
    np.testing.assert_allclose(slopes, numeric, rtol=1e-5, atol=2e-4)
    rough = slopes[theta.places["rough"]]  # of numbers alone
    assert rough.shape == (3,)
    assert np.all(np.abs(rough) > 1e-2)


def test_blocks_of_pairs_add_up(monkeypatch):
    rng = np.random.default_rng(0)
    theta = Theta(PARTS, learns_noise=True)
    target, noise = rng.standard_normal((60, 1)), np.ones((60, 1))
    evidence = Evidence(Pairs(coordinates(60), PARTS), theta, target, noise)
    value, slopes = evidence(theta.begin())
    monkeypatch.setattr(Pairs, "blocks", [slice(k, k + 100) for k in range(0, 1770, 100)])
    again, slopes_again = evidence(theta.begin())
    assert value == pytest.approx(again, rel=1e-12)
    np.testing.assert_allclose(slopes, slopes_again, rtol=1e-9, atol=1e-9)


def test_a_correlation_is_the_weighted_sum_of_a_smooth_and_a_rough_one():
    x, z, length, rough = np.linspace(-2.0, 2.0, 9)[:, None], np.array([[0.3]]), 0.7, 0.2

    def kappa(log_length, rough):
        r = np.sqrt(3.0) * np.abs(x - z) * np.exp(-log_length)
        return correlation_and_slopes(r, rough, decays(r))

    at, step = np.log(length), 1e-6
    value, by_length, by_rough = kappa(at, rough)
    r = np.sqrt(3.0) * np.abs(x - z) / length
    np.testing.assert_allclose(value, correlation(r, rough, decays(r)), rtol=1e-12)
    both = RBF(length)(x, z), Matern(length, nu=1.5)(x, z)
    for share in (0.0, rough, 1.0):
        wanted = (1.0 - share) * both[0] + share * both[1]
        np.testing.assert_allclose(kappa(at, share)[0], wanted, rtol=1e-12)
    up, down = kappa(at + step, rough)[0], kappa(at - step, rough)[0]
    np.testing.assert_allclose(by_length, (up - down) / (2.0 * step), rtol=1e-6, atol=1e-9)
    up, down = kappa(at, rough + step)[0], kappa(at, rough - step)[0]
    np.testing.assert_allclose(by_rough, (up - down) / (2.0 * step), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("log_odds", "other"), [(-40.0, RBF), (40.0, Matern)])
def test_equals_a_gaussian_process_of_scikit_learn(log_odds, other):
    """One input, a curve alone: the kernels are the same, and so is all that follows."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(25)
    y = np.sin(2.0 * x) + 0.1 * rng.standard_normal(25)
    none, first = np.array([], dtype=int), np.array([0])
    parts = Parts(np.array([False]), none, first, none, none)
    layout = Theta(parts, learns_noise=True)
    rows = Observations((np.column_stack([x, x, np.ones(25)]),), y, np.ones(25))
    at = dict(constant=-30.0, noise=np.log(0.02), curve=np.log(0.7), curve_length=np.log(0.6))
    at["rough"] = log_odds
    theta = np.zeros(len(layout.begin()))
    for name, value in at.items():
        theta[layout.places[name]] = value
    kernel = ConstantKernel(0.7) * other(length_scale=0.6)
    machine = GaussianProcessRegressor(kernel, alpha=0.02, optimizer=None).fit(x[:, None], y)
    fit = FullFit(parts, Gaussian(), None, PRIOR)
    state = fit._posterior(rows, theta, fit._maximise(rows, theta, 0)[1])
    new = np.linspace(-2.0, 2.0, 9)
    features = [(np.column_stack([new, new, np.ones(9)]), None)]
    mean, variance = state.predictor.moments(features.__getitem__)
    wanted, std = machine.predict(new[:, None], return_std=True)
    np.testing.assert_allclose(mean, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.sqrt(variance), std, rtol=1e-5)
    evidence = Evidence(Pairs(rows.x, parts), layout, y[:, None], np.ones((25, 1)))
    value, slopes = evidence(theta)
    prior, prior_slopes = layout.prior(theta)
    theirs, gradient = machine.log_marginal_likelihood(machine.kernel_.theta, eval_gradient=True)
    assert -value - prior == pytest.approx(theirs + 0.5 * 25 * np.log(2.0 * np.pi), abs=1e-5)
    gradients = -slopes - prior_slopes
    for k, name in enumerate(("curve", "curve_length")):
        assert gradients[layout.places[name]][0] == pytest.approx(gradient[k], rel=1e-4)


def test_straight_lines_alone_are_ridge_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(40)
    none, every = np.array([], dtype=int), np.arange(3)
    parts = Parts(np.zeros(3, dtype=bool), every, none, none, none)
    layout = Theta(parts, learns_noise=True)
    theta = np.zeros(len(layout.begin()))
    theta[layout.places["constant"]] = -30.0
    rows = Observations(tuple(np.column_stack([v, v, np.ones(40)]) for v in X.T), y, np.ones(40))
    fit = FullFit(parts, Gaussian(), None, PRIOR)
    state = fit._posterior(rows, theta, fit._maximise(rows, theta, 0)[1])
    new = rng.standard_normal((5, 3))
    features = [(np.column_stack([v, v, np.ones(5)]), None) for v in new.T]
    machine = Ridge(alpha=1.0, fit_intercept=False).fit(X, y)
    mean, variance = state.predictor.moments(features.__getitem__)
    np.testing.assert_allclose(mean, machine.predict(new), atol=1e-6)
    covariance = np.linalg.inv(X.T @ X + np.eye(3))
    np.testing.assert_allclose(variance, np.sum((new @ covariance) * new, axis=1), rtol=1e-4)


@pytest.mark.parametrize("n_inputs", [2, 3])
def test_is_the_full_tensor_of_a_finite_basis(n_inputs):
    """Categories have as many functions as there are: all weights of their tensor, at full rank."""
    rng = np.random.default_rng(0)
    sizes, n = [2, 3, 4][:n_inputs], 25
    codes = np.array([rng.integers(0, size, n) for size in sizes])
    none, every = np.array([], dtype=int), np.arange(n_inputs)
    parts = Parts(np.ones(n_inputs, dtype=bool), none, none, none, every)
    layout = Theta(parts, learns_noise=True)
    theta = np.zeros(len(layout.begin()))
    theta[layout.places["constant"]] = -30.0
    b = np.exp(theta[layout.places["factor"]])
    x = tuple(np.column_stack([np.zeros(n), c, np.ones(n)]) for c in codes)
    rows = Observations(x, rng.standard_normal(n), np.ones(n))
    fit = FullFit(parts, Gaussian(), None, PRIOR)
    state = fit._posterior(rows, theta, fit._maximise(rows, theta, 0)[1])
    # functions of one category: a constant, and an indicator of each
    design = np.ones((n, 1))
    for size, c, entry in zip(sizes, codes, b, strict=True):
        phi = np.column_stack([np.ones(n), np.sqrt(entry) * np.eye(size)[c]]) / np.sqrt(1.0 + entry)
        design = np.einsum("ni,nj->nij", design, phi).reshape(n, -1)
    covariance = np.linalg.inv(design.T @ design + np.eye(design.shape[1]))
    features = [(part, None) for part in x]
    mean, variance = state.predictor.moments(features.__getitem__)
    np.testing.assert_allclose(mean, design @ covariance @ design.T @ rows.y, atol=1e-6)
    spread = np.sum((design @ covariance) * design, axis=1)
    np.testing.assert_allclose(variance, spread, rtol=1e-4)


def test_the_order_of_rows_does_not_matter():
    state = posterior_of()
    order = np.random.default_rng(0).permutation(N)
    other = replace(
        state,
        rows=tuple(part[order] for part in state.rows),
        target=state.target[:, order],
        noise=state.noise[:, order],
    )
    features = [(part[:5], None) for part in coordinates(seed=3)]
    for a, b in zip(
        state.predictor.moments(features.__getitem__),
        other.predictor.moments(features.__getitem__),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-8)


def test_a_row_of_weight_two_is_two_rows():
    rng = np.random.default_rng(0)
    x, y = coordinates(12), rng.standard_normal(12)
    weight = np.ones(12)
    weight[:4] = 2.0
    twice = np.append(np.arange(12), np.arange(4))
    layout = Theta(PARTS, learns_noise=True)
    theta = layout.begin()
    values = []
    for rows in (Observations(x, y, weight), Observations(x, y, np.ones(12)).take(twice)):
        fit = FullFit(PARTS, Gaussian(), None, PRIOR)
        _, sites, _ = fit._maximise(rows, theta, 0)
        evidence = Evidence(Pairs(rows.x, PARTS), layout, sites.target, sites.noise, sites.repeats)
        values.append(evidence(theta))
    # but for what does not depend on hyperparameters, and jitter
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("likelihood", "outputs"),
    [(StudentT(), None), (Bernoulli(), None), (NegativeBinomial(), None), (Softmax(), 3)],
)
def test_every_likelihood(likelihood, outputs):
    """What rows say and what is known of f agree: f is at its best for every likelihood."""
    rng = np.random.default_rng(0)
    x = coordinates(80)
    f = 2.0 * np.sin(x[0][:, 1]) + x[1][:, 1]
    y = {
        "StudentT": f + 0.1 * rng.standard_t(3, 80),
        "Bernoulli": (rng.random(80) < 1.0 / (1.0 + np.exp(-2.0 * f))).astype(float),
        "NegativeBinomial": rng.poisson(np.exp(0.5 * f)).astype(float),
        "Softmax": np.digitize(f, [-1.0, 1.0]).astype(float),
    }[type(likelihood).__name__]
    begun = likelihood.begin(y, None)
    fit = FullFit(PARTS, begun.likelihood, outputs, PRIOR)
    state, *_ = fit.run(Observations(x, begun.target, np.ones(80)), rng)
    features = [(part, None) for part in x]
    mean, variance = state.predictor.moments(features.__getitem__)
    logs = state.likelihood.predictive(mean, variance).logpdf(begun.target)
    nothing = 0.0 * mean
    worse = begun.likelihood.predictive(nothing, nothing + 1e-6).logpdf(begun.target)
    assert np.mean(logs) > np.mean(worse) + 0.2
    if outputs is None:
        assert np.corrcoef(mean, f)[0, 1] > 0.8


def test_draws_have_the_moments_of_the_posterior():
    state = posterior_of()
    rng = np.random.default_rng(0)
    features = [(part[:6], None) for part in coordinates(seed=5)]
    mean, variance = state.predictor.moments(features.__getitem__)
    drawn = state.draw(4000, rng)[:, 0]
    f = state.predictor.evaluate(drawn, features.__getitem__, rng.standard_normal((6, 4000))).T
    np.testing.assert_allclose(f.mean(axis=0), mean, atol=5.0 * np.sqrt(variance.max() / 4000))
    np.testing.assert_allclose(f.var(axis=0), variance, rtol=0.12)


def every_row(state: FullPosterior) -> tuple[list[np.ndarray], np.ndarray]:
    """Return all combinations of some rows' inputs, and their shares: few rows, by brute force."""
    n = len(state.share)
    index = np.array(np.meshgrid(*[np.arange(n)] * D, indexing="ij")).reshape(D, -1)
    share = np.prod([state.share[item] for item in index], axis=0)
    return [state.rows[d][index[d]] for d in range(D)], share


def small(outputs: int | None = None) -> FullPosterior:
    state = posterior_of(outputs)
    return replace(
        state,
        rows=tuple(part[:5] for part in state.rows),
        share=state.share[:5] / state.share[:5].sum(),
        target=state.target[:, :5],
        noise=state.noise[:, :5],
    )


def covariance_of(state: FullPosterior, x: list[np.ndarray], k: int = 0) -> np.ndarray:
    cross = state.kernel.cross(x, state.rows)
    return state.kernel.cross(x, x) - cross @ state.inverse[k] @ cross.T


def check(state: FullPosterior, actual: Functional, operator: np.ndarray, x: list[np.ndarray]):
    """Compare functionals with the rows of an operator on f at x."""
    first, second = FullAverages(state).moments(actual)
    mean = state.kernel.cross(x, state.rows) @ state.alpha[0]
    np.testing.assert_allclose(first, operator @ mean, atol=1e-8)
    variance = np.sum((operator @ covariance_of(state, x)) * operator, axis=1)
    np.testing.assert_allclose(second - first**2, variance, atol=1e-7)


def averager(state: FullPosterior, keep: tuple[int, ...]) -> np.ndarray:
    """Return averages over all inputs but some, which are at those of every combination."""
    n = len(state.share)
    operator = np.ones((1, 1))
    for d in range(D):
        indicator = np.eye(n) if d in keep else np.tile(state.share, (n, 1))
        operator = np.kron(operator, indicator)
    return operator


def test_effects_and_interactions_by_brute_force():
    state = small()
    x, _ = every_row(state)
    averages = FullAverages(state)
    some = np.arange(0, len(x[0]), 7)
    base = averager(state, ())
    check(state, averages.base(), base[:1], x)
    for d in range(D):
        effect = averager(state, (d,)) - base
        check(state, averages.effect(d, x[d][some]), effect[some], x)
    for d, e in [(0, 1), (1, 3), (2, 0)]:
        both = averager(state, (d, e)) - averager(state, (d,)) - averager(state, (e,)) + base
        check(state, averages.together((d, e), (x[d][some], x[e][some])), both[some], x)


def test_contributions_are_shapley_values():
    state = small()
    x, _ = every_row(state)
    some = np.array([0, 123, 311, 600])
    orders = list(permutations(range(D)))
    nodes, weights = np.polynomial.legendre.leggauss(4)
    actual = FullAverages(state).contributions(
        [part[some] for part in x], 0.5 * (nodes + 1.0), 0.5 * weights
    )
    for d in range(D):
        operator = 0.0
        for order in orders:
            before = order[: order.index(d)]
            operator = operator + averager(state, (*before, d)) - averager(state, before)
        check(state, actual[d], operator[some] / len(orders), x)


@pytest.mark.parametrize("outputs", [None, 3])
def test_variances_over_inputs_by_brute_force(outputs):
    state = small(outputs)
    x, share = every_row(state)
    variances = Variances(FullAverages(state), points=1000)
    total, firsts, totals = variances.decomposed()
    n, k = len(x[0]), len(state.alpha)
    base = averager(state, ())
    cross = state.kernel.cross(x, state.rows)

    def expected(operator: np.ndarray) -> float:
        """Return E of the mean square over rows of an operator on f, all outputs together."""
        means = state.alpha @ (operator @ cross).T
        spreads = []
        for i in range(k):
            covariance = covariance_of(state, x, i)
            spreads.append(np.sum((operator @ covariance) * operator, axis=1))
        if k > 1:
            means = means - means.mean(axis=0)
            spreads = [np.sum(spreads, axis=0) * (1.0 - 1.0 / k)]
        return float(np.sum((means**2) @ share) + np.sum(np.array(spreads) @ share))

    assert variances.expected(total) == pytest.approx(expected(np.eye(n) - base), rel=1e-6)
    for d in range(D):
        alone = averager(state, (d,)) - base
        others = np.eye(n) - averager(state, tuple(e for e in range(D) if e != d))
        assert variances.expected(firsts[d]) == pytest.approx(expected(alone), rel=1e-6)
        assert variances.expected(totals[d]) == pytest.approx(expected(others), rel=1e-6)
    both = averager(state, (0, 3)) - averager(state, (0,)) - averager(state, (3,)) + base
    assert variances.expected(variances.pairs()[0, 3]) == pytest.approx(expected(both), rel=1e-6)


def test_hyperparameters_may_be_kept():
    rng = np.random.default_rng(0)
    rows = Observations(coordinates(60), rng.standard_normal(60), np.ones(60))
    first, *_ = FullFit(PARTS, Gaussian(), None, PRIOR).run(rows.take(np.arange(40)), rng)
    fit = FullFit(PARTS, Gaussian(), None, PRIOR)
    again, *_ = fit.run(
        Observations(coordinates(300), rng.standard_normal(300), np.ones(300)), rng, first, 0
    )
    np.testing.assert_array_equal(again.theta, first.theta)
    np.testing.assert_array_equal(again.kernel.rough, first.kernel.rough)


def test_draws_are_functions():
    """Observations that are the same have the same f in every draw."""
    state = posterior_of()
    rng = np.random.default_rng(0)
    features = [(np.repeat(part[:2], 2, axis=0), None) for part in coordinates(seed=5)]
    drawn = state.draw(20, rng)[:, 0]
    f = state.predictor.evaluate(drawn, features.__getitem__, rng.standard_normal((4, 20)))
    np.testing.assert_allclose(f[0], f[1], atol=1e-2)
    np.testing.assert_allclose(f[2], f[3], atol=1e-2)
    assert np.std(f[0] - f[2]) > 0.1
