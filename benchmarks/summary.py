"""Tables of results: mean and spread over splits, next to the paper and to the targets."""

import statistics
from collections import defaultdict

from benchmarks.methods import METHODS
from benchmarks.records import read_records, record_key

#: RMSE and NLL: for each the best entry of the set's row in the paper's Table 4.
PAPER = {
    "yacht": (0.379, 0.105),
    "energy-paper": (0.456, 1.530),
    "concrete": (4.96, 3.08),
    "airfoil": (1.72, 2.28),
}
#: RMSE and NLL that the defaults must reach as means over the ten splits.
TARGET = {
    "yacht": (0.350, 0.07),
    "energy-paper": (0.413, 0.55),
    "concrete": (4.20, 2.81),
    "airfoil": (1.14, 1.48),
}
COVERAGE_TARGET = (0.93, 0.98)

MEAN, MEDIAN = "mean", "median"
COLUMNS = {
    "rmse": ("RMSE", MEAN),
    "nll": ("NLL", MEAN),
    "coverage_50": ("cov. 50%", MEAN),
    "coverage_90": ("cov. 90%", MEAN),
    "coverage_95": ("cov. 95%", MEAN),
    "crps": ("CRPS", MEAN),
    "rank": ("rank", MEAN),
    "fit_seconds": ("fit s", MEDIAN),
    "predict_seconds": ("predict s", MEDIAN),
    "peak_memory_mb": ("peak MB", MEDIAN),
}


def _number(value):
    decimals = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1
    return f"{value:.{decimals}f}"


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _values(records, name):
    found = (record["metrics"].get(name) for record in records)
    return [value for value in found if _is_number(value)]


def _entry(records, name):
    values = _values(records, name)
    if not values:
        return ""
    if COLUMNS.get(name, (name, MEAN))[1] == MEDIAN:
        return _number(statistics.median(values))
    spread = f" ± {_number(statistics.stdev(values))}" if len(values) > 1 else ""
    return f"{_number(statistics.fmean(values))}{spread}"


def _label(record):
    """Name a method, with what its configuration changes or adds to the default."""
    default = METHODS[record["method"]][1] if record["method"] in METHODS else {}
    changed = {k: v for k, v in record["config"].items() if k not in default or default[k] != v}
    settings = " ".join(f"{name}={value}" for name, value in sorted(changed.items()))
    return f"{record['method']} {settings}".strip()


def _short(code):
    commit, plus, sources = code.partition("+")
    return commit[:7] + plus + sources[:4]


def group(records, all_commits=False):
    """Sort results into data sets and, within them, methods.

    Parameters
    ----------
    records : list of dict
        In the order in which they were written.
    all_commits : bool
        Whether to keep results of older code, as rows of their own.

    Returns
    -------
    groups : dict of str to dict of str to list of dict
        Data set, then label of the method, then its results, one per split.
    n_hidden : int
        Results of older code that were left out.
    """
    newest = {}
    for record in records:
        newest[(record["dataset"], _label(record))] = record["code"]
    latest, n_hidden = {}, 0
    for record in records:
        label = _label(record)
        if newest[(record["dataset"], label)] != record["code"]:
            if not all_commits:
                n_hidden += 1
                continue
            label = f"{label} @{_short(record['code'])}"
        # A cell measured twice counts once, with its last result.
        latest[(record_key(record), label)] = record
    groups = defaultdict(lambda: defaultdict(list))
    for (key, label), record in latest.items():
        groups[key[0]][label].append(record)
    return groups, n_hidden


def _columns(methods):
    present = {
        name
        for records in methods.values()
        for record in records
        for name, value in record["metrics"].items()
        if _is_number(value)
    }
    return [c for c in COLUMNS if c in present] + sorted(present - set(COLUMNS))


def _rows(dataset, methods):
    columns = _columns(methods)
    rows = [["method", "splits", *(COLUMNS.get(c, (c, MEAN))[0] for c in columns)]]
    for label, records in methods.items():
        rows.append([label, str(len(records)), *(_entry(records, c) for c in columns)])
    if dataset in PAPER and "rmse" in columns:
        paper = dict(zip(("rmse", "nll"), map(_number, PAPER[dataset]), strict=True))
        bars = (f"≤ {_number(bar)}" for bar in TARGET[dataset])
        target = dict(zip(("rmse", "nll"), bars, strict=True))
        target["coverage_95"] = "{}–{}".format(*COVERAGE_TARGET)
        rows.append(["paper, best", "10", *(paper.get(c, "") for c in columns)])
        rows.append(["target", "10", *(target.get(c, "") for c in columns)])
    return rows


def _verdicts(dataset, methods):
    """Say in sentences whether each btn row meets the targets and is faster than the GP."""
    for label, records in methods.items():
        if records[0]["method"] != "btn" or not _values(records, "rmse"):
            continue
        parts = []
        if dataset in TARGET:
            for name, bar in zip(("rmse", "nll"), TARGET[dataset], strict=True):
                mean = statistics.fmean(_values(records, name))
                verb = "meets" if mean <= bar else "misses"
                parts.append(f"{COLUMNS[name][0]} {verb} the target")
            low, high = COVERAGE_TARGET
            inside = low <= statistics.fmean(_values(records, "coverage_95")) <= high
            parts.append(f"coverage is {'inside' if inside else 'outside'} the target")
        if "gp" in methods:
            parts.append(_faster(records, methods["gp"]))
        if parts:
            yield f"{label}: {'; '.join(parts)}."


def _faster(ours, gp):
    splits = {r["split"] for r in ours} & {r["split"] for r in gp}
    ours, gp = ([r for r in group if r["split"] in splits] for group in (ours, gp))
    if not splits:
        return "no split in common with the GP"
    if len({r["cpu"] for r in ours + gp}) > 1:
        return "fit time is not compared, as the GP ran on another processor"
    mine, theirs = (statistics.median(_values(group, "fit_seconds")) for group in (ours, gp))
    relation = "is below" if mine < theirs else "is not below"
    return f"fit time {mine:.3g} s {relation} the GP's {theirs:.3g} s"


def _aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return lines


def _markdown(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|---|" + "---:|" * (len(rows[0]) - 1))
    return lines


def _code(record):
    commit = (record["commit"] or "no commit")[:9]
    return f"{commit} with changes" if record["dirty"] else commit


def _provenance(groups):
    shown = [r for methods in groups.values() for records in methods.values() for r in records]
    codes = sorted({_code(r) for r in shown})
    cpus = sorted({r["cpu"] for r in shown})
    return f"Code: {', '.join(codes)}. Processor: {', '.join(cpus)}."


NOTES = (
    "Entries are means ± standard deviations over splits; seconds and memory are medians.",
    "Memory is the rise during the fit. All scores are in the units of y; NLL is the mean",
    "negative log density. Intervals of hgb are a normal with one held-out residual spread.",
)
PAPER_NOTE = (
    '"paper, best" quotes, for each score, the best method in the paper\'s Table 4. Splits and',
    "standardisation are the same, but the program behind those figures is another one and",
    "differs in detail: they are there to compare with, not to match digit by digit.",
)


def summarise(files, *, markdown=False, all_commits=False):
    """Return the tables of result files as text.

    Parameters
    ----------
    files : sequence of pathlib.Path
    markdown : bool
        Whether tables are written in Markdown.
    all_commits : bool
        Whether results of older code are shown too.

    Returns
    -------
    text : str
    """
    records, notes = [], []
    for file in files:
        if not file.exists():
            raise FileNotFoundError(
                f"the results must be in an existing file, got {file}; run a suite first."
            )
        found, n_broken = read_records(file)
        records += found
        if n_broken:
            notes.append(f"{n_broken} incomplete line(s) of {file} are ignored.")
    if not records:
        raise ValueError(
            "a summary must have at least one result, got none; "
            "start with: python -m benchmarks run smoke"
        )
    groups, n_hidden = group(records, all_commits)
    if n_hidden:
        notes.append(f"{n_hidden} result(s) of older code are hidden; --all-commits shows them.")
    lines = []
    for dataset, methods in groups.items():
        lines += [f"### {dataset}", ""] if markdown else [dataset]
        rows = _rows(dataset, methods)
        lines += _markdown(rows) if markdown else _aligned(rows)
        verdicts = list(_verdicts(dataset, methods))
        lines += ([""] if markdown and verdicts else []) + verdicts + [""]
    lines += NOTES
    if any(dataset in PAPER for dataset in groups):
        lines += PAPER_NOTE
    return "\n".join([*lines, _provenance(groups), *notes])
