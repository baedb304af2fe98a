"""Groups of constructor parameters, and the checks of all of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from .checks import check_gamma, check_integer, check_number, check_order
from .core.gamma import Gamma

EXTRAPOLATIONS = ("linear", "flat")
STRUCTURES = ("auto", "tensor", "sums", "sums+tensor", "full")
MAX_SMOOTHNESS = 20.0  # (1 + m)^(-2 smoothness) is still far from underflow for m in the hundreds


@dataclass
class TensorTrain(BaseEstimator):
    """A tensor train (TT) with its options, for the parameter ``network``.

    Parameters
    ----------
    order : "auto", "given" or list, default="auto"
        The order of the inputs along the tensor train. "given" is the order of the columns. "auto"
        also tries the order in which the bonds have the lowest cost, according to a CP tensor that
        is fitted first. A list contains the name (or position) of every column once.
    cores : "auto" or "full", default="auto"
        "full" uses cores with all entries. "auto" also tries diagonal cores, which make a CP
        tensor, if there are three or more inputs and ``max_rank`` is not a list. With
        ``structure="auto"`` it then also tries the sum alone and the sum plus diagonal cores. The
        comparison slightly favours diagonal cores, as if they had predicted ten more rows.

    Examples
    --------
    >>> from btnkm import TensorTrain
    >>> TensorTrain(order="given")
    TensorTrain(order='given', cores='auto')
    """

    order: Any = "auto"
    cores: str = "auto"

    def check(self) -> None:
        """Raise a ValueError for an option that is not allowed."""
        if not isinstance(self.cores, str) or self.cores not in ("auto", "full"):
            raise ValueError(
                f"TensorTrain(cores=...) must be 'auto' or 'full', got {self.cores!r}; use 'auto'."
            )
        if isinstance(self.order, str) and self.order not in ("auto", "given"):
            check_order("TensorTrain(order=...)", self.order, [])


@dataclass
class Priors(BaseEstimator):
    """Prior distributions of the precisions, for the parameter ``priors``.

    Parameters
    ----------
    noise : Gamma, default=Gamma(1e-6, 1e-6)
        Noise precision, in units of 1 / var(y). Classifiers do not use it.
    rank : Gamma, default=Gamma(1e-5, 1e-6)
        Precision of each component.
    basis : Gamma or "off", default=Gamma(1, 1)
        Precision of each basis function. "off" does not learn these precisions: they stay at
        their prior mean for ``Gamma(1, 1)``, (1 + m)^(2 smoothness).
    smoothness : float, default=1.25
        The rate of the prior ``basis`` falls as (1 + m)^(-2 smoothness) with the degree m of the
        function.

    Examples
    --------
    >>> from btnkm import BTNRegressor, Gamma, Priors
    >>> model = BTNRegressor(priors=Priors(rank=Gamma(shape=1e-3, rate=1e-3)))
    """

    noise: Gamma = Gamma(1e-6, 1e-6)
    rank: Gamma = Gamma(1e-5, 1e-6)
    basis: Any = Gamma(1.0, 1.0)
    smoothness: float = 1.25

    def check(self) -> None:
        """Raise a ValueError for a prior that is not proper."""
        for name in ("noise", "rank", "basis"):
            value = getattr(self, name)
            if name == "basis" and isinstance(value, str) and value == "off":
                continue
            other = " or 'off'" if name == "basis" else ""
            check_gamma(f"Priors({name}=...)", value, other)
        check_number("Priors(smoothness=...)", self.smoothness)
        if self.smoothness > MAX_SMOOTHNESS:
            raise ValueError(
                f"Priors(smoothness=...) must be at most {MAX_SMOOTHNESS:g}, got "
                f"{self.smoothness!r}; larger values leave only the constant function."
            )

    @property
    def learned_basis(self) -> Gamma | None:
        """The prior of the basis precisions, or None if they are not learned."""
        return None if isinstance(self.basis, str) else self.basis


@dataclass
class Solver(BaseEstimator):
    """Details of the fitting algorithm, for the parameter ``solver``.

    Parameters
    ----------
    initial_rank : int or "auto", default="auto"
        Number of components at the beginning. If a restart ends with at least nine tenths of
        them, their number is doubled, and a warm phase and up to ``max_iter`` more sweeps follow.
        This is repeated until more components are dropped, or ``max_rank`` or ``memory_limit`` is
        reached. It needs ``prune``. "auto" is ``max_rank`` if that is given or if cores are full.
        Otherwise it is one component for every 25 rows, at least 4 and at most 20 (10 if
        components are anchored). Up to 10,000 rows and without anchors, the warm phase begins with
        extra components and drops those that matter least. In all it has 30, one for every 20
        rows, or twice the rank, whichever is least.
    warm_sweeps : int, default=10
        Sweeps of the warm phase, which ignores covariances. With fewer than four rows (or units
        of weight; 16 for classes and counts) per basis function, 12 annealing sweeps follow, which
        introduce the covariances gradually. Anchored components always have 10 of them, and full
        cores of a tensor train 20. 0 skips both phases.
    prune : bool, default=True
        Whether to drop components and functions that are negligible and whose removal raises the
        ELBO. If at most 200 weights are left at the end, this includes components that the others
        can replace.
    anchored : bool or "auto", default="auto"
        Whether each factor of a component is 1 plus a function of its input, with its own
        precision. An input that a component does not use then has no cost. "auto" is True from 10
        inputs on (8 for classes), and if a column has ten or more categories. With fewer inputs,
        factors without anchors find interactions more reliably.
    full_rows : int, default=2000
        Maximal number of rows for which ``structure="full"`` is allowed, and for which
        ``structure="auto"`` considers it.

    Examples
    --------
    >>> from btnkm import BTNRegressor, Solver
    >>> model = BTNRegressor(solver=Solver(initial_rank=4, warm_sweeps=20))
    """

    initial_rank: int | str = "auto"
    warm_sweeps: int = 10
    prune: bool = True
    anchored: bool | str = "auto"
    full_rows: int = 2000

    def check(self) -> None:
        """Raise a ValueError for an option that is not allowed."""
        check_size("Solver(initial_rank=...)", self.initial_rank)
        check_integer("Solver(warm_sweeps=...)", self.warm_sweeps, 0)
        check_integer("Solver(full_rows=...)", self.full_rows, 0)
        check_flag("Solver(prune=...)", self.prune, True)
        if not (isinstance(self.anchored, str) and self.anchored == "auto"):
            check_flag("Solver(anchored=...)", self.anchored, "auto")


def train_of(network: Any) -> TensorTrain | None:
    """Return the tensor train that ``network`` asks for, or None for a CP tensor."""
    if isinstance(network, TensorTrain):
        network.check()
        return network
    if not isinstance(network, str) or network not in ("cp", "tt"):
        raise ValueError(f"network must be 'cp', 'tt' or a TensorTrain, got {network!r}; use 'cp'.")
    return TensorTrain() if network == "tt" else None


def priors_of(estimator: Any) -> Priors:
    """Return the parameter ``priors``, checked, with the defaults for None."""
    return _group("priors", estimator.priors, Priors)


def solver_of(estimator: Any) -> Solver:
    """Return the parameter ``solver``, checked, with the defaults for None."""
    return _group("solver", estimator.solver, Solver)


def _group(name: str, value: Any, kind: Any) -> Any:
    value = kind() if value is None else value
    if not isinstance(value, kind):
        raise ValueError(
            f"{name} must be a {kind.__name__} or None, got {value!r}; leave it out for the "
            "default."
        )
    value.check()
    return value


def check_size(name: str, value: Any) -> None:
    """Raise a ValueError unless ``value`` is a positive integer or "auto"."""
    if isinstance(value, str) and value != "auto":
        raise ValueError(f"{name} must be an integer >= 1 or 'auto', got {value!r}; use 'auto'.")
    if not isinstance(value, str):
        check_integer(name, value, 1)


def check_flag(name: str, value: Any, usual: Any) -> None:
    """Raise a ValueError unless ``value`` is True or False (or the usual string)."""
    if not isinstance(value, bool | np.bool_):
        choices = "True or False" if isinstance(usual, bool) else f"True, False or {usual!r}"
        raise ValueError(f"{name} must be {choices}, got {value!r}; leave it at {usual!r}.")


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError for a constructor parameter that is not allowed."""
    structure = estimator.structure
    if not isinstance(structure, str) or structure not in STRUCTURES:
        raise ValueError(
            f"structure must be one of {list(STRUCTURES)}, got {structure!r}; use 'auto'."
        )
    extrapolate = estimator.extrapolate
    if not isinstance(extrapolate, str) or extrapolate not in EXTRAPOLATIONS:
        raise ValueError(
            f"extrapolate must be one of {list(EXTRAPOLATIONS)}, got {extrapolate!r}; use "
            f"{EXTRAPOLATIONS[0]!r}."
        )
    train_of(estimator.network)
    priors_of(estimator)
    solver_of(estimator)
    for name in ("n_basis", "max_rank", "n_init", "max_iter"):
        value = getattr(estimator, name)
        if name == "max_rank" and isinstance(value, list | tuple | np.ndarray):
            continue  # one for each bond; their number is known when the columns are
        check_size(name, value)
    if not isinstance(estimator.verbose, bool):
        check_integer("verbose", estimator.verbose, 0)
    check_flag("warm_start", estimator.warm_start, False)
    if estimator.callback is not None and not callable(estimator.callback):
        raise ValueError(
            f"callback must be a function of one argument or None, got {estimator.callback!r}; "
            "see history_ for what it receives."
        )
    calibration = estimator.calibration
    if calibration is not None and not (isinstance(calibration, str) and calibration == "cv"):
        raise ValueError(
            f"calibration must be None or 'cv', got {calibration!r}; to recalibrate by held-out "
            "rows, call calibrate(X, y) after fit."
        )
    limit = estimator.memory_limit
    if isinstance(limit, str) and limit != "auto":
        raise ValueError(
            f"memory_limit must be a number of GiB or 'auto', got {limit!r}; use 'auto'."
        )
    if not isinstance(limit, str):
        check_number("memory_limit", limit)
    check_number("tol", estimator.tol)


def lasting_parameters(estimator: Any, names: tuple[str, ...]) -> dict[str, str]:
    """Return what may not change when a fit continues, as text: parameters and some options."""
    solver, priors = solver_of(estimator), priors_of(estimator)
    lasting = {name: getattr(estimator, name) for name in names}
    lasting |= {
        "priors.basis": priors.basis,
        "priors.smoothness": priors.smoothness,
        "solver.anchored": solver.anchored,
    }
    return {name: repr(value) for name, value in lasting.items()}


def options_of(parameters: dict[str, Any], separator: str) -> dict[str, dict[str, Any]]:
    """Return the options of each group, given names such as "solver.warm_sweeps"."""
    options: dict[str, dict[str, Any]] = {}
    for name, value in parameters.items():
        group, _, option = name.partition(separator)
        if option and group in _GROUPS:
            options.setdefault(group, {})[option] = value
    return options


def changed_group(name: str, value: Any, options: dict[str, Any]) -> Any:
    """Return a group with some options changed; it is a copy, as estimators may share one."""
    if name == "network" and isinstance(value, str) and value != "tt":
        raise ValueError(
            f"network must be 'tt' where there are options of a tensor train, got {value!r} and "
            f"{name}.{next(iter(options))}; leave one of them out."
        )
    kind = _GROUPS[name]
    group = replace(value) if isinstance(value, kind) else kind()
    return group.set_params(**options)


def option_names() -> list[str]:
    """Return the names of options as the program writes them, such as "solver.warm_sweeps"."""
    return [f"{group}.{f.name}" for group, kind in _GROUPS.items() for f in fields(kind)]


def with_options(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return constructor parameters, given some with dotted names ("solver.warm_sweeps")."""
    plain = {name: value for name, value in parameters.items() if "." not in name}
    for group, options in options_of(parameters, ".").items():
        plain[group] = changed_group(group, plain.get(group), options)
    return plain


_GROUPS: dict[str, Any] = {"network": TensorTrain, "priors": Priors, "solver": Solver}
