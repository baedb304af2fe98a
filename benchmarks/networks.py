"""CP against tensor trains: what is measured, and the study that is written from it.

python -m benchmarks run networks
python -m benchmarks.networks          # writes docs/cp-vs-tt.md
"""

import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.data import CLASS_DATASETS

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "networks.jsonl"
STUDY = HERE.parent / "docs" / "cp-vs-tt.md"
GIVEN = "tt-full-given"
METHODS = {"cp": "CP", "tt": "TT", "tt-full": "TT, full cores"}
TRUTHS = {
    "components": "a sum of three products of six functions: a CP tensor of rank 3",
    "chain": "a product of six 3 by 3 matrices: a tensor train of rank 3",
    "chain-mixed": "the same with the columns in the order 4, 1, 5, 2, 6, 3",
}


def measure_network(cell):
    """Fit and score one cell in this process.

    Parameters
    ----------
    cell : Cell

    Returns
    -------
    metrics : dict
        The scores of the data set's task, see `btnkm.metrics`. Of the fit: rank (the mean of
        the bonds'), parameters (weights that are left, mean over starts), full (the share of starts
        with full cores), order_kept (whether `mode_order_` is the order given), sweep_seconds of
        CP's kind and full_sweep_seconds, and fit_seconds.
    """
    from benchmarks.data import load_split
    from benchmarks.tasks import task_of

    task = task_of(cell.dataset)
    X_train, y_train, X_test, y_test = load_split(cell.dataset, cell.split)
    # networks are compared, with nothing beside them
    method = task.methods["btn"][0](**{"structure": "tensor", **cell.config})
    start = time.perf_counter()
    method.fit(X_train, y_train)
    fit_seconds = time.perf_counter() - start
    predictive, model = method.predictive(X_test), method.model
    cores = getattr(model, "cores_", ["components"] * len(model.posterior_))
    # a full tensor has a kernel instead of factors
    factors = [getattr(state, "factors", ()) for state in model.posterior_]
    sizes = [sum(factor.mean.size for factor in own) for own in factors]
    found = {
        "rank": float(np.mean(model.rank_)),
        "parameters": float(np.mean(sizes)),
        "full": cores.count("full") / len(cores),
        "fit_seconds": fit_seconds,
        "sweep_seconds": sweep_seconds(model, [kind != "full" for kind in cores]),
        "full_sweep_seconds": sweep_seconds(model, [kind == "full" for kind in cores]),
    }
    if hasattr(model, "mode_order_"):
        found["order_kept"] = bool(np.all(np.diff(model.mode_order_) > 0))
    return task.score(predictive, y_test) | found


def sweep_seconds(model, which):
    """Return the median time of the first exact sweeps, at full rank, of some starts; or None."""
    seconds = []
    for start, wanted in enumerate(which):
        sweeps = [entry for entry in model.history_ if entry["restart"] == start]
        if wanted and len(sweeps) == len({entry["sweep"] for entry in sweeps}):
            times = [entry["seconds"] for entry in sweeps]
            first = next(k for k, entry in enumerate(sweeps) if entry["phase"] == "exact")
            seconds += np.diff(times[first : first + 5]).tolist()
    return statistics.median(seconds) if seconds else None


def _of(records, dataset, method, name):
    chosen = [r for r in records if (r["dataset"], r["method"]) == (dataset, method)]
    values = [r["metrics"].get(name) for r in chosen]
    return [float(value) for value in values if value is not None]


def _in_common(records, dataset, methods):
    """Return the records of the splits on which all these methods were measured."""
    of = [r for r in records if r["dataset"] == dataset and r["method"] in methods]
    splits = [{r["split"] for r in of if r["method"] == method} for method in methods]
    return [r for r in of if r["split"] in set.intersection(*splits)]


def _mean(records, dataset, method, name):
    values = _of(records, dataset, method, name)
    return statistics.fmean(values) if values else None


def _median(records, dataset, method, name):
    values = _of(records, dataset, method, name)
    return statistics.median(values) if values else None


def _number(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def _milliseconds(value):
    return "-" if value is None else f"{1000 * value:.3g}"


def _table(header, lines):
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])


def _error_name(dataset):
    return "error" if dataset in CLASS_DATASETS else "rmse"


def _accuracy(records, datasets):
    header = ["set (splits)"]
    for score in ("error", "NLL"):
        header += [f"{score} {title}" for title in METHODS.values()]
    lines = []
    for dataset in datasets:
        error = _error_name(dataset)
        counts = [len(_of(records, dataset, method, "nll")) for method in METHODS]
        counts = counts[:1] if len(set(counts)) == 1 else counts
        line = [f"{dataset} ({', '.join(map(str, counts))})"]
        for score in (error, "nll"):
            digits = 4 if score == "error" else 3
            line += [_number(_mean(records, dataset, m, score), digits) for m in METHODS]
        lines.append(line)
    return _table(header, lines)


def _against_cp(records, datasets):
    header = ["set"]
    header += [f"{title}: error, NLL" for title in list(METHODS.values())[1:]]
    header += ["restarts with full cores"]
    lines = []
    for dataset in datasets:
        error = _error_name(dataset)
        line = [dataset]
        for method in list(METHODS)[1:]:
            both = []
            same = _in_common(records, dataset, ("cp", method))
            for score in (error, "nll"):
                cp, tt = (_mean(same, dataset, m, score) for m in ("cp", method))
                if cp is None or tt is None:
                    both = ["-"]
                    break
                relative = score == error
                both.append(f"{100 * (tt / cp - 1):+.1f}%" if relative else f"{tt - cp:+.3f}")
            line.append(", ".join(both))
        share = _mean(records, dataset, "tt", "full")
        line.append("-" if share is None else f"{100 * share:.0f}%")
        lines.append(line)
    return _table(header, lines)


def _cost(records, datasets):
    header = ["set", "rank CP", "rank full", "weights CP", "weights full"]
    header += ["ms a sweep CP", "ms a sweep full", "fit s CP", "fit s TT", "fit s full"]
    lines = []
    for dataset in datasets:
        line = [dataset]
        for name, digits in (("rank", 1), ("parameters", 0)):
            line += [_number(_mean(records, dataset, m, name), digits) for m in ("cp", "tt-full")]
        line.append(_milliseconds(_median(records, dataset, "cp", "sweep_seconds")))
        line.append(_milliseconds(_median(records, dataset, "tt-full", "full_sweep_seconds")))
        line += [_number(_median(records, dataset, m, "fit_seconds"), 1) for m in METHODS]
        lines.append(line)
    return _table(header, lines)


def _orders(records, datasets):
    header = ["set (splits)", "given order: error, NLL", "auto: error, NLL", "order changed"]
    lines = []
    for dataset in datasets:
        same = _in_common(records, dataset, (GIVEN, "tt-full"))
        if not same:
            continue
        error = _error_name(dataset)
        line = [f"{dataset} ({len({r['split'] for r in same})})"]
        for method in (GIVEN, "tt-full"):
            means = [_mean(same, dataset, method, score) for score in (error, "nll")]
            line.append(", ".join(_number(mean, 3) for mean in means))
        kept = _mean(same, dataset, "tt-full", "order_kept")
        line.append(f"{100 * (1 - kept):.0f}%")
        lines.append(line)
    return _table(header, lines)


def _seen(records):
    """Return the results on the simulated sets as text."""
    lines = []
    for dataset in TRUTHS:
        same = _in_common(records, dataset, ("cp", "tt"))
        if same:
            ratio = _mean(same, dataset, "tt", "rmse") / _mean(same, dataset, "cp", "rmse")
            full = 100 * _mean(same, dataset, "tt", "full")
            lines.append(
                f"- On `{dataset}` {full:.0f}% of the restarts of TT have full cores, and its "
                f"error is {ratio:.2f} times that of CP."
            )
    return "\n".join(lines)


def _machines(records):
    machines = defaultdict(int)
    for record in records:
        machines[f"{record['cpu']}, BLAS on {record['threads']['blas']} threads"] += 1
    return "; ".join(f"{count} runs on {name}" for name, count in machines.items())


def latest():
    """Return the last record of every cell, of the methods as they are by default."""
    from benchmarks.runs.records import read_records, record_key
    from benchmarks.suites import SUITES

    defaults = SUITES["networks"].defaults
    records = {record_key(record): record for record in read_records(RESULTS)[0]}.values()
    return [r for r in records if r["config"] == defaults.get(r["method"])]


def render(records):
    """Return the text of the study.

    Parameters
    ----------
    records : list of dict

    Returns
    -------
    text : str
    """
    from benchmarks.suites import SUITES

    datasets = SUITES["networks"].datasets
    return TEMPLATE.format(
        truths="\n".join(f"- `{name}`: {what};" for name, what in TRUTHS.items()),
        accuracy=_accuracy(records, datasets),
        against=_against_cp(records, datasets),
        cost=_cost(records, datasets),
        orders=_orders(records, datasets),
        seen=_seen(records),
        machines=_machines(records),
    )


TEMPLATE = """# CP or tensor train?

<!-- Written by `python -m benchmarks.networks` from `benchmarks/results/networks.jsonl`, which
`python -m benchmarks run networks` fills; do not edit. -->

**In short:** use `network="cp"` unless the inputs form a chain, in which each step acts on the
result of the steps before. There a tensor train needs far fewer rows. On other data it takes
longer and is at best slightly better.

CP is a sum of products of functions of one input each. A tensor train is a product of matrices,
one for each input. `TT` is `network="tt"` with default settings: candidates with full and with
diagonal cores are fitted to four fifths of the rows, and get restarts in proportion to their
weight in the mixture that predicts the rest best. (A tensor train with diagonal cores is a CP
tensor.) `TT, full cores` is `TensorTrain(cores="full")`. The six sets are those of the paper, on
its splits. Three more are simulated,

{truths}

with 1,080 training rows, inputs uniform on [-1, 1] and noise of a tenth of the standard deviation
of f.

## Accuracy

Means over the splits of the RMSE (the fraction of wrong classes for spambase and adult) and of
the negative log likelihood of a test row. In brackets the number of splits, for each method if
they differ.

{accuracy}

Differences from CP on the splits that both have, and the fraction of restarts of `TT` with full
cores:

{against}

## Cost

The rank of full cores is the mean over the bonds. Weights are those left at the end, mean over
the restarts. A sweep is an exact one at the initial rank. Medians over the splits. Other programs
ran at the same time, so compare times within a row, and roughly.

{cost}

{machines}.

## The order of the inputs

Full cores with the inputs in the order of the columns, and with `order="auto"`. The latter
compares, on held-out rows, that order with the one in which the bonds of a CP tensor have the
lowest cost. The last column is the fraction of splits in which the other order had the higher
weight.

{orders}

## Observations

{seen}
- A tensor train can represent a sum of R products, but it has R x R functions of each input where
  CP has R, and each has a cost in the ELBO. CP tensors fitted to four of the paper's sets were
  written as tensor trains with diagonal cores. No entry off the diagonal of any inner core could be
  added such that the ELBO rose (`docs/experiments.md`, section 13).
- Inserting an invertible matrix and its inverse at a bond does not change f. The posterior of
  independent cores counts this freedom as uncertainty, so full cores alone underfit with few rows.
"""


def main():
    """Write the study and return the exit status."""
    records = latest() if RESULTS.exists() else []
    if not records:
        print("error: there are no results; python -m benchmarks run networks", file=sys.stderr)
        return 2
    STUDY.write_text(render(records), encoding="utf-8")
    print(f"wrote {STUDY.relative_to(HERE.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
