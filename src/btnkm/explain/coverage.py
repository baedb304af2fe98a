"""Whether intervals hold everywhere: their coverage in groups of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import beta, binomtest

from ..checks import check_integer
from ..core.arrays import here
from ..data.frames import as_numbers, category_name, objects, split_columns
from ..predictive import check_level
from .diagnostics import checked_rows
from .fitted import MISSING, FittedModel, PlainData, in_units

Array = np.ndarray
SPREAD, RANGE = "predicted spread", "range of the training rows"
NEW = "(not in the training rows)"
BINS = 5
LEAST_ROWS = 25  # of a range of numbers: fewer would hardly tell anything
ENOUGH_ROWS = 2 * LEAST_ROWS  # for the report and the program to show groups
MOST_CATEGORIES, FEW_ROWS = 10, 10  # of an input, and of a category; the others are one group
# A difference in coverage that does not matter, however certain it is: this, or half of 1 - level
MATTERS = 0.02
_DAY = 86_400e6  # microseconds


class Intervals(NamedTuple):
    """Central intervals of rows, and how often they should contain y: all (n,).

    The intervals of counts contain more than their level, because counts are whole: ``expected`` is
    what their distribution says.
    """

    low: Array
    high: Array
    spread: Array
    expected: Array

    @classmethod
    def of(cls, distribution: Any, level: float = 0.95) -> Intervals:
        """Return those of a predictive distribution, with its standard deviation."""
        low, high = distribution.interval(level).T
        expected = np.full(len(low), float(level))
        if distribution.discrete:
            expected = distribution.cdf(high) - distribution.cdf(low - 1.0)
        return cls(low, high, np.asarray(distribution.std), expected)

    @classmethod
    def joined(cls, parts: Sequence[Intervals], places: Sequence[Array]) -> Intervals:
        """Return those of all rows, from those of the folds and the rows of each."""
        order = np.argsort(np.concatenate(places))
        columns = zip(*parts, strict=True)
        return cls(*(np.concatenate(column)[order] for column in columns))


class Property(NamedTuple):
    """What rows are grouped by: numbers, dates or durations (NaN, NaT), or names (None) (n,)."""

    name: Any
    kind: str
    values: Array


@dataclass(frozen=True)
class GroupedCoverage(PlainData):
    """Coverage of intervals in groups of rows, by one property of the rows.

    Attributes
    ----------
    name : "predicted spread", "range of the training rows", or the column's
    kind : str
        "spread", "range", "number", "date", "duration" or "category".
    labels : list of str
        The range of values, the category, or "(missing)".
    lowest, highest : ndarray of shape (groups,)
        The smallest and the largest value in each group: NaN or NaT for missing values, and None
        for categories.
    rows, inside : ndarray of int
        Rows of each group, and those whose y is in its interval.
    coverage : ndarray
        ``inside / rows``.
    low, high : ndarray
        Ends of the Clopper-Pearson confidence interval of the coverage of each group.
    expected : ndarray
        The level; for counts the mean probability of the intervals, which is higher.
    width : ndarray
        Mean width of the intervals.
    p_value : ndarray
        Of the exact binomial test that the coverage is ``expected``, not corrected.
    differs : ndarray of bool
        Whether the coverage clearly differs from what is expected, in view of all groups.
    """

    name: Any
    kind: str
    labels: list[str]
    lowest: Array
    highest: Array
    rows: Array
    inside: Array
    coverage: Array
    low: Array
    high: Array
    expected: Array
    width: Array
    p_value: Array
    differs: Array

    @property
    def lowest_shown(self) -> float:
        """Where a picture begins: confidence intervals of a few rows may go beyond."""
        return float(np.min(np.where(self.rows < FEW_ROWS, self.coverage, self.low)))

    def to_frame(self) -> Any:
        """Return a pandas frame with a row for each group."""
        import pandas as pd

        names = ("rows", "inside", "coverage", "low", "high", "expected", "width", "differs")
        columns = {name: getattr(self, name) for name in names}
        return pd.DataFrame(columns, index=pd.Index(self.labels, name=str(self.name)))


@dataclass(frozen=True)
class CoverageFailure(PlainData):
    """A group of rows in which the coverage clearly differs from what is expected.

    Attributes
    ----------
    name : "predicted spread", "range of the training rows", or the column's
    group : str
        The label of the group.
    rows : int
    coverage, expected : float
    p_value : float
        Corrected for the number of groups.
    too_narrow : bool
        Whether intervals contain too few rows, rather than too many.
    """

    name: Any
    group: str
    rows: int
    coverage: float
    expected: float
    p_value: float
    too_narrow: bool

    def __str__(self) -> str:
        """Return the group and its coverage."""
        rows = f"{self.rows:,} row{'' if self.rows == 1 else 's'}"
        return f"{self.name}: {self.group} ({self.coverage:.1%} of {rows} inside)"


@dataclass(frozen=True)
class ConditionalCoverage(PlainData):
    """Coverage of intervals on rows with known y, in groups of similar rows.

    Attributes
    ----------
    level, confidence : float
        The level of the intervals, and that of the confidence intervals of coverages.
    n : int
        Rows.
    coverage, low, high : float
        The fraction of all rows in their intervals, and its confidence interval.
    expected, width : float
        The coverage that the distributions predict, and the mean width of the intervals.
    n_groups : int
    groups : list of GroupedCoverage
        By predicted spread, then by inputs: first those with the clearest differences.
    failures : list of CoverageFailure
        Groups that clearly differ, the clearest first.
    conclusion : str
        The same in words.
    """

    level: float
    confidence: float
    n: int
    coverage: float
    low: float
    high: float
    expected: float
    width: float
    n_groups: int
    groups: list[GroupedCoverage]
    failures: list[CoverageFailure]
    conclusion: str


def conditional_coverage(
    model: Any,
    X: Any,
    y: Any,
    level: float = 0.95,
    *,
    bins: int = BINS,
    confidence: float = 0.95,
    alpha: float = 0.01,
) -> ConditionalCoverage:
    """Return whether intervals hold in groups of similar rows, on rows the fit has not seen.

    Intervals may contain the right fraction of all rows, and yet be too narrow in some rows and too
    wide in others. Rows are grouped by predicted spread, the standard deviation of y, and by each
    input: numbers by quantiles, categories by name (the rarest are one group), missing values and
    categories that no training row has apart. If numbers are outside the range of the training
    rows, rows with such a number are a group as well.

    A group is in ``failures`` if an exact binomial test, corrected for the number of groups by
    Holm's method, finds that its coverage differs from the level, and if the difference matters: it
    is at least 0.02, or half of ``1 - level``.

    Parameters
    ----------
    model : BTNRegressor, fitted
    X : table of shape (n, inputs)
    y : array of shape (n,), or the name of a column of X
    level : float, default=0.95
        Level of the intervals.
    bins : int, default=5
        The number of ranges of a number; fewer if they would have less than 25 rows each.
    confidence : float, default=0.95
        Level of the confidence intervals of coverages.
    alpha : float, default=0.01
        If intervals are right, the probability that any group is among the failures is at most
        this.

    Returns
    -------
    ConditionalCoverage

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm import BTNRegressor
    >>> from btnkm.explain import conditional_coverage
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(900, 2))
    >>> y = X[:, 0] + np.exp(X[:, 1]) * rng.standard_normal(900)
    >>> model = BTNRegressor(structure="sums", noise="constant").fit(X[:300], y[:300])
    >>> result = conditional_coverage(model, X[300:], y[300:])
    >>> result.failures[0].name
    'x1'
    """
    if hasattr(model, "classes_"):
        raise TypeError(
            "model must be a regressor to have intervals of y, got a classifier; use calibration."
        )
    X, y = checked_rows(model, X, y)
    intervals = Intervals.of(model.predict_dist(X), level)
    return coverage_of(
        intervals, y, properties(model, X), level, bins=bins, confidence=confidence, alpha=alpha
    )


def coverage_of(
    intervals: Intervals,
    y: Array,
    inputs: Sequence[Property],
    level: float = 0.95,
    *,
    bins: int = BINS,
    confidence: float = 0.95,
    alpha: float = 0.01,
) -> ConditionalCoverage:
    """Return the coverage of intervals of y (n,) in groups of rows, by spread and by inputs."""
    check_integer("bins", bins, 2)
    for given in (level, confidence, alpha):
        check_level(given)
    inside = (intervals.low <= y) & (y <= intervals.high)
    if len(y) == 0:
        raise ValueError("X must have at least one row, got none; give rows with known y.")
    measured = intervals, inside, confidence
    spread = Property(SPREAD, "spread", intervals.spread)
    grouped = [
        _measured(prop, places, labels, *measured)
        for prop in (spread, *inputs)
        for places, labels in [_groups(prop, bins)]
        if len(labels) > 1
    ]
    grouped, failures = _judged(grouped, level, alpha)
    by_inputs = sorted(
        (part for part in grouped if part.kind != "spread"),
        key=lambda part: (not np.any(part.differs), float(np.min(part.p_value))),
    )
    low, high = clopper_pearson(np.sum(inside), len(y), confidence)
    n_groups = sum(len(part.labels) for part in grouped)
    return ConditionalCoverage(
        float(level),
        float(confidence),
        len(y),
        float(np.mean(inside)),
        float(low),
        float(high),
        float(np.mean(intervals.expected)),
        float(np.mean(intervals.high - intervals.low)),
        n_groups,
        [part for part in grouped if part.kind == "spread"] + by_inputs,
        failures,
        _conclusion(level, n_groups, failures),
    )


def properties(model: Any, X: Any) -> list[Property]:
    """Return the inputs that a fitted model may use, with their values in the rows X.

    If any value is outside the range of the training rows, whether a row has such a value is one
    more property.
    """
    view = FittedModel.of(model)
    raw, _ = split_columns(X)
    inputs, outside = [], np.zeros(len(raw[0]), dtype=bool)
    for j in view.active:
        column, kind, values = view.columns[j], view.kind(j), here(raw[j])
        if column.categories is not None:
            values = _names(values)
            known = [v if v is None or v in column.categories else NEW for v in values.tolist()]
            values = objects(known)
        elif values.dtype == object:  # numbers as objects
            values = np.array([np.nan if v is None else float(v) for v in values.tolist()])
        if len(column.knots):
            numbers = as_numbers(values)
            outside |= (numbers < column.knots[0]) | (numbers > column.knots[-1])
        inputs.append(Property(view.names[j], kind, values))
    if np.any(outside):
        places = objects(["outside" if out else "inside" for out in outside.tolist()])
        inputs.append(Property(RANGE, "range", places))
    return inputs


def _names(values: Array) -> Array:
    """Return the names of categories, None where missing."""
    if values.dtype == object:
        return values
    return objects([None if v != v else category_name(v) for v in values.tolist()])


def _groups(prop: Property, bins: int) -> tuple[Array, list[str]]:
    """Return the group of every row (n,), and the labels of the groups."""
    if prop.kind in ("category", "range"):
        return _by_name(prop.values)
    numbers = as_numbers(prop.values)
    known = ~np.isnan(numbers)
    count = int(np.clip(known.sum() // LEAST_ROWS, 1, bins))
    places = np.full(len(numbers), -1)
    labels: list[str] = []
    if np.any(known):
        at = np.arange(1, count + 1) / count
        edges = np.unique(np.quantile(numbers[known], at, method="inverted_cdf"))
        places[known] = np.searchsorted(edges, numbers[known])
        labels = _ranges(prop.values, places, len(edges))
    if not np.all(known):
        places[~known] = len(labels)
        labels.append(MISSING)
    return places, labels


def _by_name(values: Array) -> tuple[Array, list[str]]:
    """Return groups of categories, the most frequent first; the rarest may be one group."""
    items = values.tolist()
    names = [v for v in items if v is not None and v != NEW]
    distinct, counts = np.unique(np.array(names, dtype=object), return_counts=True)
    order = [str(v) for v in distinct[np.argsort(-counts, kind="stable")]]
    frequent = int(np.sum(counts >= FEW_ROWS))
    most = MOST_CATEGORIES if frequent == len(order) <= MOST_CATEGORIES else MOST_CATEGORIES - 1
    shown = order[: min(frequent, most)]
    others = order[len(shown) :]
    labels = shown + ([f"{len(others)} others"] if len(others) > 1 else others)
    place: dict[Any, int] = {name: k for k, name in enumerate(shown)}
    place.update(dict.fromkeys(others, len(shown)))
    for value, label in ((NEW, NEW), (None, MISSING)):
        if value in items:
            place[value] = len(labels)
            labels.append(label)
    return np.array([place[v] for v in items], dtype=int), labels


def _ranges(values: Array, places: Array, count: int) -> list[str]:
    """Return "1.5 to 2.3" for each range, with as many digits as its ends need."""
    ends = np.array([_ends(values, places == k) for k in range(count)])
    if ends.dtype.kind == "M":
        days = np.ptp(ends.astype("M8[us]").astype(np.int64)) / _DAY
        dates = ends.astype(f"M8[{'m' if days < 10 else 'D' if days < 300 else 'M'}]").astype(str)
        days_of = np.char.replace(dates, "T", " ").tolist()
        return [low if low == high else f"{low} to {high}" for low, high in days_of]
    ends, unit = in_units(ends)
    unit = f" {unit.strip(' ()')}" if unit else ""
    pairs: list[tuple[str, str]] = []
    for decimals in range(_decimals(ends), 12):
        pairs = [(_text(low, decimals), _text(high, decimals)) for low, high in ends.tolist()]
        single = zip(ends.tolist(), pairs, strict=True)
        if all(
            low != high if a < b else np.isclose(float(low), a) for (a, b), (low, high) in single
        ):
            break
    return [f"{low}{unit}" if low == high else f"{low} to {high}{unit}" for low, high in pairs]


def _decimals(ends: Array) -> int:
    """Return how many decimals to begin with: none for whole numbers, or numbers far apart."""
    if np.all(ends == np.round(ends)) or not np.all(np.isfinite(ends)):
        return 0
    span = np.ptp(ends) or np.max(np.abs(ends))
    return int(np.clip(1 - np.floor(np.log10(span) + 0.05), 0, 11))


def _text(value: float, decimals: int) -> str:
    """Return a number with so many decimals, or in short if it is very large or very small."""
    text = f"{value:.{decimals}f}"
    if abs(value) >= 1e7:
        text = f"{value:.{min(4 + decimals, 15)}g}"
    elif value and decimals > 7:
        text = f"{value:.4g}"
    return text if float(text) else text.lstrip("-")


def _ends(values: Array, chosen: Array) -> tuple[Any, Any]:
    """Return the smallest and the largest of some values; NaN, NaT or None if none is known."""
    if values.dtype == object:
        return None, None
    part = values[chosen]
    known = part[part == part]
    return (known.min(), known.max()) if len(known) else (part[0], part[0])


def _measured(
    prop: Property,
    places: Array,
    labels: list[str],
    intervals: Intervals,
    inside: Array,
    confidence: float,
) -> GroupedCoverage:
    """Return the coverage in groups; none is judged yet."""
    size = len(labels)
    rows = np.bincount(places, minlength=size)
    hits = np.bincount(places, inside, size).astype(int)
    expected = np.round(np.bincount(places, intervals.expected, size) / rows, 9)
    expected = np.clip(expected, 0.0, 1.0 - 1e-9)
    ends = np.array([_ends(prop.values, places == k) for k in range(size)])
    tests = zip(hits.tolist(), rows.tolist(), expected.tolist(), strict=True)
    return GroupedCoverage(
        prop.name,
        prop.kind,
        labels,
        ends[:, 0],
        ends[:, 1],
        rows,
        hits,
        hits / rows,
        *clopper_pearson(hits, rows, confidence),
        expected,
        np.bincount(places, intervals.high - intervals.low, size) / rows,
        np.array([binomtest(*test).pvalue for test in tests]),
        np.zeros(size, dtype=bool),
    )


def clopper_pearson(hits: Any, rows: Any, confidence: float) -> tuple[Array, Array]:
    """Return the exact confidence interval of a probability, from ``hits`` in ``rows``."""
    tail = 0.5 * (1.0 - confidence)
    hits, rows = np.asarray(hits, dtype=float), np.asarray(rows, dtype=float)
    with np.errstate(invalid="ignore"):
        low, high = beta.ppf(tail, hits, rows - hits + 1), beta.isf(tail, hits + 1, rows - hits)
    return np.where(hits == 0, 0.0, low), np.where(hits == rows, 1.0, high)


def holm(p_values: Array) -> Array:
    """Return p-values corrected for their number by Holm's method."""
    order = np.argsort(p_values)
    steps = p_values[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def _judged(
    grouped: list[GroupedCoverage], level: float, alpha: float
) -> tuple[list[GroupedCoverage], list[CoverageFailure]]:
    """Return the groups with ``differs``, and the failures, the clearest first."""
    if not grouped:
        return [], []
    corrected = holm(np.concatenate([part.p_value for part in grouped]))
    ends = np.cumsum([len(part.labels) for part in grouped])
    judged: list[GroupedCoverage] = []
    failures: list[CoverageFailure] = []
    for part, p in zip(grouped, np.split(corrected, ends[:-1]), strict=True):
        gaps = np.abs(part.coverage - part.expected)
        differs = (p < alpha) & (gaps >= min(MATTERS, 0.5 * (1.0 - level)))
        judged.append(GroupedCoverage(**{**vars(part), "differs": differs}))
        failures += _failures(part, p, differs)
    return judged, sorted(failures, key=lambda failure: failure.p_value)


def _failures(part: GroupedCoverage, p: Array, differs: Array) -> Iterator[CoverageFailure]:
    for k in np.flatnonzero(differs).tolist():
        coverage, expected = float(part.coverage[k]), float(part.expected[k])
        group = part.labels[k]
        yield CoverageFailure(
            part.name,
            group,
            int(part.rows[k]),
            coverage,
            expected,
            float(p[k]),
            coverage < expected,
        )


def _conclusion(level: float, n_groups: int, failures: list[CoverageFailure]) -> str:
    intervals = f"{100.0 * level:.3g}% intervals"
    if not n_groups:
        return f"There are too few rows to judge the {intervals} in groups."
    if not failures:
        return (
            f"In none of the {n_groups} groups does the coverage of the {intervals} clearly differ "
            "from what it should be."
        )
    listed = [str(failure) for failure in failures[:5]]
    if len(failures) > 5:
        listed.append(f"{len(failures) - 5} more")
    return (
        f"In {len(failures)} of {n_groups} groups, the coverage of the {intervals} clearly differs "
        f"from what it should be: {'; '.join(listed)}."
    )
