"""What a user should know before trusting a model, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from ..core.arrays import here
from ..core.posterior import found_nothing
from ..data.frames import as_numbers, split_columns
from ..explain.diagnostics import Calibration
from .format import counted, listed, number, percent, shortened
from .metrics import Goodness

Array = np.ndarray
FEW_ROWS = 3.0  # rows for each weight of the network, below which it is told
LAST = 4  # sweeps that tell whether more of them would help, by what they gained a row:
MUCH, LITTLE = 0.02, 10.0  # so much is grave; below so many tolerances nothing need be said
FAR, MATTERS = 0.05, 0.01  # beyond a range, as a share of it; of the variance
FEW_TO_JUDGE = 50  # rows, below which figures are rough themselves
CLEARLY = 0.05  # by which a share is another than the probability that was given


@dataclass(frozen=True)
class Remark:
    """A sentence or two; ``grave`` where predictions may mislead."""

    grave: bool
    title: str
    text: str


def remarks(
    model: Any,
    shares: Array,
    X: Any = None,
    good: Goodness | None = None,
    drawn: Any = None,
) -> list[Remark]:
    """Return what is to be said of a fitted model, the grave first.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier
    shares : ndarray of shape (D,)
        Of the variance that each input explains.
    X : table of rows that should not have been in the fit, or None
    good : Goodness of such rows, or None
    drawn : tuple of ndarray of shape (S, n) or (S, n, K), or None
        Means and variances of f at some rows like those of the fit.
    """
    found = [*_of_fit(model), *_of_findings(model, drawn), *_of_columns(model)]
    if X is not None:
        found += _of_rows(model, shares, X)
    if good is not None:
        found += _of_figures(good)
        found += _of_the_same_rows(model, good)
    return sorted(found, key=lambda remark: not remark.grave)


def _of_fit(model: Any) -> Iterator[Remark]:
    bounds, rows = model.lower_bounds_, max(model.n_samples_seen_, 1)
    if not model.converged_:
        last = bounds[-LAST - 1 :]
        gained = float(last[-1] - last[0]) / rows
        if gained > MUCH:
            yield Remark(
                True,
                "Not converged",
                f"The fit ended while it was still improving. {model.stop_reason_} "
                "Predictions may become better with a larger max_iter.",
            )
        elif gained > LITTLE * model.tol:
            yield Remark(
                False,
                "Nearly converged",
                f"{model.stop_reason_} The last sweeps of the best restart changed little, as in "
                "most fits: more of them (a larger max_iter) would change predictions little.",
            )
    weights = _weights(model)
    full = model.fitted_.is_full
    if rows < FEW_ROWS * weights and not full:
        tensor, several = np.any(model.rank_), len(model.fitted_.active) > 1
        rank = f" (rank {_rank_text(model.rank_)})" if tensor and several else ""
        smaller = "a smaller max_rank or n_basis" if several else "a smaller n_basis"
        title = "Few rows for the rank" if several else "Few rows for the curve"
        yield Remark(
            False,
            title if tensor else "Few rows for the main effects",
            f"There are {counted(rows, 'row')} for {counted(weights, 'weight')}{rank}: the prior "
            "does much of the work. Intervals take this into account; "
            f"{f'{smaller}, or more rows,' if tensor else 'more rows'} would make the model surer.",
        )
    limited = isinstance(model.max_rank, int) and not full
    if limited and np.max(model.rank_) >= model.max_rank > 1:
        yield Remark(
            False,
            "Every component was of use",
            f"The rank reached max_rank={model.max_rank}. A larger one may fit better.",
        )


def _weights(model: Any) -> int:
    """Return the number of weights of the best restart, those of main effects included."""
    state = model.posterior_[model.best_restart_]
    if model.fitted_.is_full:
        return len(state.share)
    sums = state.sums
    count = 0 if sums is None else int(sums.mean.size)
    ranks = np.atleast_1d(model.rank_)
    if not np.any(ranks):
        return count
    inputs = model.fitted_.mode_maps[model.best_restart_].inputs
    functions = int(np.sum(model.n_basis_[inputs]))
    if len(inputs) == 1:  # components of one input add up to one curve
        return count + functions
    if len(ranks) == 1:
        return count + functions * int(ranks[0])
    sizes = [1, *ranks.tolist(), 1]
    order = model.mode_order_[: len(inputs)]
    pairs = zip(order, sizes[:-1], sizes[1:], strict=False)
    return count + int(sum(model.n_basis_[j] * left * right for j, left, right in pairs))


def _rank_text(rank: Any) -> str:
    return ", ".join(map(str, np.atleast_1d(rank).tolist()))


def _of_findings(model: Any, drawn: Any) -> Iterator[Remark]:
    if drawn is None:
        return
    means, variances = drawn
    weights = model.weights_
    if found_nothing(weights, means, variances):
        yield Remark(
            True,
            "No effect was found",
            "No input was found to have an effect: the prediction is nearly the same in all rows. "
            "The rows may be too few, or the inputs may say nothing about the target.",
        )
    elif len(means) > 1:
        mixed = np.tensordot(weights, means, 1)
        between = float(np.mean(np.tensordot(weights, (means - mixed) ** 2, 1)))
        if between > float(np.mean(np.var(mixed, axis=0))) / 3.0:
            yield Remark(
                True,
                "The restarts disagree",
                f"The {len(means)} restarts found rather different functions; predictions are "
                "their weighted average, and intervals count their differences. More rows or "
                "fewer inputs would help.",
            )


def _of_columns(model: Any) -> Iterator[Remark]:
    constant = [j for j in range(len(model.columns_)) if j not in set(model.fitted_.active)]
    if constant:
        names = [f"“{shortened(model.columns_[j].name, 30)}”" for j in constant]
        yield Remark(
            False,
            "Inputs that never vary" if len(constant) > 1 else "An input that never varies",
            f"{listed(names)} had the same value in every row of the fit, and can have no part in "
            "predictions.",
        )


def _of_rows(model: Any, shares: Array, X: Any) -> Iterator[Remark]:
    """Yield what is unlike the rows of the fit in new ones."""
    raw, _ = split_columns(X, least=0)
    beyond: dict[str, int] = {}
    never: dict[str, int] = {}
    gaps: dict[str, int] = {}
    n = len(raw[0])
    any_beyond, far_beyond = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    for j in model.fitted_.active:
        column, values = model.columns_[j], here(raw[j])
        name = f"“{shortened(column.name, 30)}”"
        codes = here(column.encode(values))
        if not column.basis.knows_gaps and np.any(np.isnan(codes)):
            gaps[name] = int(np.sum(np.isnan(codes)))
        if column.levels is not None:
            if np.any(codes < 0):
                never[name] = int(np.sum(codes < 0))
        elif len(column.knots):
            numbers = as_numbers(values)
            numbers = numbers.astype(float) if numbers.dtype != object else codes
            low, high = column.knots[0], column.knots[-1]
            out = np.maximum(low - numbers, numbers - high)  # NaN where missing
            if np.any(out > 0):
                beyond[name] = int(np.sum(out > 0))
                any_beyond |= out > 0
                far_beyond |= (out > FAR * (high - low)) & (shares[j] >= MATTERS)
    if beyond:
        count = int(any_beyond.sum())
        yield Remark(
            int(far_beyond.sum()) > 0.05 * n,
            "Extrapolation",
            f"{count:,} of {n:,} rows ({percent(count / n)}) have values beyond the range of the "
            f"fit, in {_with_counts(beyond)}. There the prediction stays what it is at the nearer "
            "end of the range, and its interval does not grow.",
        )
    if never:
        yield Remark(
            sum(never.values()) > 0.1 * n,
            "Levels never seen",
            f"There are levels that the fit has not seen in {_with_counts(never)}. The prediction "
            "takes each for the average of the levels it knows.",
        )
    if gaps:
        yield Remark(
            sum(gaps.values()) > 0.1 * n,
            "Missing values",
            f"Values are missing in {_with_counts(gaps)}, where none was in the fit. The "
            "prediction averages over the values it knows.",
        )


def _with_counts(found: dict[str, int]) -> str:
    ordered = sorted(found.items(), key=lambda item: -item[1])
    return listed([f"{name} ({counted(count, 'row')})" for name, count in ordered])


def _of_the_same_rows(model: Any, good: Goodness) -> Iterator[Remark]:
    if not good.folds and good.n == model.n_samples_seen_:
        yield Remark(
            False,
            "As many rows as in the fit",
            f"The fit had {counted(good.n, 'row')}, too. These may be the rows of the fit: figures "
            "would then be too good. With cv=5 each row is predicted by a model that has not seen "
            "it.",
        )


def _of_figures(good: Goodness) -> Iterator[Remark]:
    found = good.calibration
    if good.n < FEW_TO_JUDGE:
        yield Remark(
            False,
            "Few rows to judge by",
            f"The figures of {counted(good.n, 'row')} are rough themselves.",
        )
    if isinstance(found, Calibration):
        k = int(np.argmin(np.abs(found.levels - 0.95)))
        share = float(found.coverage[k])
        by_chance = binomtest(round(share * good.n), good.n, 0.95).pvalue
        if by_chance < 0.01 and abs(share - 0.95) > 0.02:
            many = "few" if share < 0.95 else "many"
            advice = (
                "They are too narrow: trust them less than they ask for."
                if share < 0.95
                else "They are wider than they need to be."
            )
            yield Remark(
                share < 0.95,
                "Intervals are off",
                f"95% intervals hold {percent(share, 1)} of the {good.n:,} rows, too {many}. "
                f"{advice}",
            )
        first = good.figures[0]
        if first.name == "R²" and first.value < 0.05:
            yield Remark(
                True,
                "Predictions explain next to nothing",
                f"R² is {number(first.value, 2)}: knowing the inputs is worth hardly more than "
                "knowing the average.",
            )
        return
    outside = sum(
        int(np.sum(((seen < low) | (seen > high)) & (np.abs(seen - said) > CLEARLY)))
        for said, seen, low, high in zip(
            found.predicted, found.observed, found.low, found.high, strict=True
        )
    )
    total = sum(map(len, found.observed))
    if total and outside > 0.3 * total and good.n >= FEW_TO_JUDGE:
        yield Remark(
            True,
            "Probabilities are off",
            f"In {outside} of {total} groups of rows with similar probabilities, the class was "
            "clearly more or less frequent than predicted.",
        )
    loss = next(f for f in good.figures if f.name == "Log loss")
    if loss.without is not None and loss.value > loss.without:
        yield Remark(
            True,
            "Predictions explain next to nothing",
            "The log loss is no better than that of giving every row the shares of the classes.",
        )
