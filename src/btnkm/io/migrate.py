"""Contents of files that older versions wrote, brought up to the present version.

``VERSION`` goes up by one when an older library could not read, or would misread, what is written.
The same change adds to ``MIGRATIONS`` how a ``model.json`` of the version before becomes one of the
new version: every file from version ``OLDEST`` on is read step by step. What has only got another
name has a line in a table of renames. Where a step needs objects, not plain data, it is one of
``STATE_MIGRATIONS``: of the parameters and attributes that have been read from the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..parameters import Priors, Solver, TensorTrain
from .archive import Unreadable

VERSION = 8
OLDEST = 3  # no earlier version was released
Manifest = dict[str, Any]
State = tuple[dict[str, Any], dict[str, Any]]  # parameters and attributes

#: Names since version 6 by those of version 5. Values of None are made from others when needed.
ATTRIBUTES: dict[str, str | None] = {
    "_arrangements": "mode_maps",
    "best_start_": "best_restart_",
    "feature_relevance_": None,
    "feature_relevance_std_": None,
    "feature_importances_": None,
    "feature_importances_std_": None,
}
HISTORY = {"start": "restart", "bound": "elbo"}
PHASES = {"thaw": "annealing", "settle": "newton"}
CLASSES = {"Arrangement": "ModeMap"}
#: Parameters that cannot change where a fit continues, by their names in version 5.
LASTING = {
    "cores": "network",
    "mode_order": "network",
    "basis_prior": "priors.basis",
    "smoothness": "priors.smoothness",
    "anchored": "solver.anchored",
}
#: Parameters of version 5 that are options of ``Solver``.
SOLVER = ("initial_rank", "warm_sweeps", "prune", "anchored", "full_rows")
#: Classes since version 7 by their names in version 6.
CLASSES_6 = {
    "Gapped": "WithMissing",
    "Levels": "ManyCategories",
    "LevelMode": "CategoryMode",
    "LevelFactor": "CategoryFactor",
    "Past": "BatchStats",
    "Said": "ModeStats",
    "SumsSaid": "EffectStats",
}
#: Fields since version 7 by their names in version 6, of classes as these were called there.
FIELDS_6 = {
    "Past": {"asked": "likelihood_sums"},
    "Column": {"levels": "categories"},
    "ModeMap": {"full": "full_cores", "kernel": "full_tensor"},
}


def _with_full_tensors(manifest: Manifest) -> Manifest:
    """Return a manifest of version 3, when there were no full tensors, as one of version 4."""
    manifest = _with_field(manifest, "Arrangement", kernel=False)
    return manifest | {"parameters": manifest["parameters"] | {"full_rows": 2000}}


def _with_heavy_tails(manifest: Manifest) -> Manifest:
    """Return a manifest of version 4, when heavy tails were no candidate, as one of version 5."""
    if any(item["kind"] == "Kernel" for item in manifest["objects"]):
        raise Unreadable(
            "one with a full tensor of format 4, whose kernel has changed", "fit the model again"
        )
    return _with_field(manifest, "Arrangement", heavy=False)


def _with_field(manifest: Manifest, kind: str, **fields: Any) -> Manifest:
    objects = [
        item | {"fields": item["fields"] | fields} if item["kind"] == kind else item
        for item in manifest["objects"]
    ]
    return manifest | {"objects": objects}


def _renamed(manifest: Manifest) -> Manifest:
    """Return a manifest of version 5 with the names of version 6."""
    attributes = {
        ATTRIBUTES.get(name, name.removeprefix("_")): node  # some were private ones of the model
        for name, node in manifest["attributes"].items()
    }
    attributes.pop(None, None)
    attributes["history_"] = [_renamed_sweep(sweep) for sweep in attributes["history_"]]
    return _with_classes(manifest | {"attributes": attributes}, CLASSES)


def _with_classes(manifest: Manifest, names: dict[str, str]) -> Manifest:
    """Return a manifest with new names of classes, given by the names before."""
    objects = [
        item | {"kind": names.get(item["kind"], item["kind"])} for item in manifest["objects"]
    ]
    return manifest | {"objects": objects}


def _renamed_sweep(sweep: Any) -> Any:
    """Return an entry of ``history_``, a dict as plain data, with the present names."""
    items = list(sweep["dict"])
    items[::2] = [HISTORY.get(key, key) for key in items[::2]]
    values = dict(zip(items[::2], items[1::2], strict=True))
    if "phase" in values:
        values["phase"] = PHASES.get(values["phase"], values["phase"])
    return {"dict": [part for pair in values.items() for part in pair]}


def _with_plain_names(manifest: Manifest) -> Manifest:
    """Return a manifest of version 6 with the names of version 7."""
    objects = []
    for item in manifest["objects"]:
        names = FIELDS_6.get(item["kind"], {})
        fields = {names.get(name, name): value for name, value in item["fields"].items()}
        objects.append(item | {"fields": fields})
    return _with_classes(manifest | {"objects": objects}, CLASSES_6)


def _with_varying_noise(manifest: Manifest) -> Manifest:
    """Return a manifest of version 7, without noise that varies, as one of version 8."""
    manifest = _with_field(
        manifest, "ModeMap", noise_effects={"tuple": []}, noise_inputs={"tuple": []}
    )
    attributes = dict(manifest["attributes"])
    if "structures_" in attributes:
        attributes["structures_"] = [
            {"dict": [*entry["dict"], "varying", False]} for entry in attributes["structures_"]
        ]
    more: dict[str, Any] = {"calibration": None}
    if manifest["estimator"] == "BTNRegressor":
        more["noise"] = "auto"
        # a parameter that may not change where a fit continues, and has not
        attributes["begun_with"] = {"dict": [*attributes["begun_with"]["dict"], "noise", None]}
    # nothing ran on beyond the training range
    more["extrapolate"] = "flat"
    for kind in ("MainEffect", "Coordinates"):
        manifest = _with_field(manifest, kind, runs_on=False)
    begun_with = attributes["begun_with"]["dict"]
    attributes["begun_with"] = {"dict": [*begun_with, "extrapolate", None]}
    return manifest | {"attributes": attributes, "parameters": manifest["parameters"] | more}


#: From a manifest of version k to one of version k + 1.
MIGRATIONS: dict[int, Callable[[Manifest], Manifest]] = {
    3: _with_full_tensors,
    4: _with_heavy_tails,
    5: _renamed,
    6: _with_plain_names,
    7: _with_varying_noise,
}


def migrated(manifest: Manifest, library: str) -> Manifest:
    """Return a manifest of any version that can be read as one of the present version.

    Parameters
    ----------
    manifest : dict
    library : str
        The version of btnkm, for error messages.
    """
    version, writer = manifest.get("version"), manifest.get("btnkm")
    if type(version) is not int:
        raise Unreadable("a zip of something else")
    if version > VERSION:
        raise Unreadable(
            f"one of format {version}, while btnkm {library} reads formats up to {VERSION}",
            f"it was written by btnkm {str(writer)[:40]}: install that or a later version",
        )
    while version < VERSION:
        if version not in MIGRATIONS:
            raise Unreadable(
                f"one of format {version}, while btnkm {library} reads formats from {OLDEST} on",
                "fit the model again and save it",
            )
        manifest = MIGRATIONS[version](manifest)
        version += 1
    return manifest


def _with_groups(parameters: dict[str, Any], attributes: dict[str, Any]) -> State:
    """Return a state of version 5, when parameters were not in groups, as one of version 6."""
    begun_with = dict(attributes["begun_with"])
    for old, new in LASTING.items():
        text = begun_with.pop(old)
        if new in begun_with:  # of several parameters, the first that has changed
            text = text if begun_with[new] is None else begun_with[new]
        begun_with[new] = text
    return _grouped(parameters), attributes | {"begun_with": begun_with}


def _grouped(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of version 5 as those of version 6."""
    rest = dict(parameters)
    train = TensorTrain(order=rest.pop("mode_order"), cores=rest.pop("cores"))
    train.check()  # whether or not it is used
    if rest["network"] == "tt" and repr(train) != repr(TensorTrain()):
        rest["network"] = train
    names = {"rank_prior": "rank", "basis_prior": "basis"}
    if "class_weight" not in rest:  # classifiers have no noise
        names["noise_prior"] = "noise"
    priors = {new: rest.pop(old) for old, new in names.items()}
    priors = {name: value for name, value in priors.items() if value is not None}
    given = {
        "priors": Priors(**priors, smoothness=rest.pop("smoothness")),
        "solver": Solver(**{name: rest.pop(name) for name in SOLVER}),
    }
    for name, group in given.items():
        rest[name] = None if repr(group) == repr(type(group)()) else group
    return rest


#: From a state of version k to one of version k + 1, where objects are needed.
STATE_MIGRATIONS: dict[int, Callable[[dict[str, Any], dict[str, Any]], State]] = {5: _with_groups}


def migrated_state(parameters: dict[str, Any], attributes: dict[str, Any], version: int) -> State:
    """Return the parameters and attributes of a file of a version as those of the present one."""
    for step in range(version, VERSION):
        if step in STATE_MIGRATIONS:
            parameters, attributes = STATE_MIGRATIONS[step](parameters, attributes)
    return parameters, attributes
