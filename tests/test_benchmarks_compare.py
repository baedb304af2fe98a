"""The page that compares methods is what the results say, losses included."""

import pytest

from benchmarks.compare import (
    METHODS,
    OURS,
    PAGE,
    SETS,
    SOURCES,
    Findings,
    _losses,
    brief,
    render,
    verdict,
)
from benchmarks.pages import latest
from benchmarks.reproduce.methods import METHODS as REPRODUCED
from benchmarks.reproduce.render.results import Results
from benchmarks.runs import runner
from benchmarks.runs.experiment import Cell
from benchmarks.suites import SUITES

CONTEXT = {"code": "abc", "commit": "abc", "dirty": False, "cpu": "a processor"}


def record(dataset, split, method, config, **metrics):
    return runner._record(Cell(dataset, split, method, config), {"metrics": metrics}, CONTEXT)


def findings(**changes):
    """Return results in which ours has an error of 1 and all others of 2, but for changes."""
    records = {source: [] for source in SOURCES}
    for dataset in SETS:
        error = "error" if dataset in ("spambase", "adult") else "rmse"
        for method, (_, source, name) in METHODS.items():
            place = dataset
            if source == "boosting":
                config = SUITES["boosting"].defaults[name]
            else:
                place = "adult-96" if dataset == "adult" else dataset
                config = REPRODUCED[name].config(place)
            value = changes.get(f"{method}_{dataset}", 1.0 if method == OURS else 2.0)
            for split in (0, 1):
                metrics = {error: value, "nll": value, "fit_seconds": 3.0 + split}
                if method == "hgb":
                    metrics["fit_seconds"] = 0.5
                records[source].append(record(place, split, name, config, **metrics))
    return Findings({source: Results(actual) for source, actual in records.items()})


def test_what_is_ahead_is_told():
    none = findings()
    assert none.ahead() == []
    assert _losses(none) == "- On none of the six sets."
    assert "lowest error on 6 of 6 sets and the lowest NLL on 6 of 6" in verdict(none)
    assert "longer than boosting on 6 of 6" in verdict(none)
    some = findings(hgb_adult=0.5, tkrr_yacht=0.25)
    assert {(item.dataset, item.method) for item in some.ahead()} == {
        ("adult", "hgb"),
        ("yacht", "tkrr"),
    }
    assert "- Adult: boosting has error 0.5000, btnkm 1.0000." in _losses(some)
    assert "- Yacht: T-KRR has NLL 0.250, btnkm 1.000." in _losses(some)
    assert "lowest error on 4 of 6 sets" in verdict(some)


def test_methods_are_compared_on_the_splits_that_both_have():
    findings_made = findings()
    config = SUITES["boosting"].defaults["btn"]
    extra = record("yacht", 2, "btn", config, rmse=9.0, nll=9.0, fit_seconds=1.0)
    old = list(findings_made.results["boosting"].of_key.values())
    findings_made.results["boosting"] = Results([*old, extra])
    assert findings_made.summary("yacht", OURS, "error").mean == pytest.approx(11 / 3)
    assert findings_made.ahead() == []


def test_the_committed_page_is_what_the_committed_results_say():
    if not PAGE.exists():
        pytest.skip("an sdist leaves out docs/ and results")
    text = render(Findings.read(), latest("scale-compare"))
    assert text == PAGE.read_text(encoding="utf-8")


def test_the_readme_has_the_table_of_the_committed_results():
    readme = PAGE.parent.parent / "README.md"
    assert brief(Findings.read()) in readme.read_text(encoding="utf-8")
