"""Draws by Hamiltonian Monte Carlo against densities that are known."""

import numpy as np

from btnkm.core.evidence import draw


def test_draws_have_the_moments_of_a_normal_distribution():
    mean, std = np.array([1.0, -2.0, 0.5]), np.array([0.5, 1.6, 1.0])
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    precision = turn @ np.diag(std**-2.0) @ turn.T

    def energy(at):
        away = precision @ (at - mean)
        return 0.5 * float((at - mean) @ away), away

    rng = np.random.default_rng(1)
    drawn = draw(energy, mean, rng, n_draws=6000, warm_up=50)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.12)
    np.testing.assert_allclose(np.cov(drawn.T), np.linalg.inv(precision), rtol=0.15, atol=0.15)


def test_draws_stay_where_the_density_is_not_zero():
    def energy(at):
        inside = float(at[0]) > 0.0
        return (float(at[0]) if inside else np.inf), np.ones(1) * inside

    drawn = draw(energy, np.ones(1), np.random.default_rng(0), 4000, 50)
    assert np.all(drawn > 0.0)
    np.testing.assert_allclose(drawn.mean(), 1.0, atol=0.15)


def test_draws_depend_on_the_seed_alone():
    def energy(at):
        return 0.5 * float(at @ at), at

    first, again, other = (
        draw(energy, np.zeros(2), np.random.default_rng(seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
