"""A fitted model as plain data: numbers, text, lists and float64 arrays, and no class of ours.

Whoever reads it needs none of this library to predict: a browser, another language, a file format.
For each restart, f is a tensor T, a sum of main effects a, both together, or a kernel machine h.
T is a product over modes of what a column's functions make of its value:

1. A raw value becomes a coordinate: by ``knots`` and ``positions``, linear between them and flat
   beyond; or by ``levels``, -1 for one that is not among them. What is missing is NaN.
2. The coordinate becomes phi and psi by one of the column's ``bases``; of a mode without a column
   (the amplitudes) both are the constant 1.
3. z = phi[:len(mean)] @ mean has the means of the mode, Z = psi[:len(second)] @ second its second
   moments: of each component and each pair of them (CP), or of the entries of a matrix (TT).
4. Modes are multiplied one after the other. CP: entry by entry. TT: z is a (left, right) matrix,
   Z one of (left pairs, right pairs), and what came before is a row vector.
5. What is left is summed: E[T] = sum z, E[T^2] = sum multiplicity * Z; with an ``output`` for each
   of its rows, E[T_k] = sum z * mean_k, and so on.

The main effects are linear in functions g of all inputs together:

6. The functions of an ``effect`` at a coordinate are, in this order: the values of ``line`` at
   ``positions``, linear between them; the Chebyshev polynomials T_1 to T_degree; whether the
   coordinate is above each of ``steps``; whether it is each of ``spikes``, or each of ``codes``;
   all less ``center``. All of these are 0 where the value is missing, and for a category never
   seen. Last, if ``missing``, is whether the value is missing, less ``center``.
7. g is 1, and the ``functions`` of each of the ``inputs`` of ``sums``. E[a_k] = mean_k . g, and
   Var[a_k] is the sum over pairs p <= q of multiplicity * cov_k * g_p * g_q.

A kernel machine compares a row with those of the training:

8. Each of the ``inputs`` of a ``kernel`` makes three numbers of a coordinate x. ``known`` is 1, or
   0 where the value is missing. t is ``begin`` + ``slope`` * (raw value - first knot), with the raw
   value held between the first knot and the last; it is 0 for categories and missing values. u is
   (x - center) / scale, or the code of a category. Those of the training are in ``rows``.
9. Two values have a correlation kappa. It is 0 if one or both are missing. Of categories it is 1
   if u is the same and not -1, else 0. Of numbers it is (1 - rough) exp(-q / 2) + rough (1 + r)
   exp(-r), with q = (difference of u / length)^2 and r = sqrt(3 q).
10. k(row, row') = constant + sum over inputs of (line t t' + curve kappa + missing m m')
    + product * product over inputs of (1 + factor kappa) / (1 + factor), with m = 1 - known. The
    sum has the length ``curve_length``, the product ``factor_length``. In k(x, x) kappa is
    ``known``, also for a category never seen.
11. With v the numbers k(x, row) of all training rows and K those between them, E[h_k] = v . alpha_k
    and Var[h_k] = k(x, x) - v (K + diag(noise_k))^-1 v, but at least 1e-12 k(x, x). Factorise the
    matrix by Cholesky, once. Outputs are independent.

E[f] = E[T] + E[a], and Var[f] = Var[T] + Var[a], but at least ``least``; or they are those of h.
Pairs r <= s are in the order of ``numpy.triu_indices``; one with r < s counts twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..bases import BSpline, Categorical, Chebyshev, Fourier, Gapped, Polynomial, Spiked
from ..bases.anchored import Anchored
from ..bases.coordinates import Coordinates
from ..bases.effect import MainEffect
from ..bases.levels import Levels
from ..core.cp import CP
from ..core.evidence import factor_and_jitter
from ..core.full import FullPosterior
from ..core.kernel import KNOWN, LINE, POSITION
from ..core.layout import pairs
from ..core.likelihoods import Bernoulli, Gaussian, NegativeBinomial, Softmax, StudentT
from ..core.posterior import Predictor
from ..core.sums import Sums
from ..core.tt import TT

Array = np.ndarray
NETWORKS: dict[type, str] = {CP: "cp", TT: "tt"}


def portable(model: Any) -> dict[str, Any]:
    """Return a fitted model as plain data, from which anyone can compute its predictions.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier
        Fitted, with bases and a likelihood of this library.

    Returns
    -------
    dict
        ``format``
            3, the version of what follows. 2 had no ``kernel``.
        ``classes``
            Of a classifier, its labels; None of a regressor.
        ``shift``, ``scale``
            y = shift + scale * target, with the target what ``likelihood`` is about.
        ``threshold``, ``noise_std``
            Of the "least_squares" classifier: the target above which the second class begins, and
            the noise of the best restart, which intervals of probabilities go by. Else None.
        ``columns``
            One dict for each column of the table: ``name``; ``kind`` ("f" numbers, "M" dates and
            "m" durations in microseconds, "O" text); ``knots`` and ``positions``, or ``levels``
            (text to code), the other being None; ``active``, whether f may depend on it; ``bases``,
            those of the tensors' modes, which say their ``kind``, ``n_functions`` and
            ``n_products``, and parameters of their own; ``effects``, main effects as above, where
            ``line`` is None for categories. Nearly always there is one of either, or none.
        ``weights``
            Those of the restarts in the mixture, (S,).
        ``starts``
            One dict for each restart: ``network`` ("cp", "tt" or "full"); ``modes``, none if there
            is no tensor, with ``column`` (a position, or None), ``basis`` (a position among those
            of the column), ``shape`` (left, right; both the rank in CP), ``mean`` (n_phi, C) and
            ``second`` (n_psi, S); ``multiplicity`` (S,); ``least``, a number, or an array (K,) for
            many outputs; ``output``, None or a dict with ``mean`` (K, C) and ``second`` (K, S);
            ``sums``, None or a dict with ``inputs`` (each with its ``column``, ``effect``, a
            position among those of the column, and ``functions``), ``mean`` (K, P) and ``cov``
            (K, P (P + 1) / 2), with K = 1 for one output; ``kernel``, None or, with "full", a dict
            with ``shape``, ``constant``, ``product``, ``inputs``, ``alpha`` and ``noise``, both
            (K, n) for n training rows; ``likelihood``, with its ``kind`` and parameters.

            An input of a ``kernel`` has its ``column``, ``begin``, ``slope``, ``center``,
            ``scale``, ``line``, ``curve``, ``curve_length``, ``missing``, ``factor`` and
            ``factor_length``; and ``rows``, a dict with ``t``, ``u`` and ``known``, each (n,) or
            None: t where ``line`` is 0, u where ``curve`` and ``factor`` are, known where no value
            is missing.

    Notes
    -----
    y is the mixture over restarts. f ~ N(E[f], Var[f]) in each, and the target is

    - "gaussian": Student-t with ``dof``, mean f and variance Var[f] + ``noise``: its scale is the
      square root of that variance times max(dof - 2, dof / 2) / dof;
    - "student_t": a mixture of normals around E[f], with variances Var[f] + ``noise`` (Q,) and
      ``weights`` (Q,); ``noise_total`` is the variance of the noise;
    - "negative_binomial": a count with mean size exp(offset + f);
    - "bernoulli": the second class with probability sigma(offset + f);
    - "softmax": class k with a probability proportional to exp(offsets_k + f_k).
    """
    check_is_fitted(model)
    classes = getattr(model, "classes_", None)
    least_squares = classes is not None and isinstance(model.likelihood_, Gaussian)
    columns = [_column(c, j in model._active) for j, c in enumerate(model.columns_)]
    return {
        "format": 3,
        "classes": None if classes is None else classes.tolist(),
        "shift": float(getattr(model, "_y_shift", 0.0)),
        "scale": float(model._y_scale) if classes is None else 1.0,
        "threshold": float(model._threshold) if least_squares else None,
        "noise_std": model.likelihood_.noise_std if least_squares else None,
        "columns": columns,
        "weights": np.array(model.weights_),
        "starts": [
            _start(state, one, columns)
            for state, one in zip(model.posterior_, model._arrangements, strict=True)
        ],
    }


def _column(column: Any, active: bool) -> dict[str, Any]:
    numeric = column.levels is None
    return {
        "name": column.name,
        "kind": column.kind,
        "knots": column.knots if numeric else None,
        "positions": column.positions if numeric else None,
        "levels": None if numeric else dict(column.levels),
        "active": active,
        "bases": [],
        "effects": [],
    }


def _place(plain: dict[str, Any], listed: list[dict[str, Any]]) -> int:
    """Return where plain data stands in a list, to which it is added if it is not there."""
    for place, other in enumerate(listed):
        if _same(plain, other):
            return place
    listed.append(plain)
    return len(listed) - 1


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return np.array_equal(a, b)


def _basis(basis: Any, name: Any) -> dict[str, Any]:
    """Return a fitted basis as plain data; a class of the user's may do anything, and is refused.

    ``type`` rather than ``isinstance``: so may a class derived from one of ours.
    """
    described: dict[type, Any] = {
        Chebyshev: lambda b: {"kind": "chebyshev"},
        Polynomial: lambda b: {"kind": "polynomial", "offset": float(b.offset)},
        Fourier: lambda b: {
            "kind": "fourier",
            "boundary": float(b.boundary),
            "weights": b.weights_,
        },
        BSpline: lambda b: {
            "kind": "bspline",
            "degree": b.degree_,
            "coefficients": b.coefficients_,
        },
        Categorical: lambda b: {"kind": "categorical"},
        Spiked: lambda b: {
            "kind": "spiked",
            "basis": _basis(b.basis_, name),
            "spikes": b.spikes_,
        },
        # a missing value has the last function where ``missing`` is None, as a level never seen has
        Levels: lambda b: {"kind": "levels", "missing": b.missing_},
        Gapped: lambda b: _gapped(b, name),
    }
    if type(basis) not in described:
        raise TypeError(
            f"column {name!r} must have a basis of btnkm to be written as plain data, got "
            f"{type(basis).__name__}, a class of your own; fit with a basis from btnkm.bases."
        )
    sizes = {"n_functions": basis.n_functions_, "n_products": basis.n_products_}
    return described[type(basis)](basis) | sizes


def _gapped(basis: Gapped, name: Any) -> dict[str, Any]:
    """Return what stands for values that are not there.

    With an ``indicator`` ("first" or "last") a missing value has the functions of ``typical`` and 1
    there, in phi and psi alike, where others have 0. Where ``saw_missing`` is False it has the
    averages instead; so has a level never seen, always.
    """
    if basis.basis_ is None:  # nothing but gaps
        return {"kind": "constant"}
    return {
        "kind": "gapped",
        "basis": _basis(basis.basis_, name),
        "saw_missing": basis.saw_missing_,
        "indicator": basis.indicator_,
        "typical": float(basis.typical_),
        "average_phi": basis.average_phi_,
        "average_psi": basis.average_psi_,
    }


def _effect(effect: MainEffect) -> dict[str, Any]:
    """Return a main effect as plain data."""
    smooth = effect.n_categories is None and len(effect.positions) > 1
    return {
        "line": effect.line_ if smooth else None,
        "degree": int(effect.degree_) if smooth else 0,
        "steps": effect.steps if smooth else np.empty(0),
        "spikes": effect.spikes if smooth else np.empty(0),
        "codes": effect.codes_,
        "missing": effect.has_missing_,
        "center": effect.center_,
    }


def _start(state: Any, arrangement: Any, columns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a restart; bases and main effects that are new are added to those of the columns."""
    if isinstance(state, FullPosterior):
        return _full_start(state, arrangement)
    predictor = Predictor.of(state)
    network = type(state.network)
    if network not in NETWORKS:
        raise TypeError(f"the network must be CP or TT, got {network.__name__}.")
    modes: list[dict[str, Any]] = []
    for d, (basis, factor) in enumerate(zip(arrangement.bases, state.factors, strict=False)):
        term, place = predictor.terms[d], d - arrangement.first_input
        layout = factor.layout
        j = None if place < 0 else arrangement.inputs[place]
        modes.append(
            {
                "column": j,
                "basis": None if j is None else _basis_place(basis, columns[j]),
                "shape": list(layout.shape),
                "mean": _unframed(basis, term.mean),
                "second": np.ascontiguousarray(term.second),
            }
        )
    output = None
    if state.output is not None:
        term = predictor.terms[state.output]
        output = {"mean": term.mean, "second": np.ascontiguousarray(term.second)}
    rank = modes[-1]["shape"][1] if modes else 0
    return {
        "network": NETWORKS[network],
        "modes": modes,
        "multiplicity": pairs(rank)[2],
        "least": _least(predictor.least, state.n_outputs),
        "output": output,
        "sums": None if state.sums is None else _sums(state.sums, arrangement, columns),
        "kernel": None,
        "likelihood": _likelihood(state.likelihood),
    }


def _full_start(state: FullPosterior, arrangement: Any) -> dict[str, Any]:
    """Return a kernel machine, which has neither a tensor nor main effects."""
    kernel, inputs = state.kernel, []
    for d, (j, basis) in enumerate(zip(arrangement.inputs, arrangement.bases, strict=True)):
        parts = {
            name: float(getattr(kernel, name)[d]) for name in ("line", "curve", "missing", "factor")
        }
        if any(parts.values()):
            of_numbers = ("curve_length", "factor_length", "rough")
            shape = {name: float(getattr(kernel, name)[d]) for name in of_numbers}
            begin, slope = _line(basis) if parts["line"] else (0.0, 0.0)
            inputs.append(
                {
                    "column": j,
                    "begin": begin,
                    "slope": slope,
                    "center": float(basis.center_),
                    "scale": float(basis.scale_),
                    **parts,
                    **shape,
                    "rows": _kernel_rows(state.rows[d], parts),
                }
            )
    return {
        "network": "full",
        "modes": [],
        "multiplicity": np.empty(0),
        "least": _least(0.0, state.n_outputs),
        "output": None,
        "sums": None,
        "kernel": {
            "constant": float(kernel.constant),
            "product": float(kernel.product),
            "inputs": inputs,
            "alpha": state.alpha,
            "noise": _whole_noise(state),
        },
        "likelihood": _likelihood(state.likelihood),
    }


def _line(basis: Coordinates) -> tuple[float, float]:
    """Return the standardised value at the first knot, and its slope in the raw value.

    Between knots the coordinate is linear in the raw value, and the line in the coordinate.
    """
    rise = basis.line_[-1] - basis.line_[0]
    return float(basis.line_[0]), float(rise / (basis.knots[-1] - basis.knots[0]))


def _kernel_rows(rows: Array, parts: dict[str, float]) -> dict[str, Any]:
    """Return those coordinates of the training rows in one input that the kernel looks at."""
    t, u, known = (np.ascontiguousarray(rows[:, k]) for k in (LINE, POSITION, KNOWN))
    curved = parts["curve"] > 0.0 or parts["factor"] > 0.0
    return {
        "t": t if parts["line"] > 0.0 else None,
        "u": u if curved else None,
        "known": None if np.all(known == 1.0) else known,
    }


def _whole_noise(state: FullPosterior) -> Array:
    """Return the noise with what is added to the diagonal, so that readers need not."""
    matrix = state.matrix
    return np.array([noise + factor_and_jitter(matrix, noise)[1] for noise in state.noise])


def _basis_place(basis: Any, column: dict[str, Any]) -> int:
    inner = basis.basis if isinstance(basis, Anchored) else basis
    return _place(_basis(inner, column["name"]), column["bases"])


def _least(least: Any, n_outputs: int | None) -> Any:
    return float(least) if n_outputs is None else np.broadcast_to(least, n_outputs).copy()


def _sums(sums: Sums, arrangement: Any, columns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the posterior of main effects; functions that were dropped are left out."""
    inputs = []
    for i, functions in sums.modes.items():
        j = arrangement.effect_inputs[i]
        place = _place(_effect(arrangement.effects[i]), columns[j]["effects"])
        inputs.append({"column": j, "effect": place, "functions": functions.tolist()})
    first, second = np.triu_indices(sums.size)
    return {"inputs": inputs, "mean": sums.mean, "cov": sums.cov[:, first, second]}


def _unframed(basis: Any, mean: Array) -> Array:
    """Return weights of the functions a column's basis has, from those of a frame of them."""
    if isinstance(basis, Anchored):
        mean = basis.frame_[:, : len(mean)] @ mean
        used = np.flatnonzero(np.any(mean != 0.0, axis=1))
        mean = mean[: used[-1] + 1]
    return np.ascontiguousarray(mean)


def _likelihood(likelihood: Any) -> dict[str, Any]:
    kind = type(likelihood)
    if kind is Gaussian:
        shape = float(likelihood.noise.shape)
        return {"kind": "gaussian", "noise": likelihood.noise_std**2, "dof": 2.0 * shape}
    if kind is StudentT:
        mixture = likelihood.predictive(np.zeros(1), np.zeros(1))
        used = mixture.weights > 0.0
        return {
            "kind": "student_t",
            "noise": mixture.noise[used],
            "weights": mixture.weights[used],
            "noise_total": likelihood.noise_std**2,
        }
    if kind is NegativeBinomial:
        offset, size = float(likelihood.offset), float(likelihood.size)
        return {"kind": "negative_binomial", "offset": offset, "size": size}
    if kind is Bernoulli:
        return {"kind": "bernoulli", "offset": float(likelihood.offset)}
    if kind is Softmax:
        return {"kind": "softmax", "offsets": np.array(likelihood.offsets)}
    raise TypeError(
        f"likelihood must be one of btnkm to be written as plain data, got {kind.__name__}, a "
        "class of your own; fit with one from btnkm.likelihoods."
    )
