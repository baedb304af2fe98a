"""Very many categories: the same posterior as a dense block, at a cost of rows and categories."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from btnkm import BTNClassifier, BTNRegressor, Solver
from btnkm.bases import Basis
from btnkm.bases.categorical import ManyCategories
from btnkm.core import cavi, layout, rows
from btnkm.core.categories import CategoryMode
from btnkm.core.state import Mode
from btnkm.execution.modes import make_mode, size_of

SMALL = {"n_init": 1, "max_iter": 15, "max_rank": 5, "n_basis": 8, "random_state": 0}
SMALL |= {"structure": "tensor"}


class Indicators(Basis):
    """The constant and one indicator per category, as a dense basis has them."""

    def phi(self, x):
        return np.column_stack([np.ones(len(x)), x[:, None] == np.linspace(-1, 1, 5)])


def both_modes(rng, n=60):
    """Return codes, and the mode and features of five categories in either form."""
    codes = rng.integers(0, 5, n).astype(float)
    codes[:5] = np.arange(5)
    sparse = ManyCategories().fit(codes)
    dense = Indicators().fit(0.5 * codes - 1.0)
    dense_mode = Mode(np.arange(1, 6), dense.table_, np.ones(5), np.zeros(5), anchored=True)
    return (
        (make_mode(sparse, 1.0), sparse.features(codes)),
        (dense_mode, dense.features(0.5 * codes - 1.0)),
    )


@pytest.mark.parametrize("mean_only", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_categories_have_the_posterior_of_a_dense_block(mean_only, weighted):
    rng = np.random.default_rng(0)
    rank, n = 3, 60
    (mode, features), (dense_mode, dense_features) = both_modes(rng, n)
    assert isinstance(mode, CategoryMode)
    g = rng.standard_normal((n, rank))
    r, s, _ = layout.pairs(rank)
    outside = rows.Moments(g, g[:, r] * g[:, s] + 0.2 * (r == s), None)
    weight = rng.uniform(0.5, 2.0, (n, 1)) if weighted else None
    response = rng.standard_normal((n, 1))
    prior = rng.uniform(0.5, 3.0, (5, rank))
    columns = layout.components(rank)
    second, linear = rows.block_sums(features, outside, weight, response, mode, rank)
    factor, _ = mode.block(second, linear, columns).solve(2.0, prior, mean_only=mean_only)
    second, linear = rows.block_sums(dense_features, outside, weight, response, dense_mode, rank)
    block = cavi.Block(dense_mode, second, linear[dense_mode.present], columns)
    dense, _ = block.solve(2.0, prior, mean_only=mean_only)
    np.testing.assert_allclose(factor.mean, dense.mean, atol=1e-10)
    spread = 0.0 if mean_only else 0.7
    actual = rows.moments(features, rows.terms(mode, factor, spread=spread))
    expected = rows.moments(dense_features, rows.terms(dense_mode, dense, spread=spread))
    np.testing.assert_allclose(actual.mean, expected.mean, atol=1e-10)
    if mean_only:
        return
    np.testing.assert_allclose(actual.second, expected.second, atol=1e-10)
    for category in range(5):
        np.testing.assert_allclose(
            factor.cov[category], dense.cov[:, category, :, category], atol=1e-12
        )
    np.testing.assert_allclose(factor.second, dense.second, atol=1e-10)
    assert factor.log_det == pytest.approx(dense.log_det)
    np.testing.assert_allclose(factor.group_log_dets(0), dense.group_log_dets(0))
    fewer, dense_fewer = (f.take_columns(np.array([0, 2])) for f in (factor, dense))
    assert fewer.log_det == pytest.approx(dense_fewer.log_det)
    np.testing.assert_allclose(fewer.group_log_dets(0), dense_fewer.group_log_dets(0))
    for which in ([1], [0, 2]):
        actual, expected = (f.log_density_at_zero(np.array(which)) for f in (factor, dense))
        assert actual == pytest.approx(expected)
    scaled, dense_scaled = (f.scale(np.array([2.0, 0.5, 3.0])) for f in (factor, dense))
    np.testing.assert_allclose(scaled.second, dense_scaled.second)
    np.testing.assert_allclose(scaled.group_log_dets(0), dense_scaled.group_log_dets(0))
    assert scaled.log_det == pytest.approx(dense_scaled.log_det)
    draws = factor.draw(40_000, rng)
    np.testing.assert_allclose(draws.mean(axis=0), factor.mean, atol=0.03)
    np.testing.assert_allclose(draws.var(axis=0), factor.variance, rtol=0.05)


def test_a_category_never_seen_is_the_average_of_the_others():
    rng = np.random.default_rng(1)
    (mode, _), _ = both_modes(rng)
    term = rows.terms(mode, mode.point(rng.standard_normal((5, 2))), spread=1.0)
    np.testing.assert_allclose(term.mean[5], mode.shares @ term.mean[:5])
    np.testing.assert_allclose(term.second[5], mode.shares @ term.second[:5])
    basis = ManyCategories().fit(np.array([0.0, 1.0, np.nan]))
    phi, _ = basis.features(np.array([1.0, np.nan]))
    np.testing.assert_array_equal(phi.toarray(), [[0, 1, 0, 0], [0, 0, 1, 0]])


def people(n=6000, n_categories=400, seed=0):
    """Rows of many people, each with an effect; some have few rows, five have one or two."""
    rng = np.random.default_rng(seed)
    who = np.minimum((rng.pareto(0.8, n) * n_categories / 40).astype(int), n_categories - 1)
    effect = rng.standard_normal(n_categories)
    x = rng.uniform(-1, 1, n)
    f = 2 * np.sin(3 * x) + effect[who]
    table = np.empty((n, 2), dtype=object)
    table[:, 0], table[:, 1] = x, [f"person {k}" for k in who]
    return table, f, f + 0.3 * rng.standard_normal(n), who


@pytest.fixture(scope="module")
def fitted():
    table, f, y, who = people()
    model = BTNRegressor(**SMALL).fit(table[:5000], y[:5000])
    return model, table, f, y, who


def test_many_categories_are_learned_and_rare_ones_shrink(fitted):
    model, table, f, y, who = fitted
    assert isinstance(model.columns_[1].basis, ManyCategories)
    assert model.n_basis_[1] > 200
    mean, std = model.predict(table[5000:], return_std=True)
    counts = np.bincount(who[:5000], minlength=400)[who[5000:]]
    error = mean - f[5000:]
    assert np.sqrt(np.mean(error[counts >= 20] ** 2)) < 0.2
    assert np.mean(std[counts >= 20]) < 0.8 * np.mean(std[counts <= 1])
    covered = np.abs(mean - y[5000:]) < 1.96 * std
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)
    assert np.mean(covered[counts <= 2]) > 0.85
    bounds = model.lower_bounds_
    assert np.all(np.diff(bounds) >= -1e-8 * np.abs(bounds[1:]))
    assert model.feature_importances_.sum() == pytest.approx(1.0)


def test_unseen_categories_are_average_with_a_wide_interval(fitted):
    model, table, *_ = fitted
    new = table[5000:5200].copy()
    new[:, 1] = "somebody new"
    mean, std = model.predict(new, return_std=True)
    average = 2 * np.sin(3 * new[:, 0].astype(float))
    assert np.corrcoef(mean, average)[0, 1] > 0.99
    assert np.sqrt(np.mean((mean - average) ** 2)) < 0.5
    assert np.all(std > 0.7)  # people differ by 1
    draws = model.sample_y(new[:20], 400, random_state=0)
    np.testing.assert_allclose(draws.std(axis=1), std[:20], rtol=0.25)


def test_missing_values_are_a_category_if_fit_saw_them():
    table, _, y, _ = people(4000)
    table[::5, 1] = None
    y[::5] += 3.0
    model = BTNRegressor(**SMALL).fit(table, y)
    assert model.columns_[1].basis.missing_ is not None
    assert np.mean(model.predict(table[::5])) > np.mean(model.predict(table)) + 2.0
    new = table[1:200:5].copy()
    new[:, 1] = "somebody new"  # is not missing, but the average of all
    mean, std = model.predict(new, return_std=True)
    gap = table[1:200:5].copy()
    gap[:, 1] = None
    assert np.all(mean < model.predict(gap) - 1.0)
    assert np.all(std > 0.7)
    draws = model.sample_y(new[:5], 400, random_state=0)
    np.testing.assert_allclose(draws.std(axis=1), std[:5], rtol=0.3)


def test_without_anchors_the_rarest_categories_are_one():
    table, _, y, _ = people(3000)
    model = BTNRegressor(solver=Solver(anchored=False), **SMALL).fit(table, y)
    assert not isinstance(model.columns_[1].basis, ManyCategories)
    assert model.n_basis_[1] <= 100


def test_identifiers_are_no_categories():
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, 800)
    table = np.empty((800, 2), dtype=object)
    table[:, 0], table[:, 1] = x, [f"id {k}" for k in range(800)]
    y = 2 * x + 0.3 * rng.standard_normal(800)
    model = BTNRegressor(**SMALL).fit(table, y)
    assert model.noise_std_ == pytest.approx(0.3, rel=0.15)
    assert model.feature_importances_[1] < 0.05


def test_labels_and_many_categories():
    table, f, _, _ = people(5000)
    label = np.where(f + np.random.default_rng(0).logistic(size=5000) > 0, "yes", "no")
    model = BTNClassifier(**SMALL).fit(table[:4000], label[:4000])
    best = np.mean((f[4000:] > 0) == (label[4000:] == "yes"))
    assert model.score(table[4000:], label[4000:]) > best - 0.05


def test_memory_grows_with_categories_not_their_square():
    rng = np.random.default_rng(3)
    n, n_categories = 12_000, 4000
    table = np.empty((n, 2), dtype=object)
    table[:, 0], table[:, 1] = rng.uniform(-1, 1, n), [f"v{k % n_categories}" for k in range(n)]
    y = rng.standard_normal(n_categories)[np.arange(n) % n_categories] + 0.1 * rng.standard_normal(
        n
    )
    model = BTNRegressor(n_jobs=1, **{**SMALL, "max_iter": 2})
    tracemalloc.start()
    try:
        model.fit(table, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * 2**20  # one covariance of all weights would take 3 GiB
    assert size_of(model.columns_[1].basis) == (64, 4)
