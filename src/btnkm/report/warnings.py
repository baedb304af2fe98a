"""What users should know before they rely on a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from ..core.arrays import here
from ..data.frames import as_numbers, split_columns
from ..explain.coverage import ENOUGH_ROWS, ConditionalCoverage
from ..explain.diagnostics import Calibration, Reliability
from ..explain.fitted import FittedModel
from .format import counted, listed, number, percent, shortened
from .intervals import percent_of, where
from .metrics import Evaluation

Array = np.ndarray
FEW_ROWS = 3.0  # rows for each weight of the model, below which there is a warning
LAST = 4  # sweeps; if the ELBO rises by MUCH per row in these, the fit has not converged
MUCH, LITTLE = 0.02, 10.0  # a rise of up to LITTLE times tol is fine
FAR, MATTERS = 0.05, 0.01  # fraction of the range beyond its end; importance of an input
FEW_TO_JUDGE = 50  # rows, below which metrics are uncertain
CLEARLY = 0.05  # by which an observed frequency differs from the predicted probability


@dataclass(frozen=True)
class Notice:
    """A warning if ``serious``, because predictions may mislead; else a note."""

    serious: bool
    title: str
    text: str


def notices(
    model: Any,
    importances: Array,
    X: Any = None,
    evaluation: Evaluation | None = None,
    moments: Any = None,
) -> list[Notice]:
    """Return what users should know of a fitted model, warnings first.

    ``importances`` (D,) are those of the inputs, X and ``evaluation`` are of rows that the fit has
    not seen, and ``moments`` are means and variances of f, each (S, n) or (S, n, K), at rows like
    the training rows.
    """
    fitted = FittedModel.of(model)
    every = [*_of_fit(model, fitted), *_of_restarts(fitted, moments), *_of_columns(fitted)]
    if X is not None:
        every += _of_rows(fitted, importances, X)
    if evaluation is not None:
        every += _of_evaluation(evaluation)
        every += _of_the_same_rows(model, evaluation)
    return sorted(every, key=lambda notice: not notice.serious)


def _of_fit(model: Any, fitted: FittedModel) -> Iterator[Notice]:
    """Yield whether the fit converged, and whether its size suits the rows."""
    rows = max(model.n_samples_seen_, 1)
    if not model.converged_:
        last = model.lower_bounds_[-LAST - 1 :]
        gain = float(last[-1] - last[0]) / rows
        if gain > MUCH:
            text = f"{model.stop_reason_} The ELBO was still rising. A larger max_iter may improve "
            yield Notice(True, "Not converged", f"{text}the predictions.")
        elif gain > LITTLE * model.tol:
            text = (
                f"{model.stop_reason_} The last sweeps of the best restart changed little. This is "
                "common. A larger max_iter would hardly change the predictions."
            )
            yield Notice(False, "Nearly converged", text)
    weights, full = _n_weights(model, fitted), fitted.is_full
    if rows < FEW_ROWS * weights and not full:
        yield _few_rows(model, fitted, rows, weights)
    limited = isinstance(model.max_rank, int) and not full
    if limited and np.max(model.rank_) >= model.max_rank > 1:
        text = f"The rank reached max_rank={model.max_rank}. A larger max_rank may fit better."
        yield Notice(False, "Maximum rank reached", text)


def _few_rows(model: Any, fitted: FittedModel, rows: int, weights: int) -> Notice:
    """Return the warning of a model with more weights than its rows determine."""
    tensor, several = np.any(model.rank_), len(fitted.active) > 1
    title, advice, rank = "Few rows for the main effects", "More rows", ""
    if tensor:
        title = "Few rows for the rank" if several else "Few rows for the basis functions"
        advice = f"A smaller {'max_rank or n_basis' if several else 'n_basis'}, or more rows,"
        ranks = ", ".join(map(str, np.atleast_1d(model.rank_).tolist()))
        rank = f" (rank {ranks})" if several else ""
    text = (
        f"There are {counted(rows, 'row')} for {counted(weights, 'weight')}{rank}, so the prior "
        "has a strong influence. The intervals take this into account. "
        f"{advice} would reduce the uncertainty."
    )
    return Notice(False, title, text)


def _n_weights(model: Any, fitted: FittedModel) -> int:
    """Return the number of weights of the best restart, with those of the main effects."""
    state = fitted.posteriors[fitted.best_restart]
    if fitted.is_full:
        return len(state.share)
    count = 0 if state.sums is None else int(state.sums.mean.size)
    ranks = np.atleast_1d(model.rank_)
    if not np.any(ranks):
        return count
    inputs = fitted.mode_maps[fitted.best_restart].inputs
    functions = int(np.sum(model.n_basis_[inputs]))
    if len(inputs) == 1:  # components of one input add up to one curve
        return count + functions
    if len(ranks) == 1:
        return count + functions * int(ranks[0])
    sizes = [1, *ranks.tolist(), 1]
    cores = zip(model.mode_order_[: len(inputs)], sizes[:-1], sizes[1:], strict=False)
    return count + int(sum(model.n_basis_[j] * left * right for j, left, right in cores))


def _of_restarts(fitted: FittedModel, moments: Any) -> Iterator[Notice]:
    """Yield whether there is an effect, and whether the restarts agree on it."""
    if moments is None:
        return
    means, variances = moments
    weights = fitted.weights
    if fitted.found_nothing:
        yield Notice(
            True,
            "No effect was found",
            "The data show no effect of any input. There may be too few rows, or the "
            "inputs may be unrelated to the target.",
        )
    elif len(means) > 1:
        mixed = np.tensordot(weights, means, 1)
        between = float(np.mean(np.tensordot(weights, (means - mixed) ** 2, 1)))
        if between > float(np.mean(np.var(mixed, axis=0))) / 3.0:
            yield Notice(
                True,
                "The restarts disagree",
                f"The {len(means)} restarts found different functions. Predictions are their "
                "weighted average, and intervals include their differences. More rows or fewer "
                "inputs would help.",
            )


def _quoted(column: Any) -> str:
    return f"“{shortened(column.name, 30)}”"


def _of_columns(fitted: FittedModel) -> Iterator[Notice]:
    """Yield which inputs are constant."""
    constant = [_quoted(c) for j, c in enumerate(fitted.columns) if j not in set(fitted.active)]
    if constant:
        yield Notice(
            False,
            "Constant inputs" if len(constant) > 1 else "A constant input",
            f"{listed(constant)} had the same value in every training row, so the model ignores "
            f"{'them' if len(constant) > 1 else 'it'}.",
        )


def _of_rows(fitted: FittedModel, importances: Array, X: Any) -> Iterator[Notice]:
    """Yield how new rows differ from the training rows."""
    raw, _ = split_columns(X, least=0)
    beyond: dict[str, int] = {}
    unseen: dict[str, int] = {}
    missing: dict[str, int] = {}
    n = len(raw[0])
    any_beyond, far_beyond = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    for j in fitted.active:
        column, values = fitted.columns[j], here(raw[j])
        name, codes = _quoted(column), here(column.encode(values))
        if not column.basis.knows_missing and np.any(np.isnan(codes)):
            missing[name] = int(np.sum(np.isnan(codes)))
        if column.categories is not None:
            if np.any(codes < 0):
                unseen[name] = int(np.sum(codes < 0))
        elif len(column.knots):
            numbers = as_numbers(values)
            numbers = numbers.astype(float) if numbers.dtype != object else codes
            low, high = column.knots[0], column.knots[-1]
            out = np.maximum(low - numbers, numbers - high)  # NaN where missing
            if np.any(out > 0):
                beyond[name] = int(np.sum(out > 0))
                any_beyond |= out > 0
                far_beyond |= (out > FAR * (high - low)) & (importances[j] >= MATTERS)
    if beyond:
        count = int(any_beyond.sum())
        text = (
            f"{count:,} of {n:,} rows ({percent(count / n)}) have values outside the range of the "
            f"training rows, in {_with_counts(beyond)}. {fitted.rule_beyond}"
        )
        yield Notice(int(far_beyond.sum()) > 0.05 * n, "Extrapolation", text)
    if unseen:
        text = (
            f"There are categories that no training row has in {_with_counts(unseen)}. For these "
            "the model averages over the categories of the training rows."
        )
        yield Notice(sum(unseen.values()) > 0.1 * n, "New categories", text)
    if missing:
        text = (
            f"There are missing values in {_with_counts(missing)}, but none in the training rows. "
            "For these the model averages over the values of the training rows."
        )
        yield Notice(sum(missing.values()) > 0.1 * n, "Missing values", text)


def _with_counts(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return listed([f"{name} ({counted(count, 'row')})" for name, count in ordered])


def _of_the_same_rows(model: Any, evaluation: Evaluation) -> Iterator[Notice]:
    if not evaluation.folds and evaluation.n == model.n_samples_seen_:
        yield Notice(
            False,
            "As many rows as in the fit",
            f"The model was also fitted to {counted(evaluation.n, 'row')}. If these are the same "
            "rows, the metrics are too good. With cv=5, each row is predicted by a model that has "
            "not seen it.",
        )


def _of_evaluation(evaluation: Evaluation) -> Iterator[Notice]:
    """Yield whether intervals and probabilities are right, and predictions of any use."""
    if evaluation.n < FEW_TO_JUDGE:
        rows = counted(evaluation.n, "row")
        yield Notice(False, "Few rows to test on", f"With only {rows}, the metrics are uncertain.")
    if isinstance(evaluation.calibration, Reliability):
        yield from _of_probabilities(evaluation, evaluation.calibration)
    else:
        yield from _of_intervals(evaluation, evaluation.calibration)


def _of_intervals(evaluation: Evaluation, calibration: Calibration) -> Iterator[Notice]:
    k = int(np.argmin(np.abs(calibration.levels - 0.95)))
    coverage, n = float(calibration.coverage[k]), evaluation.n
    by_chance = binomtest(round(coverage * n), n, 0.95).pvalue
    if by_chance < 0.01 and abs(coverage - 0.95) > 0.02:
        narrow = coverage < 0.95
        advice = "too narrow: expect larger errors" if narrow else "wider than necessary"
        text = f"The 95% intervals contain {percent(coverage, 1)} of the {n:,} rows. They are "
        yield Notice(narrow, "Wrong coverage of intervals", f"{text}{advice}.")
    groups = evaluation.coverage
    if groups is not None and groups.failures and groups.n >= ENOUGH_ROWS:
        yield _wrong_somewhere(groups)
    first = evaluation.metrics[0]
    if first.name == "R²" and first.value < 0.05:
        text = f"R² is {number(first.value, 2)}: predictions are hardly better than the mean of y."
        yield Notice(True, "Predictions explain almost nothing", text)


def _wrong_somewhere(coverage: ConditionalCoverage) -> Notice:
    """Return in which groups of rows the intervals fail."""
    narrow = [failure for failure in coverage.failures if failure.too_narrow]
    shown = narrow or coverage.failures
    listed_groups = [f"{where(part)} ({percent(part.coverage)})" for part in shown]
    text = (
        f"The {percent_of(coverage.level)} intervals contain too {'few' if narrow else 'many'} "
        f"rows in {len(shown)} of {coverage.n_groups} groups: {listed(listed_groups, 4)}. The "
        "section “Do the intervals hold everywhere?” has more."
    )
    return Notice(bool(narrow), "Intervals do not hold everywhere", text)


def _of_probabilities(evaluation: Evaluation, reliability: Reliability) -> Iterator[Notice]:
    columns = reliability.predicted, reliability.observed, reliability.low, reliability.high
    outside = sum(
        int(np.sum(((seen < low) | (seen > high)) & (np.abs(seen - predicted) > CLEARLY)))
        for predicted, seen, low, high in zip(*columns, strict=True)
    )
    total = sum(map(len, reliability.observed))
    if total and outside > 0.3 * total and evaluation.n >= FEW_TO_JUDGE:
        text = (
            "Rows with similar predicted probabilities were put into groups. In "
            f"{outside} of {total} groups the class was clearly more or less frequent than "
            "predicted."
        )
        yield Notice(True, "Wrong probabilities", text)
    loss = next(metric for metric in evaluation.metrics if metric.name == "Log loss")
    if loss.without is not None and loss.value > loss.without:
        text = "The log loss is no better than if the class frequencies were always predicted."
        yield Notice(True, "Predictions explain almost nothing", text)
