"""Results read back: the runs of a configuration, and their mean and spread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.runs.experiment import Cell
from benchmarks.runs.records import Record, read_records, record_key


class Summary(NamedTuple):
    """Mean and standard deviation of a score over splits, and the runs it is of.

    One run has no spread.
    """

    mean: float
    spread: float | None
    records: list[Record]


class Results:
    """The last result of every run in a file.

    Means are of runs of one code: the last one of each configuration, unless ``any_version``.
    """

    def __init__(self, records: Iterable[Record], any_version: bool = False) -> None:
        records = list(records)
        newest = {_configuration(record): record["code"] for record in records}
        kept = [r for r in records if any_version or newest[_configuration(r)] == r["code"]]
        self.of_key = {record_key(record): record for record in kept}
        self._of_configuration: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
        for record in sorted(self.of_key.values(), key=lambda record: int(record["split"])):
            self._of_configuration[_configuration(record)].append(record)
        self.n_hidden = len(records) - len(kept)

    @classmethod
    def read(cls, path: Any, any_version: bool = False) -> Results:
        """Return the results in a file of JSON lines."""
        records, _ = read_records(path)
        if not records:
            raise ValueError(
                f"{path} must hold at least one result to draw, got none; run an experiment first, "
                "without --render."
            )
        return cls(records, any_version)

    def runs(self, dataset: str, method: str, config: Mapping[str, Any]) -> list[Record]:
        """Return the results of one configuration, by split."""
        wanted = dataset, method, Cell(dataset, 0, method, dict(config)).config_hash
        return self._of_configuration.get(wanted, [])

    def summary(
        self,
        dataset: str,
        method: str,
        config: Mapping[str, Any],
        score: str,
        among: Iterable[Record] | None = None,
    ) -> Summary | None:
        """Return mean and spread of a score; None where no run has it.

        With ``among``, of the splits only that those runs have.
        """
        splits = None if among is None else {record["split"] for record in among}
        records = [
            record
            for record in self.runs(dataset, method, config)
            if isinstance(record["metrics"].get(score), int | float)
            and (splits is None or record["split"] in splits)
        ]
        if not records:
            return None
        values = np.array([record["metrics"][score] for record in records], dtype=float)
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return Summary(float(np.mean(values)), spread, records)  # NaN where a run has none


ORIGIN = ("splits", "seeds", "configuration", "version", "machine")


def provenance(records: Iterable[Record]) -> dict[str, str]:
    """Return seed, configuration, version and machine of runs, as text."""
    records = list(records)
    if not records:
        return dict.fromkeys(ORIGIN, "")
    splits = sorted({record["split"] for record in records})
    whole = splits == list(range(splits[0], splits[-1] + 1))
    seeds = f"{splits[0]}-{splits[-1]}" if whole and len(splits) > 1 else _listed(splits)
    states = _listed(r["config"].get("random_state", "as the split") for r in records)
    return {
        "splits": str(len(splits)),
        "seeds": f"split {seeds}, random_state {states}",
        "configuration": "; ".join(dict.fromkeys(map(_settings, records))),
        "version": _listed({f"{r['versions']['btnkm']} ({r['code']})" for r in records}),
        "machine": _listed({f"{r['cpu']}, Python {r['versions']['python']}" for r in records}),
    }


def _configuration(record: Record) -> tuple[str, str, str]:
    return record["dataset"], record["method"], record["config_hash"]


def _settings(record: Record) -> str:
    config = ", ".join(f"{name}={value}" for name, value in sorted(record["config"].items()))
    return f"{record['method']}: {config}"


def _listed(values: Iterable[Any]) -> str:
    return " and ".join(sorted({str(value) for value in values}))
