"""A fitted model as plain data: numbers, text, lists and float64 arrays.

A reader needs nothing of this library to predict: a browser, another language, a file format.
For each restart, f is a tensor T, a sum of main effects a, both together, or a kernel machine h.
T is a product over modes of functions of one column each:

1. A raw value becomes a coordinate: by ``knots`` and ``positions``, linear between them and
   constant beyond; or by ``categories``, -1 for one that is not among them. Missing values are NaN.
   A number also has an excess: how far it is beyond the last knot (or before the first, which is
   negative), in units of the distance between the two, but at most ``farthest``.
2. The coordinate becomes phi and psi by one of the column's ``bases``. A mode without a column (the
   amplitudes) has the constant 1 for both. The ``kind`` of a basis is

   - "formula": phi and psi are outputs of a formula (see ``core/formula.py``) of the coordinate x;
   - "categorical": both are indicators of the codes 0, 1, ..;
   - "with_missing": both are those of another ``basis``, with replacements for values that are
     missing or were never seen; see ``WithMissing.portable``;
   - "many_categories": both are indicators; see ``ManyCategories.portable``;
   - "constant": both are 1.
3. z = phi[:len(mean)] @ mean are the means of the mode, Z = psi[:len(second)] @ second its second
   moments: of each component and each pair of them (CP), or of the entries of a matrix (TT).
4. Modes are multiplied in order. CP: entry by entry. TT: z is a (left, right) matrix, Z one of
   (left pairs, right pairs), and the product of the modes before is a row vector.
5. The entries of the product are summed: E[T] = sum z, E[T^2] = sum multiplicity * Z. With an
   ``output``, E[T_k] = sum z * mean_k for each of its rows k, and so on.

The main effects are linear in functions g of all inputs together:

6. The functions of an ``effect`` at a coordinate are, in this order: the values of ``line`` at
   ``positions``, linear between them, plus, if it ``runs_on``, the excess times the difference of
   the last and the first; the Chebyshev polynomials T_1 to T_degree; whether the
   coordinate is above each of ``steps``; whether it is each of ``spikes``, or each of ``codes``;
   all less ``center``. All of these are 0 where the value is missing, and for a category never
   seen. Last, if ``missing``, is whether the value is missing, less ``center``.
7. g is 1, and the ``functions`` of each of the ``inputs`` of ``sums``. E[a_k] = mean_k . g, and
   Var[a_k] is the sum over pairs p <= q of multiplicity * cov_k * g_p * g_q.

A kernel machine compares a row with the training rows:

8. An item of the ``inputs`` of a ``kernel`` has its ``column``, the parameters below, and ``rows``,
   a dict with t, u and known of the training rows: (n,) each, or None where it is not needed: t if
   ``line`` is 0, u if ``curve`` and ``factor`` are 0, known if no value is missing. For a value
   with the coordinate x, known is 1, or 0 if it is missing; t is ``begin`` + ``slope`` * (raw value
   - first knot), with the raw value clipped to the knots, or 0 for categories and missing values;
   if the item ``runs_on``, the excess times the distance of first and last knot is added to the
   clipped value. u is (x - center) / scale, or the code of a category.
9. Two values have a correlation kappa. It is 0 if one or both are missing. For categories it is 1
   if u is the same and not -1, else 0. For numbers it is (1 - rough) exp(-q / 2) + rough (1 + r)
   exp(-r), with q = (difference of u / length)^2 and r = sqrt(3 q).
10. k(row, row') = constant + sum over inputs of (line t t' + curve kappa + missing m m')
    + product * product over inputs of (1 + factor kappa) / (1 + factor), with m = 1 - known. The
    sum has the length ``curve_length``, the product ``factor_length``. In k(x, x) kappa is
    ``known``, also for a category never seen.
11. With v the vector of k(x, row) for all training rows and K the matrix between them,
    E[h_k] = v . alpha_k and Var[h_k] = k(x, x) - v (K + diag(noise_k))^-1 v, but at least
    1e-12 k(x, x). Outputs are independent.

E[f] = E[T] + E[a], and Var[f] = Var[T] + Var[a], but at least ``least``; or they are those of h.
For each item of ``widening``, v max(e, 1)^2 is added to Var[f], with e the absolute excess of its
``column``, and v the values of ``below`` (where the excess is negative) or ``above`` at as many
places from 0 to 1, linear between them, taken at min(e, 1). All items together add ``widest`` at
most, if that is not None.
Where the noise varies, its log precision g is a sum of main effects as in 7, with the moments E[g]
and Var[g].
Pairs r <= s are in the order of ``numpy.triu_indices``; one with r < s counts twice.

A row with missing values in columns with ``fills`` has Q copies, and the distribution of y is an
even mixture of theirs. In copy q each of these columns has value q of the ``values`` of its fills:
a number, or the code of a category, or NaN where the value stays missing. With ``inputs``, which
are other columns of numbers, the coordinate v of this value is replaced. If the row has all of
these, it becomes center + spread (v - center) + sum_k slopes_k (x_k - centers_k), where x_k are
their coordinates, from -1 to 1. Otherwise it becomes v + sum_k slopes_k (x_k - v_k) over those that
are not missing and have fills whose value q is not NaN, v_k being its coordinate. Both are held
from -1 to 1.

The distribution of the target is a mixture over restarts. With f ~ N(E[f], Var[f]) in each, the
likelihood's kind is

- "density": a formula gives the distribution of the target, for the moments of f and, where the
  noise varies, of g; see ``density_form``;
- "bernoulli": the second class has probability sigma(offset + f);
- "softmax": class k has a probability proportional to exp(offsets_k + f_k).

A ``calibration`` changes the distribution of y. For numbers, with F the mixture and z = ndtri(F(y))
its normal score, the distribution function becomes ndtr(T(z)), where T(z) = sinh(``tails`` *
asinh((z - ``shift``) / ``scale``) - ``skew``) from the first to the last of ``lower``, and linear
with the same slope beyond. The mean stays as it is, the standard deviation is multiplied by
``factor``. The ends of a central interval with the probability q below it have the scores lower[k -
1] and upper[n - k] for k = floor((n + 1) q) of n scores; for k = 0 these are T^-1(ndtri(q)) and
T^-1(ndtri(1 - q)), but not within the first and the last score. For classes, log p is multiplied by
``slope``, and of two classes log p of the second has ``offset`` added, before the softmax.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bases.anchored import Anchored
from ..bases.effect import Coordinates
from ..core.cp import CP
from ..core.full import KNOWN, LINE, POSITION, FullPosterior
from ..core.layout import pairs
from ..core.linalg import factor_and_jitter
from ..core.posterior import Predictor
from ..core.recalibration import LogitScaling
from ..core.sums import Sums
from ..core.tt import TT
from ..explain.fitted import FittedModel

Array = np.ndarray
NETWORKS: dict[type, str] = {CP: "cp", TT: "tt"}


def portable(model: Any) -> dict[str, Any]:
    """Return a fitted model, with bases and a likelihood of this library, as plain data.

    Returns
    -------
    dict
        ``format``
            5, the version of what follows. Version 4 had no noise that varies, no transformation
            and neither ``fills`` nor calibration, 3 no formulas.
        ``classes``
            The labels of a classifier; None for a regressor.
        ``shift``, ``scale``
            y = shift + scale * target, with the target what ``likelihood`` is about.
        ``transformation``
            None, or a formula of a function h: h(y) = shift + scale * target. Then the mean of y
            is that for a normal h(y) in each restart; see ``Transformed.portable``.
        ``threshold``, ``noise_std``
            For the "least_squares" classifier, the target above which the second class begins, and
            the noise of the best restart, on which intervals of probabilities depend. Else None.
        ``calibration``
            None, or a dict as above.
        ``columns``
            One dict for each column of the table: ``name``; ``kind`` ("f" numbers, "M" dates and
            "m" durations in microseconds, "O" text); ``knots`` and ``positions`` of numbers;
            ``categories`` (name to code, None for numbers); ``farthest``, the largest excess;
            ``fills``, what stands for missing values as above, or None; ``active``, whether f may
            depend on it; ``bases`` of the modes, with ``kind``, ``n_functions``, ``n_products`` and
            what else the kind has; ``effects``, main effects as above, where ``line`` is None for
            categories.
        ``weights``
            Those of the restarts in the mixture, (S,).
        ``restarts``
            One dict for each restart: ``network`` ("cp", "tt" or "full"); ``modes``, with
            ``column`` (a position, or None), ``basis`` (a position among those of the column),
            ``shape`` (left, right; both the rank in CP), ``mean`` (n_phi, C) and ``second``
            (n_psi, S); ``multiplicity`` (S,); ``least``, a number, or an array (K,) for many
            outputs; ``output``, None or a dict with ``mean`` (K, C) and ``second`` (K, S);
            ``sums``, None or a dict with ``inputs`` (each with its ``column``, ``effect``, a
            position among those of the column, and ``functions``), ``mean`` (K, P) and ``cov``
            (K, P (P + 1) / 2), with K = 1 for one output; ``kernel``, None or a dict with
            ``constant``, ``product``, ``inputs``, ``alpha`` and ``noise``, both (K, n) for n
            training rows; ``noise``, None or a dict as that of ``sums``, for g; ``widening``, a
            list of dicts with ``column``, ``below`` and ``above`` (places, K); ``widest``, a
            number, or None for no limit; ``likelihood``, with its ``kind`` and more, as above.
    """
    fitted = FittedModel.of(model)
    classes, threshold = fitted.classes, fitted.threshold
    best = fitted.likelihoods[fitted.best_restart]
    far, active = fitted.farthest, set(fitted.active)
    columns = [
        _column(c, fill, j in active) | {"farthest": far}
        for j, (c, fill) in enumerate(zip(fitted.columns, fitted.fills.fills, strict=True))
    ]
    return {
        "format": 5,
        "classes": None if classes is None else classes.tolist(),
        "shift": float(fitted.y_shift),
        "scale": float(fitted.y_scale) if classes is None else 1.0,
        "transformation": _transformation(fitted),
        "threshold": None if threshold is None else float(threshold),
        "noise_std": None if threshold is None else best.noise_std,
        "calibration": _calibration(fitted.calibration),
        "columns": columns,
        "weights": np.array(fitted.weights),
        "restarts": [
            _restart(state, mode_map, columns) | _widening(fitted.added[k])
            for k, (state, mode_map) in enumerate(
                zip(fitted.posteriors, fitted.mode_maps, strict=True)
            )
        ],
    }


def _calibration(calibration: Any) -> dict[str, Any] | None:
    """Return a recalibration as plain data."""
    names: tuple[str, ...] = ("lower", "upper", "shift", "scale", "skew", "tails", "factor")
    if isinstance(calibration, LogitScaling):
        names = ("slope", "offset")
    return None if calibration is None else {name: getattr(calibration, name) for name in names}


def _widening(extra: Any) -> dict[str, Any]:
    """Return what is added to the variance of f beyond the range of each column."""
    pairs = [] if extra is None else zip(extra.inputs, extra.variances, strict=True)
    items = [
        {"column": j, "below": np.ascontiguousarray(below), "above": np.ascontiguousarray(above)}
        for j, (below, above) in pairs
    ]
    limited = extra is not None and np.isfinite(extra.most)
    return {"widening": items, "widest": float(extra.most) if limited else None}


def _column(column: Any, fill: Any, active: bool) -> dict[str, Any]:
    numeric = column.categories is None
    return {
        "fills": None if fill is None else _fill(fill),
        "name": column.name,
        "kind": column.kind,
        "knots": column.knots if numeric else None,
        "positions": column.positions if numeric else None,
        "categories": None if numeric else dict(column.categories),
        "active": active,
        "bases": [],
        "effects": [],
    }


def _fill(fill: Any) -> dict[str, Any]:
    return {
        "values": fill.every,
        "center": float(fill.center),
        "spread": float(fill.spread),
        "inputs": fill.inputs.tolist(),
        "slopes": fill.slopes,
        "centers": fill.centers,
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
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return np.array_equal(a, b)


def _restart(state: Any, mode_map: Any, columns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a restart; bases and main effects that are new are added to those of the columns."""
    plain: dict[str, Any] = {
        **{"network": "full", "modes": [], "multiplicity": np.empty(0), "least": 0.0},
        **{"output": None, "sums": None, "kernel": None, "noise": None},
        "likelihood": _likelihood(state.likelihood),
    }
    if isinstance(state, FullPosterior):
        plain["kernel"] = _kernel(state, mode_map)
    else:
        plain |= _tensor_and_sums(state, mode_map, columns)
    if mode_map.noise_effects:
        parts = mode_map.noise_effects, mode_map.noise_inputs
        plain["noise"] = _sums(state.likelihood.sums, *parts, columns)
    if state.n_outputs is None:
        return plain | {"least": float(plain["least"])}
    return plain | {"least": np.broadcast_to(plain["least"], state.n_outputs).copy()}


def _tensor_and_sums(state: Any, mode_map: Any, columns: list[dict[str, Any]]) -> dict[str, Any]:
    predictor = Predictor.of(state)
    network = type(state.network)
    if network not in NETWORKS:
        raise TypeError(f"the network must be CP or TT, got {network.__name__}.")
    modes: list[dict[str, Any]] = []
    for d, (basis, factor) in enumerate(zip(mode_map.bases, state.factors, strict=False)):
        term, place = predictor.terms[d], d - mode_map.first_input
        j = None if place < 0 else mode_map.inputs[place]
        modes.append(
            {
                "column": j,
                "basis": None if j is None else _basis_place(basis, columns[j]),
                "shape": list(factor.layout.shape),
                "mean": _unframed(basis, term.mean),
                "second": np.ascontiguousarray(term.second),
            }
        )
    output = sums = None
    if state.sums is not None:
        sums = _sums(state.sums, mode_map.effects, mode_map.effect_inputs, columns)
    if state.output is not None:
        term = predictor.terms[state.output]
        output = {"mean": term.mean, "second": np.ascontiguousarray(term.second)}
    return {
        "network": NETWORKS[network],
        "modes": modes,
        "multiplicity": pairs(modes[-1]["shape"][1] if modes else 0)[2],
        "least": predictor.least,
        "output": output,
        "sums": sums,
    }


def _kernel(state: FullPosterior, mode_map: Any) -> dict[str, Any]:
    """Return a kernel machine, which has neither a tensor nor main effects."""
    kernel, inputs = state.kernel, []
    names = ("line", "curve", "missing", "factor", "curve_length", "factor_length", "rough")
    for d, (j, basis) in enumerate(zip(mode_map.inputs, mode_map.bases, strict=True)):
        parts = {name: float(getattr(kernel, name)[d]) for name in names}
        if any(parts[name] for name in names[:4]):
            begin, slope = _line(basis) if parts["line"] else (0.0, 0.0)
            inputs.append(
                {
                    "column": j,
                    "runs_on": basis.runs_on,
                    "begin": begin,
                    "slope": slope,
                    "center": float(basis.center_),
                    "scale": float(basis.scale_),
                    **parts,
                    "rows": _kernel_rows(state.rows[d], parts),
                }
            )
    matrix = state.matrix
    # with what is added to the diagonal, so that readers need not
    noise = [part + factor_and_jitter(matrix, part)[1] for part in state.noise]
    return {
        "constant": float(kernel.constant),
        "product": float(kernel.product),
        "inputs": inputs,
        "alpha": state.alpha,
        "noise": np.array(noise),
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


def _basis_place(basis: Any, column: dict[str, Any]) -> int:
    inner = basis.basis if isinstance(basis, Anchored) else basis
    try:
        return _place(inner.portable(), column["bases"])
    except TypeError as reason:
        raise TypeError(f"column {column['name']!r}: {reason}") from reason


def _sums(
    sums: Sums, effects: Any, of_inputs: Any, columns: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the posterior of main effects; functions that were dropped are left out."""
    inputs = []
    for i, functions in sums.modes.items():
        j = of_inputs[i]
        place = _place(effects[i].portable(), columns[j]["effects"])
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


def _transformation(fitted: FittedModel) -> dict[str, Any] | None:
    """Return the transformation of y as plain data, None where there is none."""
    return None if fitted.transformation is None else fitted.transformation.portable()


def _likelihood(likelihood: Any) -> dict[str, Any]:
    """Return a likelihood as plain data; a subclass may predict anything, so must define it."""
    kind = type(getattr(likelihood, "noise_at_zero", likelihood))
    if "portable" not in vars(kind):
        raise TypeError(
            f"the likelihood {kind.__name__} has no portable form; define portable() in its class, "
            "or use one from btnkm.likelihoods."
        )
    return dict(likelihood.portable())
