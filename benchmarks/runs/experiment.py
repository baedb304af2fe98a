"""A cell is one measurement: a data set, a split, a method and its configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from . import machine

#: Takes a Cell, returns a dict that JSON can hold.
Measure = Callable[["Cell"], dict[str, Any]]


@dataclass(frozen=True)
class Cell:
    """Name one measurement.

    Parameters
    ----------
    dataset : str
    split : int
    method : str
    config : dict
        Keywords of the method; must survive a round trip through JSON.
    """

    dataset: str
    split: int
    method: str
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def config_hash(self) -> str:
        """Short hash of the configuration, independent of the order of its keys."""
        text = json.dumps(self.config, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def key(self) -> tuple[str, int, str, str]:
        """What makes two measurements the same, apart from the code measured."""
        return self.dataset, self.split, self.method, self.config_hash

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.dataset} split {self.split} {self.method}"


class CellError(RuntimeError):
    """A cell could not be measured."""


def measure_here(measure: Measure, cell: Cell) -> dict[str, Any]:
    """Measure a cell in this process: ``metrics``, and ``threads`` as they were afterwards."""
    return {"metrics": measure(cell), "threads": machine.threads()}
