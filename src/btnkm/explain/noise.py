"""Which inputs drive the noise: the factor of its standard deviation at each of their values.

Noise that varies has the precision tau exp(g(x)), where g is a sum of curves of the inputs. The
standard deviation is proportional to exp(-g / 2), so every curve multiplies it by a factor. The
functions of g have mean zero over the training rows, so the factors of an input have a geometric
mean of 1 over these rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import check_integer
from ..core.likelihoods import Varying
from ..core.sums import Sums
from ..predictive import mixed_variance
from .effects import POINTS, Effect, category_frequencies, half_width
from .fitted import FittedModel, PlainData

Array = np.ndarray


@dataclass(frozen=True)
class NoiseEffect(PlainData):
    """The factors by which the values of one input multiply the standard deviation of the noise.

    Attributes
    ----------
    name : the column's
    kind : str
        "number", "date", "duration" or "category".
    importance : float
        The variance of this input's part of g, the logarithm of the precision, as a fraction of the
        sum over all inputs.
    values : ndarray of shape (n,)
    factor : ndarray of shape (n,)
        Relative to the geometric mean over the training rows.
    low, high : ndarray of shape (n,)
        Ends of the credible interval, which has probability ``level``.
    level : float
    rows : ndarray of shape (n,) or (11,)
        The frequency of each category in the training rows without missing values; for numbers
        the deciles of the training rows, with both ends.
    spikes : dict
        Values with an indicator of their own: values, factor, low, high.
    missing : dict or None
        Factor, low and high of a missing number, if the training rows have any; a missing category
        is one of ``values``.
    """

    name: Any
    kind: str
    importance: float
    values: Array
    factor: Array
    low: Array
    high: Array
    level: float
    rows: Array
    spikes: dict[str, Array]
    missing: dict[str, float] | None

    def to_frame(self) -> Any:
        """Return a pandas frame with a row for each value."""
        import pandas as pd

        columns = {name: getattr(self, name) for name in ("factor", "low", "high")}
        return pd.DataFrame({str(self.name): self.values, **columns})

    def in_logs(self) -> Effect:
        """Return the binary logarithms of the factors, as an effect with bands."""
        wide = half_width(self.level)

        def moments(part: dict[str, Any]) -> tuple[Array, Array]:
            logs = [np.log2(part[name]) for name in ("factor", "low", "high")]
            return logs[0], (logs[2] - logs[1]) / (2.0 * wide)

        mean, std = moments({"factor": self.factor, "low": self.low, "high": self.high})
        spikes = dict(zip(("mean", "std"), moments(self.spikes), strict=True))
        missing = None
        if self.missing is not None:
            missing = dict(zip(("mean", "std"), moments(self.missing), strict=True))
        return Effect(
            self.name,
            self.kind,
            "log2 of the noise",
            self.values,
            mean,
            std,
            np.log2(self.low),
            np.log2(self.high),
            self.level,
            self.rows,
            {"values": self.spikes["values"], **spikes},
            missing,
            None,
        )


def noise_effects(model: Any, *, points: int = POINTS, level: float = 0.9) -> list[NoiseEffect]:
    """Return which inputs drive the noise and how, the most important input first.

    The list is empty if the noise is constant. Restarts count with their weights. Those with
    constant noise have a factor of 1 everywhere.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    points : int, default=100
        Number of values of a numeric input; all of them if it has fewer.
    level : float, default=0.9
        Probability of the credible interval, for which the logarithm of a factor is taken as
        normally distributed.

    Returns
    -------
    list of NoiseEffect

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm import BTNRegressor
    >>> from btnkm.explain import noise_effects
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(300, 2))
    >>> y = X[:, 0] + np.exp(X[:, 1]) * rng.standard_normal(300)
    >>> model = BTNRegressor(structure="sums", noise="varying").fit(X, y)
    >>> effect = noise_effects(model)[0]
    >>> effect.name, bool(effect.factor[0] < 0.6 < 1.8 < effect.factor[-1])
    ('x1', True)
    """
    check_integer("points", points, 2)
    view = FittedModel.of(model)
    wide = half_width(level)
    curves = [
        NoiseCurves(likelihood.sums if isinstance(likelihood, Varying) else None, mode_map)
        for likelihood, mode_map in zip(view.likelihoods, view.mode_maps, strict=True)
    ]
    variances = {j: float(view.mixed([c.variance(view, j) for c in curves])) for j in view.active}
    total = sum(variances.values())
    if not total > 0.0:
        return []
    order = sorted((j for j in variances if variances[j] > 0.0), key=lambda j: -variances[j])
    return [_effect(view, curves, j, points, wide, level, variances[j] / total) for j in order]


@dataclass(frozen=True)
class NoiseCurves:
    """The curves of g in one restart; ``sums`` is None where the noise is constant."""

    sums: Sums | None
    mode_map: Any

    @cached_property
    def inputs(self) -> set[int]:
        """Columns with functions that were kept."""
        modes = () if self.sums is None else self.sums.modes
        return {self.mode_map.noise_inputs[i] for i in modes}

    def moments(self, j: int, codes: Array) -> tuple[Array, Array]:
        """Return mean and variance of a column's part of g: (n,)."""
        if self.sums is None or j not in self.inputs:
            return np.zeros(len(codes)), np.zeros(len(codes))
        i = self.mode_map.noise_inputs.index(j)
        functions = np.asarray(self.mode_map.noise_effects[i].features(codes)[0])
        functions, places = functions[:, self.sums.modes[i]], self.sums.places(i)
        cov = self.sums.cov[0][np.ix_(places, places)]
        variance = np.einsum("np,pq,nq->n", functions, cov, functions)
        return functions @ self.sums.mean[0, places], np.maximum(variance, 0.0)

    def variance(self, view: FittedModel, j: int) -> float:
        """Return the expected variance of a column's part of g over the training rows."""
        if j not in self.inputs:
            return 0.0
        effect = self.mode_map.noise_effects[self.mode_map.noise_inputs.index(j)]
        codes, shares = _training_codes(view, j, effect)
        mean, variance = self.moments(j, codes)
        return float(shares @ (mean**2 + variance))


def _training_codes(view: FittedModel, j: int, effect: Any) -> tuple[Array, Array]:
    """Return coordinates of a column, and the fraction of the training rows that has each."""
    column = view.columns[j]
    if column.categories is not None:
        shares = np.asarray(column.basis.category_shares, dtype=float)
        codes = np.arange(len(shares), dtype=float)
    else:
        codes = np.asarray(column.basis.values_, dtype=float)
        shares = np.full(len(codes), 1.0 / max(len(codes), 1))
    if not effect.has_missing_:
        return codes, shares
    missing = float(effect.center_[-1])
    return np.append(codes, np.nan), np.append((1.0 - missing) * shares, missing)


def _effect(
    view: FittedModel,
    curves: Sequence[NoiseCurves],
    j: int,
    points: int,
    wide: float,
    level: float,
    importance: float,
) -> NoiseEffect:
    grid = view.grid(j, points)
    apart = np.full(int(grid.missing and view.columns[j].categories is None), np.nan)
    codes = np.concatenate([grid.codes, grid.spike_codes, apart])
    means, variances = zip(*(curve.moments(j, codes) for curve in curves), strict=True)
    # the standard deviation is exp(-g / 2)
    mean = -0.5 * view.mixed(means)
    std = 0.5 * np.sqrt(mixed_variance(view.weights, np.array(means), np.array(variances)))
    parts = {
        "factor": np.exp(mean),
        "low": np.exp(mean - wide * std),
        "high": np.exp(mean + wide * std),
    }
    n, k = len(grid.codes), len(grid.spike_codes)
    spikes = {"values": grid.spikes} | {name: v[n : n + k] for name, v in parts.items()}
    missing = {name: float(v[-1]) for name, v in parts.items()} if len(apart) else None
    rows = np.empty(0)
    if view.columns[j].categories is not None:
        rows = category_frequencies(view, j, grid.codes)
    elif n:
        rows = view.quantiles(j, np.linspace(0.0, 1.0, 11))
    return NoiseEffect(
        view.names[j],
        view.kind(j),
        importance,
        grid.values,
        parts["factor"][:n],
        parts["low"][:n],
        parts["high"][:n],
        level,
        rows,
        spikes,
        missing,
    )


def constant_noise(likelihood: Any) -> tuple[Any, bool]:
    """Return a likelihood without curves of its noise, and whether it has any."""
    if not isinstance(likelihood, Varying):
        return likelihood, False
    return likelihood.noise_at_zero, len(likelihood.sums.kept) > 0


def varies_with(effects: Sequence[NoiseEffect], most: int = 3) -> str:
    """Return "varies with a (62%), b (38%)"."""
    listed = [f"{effect.name} ({effect.importance:.0%})" for effect in effects[:most]]
    if len(effects) > most:
        listed.append(f"{len(effects) - most} more")
    return f"varies with {', '.join(listed)}"


def round_factors(low: float, high: float, most: int = 6) -> list[float]:
    """Return round factors between ``low`` and ``high``, for an axis of their logarithms."""
    if high < 5.0 * low:
        power = 10.0 ** math.floor(math.log10(high - low))
        for step in (0.2 * power, 0.25 * power, 0.5 * power, power, 2.0 * power):
            count = math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9) + 1
            if count <= most:
                return [round(step * (math.ceil(low / step - 1e-9) + k), 12) for k in range(count)]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [
        [digit * 10.0**p for p in powers[:: max(apart, 1)] for digit in digits]
        for digits, apart in (((1, 2, 5), 1), ((1,), 1), ((1,), 2), ((1,), len(powers) // 3))
    ]
    inside = [
        [m for m in every if low <= m * (1 + 1e-9) and m <= high * (1 + 1e-9)] for every in marks
    ]
    return next((every for every in inside if len(every) <= most), inside[-1])
