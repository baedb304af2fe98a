"""Writes the page on time and memory, docs/scale.md, from the results of the scale suites.

python -m benchmarks run scale-sweep       # and scale-tnkm, scale-compare, scale-stream
python -m benchmarks.gpu                   # and scale_rows disk, spill, dask
python -m benchmarks.scale                 # writes docs/scale.md and docs/scale/*.png
"""

import json
import math
import statistics
import sys
from collections import defaultdict
from dataclasses import replace

import numpy as np

from benchmarks.pages import DOCS, RESULTS, counted, latest, number, table, text_of
from benchmarks.scale_compare import SIZES, SYNTHETIC
from benchmarks.scale_stream import BATCH, BATCHES, NOISE, STREAMS, TURN
from benchmarks.scale_sweep import BASE, EPOCH, LARGE, Shape

PAGE, PICTURES = DOCS / "scale.md", DOCS / "scale"
SUITES = ("scale-sweep", "scale-tnkm", "scale-compare", "scale-stream")
#: The aims: the most of the exponents and of the time over the limit, the least of an epoch.
EXPONENT_TARGETS = {"n": 1.0, "D": 1.0, "M": 1.1}
LIMIT_TARGET, EPOCH_TARGET = 2.0, 10.0
SMALL_SOLVE = 0.1  # most of a sweep in Cholesky inverses, for the exponent of M
BUSY = 2.0  # times the fastest yardstick; slower repetitions count only if there is no other
NAMES = {"n": "rows n", "D": "inputs D", "M": "functions M", "R": "rank R"}
UPDATED = ("D", "inputs updated, D - 1", 1)  # a sweep skips the one updated last
METHODS = {
    "btn": "btnkm",
    "btn-short": "btnkm, short",
    "tnkm": "tnkm ALS",
    "svgp": "GPyTorch SVGP",
    "gp": "scikit-learn GP",
    "hgb": "HistGradientBoosting",
    "ngboost": "NGBoost",
}
STREAM_METHODS = {
    "at-once": "all at once",
    "first": "first batch",
    "stream": "batches",
    "forget": "batches, forgetting",
    "sums": "batches, sums alone",
}
_GPU_COSTS = ("exact_seconds", "fit_seconds", "peak_gib")
_ROWS = ("disk", "spill", "dask")  # kinds of records of `benchmarks.scale_rows`


def measured(records):
    """Return the records of what was not skipped."""
    return [r for r in records if "skipped" not in r["metrics"]]


def quiet(records):
    """Return the sweeps of each shape and method that ran while the machine was quiet.

    The yardstick took at most `BUSY` times the fastest. A shape and method without such a sweep
    keeps all.
    """
    repetitions = defaultdict(list)
    for record in measured(records):
        repetitions[record["dataset"], record["method"]].append(record)
    most = BUSY * min(r["metrics"]["yardstick_seconds"] for r in measured(records))
    kept = []
    for several in repetitions.values():
        calm = [r for r in several if r["metrics"]["yardstick_seconds"] <= most]
        kept += calm or several
    return kept


def pooled(records):
    """Return the medians over the quiet repetitions, by shape and method.

    Seconds are scaled to the fastest yardstick, to correct for other work on the machine.
    """
    repetitions = defaultdict(list)
    least = min(r["metrics"]["yardstick_seconds"] for r in measured(records))
    for record in quiet(records):
        metrics = dict(record["metrics"])
        busy = metrics["yardstick_seconds"] / least
        metrics |= {k: v / busy for k, v in metrics.items() if k.endswith("_seconds")}
        repetitions[Shape.of(record["dataset"]), record["method"]].append(metrics)
    return {
        key: {name: statistics.median(m[name] for m in several) for name in several[0]}
        for key, several in repetitions.items()
    }


def along(records, name, method="kept"):
    """Return the metrics of the shapes that differ from the base in one number, by that number."""
    chosen = {
        getattr(shape, name): metrics
        for (shape, used), metrics in pooled(records).items()
        if used == method and replace(shape, **{name: getattr(BASE, name)}) == BASE
    }
    return dict(sorted(chosen.items()))


def fitted(metrics, name):
    """Return the metrics to which an exponent is fitted: for M those with a small solve."""
    if name != "M":
        return metrics
    return {
        x: m for x, m in metrics.items() if m["solve_seconds"] <= SMALL_SOLVE * m["sweep_seconds"]
    }


def exponent(metrics, score="sweep_seconds", less=0):
    """Return the least-squares slope of log seconds against log (x - less), None for one point."""
    if len(metrics) < 2:
        return None
    seconds = [m[score] for m in metrics.values()]
    return float(np.polyfit(np.log(np.array(list(metrics)) - less), np.log(seconds), 1)[0])


def _exponents(records):
    lines = []
    for name, title, less in (*((k, title, 0) for k, title in NAMES.items()), UPDATED):
        points = fitted(along(records, name), name)
        target = EXPONENT_TARGETS.get(name)
        lines.append(
            [
                title,
                ", ".join(f"{x - less:,}" for x in points) or "-",
                number(exponent(points, less=less), ".2f"),
                number(exponent(points, "limit_seconds", less), ".2f"),
                "-" if target is None else f"{target:g}",
            ]
        )
    return table(["varied", "over", "exponent", "of the limit", "aim"], lines)


def _keeps(metrics):
    if metrics["stride"] == 1:
        return "all" if metrics["keep_features"] else "products"
    return "some products" if metrics["stride"] else "nothing"


def _sweeps(records):
    header = ["n", "D", "M", "R", "keeps", "sweep s", "products s", "traffic s", "solve s"]
    header += ["sweep / limit", "memory MiB"]
    lines = []
    for _, m in sorted(pooled(records).items(), key=lambda item: _order(*item[0])):
        line = [f"{m[name]:,.0f}" for name in NAMES] + [_keeps(m)]
        parts = ("sweep", "products", "traffic", "solve")
        line += [number(m[f"{part}_seconds"]) for part in parts]
        lines.append([*line, f"{m['over_limit']:.2f}", f"{m['peak_memory_mb']:,.0f}"])
    return table(header, lines)


def _order(shape, method):
    """Return a key that sorts shapes by the number that varies, the base first."""
    varied = [name for name in NAMES if getattr(shape, name) != getattr(BASE, name)]
    first = list(NAMES).index(varied[0]) if varied else -1
    return method != "kept", len(varied) > 1, first, [getattr(shape, name) for name in NAMES]


def _large(records):
    m = pooled(records).get((LARGE, "kept"))
    if m is None:
        return f"The shape {LARGE} has not been measured."
    verb = "meets" if m["over_limit"] <= LIMIT_TARGET else "misses"
    return (
        f"**A million rows.** With n = {LARGE.n:,}, D = {LARGE.D}, M = {LARGE.M} and R = {LARGE.R} "
        f"a sweep takes {m['sweep_seconds']:.3g} s, {m['over_limit']:.2f} times the limit measured "
        f"with it, which {verb} the aim of {LIMIT_TARGET:g}; the fit takes "
        f"{m['peak_memory_mb'] / 1024:.1f} GiB over its input."
    )


def _epochs(records):
    header = ["tnkm in", "process", "btnkm sweep s", "tnkm epoch s", "epoch / sweep"]
    lines = []
    for record in sorted(records, key=lambda r: (r["method"], r["split"])):
        m = record["metrics"]
        seconds = [f"{m[name]:.3g}" for name in ("sweep_seconds", "epoch_seconds")]
        ratio = f"{m['epoch_over_sweep']:.1f}"
        lines.append([record["method"], str(record["split"] + 1), *seconds, ratio])
    return table(header, lines)


def _epoch_verdict(records):
    ratios = defaultdict(list)
    for record in records:
        ratios[record["method"]].append(record["metrics"]["epoch_over_sweep"])
    parts = []
    for dtype, values in sorted(ratios.items()):
        ratio = statistics.median(values)
        verb = "meets" if ratio >= EPOCH_TARGET else "misses"
        parts.append(f"{ratio:.1f} in {dtype}, which {verb} it")
    return f"The aim is at least {EPOCH_TARGET:g} sweeps in an epoch: {'; '.join(parts)}."


def median_of(records, dataset, method, name):
    """Return the median of a score over the splits, None where there is none."""
    chosen = [r for r in measured(records) if (r["dataset"], r["method"]) == (dataset, method)]
    values = [r["metrics"][name] for r in chosen if r["metrics"].get(name) is not None]
    return statistics.median(values) if values else None


def _compared(records, dataset, error):
    title = "RMSE" if error == "rmse" else "error"
    calibration = ("coverage_95", "95% coverage") if error == "rmse" else ("ece", "ECE")
    header = ["method (splits)", title, "NLL", calibration[1], "fit s", "predict s", "memory MiB"]
    lines = []
    for method, name in METHODS.items():
        scores = (error, "nll", calibration[0])
        values = {score: median_of(records, dataset, method, score) for score in scores}
        if values["nll"] is None:
            continue
        count = sum((r["dataset"], r["method"]) == (dataset, method) for r in measured(records))
        costs = ("fit_seconds", "predict_seconds", "peak_memory_mb")
        cost = [median_of(records, dataset, method, score) for score in costs]
        line = [f"{name} ({count})"] + [number(value, ".3f") for value in values.values()]
        lines.append([*line, number(cost[0]), number(cost[1]), f"{cost[2]:,.0f}"])
    return table(header, lines)


def _skipped(records):
    reasons = defaultdict(list)
    for record in records:
        if "skipped" in record["metrics"]:
            sets = reasons[record["method"], record["metrics"]["skipped"]]
            if record["dataset"] not in sets:
                sets.append(record["dataset"])
    return "\n".join(
        f"- {METHODS.get(method, method)} is not measured on {', '.join(sets)}: {reason}."
        for (method, reason), sets in reasons.items()
    )


def _comparison(records):
    parts = []
    for n, dataset in zip(SIZES, SYNTHETIC, strict=True):
        parts += [f"### {n:,} rows", _compared(records, dataset, "rmse")]
    parts += ["### Adult: 40,699 rows, 14 columns", _compared(records, "adult", "error")]
    return "\n\n".join(parts)


def _streams(records):
    parts = []
    for dataset in STREAMS:
        error = "error" if dataset == "labels" else "rmse_to_f"
        header = [dataset, "error", "NLL", "90% coverage", "rank", "seconds"]
        lines = []
        for method, name in STREAM_METHODS.items():
            chosen = [r for r in records if (r["dataset"], r["method"]) == (dataset, method)]
            if not chosen:
                continue
            scores = [median_of(records, dataset, method, s) for s in (error, "nll", "coverage_90")]
            rank = statistics.median(rank for r in chosen for rank in r["metrics"]["ranks"])
            seconds = median_of(records, dataset, method, "fit_seconds")
            line = [number(v, ".4f") for v in scores[:2]] + [number(scores[2], ".3f")]
            lines.append([name, *line, f"{rank:g}", number(seconds)])
        parts.append(table(header, lines))
    return "\n\n".join(parts)


def _libraries(records):
    names = {r["metrics"]["library"] for r in records if "library" in r["metrics"]}
    names |= {f"scikit-learn {r['versions']['scikit-learn']}" for r in records}
    return ", ".join(sorted(names))


def _lines(name):
    """Return the records of a program that is no suite, none without its file."""
    path = RESULTS / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def _gpu(records):
    """Return what the page says of the results of `benchmarks.gpu`."""
    machine = next(r for r in records if r["kind"] == "machine")
    header = ["rows", "inputs", "M", "R", "precision", "sweep s", "by bandwidth s"]
    header += ["50 sweeps s", "whole fit s", "memory GiB"]
    lines = []
    for r in records:
        if r["kind"] == "sweeps":
            line = [f"{r['rows']:,}", *(str(r[k]) for k in ("inputs", "n_basis", "rank"))]
            line += [r["precision"], f"{r['sweep_seconds']:.3f}", f"{r['bandwidth_seconds']:.3f}"]
            lines.append(line + [f"{r[k]:.1f}" for k in _GPU_COSTS])
    differences = []
    for r in (r for r in records if r["kind"] == "difference"):
        most = max(v for k, v in r.items() if k not in ("kind", "library"))
        differences.append(f"at most {most:.0e} with {r['library']}")
    return {
        "gpu": machine["device"],
        "torch": machine["torch"],
        "bandwidth": f"{machine['bytes_per_second'] / 1e12:.2f}",
        "gpu_sweeps": table(header, lines),
        "gpu_kinds": len(next(r for r in records if r["kind"] == "difference")) - 2,
        "gpu_differences": ", and ".join(differences),
    }


def _disk(records):
    header = ["rows", "memory_limit GiB", "peak GiB", "whole fit s", "sweep of all rows s"]
    lines = []
    for r in records:
        line = [f"{r['rows']:,}", f"{r['memory_limit']:g}", f"{r['peak_gib']:.2f}"]
        line += [f"{r['fit_seconds']:.0f}", f"{r['sweep_seconds']:.0f}"]
        lines.append([*line, f"{r['rmse']:.4f}", f"{r['noise']:g}"])
    return table([*header, "RMSE", "noise"], lines)


def _spill(records):
    names = ("again_us", "spilled_us", "written_gb_per_second", "read_gb_per_second")
    m = {name: statistics.median(r[name] for r in records) for name in names}
    inputs = records[0]["inputs"]
    return {
        "spill_inputs": inputs,
        "spill_rank": records[0]["rank"],
        "again": f"{m['again_us']:.2f}",
        "spilled": f"{m['spilled_us']:.2f}",
        "written": f"{m['written_gb_per_second']:.1f}",
        "read": f"{m['read_gb_per_second']:.1f}",
        "equal": f"{inputs * m['spilled_us'] / m['again_us']:.0f}",
    }


def _cluster(records):
    seconds = {
        count: statistics.median(r["sweep_seconds"] for r in records if r["workers"] == count)
        for count in sorted({r["workers"] for r in records})
    }
    each = [f"{s:.2f} s with {count}" for count, s in seconds.items()]
    return {
        "cluster_rows": records[0]["rows"],
        "cluster_seconds": " and ".join(each),
        "cluster_ratio": f"{seconds[min(seconds)] / seconds[max(seconds)]:.2f}",
    }


def render(records):
    """Return the text of the page.

    Parameters
    ----------
    records : dict of str to list of dict
        Those of every suite.

    Returns
    -------
    text : str
    """
    sweep, epoch, compare, stream = (records[suite] for suite in SUITES)
    calm = quiet(sweep)
    rows = {kind: [r for r in _lines("scale-rows.jsonl") if r["kind"] == kind] for kind in _ROWS}
    return text_of("scale").format(
        left_out=len(measured(sweep)) - len(calm),
        all=len(measured(sweep)),
        busy=BUSY,
        base=", ".join(f"{name} = {getattr(BASE, name):,}" for name in NAMES),
        small=f"{100 * SMALL_SOLVE:.0f}%",
        exponents=_exponents(sweep),
        large=_large(sweep),
        sweeps=_sweeps(sweep),
        epoch=f"n = {EPOCH.n:,}, D = {EPOCH.D}, M = {EPOCH.M}, R = {EPOCH.R}",
        epochs=_epochs(epoch),
        epoch_verdict=_epoch_verdict(epoch),
        floor=f"{0.5 * math.log(2 * math.pi * math.e):.3f}",
        comparison=_comparison(compare),
        skipped=_skipped(compare),
        libraries=_libraries(compare),
        rows=BATCH * BATCHES,
        batch=BATCH,
        turn=TURN * BATCH,
        noise=NOISE,
        streams=_streams(stream),
        machines=counted(
            (
                f"{r['cpu']}, {r['threads']['cores']} cores"
                for part in records.values()
                for r in part
            ),
            "measurements",
        ),
        disk=_disk(rows["disk"]),
        **_gpu(_lines("gpu.jsonl")),
        **_spill(rows["spill"]),
        **_cluster(rows["dask"]),
    )


def main():
    """Write the page and its pictures, and return the exit status."""
    from benchmarks.scale_plots import draw

    records = {suite: latest(suite) for suite in SUITES}
    for suite, results in records.items():
        if not results:
            remedy = f"python -m benchmarks run {suite}"
            print(f"error: there are no results of {suite}; {remedy}", file=sys.stderr)
            return 2
    PAGE.write_text(render(records), encoding="utf-8")
    draw(records, PICTURES)
    print(f"wrote {PAGE} and {PICTURES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
