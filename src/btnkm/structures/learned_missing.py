"""How far rows with a missing value have an effect and a noise of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ..data.fills import COUNT, Fills, orders_of, told_from_others

Array = np.ndarray
MOST_ROWS, FEWEST_ROWS = 64, 8  # with a missing value in a column, which are looked at
MOST_OF_ALL, MOST_IN_FULL = 1500, 500  # of these in all columns, also where a full tensor is slow
PRIOR_SHARE = 0.2  # of what is learned
BETWEEN, SHARES = 0.3, 33  # prior probability of a mixture of both, and weights that it may have
NATS = 2.0  # that what is learned must gain in all rows: its effect and noise are fitted to them
MOST_GAIN = 50.0  # nats of a row
ALL = 0.9  # share from which on the rest is neglected, as is one minus it
MOST_LEVERAGE = 0.9  # of a row in its own prediction
# (columns, targets, weights, whether rows are predicted without themselves) -> log densities (n,)
Density = Callable[[list[Array], Array, Array, bool], Array]


def fills_of(
    columns: Sequence[Any],
    active: Sequence[int],
    sample: Any,
    density: Density,
    before: Fills | None,
    *,
    full: bool,
) -> Fills:
    """Return what stands for missing values, with the weight of what the fit has learned of them.

    Predictions of a row with a missing value are a mixture: of what was learned from such rows, and
    of an average over the values that might be there. Of few rows, or where values are missing at
    random, the average predicts better. The weight is the one with the highest log density of the
    training rows with a missing value, of which each is predicted without itself. It is 0 for an
    input that was never missing.
    """
    inputs = [j for j in active if _has_values(columns[j].basis)]
    known = [j for j in inputs if columns[j].basis.knows_missing]
    rng = np.random.default_rng(0)
    most = (MOST_IN_FULL if full else MOST_OF_ALL) // max(len(known), 1)
    most = int(np.clip(most, FEWEST_ROWS, MOST_ROWS))
    shares = dict.fromkeys(inputs, 0.0)
    if before is None:
        told = told_from_others(columns, inputs, sample.codes, sample.weights)
        orders = orders_of(told, sample.codes, sample.weights)
    else:
        told, orders = before.told, before.orders
    for j in known:
        rows = np.flatnonzero(np.isnan(sample.codes[j]) & (sample.weights > 0))
        prior = PRIOR_SHARE
        if before is not None:
            prior = before.learned(j)
        if not len(rows):
            shares[j] = prior if before is not None else 0.0
            continue
        rows = np.sort(rng.permutation(rows)[:most])
        codes = [code[rows] for code in sample.codes]
        y, weight = sample.y[rows], sample.weights[rows]
        learned = density(codes, y, weight, True)
        copies = Fills.of(columns, {j: 0.0}, told).copies(codes, np.arange(len(rows)))
        logs = density(copies, np.concatenate([y] * COUNT), np.tile(weight, COUNT), False)
        averaged = logsumexp(logs.reshape(COUNT, -1), axis=0) - np.log(COUNT)
        shares[j] = best_share(learned, averaged, weight, prior)
    return Fills.of(columns, shares, told, orders)


def _has_values(basis: Any) -> bool:
    return len(getattr(basis, "values_", ())) > 0 or bool(np.any(getattr(basis, "shares_", 0.0)))


def best_share(learned: Array, averaged: Array, weight: Array, prior: float = PRIOR_SHARE) -> float:
    """Return the weight of the first part of a mixture of two, given log densities of rows (n,).

    It is the mean of a posterior: before any rows, either part may be all that there is, the first
    with the probability ``prior``. ``weight`` (n,) is how often each row counts.
    """
    total = float(weight.sum())
    gain = np.nan_to_num(learned, nan=-np.inf) - np.nan_to_num(averaged, nan=-np.inf)
    gain = np.clip(np.nan_to_num(gain) - NATS / total, -MOST_GAIN, MOST_GAIN)
    shares = np.linspace(0.0, 1.0, SHARES)
    prior = float(np.clip(prior, 0.05, 0.95))
    log_prior = np.log(np.full(SHARES, BETWEEN / (SHARES - 2)))
    log_prior[[0, -1]] = np.log([(1.0 - BETWEEN) * (1.0 - prior), (1.0 - BETWEEN) * prior])
    with np.errstate(divide="ignore"):
        parts = np.logaddexp(np.log(shares)[:, None] + gain, np.log1p(-shares)[:, None])
    logs = log_prior + parts @ weight
    share = float(shares @ np.exp(logs - logsumexp(logs)))
    return 1.0 if share > ALL else 0.0 if share < 1.0 - ALL else share


def mixture_log_density(
    likelihoods: Sequence[Any], weights: Array, means: Array, variances: Array, y: Array
) -> Array:
    """Return log densities of targets (n,) under a mixture of S posteriors, (S, n) moments of f."""
    parts = [
        likelihood.predictive(mean, variance).logpdf(y)
        for likelihood, mean, variance in zip(likelihoods, means, variances, strict=True)
    ]
    return np.asarray(logsumexp(parts, axis=0, b=np.asarray(weights)[:, None]))


def without_itself(
    likelihood: Any, scale: float, y: Array, weight: Array, mean: Array, variance: Array
) -> tuple[Array, Array]:
    """Return the moments of f at training rows, as if each were not one: (n,) or (n, K).

    A row is taken for a Gaussian observation of f, with the weight and the working response of its
    likelihood, both times ``scale``.
    """
    rows = likelihood.rows(y, weight, mean, mean**2 + variance)
    most = MOST_LEVERAGE / np.maximum(variance, 1e-300)
    held = np.minimum(scale * rows.weight, most)
    response = rows.response * held / np.maximum(rows.weight, 1e-300)
    wider = variance / (1.0 - held * variance)
    return wider * (mean / np.maximum(variance, 1e-300) - response), wider
