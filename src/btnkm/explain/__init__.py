"""Explanations of a fitted model: data first, in closed form from its posterior; then pictures."""

from .components import Component, Factor, components
from .diagnostics import (
    Calibration,
    History,
    Reliability,
    Residuals,
    calibration,
    history,
    residuals,
)
from .effects import Effect, PartialDependence, Surface, effects, interaction, partial_dependence
from .plots import (
    plot_calibration,
    plot_components,
    plot_effects,
    plot_functions,
    plot_history,
    plot_interaction,
    plot_interactions,
    plot_local,
    plot_partial_dependence,
    plot_residuals,
    plot_shares,
)
from .shapley import Local, explain_local
from .summary import Summary, summary
from .variance import Functions, Pair, Shares, functions, interactions, variance_shares

__all__ = [
    "Calibration",
    "Component",
    "Effect",
    "Factor",
    "Functions",
    "History",
    "Local",
    "Pair",
    "PartialDependence",
    "Reliability",
    "Residuals",
    "Shares",
    "Summary",
    "Surface",
    "calibration",
    "components",
    "effects",
    "explain_local",
    "functions",
    "history",
    "interaction",
    "interactions",
    "partial_dependence",
    "plot_calibration",
    "plot_components",
    "plot_effects",
    "plot_functions",
    "plot_history",
    "plot_interaction",
    "plot_interactions",
    "plot_local",
    "plot_partial_dependence",
    "plot_residuals",
    "plot_shares",
    "residuals",
    "summary",
    "variance_shares",
]
