"""Models as files: ``model.save("m.btn")`` and ``btnkm.load("m.btn")``.

A file holds what predictions need and what learning on needs: parameters, fitted attributes, the
sums that earlier rows have left and, of a short stream, its latest rows. It holds no code, and none
is imported because of it.

``VERSION`` goes up by one when an older library could not read, or would misread, what is written.
The same change then adds to ``MIGRATIONS`` how a ``model.json`` of the version before becomes one
of the new version, so that every file from version ``OLDEST`` on can be read, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .. import __version__, classifier
from ..bases import Basis
from ..classifier import BTNClassifier
from ..parameters import lasting_parameters
from ..regressor import BTNRegressor
from .archive import Archive, Unreadable, write
from .atomic_write import file_path
from .serialize import Decoder, Encoder
from .validate import check_model
from .validate_full import MOST_FULL_ROWS

FORMAT, VERSION = "btnkm model", 5
OLDEST = 3  # that can be read: no earlier one was released

_ESTIMATORS: dict[str, type] = {"BTNClassifier": BTNClassifier, "BTNRegressor": BTNRegressor}
_FORMER = {"feature_importances_", "feature_importances_std_"}  # of files before they were lazy
#: Attributes of a fitted model; those of a parameter's name are parameters.
_ATTRIBUTES = {
    "_active",
    "_arrangements",
    "_averages",
    "_begun_with",
    "_effect_averages",
    "_encode",
    "_log_weights",
    "_pasts",
    "_threshold",
    "_window",
    "_y_scale",
    "_y_shift",
    "best_restart_",
    "classes_",
    "columns_",
    "converged_",
    "cores_",
    "feature_names_in_",
    "history_",
    "likelihood_",
    "lower_bound_",
    "lower_bounds_",
    "mode_order_",
    "n_basis_",
    "n_features_in_",
    "n_iter_",
    "n_samples_seen_",
    "noise_std_",
    "posterior_",
    "rank_",
    "ranks_",
    "stop_reason_",
    "structures_",
    "target_name_",
    "weights_",
}


def _with_full_tensors(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a ``model.json`` from before there were full tensors as one of version 4."""
    objects = [
        item | {"fields": item["fields"] | {"kernel": False}}
        if item["kind"] == "Arrangement"
        else item
        for item in manifest["objects"]
    ]
    parameters = manifest["parameters"] | {"full_rows": 2000}
    return manifest | {"objects": objects, "parameters": parameters}


def _with_heavy_tails(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a ``model.json`` from before heavy tails were a candidate as one of version 5."""
    if any(item["kind"] == "Kernel" for item in manifest["objects"]):
        raise Unreadable(
            "one with a full tensor of format 4, whose kernel has changed; fit it anew"
        )
    objects = [
        item | {"fields": item["fields"] | {"heavy": False}}
        if item["kind"] == "Arrangement"
        else item
        for item in manifest["objects"]
    ]
    return manifest | {"objects": objects}


#: From a ``model.json`` of version k to one of version k + 1.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    3: _with_full_tensors,
    4: _with_heavy_tails,
}


def save(model: Any, path: Any) -> None:
    """Write a fitted model to a file; see ``BTNRegressor.save``."""
    name = type(model).__name__
    if _ESTIMATORS.get(name) is not type(model):
        raise TypeError(
            f"a model must be a BTNRegressor or a BTNClassifier to be saved, got {name}; save the "
            "part of it that is one."
        )
    check_is_fitted(model)
    _check_rows(model)
    encoder = Encoder()
    parameters = {
        key: encoder.node(value, f"the parameter {key}")
        for key, value in _parameters(model).items()
    }
    attributes = {
        key: encoder.node(value, f"the attribute {key}")
        for key, value in _attributes(model).items()
    }
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "btnkm": __version__,
        "estimator": name,
        "parameters": parameters,
        "attributes": attributes,
        "objects": encoder.objects,
    }
    write(file_path(path), manifest, encoder.arrays)


def _check_rows(model: Any) -> None:
    """Say so if a model has more rows than a file may hold."""
    for one, state in zip(model._arrangements, model.posterior_, strict=True):
        if one.kernel and len(state.share) > MOST_FULL_ROWS:
            raise ValueError(
                f"a full tensor must have at most {MOST_FULL_ROWS:,} rows to be saved, got one of "
                f"{len(state.share):,}; lower Solver(full_rows=...) and fit again, or use pickle."
            )


def _parameters(model: Any) -> dict[str, Any]:
    """Return the parameters, but for what is good for one process only."""
    model._check_parameters()  # one that was set since the fit is to be read again, too
    found = model.get_params(deep=False)
    seed = found["random_state"]
    lasting = seed is None or not hasattr(seed, "get_state")
    return found | {"callback": None, "random_state": seed if lasting else None}


def _attributes(model: Any) -> dict[str, Any]:
    """Return what was fitted, functions by their arguments."""
    found = {name: value for name, value in vars(model).items() if name in _ATTRIBUTES}
    if "_encode" in found:  # classes are an attribute already
        found["_encode"] = found["_encode"].args[1:]
    found["weights_"] = found["weights_"].tolist()
    # text of a parameter may be another in another process: none stands for that it is the same
    now = lasting_parameters(model, model._lasting)
    found["_begun_with"] = {
        name: None if now[name] == text else text for name, text in found["_begun_with"].items()
    }
    return found


def load(path: Any, bases: Iterable[type[Basis]] = ()) -> Any:
    """Return the model that ``model.save(path)`` has written.

    It predicts bit for bit what the saved one does, and learns on as that would. No code is run
    that the file names: it may come from anywhere. What is no model, or was changed, is refused.

    Parameters
    ----------
    path : str or path
    bases : iterable of classes
        Those bases of the model that are your own.

    Returns
    -------
    BTNRegressor or BTNClassifier

    Examples
    --------
    >>> import numpy as np, tempfile, os, btnkm
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = btnkm.BTNRegressor(n_init=1, random_state=0).fit(X, np.sin(5 * X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.btn")
    ...     model.save(path)
    ...     same = btnkm.load(path)
    >>> bool(np.all(same.predict(X) == model.predict(X)))
    True
    """
    known = list(bases)
    for basis in known:
        if not isinstance(basis, type) or not issubclass(basis, Basis):
            raise TypeError(f"bases must be classes of bases, got {basis!r}; pass its class.")
    found = file_path(path)
    try:
        with Archive(found) as archive:
            manifest = _of_this_version(archive.manifest)
            arrays = archive.arrays(manifest.get("arrays"))
        return _model(manifest, arrays, known)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # whatever comes of content that is no model's
        wrong = error if isinstance(error, Unreadable) else Unreadable("parts that do not fit")
        raise ValueError(
            f"path must name a model saved by btnkm, got {str(found)!r}, {wrong}; {wrong.remedy}."
        ) from None


def _of_this_version(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return what a file says of its model in the terms of this version, whatever wrote it."""
    version, writer = manifest.get("version"), manifest.get("btnkm")
    if manifest.get("format") != FORMAT or type(version) is not int:
        raise Unreadable("a zip of something else")
    if version > VERSION:
        raise Unreadable(
            f"one of format {version}, while btnkm {__version__} reads formats up to {VERSION}",
            f"it was written by btnkm {str(writer)[:40]}: install that or a later one",
        )
    while version < VERSION:
        if version not in MIGRATIONS:
            raise Unreadable(
                f"one of format {version}, while btnkm {__version__} reads formats from {OLDEST} "
                "on",
                "fit the model again and save it",
            )
        manifest = MIGRATIONS[version](manifest)
        version += 1
    return manifest


def _model(manifest: dict[str, Any], arrays: list[Any], bases: list[type]) -> Any:
    """Return the model that a file describes, or say what does not fit together."""
    kind = _ESTIMATORS.get(manifest["estimator"])
    if kind is None:
        raise Unreadable("one of another estimator")
    decoder = Decoder(arrays, manifest["objects"], bases)
    parameters, attributes = (
        {name: decoder.value(node) for name, node in manifest[part].items() if name not in _FORMER}
        for part in ("parameters", "attributes")
    )
    model = kind(**parameters)
    if set(parameters) != set(model.get_params(deep=False)) or not set(attributes) <= _ATTRIBUTES:
        raise Unreadable("one with other parameters or attributes than a model has")
    now = lasting_parameters(model, model._lasting)
    attributes["_begun_with"] = {
        name: now.get(name) if text is None else text
        for name, text in attributes["_begun_with"].items()
    }
    if "_encode" in attributes:
        made = classifier._signs if attributes["_encode"] else classifier._codes
        attributes["_encode"] = partial(made, attributes["classes_"], *attributes["_encode"])
    attributes["weights_"] = np.array(attributes["weights_"], dtype=float)
    vars(model).update(attributes)
    check_model(model)
    return model
