"""What scale costs: the page that is written from the results of the scale suites.

python -m benchmarks run scale-sweep       # and scale-tnkm, scale-compare, scale-stream
python -m benchmarks.scale                 # writes docs/scale.md and docs/scale/*.png
"""

import math
import statistics
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.scale_compare import SIZES, SYNTHETIC
from benchmarks.scale_elsewhere import elsewhere
from benchmarks.scale_stream import BATCH, BATCHES, NOISE, STREAMS, TURN
from benchmarks.scale_sweep import BASE, EPOCH, LARGE, Shape

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "scale.md"
PICTURES = HERE.parent / "docs" / "scale"
SUITES = ("scale-sweep", "scale-tnkm", "scale-compare", "scale-stream")
#: What the exponents should be at most, and the ratios.
EXPONENT_TARGETS = {"n": 1.0, "D": 1.0, "M": 1.1}
LIMIT_TARGET, EPOCH_TARGET = 2.0, 10.0
SMALL_SOLVE = 0.1  # of a sweep, up to which the exponent of M counts
BUSY = 2.0  # times the quickest yardstick, from which a repetition counts only for want of another
NAMES = {"n": "rows n", "D": "inputs D", "M": "functions M", "R": "rank R"}
UPDATED = ("D", "modes updated, D - 1", 1)  # by a sweep, which leaves out the one solved last
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


def latest(suite):
    """Return the last record of every cell of a suite, of its methods as they are by default."""
    from benchmarks.runs.records import read_records, record_key
    from benchmarks.suites import SUITES as known

    found = read_records(RESULTS / f"{suite}.jsonl")[0]
    records = {record_key(record): record for record in found}.values()
    return [r for r in records if r["config"] == known[suite].defaults.get(r["method"])]


def measured(records):
    """Return the records that are no reasons for having none."""
    return [r for r in records if "skipped" not in r["metrics"]]


def quiet(records):
    """Return the measured sweeps, of a shape and method those that had the machine to themselves.

    Those are the ones whose yardstick took at most `BUSY` times the quickest; where a shape and
    method have none, all of theirs.
    """
    found = defaultdict(list)
    for record in measured(records):
        found[record["dataset"], record["method"]].append(record)
    most = BUSY * min(r["metrics"]["yardstick_seconds"] for r in measured(records))
    kept = []
    for several in found.values():
        calm = [r for r in several if r["metrics"]["yardstick_seconds"] <= most]
        kept += calm or several
    return kept


def pooled(records):
    """Return the medians over the quiet repetitions of every shape and method, by these two.

    Seconds are scaled to the quickest yardstick: what is left of other work is taken out.
    """
    found = defaultdict(list)
    least = min(r["metrics"]["yardstick_seconds"] for r in measured(records))
    for record in quiet(records):
        metrics = dict(record["metrics"])
        busy = metrics["yardstick_seconds"] / least
        metrics |= {k: v / busy for k, v in metrics.items() if k.endswith("_seconds")}
        found[Shape.of(record["dataset"]), record["method"]].append(metrics)
    return {
        key: {name: statistics.median(m[name] for m in several) for name in several[0]}
        for key, several in found.items()
    }


def along(records, name, method="kept"):
    """Return the metrics of the shapes that differ from the base in one number, by that number."""
    chosen = {
        getattr(shape, name): metrics
        for (shape, used), metrics in pooled(records).items()
        if used == method and replace(shape, **{name: getattr(BASE, name)}) == BASE
    }
    return dict(sorted(chosen.items()))


def counted(metrics, name):
    """Return the metrics that an exponent is fitted to: for M those whose solve is small."""
    if name != "M":
        return metrics
    return {
        x: m for x, m in metrics.items() if m["solve_seconds"] <= SMALL_SOLVE * m["sweep_seconds"]
    }


def exponent(metrics, score="sweep_seconds", less=0):
    """Return the least-squares slope of log seconds against the log of what varies, or None.

    What varies is first made ``less`` by so much.
    """
    if len(metrics) < 2:
        return None
    seconds = [m[score] for m in metrics.values()]
    return float(np.polyfit(np.log(np.array(list(metrics)) - less), np.log(seconds), 1)[0])


def _table(header, lines):
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])


def _number(value, form=".3g"):
    return "-" if value is None else format(value, form)


def _exponents(records):
    lines = []
    for name, title, less in (*((k, title, 0) for k, title in NAMES.items()), UPDATED):
        fitted = counted(along(records, name), name)
        target = EXPONENT_TARGETS.get(name)
        lines.append(
            [
                title,
                ", ".join(f"{x - less:,}" for x in fitted) or "-",
                _number(exponent(fitted, less=less), ".2f"),
                _number(exponent(fitted, "limit_seconds", less), ".2f"),
                "-" if target is None else f"{target:g}",
            ]
        )
    return _table(["varied", "over", "exponent", "of the limit", "aim"], lines)


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
        line += [_number(m[f"{part}_seconds"]) for part in parts]
        lines.append([*line, f"{m['over_limit']:.2f}", f"{m['peak_memory_mb']:,.0f}"])
    return _table(header, lines)


def _order(shape, method):
    """Sort shapes by the number that varies, the base first."""
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
        f"beside it, which {verb} the aim of {LIMIT_TARGET:g}; the fit takes "
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
    return _table(header, lines)


def _epoch_verdict(records):
    ratios = defaultdict(list)
    for record in records:
        ratios[record["method"]].append(record["metrics"]["epoch_over_sweep"])
    parts = []
    for dtype, values in sorted(ratios.items()):
        ratio = statistics.median(values)
        verb = "meets" if ratio >= EPOCH_TARGET else "misses"
        parts.append(f"one in {dtype} takes as long as {ratio:.1f} sweeps, which {verb} it")
    return f"Of an epoch the aim is at least {EPOCH_TARGET:g} sweeps: {'; '.join(parts)}."


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
        line = [f"{name} ({count})"] + [_number(value, ".3f") for value in values.values()]
        lines.append([*line, _number(cost[0]), _number(cost[1]), f"{cost[2]:,.0f}"])
    return _table(header, lines)


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
            own = [
                r["metrics"] for r in records if (r["dataset"], r["method"]) == (dataset, method)
            ]
            if not own:
                continue
            scores = [median_of(records, dataset, method, s) for s in (error, "nll", "coverage_90")]
            rank = statistics.median(rank for m in own for rank in m["ranks"])
            seconds = median_of(records, dataset, method, "fit_seconds")
            line = [_number(v, ".4f") for v in scores[:2]] + [_number(scores[2], ".3f")]
            lines.append([name, *line, f"{rank:g}", _number(seconds)])
        parts.append(_table(header, lines))
    return "\n\n".join(parts)


def _libraries(records):
    found = {r["metrics"]["library"] for r in records if "library" in r["metrics"]}
    found |= {f"scikit-learn {r['versions']['scikit-learn']}" for r in records}
    return ", ".join(sorted(found))


def _machines(records):
    machines = defaultdict(int)
    for record in records:
        machines[f"{record['cpu']}, {record['threads']['cores']} cores"] += 1
    return "; ".join(f"{count} measurements on {name}" for name, count in machines.items())


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
    loud = [r for r in measured(sweep) if r not in calm]
    large_busy = [r["metrics"]["over_limit"] for r in loud if r["dataset"] == str(LARGE)]
    return TEMPLATE.format(
        left_out=len(loud),
        all=len(measured(sweep)),
        busy=BUSY,
        large_busy=" and ".join(f"{ratio:.2f}" for ratio in large_busy) or "-",
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
        machines=_machines([*sweep, *epoch, *compare, *stream]),
        elsewhere=elsewhere(),
    )


TEMPLATE = """# What scale costs

<!-- Written by `python -m benchmarks.scale` from `benchmarks/results/scale-*.jsonl`, which
`python -m benchmarks run scale-sweep`, `scale-tnkm`, `scale-compare` and `scale-stream` fill, and
from those of `benchmarks.gpu` and `benchmarks.scale_rows`; do not edit. -->

The machine was shared with other programs. Ratios compare medians of tasks that alternated in one
process. A reference task, a fixed matrix product, alternated with the sweeps. The seconds of
sweeps are scaled to the fastest run of the reference; all other seconds are as measured. Other
programs do not slow sweep and limit equally. Repetitions in which the reference took more than
{busy:g} times its fastest are therefore left out if their shape has others: {left_out} of {all}.
They are in the result file; with them, the ratio for a million rows of 20 inputs would be
{large_busy}.

## A sweep

Exact sweeps of `BTNRegressor` on simulated rows, with two threads, Chebyshev functions, a fixed
number of components and no pruning. One number at a time differs from {base}.

![Seconds per sweep against rows, inputs, functions and rank, log-log](scale/sweep.png)

The exponents are least-squares slopes of the logarithms of all points. For M they use the points
at which Cholesky inverses take at most {small} of the sweep. A sweep skips the mode that was
solved last, so the cost for each mode is that against D - 1. R components have R (R + 1) / 2
second moments in each row, so the limit also grows with up to the square of R.

{exponents}

The *limit* is the time of the Cholesky inverses alone plus the longer of two times. The first is
that of the matrix products of a sweep alone, in the same blocks and with the same threads. The
second is that of copying the bytes that a sweep has to move (`moved_bytes` in
`benchmarks/scale_sweep.py` counts them). Both alternate with the sweeps. The limit does not
include the elementwise products of moments, and the new coefficients after every solve.

{large}

![Memory against rows, and the time of the limit as a fraction of that of a sweep](scale/limit.png)

{sweeps}

*keeps* is what fits below `memory_limit`, which is 18 GiB here and the default of 1.4 in the last
lines: features and products of modes ("all"), products only, or nothing. In the last case every
mode recomputes the products of all others, and the cost of a sweep grows with the square of D.
Shapes that fit below the default are not measured twice.

## An epoch of tnkm

The alternating least squares of tnkm computes a point estimate, not a posterior. Both have the
same shape, {epoch}, and two threads, and alternate in one process. The default of tnkm is
float32; btnkm uses float64.

{epochs}

{epoch_verdict}

## Other libraries

Friedman's first function of ten uniform inputs, five of them without effect, with noise of 1. The
expected RMSE cannot be below 1, and the expected NLL not below {floor}. Test parts have 10,000
rows, whose noise differs from 1 by up to a percent, so compare within a table. Medians over the
splits. Each fit has its own process, and other programs ran at the same time, so compare seconds
roughly.

![RMSE, NLL and seconds of a fit against rows](scale/compare.png)

btnkm, HistGradientBoosting, NGBoost and scikit-learn's Gaussian process have default settings.
"Short" is `n_init=1, max_iter=20, memory_limit=8`. The SVGP of GPyTorch has 128 learned inducing
points, one length scale per input, and 2,000 steps of Adam on 1,024 rows each. tnkm has 10 sines
per input, rank 8 and 10 epochs, in float32. Boosting and tnkm do not predict a distribution.
Their NLL and coverage are those of a normal with the standard deviation of the errors on a fifth
held out from a first fit. Their seconds include that fit.

{comparison}

{skipped}

{libraries}; {machines}.

## Streams

{rows:,} rows in batches of {batch}, medians over the splits. There are two restarts; all other
settings are defaults.

- *all at once* is `fit`, *first batch* a fit to the first batch only, *batches* is `partial_fit`.
- *sums alone* discards every batch after its update. `partial_fit` keeps the rows of a short
  stream, and fits the model anew each time their number has doubled.
- *forgetting* is `forget=0.9`.

The error of a regression is the RMSE to the true function; its noise is {noise}. The function is
a sum of ten products, of which the first batch shows only the larger ones. *turned* is a function
of one input for the first {turn:,} rows.

{streams}

{elsewhere}
"""


def main():
    """Write the page and its pictures, and return the exit status."""
    from benchmarks.scale_plots import draw

    records = {suite: latest(suite) for suite in SUITES}
    for suite, found in records.items():
        if not found:
            remedy = f"python -m benchmarks run {suite}"
            print(f"error: there are no results of {suite}; {remedy}", file=sys.stderr)
            return 2
    PAGE.write_text(render(records), encoding="utf-8")
    draw(records, PICTURES)
    print(f"wrote {PAGE.relative_to(HERE.parent)} and {PICTURES.relative_to(HERE.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
