"""What a file may contain: one schema of all classes whose objects may be in it, and of a model.

A block has the name of a class, its dimensions that other objects refer to, the part of the model
that error messages name, and rules of ``rules.py``; then its fields with their kinds, in the
language of ``schema.py``. Lines go on with eight spaces. "is a Basis" adds the fields and rules of
a basis. A class with ``file_fields``, a dict of kinds or ``WORDS`` by field, needs no block.
"""

from __future__ import annotations

import re
from typing import Any

from .. import bases
from ..bases.anchored import Anchored
from ..bases.categorical import ManyCategories
from ..bases.effect import Coordinates, MainEffect
from ..core.batch_stats import BatchStats, EffectStats, ModeStats
from ..core.categories import CategoryFactor, CategoryMode
from ..core.cavi import Data
from ..core.cp import CP
from ..core.full import FullPosterior, Kernel
from ..core.gamma import Gamma
from ..core.layout import Layout
from ..core.likelihoods import BUILT_IN, Varying
from ..core.posterior import EffectAverages
from ..core.recalibration import LogitScaling, Recalibration
from ..core.state import Factor, Mode, State
from ..core.sums import Group, Sums
from ..core.tt import TT
from ..core.widening import Widening
from ..data.column_stats import Batch, Window
from ..data.columns import Column
from ..data.fills import Fill
from ..parameters import Priors, Solver, TensorTrain
from ..structures.mode_map import ModeMap
from . import rules
from .schema import Form

LIKELIHOODS: tuple[Any, ...] = (*BUILT_IN, Varying)
CLASSES: tuple[type, ...] = (
    *(bases.Basis, bases.WithMissing, bases.Spiked, Anchored, Coordinates),
    *(ManyCategories, MainEffect, *bases.BUILT_IN, *LIKELIHOODS),
    *(Gamma, Data, Column, ModeMap, CP, TT, Mode, CategoryMode, Factor, CategoryFactor, State),
    *(Group, Sums, Kernel, FullPosterior, ModeStats, EffectStats, BatchStats, EffectAverages),
    *(Widening, Batch, Window, Fill, TensorTrain, Priors, Solver, Recalibration, LogitScaling),
)
#: Words for the fields of likelihoods; parameters that are learned may be None before a fit.
WORDS = {
    "gamma": "Gamma(None)",
    "positive": "(None | number) > 0",
    "flag": "bool",
    "floats": "tuple(float)",  # as many as the class has by default
    "numbers": "tuple(number, outputs)",
    "limits": "(float >= 0, float >= 0)",
    "noise": "'auto' | 'gaussian' | 'student_t' | Gaussian | StudentT | Varying",
}
#: Names in kinds of what has no form.
FAMILIES: dict[str, Any] = {"Likelihood": LIKELIHOODS, "Layout": Layout}

SCHEMA = """
Gamma(S): Gamma distributions; each_shape_has_a_rate
    shape, rate: (number | numbers() | numbers(S)) > 0
TensorTrain: parameters
    order: any; cores: str
Priors: parameters
    noise, rank: Gamma(None); basis: 'off' | Gamma(None); smoothness: number
Solver: parameters
    initial_rank: 'auto' | count; warm_sweeps, full_rows: count; prune: flag;
    anchored: 'auto' | flag
Basis(M, K): functions; products_are_few
    n_functions_: size(M); n_products_: size(K); degrees_: numbers(M) >= 0; constant_: numbers(M);
    table_: csr(M * M, K)
Chebyshev is a Basis: functions
    n_basis: count
Categorical is a Basis: functions
Polynomial is a Basis: functions
    n_basis: count; offset: number
Fourier is a Basis: functions
    n_basis: count; lengthscale: number; boundary: number > 1; weights_: numbers(M)
BSpline is a Basis: functions; degree_is_below_size
    n_basis, degree, degree_: count; coefficients_: numbers(M, M)
Spiked is a Basis: functions; each_spike_has_a_function
    basis: Basis; basis_: Basis(inner, _); spikes_: numbers(spikes)
WithMissing is a Basis: functions; missing_values_have_functions
    basis: Basis; basis_: None | Basis(_, _); saw_missing_: bool;
    indicator_: None | 'first' | 'last'; typical_?: number; average_phi_, average_psi_: numbers(_);
    values_?: numbers(_)
Anchored is a Basis: functions; all_but_one_are_centred
    basis: WithMissing(inner, _); means_: numbers(inner); others_: flags(inner);
    frame_: numbers(inner, M)
ManyCategories(L): categories; shares_add_up_to_1
    shares_: numbers(L) >= 0; missing_: None | count; n_functions_, n_products_: size(L + 1)
Column: columns; knots_ascend, categories_have_functions, basis_is_finite
    name: name; knots: numbers(J); positions: -1 <= numbers(J) <= 1;
    categories: None | dict(str, count); kind: 'M' | 'm' | 'f' | 'O';
    basis: WithMissing(_, _) | ManyCategories(_);
    rest: None | count
Fill(V, P): what stands for missing values; each_copy_has_a_value
    values: numbers(V); copies: ints(V); inputs: ints(P); slopes, centers: numbers(P);
    center: number; spread: number >= 0
MainEffect(P): main effects; each_function_has_a_part
    n_curve, degree_: count; knots, positions, line_: numbers(J);
    steps, spikes, codes_: numbers(_); n_categories: None | count; has_missing_: bool;
    parts_: list(str, P); degrees_: numbers(P) >= 1; center_: numbers(P); runs_on: bool
Coordinates(J): coordinates; coordinates_are_bounded
    categorical, straight, has_missing_, varies_, runs_on: bool;
    knots, positions, line_: doubles(J); center_: number; scale_: number > 0
ModeMap: modes; each_mode_has_an_input, a_full_tensor_is_alone
    full_cores, anchored, sums_first, splines, full_tensor, heavy: bool; inputs: list(count);
    bases: list(Basis | Coordinates); effects: tuple(MainEffect, E);
    effect_inputs: tuple(count, E); noise_effects: tuple(MainEffect, F);
    noise_inputs: tuple(count, F)
CP: posteriors
    own: bool
TT: posteriors
Mode(M): posteriors; functions_ascend
    keep: ints(M); rate_scale: numbers(M) >= 0; constant: numbers(M); full_table: csr(_, _);
    anchored: bool
CategoryMode(M): posteriors; all_categories_stay
    keep: ints(M); rate_scale: numbers(M) >= 0; shares: (None | numbers(M)) >= 0; anchored: bool
Factor(M): posteriors; blocks_are_of_groups
    mean: numbers(M, C); cov: numbers(C, M, C, M); log_det: float; layout: Layout;
    precision_blocks: None | tuple(numbers(_, _, _))
CategoryFactor(M): posteriors
    mean: numbers(M, C); cov: numbers(M, C, C); log_det: float; layout: Layout
State: posteriors; factors_fit_their_modes, bonds_meet
    modes: tuple(Mode(M[i]) | CategoryMode(M[i]), D);
    factors: tuple(Factor(M[i]) | CategoryFactor(M[i]), D); basis: tuple(Gamma(M[i]), D);
    rank: tuple(Gamma(_)); likelihood: Likelihood; network: CP | TT; output: None | count;
    information: (float | numbers() | numbers(_)) > 0; sums: None | Sums
Group: posteriors
    mode: count; part: str
Sums(Q, P): posteriors; variances_are_positive
    groups: tuple(Group, G); group, column: ints(P); degree: numbers(P); mean: numbers(Q, P);
    cov: numbers(Q, P, P); log_det: float; smoothness: numbers(G); precision, prior: Gamma(G)
Varying: likelihoods; parts_of_varying_noise_are_fitted
    noise_at_zero: Gaussian | StudentT; sums: Sums(1, P); first: count;
    learned_from: (numbers(P, P), numbers(P, P), numbers(P), numbers(P), numbers(P))
Kernel(D): kernels
    categorical: flags(D); constant: number > 0; product: number >= 0;
    line, curve, missing, factor: doubles(D) >= 0; curve_length, factor_length: doubles(D) > 0;
    rough: 0 <= doubles(D) <= 1
FullPosterior: posteriors; rows_are_not_too_many
    kernel: Kernel(D); share: doubles(N) > 0; rows: tuple(doubles(N, 3), D); target: doubles(Q, N);
    noise: doubles(Q, N) > 0; likelihood: Likelihood; n_outputs: None | count; theta: doubles(_);
    evidence: float
Data: past rows
    n: number > 0; square: number; rounding: float
ModeStats: past rows
    second, linear: numbers(_, _)
EffectStats: past rows
    sums: Sums(Q, P); gram: numbers(Q, P, P); linear, beside: numbers(Q, P)
BatchStats: past rows
    data: Data; modes: tuple(ModeStats);
    likelihood_sums: tuple(number | numbers() | numbers(_) | numbers(_, _));
    information: number | numbers() | numbers(_); features: tuple((numbers(_), numbers(_)));
    sums: None | EffectStats
EffectAverages: averages
    mode: None | count; mean: numbers(P); gram: numbers(P, P); cross: numbers(P, _)
Widening: variances beyond the range; variances_begin_at_zero_and_rise
    inputs: tuple(count, I); variances: doubles(I, _, _, _) >= 0; most?: float > 0
Batch(N): kept rows; columns_are_of_a_known_type
    columns: list(array(N)); y: array(N) | array(N, _); weight: numbers(N) > 0
Window: kept rows
    rows: Batch(N); decay: numbers(N) >= 0; total: number; fitted, since: count
Recalibration: recalibrations; scores_ascend
    kind: 'split' | 'cv'; rows: count; lower, upper: doubles(N); shift, skew: number;
    scale, tails: number > 0
LogitScaling: recalibrations
    kind: 'split' | 'cv'; rows: count; slope: number > 0; offset: number
Model: parts; inputs_are_columns, weights_add_up_to_1, targets_fit_the_likelihood,
        likelihoods_are_alike, modes_fit_their_columns, effects_fit_their_columns,
        posteriors_fit_their_modes, noise_fits_its_effects, results_are_of_this_fit,
        past_rows_fit_their_posteriors,
        averages_fit_their_posteriors, widenings_fit_their_columns, kept_rows_are_of_this_table,
        fills_fit_their_columns, recalibration_is_of_this_target
    n_features_in_: size(D); columns_: list(Column, D); feature_names_in_?: texts(D);
    active: list(count); mode_maps: tuple(ModeMap, R);
    posterior_: tuple(State | FullPosterior, R); weights_: list(number >= 0, R);
    likelihood_: Likelihood; y_scale: number > 0; y_shift?, threshold?: number;
    classes_?: array(_); log_weights?: numbers(_);
    encode?: () | (number, number > 0, numbers(2) >= 0); pasts: list(BatchStats);
    fills?: list(None | Fill, D);
    averages: tuple(list((numbers(_), numbers(_, _) | csr(_, _))), R);
    effect_averages: tuple(list(EffectAverages) | (), R); widenings?: tuple(None | Widening, R);
    window?: None | Window;
    n_basis_: integers(D); rank_: count | tuple(count); ranks_: array(R) | array(R, _);
    mode_order_?: integers(D); cores_?: list(str); lower_bounds_: array(_); lower_bound_: float;
    n_iter_, best_restart_, n_samples_seen_: count; converged_: flag; stop_reason_: str;
    target_name_: None | str; noise_std_?: float; found_nothing?: bool;
    exposed?: bool; exposure_name?: None | str;
    calibration_?: None | Recalibration | LogitScaling;
    history_: list({'restart': count, 'sweep': count, 'rows': count, 'rank': count | tuple(count),
        'phase': str, 'elbo': float, 'noise_std': float, 'seconds': float});
    structures_?: list({'name': str, 'restarts': list(count), 'weight': float,
        'log_density': float, 'seconds': float, 'varying': bool});
    begun_with: dict(str, None | str)
"""
_HEAD = re.compile(r"(\w+)(?:\((.*)\))?(?: is a (\w+))?: ([\w ]+)(?:; (.*))?")


def _read(schema: str) -> dict[str, Form]:
    """Return the form of each class of a schema by its name."""
    forms: dict[str, Form] = {}
    lines = re.sub(r"\n {8,}", " ", schema.strip())
    for block in re.split(r"\n(?! )", lines):
        head, _, body = block.partition("\n")
        match = _HEAD.fullmatch(head)
        assert match is not None, head
        name, dims, parent, part, named = match.groups(default="")
        fields = {
            field: kind.strip()
            for names, _, kind in (line.partition(":") for line in body.split(";") if body)
            for field in names.strip().split(", ")
        }
        checks = tuple(getattr(rules, rule) for rule in named.split(", ") if rule)
        form = Form(part, fields, tuple(filter(None, dims.split(", "))), checks)
        forms[name] = _with(form, forms[parent]) if parent else form
    return forms


def _with(form: Form, parent: Form) -> Form:
    """Return a form with the fields, dimensions and rules of another as well."""
    both = {**form.fields, **parent.fields}
    return Form(form.part, both, parent.dims, (*parent.rules, *form.rules))


def _form_of(kind: Any) -> Form:
    """Return the form of a class: what it says of itself, or its block of the schema."""
    words = getattr(kind, "file_fields", None)
    if words is None:
        return _FORMS.get(kind.__name__, _FORMS["Basis"])
    fields = {name: WORDS.get(word, word) for name, word in words.items()}
    for name, word in words.items():
        if word == "floats":
            fields[name] = f"tuple(float, {len(getattr(kind, name))})"
    if issubclass(kind, bases.Basis):
        return _with(Form("functions", fields), _FORMS["Basis"])
    return Form("likelihoods", fields, ("outputs",))


_FORMS = _read(SCHEMA)
MODEL = _FORMS.pop("Model")
FORMS: dict[type, Form] = {kind: _form_of(kind) for kind in CLASSES}
