"""The predictive distribution: density, distribution function, quantiles and draws agree."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from btnkm import BTNRegressor, PredictiveDistribution
from btnkm.core.densities import Student, noise_variance

LEVELS = [1e-6, 0.001, 0.025, 0.25, 0.5, 0.7, 0.975, 0.999, 1 - 1e-6]


def mixture(means, scales, dof):
    """Return a distribution at one point whose starts have the given Student-t parts."""
    scales, dof = np.asarray(scales, float), np.asarray(dof, float)
    total = scales**2 * dof / np.maximum(dof - 2.0, 0.5 * dof)
    parts = zip(np.asarray(means, float), total, dof, strict=True)
    return PredictiveDistribution(
        [Student(np.array([m]), np.array([0.25 * t]), 0.75 * t, nu) for m, t, nu in parts]
    )


def parts_of(means, scales, dof):
    return [stats.t(v, loc=m, scale=s) for m, s, v in zip(means, scales, dof, strict=True)]


ODD = {
    "one": ([0.3], [2.0], [7.0]),
    "alike": ([0.0, 0.1, -0.1], [1.0, 1.1, 0.9], [30.0, 30.0, 30.0]),
    "scales": ([0.0, 0.0], [1e-9, 1e3], [50.0, 50.0]),
    "far apart": ([-1e6, 1e6, 3.0], [1e-3, 1e-3, 1e-3], [400.0, 400.0, 400.0]),
    "both": ([-1e6, 0.0, 1e-4, 1e6], [1.0, 1e-7, 1e-7, 1e4], [5.0, 900.0, 3.0, 1e5]),
    "heavy": ([0.0, 5.0], [1.0, 1e-3], [1.0, 1.5]),
    "shifted": ([1e8, 1e8 + 1], [0.1, 0.2], [20.0, 20.0]),
}
odd = pytest.mark.parametrize("parts", ODD.values(), ids=ODD)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 2))
    y = 10 + 5 * np.sin(3 * X[:, 0]) * X[:, 1] + rng.standard_normal(120)
    how = {"structure": "tensor", "max_rank": 5, "n_basis": 8, "random_state": 0}
    model = BTNRegressor(n_init=3, max_iter=20, **how)
    return model.fit(X, y), X, y


@odd
def test_quantile_inverts_the_distribution_function(parts):
    distribution = mixture(*parts)
    for level in LEVELS:
        x = distribution.quantile(level)
        reached = distribution.cdf(x)[0]
        # a few steps of rounding in x are worth this much probability
        rounding = 8 * np.finfo(float).eps * abs(x[0]) * distribution.pdf(x)[0]
        assert reached == pytest.approx(level, rel=1e-6, abs=1e-9 + rounding)


@odd
def test_density_and_distribution_function_are_those_of_scipy(parts):
    distribution, reference = mixture(*parts), parts_of(*parts)
    means, scales = np.asarray(parts[0]), np.asarray(parts[1])
    for x in np.concatenate([means, means + scales, means - 3 * scales]):
        pdf = np.mean([part.pdf(x) for part in reference])
        cdf = np.mean([part.cdf(x) for part in reference])
        assert distribution.pdf(x)[0] == pytest.approx(pdf, rel=1e-6)
        assert distribution.logpdf(x)[0] == pytest.approx(np.log(pdf), rel=1e-6, abs=1e-6)
        assert distribution.cdf(x)[0] == pytest.approx(cdf, rel=1e-6)


def test_single_part_has_the_quantiles_of_a_student_t():
    distribution = mixture([2.0], [3.0], [6.0])
    expected = stats.t(6.0, loc=2.0, scale=3.0).ppf(LEVELS)
    np.testing.assert_allclose(distribution.quantile(LEVELS)[0], expected, rtol=1e-9)


def test_random_mixtures_invert():
    rng = np.random.default_rng(4)
    for _ in range(20):
        size = rng.integers(2, 9)
        means = rng.standard_normal(size) * 10.0 ** rng.uniform(-6, 6)
        scales = 10.0 ** rng.uniform(-6, 6, size)
        distribution = mixture(means, scales, 10.0 ** rng.uniform(0.1, 5, size))
        levels = rng.uniform(1e-4, 1 - 1e-4, 5)
        for level, x in zip(levels, distribution.quantile(levels)[0], strict=True):
            assert distribution.cdf(x)[0] == pytest.approx(level, abs=1e-6)


def test_density_integrates_to_one_and_is_the_slope(fitted):
    model, X, _ = fitted
    distribution = model.predict_dist(X[:1])
    centre, width = distribution.mean[0], distribution.std[0]
    total = quad(
        lambda x: distribution.pdf(x)[0], centre - 40 * width, centre + 40 * width, limit=400
    )
    assert total[0] == pytest.approx(1.0, abs=1e-6)
    many = model.predict_dist(X)
    for shift in (-2.0, 0.0, 0.7, 3.0):
        x, h = many.mean + shift * many.std, 1e-5 * many.std
        slope = (many.cdf(x + h) - many.cdf(x - h)) / (2 * h)
        np.testing.assert_allclose(slope, many.pdf(x), rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(np.log(many.pdf(x)), many.logpdf(x))


@pytest.mark.parametrize("distance", [1e2, 1e6, 1e12, 1e100])
def test_logpdf_is_finite_far_in_the_tails(fitted, distance):
    model, X, _ = fitted
    for sign in (-1, 1):
        value = model.predict_dist(X).logpdf(sign * distance)
        assert np.all(np.isfinite(value))
        assert np.all(value < model.predict_dist(X).logpdf(sign * distance / 10))


def test_shapes(fitted):
    model, X, y = fitted
    distribution = model.predict_dist(X)
    n = len(X)
    assert len(distribution) == n
    for name in ("mean", "std", "model_std", "noise_std"):
        assert getattr(distribution, name).shape == (n,)
    for name in ("pdf", "logpdf", "cdf"):
        assert getattr(distribution, name)(y).shape == (n,)
    assert distribution.interval(0.8).shape == model.predict_interval(X).shape == (n, 2)
    assert distribution.quantile(0.3).shape == model.predict_quantiles(X, 0.3).shape == (n,)
    assert model.predict_quantiles(X, [0.1, 0.5, 0.9]).shape == (n, 3)
    assert distribution.sample(4).shape == model.sample_y(X, 4).shape == (n, 4)
    assert model.sample_y(X).shape == (n, 1)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, model.predict(X), rtol=1e-12)
    np.testing.assert_array_equal(std, distribution.std)


def test_variances_add_up(fitted):
    model, X, _ = fitted
    d = model.predict_dist(X)
    np.testing.assert_allclose(d.std**2, d.model_std**2 + d.noise_std**2)
    assert np.all(d.model_std > 0)
    assert d.noise_std[0] == pytest.approx(model.noise_std_)


def test_model_std_counts_spread_within_and_between_restarts():
    d = PredictiveDistribution(
        [
            Student(np.array([1.0]), np.array([4.0]), 1.0, 50.0),
            Student(np.array([3.0]), np.array([2.0]), 3.0, 50.0),
        ]
    )
    assert d.mean[0] == 2.0
    assert d.model_std[0] ** 2 == pytest.approx(3.0 + 1.0)
    assert d.noise_std[0] ** 2 == pytest.approx(2.0)


def test_intervals_are_the_quantiles_and_nest(fitted):
    model, X, _ = fitted
    narrow, wide = model.predict_interval(X, 0.5), model.predict_interval(X, 0.95)
    np.testing.assert_allclose(wide, model.predict_quantiles(X, [0.025, 0.975]), rtol=1e-9)
    assert np.all(wide[:, 0] < narrow[:, 0])
    assert np.all(narrow[:, 0] < narrow[:, 1])
    assert np.all(narrow[:, 1] < wide[:, 1])


def test_independent_draws_have_the_moments_of_the_distribution(fitted):
    model, X, _ = fitted
    d = model.predict_dist(X[:5])
    draws = d.sample(40_000, random_state=1)
    np.testing.assert_allclose(draws.mean(axis=1), d.mean, atol=0.03 * d.std.max())
    np.testing.assert_allclose(draws.std(axis=1), d.std, rtol=0.03)
    below = np.mean(draws < d.quantile(0.1)[:, None], axis=1)
    np.testing.assert_allclose(below, 0.1, atol=0.01)
    np.testing.assert_array_equal(draws, d.sample(40_000, random_state=1))


def test_draws_of_functions_have_the_moments_of_predict(fitted):
    model, X, _ = fitted
    mean, std = model.predict(X[:10], return_std=True)
    draws = model.sample_y(X[:10], 4000, random_state=3)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.08 * std.max())
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.08)
    np.testing.assert_array_equal(draws, model.sample_y(X[:10], 4000, random_state=3))
    assert np.any(draws != model.sample_y(X[:10], 4000, random_state=4))


def test_a_drawn_function_is_one_function(fitted):
    """Two rows that are equal share f in each draw; only the noise tells them apart."""
    model, X, _ = fitted
    twice = model.sample_y(np.repeat(X[:1], 2, axis=0), 3000)
    spread = model.predict_dist(X[:1])
    expected = np.sqrt(2) * spread.noise_std[0]
    assert np.std(twice[0] - twice[1]) == pytest.approx(expected, rel=0.08)


def test_draws_spread_over_inputs_that_are_not_known(fitted):
    """Training saw no gap: the input is drawn anew each time, so std counts its spread, too."""
    model, X, _ = fitted
    rows = X[:4].copy()
    rows[:2, 0] = np.nan
    mean, std = model.predict(rows, return_std=True)
    assert np.all(std[:2] > 1.5 * std[2:].max())
    draws = model.sample_y(rows, 4000, random_state=5)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.08 * std.max())
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.08)


def test_no_quantiles_are_none(fitted):
    model, X, _ = fitted
    assert model.predict_quantiles(X, []).shape == (len(X), 0)


def test_levels_of_odd_shapes_raise(fitted):
    model, X, _ = fitted
    with pytest.raises(ValueError, match=r"^q must be a number or a list.*shape \(1, 2\)"):
        model.predict_quantiles(X, [[0.1, 0.9]])
    with pytest.raises(ValueError, match="^level must be one number"):
        model.predict_interval(X, [0.5, 0.9])


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, np.nan, "high", None])
def test_bad_levels_raise(fitted, level):
    model, X, _ = fitted
    with pytest.raises(ValueError, match=r"strictly between 0 and 1.*use for example"):
        model.predict_interval(X, level)
    with pytest.raises(ValueError, match=r"strictly between 0 and 1.*use for example"):
        model.predict_quantiles(X, [0.5, level])


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_bad_number_of_draws_raises(fitted, count):
    model, X, _ = fitted
    for draw in (model.predict_dist(X).sample, lambda n: model.sample_y(X, n)):
        with pytest.raises(ValueError, match="n_samples must be an integer >= 1"):
            draw(count)


def test_noise_variance_is_the_mean_of_one_over_tau():
    shape, rate = 6.0, 3.0
    draws = np.random.default_rng(0).gamma(shape, 1 / rate, 200_000)
    assert noise_variance(shape, rate) == pytest.approx(np.mean(1 / draws), rel=0.02)
    assert np.isfinite(noise_variance(0.5, 1.0))


@pytest.mark.slow
def test_intervals_cover():
    rng = np.random.default_rng(11)

    def truth(X):
        return np.sin(2 * X[:, 0]) * X[:, 1] + np.exp(-(X[:, 2] ** 2))

    X, new = rng.uniform(-2, 2, (400, 3)), rng.uniform(-2, 2, (2000, 3))
    y = truth(X) + 0.3 * rng.standard_normal(400)
    outcome = truth(new) + 0.3 * rng.standard_normal(2000)
    model = BTNRegressor(structure="tensor", n_init=2, random_state=0).fit(X, y)
    for level, slack in [(0.5, 0.06), (0.9, 0.04), (0.95, 0.03)]:
        low, high = model.predict_interval(new, level).T
        assert np.mean((outcome > low) & (outcome < high)) == pytest.approx(level, abs=slack)
    error = np.sqrt(np.mean((model.predict(new) - truth(new)) ** 2))
    assert error < 0.12
    assert model.noise_std_ == pytest.approx(0.3, rel=0.15)


def test_a_distribution_says_what_it_is(fitted):
    distribution = fitted[0].predict_dist(np.zeros((4, 2)))
    assert repr(distribution) == "PredictiveDistribution of numbers at 4 points, 3 restarts"
