"""What both estimators share: parameters, tables, the fit, moments of f."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, device
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from . import checks
from .calibrating import Calibrating
from .core.arrays import host, is_elsewhere
from .core.full_functionals import total_effects
from .core.likelihoods import Transformed, of_targets
from .core.posterior import found_nothing
from .data.column_stats import MOST_ROWS, TableStats
from .data.columns import categorical_columns, fit_columns
from .data.dask_input import is_dask, open_dask
from .data.fills import Fill, Fills
from .data.frames import check_names, name_of
from .data.readers import coded, ones_or_none, open_source
from .execution import fitting
from .explain.fitted import FittedModel
from .io.checkpoints import Checkpoint, check_path, signature
from .parameters import (
    changed_group,
    check_parameters,
    lasting_parameters,
    options_of,
)
from .plan import Defaults, FitPlan
from .saving import Saving
from .streaming import Streaming, Window
from .structures.candidates import choose, weighted
from .structures.extrapolation import widening
from .structures.learned_missing import fills_of, mixture_log_density, without_itself
from .structures.mode_map import ModeMap, block_size
from .structures.multistart import bonds, fit_structures
from .structures.search import Candidate
from .structures.task import Target, Task, Values
from .warn import warn

Array = np.ndarray
_LOOK_AT = 1000  # training rows, to see whether anything was found
_DRAWS, _SEED = 16, 0  # of posterior draws of each restart behind feature_importances_


class Estimator(Calibrating, Streaming, Saving, BaseEstimator):
    """Base of the estimators; see BTNRegressor for the parameters.

    A subclass checks y (``_check_y``), encodes it for the engine (``_target``) and may add to the
    results (``_finish``).
    """

    _defaults: Defaults
    _fills: list[Fill | None] | None = None
    likelihood_: Any
    _found_nothing = False  # whether f varies less between the rows than it is uncertain
    # parameters that a fit which continues from another cannot change, beside some options
    _lasting: ClassVar[tuple[str, ...]] = (
        "basis",
        "structure",
        "network",
        "n_basis",
        "likelihood",
        "extrapolate",
    )

    def __init__(self, **parameters: Any) -> None:
        for name, value in parameters.items():
            setattr(self, name, value)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; options of a group have names such as ``solver__warm_sweeps``."""
        options = options_of(params, "__")
        in_groups = {f"{group}__{name}" for group in options for name in options[group]}
        super().set_params(**{name: v for name, v in params.items() if name not in in_groups})
        for group, changes in options.items():
            setattr(self, group, changed_group(group, getattr(self, group), changes))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    @staticmethod
    def _check_y(name: str, y: Any) -> Array:
        """Return y as an array (n,), or raise a ValueError; ``name`` is that of the estimator."""
        raise NotImplementedError

    def _target(self, y: Array, weight: Array | None) -> Target:
        """Return the target as the engine sees it, given values of y and their weights."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Set the fitted attributes that only this estimator has."""

    def _hint(self, task: Task, y: Array) -> None:
        """Warn if another estimator or likelihood is made for such targets y (n,)."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: Any = None,
        checkpoint_every: int = 10,
    ) -> Self:
        """Fit the model to a table X (n, inputs) and targets y (n,).

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs)
            Or rows that are not in memory: a ``numpy.memmap``, an Arrow data set, Parquet files (a
            path, a folder, a pattern such as ``"rows/*.parquet"``, or a list of these), or an
            iterable of tuples (X, y) or (X, y, sample_weight) that can be repeated. Arrays of
            torch, CuPy or another library that follows the array API standard stay on their device.
        y : array of shape (n,), or the name of a column of a frame, an Arrow data set or files
        sample_weight : array of shape (n,), the name of a column, or None
            A row of weight k counts as k rows. Rows of weight 0 are left out.
        checkpoint : path or None
            Checkpoint path. If the file exists, the fit resumes, and the result is the same as
            without the interruption. A checkpoint of other data or parameters raises an error. Uses
            pickle: load only trusted files.
        checkpoint_every : int, default=10
            Number of sweeps, of all restarts together, between two writes of the checkpoint.
        """
        if checkpoint is not None:
            checks.check_integer("checkpoint_every", checkpoint_every, 1)
            checkpoint = check_path(checkpoint)
        self._check_parameters()
        held_out = self._for_folds(X, y, sample_weight)
        if self.warm_start and hasattr(self, "posterior_"):
            if checkpoint is not None:
                raise ValueError(
                    "checkpoint must be None where warm_start continues from another fit, got "
                    f"{str(checkpoint)!r}; leave one of them out."
                )
            source, table_stats = self._open(X, y, sample_weight)
            with closing(source):
                self._check_more(source, table_stats)
                if self._resume(source, table_stats, name_of(y), None):
                    self._window = None
            return self
        source, table_stats = self._open(X, y, sample_weight)
        with closing(source):
            self._fit_anew(source, table_stats, name_of(y), checkpoint, checkpoint_every)
        if held_out is not None:
            self._calibrate_by_folds(*held_out)
        return self

    def _open(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
        """Return the source of the rows, and the statistics of their columns."""
        self._check_parameters()
        opened = open_dask if is_dask(X) else open_source
        source = opened(X, y, sample_weight, partial(self._check_y, type(self).__name__))
        return source, source.table_stats(
            partial(_categorical_places, self.basis, is_classifier(self))
        )

    def _same_target(self) -> Target:
        """Return the target of a model that is fitted already."""
        raise NotImplementedError

    def _states(self) -> tuple[Any, ...]:
        """Return the posteriors as the engine left them."""
        return self.posterior_

    def _clear(self) -> None:
        """Delete the fitted attributes, so that a fit that fails leaves none of an older one."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        self.__dict__.pop("_total_effects", None)
        self._window = self._fills = None

    def _fit_anew(
        self,
        source: Any,
        table_stats: TableStats,
        target_name: str | None,
        checkpoint: Any = None,
        checkpoint_every: int = 1,
        *,
        keep: bool = False,
    ) -> Self:
        """Fit from random factors; ``keep`` sums over the rows even if they are many."""
        if table_stats.n < 2:
            raise ValueError(
                "X must have at least 2 rows, got 1 sample, which has no spread; add rows."
            )
        target = self._target(table_stats.y.values, ones_or_none(table_stats.y.weight))
        target = target._replace(name=target_name)
        self._clear()
        check_names(self, source.example, reset=True)
        n = int(max(table_stats.n, table_stats.total))  # a weight of k counts k times
        plan = FitPlan.of(self, self._defaults, target, n, len(table_stats.names), stream=keep)
        task, active = self._code(plan, source, table_stats, target, keep)
        keeper = None
        if checkpoint is not None:
            signed = signature(self, table_stats, task.rows.data())
            keeper = Checkpoint(checkpoint, int(checkpoint_every), signed)
            keeper.seeds = task.seeds if keeper.seeds is None else keeper.seeds
            task = task._replace(seeds=keeper.seeds)
        history: list[dict[str, Any]] = [] if keeper is None else keeper.history
        candidates = choose(plan, task, active, table_stats.names)
        results = fit_structures(plan, task, candidates, history, keeper)
        self._active = active
        self._begun_with = lasting_parameters(self, self._lasting)
        judged = {candidate.mode_map: candidate for candidate in candidates}
        self._conclude(plan, task, results, history, judged)
        self.n_samples_seen_ = table_stats.n
        if any(mode_map.full_tensor for mode_map in self._mode_maps) and plan.structure != "full":
            self._window = Window.of(table_stats.sample)  # partial_fit fits them again, with more
        self._list_structures(plan, candidates)
        self._complete(task, new=True)
        self._hint(task, table_stats.sample.y)
        return self

    def _code(
        self,
        plan: FitPlan,
        source: Any,
        table_stats: TableStats,
        target: Target,
        keep: bool,
    ) -> tuple[Task, list[int]]:
        """Return the coded table, and the columns that vary."""
        # columns of many categories are anchored; without anchors the rarest share a function
        many = plan.may_be_anchored and not is_elsewhere(source.example)  # sparse rows are SciPy's
        summaries = table_stats.columns
        columns, codes = fit_columns(summaries, table_stats.names, plan.basis, plan.n_basis, many)
        # a constant input only scales the others: the network does without it
        active = [j for j, c in enumerate(columns) if not _is_constant(c.basis, codes[j])] or [0]
        sample = coded(table_stats.sample, columns, target)
        rows = source.code(columns, target, table_stats, sample)
        seeds = check_random_state(self.random_state).randint(2**31, size=4)
        task = Task(
            target=target,
            columns=columns,
            values=Values(codes, [summary.weight for summary in summaries]),
            sample=sample,
            rows=rows,
            seeds=[int(s) for s in seeds],
            keeps_sums=keep or table_stats.n <= MOST_ROWS,
        )
        return task, active

    def _list_structures(self, plan: FitPlan, candidates: list[Candidate]) -> None:
        """Set ``structures_``: the structures that were compared, and what came of it."""
        self.structures_ = []
        log_unit = float(np.log(self._y_scale)) - plan.target.log_slope
        for candidate in candidates:
            restarts = [k for k, other in enumerate(self._mode_maps) if other is candidate.mode_map]
            entry = {
                "name": candidate.mode_map.structure,
                "weight": float(np.sum(self.weights_[restarts])),
                "log_density": candidate.log_density - log_unit,
                "restarts": restarts,
                "seconds": candidate.seconds,
                "sums_first": candidate.mode_map.sums_first,
                "splines": candidate.mode_map.splines,
                "heavy": candidate.mode_map.heavy,
                "varying": bool(candidate.mode_map.noise_effects),
                "noise_factor": candidate.noise[0],
                "noise_dof": candidate.noise[1],
            }
            if plan.train is not None:
                entry["cores"] = "full" if candidate.mode_map.full_cores else "diagonal"
                entry["mode_order"] = list(candidate.mode_map.inputs)
            self.structures_.append(entry)

    def _conclude(
        self,
        plan: FitPlan,
        task: Task,
        results: list[tuple[ModeMap, fitting.Result]],
        history: list[dict[str, Any]],
        judged: dict[ModeMap, Candidate] | None = None,
    ) -> None:
        """Set the fitted attributes, and warn if the fit was interrupted.

        With ``judged`` candidates, by their mode map, restarts get new weights;
        otherwise they keep those they had.
        """
        self.columns_ = task.columns
        self.calibration_ = None  # what there was is of another model
        self.history_ = sorted(history, key=lambda entry: (entry["restart"], entry["sweep"]))
        for name, value in task.target.attributes.items():
            setattr(self, name, value)
        usable = [(mode_map, result) for mode_map, result in results if result.restarts]
        if judged is not None:
            usable, self.weights_ = weighted(task, usable, judged)
        self._set_results(plan, task, usable)
        if task.target.transformation is not None:
            self.likelihood_ = task.target.transformation.around(self.likelihood_)
        kept = results if judged is None else usable
        # a full tensor keeps rows, not sums over rows: a model with one cannot continue
        kept = [] if any(mode_map.full_tensor for mode_map, _ in kept) else kept
        self._pasts = [past for _, result in kept for past in result.pasts]
        parts = [result for _, result in results]
        self.converged_, self.stop_reason_ = fitting.ending(parts, plan.tol)
        self._finish()
        if any(result.interrupted for result in parts):
            warn(self.stop_reason_, ConvergenceWarning)

    def _complete(self, task: Task, *, new: bool) -> None:
        """Name the target and make the fitted view; warn if a ``new`` model has found no effect."""
        self.target_name_ = task.target.name
        # rows of a batch may be few or alike: what earlier rows have found is not lost
        self._found_nothing = (new or self._found_nothing) and self._finds_nothing(task)
        self._choose_fills(task)
        self.__dict__.pop("fitted_", None)
        _ = self.fitted_  # predictions do not change the attributes
        if new and self._found_nothing and np.ptp(task.sample.y) > 0:
            warn(
                "no input was found to have an effect: the prediction is nearly the same in all "
                f"rows. If there should be one, the rows may be too few for {len(self.columns_)} "
                "input(s), or the basis unable to follow it: leave out inputs, give rows, change "
                "the basis, or the network.",
            )

    def _choose_fills(self, task: Task) -> None:
        """Set what predictions of rows with missing values are averaged over."""
        before = None if self._fills is None else Fills(self.columns_, self._fills)
        full = any(mode_map.full_tensor for mode_map in self._mode_maps)
        parts = self.columns_, self._active, task.sample, self._log_densities, before
        self._fills = list(fills_of(*parts, full=full).fills)
        self.__dict__.pop("fitted_", None)

    def _log_densities(self, columns: list[Any], y: Array, weight: Array, alone: bool) -> Array:
        """Return log densities of encoded targets: (n,); ``alone`` without these training rows."""
        states: Any = self._states()
        likelihoods = [state.likelihood for state in states]
        if any(hasattr(likelihood, "at") for likelihood in likelihoods):
            likelihoods = self.fitted_.likelihoods_at(columns)
        likelihoods = [of_targets(likelihood, y)[0] for likelihood in likelihoods]
        counted = y if y.ndim == 1 else y[:, 0]
        means, variances = self._moments_at(columns)
        if alone:
            for k, (state, likelihood) in enumerate(zip(states, likelihoods, strict=True)):
                scale = getattr(state.likelihood, "scale", 1.0)
                parts = likelihood, scale, counted, weight, means[k], variances[k]
                means[k], variances[k] = without_itself(*parts)
        return mixture_log_density(likelihoods, self.weights_, means, variances, counted)

    def _finds_nothing(self, task: Task) -> bool:
        """Return whether f, its mean aside, varies less between the rows than it is uncertain."""
        sample = task.sample
        share = sample.weights / sample.weights.sum()
        count = min(_LOOK_AT, sample.n)
        rows = np.random.default_rng(task.seeds).choice(sample.n, count, replace=False, p=share)
        columns = [column[rows] for column in sample.codes]
        means, variances = self.fitted_.predict(
            columns, lambda model, rows: replace(model, least=0.0).contrasts(rows), 2
        )
        least = [predictor.least for predictor in self.fitted_.predictors]
        return found_nothing(self.weights_, means, variances, least)

    def _check_parameters(self) -> None:
        """Raise a ValueError for a parameter that is not allowed."""
        check_parameters(self)

    def _set_results(
        self, plan: FitPlan, task: Task, results: list[tuple[ModeMap, fitting.Result]]
    ) -> None:
        """Set the fitted attributes that describe the posteriors."""
        mode_map, result = results[0]  # the structure with the highest weight
        best, train = result.best, plan.train is not None
        stage = best.last.stage  # where the rank has grown, the ELBO counts from there
        exact = [p for p in best.sweeps if p.phase == "exact" and p.stage == stage]
        restarts = [
            (structure, part, restart) for structure, part in results for restart in part.restarts
        ]
        self.posterior_ = tuple(restart.state for _, _, restart in restarts)
        self._mode_maps = tuple(structure for structure, _, _ in restarts)
        # of phi and phi phi^T over the rows, in every mode: what explanations average over
        self._averages = tuple(part.averages for _, part, _ in restarts)
        self._effect_averages = tuple(part.effects for _, part, _ in restarts)
        self._widenings = tuple(
            widening(state, mode_map, task)
            for state, mode_map in zip(self.posterior_, self._mode_maps, strict=True)
        )
        ranks = [
            bonds(train, restart.last.rank, structure, self._n_outputs)
            for structure, _, restart in restarts
        ]
        self.best_restart_ = result.restarts.index(best)
        self.ranks_, self.rank_ = np.array(ranks), ranks[self.best_restart_]
        if train:
            self.cores_ = [
                "full" if mode_map.full_cores else "diagonal" for mode_map in self._mode_maps
            ]
            # columns that never vary are last
            rest = np.setdiff1d(np.arange(len(self.columns_)), mode_map.inputs)
            self.mode_order_ = np.append(mode_map.inputs, rest)
        self.n_basis_ = np.ones(len(self.columns_), dtype=int)
        if mode_map.low_rank:
            modes = best.state.modes[mode_map.first_input : len(mode_map.bases)]
            self.n_basis_[mode_map.inputs] = [len(mode.present) for mode in modes]
        self.lower_bounds_ = np.array([p.bound for p in exact])
        self.lower_bound_ = float(self.lower_bounds_[-1])
        self.n_iter_ = len(best.sweeps)
        self.likelihood_ = best.state.likelihood
        for name in (
            "fitted_",
            "feature_importances_",
            "feature_importances_std_",
            "_total_effects",
        ):
            self.__dict__.pop(name, None)  # those of an earlier fit

    @cached_property
    def _total_effects(self) -> Array:
        """Draws of what every input explains of f, in all 1: (restarts, draws, inputs)."""
        rng = np.random.default_rng(_SEED)
        shares = np.zeros((len(self.posterior_), _DRAWS, len(self.columns_)))
        posteriors: Any = self.posterior_
        for k, (state, mode_map) in enumerate(zip(posteriors, self._mode_maps, strict=True)):
            if mode_map.full_tensor:
                drawn = total_effects(state, _DRAWS, rng)
            else:
                averages = self._averages[k], self._effect_averages[k]
                drawn = fitting.total_effects(state, *averages, _DRAWS, rng)
            parts = shares[k]
            count = len(mode_map.bases)
            parts[:, mode_map.inputs] = drawn[:, mode_map.first_input : count]  # without amplitudes
            parts[:, list(mode_map.effect_inputs)] += drawn[:, count:]
        shares = np.maximum(shares, 0.0)
        return shares / np.maximum(shares.sum(axis=2, keepdims=True), np.finfo(float).tiny)

    @cached_property
    def feature_importances_(self) -> Array:
        """Total Sobol index of every input, scaled to sum to 1; all 0 without any effect: (D,)."""
        check_is_fitted(self)
        if self._found_nothing:
            return np.zeros(len(self.columns_))
        return np.einsum("s,sjd->d", self.weights_ / _DRAWS, self._total_effects)

    @cached_property
    def feature_importances_std_(self) -> Array:
        """Standard deviation of ``feature_importances_`` over the posterior: (D,)."""
        check_is_fitted(self)
        if self._found_nothing:
            return np.zeros(len(self.columns_))
        away = self._total_effects - self.feature_importances_
        return np.sqrt(np.einsum("s,sjd->d", self.weights_ / _DRAWS, away**2))

    @property
    def _n_outputs(self) -> int | None:
        n_outputs: int | None = self.posterior_[0].n_outputs
        return n_outputs

    @cached_property
    def fitted_(self) -> FittedModel:
        """View of the fitted model for explanations and reports; cached until the next fit."""
        check_is_fitted(self)
        table = type(self).__new__(type(self))  # no more than its columns: no reference to self
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(table, name, getattr(self, name))
        exposed = getattr(self, "_exposed", False)
        return FittedModel(
            estimator=type(self).__name__,
            target_name=self.target_name_,
            classes=getattr(self, "classes_", None),
            columns=self.columns_,
            fills=Fills(self.columns_, self._fills or [None] * len(self.columns_)),
            active=self._active,
            posteriors=self.posterior_,
            mode_maps=self._mode_maps,
            averages=self._averages,
            effect_averages=self._effect_averages,
            widenings=getattr(self, "_widenings", None),
            weights=self.weights_,
            best_restart=self.best_restart_,
            y_shift=getattr(self, "_y_shift", 0.0),
            y_scale=self._y_scale,
            threshold=getattr(self, "_threshold", None),
            block_rows=block_size(self._mode_maps, self.posterior_),
            check_y=_refuse_targets if exposed else partial(self._check_y, type(self).__name__),
            check_names=partial(check_names, table, reset=False),
            calibration=self.calibration_,
            transformation=self.likelihood_ if isinstance(self.likelihood_, Transformed) else None,
            found_nothing=self._found_nothing,
            exposed=exposed,
            exposure_name=getattr(self, "_exposure_name", None),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "fitted_"}

    def _means(self, X: Any) -> Array:
        """Return E[f] for every restart and row, on the device of X: (S, n)."""
        fitted = self.fitted_

        def means(columns: Sequence[Any]) -> Array:
            return fitted.predict(columns, lambda model, rows: (model.mean(rows),), 1)[0, ...]

        return fitted.averaged(fitted.encode(X), means, 1)

    def _moments(self, X: Any) -> Array:
        """Return the moments of f, of rows with missing values as the fit has learned them."""
        return self._moments_at(self.fitted_.encode(X))

    def _moments_at(self, columns: Sequence[Any]) -> Array:
        """Return E[f] and Var[f] for every restart and row, in local memory: (2, S, n)."""
        return host(self.fitted_.predict(columns, lambda model, rows: model.moments(rows), 2))


def _refuse_targets(y: Any) -> Array:
    """Raise an error: targets say something about a model only together with their exposures."""
    raise ValueError(
        "targets must be left out for a model that was fitted with an exposure, got them: this "
        "predicts for an exposure of 1; use scorers.log_density(model, X, y, exposure=...)."
    )


def answered(X: Any, values: Array) -> Any:
    """Return predictions for rows X in the array library of X, and on its device."""
    if not is_elsewhere(X):
        return values
    xp = array_namespace(X)
    floating = xp.isdtype(X.dtype, "real floating") and values.dtype.kind == "f"
    return xp.asarray(values, dtype=X.dtype if floating else None, device=device(X))


def _categorical_places(basis: Any, labels: bool, names: list[Any]) -> set[int]:
    """Return the columns that hold categories, whatever their type; y is the last."""
    places = categorical_columns(basis, names)
    return places | {len(names)} if labels else places


def _is_constant(basis: Any, codes: Array) -> bool:
    """Return whether the only function of an input is constant on the training rows."""
    return basis.n_functions_ == 1 and float(np.ptp(basis.phi(codes))) < 1e-12
