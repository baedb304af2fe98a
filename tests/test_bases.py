"""Every basis keeps the contract: psi spans the products, gram and adjoint belong together."""

from __future__ import annotations

import tracemalloc

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import BSpline as ScipyBSpline
from sklearn.base import clone

from btnkm.bases import (
    BASES,
    Basis,
    BSpline,
    Categorical,
    Chebyshev,
    Fourier,
    Polynomial,
    Spiked,
    WithMissing,
)
from btnkm.bases import missing as missing_module
from btnkm.execution.modes import make_mode


class Hinges(Basis):
    """A user's own basis: phi and nothing else, not even held at the ends."""

    def phi(self, x):
        """Return 1, the hinge and the square."""
        return np.stack([np.ones_like(x), np.maximum(x, 0), x * x], axis=1)


class Flat(Basis):
    """A mistaken basis, whose phi has no columns."""

    def phi(self, x):
        """Return one number per row."""
        return x


NUMERIC = [
    Chebyshev(),
    Chebyshev(n_basis=1),
    Chebyshev(n_basis=2),
    Polynomial(n_basis=9),
    Polynomial(n_basis=9, offset=0.0),
    Polynomial(n_basis=1),
    Fourier(n_basis=11),
    Fourier(n_basis=1, lengthscale=1.0, boundary=2.0),
    BSpline(n_basis=9),
    BSpline(n_basis=6, degree=0),
    BSpline(n_basis=3, degree=5),
    BSpline(n_basis=1),
]
WITH_MISSING = [
    WithMissing(Chebyshev(n_basis=5)),
    WithMissing(BSpline(n_basis=6)),
    WithMissing(Hinges()),
]
SPIKED = [Spiked(Chebyshev(n_basis=4)), Spiked(BSpline(n_basis=5)), Spiked(Polynomial(n_basis=3))]
MISSING_SPIKED = WithMissing(Spiked(Chebyshev(n_basis=4)))
EVERY = [
    *NUMERIC,
    Categorical(),
    Hinges(),
    *WITH_MISSING,
    WithMissing(Categorical()),
    *SPIKED,
    MISSING_SPIKED,
]
numeric = pytest.mark.parametrize("basis", NUMERIC, ids=repr)
every = pytest.mark.parametrize("basis", EVERY, ids=repr)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def column(basis, n=60):
    """Return a column for the basis; those that take missing values get a few."""
    rng = np.random.default_rng(7)
    inner = basis.basis if isinstance(basis, WithMissing) else basis
    x = rng.integers(0, 5, n).astype(float)
    if not isinstance(inner, Categorical):
        x = np.append(rng.uniform(-1, 1, n - 3), [-1.0, 0.0, 1.0])
    if isinstance(inner, Spiked):
        x = np.concatenate([x, np.full(90, -1.0), np.full(50, 0.3)])
    if isinstance(basis, WithMissing):
        x[::9] = np.nan
    return x


def fitted(basis):
    x = column(basis)
    return clone(basis).fit(x), x


@every
def test_psi_spans_the_products(basis):
    basis, x = fitted(basis)
    phi, psi = basis.phi(x), basis.psi(x)
    m, k = basis.n_functions_, basis.n_products_
    assert phi.shape == (len(x), m)
    assert psi.shape == (len(x), k)
    assert basis.table_.shape == (m * m, k)
    assert basis.degrees_.shape == basis.constant_.shape == (m,)
    assert basis.degrees_.dtype == basis.constant_.dtype == float
    products = (phi[:, :, None] * phi[:, None, :]).reshape(len(x), -1)
    np.testing.assert_allclose((basis.table_ @ psi.T).T, products, atol=2e-13)
    np.testing.assert_allclose(basis.features(x)[0], phi, atol=1e-15)
    np.testing.assert_allclose(basis.features(x)[1], psi, atol=1e-15)


@every
def test_gram_and_adjoint_are_the_dense_sums(basis, rng):
    basis, x = fitted(basis)
    mode = make_mode(basis, 0.0)
    phi, psi, m = basis.phi(x), basis.psi(x)[:, : mode.n_psi], basis.n_functions_
    weights = rng.normal(size=(len(x), 4))
    dense = np.einsum("ni,nj,np->pij", phi, phi, weights)
    np.testing.assert_allclose(mode.gram(psi.T @ weights), dense, atol=1e-11)
    # Not symmetric in i and j, so that a table filled on one side only is found out.
    coefficients = rng.normal(size=(4, m, m))
    dense = np.einsum("ni,pij,nj->np", phi, coefficients, phi)
    np.testing.assert_allclose(psi @ mode.adjoint(coefficients), dense, atol=1e-11)
    sums = rng.normal(size=(mode.n_psi, 4))
    left, right = mode.gram(sums) * coefficients, sums * mode.adjoint(coefficients)
    assert left.sum() == pytest.approx(right.sum(), abs=1e-10)


@pytest.mark.parametrize(
    ("basis", "expected"),
    [
        (Chebyshev(20), 39),
        (Polynomial(20), 60),
        (Polynomial(20, offset=0.0), 39),
        (Fourier(20), 41),
        (BSpline(20), 20 + 19 + 18 + 17),
        (Categorical(), 5),
    ],
)
def test_products_need_few_functions(basis, expected):
    assert fitted(basis)[0].n_products_ == expected


@numeric
@pytest.mark.parametrize("values", [1, 2, 3, 4])
def test_never_more_functions_than_distinct_values(basis, values):
    x = np.repeat(np.linspace(-1, 1, values), 5)
    basis = clone(basis).fit(x)
    assert basis.n_functions_ == min(basis.n_basis, values)
    assert np.linalg.matrix_rank(basis.phi(x)) == basis.n_functions_


@pytest.mark.parametrize(
    ("basis", "tolerance"),
    [
        (Chebyshev(), 1e-14),
        (BSpline(), 1e-14),
        (BSpline(n_basis=3, degree=5), 1e-14),
        (Categorical(), 0),
        (WithMissing(BSpline()), 1e-14),
        (WithMissing(Chebyshev()), 1e-14),
        (Hinges(), 1e-12),
        (Polynomial(), 1e-3),
        (Fourier(), 1e-2),
    ],
    ids=repr,
)
def test_constant_is_one(basis, tolerance):
    basis, x = fitted(basis)
    np.testing.assert_allclose(basis.phi(x) @ basis.constant_, 1, atol=tolerance, rtol=0)
    assert np.abs(basis.constant_).max() < 10


@pytest.mark.parametrize("basis", [*NUMERIC, *WITH_MISSING], ids=repr)
def test_outside_the_range_is_the_edge(basis):
    basis, _ = fitted(basis)
    outside, edge = np.array([-np.inf, -1.5, 1.5, np.inf]), np.array([-1.0, -1.0, 1.0, 1.0])
    np.testing.assert_array_equal(basis.phi(outside), basis.phi(edge))
    np.testing.assert_array_equal(basis.psi(outside), basis.psi(edge))
    assert np.all(np.isfinite(basis.psi(edge)))


@pytest.mark.parametrize("basis", [e for e in EVERY if "Hinges" not in repr(e)], ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_other_array_namespaces_agree(basis, dtype):
    basis, x = fitted(basis)
    strict = array_api_strict.asarray(x, dtype=getattr(array_api_strict, dtype))
    tolerance = 5e-5 if dtype == "float32" else 1e-14
    for name in ("phi", "psi"):
        ours, theirs = getattr(basis, name)(x), getattr(basis, name)(strict)
        assert theirs.dtype == strict.dtype
        assert getattr(basis, name)(x.astype(dtype)).dtype == dtype
        np.testing.assert_allclose(np.asarray(theirs), ours, atol=tolerance)
    for theirs, ours in zip(basis.features(strict), basis.features(x), strict=True):
        np.testing.assert_allclose(np.asarray(theirs), ours, atol=tolerance)


def test_packed_fallback_in_another_namespace():
    class Line(Basis):
        def phi(self, x):
            xp = x.__array_namespace__()
            return xp.stack([xp.ones_like(x), x], axis=1)

    x = np.linspace(-1, 1, 5)
    psi = Line().fit(x).psi(array_api_strict.asarray(x))
    np.testing.assert_allclose(np.asarray(psi), np.stack([x**0, x, x * x], axis=1), atol=1e-15)


@every
def test_clone_and_parameters(basis):
    twin = clone(basis)
    assert repr(twin) == repr(basis)
    assert set(twin.get_params(deep=False)) == set(basis.get_params(deep=False))
    fit, x = fitted(basis)
    assert repr(fit) == repr(basis)  # fit leaves its parameters alone
    np.testing.assert_array_equal(clone(fit).fit(x).phi(x), fit.phi(x))


class Spoiled(Basis):
    """A user's basis with a mistake."""

    def __init__(self, mistake="none"):
        self.mistake = mistake

    def phi(self, x):
        """Return 1 and x, or something else."""
        phi = np.stack([np.ones_like(x), x], axis=1)
        if self.mistake == "writes":
            x *= 2.0
        return {
            "list": phi.tolist(),
            "rows": phi[: len(x) // 2],
            "nan": np.log(phi - 1.0),
            "columns": np.resize(phi, (len(x), len(x))),
        }.get(self.mistake, phi)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("list", "phi must return an array of shape .n, M., here n = 60, got list"),
        ("rows", "phi must return an array of shape"),
        ("nan", "phi must return finite numbers"),
        ("columns", "as many columns for one row as for many"),
        ("writes", "read-only"),
    ],
)
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value)")
def test_mistakes_in_a_basis_of_ones_own_are_named(mistake, message):
    x = np.linspace(-1, 1, 60)
    Spoiled().fit(x)
    with pytest.raises(ValueError, match=message):
        Spoiled(mistake).fit(x)


def test_names():
    assert set(BASES) == {"chebyshev", "polynomial", "fourier", "bspline", "categorical"}
    assert all(issubclass(basis, Basis) for basis in BASES.values())
    with_missing = WithMissing(Chebyshev()).set_params(basis__n_basis=3)
    assert with_missing.fit(np.linspace(-1, 1, 9)).n_functions_ == 3


@pytest.mark.parametrize(
    ("basis", "message"),
    [
        (Chebyshev(n_basis=0), "n_basis must be an integer >= 1, got 0"),
        (Chebyshev(n_basis=2.0), "n_basis must be an integer"),
        (Polynomial(n_basis=True), "n_basis must be an integer"),
        (Polynomial(offset=np.nan), "offset must be a finite number, got nan"),
        (Polynomial(offset="0.2"), "offset must be a finite number"),
        (Fourier(lengthscale=0.0), "lengthscale must be a finite number greater than 0"),
        (Fourier(lengthscale=np.inf), "lengthscale must be a finite number"),
        (Fourier(boundary=1.0), "boundary must be a finite number greater than 1"),
        (BSpline(degree=-1), "degree must be an integer >= 0"),
        (Categorical(), "codes must be the integers"),
        (WithMissing("chebyshev"), "basis must be a Basis"),
        (Flat(), r"phi must return an array of shape \(n, M\)"),
    ],
    ids=repr,
)
def test_bad_parameters_raise(basis, message):
    with pytest.raises(ValueError, match=message):
        basis.fit(np.linspace(-1, 1, 9))


@pytest.mark.parametrize("basis", [Chebyshev(), BSpline(), Categorical(), Hinges()], ids=repr)
def test_bad_columns_raise(basis):
    with pytest.raises(ValueError, match="wrap the basis in WithMissing"):
        basis.fit(np.array([0.0, np.nan]))
    with pytest.raises(ValueError, match="at least one value"):
        basis.fit(np.array([]))


def test_chebyshev_is_the_cosine_and_shares_its_memory():
    basis, x = fitted(Chebyshev())
    phi, psi = basis.features(x)
    assert np.shares_memory(phi, psi)
    np.testing.assert_allclose(psi, np.cos(np.arange(39) * np.arccos(x)[:, None]), atol=1e-12)


def test_polynomial_is_the_map_of_the_paper():
    basis, x = fitted(Polynomial(n_basis=7))
    powers = x[:, None] ** np.arange(7)
    expected = powers / np.linalg.norm(powers, axis=1, keepdims=True) + 0.2
    np.testing.assert_allclose(basis.phi(x), expected, atol=1e-14)


def test_fourier_renders_the_kernel():
    x = np.linspace(-1, 1, 41)
    phi = Fourier(n_basis=40, lengthscale=0.3, boundary=2.0).fit(x).phi(x)
    kernel = np.exp(-0.5 * ((x[:, None] - x) / 0.3) ** 2)
    np.testing.assert_allclose(phi @ phi.T, kernel, atol=1e-6)


@pytest.mark.parametrize("lengthscale", [1e-300, 1e-3, 30.0, 1e300])
@pytest.mark.filterwarnings("error")
def test_fourier_weights_stay_positive(lengthscale):
    basis, x = fitted(Fourier(n_basis=20, lengthscale=lengthscale))
    assert np.all(basis.weights_.astype(np.float32) ** 2 > 0)
    assert np.all(np.isfinite(basis.phi(x)))
    assert np.all(np.isfinite(basis.constant_))


@pytest.mark.parametrize(("n_basis", "degree"), [(9, 3), (9, 1), (4, 3), (7, 2)])
def test_bspline_agrees_with_scipy(n_basis, degree):
    basis, x = fitted(BSpline(n_basis, degree))
    inside = np.linspace(-1, 1, n_basis - degree + 1)
    knots = np.concatenate([-np.ones(degree), inside, np.ones(degree)])
    x = np.concatenate([x, inside])
    expected = ScipyBSpline.design_matrix(x, knots, degree).toarray() @ basis.coefficients_
    np.testing.assert_allclose(basis.phi(x), expected, atol=1e-13)


@pytest.mark.parametrize(("n_basis", "degree"), [(20, 3), (9, 1), (6, 0), (4, 3)])
def test_splines_go_from_smooth_to_rough(n_basis, degree):
    basis = BSpline(n_basis, degree).fit(np.linspace(-1, 1, 50))
    x = np.linspace(-1, 1, 100_001)
    phi = basis.phi(x)
    np.testing.assert_allclose(phi[:, 0], 1.0, atol=1e-13)
    np.testing.assert_allclose(np.abs(phi[:, 1:]).max(axis=0), np.sqrt(2), rtol=0.02)
    unit = phi / np.linalg.norm(phi, axis=0)
    np.testing.assert_allclose(unit.T @ unit, np.eye(n_basis), atol=0.06)  # as fine as its grid
    roughness = np.sum(np.diff(unit, axis=0) ** 2, axis=0)
    assert np.all(np.diff(roughness) > -0.01 * roughness[1:])
    np.testing.assert_array_equal(basis.degrees_, np.arange(n_basis))
    assert np.all(phi[-1] > 0)  # rounding must not choose between the ends


def test_many_splines_need_little_memory():
    tracemalloc.start()
    BSpline(n_basis=60).fit(np.linspace(-1, 1, 100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6


def test_values_of_many_rows_get_a_function_of_their_own():
    basis, _ = fitted(Spiked(Chebyshev(n_basis=4)))
    np.testing.assert_array_equal(basis.spikes_, [-1.0, 0.3])
    assert (basis.n_functions_, basis.n_products_) == (2 + 2, 3 + 2)  # in place of the roughest
    phi = basis.phi(np.array([-1.0, 0.3, 0.31, -2.0]))
    np.testing.assert_array_equal(phi[:, 2:], [[1, 0], [0, 1], [0, 0], [1, 0]])
    wide, _ = fitted(Spiked(Chebyshev(n_basis=20)))
    assert (wide.n_functions_, wide.n_products_) == (18 + 2, 35 + 2)


def test_values_as_frequent_as_their_neighbours_are_no_spikes():
    steady = np.repeat(np.linspace(-1, 1, 30), 60)
    assert len(Spiked(Chebyshev(n_basis=4)).fit(steady).spikes_) == 0
    assert len(Spiked(Chebyshev(n_basis=30)).fit(np.append(steady, np.ones(999))).spikes_) == 0
    rare = np.append(np.linspace(-1, 1, 100), np.ones(20))  # 21 rows say too little
    assert len(Spiked(Chebyshev(n_basis=4)).fit(rare).spikes_) == 0


def test_weights_count_rows_of_spikes():
    x = np.linspace(-1, 1, 100)
    weight = np.where(x == x[30], 50.0, 1.0)
    by_weight = Spiked(Chebyshev(n_basis=4)).fit(x, weight)
    np.testing.assert_array_equal(by_weight.spikes_, x[30:31])
    again = Spiked(Chebyshev(n_basis=4)).fit(np.repeat(x, weight.astype(int)))
    np.testing.assert_array_equal(by_weight.spikes_, again.spikes_)
    inside = WithMissing(Spiked(Chebyshev(n_basis=4))).fit(
        np.append(x, np.nan), np.append(weight, 1.0)
    )
    np.testing.assert_array_equal(inside.basis_.spikes_, x[30:31])


def test_the_heaviest_spikes_are_kept():
    x = np.concatenate([np.linspace(-1, 1, 1999), np.repeat(np.linspace(-1, 1, 1999)[::20], 60)])
    x = np.append(x, np.full(500, x[20]))
    spikes = Spiked(Chebyshev(n_basis=4)).fit(x).spikes_
    assert len(spikes) == 50
    assert x[20] in spikes


def test_categorical_unknown_codes_are_zero():
    basis = Categorical().fit(np.array([0.0, 3.0]))
    expected = np.zeros((5, 4))
    expected[0, 1] = expected[4, 3] = 1
    x = np.array([1.0, 4.0, -1.0, np.nan, 3.0])
    np.testing.assert_array_equal(basis.phi(x), expected)


@pytest.mark.parametrize("inner", [Chebyshev(4), Fourier(4), Categorical()], ids=repr)
@pytest.mark.filterwarnings("error")
def test_with_missing_values_seen(inner):
    x = np.array([0.0, 1.0, np.nan, 1.0, 0.0, np.nan, 1.0])
    seen = ~np.isnan(x)
    basis = WithMissing(inner).fit(x)
    alone = clone(inner).fit(x[seen])
    for name in ("phi", "psi"):
        rows, expected = getattr(basis, name)(x), getattr(alone, name)(np.where(seen, x, 1.0))
        np.testing.assert_array_equal(rows[:, 1:], expected)  # 1 is both median and mode
        np.testing.assert_array_equal(rows[:, 0], ~seen)
    np.testing.assert_array_equal(basis.degrees_, np.append(0, alone.degrees_))
    np.testing.assert_array_equal(basis.constant_, np.append(0, alone.constant_))


def test_missing_values_are_filled_as_often_as_weights_say(rng):
    x, weight = np.array([-1.0, 0.2, 1.0]), np.array([1.0, 2.0, 7.0])
    basis = WithMissing(Chebyshev(n_basis=2)).fit(x, weight)
    drawn = basis.fill(np.append(np.full(20_000, np.nan), 0.5), rng)
    assert drawn[-1] == 0.5
    shares = [np.mean(drawn[:-1] == value) for value in x]
    np.testing.assert_allclose(shares, weight / 10, atol=0.01)


def test_weights_count_rows_in_what_stands_for_a_missing_value():
    x, weight = np.array([-1.0, 0.2, 1.0]), np.array([1.0, 1.0, 3.0])
    weighted, repeated = WithMissing(Chebyshev()).fit(x, weight), WithMissing(Chebyshev())
    repeated.fit(np.repeat(x, weight.astype(int)))
    np.testing.assert_allclose(weighted.average_phi_, repeated.average_phi_, rtol=1e-14)
    np.testing.assert_allclose(weighted.average_psi_, repeated.average_psi_, rtol=1e-14)
    assert weighted.typical_ == repeated.typical_ == 1.0


@pytest.mark.parametrize("inner", [Chebyshev(4), Polynomial(4), Categorical(), Hinges()], ids=repr)
@pytest.mark.filterwarnings("error")
def test_without_missing_values_seen_it_averages(inner, monkeypatch):
    monkeypatch.setattr(missing_module, "BLOCK", 3)  # more blocks than one, the last one short
    x = np.array([0.0, 1.0, 1.0, 2.0, 0.0, 3.0, 3.0, 3.0])
    x = x if isinstance(inner, Categorical) else x / 3
    basis, alone = WithMissing(inner).fit(x), clone(inner).fit(x)
    phi, psi = basis.features(np.array([x[1], np.nan]))
    np.testing.assert_array_equal(phi[0], alone.phi(x)[1])
    np.testing.assert_array_equal(psi[0], alone.psi(x)[1])
    np.testing.assert_allclose(phi[1], alone.phi(x).mean(axis=0), atol=1e-15)
    second = np.einsum("ni,nj->ij", alone.phi(x), alone.phi(x)) / len(x)
    np.testing.assert_allclose(make_mode(basis, 0.0).average_gram(psi[1]), second, atol=1e-14)
    np.testing.assert_array_equal(basis.phi(x), alone.phi(x))


def test_with_missing_shows_its_basis_neither_nan_nor_far_values():
    class Fragile(Basis):
        def phi(self, x):
            assert np.all(np.abs(x) <= 1)
            return np.stack([x, x * x], axis=1)

    inner = Fragile()
    for x in (np.array([np.nan, 0.5, 1.0]), np.array([-1.0, 0.5, 1.0])):
        phi = WithMissing(inner).fit(x).phi(np.array([np.nan, 9.0]))
        np.testing.assert_array_equal(phi[1, -2:], [1.0, 1.0])
    assert not hasattr(inner, "n_functions_")  # a clone is fitted


def test_with_missing_with_nothing_else_is_constant():
    basis = WithMissing(Chebyshev()).fit(np.full(4, np.nan))
    x = np.array([0.3, np.nan, np.inf])
    assert (basis.n_functions_, basis.n_products_) == (1, 1)
    for array in (basis.phi(x), basis.psi(x), *basis.features(x)):
        np.testing.assert_array_equal(array, np.ones((3, 1)))
    gram = make_mode(basis, 0.0).gram(np.full((1, 2), 3.0))
    np.testing.assert_array_equal(gram, np.full((2, 1, 1), 3.0))


@given(
    x=st.lists(st.floats(-1, 1), min_size=1, max_size=8),
    which=st.sampled_from(["chebyshev", "polynomial", "fourier", "bspline"]),
    n_basis=st.integers(1, 9),
)
@settings(max_examples=60, deadline=None)
def test_any_column_has_bounded_functions_and_exact_products(x, which, n_basis):
    x = np.array(x)
    basis = BASES[which](n_basis=n_basis).fit(x)
    phi, psi = basis.features(x)
    assert np.abs(phi).max() <= 2
    assert np.abs(psi).max() <= 1 + 1e-12
    products = (phi[:, :, None] * phi[:, None, :]).reshape(len(x), -1)
    np.testing.assert_allclose((basis.table_ @ psi.T).T, products, atol=1e-12)
