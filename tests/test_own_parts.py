"""A basis and a likelihood defined outside of the library work as those of the library do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
import pytest

import btnkm
from btnkm import BTNRegressor
from btnkm.bases import BASES, Basis
from btnkm.core.densities import NormalMixture
from btnkm.core.formula import Formula, evaluate
from btnkm.core.likelihoods.base import Begin, Rows, density_form
from btnkm.explain import effects, summary
from btnkm.io.portable import portable
from btnkm.likelihoods import LIKELIHOODS
from btnkm.testing import check_likelihood
from tests.test_onnx import check as check_onnx
from tests.test_portable import rows_of
from tests.test_what_if import asked, compare, page  # noqa: F401

HOW = {"n_init": 2, "max_rank": 3, "max_iter": 20, "random_state": 0, "n_jobs": 1}
HOW |= {"structure": "tensor"}


class Ramps(Basis):
    """1, and ramps that begin at equally spaced places."""

    def __init__(self, n_basis: int = 5) -> None:
        self.n_basis = n_basis

    def fit(self, x):
        self.places_ = np.linspace(-1.0, 1.0, self.n_basis)[:-1]
        return super().fit(x)

    def phi(self, x):
        return np.concatenate(
            [np.ones((len(x), 1)), np.maximum(x[:, None] - self.places_, 0.0)], axis=1
        )

    def formula(self, x):
        rises = x + -1.0 * self.places_
        phi = (0.0 * x + 1.0).concat(rises * rises.above(0.0))
        i, j = np.triu_indices(self.n_functions_)
        return phi, phi.columns(i) * phi.columns(j)


@dataclass(frozen=True)
class KnownNoise:
    """y = f + e with normal noise of a known standard deviation."""

    title: ClassVar[str] = "known noise"
    task: ClassVar[str] = "calibrated regression"
    learned: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[bool] = False
    additive: ClassVar[bool] = True
    of_labels: ClassVar[bool] = False
    worth: ClassVar[float] = 1.0
    gentle: ClassVar[float] = 3.0
    std: float = 0.1
    unit: float = 1.0
    value: float = np.nan

    @property
    def scale(self):
        return (self.unit / self.std) ** 2

    @property
    def noise_std(self):
        return self.std / self.unit

    def begin(self, y, weight):
        mean, unit = float(np.average(y, weights=weight)), float(np.std(y))
        return Begin((y - mean) / unit, replace(self, unit=unit), mean, unit)

    def rows(self, y, s, mean, square):
        s = np.ones_like(mean) if s is None else s
        error = y * y - 2.0 * y * mean + square
        value = 0.5 * (np.log(self.scale / (2.0 * np.pi)) - self.scale * error)
        return Rows(s, s * y, (np.sum(s * value),))

    def learn(self, sums, n, prior):
        return replace(self, value=float(sums[0]))

    def newton(self, y, s, f):
        s = np.ones_like(f) if s is None else s
        return s, s * y

    def propose(self, sums):
        return None

    def terms(self, n, prior):
        return {"likelihood": self.value}

    def predictive(self, mean, variance):
        noise = self.noise_std**2
        return NormalMixture(mean, variance, np.array([noise]), np.ones(1), noise)

    def draw(self, f, rng):
        return f + self.noise_std * rng.standard_normal(len(f))

    def portable(self):
        formula, noise = Formula(), self.noise_std**2
        mean, variance, y = map(formula.input, ("mean", "variance", "y"))
        scale = (variance + noise).sqrt()
        z = (y - mean) / scale
        return density_form(
            formula,
            mean=mean,
            model_variance=variance,
            noise_variance=noise,
            width=scale,
            cdf=z.normal_cdf(),
            pdf=(z * z * -0.5).exp() / (scale * np.sqrt(2.0 * np.pi)),
        )


def problem(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(2.0 * X[:, 0]) * (1.0 + X[:, 1]) + 0.1 * rng.standard_normal(n)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """One line each makes a basis and a likelihood known by name."""
    monkeypatch.setitem(BASES, "ramps", Ramps)
    monkeypatch.setitem(LIKELIHOODS, "known_noise", KnownNoise)


@cache
def fitted(**more):
    X, y = problem()
    X = X.copy()
    X[::9, 1] = np.nan
    return BTNRegressor(**more, **HOW).fit(X, y)


PARTS = [{"basis": "ramps"}, {"likelihood": "known_noise"}]
PARTS += [{"basis": "ramps", "likelihood": "known_noise"}]


def test_they_conform():
    check_likelihood(KnownNoise(), problem()[1])
    x = np.linspace(-1.0, 1.0, 57)
    basis = Ramps().fit(x)
    actual = evaluate(basis.portable(), {"x": x[:, None]})
    for name, expected in zip(("phi", "psi"), basis.features(x), strict=True):
        np.testing.assert_allclose(actual[name], expected, rtol=1e-14)


@pytest.mark.parametrize("parts", PARTS, ids=str)
def test_they_fit_and_predict_by_name(parts):
    X, y = problem(seed=1)
    model = fitted(**parts)
    assert model.score(X, y) > 0.9
    low, high = model.predict_interval(X, 0.9).T
    assert np.mean((low < y) & (y < high)) > 0.85
    assert np.isfinite(model.sample_y(X, 3, random_state=0)).all()
    assert len(effects(model, [0])) == 1
    if "likelihood" in parts:
        assert model.noise_std_ == pytest.approx(0.1)
        assert "known noise" in str(summary(model))


@pytest.mark.parametrize("parts", PARTS, ids=str)
def test_their_portable_form_predicts_in_onnx_and_in_the_browser(parts, page):  # noqa: F811
    X = problem(20, seed=2)[0]
    X[::4, 1] = np.nan
    model = fitted(**parts)
    check_onnx(model, X)
    compare(model, X, asked(page, portable(model), rows_of(X)))


def test_the_report_has_a_panel_and_their_words(tmp_path):
    fitted(**PARTS[2]).report(tmp_path / "report.html", *problem(60))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "A calibrated regression that predicts" in text
    assert 'id="what-if-form"' in text


def test_a_file_holds_a_basis_whose_class_the_reader_passes(tmp_path):
    X, model = problem(20, seed=2)[0], fitted(basis="ramps")
    model.save(tmp_path / "ramps.btn")
    again = btnkm.load(tmp_path / "ramps.btn", bases=[Ramps])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="a basis that is not btnkm's, 'Ramps'.*bases="):
        btnkm.load(tmp_path / "ramps.btn")


def test_a_file_refuses_a_likelihood_of_another_package(tmp_path):
    with pytest.raises(ValueError, match="an object of btnkm, got KnownNoise.*or use pickle"):
        fitted(likelihood="known_noise").save(tmp_path / "noise.btn")
    assert not list(tmp_path.iterdir())


class Steps(Ramps):
    """A subclass that changes phi and has no formula of its own."""

    def phi(self, x):
        return 1.0 * (super().phi(x) > 0.0)


@dataclass(frozen=True)
class Doubled(KnownNoise):
    def predictive(self, mean, variance):
        return super().predictive(mean, 2.0 * variance)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"basis": Steps()}, r"^column 'x0': the basis Steps has no portable form; define formula"),
        ({"likelihood": Doubled()}, r"^the likelihood Doubled has no portable form; define port"),
    ],
)
def test_a_subclass_without_a_form_of_its_own_is_refused_in_one_sentence(parts, message):
    model = BTNRegressor(**parts, **HOW).fit(*problem())
    with pytest.raises(TypeError, match=message):
        portable(model)


@dataclass(frozen=True)
class WrongForm(KnownNoise):
    def portable(self):
        plain = super().portable()
        return plain | {"outputs": plain["outputs"] | {"noise_variance": 2.0}}


def test_conformance_finds_a_portable_form_that_says_something_else():
    with pytest.raises(AssertionError, match="portable must give the noise_variance"):
        check_likelihood(WrongForm(), problem()[1])


def test_an_operation_that_onnx_lacks_is_named():
    class Logs(Ramps):
        def formula(self, x):
            phi, psi = super().formula(x)
            return phi + 0.0 * x.log_gamma(), psi

    model = BTNRegressor(basis=Logs(), **HOW).fit(*problem())
    with pytest.raises(ValueError, match="the operation 'log_gamma' is not available"):
        model.to_onnx()
