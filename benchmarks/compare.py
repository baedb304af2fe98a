"""Writes docs/compare.md, the page that compares methods, from all results of several methods.

python -m benchmarks.compare               # writes docs/compare.md and docs/compare/*.png
"""

import statistics
import sys
from typing import NamedTuple

from benchmarks import scale
from benchmarks.pages import DOCS, RESULTS, latest, number, table, text_of
from benchmarks.reproduce.methods import METHODS as REPRODUCED
from benchmarks.reproduce.render.results import Results, Summary
from benchmarks.scale_compare import SIZES, SYNTHETIC
from benchmarks.suites import SUITES

PAGE, PICTURES = DOCS / "compare.md", DOCS / "compare"
SOURCES = {
    "reproduction": DOCS / "reproduction" / "results.jsonl",
    "boosting": RESULTS / "boosting.jsonl",
}
SETS = {
    "yacht": "Yacht",
    "energy-paper": "Energy",
    "concrete": "Concrete",
    "airfoil": "Airfoil",
    "spambase": "Spambase",
    "adult": "Adult",
}
CLASSES = ("spambase", "adult")
ROWS = {"yacht": 277, "energy-paper": 690, "concrete": 927, "airfoil": 1352}
ROWS |= {"spambase": 4140, "adult": 40_699}
INPUTS = {"yacht": 6, "energy-paper": 9, "concrete": 8, "airfoil": 5, "spambase": 57, "adult": 14}
#: Methods in the order of the tables: name, source, and name there.
METHODS = {
    "btnkm": ("btnkm", "boosting", "btn"),
    "gp": ("GP", "reproduction", "gp"),
    "gp-ard": ("GP, ARD", "reproduction", "gp-ard"),
    "hgb": ("boosting", "boosting", "hgb"),
    "ngboost": ("NGBoost", "boosting", "ngboost"),
    "tkrr": ("T-KRR", "reproduction", "tkrr"),
    "spbtn": ("SP-BTN", "reproduction", "spbtn"),
}
OURS = "btnkm"
SCORES = {"error": "error", "nll": "NLL"}


class Comparison(NamedTuple):
    """A method that is better than ours on a data set, by the mean over the common splits."""

    dataset: str
    score: str
    method: str
    theirs: float
    ours: float


class Findings:
    """The means of every method on every set, over the splits of the paper."""

    def __init__(self, results):
        self.results = results

    @classmethod
    def read(cls):
        """Return the results of the committed files."""
        return cls({name: Results.read(path) for name, path in SOURCES.items()})

    def summary(self, dataset, method, score, among=None) -> Summary | None:
        """Return mean and spread of a score, None where it was not measured."""
        score = ("error" if dataset in CLASSES else "rmse") if score == "error" else score
        _, source, name = METHODS[method]
        if source == "boosting":
            config = SUITES["boosting"].defaults[name]
        elif dataset == "adult":
            dataset = "adult-96"  # these methods got the paper's 96 columns of numbers
        if source == "reproduction":
            config = REPRODUCED[name].config(dataset)
        return self.results[source].summary(dataset, name, config, score, among)

    def ahead(self):
        """Return where another method is better than ours, on the splits that both have."""
        comparisons = []
        for dataset in SETS:
            for score in SCORES:
                for method in METHODS:
                    theirs = self.summary(dataset, method, score)
                    if method == OURS or theirs is None:
                        continue
                    ours = self.summary(dataset, OURS, score, theirs.records)
                    theirs = self.summary(dataset, method, score, ours.records)
                    if theirs.mean < ours.mean:
                        comparisons.append(
                            Comparison(dataset, score, method, theirs.mean, ours.mean)
                        )
        return comparisons

    def seconds(self, dataset, method):
        """Return the median time of a fit, None where it was not measured."""
        summary = self.summary(dataset, method, "fit_seconds")
        if summary is None:
            return None
        return statistics.median(r["metrics"]["fit_seconds"] for r in summary.records)


def _number(dataset, score, value):
    digits = 4 if dataset in CLASSES and score == "error" else 3
    return f"{value:.{digits}f}"


def _time(seconds):
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.2g}"


def _scores(findings, score):
    """Return a table of a score: a line for each set, the best of each in bold."""
    lines = []
    for dataset, title in SETS.items():
        summaries = [findings.summary(dataset, method, score) for method in METHODS]
        known = [summary for summary in summaries if summary is not None]
        best = _number(dataset, score, min(summary.mean for summary in known))
        line = [title]
        most = max(len(summary.records) for summary in known)
        for summary in summaries:
            if summary is None:
                line.append("–")
                continue
            text, count = _number(dataset, score, summary.mean), len(summary.records)
            text = f"**{text}**" if text == best else text
            line.append(text if count == most else f"{text} ({count})")
        lines.append(line)
    return table(["data set", *(name for name, _, _ in METHODS.values())], lines)


def brief(findings):
    """Return the table of the README: error and NLL of some methods, the best in bold."""
    shown = [OURS, "gp-ard", "hgb", "ngboost"]
    lines = []
    for dataset, title in SETS.items():
        line = [f"{title} ({ROWS[dataset]:,} × {INPUTS[dataset]})"]
        for score in SCORES:
            summaries = [findings.summary(dataset, method, score) for method in shown]
            least = min(summary.mean for summary in summaries if summary is not None)
            best = _number(dataset, score, least)
            for summary in summaries:
                text = "–" if summary is None else _number(dataset, score, summary.mean)
                line.append(f"**{text}**" if text == best else text)
        lines.append(line)
    header = ["rows × inputs"]
    header += [f"{title}: {METHODS[m][0]}" for title in SCORES.values() for m in shown]
    return table(header, lines)


def _calibration(findings, score, datasets):
    lines = []
    for dataset in datasets:
        summaries = [findings.summary(dataset, method, score) for method in METHODS]
        means = [None if summary is None else summary.mean for summary in summaries]
        lines.append([SETS[dataset], *(number(mean, ".3f", "–") for mean in means)])
    return table(["data set", *(name for name, _, _ in METHODS.values())], lines)


def _seconds(findings):
    lines = []
    for dataset, title in SETS.items():
        seconds = [findings.seconds(dataset, method) for method in METHODS]
        shown = ["–" if value is None else _time(value) for value in seconds]
        lines.append([f"{title} ({ROWS[dataset]:,} × {INPUTS[dataset]})", *shown])
    return table(["data set (rows × inputs)", *(name for name, _, _ in METHODS.values())], lines)


def verdict(findings):
    """Return on how many sets btnkm has the lowest score, and on how many it is slower."""
    ahead = findings.ahead()
    parts = []
    for score, title in SCORES.items():
        behind = {comparison.dataset for comparison in ahead if comparison.score == score}
        parts.append(f"the lowest {title} on {len(SETS) - len(behind)} of {len(SETS)} sets")
    longer = []
    for method, name in (("hgb", "boosting"), ("gp", "a Gaussian process with one length scale")):
        theirs = {dataset: findings.seconds(dataset, method) for dataset in SETS}
        known = {dataset: value for dataset, value in theirs.items() if value is not None}
        count = sum(findings.seconds(dataset, OURS) > value for dataset, value in known.items())
        longer.append(f"{name} on {count} of {len(known)}")
    return (
        f"btnkm with default settings has {' and '.join(parts)}. It takes longer than "
        f"{', and than '.join(longer)}."
    )


def _losses(findings):
    """List where another method is better, in the digits of the table."""
    lines = []
    for dataset, score, method, *means in findings.ahead():
        theirs, ours = (_number(dataset, score, mean) for mean in means)
        if theirs != ours:
            name = METHODS[method][0]
            lines.append(f"- {SETS[dataset]}: {name} has {SCORES[score]} {theirs}, btnkm {ours}.")
    return "\n".join(lines) or "- On none of the six sets."


def _ratio(ratio):
    """Return a ratio with two significant digits."""
    return f"{float(f'{ratio:.2g}'):g}"


def _times(findings):
    """Return the ratios of the time of a fit to those of other methods, as a list."""
    sentences = []
    for method in ("hgb", "gp", "gp-ard", "ngboost"):
        ratios = {}
        for dataset, title in SETS.items():
            theirs = findings.seconds(dataset, method)
            if theirs is not None:
                ratios[title] = findings.seconds(dataset, OURS) / theirs
        least, most = min(ratios, key=ratios.get), max(ratios, key=ratios.get)
        low, high = _ratio(ratios[least]), _ratio(ratios[most])
        sentences.append(
            f"- {low} times ({least}) to {high} times ({most}) as long as a fit of "
            f"{METHODS[method][0]};"
        )
    return "\n".join(sentences)[:-1] + "."


def _by_rows(records, score, form):
    lines = []
    for method, name in scale.METHODS.items():
        values = [scale.median_of(records, dataset, method, score) for dataset in SYNTHETIC]
        if any(value is not None for value in values):
            lines.append([name, *(number(value, form, "–") for value in values)])
    return table(["method", *(f"{n:,} rows" for n in SIZES)], lines)


def _sizes(records):
    """Say at which sizes ours has the lowest NLL."""
    ahead, others = [], []
    for n, dataset in zip(SIZES, SYNTHETIC, strict=True):
        medians = {m: scale.median_of(records, dataset, m, "nll") for m in scale.METHODS}
        known = {m: value for m, value in medians.items() if value is not None}
        best = min(known, key=known.get)
        if best.startswith("btn"):
            ahead.append(f"{n:,}")
        else:
            others.append(f"{scale.METHODS[best]} at {n:,}")
    text = f"btnkm has the lowest NLL at {', '.join(ahead)} rows"
    return f"{text}; {' and '.join(others)} is lower." if others else f"{text}."


def origin(findings):
    """Return the number of fits, the processor and the versions of the libraries."""
    records = [
        record
        for dataset in SETS
        for method in METHODS
        if (summary := findings.summary(dataset, method, "error")) is not None
        for record in summary.records
    ]
    cpus = sorted({record["cpu"] for record in records})
    libraries = {record["metrics"].get("library") for record in records} - {None}
    libraries |= {f"scikit-learn {record['versions']['scikit-learn']}" for record in records}
    threads = sorted({str(record["threads"]["blas"]) for record in records})
    return (
        f"{len(records)} fits of the six sets on {', '.join(cpus)}; threads of BLAS: "
        f"{' or '.join(threads)}; {', '.join(sorted(libraries))}."
    )


def render(findings, compared):
    """Return the text of the page.

    Parameters
    ----------
    findings : Findings
        Of the six sets.
    compared : list of dict
        Records of the suite `scale-compare`.

    Returns
    -------
    text : str
    """
    return text_of("compare").format(
        verdict=verdict(findings),
        errors=_scores(findings, "error"),
        nlls=_scores(findings, "nll"),
        coverage=_calibration(findings, "coverage_95", [s for s in SETS if s not in CLASSES]),
        calibration=_calibration(findings, "ece", CLASSES),
        seconds=_seconds(findings),
        losses=_losses(findings),
        times=_times(findings),
        rmse_by_rows=_by_rows(compared, "rmse", ".3f"),
        nll_by_rows=_by_rows(compared, "nll", ".3f"),
        seconds_by_rows=_by_rows(compared, "fit_seconds", ".3g"),
        sizes=_sizes(compared),
        origin=origin(findings),
    )


def draw(findings, folder):
    """Draw NLL against seconds, a panel for each set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from benchmarks.scale_plots import COLOURS

    colours = {"btnkm": COLOURS["btn"], "gp": "#9a9a9a", "gp-ard": COLOURS["gp"]}
    colours |= {"hgb": COLOURS["hgb"], "ngboost": COLOURS["ngboost"], "spbtn": COLOURS["tnkm"]}
    markers = dict(zip(colours, "oDsPXv", strict=True))
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained")
    for axis, (dataset, title) in zip(axes.flat, SETS.items(), strict=True):
        for method, colour in colours.items():
            nll = findings.summary(dataset, method, "nll")
            if nll is None:
                continue
            axis.plot(
                findings.seconds(dataset, method),
                nll.mean,
                markers[method],
                color=colour,
                markersize=9 if method == OURS else 7,
                label=METHODS[method][0],
                zorder=3 if method == OURS else 2,
            )
        axis.set_xscale("log")
        axis.set_title(f"{title}, {ROWS[dataset]:,} rows", fontsize="medium")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e5e7eb", linewidth=0.8)
        axis.set_axisbelow(True)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6, frameon=False)
    figure.supxlabel("seconds of a fit (left is faster)", fontsize="medium")
    figure.supylabel("NLL (lower is better)", fontsize="medium")
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / "time.png", dpi=130)
    plt.close(figure)


def main():
    """Write the page and its picture, and return the exit status."""
    for path in SOURCES.values():
        if not path.exists():
            print(f"error: there is no {path.name}; see benchmarks/README.md", file=sys.stderr)
            return 2
    findings = Findings.read()
    PAGE.write_text(render(findings, latest("scale-compare")), encoding="utf-8")
    draw(findings, PICTURES)
    print(f"wrote {PAGE} and {PICTURES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
