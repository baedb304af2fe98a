"""What rows that are gone have said stays right when columns, scales and functions change."""

from __future__ import annotations

import numpy as np
import pytest

from btnkm.bases import Categorical, WithMissing
from btnkm.bases.anchored import Anchored
from btnkm.bases.categorical import ManyCategories
from btnkm.core import layout
from btnkm.core.batch_stats import BatchStats, ModeStats
from btnkm.core.cavi import Data
from btnkm.core.cp import CP
from btnkm.core.tt import TT


def said(columns, rows=(4, 3), seed=0):
    rng = np.random.default_rng(seed)
    second = rng.random((rows[0], len(columns.multiplicity)))
    return ModeStats(second, rng.random((rows[1], columns.n_columns)))


def full(stats, columns):
    """Return the second sums of every two columns: (K, C, C)."""
    return stats.second[:, columns.statistic]


LAYOUTS = [
    (CP(), layout.components(2), layout.components(5)),
    (TT(), layout.core(1, 2), layout.core(1, 3)),
    (TT(), layout.core(2, 3), layout.core(4, 4)),
]


@pytest.mark.parametrize(("network", "small", "large"), LAYOUTS)
def test_columns_that_are_new_know_nothing_and_go_without_a_trace(network, small, large):
    before = said(small)
    places = network.places(small, large)
    after = before.grown(places, small, large)
    expected = np.zeros((4, large.n_columns, large.n_columns))
    expected[:, places[:, None], places] = full(before, small)
    np.testing.assert_array_equal(full(after, large), expected)
    linear = np.zeros((3, large.n_columns))
    linear[:, places] = before.linear
    np.testing.assert_array_equal(after.linear, linear)
    back = after.take(places, large, small)
    np.testing.assert_array_equal(back.second, before.second)
    np.testing.assert_array_equal(back.linear, before.linear)


def test_scales_are_taken_out():
    columns = layout.components(3)
    stats, by = said(columns), np.array([2.0, 0.5, 3.0])
    scaled = stats.scaled(by, columns)
    np.testing.assert_allclose(full(scaled, columns) * np.outer(by, by), full(stats, columns))
    np.testing.assert_allclose(scaled.linear * by, stats.linear)


def test_the_past_is_a_sum():
    rng = np.random.default_rng(0)

    def make(seed):
        modes = tuple(said(layout.components(2), seed=seed + k) for k in range(2))
        features = ((rng.random(3), rng.random(5)),) * 2
        return BatchStats(Data(*rng.random(2)), modes, (rng.random(),), rng.random(2), features)

    a, b = make(0), make(2)
    both = a + b.weighed(0.5)
    assert both.data.n == pytest.approx(a.data.n + 0.5 * b.data.n)
    expected = a.modes[1].second + 0.5 * b.modes[1].second
    np.testing.assert_allclose(both.modes[1].second, expected)
    np.testing.assert_allclose(both.information, a.information + 0.5 * b.information)
    np.testing.assert_allclose(both.features[0][1], a.features[0][1] + 0.5 * b.features[0][1])


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("kind", ["categorical", "anchored", "many categories"])
def test_new_categories_change_no_sum_of_rows_that_are_gone(kind, gaps):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, 40).astype(float)
    x[:3] = np.nan if gaps else 0.0
    old = ManyCategories() if kind == "many categories" else WithMissing(Categorical())
    old.fit(x)
    if kind == "anchored":
        old = Anchored(old).fit(x)
    new = old.grown(2, missing=False)
    first = len(old.shares_) if kind == "many categories" else 4
    h = rng.random((40, 3))  # three statistics of three columns without any between them
    sums = ModeStats(*(np.asarray(part.T @ h) for part in reversed(old.features(x))))
    places = (
        (len(old.shares_),) * 2
        if kind == "many categories"
        else (old.n_products_, old.n_functions_)
    )
    grown = sums.with_functions(places, 2)
    direct = ModeStats(*(np.asarray(part.T @ h) for part in reversed(new.features(x))))
    np.testing.assert_allclose(grown.second, direct.second, atol=1e-12)
    np.testing.assert_allclose(grown.linear, direct.linear, atol=1e-12)
    later = np.append(x, [first, first + 1.0, -1.0])
    phi, psi = (
        part.toarray() if kind == "many categories" else part for part in new.features(later)
    )
    assert np.any(phi[-3] != phi[-2])
    if kind != "many categories":  # which has no table, as no row has two categories
        m = new.n_functions_
        products = (new.table_ @ psi[:-1].T).T.reshape(-1, m, m)
        np.testing.assert_allclose(products, phi[:-1, :, None] * phi[:-1, None], atol=1e-12)
    unseen = [part[-1] for part in (old.features(later)[0], phi)]
    was = unseen[0].toarray().ravel() if kind == "many categories" else unseen[0]
    if kind == "many categories":
        assert was[-1] == unseen[1][-1] == 1.0
    else:
        np.testing.assert_allclose(unseen[1][: len(was)], was)


def test_functions_dropped_before_leave_a_gap():
    stats = said(layout.components(2), rows=(2, 2))
    wider = stats.with_functions((4, 3), 1)
    np.testing.assert_array_equal(wider.second, np.concatenate([stats.second, np.zeros((3, 3))]))
    np.testing.assert_array_equal(wider.linear, np.concatenate([stats.linear, np.zeros((2, 2))]))
