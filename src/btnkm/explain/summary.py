"""A short summary of a fitted model, for print and for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from ..core.likelihoods import CLASS_LIKELIHOODS, LIKELIHOODS
from ..core.recalibration import describe
from .fitted import FittedModel, PlainData
from .noise import constant_noise, noise_effects, varies_with
from .restart import FullRestartView, RestartView
from .sobol import sobol_indices

_MOST_INPUTS = 12  # that are shown
_DRAWS = 16  # enough for two digits of a standard deviation, at once
_NOTHING = "the data show no effect of any input"
_NOT_LEARNED = {"name", "weight", "noise", "transformation"}
_STYLE = """\
.btnkm-summary{font:13px/1.45 system-ui,sans-serif;margin:.5em 0;overflow-x:auto}
.btnkm-summary p{margin:.2em 0}
.btnkm-summary table{font:inherit;border-collapse:collapse;margin:.4em 0}
.btnkm-summary th,.btnkm-summary td{padding:.15em .9em .15em 0;text-align:right;border:0;
background:none;color:inherit}
.btnkm-summary thead th{border-bottom:1px solid currentColor;font-weight:600}
.btnkm-summary tbody th{text-align:left;font-weight:400}
.btnkm-summary .bar{display:inline-block;height:.6em;background:#2f6fb3;border-radius:2px}
.btnkm-summary .note{opacity:.75}"""


@dataclass(frozen=True)
class ModelSummary(PlainData):
    """A short summary of a fitted model.

    Attributes
    ----------
    title : str
        The estimator, the target, and the number of inputs and rows.
    facts : dict
        Facts about the fit, by name.
    inputs : list of dict
        For every input, the most important first: name, kind, functions (kept by the best
        restart), total and total_std (the total Sobol index and its standard deviation).
    """

    title: str
    facts: dict[str, str]
    inputs: list[dict[str, Any]]

    def __str__(self) -> str:
        wide = max(map(len, self.facts))
        lines = [self.title, *(f"  {name:{wide}}  {fact}" for name, fact in self.facts.items())]
        if not any(entry["total"] for entry in self.inputs):
            return "\n".join([*lines, f"  {_NOTHING}"])
        shown = self.inputs[:_MOST_INPUTS]
        longest = max(len(str(entry["name"])) for entry in shown)
        lines.append("  importance (total Sobol index)")
        for entry in shown:
            importance = f"{entry['total']:6.1%} ± {entry['total_std']:5.1%}"
            lines.append(f"    {entry['name']!s:{longest}}  {importance}")
        if len(self.inputs) > len(shown):
            lines.append(f"    and {len(self.inputs) - len(shown)} less important inputs")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = []
        for entry in self.inputs[:_MOST_INPUTS]:
            bar = (
                f'<span class="bar" style="width:{100.0 * min(entry["total"], 1.0):.0f}px"></span>'
            )
            importance = f"{entry['total']:.1%} ± {entry['total_std']:.1%}"
            rows.append(
                f"<tr><th scope='row'>{escape(str(entry['name']))}</th><td>{entry['kind']}</td>"
                f"<td>{entry['functions']}</td><td>{importance}</td>"
                f"<td style='text-align:left'>{bar}</td></tr>"
            )
        left_out = len(self.inputs) - _MOST_INPUTS
        nothing = not any(entry["total"] for entry in self.inputs)
        note = f"<p class='note'>{_NOTHING}</p>" if nothing else ""
        more = f"<p class='note'>and {left_out} less important inputs</p>" if left_out > 0 else ""
        facts = " · ".join(f"{name}: {escape(fact)}" for name, fact in self.facts.items())
        head = "<th scope='col'>input</th><th>kind</th><th>functions</th>"
        return (
            f"<style>{_STYLE}</style><div class='btnkm-summary'><p>{escape(self.title)}</p>"
            f"<p class='note'>{facts}</p><table><thead><tr>{head}<th>importance</th>"
            f"<th></th></tr></thead><tbody>{''.join(rows)}</tbody></table>{note}{more}</div>"
        )


def summary(model: Any) -> ModelSummary:
    """Return a short summary of a fitted model, to print or to display in a notebook.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm import BTNRegressor
    >>> from btnkm.explain import summary
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> model = BTNRegressor(structure="sums").fit(X, np.sin(5 * X[:, 0]))
    >>> print(summary(model).title)
    BTNRegressor: y from 2 inputs, 100 rows
    """
    view = FittedModel.of(model)
    indices = sobol_indices(model, draws=_DRAWS)
    rows = model.n_samples_seen_
    count = len(view.names)
    inputs = "1 input" if count == 1 else f"{count} inputs"
    what = view.target_name or "y"
    if hasattr(model, "classes_"):
        what = f"{len(model.classes_)} classes"
    best = view.restarts[model.best_restart_]
    facts = {"structure": structure_line(model)}
    if best.parts:
        facts["rank"] = _rank(model)
    facts["restarts"] = str(len(view.restarts))
    facts["likelihood"] = likelihood_line(likelihoods(model))
    if view.exposed:
        facts["exposure"] = view.exposure_name or "given, without a name"
    if np.isfinite(getattr(model, "noise_std_", np.nan)):
        facts["noise"] = f"{model.noise_std_:.4g}"
        facts["noise"] += "" if view.transformation is None else f" of {view.unit}"
        if driven := noise_effects(model, points=2):
            facts["noise"] += f" on average; {varies_with(driven)}"
    if view.calibration is not None:
        facts["recalibrated"] = describe(view.calibration)
    facts["interactions"] = f"{indices.interactions:.1%}"
    facts["fit"] = model.stop_reason_
    return ModelSummary(
        f"{type(model).__name__}: {what} from {inputs}, {rows:,} rows",
        facts,
        [
            {
                "name": view.names[j],
                "kind": view.kind(j),
                "functions": kept_functions(best, j),
                "total": float(indices.total[j]),
                "total_std": float(indices.total_std[j]),
            }
            for j in indices.order
        ],
    )


def _rank(model: Any) -> str:
    ranks = model.rank_
    return str(ranks) if np.ndim(ranks) == 0 else "-".join(map(str, np.ravel(ranks)))


def structure_weights(model: Any) -> dict[str, float]:
    """Return the weight of each structure in the mixture of restarts, the highest first."""
    view = FittedModel.of(model)
    weights: dict[str, float] = {}
    for mode_map, weight in zip(view.mode_maps, view.weights, strict=True):
        weights[mode_map.structure] = weights.get(mode_map.structure, 0.0) + float(weight)
    return dict(sorted(weights.items(), key=lambda pair: -pair[1]))


def structure_line(model: Any) -> str:
    """Return the structures with their weights: "sums + tensor (weight 0.89), sums (0.11)"."""
    weights = structure_weights(model)
    names = [name.replace("+", " + ") for name in weights]
    if len(names) == 1:
        return names[0]
    texts = _weight_texts(weights.values())
    return ", ".join(f"{name} ({weight})" for name, weight in zip(names, texts, strict=True))


def _weight_texts(weights: Iterable[float]) -> list[str]:
    """Return weights as text, the first with its name: ["weight 0.89", "0.11"]."""
    return [f"{'' if k else 'weight '}{weight:.2f}" for k, weight in enumerate(weights)]


def likelihoods(model: Any) -> list[dict[str, Any]]:
    """Return the kinds of likelihood of the restarts, each with its weight and what it learned.

    Learned parameters, such as the degrees of freedom of Student-t noise (``dof``) or the size of
    counts (``size``), are weighted means over the restarts of that kind. Noise that varies is a
    kind of its own, with an entry ``noise``. Where a function of y has this noise, the entry
    ``transformation`` has its name.
    """
    kinds: dict[Any, dict[str, Any]] = {}
    fitted = FittedModel.of(model)
    for likelihood, weight in zip(fitted.likelihoods, fitted.weights, strict=True):
        if not weight > 0.0:
            continue
        likelihood, varies = constant_noise(likelihood)
        learned = {name: getattr(likelihood, name) for name in getattr(likelihood, "learned", ())}
        kind = type(likelihood).__name__
        more = {"noise": "varying"} if varies else {}
        if fitted.transformation is not None:
            more["transformation"] = type(fitted.transformation).__name__
        entry = kinds.setdefault((kind, varies), {"name": kind, "weight": 0.0, **more})
        entry["weight"] += float(weight)
        for name, value in learned.items():
            entry[name] = entry.get(name, 0.0) + float(weight) * float(value)
    for entry in kinds.values():
        for name in entry.keys() - _NOT_LEARNED:
            entry[name] /= entry["weight"]
    return sorted(kinds.values(), key=lambda entry: -entry["weight"])


def likelihood_line(every: list[dict[str, Any]]) -> str:
    """Return ``likelihoods`` in a line: "Student-t (weight 0.71, dof 2.4), Gaussian (0.29)"."""
    lines, kinds = [], (*LIKELIHOODS.values(), *CLASS_LIKELIHOODS.values())
    titles = {kind.__name__: getattr(kind, "title", kind.__name__) for kind in kinds}
    for entry, weight in zip(every, _weight_texts(entry["weight"] for entry in every), strict=True):
        known = [weight] if len(every) > 1 else []
        known += [f"{name} {entry[name]:.3g}" for name in entry if name not in _NOT_LEARNED]
        name = titles.get(entry["name"], entry["name"])
        if "transformation" in entry:
            whole = titles.get(entry["transformation"], entry["transformation"])
            name = f"{whole} with {name} noise{' that varies' if 'noise' in entry else ''}"
        elif "noise" in entry:
            name += " with noise that varies"
        lines.append(f"{name} ({', '.join(known)})" if known else name)
    return ", ".join(lines)


def kept_functions(restart: RestartView | FullRestartView, j: int) -> int:
    """Return how many functions of a column a restart kept; one if the column is constant."""
    if isinstance(restart, FullRestartView):
        return 0
    mode_map, d = restart.mode_map, restart.mode(j)
    count = 0 if d is None else len(restart.state.modes[d].present)
    if restart.sums is not None and j in mode_map.effect_inputs:
        return count + len(restart.sums.places[mode_map.effect_inputs.index(j)])
    return max(count, 1)
