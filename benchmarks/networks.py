"""CP against tensor trains: what is measured, and the study that is written from it.

python -m benchmarks run networks
python -m benchmarks.networks          # writes docs/cp-vs-tt.md
"""

import statistics
import sys
import time

import numpy as np

from benchmarks.accuracy import task_of
from benchmarks.data import CLASS_DATASETS, load_split
from benchmarks.pages import DOCS, counted, latest, number, table, text_of

STUDY = DOCS / "cp-vs-tt.md"
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
        the bonds'), parameters (remaining weights, mean over restarts), full (the fraction of
        restarts with full cores), order_kept (whether `mode_order_` is the given order),
        fit_seconds, sweep_seconds of restarts with components or diagonal cores, and
        full_sweep_seconds.
    """
    task = task_of(cell.dataset)
    X_train, y_train, X_test, y_test = load_split(cell.dataset, cell.split)
    # the networks alone, without a sum of main effects
    method = task.methods["btn"][0](**{"structure": "tensor", **cell.config})
    start = time.perf_counter()
    method.fit(X_train, y_train)
    fit_seconds = time.perf_counter() - start
    predictive, model = method.predictive(X_test), method.model
    cores = getattr(model, "cores_", ["components"] * len(model.posterior_))
    # a full tensor has a kernel instead of factors
    factors = [getattr(state, "factors", ()) for state in model.posterior_]
    sizes = [sum(factor.mean.size for factor in each) for each in factors]
    metrics = {
        "rank": float(np.mean(model.rank_)),
        "parameters": float(np.mean(sizes)),
        "full": cores.count("full") / len(cores),
        "fit_seconds": fit_seconds,
        "sweep_seconds": sweep_seconds(model, [kind != "full" for kind in cores]),
        "full_sweep_seconds": sweep_seconds(model, [kind == "full" for kind in cores]),
    }
    if hasattr(model, "mode_order_"):
        metrics["order_kept"] = bool(np.all(np.diff(model.mode_order_) > 0))
    return task.score(predictive, y_test) | metrics


def sweep_seconds(model, which):
    """Return the median time of the first exact sweeps of the restarts in a mask, or None."""
    seconds = []
    for restart, wanted in enumerate(which):
        sweeps = [entry for entry in model.history_ if entry["restart"] == restart]
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


def _milliseconds(value):
    return number(None if value is None else 1000 * value)


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
            form = ".4f" if score == "error" else ".3f"
            line += [number(_mean(records, dataset, m, score), form) for m in METHODS]
        lines.append(line)
    return table(header, lines)


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
        line.append(number(_mean(records, dataset, "tt", "full"), ".0%"))
        lines.append(line)
    return table(header, lines)


def _cost(records, datasets):
    header = ["set", "rank CP", "rank full", "weights CP", "weights full"]
    header += ["ms a sweep CP", "ms a sweep full", "fit s CP", "fit s TT", "fit s full"]
    lines = []
    for dataset in datasets:
        line = [dataset]
        for name, form in (("rank", ".1f"), ("parameters", ".0f")):
            line += [number(_mean(records, dataset, m, name), form) for m in ("cp", "tt-full")]
        line.append(_milliseconds(_median(records, dataset, "cp", "sweep_seconds")))
        line.append(_milliseconds(_median(records, dataset, "tt-full", "full_sweep_seconds")))
        line += [number(_median(records, dataset, m, "fit_seconds"), ".1f") for m in METHODS]
        lines.append(line)
    return table(header, lines)


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
            line.append(", ".join(number(mean, ".3f") for mean in means))
        kept = _mean(same, dataset, "tt-full", "order_kept")
        line.append(f"{100 * (1 - kept):.0f}%")
        lines.append(line)
    return table(header, lines)


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
    return text_of("cp-vs-tt").format(
        truths="\n".join(f"- `{name}`: {what};" for name, what in TRUTHS.items()),
        accuracy=_accuracy(records, datasets),
        against=_against_cp(records, datasets),
        cost=_cost(records, datasets),
        orders=_orders(records, datasets),
        seen=_seen(records),
        machines=counted(
            (f"{r['cpu']}, BLAS on {r['threads']['blas']} threads" for r in records), "runs"
        ),
    )


def main():
    """Write the study and return the exit status."""
    records = latest("networks")
    if not records:
        print("error: there are no results; python -m benchmarks run networks", file=sys.stderr)
        return 2
    STUDY.write_text(render(records), encoding="utf-8")
    print(f"wrote {STUDY}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
