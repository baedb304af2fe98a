"""Models as files: what ``model.save("m.btn")`` writes and ``btnkm.load("m.btn")`` reads.

A file holds what predictions and further learning need: parameters, fitted attributes, sums over
earlier rows and, of a short stream, its latest rows. It holds no code, and none is imported because
of it: an estimator hands over its state and the classes that a file may name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ..bases import Basis
from ..version import __version__
from .archive import Archive, Unreadable, write
from .atomic_write import file_path
from .contents import MODEL
from .migrate import VERSION, migrated
from .rules import MOST_FULL_ROWS
from .serialize import Decoder, Encoder

FORMAT = "btnkm model"


@dataclass(frozen=True)
class FittedState:
    """What a file holds of a fitted model.

    Attributes
    ----------
    estimator : str
        The name of its class.
    parameters, attributes : dict
        Attributes that a file has no place for are left out.
    version : int
        Of the format of the file that it was read from.
    """

    estimator: str
    parameters: dict[str, Any]
    attributes: dict[str, Any]
    version: int = VERSION


def write_model(path: Any, state: FittedState) -> None:
    """Write the state of a fitted model to a file."""
    for posterior in state.attributes["posterior_"]:
        rows = len(getattr(posterior, "share", ()))
        if rows > MOST_FULL_ROWS:
            raise ValueError(
                f"a full tensor must have at most {MOST_FULL_ROWS:,} rows to be saved, got one of "
                f"{rows:,}; lower Solver(full_rows=...) and fit again, or use pickle."
            )
    encoder, names = Encoder(), MODEL.names
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "btnkm": __version__,
        "estimator": state.estimator,
        "parameters": {
            name: encoder.node(value, f"the parameter {name}")
            for name, value in state.parameters.items()
        },
        "attributes": {
            name: encoder.node(value, f"the attribute {name}")
            for name, value in state.attributes.items()
            if name in names
        },
        "objects": encoder.objects,
    }
    write(file_path(path), manifest, encoder.arrays)


def read_model(path: Any, estimators: Mapping[str, Any], bases: Iterable[type[Basis]] = ()) -> Any:
    """Return the model in a file, or raise a ValueError if there is no sound one.

    Parameters
    ----------
    path : str or path
    estimators : dict of str to type
        Those that the file may name, with a method ``from_fitted_state``.
    bases : iterable of type
        Those bases of the model that are not the library's.
    """
    bases = list(bases)
    for basis in bases:
        if not isinstance(basis, type) or not issubclass(basis, Basis):
            raise TypeError(f"bases must be classes of bases, got {basis!r}; pass its class.")
    place = file_path(path)
    try:
        with Archive(place) as archive:
            version: Any = archive.manifest.get("version")
            if archive.manifest.get("format") != FORMAT:
                raise Unreadable("a zip of something else")
            manifest = migrated(archive.manifest, __version__)
            arrays = archive.arrays(manifest.get("arrays"))
        estimator = estimators.get(manifest["estimator"])
        if estimator is None:
            raise Unreadable("one of another estimator")
        decoder = Decoder(arrays, manifest["objects"], bases)
        parameters, attributes = (
            {name: decoder.value(node) for name, node in manifest[part].items()}
            for part in ("parameters", "attributes")
        )
        if not set(attributes) <= set(MODEL.names):
            raise Unreadable("one with other attributes than a model has")
        decoder.checker.check(SimpleNamespace(**attributes), MODEL)
        state = FittedState(manifest["estimator"], parameters, attributes, version)
        return estimator.from_fitted_state(state)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a hostile file may cause any
        raise ValueError(
            f"path must name a model saved by btnkm, got {str(place)!r}, {_reason(error)}."
        ) from error


def _reason(error: Exception) -> str:
    """Return what is wrong with a file, and what to do, in one sentence."""
    if isinstance(error, Unreadable):
        return f"{error}; {error.remedy}"
    text = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")
    return f"one with parts that do not fit together ({text}); {Unreadable('').remedy}"
