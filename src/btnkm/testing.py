"""A conformance check for custom likelihoods, for use in their tests."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .core.formula import evaluate
from .core.gamma import Gamma
from .core.likelihoods import Likelihood, Transformed

Array = np.ndarray
_PRIOR = Gamma(1e-3, 1e-3)
_LEAST_ROWS = 100


def check_likelihood(likelihood: Likelihood, y: Any, *, seed: int = 0) -> None:
    """Raise an AssertionError that names the error if a likelihood breaks its contract.

    Parameters
    ----------
    likelihood : Likelihood
        As passed to BTNRegressor.
    y : array of shape (n,)
        A few hundred targets that suit the likelihood.
    seed : int, default=0

    Notes
    -----
    Given moments of f, the bound of the rows must not exceed E log p(y | f), by quadrature, and
    must equal it where f is known. Weights and responses must be its derivatives. Learning and
    proposals must not lower it. A weight of k must count as k rows. Draws must have the predictive
    distribution, and so must the portable form if there is one. Of a function of y, inverse, slope,
    moments and formula are checked as well. The ELBO of a fit must never fall.
    p(y | f) is ``predictive(f, 0)``.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.likelihoods import StudentT
    >>> from btnkm.testing import check_likelihood
    >>> check_likelihood(StudentT(), np.random.default_rng(0).standard_t(3, 300))
    """
    if isinstance(likelihood, str | type) or not hasattr(likelihood, "begin"):
        raise TypeError(
            f"likelihood must be an object such as StudentT(), got {likelihood!r}; create one."
        )
    if hasattr(likelihood, "at"):
        raise TypeError(
            "likelihood must be the same for all rows, got one that depends on the inputs, "
            f"{likelihood!r}; check its noise_at_zero."
        )
    if np.ndim(y) != 1 or len(y) < _LEAST_ROWS:
        raise ValueError(
            f"y must have shape (n,) with n >= {_LEAST_ROWS}, got shape {np.shape(y)}; pass more."
        )
    rng = np.random.default_rng(seed)
    target, warm, shift, scale = likelihood.begin(np.asarray(y, dtype=float), None)
    _must(len(target) == len(y), "begin must return one target per row")
    _must(scale > 0 and np.isfinite(shift), "begin must return a finite shift and scale > 0")
    mean = 0.5 * rng.standard_normal(len(target))
    for std in (1e-4, 0.5):
        variance = np.full(len(target), std**2)
        _check_bound(warm, target, mean, variance, known=std < 0.01)
        _check_slopes(warm, target, mean, variance, rng)
    _check_weights(warm, target, mean, rng)
    learned, _ = best(warm, target, mean, mean**2 + 0.1)
    _check_draws(learned, mean, rng)
    if hasattr(warm, "portable") and hasattr(warm.predictive(mean, mean**2), "mean"):
        _check_portable(learned, target)
    if isinstance(likelihood, Transformed):
        _check_transformation(likelihood, np.asarray(y, dtype=float))
    if hasattr(warm.predictive(mean, mean**2), "mean"):  # not for classes
        _check_fit(likelihood, y, rng)


def _must(true: Any, sentence: str) -> None:
    if not np.all(true):
        raise AssertionError(sentence)


def best(
    likelihood: Likelihood, y: Array, mean: Array, square: Array, rounds: int = 400
) -> tuple[Likelihood, float]:
    """Return the likelihood with the best parameters for these moments of f.

    Also return the sum of its terms, which no round may lower.
    """
    n, bound = float(len(y)), -np.inf
    for _ in range(rounds):
        before = bound
        sums = likelihood.rows(y, None, mean, square).sums
        likelihood = likelihood.learn(sums, n, _PRIOR)
        bound = sum(likelihood.terms(n, _PRIOR).values())
        _must(bound >= before - 1e-9 * (1 + abs(before)), "learn must not lower the bound")
        other = likelihood.propose(sums)
        if other is not None:
            other = other.learn(other.rows(y, None, mean, square).sums, n, _PRIOR)
            if sum(other.terms(n, _PRIOR).values()) >= bound:
                likelihood, bound = other, sum(other.terms(n, _PRIOR).values())
        if bound - before < 1e-13 * abs(bound):
            break
    return likelihood, bound


def _check_bound(
    likelihood: Likelihood, y: Array, mean: Array, variance: Array, known: bool
) -> None:
    fitted, _ = best(likelihood, y, mean, mean**2 + variance)
    reached = fitted.terms(float(len(y)), _PRIOR)["likelihood"]
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    truth = sum(
        w * np.sum(fitted.predictive(mean + np.sqrt(variance) * z, np.zeros(len(y))).logpdf(y))
        for z, w in zip(nodes, weights / weights.sum(), strict=True)
    )
    _must(
        reached <= truth + 1e-6 * (1 + abs(truth)),
        f"the bound of the rows must not exceed E log p(y | f) = {truth:.6f}, got {reached:.6f}",
    )
    # each parameter with a posterior costs about half a nat
    _must(
        not known or reached >= truth - 2.0 - 0.02 * len(y),
        f"where f is known the bound must be log p(y | f) = {truth:.6f}, got {reached:.6f}",
    )


def _check_slopes(
    likelihood: Likelihood, y: Array, mean: Array, variance: Array, rng: np.random.Generator
) -> None:
    fitted, _ = best(likelihood, y, mean, mean**2 + variance)
    rows = fitted.rows(y, None, mean, mean**2 + variance)
    _must(rows.weight > 0, "weights must be positive")
    step = 1e-4
    shift, widening = rng.standard_normal(len(y)), 0.5 * variance * rng.random(len(y))
    directions: list[tuple[str, tuple[Any, Any], float]] = [
        ("response", (shift, 0.0), fitted.scale * (rows.response - rows.weight * mean) @ shift),
        ("weight", (0.0, widening), -0.5 * fitted.scale * rows.weight @ widening),
    ]
    for name, there, slope in directions:
        ends = []
        for sign in (-step, step):
            m, v = mean + sign * there[0], variance + sign * there[1]
            ends.append(best(fitted, y, m, m**2 + v)[1])
        numerical = (ends[1] - ends[0]) / (2 * step)
        # rounding of the bound, over the step
        slack = 1e-3 * (1 + abs(slope)) + 1e-11 * abs(ends[0]) / step
        _must(
            abs(numerical - slope) <= slack,
            f"{name}s must be the slope of the bound, {numerical:.6g}, got {slope:.6g}",
        )


def _check_weights(likelihood: Likelihood, y: Array, mean: Array, rng: np.random.Generator) -> None:
    times = rng.integers(1, 4, len(y))
    once = likelihood.rows(y, times.astype(float), mean, mean**2 + 0.1)
    again = np.repeat(mean, times)
    often = likelihood.rows(np.repeat(y, times), None, again, again**2 + 0.1)
    for a, b in zip(once.sums, often.sums, strict=True):
        _must(np.isclose(a, b, rtol=1e-9), "a weight of k must count as k rows in every sum")
    for a, b in ((once.weight, often.weight), (once.response, often.response)):
        _must(np.isclose(a.sum(), b.sum(), rtol=1e-9), "a weight of k must count as k rows")


def _check_portable(likelihood: Any, y: Array) -> None:
    plain = likelihood.portable()
    for mean, variance in ((-0.5, 0.04), (0.2, 0.5), (1.0, 1e-4)):
        y_of = likelihood.predictive(np.array([mean]), np.array([variance]))
        for at in np.quantile(y, [0.1, 0.5, 0.9], method="lower"):
            inputs = {"mean": mean, "variance": variance, "y": at}
            values = evaluate(plain, {name: np.full((1, 1), v) for name, v in inputs.items()})
            expected = {
                "mean": y_of.mean,
                "model_variance": y_of.model_variance,
                "noise_variance": y_of.noise_variance,
                "width": y_of.width(),
                "cdf": y_of.cdf(np.array([at])),
                "pdf": np.exp(y_of.logpdf(np.array([at]))),
            }
            for name, value in expected.items():
                _must(
                    np.isclose(np.ravel(values[name])[0], value[0], rtol=1e-7, atol=1e-12),
                    f"portable must give the {name} of predictive, {value[0]:.9g}, got "
                    f"{np.ravel(values[name])[0]:.9g}",
                )
    _must(plain["discrete"] == y_of.discrete, "portable must be discrete where predictive is")


def _check_transformation(transformation: Any, y: Array) -> None:
    """Check a function of y: its inverse, slope, moments and formula."""
    z = transformation.forward(y)
    _must(np.isclose(transformation.inverse(z), y, rtol=1e-9), "inverse must undo forward")
    step = 1e-4
    rise = (transformation.inverse(z + step) - transformation.inverse(z - step)) / (2.0 * step)
    _must(
        np.isclose(-np.log(rise), transformation.log_slope(y), atol=1e-6),
        "log_slope must be the logarithm of the slope of forward",
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    variance = np.full(len(y), 0.3)
    drawn = transformation.inverse(z[:, None] + np.sqrt(0.3) * nodes)
    mean = drawn @ weights / weights.sum()
    moments = mean, (drawn - mean[:, None]) ** 2 @ weights / weights.sum()
    for told, expected in zip(transformation.moments(z, variance), moments, strict=True):
        _must(np.isclose(told, expected, rtol=1e-6), "moments must be those of a normal z")
    inputs = {"y": y, "z": z, "mean": z, "variance": variance}
    values = evaluate(transformation.portable(), {k: v[:, None] for k, v in inputs.items()})
    expected = {"y": y, "z": z, "y_mean": moments[0], "y_variance": moments[1]}
    expected["slope"] = np.exp(transformation.log_slope(y))
    for name, value in expected.items():
        _must(np.isclose(values[name][:, 0], value, rtol=1e-6), f"portable must give the {name}")


def _check_draws(likelihood: Likelihood, mean: Array, rng: np.random.Generator) -> None:
    for variance in (0.0, 0.5):
        centre = np.repeat(mean[:5], 4000)
        f = centre + np.sqrt(variance) * rng.standard_normal(len(centre))
        drawn = likelihood.draw(f, rng)
        _check_follow(likelihood.predictive(centre, np.full(len(centre), variance)), drawn)


def _check_follow(distribution: Any, drawn: Array) -> None:
    below, strictly = (distribution.cdf(at).reshape(5, -1) for at in (drawn, drawn - 1e-9))
    # with F the distribution function: P(F(Y) <= q) is at most q, P(F(Y-) < q) at least
    for level in (0.1, 0.5, 0.9):
        _must(np.mean(below <= level, axis=1) <= level + 0.05, "draws must follow predictive")
        _must(np.mean(strictly < level, axis=1) >= level - 0.05, "draws must follow predictive")


def _check_fit(likelihood: Likelihood, y: Any, rng: np.random.Generator) -> None:
    from .regressor import BTNRegressor  # imports what this module checks

    x = rng.uniform(-1, 1, (len(y), 2))
    model = BTNRegressor(
        likelihood=likelihood,
        structure="sums+tensor",
        n_basis=5,
        max_rank=3,
        n_init=1,
        max_iter=15,
        random_state=0,
    )
    with warnings.catch_warnings():  # y does not depend on x
        warnings.simplefilter("ignore")
        bounds = model.fit(x, y).lower_bounds_
    _must(np.diff(bounds) >= -1e-8 * np.abs(bounds[1:]), "the ELBO of a fit must never fall")
    _must(np.isfinite(model.predict(x)), "predictions must be finite")
