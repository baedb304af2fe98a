"""Results read back: the runs of a configuration, and their mean and spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...runs.cells import Cell
from ...runs.records import Record, read_records, record_key


class Summary(NamedTuple):
    """Mean and standard deviation of a score over splits, and the runs it is of."""

    mean: float
    spread: float
    records: list[Record]


class Results:
    """The last result of every run in a file."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.of_key = {record_key(record): record for record in records}

    @classmethod
    def read(cls, path: Any) -> Results:
        """Return the results in a file of JSON lines."""
        records, _ = read_records(path)
        if not records:
            raise ValueError(
                f"{path} must hold at least one result to draw, got none; run an experiment first, "
                "without --render."
            )
        return cls(records)

    def runs(self, dataset: str, method: str, config: Mapping[str, Any]) -> list[Record]:
        """Return the results of one configuration, by split."""
        wanted = Cell(dataset, 0, method, dict(config)).config_hash
        found = [
            record
            for (name, _, of, config_hash), record in self.of_key.items()
            if (name, of, config_hash) == (dataset, method, wanted)
        ]
        return sorted(found, key=lambda record: int(record["split"]))

    def summary(
        self, dataset: str, method: str, config: Mapping[str, Any], score: str
    ) -> Summary | None:
        """Return mean and spread of a score; None where no run has it."""
        records = [
            record
            for record in self.runs(dataset, method, config)
            if isinstance(record["metrics"].get(score), int | float)
        ]
        if not records:
            return None
        values = [float(record["metrics"][score]) for record in records]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return Summary(statistics.fmean(values), spread, records)


def provenance(records: Iterable[Record]) -> dict[str, str]:
    """Return seed, configuration, version and machine of runs of one configuration, as text."""
    records = list(records)
    splits = sorted(record["split"] for record in records)
    whole = splits == list(range(splits[0], splits[-1] + 1))
    seeds = f"{splits[0]}-{splits[-1]}" if whole and len(splits) > 1 else _listed(splits)
    config = records[0]["config"]
    return {
        "splits": str(len(splits)),
        "seeds": f"split {seeds}, random_state {config.get('random_state', 'as the split')}",
        "configuration": ", ".join(f"{name}={value}" for name, value in sorted(config.items())),
        "version": _listed({f"{r['versions']['btnkm']} ({r['code']})" for r in records}),
        "machine": _listed({f"{r['cpu']}, Python {r['versions']['python']}" for r in records}),
    }


def _listed(values: Iterable[Any]) -> str:
    return " and ".join(sorted({str(value) for value in values}))
