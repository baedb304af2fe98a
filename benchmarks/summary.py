"""Tables of results: mean and spread over splits, next to the paper and to the targets."""

import statistics
from collections import defaultdict

from benchmarks.accuracy import CLASSIFICATION, REGRESSION, task_of
from benchmarks.runs.records import read_records, record_key

#: For each score the best entry of the set's row in the paper's Table 4.
PAPER = {
    "yacht": {"rmse": 0.379, "nll": 0.105},
    "energy-paper": {"rmse": 0.456, "nll": 1.530},
    "concrete": {"rmse": 4.96, "nll": 3.08},
    "airfoil": {"rmse": 1.72, "nll": 2.28},
    "spambase": {"error": 0.066, "nll": 0.499},
    "adult-96": {"error": 0.144, "nll": 0.674},
}
#: What the defaults must reach as means over the ten splits.
TARGET = {
    "yacht": {"rmse": 0.350, "nll": 0.07},
    "energy-paper": {"rmse": 0.413, "nll": 0.55},
    "concrete": {"rmse": 4.20, "nll": 2.81},
    "airfoil": {"rmse": 1.14, "nll": 1.48},
    "spambase": {"error": 0.046, "nll": 0.135, "ece": 0.02},
    "adult": {"error": 0.140, "nll": 0.300, "ece": 0.01},
    "adult-96": {"error": 0.143, "nll": 0.310, "ece": 0.01},
}
#: For the regression sets among them.
COVERAGE_TARGET = (0.93, 0.98)
#: A classification may take so many times as long to fit as gradient boosting.
TIME_RATIO_TARGET = 10

MEAN, MEDIAN = "mean", "median"
COLUMNS = {
    "rmse": ("RMSE", MEAN),
    "error": ("error", MEAN),
    "nll": ("NLL", MEAN),
    "brier": ("Brier", MEAN),
    "ece": ("ECE", MEAN),
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
    values = (record["metrics"].get(name) for record in records)
    return [value for value in values if _is_number(value)]


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
    default = task_of(record["dataset"]).methods.get(record["method"], (None, {}))[1]
    changed = {k: v for k, v in record["config"].items() if k not in default or default[k] != v}
    settings = " ".join(f"{name}={value}" for name, value in sorted(changed.items()))
    return f"{record['method']} {settings}".strip()


def _short(code):
    return code[:7]


def group(records, all_versions=False):
    """Sort results into data sets and, within them, methods.

    Parameters
    ----------
    records : list of dict
        In the order in which they were written.
    all_versions : bool
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
            if not all_versions:
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
    # Both tasks have an NLL; a suite that measures something else has none.
    if "nll" not in columns:
        return rows
    if dataset in PAPER:
        paper = {name: _number(value) for name, value in PAPER[dataset].items()}
        rows.append(["paper, best", "10", *(paper.get(c, "") for c in columns)])
    if dataset in TARGET:
        target = {name: f"≤ {_number(bar)}" for name, bar in TARGET[dataset].items()}
        target["coverage_95"] = "{}–{}".format(*COVERAGE_TARGET)
        rows.append(["target", "10", *(target.get(c, "") for c in columns)])
    return rows


def _verdicts(dataset, methods):
    """Say in sentences whether each btn row meets the targets and how its time compares."""
    task = task_of(dataset)
    rival, name, compare = _RIVALS[task]
    for label, records in methods.items():
        if records[0]["method"] != "btn" or not _values(records, "nll"):
            continue
        parts = []
        for score, bar in TARGET.get(dataset, {}).items():
            verb = "meets" if statistics.fmean(_values(records, score)) <= bar else "misses"
            parts.append(f"{COLUMNS[score][0]} {verb} the target")
        if dataset in TARGET and task is REGRESSION:
            low, high = COVERAGE_TARGET
            inside = low <= statistics.fmean(_values(records, "coverage_95")) <= high
            parts.append(f"coverage is {'inside' if inside else 'outside'} the target")
        if rival in methods:
            parts.append(_time(records, methods[rival], name, compare))
        if parts:
            yield f"{label}: {'; '.join(parts)}."


def _time(ours, theirs, name, compare):
    splits = {r["split"] for r in ours} & {r["split"] for r in theirs}
    ours, theirs = ([r for r in group if r["split"] in splits] for group in (ours, theirs))
    if not splits:
        return f"no split in common with {name}"
    if len({r["cpu"] for r in ours + theirs}) > 1:
        return f"fit time is not compared, as {name} ran on another processor"
    mine, other = (statistics.median(_values(group, "fit_seconds")) for group in (ours, theirs))
    return f"fit time {mine:.3g} s is {compare(mine, other, name)}"


def _below(mine, other, name):
    return f"{'below' if mine < other else 'not below'} {name}'s {other:.3g} s"


def _ratio(mine, other, name):
    relation = "within" if mine <= TIME_RATIO_TARGET * other else "not within"
    return f"{mine / other:.3g} times {name}'s {other:.3g} s, {relation} {TIME_RATIO_TARGET}"


#: Method with whose time btn is compared, its name in a sentence, and how.
_RIVALS = {REGRESSION: ("gp", "the GP", _below), CLASSIFICATION: ("hgb", "hgb", _ratio)}


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
    "Memory is the rise during the fit.",
)
REGRESSION_NOTE = (
    "Regression: all scores are in the units of y; NLL is the mean negative log density.",
    "Intervals of hgb are a normal with one held-out residual spread.",
)
CLASSIFICATION_NOTE = (
    "Classification: error is the fraction of wrong rows, NLL the mean negative log probability",
    "of the true class, Brier the squared error summed over classes (over the second alone if",
    "there are two), ECE the difference of confidence and accuracy over ten bins of confidence.",
)
PAPER_NOTE = (
    '"paper, best" quotes, for each score, the best method in the paper\'s Table 4. Splits and',
    "standardisation are the same, but the program behind those figures is another one and",
    "differs in detail: they are there to compare with, not to match digit by digit.",
)


def summarise(files, *, markdown=False, all_versions=False):
    """Return the tables of result files as text.

    Parameters
    ----------
    files : sequence of pathlib.Path
    markdown : bool
        Whether tables are written in Markdown.
    all_versions : bool
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
        measured, n_broken = read_records(file)
        records += [record for record in measured if "skipped" not in record["metrics"]]
        if n_broken:
            notes.append(f"{n_broken} incomplete line(s) of {file} are ignored.")
    if not records:
        raise ValueError(
            "a summary must have at least one result, got none; "
            "start with: python -m benchmarks run smoke"
        )
    groups, n_hidden = group(records, all_versions)
    if n_hidden:
        notes.append(f"{n_hidden} result(s) of older code are hidden; --all-versions shows them.")
    lines = []
    for dataset, methods in groups.items():
        lines += [f"### {dataset}", ""] if markdown else [dataset]
        rows = _rows(dataset, methods)
        lines += _markdown(rows) if markdown else _aligned(rows)
        verdicts = list(_verdicts(dataset, methods))
        lines += ([""] if markdown and verdicts else []) + verdicts + [""]
    lines += NOTES
    for task, note in ((REGRESSION, REGRESSION_NOTE), (CLASSIFICATION, CLASSIFICATION_NOTE)):
        if any(task_of(dataset) is task for dataset in groups):
            lines += note
    if any(dataset in PAPER for dataset in groups):
        lines += PAPER_NOTE
    return "\n".join([*lines, _provenance(groups), *notes])
