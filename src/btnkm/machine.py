"""What the estimators share: parameters, tables, the fit, moments of f. No mathematics here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from . import checks, fitting
from .bases import Chebyshev
from .bases.anchored import Anchored
from .bases.levels import Levels
from .columns import fit_columns
from .core.cp import CP
from .core.gamma import Gamma
from .core.likelihoods import Likelihood
from .core.posterior import Predictor
from .core.schedule import Schedule
from .core.state import Priors
from .core.tt import TT
from .ordering import chain_order
from .tables import split_columns

Array = np.ndarray
_FUNCTIONS, _N_BASIS = 160, (8, 20)  # "auto": functions of all inputs together, and of each
_FEWEST_FUNCTIONS = 4  # of each where rows are few
# "auto" where components are anchored: few of them die, as an input that is not used costs nothing
_ANCHORED_RANK, _ANCHORED_RANK_OF_MANY = 10, 8
_TRIAL_SWEEPS = 20  # exact ones, to choose between orders of a train
_TRAIN_RANK = 6  # "auto" of every bond
_MANY_ROWS = 10_000
NETWORKS = ("cp", "tt")
_MOST_STARTS = 8
_MANY_LEVELS = 10  # of a column, from which components are anchored
_LOOK_AT = 1000  # training rows, to see whether anything was found
_DRAWS = 16  # posterior draws of each start behind feature_relevance_
_PREDICT_NUMBERS = 2**22  # features held at a time in prediction
_MAX_SMOOTHNESS = 20.0  # (1 + m)^(-2 smoothness) is still far from underflow for m in the hundreds


class Target(NamedTuple):
    """What an estimator makes of y for the engine."""

    y: Array
    weight: Array | None
    likelihood: Likelihood  # as the warm phase has it
    scale: float  # units of y per unit of the engine's
    attributes: dict[str, Any]  # to be set once the fit has succeeded
    n_outputs: int | None = None  # values of f in each row, None for one


class Auto(NamedTuple):
    """What "auto" means to an estimator (docs/experiments.md says why)."""

    many_inputs: int  # from so many on components are anchored
    rank: int  # of a start without anchors
    rows: int  # of all starts together: n_init, but for its limits, is this over the rows
    least_starts: int
    sweeps: int  # max_iter up to 10,000 rows
    sweeps_of_many: int  # and above
    rows_per_function: int = 0  # at least, all inputs together: n_basis is lower if need be
    warm_rank: int = 0  # of the warm phase without anchors, up to 10,000 rows

    def n_basis(self, n: int, n_inputs: int) -> int:
        """Return how many functions an input has."""
        many = int(np.clip(_FUNCTIONS // n_inputs, *_N_BASIS))
        if not self.rows_per_function:
            return many
        return int(np.clip(n // (self.rows_per_function * n_inputs), _FEWEST_FUNCTIONS, many))


class Machine(BaseEstimator):
    """Base of the estimators; see BTNRegressor for the parameters.

    A subclass says what y may be (``_check_y``), what the engine gets for it (``_target``) and what
    to add to the results (``_finish``).
    """

    noise_prior: Gamma | None = None
    _auto: Auto

    def __init__(
        self,
        basis: Any = "auto",
        *,
        network: str = "cp",
        mode_order: Any = "auto",
        n_basis: int | str = "auto",
        max_rank: Any = "auto",
        initial_rank: int | str = "auto",
        n_init: int | str = "auto",
        max_iter: int | str = "auto",
        tol: float = 1e-4,
        warm_sweeps: int = 10,
        rank_prior: Gamma | None = None,
        basis_prior: Gamma | str | None = None,
        smoothness: float = 1.25,
        anchored: bool | str = "auto",
        prune: bool = True,
        memory_limit: float = 1.4,
        n_jobs: int | None = None,
        random_state: Any = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.basis = basis
        self.network = network
        self.mode_order = mode_order
        self.n_basis = n_basis
        self.max_rank = max_rank
        self.initial_rank = initial_rank
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.warm_sweeps = warm_sweeps
        self.rank_prior = rank_prior
        self.basis_prior = basis_prior
        self.smoothness = smoothness
        self.anchored = anchored
        self.prune = prune
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    def _check_y(self, y: Any) -> Array:
        """Return y as an array (n,), or say what is wrong with it."""
        raise NotImplementedError

    def _target(self, y: Array, weight: Array | None) -> Target:
        """Return what the engine gets for y; rows without weight are left out already."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Add to the fitted attributes what only this estimator has."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the posterior to a table X (n, inputs) and targets y (n,).

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs)
        y : array of shape (n,)
        sample_weight : array of shape (n,) or None
            A weight of k counts a row k times; rows of weight 0 are left out.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # a fit that fails leaves no half of an older one
        self._check_parameters()
        raw, names = split_columns(X)
        validate_data(self, X, skip_check_array=True)
        y = self._check_y(y)
        check_consistent_length(raw[0], y)
        weight = checks.check_weight(sample_weight, len(y))
        used = slice(None) if weight is None else weight > 0
        raw, y = [column[used] for column in raw], y[used]
        if len(y) < 2:
            raise ValueError(
                "X must have at least 2 rows, got 1 sample: one says nothing about a spread; "
                "give more rows."
            )
        target = self._target(y, None if weight is None else weight[used])
        ones = np.ones(len(y)) if target.weight is None else target.weight

        size = float(ones.sum())
        counted = int(max(len(y), size))  # what a weight of k counts k times; few weigh no less
        n_basis = self._number("n_basis", self._auto.n_basis(counted, len(raw)))
        # many levels are anchored; who wants no anchors gets the rarest of them as one
        many_levels = isinstance(self.anchored, str) or bool(self.anchored)
        columns, codes = fit_columns(raw, names, ones, self.basis, n_basis, many_levels)
        # a constant input only scales the others: the network does without it
        active = [j for j, c in enumerate(columns) if not _is_constant(c.basis, codes[j])] or [0]
        del raw
        seeds = check_random_state(self.random_state).randint(2**31, size=4)

        train = self.network == "tt"
        if train:
            active = self._in_order(active, columns, codes, names, target, counted, seeds)
        bases, codes = [columns[j].basis for j in active], [codes[j] for j in active]
        many = len(bases) >= self._auto.many_inputs and not train
        many |= not train and any(
            c.levels is not None and c.basis.n_functions_ >= _MANY_LEVELS for c in columns
        )
        anchored = many if isinstance(self.anchored, str) else bool(self.anchored)
        if anchored and any(basis.n_functions_ > 1 for basis in bases):
            inner = range(1, len(bases) - 1) if train else range(len(bases))
            bases = [
                b if isinstance(b, Levels) or k not in inner else Anchored(b).fit(c, ones)
                for k, (b, c) in enumerate(zip(bases, codes, strict=True))
            ]
            if target.n_outputs is None and not train:
                # the amplitudes of the components are the weights of one more input, which never
                # varies; with many outputs these have them
                bases = [Chebyshev(n_basis=1).fit(np.zeros(1)), *bases]
                codes = [np.zeros(len(y)), *codes]
        if train and target.n_outputs is None and all(isinstance(b, Levels) for b in bases):
            # all cores depart from the identity: one more has the scale of f
            bases = [Chebyshev(n_basis=1).fit(np.zeros(1)), *bases]
            codes = [np.zeros(len(y)), *codes]
        problem = fitting.Problem(bases, codes, target.y, target.weight, target.n_outputs)
        history: list[dict[str, Any]] = []
        result = fitting.fit(
            problem,
            self._settings(
                target.likelihood,
                counted,
                anchored,
                n_bonds=len(bases) - (target.n_outputs is None),
            ),
            seed=[int(s) for s in seeds],
            observe=self._observer(history, target.scale),
        )
        self.columns_, self._active, self._bases = columns, active, bases
        if train:
            self.mode_order_ = np.array(active)
        self.history_ = sorted(history, key=lambda entry: (entry["start"], entry["sweep"]))
        for name, value in target.attributes.items():
            setattr(self, name, value)
        self._set_results(result, seeds)
        self._finish()
        if np.ptp(target.y) > 0:
            rng = np.random.default_rng(seeds.tolist())
            some = rng.choice(len(y), min(_LOOK_AT, len(y)), replace=False, p=ones / size)
            self._warn_of_nothing([column[some] for column in codes])
        return self

    def _in_order(
        self,
        active: list[int],
        columns: list[Any],
        codes: list[Array],
        names: list[Any],
        target: Target,
        counted: int,
        seeds: Array,
    ) -> list[int]:
        """Return the inputs in the order of a train.

        By "auto" there are two to choose from, and that with the higher bound in a short fit wins.
        """
        if not isinstance(self.mode_order, str):
            places = checks.check_order("mode_order", self.mode_order, names)
            return [j for j in places if j in active]
        if self.mode_order == "given" or len(active) < 3:
            return active

        def bound(order: list[int]) -> float:
            bases, parts = [columns[j].basis for j in order], [codes[j] for j in order]
            problem = fitting.Problem(bases, parts, target.y, target.weight, target.n_outputs)
            n_bonds = len(bases) - (target.n_outputs is None)
            settings = self._settings(target.likelihood, counted, anchored=False, n_bonds=n_bonds)
            sweeps = min(_TRIAL_SWEEPS, settings.schedule.max_iter)
            short = replace(settings.schedule, max_iter=sweeps, settle_sweeps=0)
            settings = replace(settings, schedule=short, n_init=1, initial_rank=None)
            result = fitting.fit(problem, settings, [int(s) for s in seeds], lambda *_: None)
            if result.interrupted:
                raise KeyboardInterrupt("interrupted while the order of the inputs was chosen")
            return float(result.starts[0].last.bound)

        weight = np.ones(len(target.y)) if target.weight is None else target.weight
        bases, parts = [columns[j].basis for j in active], [codes[j] for j in active]
        rng = np.random.default_rng(seeds.tolist())
        other = [active[d] for d in chain_order(bases, parts, target.y, weight, rng)]
        if other in (active, active[::-1]):
            return active
        best = max(active, other, key=bound)
        if self.verbose:
            print("order of the inputs: " + ", ".join(str(names[j]) for j in best))
        return best

    def _warn_of_nothing(self, columns: list[Array]) -> None:
        """Say so if f, its level aside, varies less between these rows than it is uncertain."""
        means, variances = self._predict(
            columns, lambda model, rows: replace(model, least=0.0).contrasts(rows), 2
        )
        spread = np.var(means.mean(axis=0), axis=0)
        if np.all(spread < np.mean(variances, axis=(0, 1))):
            warnings.warn(
                "no input was found to have an effect: the prediction is nearly the same in all "
                f"rows. If there should be one, the rows may be too few for {len(self.columns_)} "
                "input(s), or the basis unable to follow it: leave out inputs, give rows, change "
                f"the basis{' or the network' if self.network == 'tt' else ''}.",
                UserWarning,
                stacklevel=3,
            )

    def _check_parameters(self) -> None:
        """Raise one clear sentence for a parameter that cannot be."""
        checks.check_integer("warm_sweeps", self.warm_sweeps, 0)
        if not isinstance(self.network, str) or self.network not in NETWORKS:
            raise ValueError(
                f"network must be one of {list(NETWORKS)}, got {self.network!r}; use 'cp'."
            )
        if isinstance(self.mode_order, str) and self.mode_order not in ("auto", "given"):
            checks.check_order("mode_order", self.mode_order, [])
        for name in ("n_basis", "max_rank", "initial_rank", "n_init", "max_iter"):
            value = getattr(self, name)
            if name == "max_rank" and isinstance(value, list | tuple | np.ndarray):
                continue  # one for each bond, of which there are so many when columns are known
            if isinstance(value, str) and value != "auto":
                raise ValueError(
                    f"{name} must be an integer >= 1 or 'auto', got {value!r}; use 'auto'."
                )
            if not isinstance(value, str):
                checks.check_integer(name, value, 1)
        if not isinstance(self.verbose, bool):
            checks.check_integer("verbose", self.verbose, 0)
        if not isinstance(self.prune, bool | np.bool_):
            raise ValueError(f"prune must be True or False, got {self.prune!r}; leave it at True.")
        auto = isinstance(self.anchored, str) and self.anchored == "auto"
        if not (auto or isinstance(self.anchored, bool | np.bool_)):
            raise ValueError(
                f"anchored must be True, False or 'auto', got {self.anchored!r}; use 'auto'."
            )
        if self.callback is not None and not callable(self.callback):
            raise ValueError(
                f"callback must be a function of one argument or None, got {self.callback!r}; "
                "see history_ for what it receives."
            )
        for name in ("tol", "smoothness", "memory_limit"):
            checks.check_number(name, getattr(self, name))
        if self.smoothness > _MAX_SMOOTHNESS:
            raise ValueError(
                f"smoothness must be at most {_MAX_SMOOTHNESS:g}, got {self.smoothness!r}: no "
                "function but the constant is left beyond; leave it out for the default."
            )

    def _number(self, name: str, auto: int) -> int:
        """Return a parameter, or what it is if it is "auto"."""
        value = getattr(self, name)
        return auto if isinstance(value, str) else int(value)

    def _settings(
        self, likelihood: Likelihood, n: int, anchored: bool, n_bonds: int = 0
    ) -> fitting.Settings:
        """Return the parameters as the fit wants them."""
        basis = None
        if not (isinstance(self.basis_prior, str) and self.basis_prior == "off"):
            basis = checks.check_gamma("basis_prior", self.basis_prior, Gamma(1.0, 1.0))
        priors = Priors(
            checks.check_gamma("noise_prior", self.noise_prior, Gamma(1e-6, 1e-6)),
            checks.check_gamma("rank_prior", self.rank_prior, Gamma(1e-5, 1e-6)),
            basis,
        )
        sweeps = self._auto.sweeps if n <= _MANY_ROWS else self._auto.sweeps_of_many
        schedule = Schedule(
            warm_sweeps=int(self.warm_sweeps),
            max_iter=self._number("max_iter", sweeps),
            tol=float(self.tol),
            drop_components=bool(self.prune),
            drop_functions=bool(self.prune),
        )
        rank: Any = _ANCHORED_RANK if n <= _MANY_ROWS else _ANCHORED_RANK_OF_MANY
        train = self.network == "tt"
        rank = _TRAIN_RANK if train else rank if anchored else self._auto.rank
        if isinstance(self.max_rank, list | tuple | np.ndarray):
            rank = checks.check_ranks("max_rank", self.max_rank, n_bonds if train else 0)
        else:
            rank = self._number("max_rank", rank)
        initial_rank: Any = rank
        if not isinstance(self.initial_rank, str):
            initial_rank = int(self.initial_rank)
            if initial_rank > np.max(rank):
                raise ValueError(
                    f"initial_rank must be at most max_rank, which is {rank} here, got "
                    f"{initial_rank}; raise max_rank, or leave initial_rank out to begin there."
                )
            if train:
                initial_rank = np.minimum(initial_rank, rank).tolist()
        starts = int(np.clip(self._auto.rows // n, self._auto.least_starts, _MOST_STARTS))
        return fitting.Settings(
            priors=priors,
            likelihood=likelihood,
            schedule=schedule,
            smoothness=float(self.smoothness),
            max_rank=rank,
            initial_rank=initial_rank,
            network=TT() if train else CP(own=anchored),
            warm_rank=self._auto.warm_rank if n <= _MANY_ROWS and not train else 0,
            n_init=self._number("n_init", starts),
            fewer_starts=isinstance(self.n_init, str),
            memory_limit=float(self.memory_limit),
            n_jobs=self.n_jobs,
        )

    def _observer(
        self, history: list[dict[str, Any]], scale: float
    ) -> Callable[[int, Any], bool | None]:
        """Return what to do after each sweep: keep the history, print, ask the callback."""

        def observe(start: int, progress: Any) -> bool | None:
            entry = {
                "start": start,
                "sweep": progress.sweep,
                "phase": progress.phase,
                "bound": progress.bound,
                "terms": progress.terms,
                "rank": progress.rank,
                "noise_std": progress.noise_std * scale,
                "seconds": progress.seconds,
                "jitter": progress.jitter,
                "trial": progress.trial,
                "stage": progress.stage,
            }
            if progress.sweep == 1:  # a start that is run anew: its helper had failed
                history[:] = [old for old in history if old["start"] != start]
            history.append(entry)
            if self.verbose and (self.verbose > 1 or progress.sweep % 10 == 0):
                noise = entry["noise_std"]
                noise = "" if np.isnan(noise) else f"noise {noise:9.3g}  "
                bound = f"{progress.bound:.3f}" if progress.phase == "exact" else "-"
                print(
                    f"start {start:2d}  sweep {progress.sweep:4d}  {progress.phase:5s}  "
                    f"bound {bound:>14s}  rank {progress.rank!s:>3s}  "
                    f"{noise}{progress.seconds:7.1f} s"
                )
            return None if self.callback is None else self.callback(dict(entry))

        return observe

    def _set_results(self, result: fitting.Result, seeds: Array) -> None:
        best = result.starts[result.best]
        stage = best.last.stage  # where the rank has grown, the bound counts from there
        exact = [p for p in best.sweeps if p.phase == "exact" and p.stage == stage]
        states = tuple(s.state for s in result.starts)
        self.ranks_ = np.array([s.last.rank for s in result.starts])
        self.rank_ = best.last.rank
        self.n_basis_ = np.ones(len(self.columns_), dtype=int)
        inputs = slice(self._first_input, len(self._bases))  # without amplitudes and outputs
        self.n_basis_[self._active] = [len(mode.present) for mode in best.state.modes[inputs]]
        self.lower_bounds_ = np.array([p.bound for p in exact])
        self.lower_bound_ = float(self.lower_bounds_[-1])
        self.n_iter_ = len(best.sweeps)
        self.likelihood_ = best.state.likelihood
        self.converged_ = result.converged
        self.stop_reason_ = result.stop_reason
        shares = fitting.relevance(
            states, result.averages, _DRAWS, np.random.default_rng(seeds.tolist())
        )[:, inputs]
        shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        self.feature_relevance_, self.feature_relevance_std_ = np.zeros((2, len(self.columns_)))
        self.feature_relevance_[self._active] = shares.mean(axis=0)
        self.feature_relevance_std_[self._active] = shares.std(axis=0)
        self.posterior_ = states
        if result.interrupted:
            warnings.warn(self.stop_reason_, ConvergenceWarning, stacklevel=3)

    def _columns_of(self, X: Any) -> list[Array]:
        """Return the coordinates of new rows in the network's inputs."""
        check_is_fitted(self)
        raw, _ = split_columns(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        columns = [self.columns_[j].encode(raw[j]) for j in self._active]
        return [np.zeros(len(raw[0]))] * self._first_input + columns

    @property
    def _first_input(self) -> int:
        """Which of the network's inputs is the first of the table's: 1 behind the amplitudes."""
        return len(self._bases) - len(self._active)

    def _row_blocks(
        self, columns: list[Array], most: int = 4096
    ) -> Iterator[tuple[slice, list[Any]]]:
        """Yield blocks of up to ``most`` rows with phi and psi of the network's inputs."""
        bases = self._bases
        width = sum(sum(fitting.size_of(basis)) for basis in bases)
        if self.posterior_[0].network.scratch is not None:
            # of a core and all around it
            layouts = [factor.layout for state in self.posterior_ for factor in state.factors]
            width += 2 * max(len(layout.multiplicity) for layout in layouts)
        size = min(most, max(_PREDICT_NUMBERS // width, 64))
        for start in range(0, len(columns[0]), size):
            rows = slice(start, start + size)
            yield (
                rows,
                [basis.features(codes[rows]) for basis, codes in zip(bases, columns, strict=True)],
            )

    def _means(self, X: Any) -> Array:
        """Return E[f] of every start and row: (S, n)."""
        columns = self._columns_of(X)
        (means,) = self._predict(columns, lambda model, rows: (model.mean(rows),), 1)
        return means

    def _moments(self, X: Any) -> Array:
        """Return E[f] and Var[f] of every start and row: (2, S, n)."""
        return self._predict(self._columns_of(X), Predictor.moments, 2)

    def _predict(
        self, columns: list[Array], function: Callable[..., tuple[Array, ...]], count: int
    ) -> Array:
        """Return what ``function(predictor, features)`` says of every start and row.

        An array of shape (count, S, n), or (count, S, n, K) with K outputs.
        """
        predictors = [Predictor.of(state) for state in self.posterior_]
        output = self.posterior_[0].output
        outputs = () if output is None else (len(self.posterior_[0].modes[output].keep),)
        out = np.empty((count, len(predictors), len(columns[0]), *outputs))
        for rows, features in self._row_blocks(columns):
            for k, predictor in enumerate(predictors):
                out[:, k, rows] = function(predictor, features.__getitem__)
        return out


def _is_constant(basis: Any, codes: Array) -> bool:
    """Tell whether the only function of an input takes one value on the training rows."""
    return basis.n_functions_ == 1 and float(np.ptp(basis.phi(codes))) < 1e-12
