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
    "chain": "a product of six 3 by 3 matrices: a train of rank 3",
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
    header += ["starts with full cores"]
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
    header = ["set (splits)", "as given: error, NLL", "found: error, NLL", "order changed"]
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
    """Return what the truths show, in figures."""
    lines = []
    for dataset in TRUTHS:
        same = _in_common(records, dataset, ("cp", "tt"))
        if same:
            ratio = _mean(same, dataset, "tt", "rmse") / _mean(same, dataset, "cp", "rmse")
            full = 100 * _mean(same, dataset, "tt", "full")
            lines.append(
                f"- On `{dataset}` {full:.0f}% of the starts of TT have full cores, and its error "
                f"is {ratio:.2f} times that of CP."
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

**In a sentence:** keep `network="cp"` unless inputs act on each other one after the other, each on
what the earlier ones have left behind; there a train needs far fewer rows, and elsewhere it costs
more and gains nothing, or little.

CP is a sum of products of functions of one input each; a train is a product of matrices, one for
each input. `TT` is `network="tt"` at its defaults: candidates with full and with diagonal cores,
the latter being CP tensors, are fitted to four fifths of the rows, and have as many starts as their
weight in the mixture that predicts the rest best. `TT, full cores` is `cores="full"`: no start is
diagonal. The six sets are the paper's, on its splits; of three more the truth is known,

{truths}

with 1,080 rows to fit, inputs uniform on [-1, 1] and noise of a tenth of the spread of f.

## Accuracy

Mean over the splits of the RMSE (the share of wrong classes for spambase and adult), and of the
negative log density (probability) of a test row. In brackets the number of splits, of each method
if they differ.

{accuracy}

Against CP on the splits that both have, and how many starts of `TT` had full cores:

{against}

## Cost

The rank of full cores is the mean over the bonds; weights are those left at the end, mean over the
starts. A sweep is an exact one at the rank that the fit begins with. Medians over the splits; other
work ran beside, so compare times within a row, and roughly.

{cost}

{machines}.

## The order of the inputs

Full cores with the inputs in the order of the columns, and with `mode_order="auto"`: rows held out
weigh that order against the one in which the bonds of a CP tensor would have least to carry. The
last column tells in how many splits the latter had the higher weight.

{orders}

## What there is to see

{seen}
- A train can hold a sum of R products, but it has R x R functions of each input where CP has R, and
  every one of them has to be paid for. To CP tensors fitted to four of the paper's sets, written
  as trains with diagonal cores, not one entry off the diagonal could be added in any inner core so
  that the bound rose (`docs/experiments.md`, section 13).
- Every bond of full cores may be turned by any invertible matrix without a change of f. The
  posterior of independent cores does not know that, and what it does not know it counts as noise:
  with few rows full cores alone fit too weakly.
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
