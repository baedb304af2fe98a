"""Explanations of a fitted model: data, mostly in closed form from its posterior, and plots."""

from .components import Component, ComponentFactor, components
from .coverage import (
    ConditionalCoverage,
    CoverageFailure,
    GroupedCoverage,
    conditional_coverage,
)
from .diagnostics import (
    Calibration,
    History,
    Reliability,
    Residuals,
    Search,
    calibration,
    history,
    residuals,
)
from .effects import Effect, PartialDependence, Surface, effects, interaction, partial_dependence
from .fitted import FittedModel
from .noise import NoiseEffect, noise_effects
from .plots import (
    plot_calibration,
    plot_components,
    plot_conditional_coverage,
    plot_effects,
    plot_functions,
    plot_history,
    plot_importances,
    plot_interaction,
    plot_interactions,
    plot_local,
    plot_noise_effects,
    plot_partial_dependence,
    plot_residuals,
)
from .shapley import Local, explain_local
from .sobol import Functions, Pair, SobolIndices, functions, interactions, sobol_indices
from .summary import ModelSummary, summary

__all__ = [
    "Calibration",
    "Component",
    "Effect",
    "ComponentFactor",
    "ConditionalCoverage",
    "CoverageFailure",
    "FittedModel",
    "Functions",
    "GroupedCoverage",
    "History",
    "Local",
    "NoiseEffect",
    "Pair",
    "PartialDependence",
    "Reliability",
    "Residuals",
    "Search",
    "SobolIndices",
    "ModelSummary",
    "Surface",
    "calibration",
    "components",
    "conditional_coverage",
    "effects",
    "explain_local",
    "functions",
    "history",
    "interaction",
    "interactions",
    "noise_effects",
    "partial_dependence",
    "plot_calibration",
    "plot_components",
    "plot_conditional_coverage",
    "plot_effects",
    "plot_functions",
    "plot_history",
    "plot_interaction",
    "plot_interactions",
    "plot_local",
    "plot_noise_effects",
    "plot_partial_dependence",
    "plot_residuals",
    "plot_importances",
    "residuals",
    "summary",
    "sobol_indices",
]
