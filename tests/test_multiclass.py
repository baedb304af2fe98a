"""More than two classes: outputs of f, the softmax bound, and what a user sees of them."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from sklearn.linear_model import LogisticRegression

from btnkm import BTNClassifier
from btnkm.bases import Chebyshev
from btnkm.core import posterior, rows
from btnkm.core.categories import CategoryFactor
from btnkm.core.gamma import Gamma
from btnkm.core.layout import components
from btnkm.core.likelihoods.base import polya_gamma
from btnkm.core.likelihoods.softmax import Softmax, log_sum_exp, pivot
from btnkm.core.state import Factor
from btnkm.execution.modes import make_mode, output_mode

SMALL = {"n_basis": 8, "max_rank": 6, "n_init": 2, "max_iter": 30, "random_state": 0}
SMALL |= {"structure": "tensor"}


def random_factor(rng, m, rank):
    root = 0.3 * rng.standard_normal((m * rank, m * rank))
    cov = (root @ root.T).reshape(rank, m, rank, m)
    return Factor(rng.standard_normal((m, rank)), cov, 0.0, components(rank))


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_outputs_are_one_more_input_of_stacked_rows(spread):
    """All sums equal those of a table with a row per output and the output as a column."""
    rng = np.random.default_rng(0)
    n, k, rank = 40, 4, 3
    codes = [rng.uniform(-1, 1, n) for _ in range(2)]
    bases = [Chebyshev(5).fit(c) for c in codes]
    modes = [make_mode(b, 1.0) for b in bases] + [output_mode(k)]
    factors = [random_factor(rng, len(m.keep), rank) for m in modes[:2]]
    root = 0.3 * rng.standard_normal((k, rank, rank))
    cov = root @ np.swapaxes(root, 1, 2)
    factors.append(CategoryFactor(rng.standard_normal((k, rank)), cov, 0.0, components(rank)))
    terms = [rows.terms(m, f, spread=spread) for m, f in zip(modes, factors, strict=True)]
    weight, response = rng.uniform(0.1, 1.0, (n, k)), rng.standard_normal((n, k))
    features = [b.features(c) for b, c in zip(bases, codes, strict=True)]
    stacked = [tuple(np.repeat(part, k, axis=0) for part in pair) for pair in features]
    indicator = np.tile(np.eye(k), (n, 1))
    stacked.append((indicator, indicator))

    def product(pairs, which):
        moments = [rows.moments(pairs[d], terms[d]) for d in which]
        return moments[0] if len(moments) == 1 else rows.multiply(*moments)

    for d, other in ((0, 1), (1, 0)):
        asks = rows.output_responses(weight, response, terms[2])
        actual = rows.block_sums(features[d], product(features, [other]), *asks, modes[d], rank)
        outside = product(stacked, [other, 2])
        asks = weight.reshape(-1, 1), response.reshape(-1, 1)
        expected = rows.block_sums(stacked[d], outside, *asks, modes[d], rank)
        for a, b in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    actual = rows.output_sums(product(features, [0, 1]), weight, response)
    expected = rows.block_sums(stacked[2], product(stacked, [0, 1]), *asks, modes[2], rank)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    mean, square = rows.contract(product(features, [0, 1]), components(rank), terms[2])
    whole = rows.multiply(product(stacked, [0, 1]), rows.moments(stacked[2], terms[2]))
    expected_mean, expected_square = rows.contract(whole, components(rank))
    np.testing.assert_allclose(mean.ravel(), expected_mean)
    if spread:
        np.testing.assert_allclose(square.ravel(), expected_square)


def expected_log_probability(k, mean, std, offsets, nodes=24):
    """Return E log softmax(x)_k for independent normal x, by a product rule."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    total = 0.0
    for index in itertools.product(range(nodes), repeat=len(mean)):
        x = offsets + mean + std * z[list(index)]
        total += np.prod(w[list(index)] / w.sum()) * log_softmax(x)[k]
    return total


@pytest.mark.parametrize("std", [1e-4, 0.3, 2.0, 100.0])
@pytest.mark.parametrize("mean", [(0.0, 0.0, 0.0), (3.0, -1.0, 0.5), (-8.0, 0.0, 6.0)])
def test_softmax_bounds_the_expected_log_probability(mean, std):
    mean, offsets = np.array(mean), np.array([0.2, -0.5, 0.1])
    likelihood = Softmax(tuple(offsets))
    square = mean**2 + std**2
    for k in range(3):
        value = likelihood.rows(np.array([float(k)]), None, mean[None], square[None]).sums[0]
        truth = expected_log_probability(k, mean, std, offsets)
        assert value <= truth + 1e-9
        if std < 1e-3:  # where f is known the second bound is exact
            assert value == pytest.approx(truth, abs=1e-6)


@pytest.mark.parametrize("std", [0.1, 1.5])
def test_weights_and_responses_are_the_slopes_of_the_softmax_bound(std):
    rng = np.random.default_rng(1)
    n, k = 30, 4
    likelihood = Softmax(tuple(rng.standard_normal(k)))
    y, s = rng.integers(0, k, n).astype(float), rng.uniform(0.5, 2.0, n)
    mean, variance = 2 * rng.standard_normal((n, k)), np.full((n, k), std**2)

    def value(mean, variance):
        return likelihood.rows(y, s, mean, mean**2 + variance).sums[0]

    actual = likelihood.rows(y, s, mean, mean**2 + variance)
    shift, widening = rng.standard_normal((n, k)), rng.random((n, k))
    step = 1e-5
    slope = (value(mean + step * shift, variance) - value(mean - step * shift, variance)) / step / 2
    assert np.sum((actual.response - actual.weight * mean) * shift) == pytest.approx(
        slope, rel=1e-5
    )
    ends = [value(mean, variance + sign * step * widening) for sign in (1, -1)]
    slope = (ends[0] - ends[1]) / step / 2
    assert -0.5 * np.sum(actual.weight * widening) == pytest.approx(slope, rel=1e-5)


def test_offsets_settle_where_the_shares_are():
    rng = np.random.default_rng(2)
    y = rng.choice(4, 3000, p=[0.7, 0.2, 0.08, 0.02]).astype(float)
    f = np.zeros((3000, 4))
    likelihood = Softmax((0.0,) * 4)
    for _ in range(40):
        sums = likelihood.rows(y, None, f, f).sums
        likelihood = likelihood.learn(sums, 3000.0, Gamma(1.0, 1.0)).propose(sums)
    share = np.exp(log_softmax(likelihood.offsets))
    np.testing.assert_allclose(share, np.bincount(y.astype(int)) / 3000, rtol=1e-6)


@pytest.mark.parametrize("std", [0.1, 10.0, 300.0])
def test_the_pivot_is_the_best(std):
    rng = np.random.default_rng(7)
    x, variance = 20 * rng.standard_normal((50, 10)), np.full((50, 10), std**2)
    a, w, log_cosh = pivot(x, variance, log_sum_exp(x))

    def value(a):
        c = np.sqrt(variance + (x - a) ** 2)
        return a[:, 0] + np.sum(0.5 * (x - a) + np.log(2) + polya_gamma(c)[1], axis=1)

    np.testing.assert_allclose(polya_gamma(np.sqrt(variance + (x - a) ** 2))[0], w)
    for step in (-0.1, 0.1):
        assert np.all(value(a) <= value(a + step) + 1e-9)


def test_a_class_without_weight_is_refused():
    X, y = three_regions(60)
    weights = {"red": 1.0, "green": 0.0, "blue": 2.0}
    with pytest.raises(ValueError, match="positive for every class, got 0.0 for 'green'"):
        BTNClassifier(class_weight=weights).fit(X, y)


def test_integer_weights_are_repeated_rows():
    rng = np.random.default_rng(3)
    mean, y, times = rng.standard_normal((20, 3)), rng.integers(0, 3, 20), rng.integers(1, 4, 20)
    likelihood = Softmax((0.1, 0.0, -0.3))
    once = likelihood.rows(y, times.astype(float), mean, mean**2 + 0.2)
    again = np.repeat(mean, times, axis=0)
    often = likelihood.rows(np.repeat(y, times), None, again, again**2 + 0.2)
    for a, b in zip(once.sums, often.sums, strict=True):
        np.testing.assert_allclose(a, b)


def test_log_sum_exp_does_not_overflow():
    x = np.array([[1e4, 0.0], [-1e4, -1e4]])
    np.testing.assert_allclose(log_sum_exp(x)[:, 0], logsumexp(x, axis=1))


def test_predictive_probabilities_are_the_average_over_f():
    rng = np.random.default_rng(4)
    mean, variance = rng.standard_normal((3, 4)), rng.uniform(0.1, 3.0, (3, 4))
    likelihood = Softmax((0.5, 0.0, -1.0, 0.2))
    draws = mean + np.sqrt(variance) * rng.standard_normal((100_000, 3, 4))
    exact = np.exp(log_softmax(draws + likelihood.offsets, axis=2)).mean(axis=0)
    actual = likelihood.predictive(mean, variance).probabilities.T
    np.testing.assert_allclose(actual, exact, atol=0.01)
    np.testing.assert_allclose(actual.sum(axis=1), 1.0)
    labels = likelihood.draw(np.tile(mean[0], (50_000, 1)), rng)
    p = np.exp(log_softmax(mean[0] + likelihood.offsets))
    np.testing.assert_allclose(np.bincount(labels.astype(int)) / 50_000, p, atol=0.01)


def three_regions(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    scores = np.column_stack([4 * X[:, 0] * X[:, 1], 2 * X[:, 2], np.zeros(n)])
    scores += rng.gumbel(size=scores.shape)
    return X, np.array(["red", "green", "blue"])[np.argmax(scores, axis=1)]


@pytest.fixture(scope="module")
def fitted():
    X, y = three_regions()
    return BTNClassifier(**SMALL).fit(X, y), X, y


def test_what_is_predicted_fits_together(fitted):
    model, X, y = fitted
    assert model.classes_.tolist() == ["blue", "green", "red"]
    p = model.predict_proba(X)
    assert p.shape == (600, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    decision, std = model.decision_function(X, return_std=True)
    assert decision.shape == std.shape == (600, 3)
    np.testing.assert_array_equal(decision.argmax(axis=1), p.argmax(axis=1))
    np.testing.assert_array_equal(decision, model.decision_function(X))
    assert np.all(std > 0)
    interval = model.predict_proba_interval(X, 0.9)
    assert interval.shape == (600, 3, 2)
    assert np.mean((interval[..., 0] < p) & (p < interval[..., 1])) > 0.99
    wider = model.predict_proba_interval(X, 0.99)
    assert np.all(wider[..., 0] <= interval[..., 0])
    assert np.all(wider[..., 1] >= interval[..., 1])
    assert model.score(X, y) > 0.6
    assert model.feature_importances_.shape == (3,)
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert len(model.n_basis_) == 3


def test_what_is_predicted_is_what_draws_of_the_weights_say(fitted):
    model, X, _ = fitted
    some, n_draws = X[:40], 3000
    state = model.posterior_[0]
    reduced = copy.copy(model)
    reduced.posterior_ = (state,)
    rng = np.random.default_rng(0)
    reduced._mode_maps, reduced.weights_ = model._mode_maps[:1], np.ones(1)
    reduced._widenings = model._widenings[:1]
    (_, (features,)), *_ = reduced.fitted_.row_blocks(reduced.fitted_.encode(some))
    draws = posterior.draw_weights(state, n_draws, rng)
    x = np.array(state.likelihood.offsets) + np.array(
        [
            posterior.evaluate(state, [w[i] for w in draws], features.__getitem__)
            for i in range(n_draws)
        ]
    )
    p = np.exp(log_softmax(x, axis=2))
    np.testing.assert_allclose(reduced.predict_proba(some), p.mean(axis=0), atol=0.01)
    _, std = reduced.decision_function(some, return_std=True)
    contrasts = x - x.mean(axis=2, keepdims=True)
    np.testing.assert_allclose(std, contrasts.std(axis=0), rtol=0.1)
    joint = replace(posterior.Predictor.of(state), least=0.0).joint(features.__getitem__)
    mean, variance = reduced._moments(some)[:, 0]
    np.testing.assert_allclose(joint.mean, mean)
    np.testing.assert_allclose(joint.diagonal + np.sum(joint.root**2, axis=2), variance, rtol=1e-8)
    width = np.diff(reduced.predict_proba_interval(some, 0.9))[..., 0]
    drawn = np.diff(np.quantile(p, [0.05, 0.95], axis=0), axis=0)[0]
    assert width.mean() == pytest.approx(drawn.mean(), rel=0.07)


def test_the_bound_never_falls(fitted):
    bounds = fitted[0].lower_bounds_
    assert np.all(np.diff(bounds) >= -1e-8 * np.abs(bounds[1:]))
    assert bounds[-1] > bounds[0]


def test_probabilities_are_near_the_truth():
    X, y = three_regions(4000)
    rng = np.random.default_rng(9)
    Z = rng.uniform(-1, 1, (2000, 3))
    truth = np.exp(
        log_softmax(np.column_stack([np.zeros(2000), 2 * Z[:, 2], 4 * Z[:, 0] * Z[:, 1]]), axis=1)
    )
    p = BTNClassifier(**SMALL).fit(X, y).predict_proba(Z)
    assert np.sqrt(np.mean((p - truth) ** 2)) < 0.04


def test_one_linear_input_agrees_with_logistic_regression():
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (3000, 1))
    scores = np.column_stack([1.5 * x[:, 0], -x[:, 0] + 0.5, np.zeros(3000)])
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    reference = LogisticRegression(C=1e6).fit(x, y).predict_proba(x)
    model = BTNClassifier(n_basis=2, basis="chebyshev", max_iter=200, tol=0, random_state=0)
    np.testing.assert_allclose(model.fit(x, y).predict_proba(x), reference, atol=0.02)


def test_weights_missing_values_text_and_blocks():
    pd = pytest.importorskip("pandas")
    X, y = three_regions(500)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = np.where(X[:, 2] > 0, "high", "low")
    frame.loc[::9, "c"] = np.nan
    weight = np.random.default_rng(0).integers(1, 3, 500).astype(float)
    model = BTNClassifier(**SMALL).fit(frame, y, sample_weight=weight)
    assert model.score(frame, y) > 0.55
    low = BTNClassifier(**SMALL, memory_limit=0.02).fit(frame, y, sample_weight=weight)
    np.testing.assert_allclose(low.lower_bound_, model.lower_bound_, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:no input was found")  # there is nothing to find
def test_balanced_classes_weigh_the_same():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((600, 2))
    y = rng.choice(3, 600, p=[0.8, 0.15, 0.05])
    p = BTNClassifier(class_weight="balanced", **SMALL).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(p.mean(axis=0), 1 / 3, atol=0.08)


def test_a_class_with_one_row():
    X, y = three_regions(200)
    y = y.astype(object)
    y[0] = "odd"
    p = BTNClassifier(**SMALL).fit(X, y.astype(str)).predict_proba(X)
    assert np.all(np.isfinite(p))
    assert p[:, 2].mean() < 0.05
