"""A small table for the tests of the program, and how these run it."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np

HEADER = ("id", "area", "rooms", "city", "built", "garden", "zip", "price", "sold")
INPUTS = HEADER[1:7]
ROWS = 120
QUICK = (
    "--n-init",
    "1",
    "--set",
    "max_iter=6",
    "--set",
    "solver.warm_sweeps=4",
    "--jobs",
    "1",
    "--set",
    "structure=tensor",
    "--max-rank",
    "4",
)


def houses(n, seed=0):
    """Return rows of text (some numbers are missing), a price and a class."""
    rng = np.random.default_rng(seed)
    worth = {"Rome": 10.0, "São Paulo": 30.0, "Lima": 0.0}
    rows = []
    for i in range(n):
        area, rooms = float(rng.uniform(40, 200)), int(rng.integers(1, 7))
        city, garden = str(rng.choice(list(worth))), bool(rng.random() < 0.5)
        built = np.datetime64("1950-01-01") + int(rng.integers(0, 25000))
        price = 0.5 * area + 3 * rooms + worth[city] + 5 * garden + 4 * rng.normal()
        sold = "yes" if price + 10 * rng.normal() > 80 else "no"
        gap = rng.random() < 0.05
        rows.append(
            (f"{i}", f"{area:.1f}", "" if gap else f"{rooms}", city, f"{built}")
            + (str(garden).lower(), f"{rng.choice([1010, 2020, 3030])}", f"{price:.2f}", sold)
        )
    return rows


def write(path, rows, header=HEADER, **how):
    """Write rows of text to a file."""
    with Path(path).open("w", newline="", encoding=how.pop("encoding", "utf-8")) as file:
        writer = csv.writer(file, **{"lineterminator": "\n", **how})
        writer.writerow(header)
        writer.writerows(rows)
    return Path(path)


def write_parquet(path, rows, header=HEADER):
    """Write the same rows with types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    numbers = {"id": int, "area": float, "rooms": int, "zip": int, "price": float}
    for name, convert in numbers.items():
        columns[name] = [convert(v) if v else None for v in columns[name]]
    columns["built"] = np.array(columns["built"], dtype="M8[D]")
    columns["garden"] = [v == "true" for v in columns["garden"]]
    pq.write_table(pa.table(columns), path)
    return Path(path)


def start(*arguments, **how):
    """Start the program."""
    return subprocess.Popen(
        [sys.executable, "-m", "btnkm", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        **how,
    )


def run(*arguments, given=None, **how):
    """Run the program; return its exit code, stdout and stderr."""
    process = start(*arguments, stdin=subprocess.PIPE, **how)
    out, err = process.communicate(given, timeout=600)
    return process.returncode, out, err


def read(path):
    """Return a file of text as columns by name."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return (
        dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else {h: () for h in header}
    )
