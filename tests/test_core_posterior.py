"""What a posterior says: moments, draws, total effects; and products over hundreds of modes."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from btnkm.core import layout, posterior, rows
from btnkm.core.cp import CP
from btnkm.core.network import Environments
from btnkm.core.posterior import Predictor
from tests import oracle, problems
from tests.problems import MIXES


@pytest.mark.parametrize("kinds", MIXES, ids="-".join)
@pytest.mark.parametrize("dropped", [False, True], ids=["whole", "dropped"])
def test_predicted_moments_equal_the_full_tensor(kinds, dropped):
    small = problems.make(kinds, 2, dropped=dropped)
    mean, variance = Predictor.of(small.state).moments(small.features.__getitem__)
    expected, second = problems.f_moments(small)
    np.testing.assert_allclose(mean, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(variance, second - expected**2, rtol=1e-8, atol=1e-11)


def test_a_known_f_has_no_variance():
    small = problems.make(("chebyshev", "powers"), 2)
    terms = [
        rows.terms(mode, type(factor).point(factor.mean), spread=True)
        for mode, factor in zip(small.state.modes, small.state.factors, strict=True)
    ]
    predictor = Predictor(CP(), terms, layout.components(2))
    _, variance = predictor.moments(small.features.__getitem__)
    assert np.all(variance >= 0)
    np.testing.assert_allclose(variance, 0.0, atol=1e-12)


def test_draws_have_the_moments_of_q():
    small = problems.make(("packed", "categorical"), 2)
    draws = posterior.draw_weights(small.state, 20_000, np.random.default_rng(0))
    for draw, factor in zip(draws, small.state.factors, strict=True):
        m, rank = factor.mean.shape
        assert draw.shape == (20_000, m, rank)
        cov = factor.cov.reshape(m * rank, m * rank)
        flat = np.swapaxes(draw, 1, 2).reshape(len(draw), -1)
        sd = np.sqrt(np.diag(cov))
        error = np.abs(flat.mean(axis=0) - factor.mean.T.ravel()) / sd
        assert np.all(error < 5 / np.sqrt(len(draw)))
        error = np.abs(np.cov(flat.T) - cov) / np.outer(sd, sd)
        assert np.all(error < 5 * np.sqrt(2 / len(draw)))


@pytest.mark.parametrize("dropped", [False, True], ids=["whole", "dropped"])
def test_draws_evaluate_to_the_definition_of_f(dropped):
    small = problems.make(("chebyshev", "bspline", "missing"), 3, dropped=dropped)
    draws = posterior.draw_weights(small.state, 3, np.random.default_rng(1))
    for i in range(3):
        weights = [draw[i] for draw in draws]
        actual = posterior.evaluate(small.state, weights, small.features.__getitem__)
        expected = oracle.f_values(problems.phis(small), weights)
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)


def test_values_of_draws_have_the_predicted_moments():
    small = problems.make(("packed", "chebyshev"), 2, dropped=True)
    draws = posterior.draw_weights(small.state, 4000, np.random.default_rng(2))
    f = np.array(
        [
            posterior.evaluate(small.state, list(weights), small.features.__getitem__)
            for weights in zip(*draws, strict=True)
        ]
    )
    mean, variance = Predictor.of(small.state).moments(small.features.__getitem__)
    assert np.all(np.abs(f.mean(axis=0) - mean) < 5 * np.sqrt(variance / len(f)))
    square = (f - mean) ** 2
    assert np.all(np.abs(square.mean(axis=0) - variance) < 5 * square.std(axis=0) / np.sqrt(len(f)))


def effect_shares(weights, averages):
    actual = posterior.total_effects(SimpleNamespace(network=CP()), weights, averages)
    return actual / max(actual.sum(), np.finfo(float).tiny)


@pytest.mark.parametrize("kinds", [("chebyshev",), ("packed", "categorical", "powers")], ids=len)
def test_effect_shares_on_a_grid(kinds):
    """The product measure written out: every combination of the inputs' values."""
    small = problems.make(kinds, 2, n=5)
    phis, weights = problems.phis(small), [f.mean for f in small.state.factors]
    averages = [(p.mean(axis=0), p.T @ p / len(p)) for p in phis]
    actual = effect_shares(weights, averages)
    grid = list(product(range(5), repeat=len(kinds)))
    repeated = [phi[[index[d] for index in grid]] for d, phi in enumerate(phis)]
    f = oracle.f_values(repeated, weights).reshape((5,) * len(kinds))
    expected = [f.var(axis=d).mean() for d in range(len(kinds))]
    np.testing.assert_allclose(actual, expected / np.sum(expected), rtol=1e-9)


def test_effect_shares_of_hundreds_of_inputs_neither_overflow_nor_vanish():
    sizes = np.where(np.arange(500) % 2, 30.0, 1e-3)
    weights = [np.array([[size], [0.1 * size]]) for size in sizes]
    averages = [(np.array([1.0, 0.0]), np.diag([1.0, 0.5]))] * 500
    np.testing.assert_allclose(effect_shares(weights, averages), 1 / 500, rtol=1e-9)


def test_an_input_without_effect_has_none():
    small = problems.make(("categorical", "powers"), 2)
    weights = [np.ones((3, 2)), small.state.factors[1].mean]  # the first is the constant 1
    averages = [(p.mean(axis=0), p.T @ p / len(p)) for p in problems.phis(small)]
    effects = effect_shares(weights, averages)
    assert effects[0] == pytest.approx(0.0, abs=1e-12)
    assert effects[1] > 0


# Hundreds of modes, one function each: phi is z itself, W a number per component.


class Long:
    """Modes whose z is far from one in size, with products back near one at the end."""

    def __init__(self, order, n_modes=500, n=6, rank=2, seed=0):
        rng = np.random.default_rng(seed)
        half = np.repeat([0.05, 20.0], n_modes // 2)
        if order == "small first":
            sizes = np.tile(half[:, None], (1, rank))
        elif order == "large first":
            sizes = np.tile(half[::-1, None], (1, rank))
        elif order == "mixed":
            sizes = np.stack([rng.permutation(half) for _ in range(rank)], axis=1)
        else:  # one component small where the other is large
            sizes = np.stack([half, half[::-1]], axis=1)
        self.phi = rng.choice([-1.0, 1.0], (n_modes, n)) * rng.uniform(0.9, 1.1, (n_modes, n))
        self.w = sizes * rng.choice([-1.0, 1.0], sizes.shape)
        r, s, self.multiplicity = layout.pairs(rank)
        spread = np.where(r == s, 1e-3, 0.0)
        self.second = self.w[:, r] * self.w[:, s] * (1.0 + spread)
        self.n_modes, self.rank = n_modes, rank
        self.terms = [
            rows.Terms(w[None], second[None]) for w, second in zip(self.w, self.second, strict=True)
        ]

    def predictor(self):
        return Predictor(CP(), self.terms, layout.components(self.rank))

    def features(self, d):
        phi = self.phi[d][:, None]
        return phi, phi**2

    def moments(self, d, into=None):
        return rows.moments(self.features(d), self.terms[d], into)

    def log_domain(self, without=None):
        """Return the moments of the product by sums of logarithms, signs apart."""
        modes = [d for d in range(self.n_modes) if d != without]
        parts = [self.moments(d) for d in modes]
        out = []
        for values in (np.array([p.mean for p in parts]), np.array([p.second for p in parts])):
            with np.errstate(divide="ignore"):
                logs = np.sum(np.log(np.abs(values)), axis=0)
            out.append(np.prod(np.sign(values), axis=0) * np.exp(logs))
        return out


ORDERS = ["small first", "large first", "mixed", "opposed"]


@pytest.mark.parametrize("order", ORDERS)
def test_long_products_neither_overflow_nor_vanish(order):
    long = Long(order)
    mean, second = long.log_domain()
    expected = mean.sum(axis=1)
    assert np.all(np.abs(mean) > 1e-12)  # the test is about the way there, not the result
    actual, variance = long.predictor().moments(long.features)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)
    expected = second @ long.multiplicity - expected**2
    np.testing.assert_allclose(variance, expected, rtol=1e-8)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("stride", [0, 1, 22])
def test_long_environments_neither_overflow_nor_vanish(order, stride):
    long = Long(order)
    environments = Environments(long.n_modes, stride=stride, network=CP())
    for d in (0, 17, 250, 499, 251):
        actual = environments.outside(d, long.moments)
        mean, second = long.log_domain(without=d)
        np.testing.assert_allclose(actual.mean, mean, rtol=1e-9)
        np.testing.assert_allclose(actual.second, second, rtol=1e-9)


@pytest.mark.parametrize("where", [0, 5, 40])
def test_exact_zeros_stay_exact(where):
    """A zero in one mode ends its product and no other; a row of zeros gives f = 0."""
    long = Long("mixed", n_modes=64)
    long.phi[where][0] = 0.0
    w = long.w[where + 1].copy()
    long.terms[where + 1] = rows.Terms(
        (w * [0.0, 1.0])[None], (long.second[where + 1] * [0.0, 0.0, 1.0])[None]
    )
    mean, second = long.log_domain()
    assert not np.any(mean[:, 0])
    assert not np.any(mean[0])
    actual, variance = long.predictor().moments(long.features)
    assert actual[0] == 0.0
    assert variance[0] == 0.0
    np.testing.assert_allclose(actual, mean[:, 1], rtol=1e-9)
    np.testing.assert_allclose(variance, second[:, 2] - mean[:, 1] ** 2, rtol=1e-8)
    environments = Environments(64, stride=1, network=CP())
    for d in (where, where + 1, 63):
        actual = environments.outside(d, long.moments)
        mean, second = long.log_domain(without=d)
        np.testing.assert_allclose(actual.mean, mean, rtol=1e-9)
        np.testing.assert_allclose(actual.second, second, rtol=1e-9)


@pytest.mark.parametrize("power", [-3000, -400, 0, 400])
def test_rescaled_moments_expand_to_what_they_were(power):
    rng = np.random.default_rng(0)
    mean = np.ldexp(rng.standard_normal((4, 2)), 100)  # too far from 1 to be left alone
    part = rows.Moments(mean, mean[:, [0, 0, 1]] * mean[:, [0, 1, 1]], None)
    scaled = rows.rescale(part)
    assert np.all(np.max(np.abs(scaled.mean), axis=1) <= np.sqrt(2.0))
    back = rows.expand(scaled)
    np.testing.assert_array_equal(back.mean, part.mean)  # powers of two: to the last bit
    np.testing.assert_array_equal(back.second, part.second)
    far = rows.expand(
        rows.Moments(scaled.mean, scaled.second, np.full_like(scaled.exponent, power))
    )
    # what underflows need not be an exact zero
    np.testing.assert_allclose(far.mean, np.ldexp(scaled.mean, power), rtol=0, atol=1e-300)
    np.testing.assert_allclose(far.second, np.ldexp(scaled.second, 2 * power), rtol=0, atol=1e-300)
