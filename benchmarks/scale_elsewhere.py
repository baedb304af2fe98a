"""What the page of scale says of rows that are elsewhere: on a device, on disk, on a cluster."""

import json
import statistics
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


def read(name):
    """Return the records of a file of results, none if there is no such file."""
    path = RESULTS / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def elsewhere():
    """Return the sections, each from records of its own."""
    parts = [_device(read("gpu.jsonl")), _disk(_of("disk")), _spill(_of("spill"))]
    parts.append(_dask(_of("dask")))
    return "\n\n".join(part for part in parts if part)


def _of(kind):
    return [record for record in read("scale-rows.jsonl") if record["kind"] == kind]


def _device(records):
    if not records:
        return ""
    machine = next(r for r in records if r["kind"] == "machine")
    lines = [
        "## On a device",
        "",
        f"`python -m benchmarks.gpu` on one {machine['device']}, torch {machine['torch']}, rows",
        "made there. *By bandwidth* are the bytes that a sweep cannot do without (see the program)",
        f"at {machine['bytes_per_second'] / 1e12:.2f} TB/s, measured beside.",
        "",
        "| rows | inputs | M | R | precision | sweep s | by bandwidth s | 50 sweeps s "
        "| whole fit s | memory GiB |",
        "| --- |" + " ---: |" * 9,
    ]
    for r in records:
        if r["kind"] == "sweeps":
            cells = [f"{r['rows']:,}", r["inputs"], r["n_basis"], r["rank"], r["precision"]]
            cells += [f"{r[k]:.3f}" for k in ("sweep_seconds", "bandwidth_seconds")]
            cells += [f"{r[k]:.1f}" for k in ("exact_seconds", "fit_seconds", "peak_gib")]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    kinds = [r for r in records if r["kind"] == "difference"]
    for r in kinds:
        worst = max(v for k, v in r.items() if k not in ("kind", "library"))
        lines.append("")
        lines.append(
            f"Predictions of {len(r) - 2} kinds of model, fitted with {r['library']} there and "
            f"with NumPy here, differ by at most {worst:.0e}."
        )
    return "\n".join(lines)


def _disk(records):
    if not records:
        return ""
    lines = [
        "## On disk",
        "",
        "`python -m benchmarks.scale_rows disk`: ten inputs in Parquet files, two threads; memory",
        "is what the process has beyond what it had before.",
        "",
        "| rows | memory_limit GiB | peak GiB | whole fit s | sweep of all rows s | RMSE | noise |",
        "| --- |" + " ---: |" * 6,
    ]
    for r in records:
        cells = [f"{r['rows']:,}", f"{r['memory_limit']:g}", f"{r['peak_gib']:.2f}"]
        cells += [f"{r['fit_seconds']:.0f}", f"{r['sweep_seconds']:.0f}"]
        cells += [f"{r['rmse']:.4f}", f"{r['noise']:g}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spill(records):
    if not records:
        return ""
    names = ("again_us", "spilled_us", "written_gb_per_second", "read_gb_per_second")
    m = {name: statistics.median(r[name] for r in records) for name in names}
    inputs, rank = records[0]["inputs"], records[0]["rank"]
    turn = inputs * m["spilled_us"] / m["again_us"]
    return "\n".join(
        [
            "Coordinates are on disk, moments of rows that do not fit in memory are made anew for",
            f"every input that is updated: {m['again_us']:.2f} µs a row, of {inputs} inputs and",
            f"rank {rank} (`scale_rows spill`). On this disk, which writes "
            f"{m['written_gb_per_second']:.1f} and reads {m['read_gb_per_second']:.1f} GB/s, to",
            f"have them there would take {m['spilled_us']:.2f} µs; as the former grows with the",
            f"inputs and the latter does not, they meet at {turn:.0f} inputs.",
        ]
    )


def _dask(records):
    if not records:
        return ""
    seconds = {
        count: statistics.median(r["sweep_seconds"] for r in records if r["workers"] == count)
        for count in sorted({r["workers"] for r in records})
    }
    rows = records[0]["rows"]
    told = ", ".join(f"{s:.2f} s with {c} worker process(es)" for c, s in seconds.items())
    ratio = seconds[min(seconds)] / seconds[max(seconds)]
    return "\n".join(
        [
            "## On a cluster",
            "",
            f"`python -m benchmarks.scale_rows dask`: a sweep of {rows:,} rows of ten inputs takes "
            f"{told},",
            f"one thread each: {ratio:.2f} times as fast.",
        ]
    )
