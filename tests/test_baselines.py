"""The paper's competitors: against brute force, in known limits, and by scikit-learn's checks."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from btnkm import BTNRegressor
from btnkm.baselines import SPBTN, TKRR, ExactGP, LiteralBTN
from btnkm.baselines.spbtn import Parameters, slopes_of_bound
from btnkm.bases import Chebyshev, Fourier, Polynomial

QUICK = [
    TKRR(n_basis=4, max_rank=2, max_iter=10, random_state=0),
    LiteralBTN(n_basis=4, max_rank=3, max_iter=30, random_state=0),
    SPBTN(n_basis=4, max_rank=3, mean_rank=3, max_iter=1500, random_state=0),
    ExactGP(random_state=0),
]


@parametrize_with_checks(QUICK)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def smooth(n=150, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 3, (n, d))
    return X, 3 + np.sin(X[:, 0]) * X[:, -1] + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize(
    "basis", [Polynomial(3), Fourier(3, lengthscale=1.0, boundary=2.0), Chebyshev(3)]
)
def test_tkrr_of_full_rank_is_kernel_ridge_regression(basis):
    """Three functions of two inputs: every tensor has rank 3 or less."""
    X, y = smooth()
    alpha = 1e-3
    model = TKRR(basis, max_rank=3, alpha=alpha, max_iter=2000, tol=1e-14, random_state=0)
    model.fit(X, y)
    new = np.random.default_rng(1).uniform(-2, 3, (40, 2))

    def features(rows):
        phi = [b.phi(c) for b, c in zip(model.bases_, model._scaled(rows).T, strict=True)]
        return np.einsum("ni,nj->nij", *phi).reshape(len(rows), -1)

    reference = KernelRidge(alpha=alpha * len(y), kernel="linear")
    reference.fit(features(X), (y - y.mean()) / y.std())
    expected = y.mean() + y.std() * reference.predict(features(new))
    np.testing.assert_allclose(model.predict(new), expected, atol=2e-4 * y.std())


def test_tkrr_lowers_its_loss_which_is_the_penalised_error():
    X, y = smooth(200, 4)
    model = TKRR(n_basis=6, max_rank=3, alpha=1e-4, random_state=0).fit(X, y)
    assert np.all(np.diff(model.losses_) <= 1e-10 * model.losses_[0])
    residual = (y - model.predict(X)) / y.std()
    norm = np.ones((3, 3))
    for w in model.factors_:
        norm *= w.T @ w
    loss = residual @ residual + 1e-4 * 200 * norm.sum()
    assert model.losses_[-1] == pytest.approx(loss, rel=1e-8)


def test_tkrr_is_the_same_in_blocks_of_any_size():
    X, y = smooth(600, 3)
    whole = TKRR(n_basis=5, max_rank=3, random_state=0).fit(X, y)
    small = TKRR(n_basis=5, max_rank=3, memory_limit=0.0008, random_state=0).fit(X, y)
    np.testing.assert_allclose(whole.predict(X), small.predict(X), rtol=1e-6)


@pytest.mark.parametrize("model", [TKRR(), ExactGP()], ids=["TKRR", "ExactGP"])
def test_a_constant_target_is_predicted(model):
    X, _ = smooth(30)
    np.testing.assert_allclose(model.fit(X, np.full(30, 5.0)).predict(X), 5.0)


@pytest.mark.parametrize("model", QUICK, ids=lambda model: type(model).__name__)
def test_targets_must_be_numbers(model):
    X, y = smooth(30)
    with pytest.raises(ValueError, match="y must hold numbers"):
        model.fit(X, np.where(y > 3, "high", "low"))


def test_the_gp_is_scikit_learns_from_its_best_start():
    X, y = smooth(120, 3)
    model = ExactGP(ard=True, random_state=0).fit(X[:100], y[:100])
    mean, std = model.predict(X[100:], return_std=True)
    reference = GaussianProcessRegressor(model.kernel_, optimizer=None, normalize_y=True)
    scaler = StandardScaler().fit(X[:100])
    reference.fit(scaler.transform(X[:100]), y[:100])
    expected = reference.predict(scaler.transform(X[100:]), return_std=True)
    np.testing.assert_allclose(mean, expected[0])
    np.testing.assert_allclose(std, expected[1])
    assert len(model.kernel_.k1.k2.length_scale) == 3
    for noise in (1.0, 0.01):
        alone = ExactGP(ard=True, noise_levels=[noise]).fit(X[:100], y[:100])
        assert alone.log_marginal_likelihood_ <= model.log_marginal_likelihood_ + 1e-9


def test_the_gp_may_choose_its_kernel_by_some_rows_and_predicts_from_all():
    X, y = smooth(300)
    few = ExactGP(max_rows=60, random_state=0).fit(X, y)
    assert few.score(X, y) > 0.95
    assert few._model.X_train_.shape == (300, 2)


@pytest.mark.parametrize("bad", ["wavelets", 3, "categorical"])
def test_an_unknown_basis_is_refused(bad):
    X, y = smooth(30)
    with pytest.raises(ValueError, match="basis must be one of"):
        TKRR(bad).fit(X, y)


def test_the_literal_algorithm_collapses_where_ours_does_not():
    """Chebyshev polynomials are as large as the constant; the paper's features are smaller."""
    X, y = smooth(300, 6, seed=3)
    literal = LiteralBTN("chebyshev", n_basis=20, max_rank=10, random_state=0).fit(X, y)
    assert np.all(np.diff(literal.lower_bounds_[:4]) > 0)  # before components are cut off
    assert literal.score(X, y) < 0.05
    ours = BTNRegressor(basis="chebyshev", n_init=1, random_state=0).fit(X, y)
    assert ours.score(X, y) > 0.9
    assert LiteralBTN(n_basis=10, max_rank=10, random_state=0).fit(X, y).score(X, y) > 0.9
    mean, std = literal.predict(X, return_std=True)
    np.testing.assert_allclose(mean, y.mean(), atol=0.3 * y.std())
    assert np.median(std) == pytest.approx(y.std(), rel=0.2)


def test_the_literal_algorithm_works_with_one_input():
    """With a single factor there is no product, and nothing collapses."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 1))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    model = LiteralBTN(Chebyshev(8), max_rank=1, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95
    assert np.all(np.diff(model.lower_bounds_) >= -1e-6 * np.abs(model.lower_bounds_[1:]))
    assert model.noise_std_ == pytest.approx(0.1, rel=0.2)


def test_spbtn_slopes_are_those_of_the_bound():
    """For a draw that is held, against brute force and finite differences."""
    rng = np.random.default_rng(0)
    X, y = smooth(40, 3)
    model = SPBTN(Chebyshev(4), max_rank=2, mean_rank=2, max_iter=1, random_state=0).fit(X, y)
    target = (y - y.mean()) / y.std()
    (batch,) = model._batches(list(model._scaled(X).T), target, np.random.default_rng(1))
    sizes = [4, 4, 4]
    parameters = Parameters(
        *(rng.normal(0, 0.5, (n, 2)) for n in (3, 4, 2)),
        *(rng.normal(-1, 0.3, n) for n in (3, 4, 2)),
    )
    noise = rng.standard_normal((3, 4, 2))
    phi = [batch.features(d)[0] for d in range(3)]

    def bound(p):
        mean, std = p.mean(), p.std()
        draw = mean + std * noise
        f = np.prod([phi[d] @ draw[d] for d in range(3)], axis=0).sum(axis=1)
        kl = np.sum((std**2 + mean**2) / (2 * 1.5**2) - np.log(std))
        return -0.5 * 2.0 * 7.0 * np.sum((batch.y - f) ** 2) - kl

    slopes, square = slopes_of_bound(parameters, noise, batch, sizes, 2.0, 7.0, 1.5)
    for k in range(6):
        direction = rng.standard_normal(parameters[k].shape)
        ends = [
            bound(parameters._replace(**{parameters._fields[k]: parameters[k] + step * direction}))
            for step in (-1e-5, 1e-5)
        ]
        numerical = (ends[1] - ends[0]) / 2e-5
        assert np.sum(slopes[k] * direction) == pytest.approx(numerical, rel=1e-5)
    assert square > 0


def test_spbtn_learns_and_knows_its_noise():
    X, y = smooth(600, 3)
    model = SPBTN(n_basis=8, max_rank=4, random_state=0).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.9
    mean, std = model.predict(X[400:], return_std=True)
    assert 0.85 < np.mean(np.abs(y[400:] - mean) < 1.96 * std) <= 1.0
    assert model.parameters_.mean().shape == (3, 8, 4)


def test_spbtn_takes_rows_in_batches():
    X, y = smooth(500, 2)
    model = SPBTN(n_basis=5, max_rank=3, batch_size=100, max_iter=10, random_state=0).fit(X, y)
    target = (y - y.mean()) / y.std()
    batches = model._batches(list(model._scaled(X).T), target, np.random.default_rng(0))
    assert [len(batch.y) for batch in batches] == [100] * 5
    np.testing.assert_allclose(np.sort(np.concatenate([b.y for b in batches])), np.sort(target))
