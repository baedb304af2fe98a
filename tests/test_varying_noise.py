"""Noise that varies with the inputs, against formulas written from the model."""

from dataclasses import replace

import array_api_strict as xp
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from btnkm import BTNRegressor, streaming
from btnkm.bases.effect import MainEffect
from btnkm.core.densities import central_variance
from btnkm.core.formula import Formula, evaluate
from btnkm.core.gamma import Gamma
from btnkm.core.likelihoods import Gaussian, StudentT, Varying, joined, of_past, propose
from btnkm.core.likelihoods.varying import FLOOR

PRIOR = Gamma(1e-6, 1e-6)
NOISES = {"gaussian": Gaussian(Gamma(30.0, 20.0)), "student": StudentT(4.0)}
noises = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)


class Rows:
    """Rows with two inputs, moments of f, and the features of the noise after two others."""

    def __init__(self, n=60, seed=0, weighted=False):
        rng = np.random.default_rng(seed)
        self.codes = [rng.uniform(-1, 1, n), np.append(np.nan, rng.uniform(-1, 1, n - 1))]
        self.weight = rng.uniform(0.3, 2.0, n) if weighted else None
        self.mean = rng.normal(size=n)
        self.square = self.mean**2 + rng.uniform(0.01, 0.1, n)
        self.y = self.mean + np.exp(self.codes[0]) * rng.normal(size=n)
        line = np.array([-1.0, 1.0])
        self.effects = [
            MainEffect(3, line, line).fit(code, np.ones(n) if self.weight is None else self.s)
            for code in self.codes
        ]

    @property
    def s(self):
        return np.ones(len(self.y)) if self.weight is None else self.weight

    def features(self, d, part=slice(None)):
        return self.effects[d - 2].features(self.codes[d - 2][part])

    def moments(self):
        return self.y, self.weight, self.mean, self.square

    def sums(self, likelihood):
        return likelihood.at(self.features).rows(*self.moments()).sums

    def learned(self, likelihood):
        return likelihood.learn(self.sums(likelihood), self.s.sum(), PRIOR)

    def elbo(self, likelihood):
        return sum(likelihood.terms(self.s.sum(), PRIOR).values())

    def step(self, likelihood):
        """Return what the engine makes of one proposal, and how many attempts it took."""
        likelihood, attempt = self.learned(likelihood), 0
        while (other := propose(likelihood, self.sums(likelihood), attempt)) is not None:
            other = self.learned(other)
            if self.elbo(other) >= self.elbo(likelihood):
                return other, attempt
            attempt += 1
        return likelihood, attempt


def fitted(rows, noise, steps=60):
    likelihood = Varying.over(noise, rows.effects, 2)
    for _ in range(steps):
        likelihood, _ = rows.step(likelihood)
    return likelihood


def test_the_elbo_is_the_expectation_of_the_log_density_less_divergences():
    rows = Rows(weighted=True)
    likelihood = fitted(rows, NOISES["gaussian"], 3)
    sums, tau = likelihood.sums, likelihood.noise
    z = np.column_stack(
        [np.ones(len(rows.y))]
        + [
            rows.features(2 + sums.groups[g].mode)[0][:, k]
            for g, k in zip(sums.group[1:], sums.column[1:], strict=True)
        ]
    )
    g = z @ sums.mean[0]
    v = np.array([row @ sums.cov[0] @ row for row in z])
    error = (rows.y - rows.mean) ** 2 + rows.square - rows.mean**2
    log_density = 0.5 * (
        tau.log_mean + g - np.log(2 * np.pi) - tau.mean * np.exp(g + v / 2) * error
    )
    terms = likelihood.terms(rows.s.sum(), PRIOR)
    assert terms["likelihood"] == pytest.approx(rows.s @ log_density, rel=1e-10)
    expected = np.diag(sums.expected)
    # E log N(b; 0, 1 / lambda) + entropy, with E log lambda in place of log E lambda
    log_prior = np.append(
        np.log(sums.expected[0]),
        sums.precision.log_mean[sums.group[1:]]
        + 2 * sums.smoothness[sums.group[1:]] * np.log(sums.degree[1:]),
    )
    second = sums.cov[0] + np.outer(sums.mean[0], sums.mean[0])
    weights = 0.5 * (log_prior.sum() - np.sum(expected * second))
    weights += 0.5 * (np.linalg.slogdet(sums.cov[0])[1] + len(z[0]))
    assert terms["noise curves"] == pytest.approx(weights, rel=1e-9)


@noises
@pytest.mark.parametrize("weighted", [False, True])
def test_the_elbo_never_falls(noise, weighted):
    rows = Rows(weighted=weighted, seed=1)
    likelihood, values, attempts = Varying.over(noise, rows.effects, 2), [], 0
    for _ in range(30):
        likelihood, attempt = rows.step(likelihood)
        values.append(rows.elbo(likelihood))
        attempts += attempt
    assert np.all(np.diff(values) >= -1e-9 * abs(values[-1]))
    assert values[-1] > values[0]
    assert attempts < 10  # nearly all first steps are taken


@noises
def test_the_coefficients_are_a_stationary_point(noise):
    rows = Rows(n=300, seed=2)
    likelihood = fitted(rows, noise)
    kept = likelihood.sums
    assert len(kept.kept) >= 1

    def value(k, h):
        mean = kept.mean.copy()
        mean[0, k] += h
        moved = replace(likelihood, sums=replace(kept, mean=mean))
        # q of the noise without g stays: only sums over rows are computed anew
        sums = [np.asarray(part) for part in rows.sums(moved)]
        base = likelihood.noise_at_zero.learn(tuple(rows.sums(moved)[:-5]), rows.s.sum(), PRIOR)
        moved = replace(moved, noise_at_zero=base, learned_from=tuple(sums[-5:]))
        return rows.elbo(moved)

    for k in range(1, kept.size):  # q(tau) follows the intercept
        slope = (value(k, 1e-4) - value(k, -1e-4)) / 2e-4
        curvature = (value(k, 1e-3) + value(k, -1e-3) - 2 * value(k, 0.0)) / 1e-6
        assert abs(slope) < 0.05 * np.sqrt(abs(curvature))


def test_the_truth_is_found_and_inputs_without_effect_are_dropped():
    rows = Rows(n=2000, seed=3)
    likelihood = fitted(rows, NOISES["gaussian"])
    x = np.linspace(-0.9, 0.9, 7)
    rows.codes = [x, np.zeros(7)]
    g = likelihood.at(rows.features).mean
    assert np.polyfit(x, g, 1)[0] == pytest.approx(-2.0, abs=0.25)
    assert {group.mode for group in (likelihood.sums.groups[k] for k in likelihood.sums.kept)} == {
        0
    }


def test_constant_noise_loses_all_curves():
    rng = np.random.default_rng(4)
    rows = Rows(n=500, seed=4)
    rows.y = rows.mean + 0.5 * rng.normal(size=500)
    assert len(fitted(rows, NOISES["gaussian"]).sums.kept) == 0


@noises
def test_without_curves_the_noise_is_that_without_g(noise):
    rows = Rows(weighted=True)
    at = Varying.over(noise, rows.effects, 2).at(rows.features)
    y, weight, first, square = rows.moments()
    plain = noise.rows(y, weight, first, square + FLOOR)  # which keeps noise from zero
    varying = at.rows(y, weight, first, square)
    assert np.array_equal(plain.weight, varying.weight)
    assert np.array_equal(plain.response, varying.response)
    assert plain.sums == varying.sums[:-5]
    mean, variance = rows.mean, rows.square - rows.mean**2
    assert np.array_equal(
        noise.predictive(mean, variance).logpdf(rows.y),
        at.predictive(mean, variance).logpdf(rows.y),
    )


@noises
def test_sums_add_up_over_blocks_of_rows(noise):
    rows = Rows(weighted=True)
    likelihood = fitted(rows, noise, 3)
    parts = []
    for part in (slice(0, 17), slice(17, 60)):
        at = likelihood.at(lambda d, part=part: rows.features(d, part))
        parts.append(at.rows(*(moment[part] for moment in rows.moments())).sums)
    for total, *of_blocks in zip(rows.sums(likelihood), *parts, strict=True):
        np.testing.assert_allclose(sum(of_blocks), total, rtol=1e-12, atol=1e-12)


@noises
def test_the_predictive_density_is_one(noise):
    rows = Rows()
    likelihood = fitted(rows, noise, 5)
    density = likelihood.at(rows.features).predictive(rows.mean, rows.square - rows.mean**2)

    def pdf(y):
        return np.exp(density.logpdf(np.full(60, y)))[5]

    centre, width = density.mean[5], density.width()[5]
    ends = centre - 300 * width, centre + 0.7 * width
    total, _ = quad(pdf, *ends, points=[centre - width, centre], limit=200)
    assert total == pytest.approx(density.cdf(np.full(60, ends[1]))[5], abs=2e-4)
    low, high = density.bracket(0.9)
    middle = 0.5 * (low + high)
    assert np.all(density.cdf(low) <= 0.9 + 1e-9)
    assert np.all(density.cdf(high) >= 0.9 - 1e-9)
    assert np.all((low <= middle) & (middle <= high))


def test_the_predictive_variance_contains_the_doubt_of_g():
    rows = Rows()
    at = fitted(rows, NOISES["gaussian"], 5).at(rows.features)
    density = at.predictive(rows.mean, rows.square - rows.mean**2)
    k, noise = 7, at.noise.noise_std**2
    # E[exp(-g)] for g ~ N(mean, variance), by quadrature
    g, std = at.mean[k], np.sqrt(at.variance[k])
    expected, _ = quad(lambda x: norm.pdf(x, g, std) * np.exp(-x), g - 12 * std, g + 12 * std)
    assert density.noise_variance[k] == pytest.approx(noise * expected, rel=1e-6)
    assert density.model_variance[k] == pytest.approx(rows.square[k] - rows.mean[k] ** 2, rel=1e-9)


def test_blocks_of_rows_are_joined():
    rows = Rows()
    likelihood = fitted(rows, NOISES["gaussian"], 3)
    blocks = [
        likelihood.at(lambda d, part=part: rows.features(d, part))
        for part in (slice(0, 20), slice(20, 60))
    ]
    both, whole = joined(blocks), likelihood.at(rows.features)
    np.testing.assert_allclose(both.mean, whole.mean, rtol=1e-12)
    assert joined([Gaussian(), Gaussian()]) == Gaussian()


def spread(X):
    """Return the true standard deviation of the noise."""
    return 0.05 + 0.8 * np.maximum(X[:, 0], 0.0)


def table(n, seed=0, noise=spread):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    return X, np.sin(3.0 * X[:, 1]) + noise(X) * rng.standard_normal(n)


def coverage(model, X, y, rows):
    interval = model.predict_interval(X[rows])
    return np.mean((y[rows] >= interval[:, 0]) & (y[rows] <= interval[:, 1]))


X, Y = table(400)
NEW, Y_NEW = table(4000, seed=1)
SMALL = {"structure": "sums+tensor", "n_init": 2, "max_rank": 3, "max_iter": 15, "random_state": 0}
KINDS = {
    "sums": {"structure": "sums"},
    "tensor": {"structure": "tensor"},
    "both": {},
    "student": {"likelihood": "student_t"},
    "full": {"structure": "full"},
    "train": {"network": "tt", "structure": "tensor"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_are_right_where_the_noise_is_large_and_where_it_is_small(kind):
    model = BTNRegressor(**(SMALL | {"noise": "varying"} | KINDS[kind])).fit(X, Y)
    assert 0.9 < coverage(model, NEW, Y_NEW, NEW[:, 0] > 0.5) < 0.985
    assert 0.9 < coverage(model, NEW, Y_NEW, NEW[:, 0] < 0.0) < 0.995
    true = np.sqrt(np.mean(spread(X) ** 2))
    assert model.noise_std_ == pytest.approx(true, rel=0.3)
    elbo = [e["elbo"] for e in model.history_ if e["phase"] == "exact" and e["restart"] == 0]
    if kind != "full":  # which alternates between searches and weights
        assert np.all(np.diff(elbo) >= -1e-9 * abs(elbo[-1]))


def test_held_out_rows_tell_that_the_noise_varies():
    model = BTNRegressor(random_state=0, n_init=2, max_rank=4, max_iter=20).fit(X, Y)
    assert sum(e["weight"] for e in model.structures_ if e["varying"]) > 0.9
    assert 0.9 < coverage(model, NEW, Y_NEW, NEW[:, 0] > 0.5) < 0.99
    assert 0.9 < coverage(model, NEW, Y_NEW, NEW[:, 0] < 0.0) < 0.995


def test_noise_that_is_constant_stays_so_to_the_last_bit():
    X, y = table(250, noise=lambda X: 0.3)
    models = [
        BTNRegressor(random_state=0, n_init=2, max_rank=4, max_iter=20, noise=noise).fit(X, y)
        for noise in ("auto", "constant")
    ]
    assert not any(e["varying"] for e in models[0].structures_)
    first, other = (np.array(model.predict(NEW[:50], return_std=True)) for model in models)
    assert np.array_equal(first, other)


def test_processes_blocks_weights_and_arrays_give_the_same_model():
    known = BTNRegressor(**SMALL, noise="varying", n_jobs=1).fit(X, Y)
    mean, std = known.predict(NEW[:50], return_std=True)
    two = BTNRegressor(**SMALL, noise="varying", n_jobs=2).fit(X, Y)
    assert np.array_equal(two.predict(NEW[:50], return_std=True), (mean, std))
    strict = BTNRegressor(**SMALL, noise="varying").fit(xp.asarray(X), xp.asarray(Y))
    answers = strict.predict(xp.asarray(NEW[:50]), return_std=True)
    np.testing.assert_allclose([np.asarray(part) for part in answers], (mean, std), rtol=1e-9)
    weighted = BTNRegressor(**SMALL, noise="varying").fit(X, Y, sample_weight=np.full(400, 2.0))
    twice = BTNRegressor(**SMALL, noise="varying").fit(np.repeat(X, 2, axis=0), np.repeat(Y, 2))
    np.testing.assert_allclose(
        weighted.predict(NEW[:50], return_std=True),
        twice.predict(NEW[:50], return_std=True),
        rtol=1e-8,
    )


def test_dask_gives_the_same_model():
    da = pytest.importorskip("dask.array")
    known = BTNRegressor(**SMALL, noise="varying").fit(X, Y)
    chunks = da.from_array(X, chunks=(90, 3)), da.from_array(Y, chunks=90)
    model = BTNRegressor(**SMALL, noise="varying").fit(*chunks)
    for method in ("predict", "predict_interval"):
        np.testing.assert_allclose(
            np.asarray(getattr(model, method)(chunks[0])), getattr(known, method)(X), rtol=1e-8
        )


@pytest.mark.parametrize(("window", "size"), [(8192, 200), (0, 40)])
def test_a_stream_learns_how_the_noise_varies(window, size, monkeypatch):
    monkeypatch.setattr(streaming, "WINDOW", window)
    how = {"structure": "sums", "noise": "varying", "random_state": 0}
    X, y = table(1060)
    stream = BTNRegressor(**how)
    for part in np.split(np.arange(1060), np.arange(300, 1060, size)):  # up to 20 batches
        stream.partial_fit(X[part], y[part])
    whole = BTNRegressor(**how).fit(X, y)
    assert 0.92 < coverage(stream, NEW, Y_NEW, NEW[:, 0] > 0.5) < 0.98
    assert 0.92 < coverage(stream, NEW, Y_NEW, NEW[:, 0] < 0.0) < 0.98
    losses = [-np.mean(model.predict_dist(NEW).logpdf(Y_NEW)) for model in (stream, whole)]
    assert losses[0] < losses[1] + 0.02
    assert stream.noise_std_ == pytest.approx(whole.noise_std_, rel=0.1)
    with pytest.raises(ValueError, match="noise must stay what it was in the first fit, 'varying'"):
        stream.set_params(noise="constant").partial_fit(X, y)


class Stream:
    """Batches of rows with a known f, one after the other: what the engine does with their noise.

    ``share`` is what is left of the weights of earlier rows with every batch.
    """

    def __init__(self, likelihood, share=1.0):
        self.likelihood, self.share = likelihood, share
        self.past, self.n = None, 0.0

    def sums(self, rows, likelihood, before):
        new = rows.sums(likelihood)
        if self.past is None:
            return new
        past = of_past(likelihood, self.past, before)
        return tuple(a + b for a, b in zip(new, past, strict=True))

    def update(self, rows, steps=3):
        before = self.likelihood
        if self.past is not None:
            self.past = tuple(self.share * part for part in self.past)
        self.n = self.share * self.n + rows.s.sum()

        def learned(likelihood):
            return likelihood.learn(self.sums(rows, likelihood, before), self.n, PRIOR)

        def elbo(likelihood):
            return sum(likelihood.terms(self.n, PRIOR).values())

        now = learned(before)
        for _ in range(steps):
            attempt = 0
            while (other := propose(now, None, attempt)) is not None:
                if elbo(other := learned(other)) >= elbo(now):
                    now = other
                    break
                attempt += 1
        self.past, self.likelihood = self.sums(rows, now, before), now

    def slope(self, rows):
        """Return that of g in the first input."""
        x = np.linspace(-0.9, 0.9, 7)
        rows.codes = [x, np.zeros(7)]
        return np.polyfit(x, self.likelihood.at(rows.features).mean, 1)[0]


def batch_of(rows, n, seed, sign=1.0):
    """Return other rows with the functions of these."""
    other = Rows(n, seed)
    other.effects = rows.effects
    other.y = other.mean + np.exp(sign * other.codes[0]) * (other.y - other.mean) / np.exp(
        other.codes[0]
    )
    return other


@pytest.mark.parametrize(("kind", "count"), [("gaussian", 1000), ("student", 100)])
def test_a_thousand_small_batches_are_as_good_as_all_rows(kind, count):
    rows = Rows(n=100, seed=6)
    stream = Stream(Varying.over(NOISES[kind], rows.effects, 2))
    stream.update(rows, 20)
    for k in range(count):
        stream.update(batch_of(rows, 5, 100 + k), 1)
    assert stream.slope(rows) == pytest.approx(-2.0, abs=0.2)
    assert np.abs(stream.likelihood.sums.mean).max() < 4.0  # the truth is near 1.2
    assert all(np.all(np.isfinite(part)) for part in stream.past)
    if kind == "gaussian":
        every = Rows(n=100 + 5 * count, seed=7)
        every.effects = rows.effects
        # what is known is known as well as from all rows together, as far as curves are the same
        variances = [
            np.mean(one.at(rows.features).variance)
            for one in (stream.likelihood, fitted(every, NOISES[kind], 20))
        ]
        assert variances[0] == pytest.approx(variances[1], rel=0.5)


def test_a_stream_that_forgets_follows_noise_that_changes():
    rows = Rows(n=300, seed=6)
    stream = Stream(Varying.over(NOISES["gaussian"], rows.effects, 2), share=0.9)
    stream.update(rows, 20)
    for k in range(60):
        stream.update(batch_of(rows, 40, 100 + k, sign=-1.0), 1)
    assert stream.slope(rows) == pytest.approx(2.0, abs=0.5)


@noises
def test_sums_over_earlier_rows_follow_g_to_second_order(noise):
    rows = Rows(n=200, seed=8, weighted=True)
    likelihood = fitted(rows, noise, 5)
    sums, kept = rows.sums(likelihood), likelihood.sums
    direction = np.random.default_rng(0).normal(size=kept.mean.shape)

    def errors(h, direction, narrower):
        mean, cov = kept.mean + h * direction, (1.0 - h * narrower) * kept.cov
        other = replace(likelihood, sums=replace(kept, mean=mean, cov=cov))
        # the weights of heavy tails do not follow
        held, now = (
            replace(one, noise_at_zero=Gaussian(noise.noise)) for one in (likelihood, other)
        )
        exact, near = rows.sums(now), now.shifted(rows.sums(held), held)
        return np.array([abs(near[0] - exact[0]), np.abs(near[-2] - exact[-2]).max()])

    still = np.zeros_like(direction)
    # an eighth of the error and a quarter of that of the slope, with half of the step
    assert np.all(errors(0.01, direction, 0.0) < [0.15, 0.3] * errors(0.02, direction, 0.0))
    assert errors(0.01, still, 1.0)[0] < 0.3 * errors(0.02, still, 1.0)[0]
    for part, same in zip(likelihood.shifted(sums, likelihood), sums, strict=True):
        np.testing.assert_allclose(part, same, rtol=1e-12)


def test_draws_have_the_noise_of_their_row():
    model = BTNRegressor(**(SMALL | KINDS["sums"]), noise="varying").fit(X, Y)
    draws = model.sample_y(NEW[:20], 4000)
    np.testing.assert_allclose(draws.std(axis=1), model.predict_dist(NEW[:20]).std, rtol=0.1)


def test_missing_values_of_the_main_input_have_the_noise_they_deserve():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3000, 2))
    y = 5.0 * X[:, 0] + X[:, 1] + rng.normal(size=3000)
    gone = rng.random(3000) < np.where(np.arange(3000) < 500, 0.1, 0.5)
    X[gone, 0] = np.nan
    new = np.arange(3000) >= 500
    model = BTNRegressor(**(SMALL | KINDS["sums"]), noise="varying").fit(X[:500], y[:500])
    assert 0.9 < coverage(model, X, y, new & gone) < 0.985
    assert 0.92 < coverage(model, X, y, new & ~gone) < 0.98


def test_a_wrong_value_is_told():
    with pytest.raises(ValueError, match="noise must be 'auto', 'constant' or 'varying', got 'on'"):
        BTNRegressor(noise="on").fit(X, Y)
    with pytest.raises(ValueError, match="needs Gaussian or Student-t noise, got likelihood='poi"):
        BTNRegressor(noise="varying", likelihood="poisson").fit(X, np.round(np.exp(Y)))


@noises
@pytest.mark.parametrize("times", [1e4, -1e4])
def test_a_step_that_is_much_too_long_is_rejected_without_an_overflow(noise, times):
    rows = Rows()
    likelihood = fitted(rows, noise, 3)
    before, sums = rows.elbo(likelihood), likelihood.sums
    far = replace(likelihood, sums=replace(sums, mean=times * sums.mean, cov=1e4 * sums.cov))
    assert not rows.elbo(rows.learned(far)) >= before  # NaN is no higher, either


@noises
def test_the_portable_form_is_the_predictive_distribution(noise):
    rows = Rows()
    likelihood = fitted(rows, noise, 5)
    at = likelihood.at(rows.features)
    inputs = {"mean": rows.mean, "variance": rows.square - rows.mean**2, "y": rows.y}
    density = at.predictive(inputs["mean"], inputs["variance"])
    inputs |= {"g_mean": at.mean, "g_variance": at.variance}
    plain = likelihood.portable()
    values = evaluate(plain, {name: value[:, None] for name, value in inputs.items()})
    expected = {
        "mean": density.mean,
        "model_variance": density.model_variance,
        "noise_variance": density.noise_variance,
        "width": density.width(),
        "cdf": density.cdf(rows.y),
        "pdf": np.exp(density.logpdf(rows.y)),
    }
    if isinstance(likelihood.noise_at_zero, StudentT):
        expected["central_variance"] = central_variance(density)
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(values[name][:, 0], value, rtol=1e-9, err_msg=name)


def test_a_formula_includes_another():
    inner, outer = Formula(), Formula()
    x, y = map(inner.input, ("x", "y"))
    plain = inner.plain(product=(x + 1.0) * y, same=y, five=5.0)
    z = outer.input("z")
    outputs = outer.include(plain, {"x": z * 2.0, "y": z.exp()})
    both = outer.plain(**outputs, twice=2.0 * outputs["product"])
    z = np.array([[0.5], [-1.0]])
    values = evaluate(both, {"z": z})
    np.testing.assert_allclose(values["product"], (2.0 * z + 1.0) * np.exp(z))
    np.testing.assert_allclose(values["twice"], 2.0 * values["product"])
    np.testing.assert_allclose(values["same"], np.exp(z))
    assert values["five"] == 5.0


@noises
def test_curves_of_huge_precision_are_constant_noise(noise):
    rows = Rows(weighted=True)
    likelihood = rows.learned(Varying.over(noise, rows.effects, 2))
    products, curved, total, pulled, _ = likelihood.learned_from
    huge = Gamma(np.full(len(likelihood.sums.groups), 1e12), np.ones(len(likelihood.sums.groups)))
    held = replace(likelihood.sums, precision=huge)
    gram = 0.5 * likelihood.scale * curved[None]
    solved, _ = held.solved(gram, 0.5 * (total - likelihood.scale * pulled)[None])
    at = replace(likelihood, sums=solved).at(rows.features)
    np.testing.assert_allclose(at.factor, at.factor[0], rtol=1e-5)
    plain = likelihood.noise_at_zero.rows(*rows.moments())
    varying = replace(likelihood, sums=replace(solved, mean=0.0 * solved.mean, cov=held.cov))
    weight = varying.at(rows.features).rows(*rows.moments()).weight
    np.testing.assert_allclose(weight, plain.weight, rtol=1e-8)


@noises
def test_a_row_of_weight_k_is_k_rows(noise):
    rows = Rows(n=80, seed=9)
    counts = np.random.default_rng(0).integers(1, 4, 80)
    rows.weight = counts.astype(float)
    rows.effects = [e.fit(c, rows.s) for e, c in zip(rows.effects, rows.codes, strict=True)]
    repeated = Rows(n=80, seed=9)
    for name in ("mean", "square", "y"):
        setattr(repeated, name, np.repeat(getattr(repeated, name), counts))
    repeated.codes = [np.repeat(code, counts) for code in repeated.codes]
    repeated.effects = [
        e.fit(c, repeated.s) for e, c in zip(repeated.effects, repeated.codes, strict=True)
    ]
    weighed, many = (fitted(one, noise, 4).sums for one in (rows, repeated))
    np.testing.assert_allclose(weighed.mean, many.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(weighed.cov, many.cov, rtol=1e-8, atol=1e-10)


ALONE = {"structure": "sums", "noise": "varying", "random_state": 0}


def test_noise_and_doubt_of_f_are_told_apart_in_every_row():
    distribution = BTNRegressor(**ALONE).fit(X, Y).predict_dist(NEW)
    assert distribution.noise_std.shape == distribution.model_std.shape == (4000,)
    total = distribution.noise_std**2 + distribution.model_std**2
    np.testing.assert_allclose(distribution.std**2, total, rtol=1e-9)
    loud, quiet = NEW[:, 0] > 0.2, NEW[:, 0] < -0.2
    ratio = distribution.noise_std / spread(NEW)
    assert np.all((ratio[loud] > 0.6) & (ratio[loud] < 1.7))
    assert 0.5 < np.median(ratio[quiet]) < 2.0
    error = np.abs(distribution.mean - np.sin(3.0 * NEW[:, 1])) / distribution.model_std
    assert 0.4 < np.sqrt(np.mean(error**2)) < 2.0  # the doubt of f is the size of its error
    assert np.median(distribution.model_std) < 0.3 * np.median(distribution.noise_std[loud])


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_the_scale_of_y_is_of_no_consequence(likelihood):
    one, other = (
        BTNRegressor(**ALONE, likelihood=likelihood).fit(X[:150], y[:150])
        for y in (Y, 4096.0 * Y - 7e4)
    )
    for part in ("mean", "model_std", "noise_std"):
        a, b = (getattr(model.predict_dist(NEW[:50]), part) for model in (one, other))
        np.testing.assert_allclose(b, 4096.0 * a - 7e4 * (part == "mean"), rtol=1e-5, err_msg=part)


def test_rows_that_are_not_in_memory_give_the_same_model(tmp_path):
    frame = pd.DataFrame(X, columns=list("abc"))
    weight = pd.Series(np.linspace(0.5, 2.0, 400), name="w")
    known = BTNRegressor(**ALONE).fit(frame, Y, weight).predict(frame, return_std=True)
    np.save(tmp_path / "X.npy", X)
    for k in range(3):
        rows = slice(140 * k, 140 * (k + 1))
        frame.assign(y=Y, w=weight)[rows].to_parquet(tmp_path / f"{k}.parquet")
    sources = [
        (np.load(tmp_path / "X.npy", mmap_mode="r"), Y, weight.to_numpy()),
        (str(tmp_path / "*.parquet"), "y", "w"),
        ([(frame[k : k + 90], Y[k : k + 90], weight[k : k + 90]) for k in range(0, 400, 90)],),
    ]
    for source in sources:
        model = BTNRegressor(**ALONE).fit(*source)
        table = X if len(source[0]) == 400 else frame
        np.testing.assert_allclose(model.predict(table, return_std=True), known, rtol=1e-9)


def noise_of(X, rng):
    return np.exp(X[:, 0]) * rng.standard_normal(len(X))


def _gone(X):
    X[:, 1] = np.nan
    return X


def _two(X):
    X[:, 1] = X[:, 1] > 0
    return X


HARD = {
    "few rows": lambda X, rng: (X[:16], noise_of(X[:16], rng)),
    "two rows": lambda X, rng: (X[:2], np.array([0.0, 1.0])),
    "constant input": lambda X, rng: (0.0 * X + X[:, :1] * [1, 0], noise_of(X, rng)),
    "constant inputs": lambda X, rng: (0.0 * X, noise_of(X, rng)),
    "missing column": lambda X, rng: (_gone(X), noise_of(X, rng)),
    "two values": lambda X, rng: (_two(X), (0.01 + X[:, 1] + 1.0) * noise_of(X, rng)),
    "no noise in half": lambda X, rng: (X, X[:, 1] + (X[:, 0] > 0) * noise_of(X, rng)),
    "constant in half": lambda X, rng: (X, (X[:, 0] > 0) * noise_of(X, rng)),
    "no noise": lambda X, rng: (X, 2.0 * X[:, 1]),
    "constant": lambda X, rng: (X, np.ones(len(X))),
    "ties": lambda X, rng: (X, np.round(X[:, 1] + 0.5 * noise_of(X, rng))),
    "outlier": lambda X, rng: (X, np.append(1e9, noise_of(X[1:], rng))),
    "wide": lambda X, rng: (rng.standard_normal((40, 90)), rng.standard_normal(40)),
}


@pytest.mark.filterwarnings("ignore:no input was found to have an effect")
@pytest.mark.parametrize("kind", HARD)
def test_hard_tables_have_noise_everywhere(kind):
    rng = np.random.default_rng(0)
    X, y = HARD[kind](rng.uniform(-1.0, 1.0, (120, 2)), rng)
    model = BTNRegressor(**ALONE, max_iter=20).fit(X, y)
    distribution = model.predict_dist(X)
    scale = np.std(y) or 1.0
    assert np.all(np.isfinite(distribution.mean))
    assert np.all(distribution.noise_std > 1e-6 * scale)  # a floor, also where f interpolates
    assert np.all(np.isfinite(distribution.interval(0.95)))
    assert np.all(np.isfinite(model.sample_y(X, 2)))
    elbo = np.array([entry["elbo"] for entry in model.history_ if entry["phase"] == "exact"])
    assert np.all(np.diff(elbo) >= -1e-7 * (1.0 + np.abs(elbo[1:])))


@pytest.mark.parametrize("structure", ["sums", "sums+tensor"])
def test_noise_does_not_explain_what_f_has_not_found_yet(structure):
    X, y = table(150, seed=2, noise=lambda X: 0.3)
    how = {"structure": structure, "n_init": 1, "max_rank": 3, "max_iter": 20, "random_state": 0}
    constant, varying = (
        BTNRegressor(noise=noise, **how).fit(X, y).predict(NEW) - np.sin(3.0 * NEW[:, 1])
        for noise in ("constant", "varying")
    )
    assert np.sqrt(np.mean(varying**2)) < 1.2 * np.sqrt(np.mean(constant**2))
