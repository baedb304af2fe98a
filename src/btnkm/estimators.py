"""BTNRegressor: validate, choose, run, set attributes. No mathematics here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from . import checks, fitting
from .columns import fit_columns
from .core import posterior
from .core.gamma import Gamma
from .core.likelihoods import Gaussian
from .core.schedule import Schedule
from .core.state import Priors, State
from .predictive import PredictiveDistribution, noise_variance
from .tables import split_columns

Array = np.ndarray
_DRAWS = 16  # posterior draws of each start behind feature_relevance_
_PREDICT_NUMBERS = 2**22  # features held at a time in prediction
_WARM_NOISE = 0.01  # noise variance held in the warm phase, in units of var(y)
_NOTHING = 0.02  # share of the variance of y under which nothing is said to be found
_MAX_SMOOTHNESS = 20.0  # (1 + m)^(-2 smoothness) is still far from underflow for m in the hundreds


class BTNRegressor(RegressorMixin, BaseEstimator):
    """Bayesian kernel machine whose weights are a low-rank (CP) tensor.

    f(x) = sum_r prod_d w_r^(d) . phi^(d)(x_d), with priors that find the number of components R and
    the functions each input needs, and a full variational posterior. Columns may be numeric,
    boolean, dates, text or categories, with gaps; they are warped, scaled and encoded inside, and
    so is y. Beyond the training range an input stays at the nearer end of it.

    Parameters
    ----------
    basis : "auto", str, Basis or dict, default="auto"
        Functions of each input. "auto" takes Chebyshev polynomials for numeric columns, with an
        indicator for each value that stands out (``bases.Spiked``), and one indicator per level for
        text and categories (the rarest may share one). A name
        ("chebyshev", "polynomial", "fourier", "bspline", "categorical") or a Basis serves every
        column; a dict from column name or position to one of these overrides "auto" where it has
        an entry.
    n_basis : int, default=20
        Most smooth functions per input, for bases given by name. A column never gets more than it
        has distinct values.
    max_rank : int, default=20
        Components at the start; those that add nothing are dropped.
    n_init : int or "auto", default="auto"
        Random starts, whose posteriors are averaged. "auto" takes 8 up to 10,000 rows and fewer,
        in inverse proportion to the rows but at least 2, above; fewer still where ``memory_limit``
        has no room for their posteriors.
    max_iter : int, default=80
        Most sweeps of the exact phase.
    tol : float, default=1e-4
        A start has converged when the last four sweeps, looked at after every fourth, raised its
        bound by less than this per sweep and row (or unit of sample weight) on average; 0 always
        uses ``max_iter`` sweeps. Most starts use all of them; ``stop_reason_`` tells.
    warm_sweeps : int, default=10
        Sweeps of the warm phase, without covariances, that come first. With fewer than four rows
        (or units of weight) per basis function a thaw of 12 sweeps follows, in which the
        covariances come in little by little. 0 leaves out both.
    noise_prior : Gamma or None, default=None
        Prior of the noise precision in units of 1 / var(y); None is Gamma(1e-6, 1e-6).
    rank_prior : Gamma or None, default=None
        Prior of each component's precision; None is Gamma(1e-5, 1e-6).
    basis_prior : Gamma, "off" or None, default=None
        Prior of each function's precision; None is Gamma(1, 1), "off" holds them all at 1.
    smoothness : float, default=1.25
        The rate of ``basis_prior`` falls like (1 + m)^(-2 smoothness) with the function's degree m.
        With the prior off it shapes the random starts only.
    prune : bool, default=True
        Drop components and functions that are negligible and whose loss raises the bound.
    memory_limit : float, default=1.4
        Most memory, in GiB, that the fit may use beyond its input. Less memory means more
        recomputation and the same result, if there is room for as many starts.
    n_jobs : int or None, default=None
        Cores to use, None as many as BLAS would. Starts run side by side: in threads where rows are
        many; where they are few, in processes that are started when the work left is worth it,
        serve later fits too, and end after a minute without work.
    random_state : int, RandomState or None, default=None
    callback : callable or None, default=None
        Called after every sweep, maybe from another thread and maybe some sweeps late, with its
        entry of ``history_``; the fit stops if it returns True, which it may from the exact phase
        of a start on. A start whose helper process was killed is run, and seen, again.
    verbose : int, default=0
        1 prints a line per ten sweeps, 2 a line per sweep.

    Attributes
    ----------
    rank_ : int
        Components of the start with the highest bound; ``ranks_`` has those of every start.
    n_basis_ : ndarray of shape (n_features_in_,)
        Functions kept for each input, in that start.
    feature_relevance_, feature_relevance_std_ : ndarray of shape (n_features_in_,)
        Each input's share of the variance of f (total effect, shares sum to 1), posterior mean and
        standard deviation. Inputs are taken as independent of each other.
    lower_bound_, lower_bounds_ : float, ndarray
        Bound on the log evidence of the standardised targets, in the start where it is highest: at
        the end, and after each sweep of the exact phase. It never falls, and stands still for up to
        two sweeps while a leap is on trial.
    history_ : list of dict
        One entry per sweep and start: start, sweep, phase ("warm", "thaw" where rows are few, or
        "exact"), bound (NaN before the exact phase), terms, rank, noise_std, seconds, jitter and
        trial: whether a leap is on trial, when all else is as it was before the leap.
    noise_std_ : float
        Standard deviation of the noise, in units of y.
    n_iter_ : int
        Sweeps of the start with the highest bound, those before the exact phase included.
    converged_ : bool
        Whether every start converged.
    stop_reason_ : str
        Why the fit ended, in a sentence.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm import BTNRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(200, 2))
    >>> y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(200)
    >>> model = BTNRegressor(n_init=1, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    """

    def __init__(
        self,
        basis: Any = "auto",
        *,
        n_basis: int = 20,
        max_rank: int = 20,
        n_init: int | str = "auto",
        max_iter: int = 80,
        tol: float = 1e-4,
        warm_sweeps: int = 10,
        noise_prior: Gamma | None = None,
        rank_prior: Gamma | None = None,
        basis_prior: Gamma | str | None = None,
        smoothness: float = 1.25,
        prune: bool = True,
        memory_limit: float = 1.4,
        n_jobs: int | None = None,
        random_state: Any = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        self.basis = basis
        self.n_basis = n_basis
        self.max_rank = max_rank
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.warm_sweeps = warm_sweeps
        self.noise_prior = noise_prior
        self.rank_prior = rank_prior
        self.basis_prior = basis_prior
        self.smoothness = smoothness
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the posterior to a table X (n, inputs) and numbers y (n,).

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs)
        y : array of shape (n,)
        sample_weight : array of shape (n,) or None
            A weight of k counts a row k times; rows of weight 0 are left out.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # a fit that fails leaves no half of an older one
        settings = self._settings()
        raw, names = split_columns(X)
        validate_data(self, X, skip_check_array=True)
        y = checks.check_target(type(self).__name__, y)
        check_consistent_length(raw[0], y)
        weight = checks.check_weight(sample_weight, len(y))
        used = slice(None) if weight is None else weight > 0
        raw, y = [column[used] for column in raw], y[used]
        if len(y) < 2:
            raise ValueError(
                "X must have at least 2 rows, got 1 sample: one says nothing about a spread; "
                "give more rows."
            )
        weight = None if weight is None else weight[used]
        ones = np.ones(len(y)) if weight is None else weight

        columns, codes = fit_columns(raw, names, ones, self.basis, self.n_basis)
        mean, scale = _mean_and_scale(y, ones)
        # a constant input only scales the others: the network does without it
        active = [j for j, c in enumerate(columns) if not _is_constant(c.basis, codes[j])] or [0]
        del raw
        seeds = check_random_state(self.random_state).randint(2**31, size=4)

        problem = fitting.Problem(
            bases=[columns[j].basis for j in active],
            codes=[codes[j] for j in active],
            y=(y - mean) / scale,
            weight=weight,
        )
        history: list[dict[str, Any]] = []
        result = fitting.fit(
            problem,
            settings,
            seed=[int(s) for s in seeds],
            observe=self._observer(history, scale),
        )
        self.columns_, self._active = columns, active
        self._y_mean, self._y_scale = mean, scale
        self.history_ = sorted(history, key=lambda entry: (entry["start"], entry["sweep"]))
        self._set_results(result, seeds)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of y at each row and, if asked, its standard deviation, noise included.

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs)
        return_std : bool, default=False

        Returns
        -------
        mean : ndarray of shape (n,)
        std : ndarray of shape (n,), only if ``return_std``
        """
        if return_std:
            distribution = self.predict_dist(X)
            return distribution.mean, distribution.std
        columns = self._columns_of(X)
        terms = [posterior.predict_terms(state) for state in self.posterior_]
        mean = np.empty(len(columns[0]))
        for rows, features in self._row_blocks(columns):
            means = [posterior.predict_mean(term, features.__getitem__) for term in terms]
            mean[rows] = np.mean(means, axis=0)
        return self._y_mean + self._y_scale * mean

    def predict_dist(self, X: Any) -> PredictiveDistribution:
        """Return the predictive distribution of y at each row."""
        columns = self._columns_of(X)
        n = len(columns[0])
        means, variances = np.empty((2, len(self.posterior_), n))
        terms = [posterior.predict_terms(state) for state in self.posterior_]
        for rows, features in self._row_blocks(columns):
            for k, term in enumerate(terms):
                means[k, rows], variances[k, rows] = posterior.predict_moments(
                    term, features.__getitem__
                )
        gammas = [(tau.shape, tau.rate) for tau in map(_precision, self.posterior_)]
        noise = np.array([noise_variance(a, b) for a, b in gammas])
        return PredictiveDistribution(
            self._y_mean + self._y_scale * means,
            self._y_scale**2 * variances,
            self._y_scale**2 * noise,
            np.array([2.0 * a for a, _ in gammas]),
        )

    def predict_interval(self, X: Any, level: float = 0.95) -> Array:
        """Return the central interval that holds y with probability ``level``: (n, 2)."""
        return self.predict_dist(X).interval(level)

    def predict_quantiles(self, X: Any, q: Any) -> Array:
        """Return quantiles of y: (n,) for one level, (n, k) for k levels."""
        return self.predict_dist(X).quantile(q)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Return draws of y: whole functions from the posterior, plus noise.

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs)
        n_samples : int, default=1
        random_state : int, RandomState or None, default=0

        Returns
        -------
        ndarray of shape (n, n_samples)
        """
        checks.check_integer("n_samples", n_samples, 1)
        columns = self._columns_of(X)
        bases = [self.columns_[j].basis for j in self._active]
        gaps = [
            d
            for d, (basis, codes) in enumerate(zip(bases, columns, strict=True))
            if not basis.saw_missing_ and np.any(np.isnan(codes))
        ]
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        n = len(columns[0])
        out = np.empty((n, n_samples))
        chosen = rng.integers(len(self.posterior_), size=n_samples)
        for k, state in enumerate(self.posterior_):
            which = np.flatnonzero(chosen == k)
            draws = posterior.draw_weights(state, len(which), rng)
            tau = _precision(state)
            precision = rng.gamma(tau.shape, 1.0 / tau.rate, size=len(which))
            for rows, features in self._row_blocks(columns):
                for i, j in enumerate(which):
                    weights = [draw[i] for draw in draws]
                    for d in gaps:
                        features[d] = bases[d].features(bases[d].fill(columns[d][rows], rng))
                    f = posterior.evaluate(state, weights, features.__getitem__)
                    noise = rng.standard_normal(len(f)) / np.sqrt(precision[i])
                    out[rows, j] = self._y_mean + self._y_scale * (f + noise)
        return out

    def _settings(self) -> fitting.Settings:
        """Return the parameters, checked, as the fit wants them."""
        for name, low in [("n_basis", 1), ("max_rank", 1), ("max_iter", 1), ("warm_sweeps", 0)]:
            checks.check_integer(name, getattr(self, name), low)
        if isinstance(self.n_init, str) and self.n_init != "auto":
            raise ValueError(
                f"n_init must be an integer >= 1 or 'auto', got {self.n_init!r}; use 'auto'."
            )
        if not isinstance(self.n_init, str):
            checks.check_integer("n_init", self.n_init, 1)
        if not isinstance(self.verbose, bool):
            checks.check_integer("verbose", self.verbose, 0)
        if not isinstance(self.prune, bool | np.bool_):
            raise ValueError(f"prune must be True or False, got {self.prune!r}; leave it at True.")
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
        basis = None
        if not (isinstance(self.basis_prior, str) and self.basis_prior == "off"):
            basis = checks.check_gamma("basis_prior", self.basis_prior, Gamma(1.0, 1.0))
        priors = Priors(
            checks.check_gamma("noise_prior", self.noise_prior, Gamma(1e-6, 1e-6)),
            checks.check_gamma("rank_prior", self.rank_prior, Gamma(1e-5, 1e-6)),
            basis,
        )
        schedule = Schedule(
            warm_sweeps=int(self.warm_sweeps),
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            drop_components=bool(self.prune),
            drop_functions=bool(self.prune),
        )
        return fitting.Settings(
            priors=priors,
            likelihood=Gaussian(Gamma(1.0, _WARM_NOISE)),
            schedule=schedule,
            smoothness=float(self.smoothness),
            max_rank=int(self.max_rank),
            n_init=self.n_init if isinstance(self.n_init, str) else int(self.n_init),
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
            }
            if progress.sweep == 1:  # a start that is run anew: its helper had failed
                history[:] = [old for old in history if old["start"] != start]
            history.append(entry)
            if self.verbose and (self.verbose > 1 or progress.sweep % 10 == 0):
                bound = f"{progress.bound:.3f}" if progress.phase == "exact" else "-"
                print(
                    f"start {start:2d}  sweep {progress.sweep:4d}  {progress.phase:5s}  "
                    f"bound {bound:>14s}  rank {progress.rank:3d}  "
                    f"noise {entry['noise_std']:9.3g}  {progress.seconds:7.1f} s"
                )
            return None if self.callback is None else self.callback(dict(entry))

        return observe

    def _set_results(self, result: fitting.Result, seeds: Array) -> None:
        best = result.starts[result.best]
        exact = [p for p in best.sweeps if p.phase == "exact"]
        states = tuple(s.state for s in result.starts)
        self.ranks_ = np.array([s.sweeps[-1].rank for s in result.starts])
        self.rank_ = int(self.ranks_[result.best])
        self.n_basis_ = np.ones(len(self.columns_), dtype=int)
        self.n_basis_[self._active] = [len(m.keep) for m in best.state.modes]
        self.lower_bounds_ = np.array([p.bound for p in exact])
        self.lower_bound_ = float(self.lower_bounds_[-1])
        self.n_iter_ = len(best.sweeps)
        self.converged_ = result.converged
        self.stop_reason_ = result.stop_reason
        noise = [noise_variance(tau.shape, tau.rate) for tau in map(_precision, states)]
        self.noise_std_ = float(self._y_scale * np.sqrt(np.mean(noise)))
        shares = fitting.relevance(
            states, result.averages, _DRAWS, np.random.default_rng(seeds.tolist())
        )
        self.feature_relevance_, self.feature_relevance_std_ = np.zeros((2, len(self.columns_)))
        self.feature_relevance_[self._active] = shares.mean(axis=0)
        self.feature_relevance_std_[self._active] = shares.std(axis=0)
        self.posterior_ = states
        if result.interrupted:
            warnings.warn(self.stop_reason_, ConvergenceWarning, stacklevel=3)
        if self.noise_std_**2 > (1.0 - _NOTHING) * self._y_scale**2:
            warnings.warn(
                "no input was found to have an effect: the prediction is nearly the mean of y. If "
                f"there should be one, the rows may be too few for {len(self._active)} input(s), "
                "or the basis unable to follow it: leave out inputs, give rows, change the basis.",
                UserWarning,
                stacklevel=3,
            )

    def _columns_of(self, X: Any) -> list[Array]:
        """Return the coordinates of new rows in the network's inputs."""
        check_is_fitted(self)
        raw, _ = split_columns(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return [self.columns_[j].encode(raw[j]) for j in self._active]

    def _row_blocks(self, columns: list[Array]) -> Iterator[tuple[slice, list[Any]]]:
        """Yield blocks of rows with phi and psi of the network's inputs."""
        bases = [self.columns_[j].basis for j in self._active]
        width = sum(basis.n_functions_ + basis.n_products_ for basis in bases)
        size = int(np.clip(_PREDICT_NUMBERS // width, 64, 4096))
        for start in range(0, len(columns[0]), size):
            rows = slice(start, start + size)
            yield (
                rows,
                [basis.features(codes[rows]) for basis, codes in zip(bases, columns, strict=True)],
            )


def _precision(state: State) -> Gamma:
    """Return q(tau), the precision of the noise."""
    assert isinstance(state.likelihood, Gaussian)
    return state.likelihood.noise


def _mean_and_scale(y: Array, weight: Array) -> tuple[float, float]:
    """Return the weighted mean and standard deviation of y; the latter is 1 if y is constant."""
    if np.all(y == y[0]):
        return float(y[0]), 1.0
    mean = float(np.average(y, weights=weight))
    return mean, float(np.sqrt(np.average((y - mean) ** 2, weights=weight))) or 1.0


def _is_constant(basis: Any, codes: Array) -> bool:
    """Tell whether the only function of an input takes one value on the training rows."""
    return basis.n_functions_ == 1 and float(np.ptp(basis.phi(codes))) < 1e-12
