"""BTNRegressor: numeric targets, and predictive distributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from . import checks
from .core import posterior
from .core.arrays import here, like
from .core.densities import Averaged, Density, draw_mixed
from .core.likelihoods import (
    LIKELIHOODS,
    Gaussian,
    Likelihood,
    StudentT,
    Transformed,
    joined,
    of_noise,
)
from .core.recalibration import Recalibration
from .data.dask_input import anywhere, is_dask, lazily
from .data.exposure import Exposed, exposure_of, with_exposure
from .data.fills import COUNT
from .data.readers import with_targets
from .estimator import Estimator, answered
from .explain.fitted import COPIED_ROWS
from .hints import hint
from .parameters import Priors, Solver
from .plan import Defaults
from .predictive import PredictiveDistribution
from .recalibrated import RecalibratedDistribution
from .structures.task import Target, Task

Array = np.ndarray
_HINT_ROWS = 1000  # of the training rows, whose intervals may begin below 0
_JOINT_ROWS = 1000  # drawn together from a full tensor
_MOST_IMPOSSIBLE = 0.02  # of the rows of a recalibration: 95% intervals may leave them out


class BTNRegressor(RegressorMixin, Estimator):
    """Bayesian kernel machine: a sum of main effects plus a low-rank tensor of all inputs.

    f(x) = sum_d a_d(x_d) + sum_r prod_d w_r^(d) . phi^(d)(x_d), or either part alone. Priors
    determine the main effects, the number of components R and the functions of each input. The
    posterior is a variational approximation with full covariances. Columns may be numeric, boolean,
    dates, text or categories, with missing values. Inputs and y are scaled and encoded internally.
    Beyond the training range straight parts of main effects run on, and intervals widen (see
    ``extrapolate``).

    Parameters
    ----------
    basis : "auto", str, Basis or dict, default="auto"
        Functions of each input in the tensor. "auto" uses Chebyshev polynomials for numeric
        columns, plus an indicator for each frequent value (``bases.Spiked``), and an indicator for
        each category of text and categorical columns (the rarest may share one). If structures are
        compared, linear splines are tried as well. A name ("chebyshev", "polynomial", "fourier",
        "bspline", "categorical") or a Basis is used for every column. A dict maps column names or
        positions to one of these; other columns keep "auto".
    likelihood : "auto", str or Likelihood, default="auto"
        The distribution of y given f: "gaussian", "student_t" (robust to outliers, with learned
        degrees of freedom), "log_normal" (for y > 0, such as prices: log y is f plus noise),
        "logit_normal" (for 0 < y < 1, such as proportions: the logit of y is f plus noise), "gamma"
        (for y > 0, where f is the logarithm of the mean up to a constant), "negative_binomial",
        "zero_inflated_negative_binomial" or "poisson" (for counts, where f is the logarithm of the
        rate up to a constant). "auto" is "gaussian". If structures are compared and held-out rows
        show heavy tails, the best candidates are also fitted with "student_t". An object such as
        ``likelihoods.StudentT(dof=5.0)`` fixes the parameters that it is given.
    noise : "auto", "constant" or "varying", default="auto"
        Whether the noise level may vary with the inputs, for Gaussian and Student-t noise, also
        that of the logarithm or the logit of y. If it does, the logarithm of its precision is a sum
        of curves of the inputs, which are learned together with f, and inputs that do not matter
        for it drop out. "auto" is "constant", unless structures are compared and the errors of
        held-out rows vary with the inputs: then the candidates are also fitted with noise that
        varies.
    structure : "auto", "tensor", "sums", "sums+tensor" or "full", default="auto"
        The parts of f. "sums" is a sum of main effects. The main effect of a numeric input has a
        straight line, a curve, steps and an indicator for each frequent value; that of a
        categorical input has an indicator for each category. Both have an indicator for missing
        values. "tensor" is the low-rank tensor of all inputs. "sums+tensor" is the sum of both.
        "full" is a sum plus a tensor of unlimited rank: a kernel machine with an exact posterior,
        whose cost grows with the cube of the number of rows. "auto" fits several structures to a
        part of the rows, and weights them by how well they predict the other rows (see
        ``structures_``). With more than 12 inputs, only inputs that seem to interact enter the
        tensor of "sums+tensor". A "tensor" that is compared with other structures has all inputs
        up to 60. If there are more, it has those that seem to interact and those with the largest
        main effects. A "tensor" that is given has all inputs.
    network : "cp", "tt" or TensorTrain, default="cp"
        The form of the tensor. "cp" is a sum of products of functions of one input each. "tt" is a
        tensor train: a product of matrices, one for each input. It suits processes of several
        steps, where each input acts on the result of the one before. A tensor train contains all
        inputs. ``TensorTrain`` has options for the order of the inputs and for the cores.
    n_basis : int or "auto", default="auto"
        Maximal number of smooth functions of an input in the tensor, for bases given by name. A
        column never has more functions than distinct values. "auto" divides 160 functions (or one
        for every 16 rows, if that is more) among the inputs. Each input has at least 8 functions
        and at most 20 (or one for every 250 rows, if that is more, up to 40).
    max_rank : int, list of int or "auto", default="auto"
        Maximal number of components of the tensor, or the rank of every bond of a tensor train.
        Components that are not needed are removed. "auto" is 80 up to 10,000 rows and 40 above;
        with anchored components (see ``Solver``) it is 40 and 20. For full cores of a tensor train
        it is 6 at every bond. A list contains one number for each bond between inputs that vary,
        and one more for three or more classes. With few rows, the cost of a sweep of full cores
        grows with the sixth power of the rank.
    priors : Priors or None, default=None
        Prior distributions of the precisions (inverse variances) of noise, components and basis
        functions. None is ``Priors()``.
    n_init : int or "auto", default="auto"
        Number of restarts of the tensor from random factors, whose predictions are averaged. "auto"
        is 40,000 divided by the number of rows, at least 2 and at most 8. It is less if
        ``memory_limit`` has no room for the posteriors. It is one for each structure (at least two)
        if the fits that compare structures use all of their components. Restarts are divided among
        structures with a tensor in proportion to their weights. A sum alone is not random and is
        fitted once.
    max_iter : int or "auto", default="auto"
        Maximal number of sweeps (updates of all inputs) of the exact phase. "auto" is 80, and 40
        above 10,000 rows. Up to 8,000 rows, restarts may continue from the fits that compare
        structures, for at most ``max_iter`` sweeps ("auto": 20). With more than 262,144 rows, the
        model is first fitted to a sample of this size and then to all rows, for at most
        ``max_iter`` sweeps ("auto": 20).
    tol : float, default=1e-4
        A restart has converged when the last four sweeps raised its ELBO by less than this per
        sweep and row (or unit of sample weight) on average. 0 always uses ``max_iter`` sweeps.
    solver : Solver or None, default=None
        Details of the algorithm: initial rank, warm phase, pruning, anchored components, and the
        number of rows up to which the full tensor is used. None is ``Solver()``.
    extrapolate : "linear" or "flat", default="linear"
        Predictions beyond the range of the training rows. "linear" lets the straight parts of main
        effects run on; curves, steps and the tensor are held at the nearer end of the range. "flat"
        holds every input at the nearer end. In both, intervals widen with the distance: the
        variance of f that is added is what f has moved over such a distance inside the range.
        Predictions warn of rows that are far beyond the range, once for each column.
    calibration : None or "cv", default=None
        "cv" recalibrates the predictive distribution by 5-fold cross-validation, in which every
        fold is predicted by a clone that is fitted to the others: the fit takes about five times as
        long. Coverage is then right on average as far as the clones err like the model, without a
        guarantee. ``calibrate(X, y)`` has one, but needs held-out rows.
    memory_limit : float or "auto", default="auto"
        Maximal memory of the fit in GiB, in addition to its input. "auto" is 1.4, or nine tenths of
        the free memory of the GPU if the rows are on one. On a cluster it is the limit of each
        process. With less memory the fit recomputes more. The result is the same as long as there
        is room for the posteriors of all restarts.
    n_jobs : int or None, default=None
        Number of cores to use; None uses as many as BLAS would. Restarts run in parallel: in
        threads if there are many rows, otherwise in processes. Processes are started only if the
        remaining work takes long enough. Later fits reuse them. They end after a minute without
        work.
    random_state : int, RandomState or None, default=None
        Seed of the restarts and of the choice of held-out rows. An int makes fits reproducible.
    callback : callable or None, default=None
        Called after every sweep with its entry of ``history_``, possibly from another thread and a
        few sweeps late. If it returns True, the fit stops as soon as a restart is in its exact
        phase. It is not called for the fits that compare structures. If a process was killed, its
        restart runs again, and its sweeps are reported again.
    verbose : int, default=0
        1 prints the structures that are compared and a line for every ten sweeps. 2 prints a line
        for every sweep.
    warm_start : bool, default=False
        Whether ``fit`` continues from the existing posterior, if there is one. It keeps the
        columns, functions, components and scales, and is fitted to the given rows. "auto" for
        ``max_iter`` is then 20.

    Attributes
    ----------
    structures_ : list of dict
        The structures that were compared, or the given one, sorted by decreasing weight. Each has
        ``name`` ("sums", "tensor", "sums+tensor" or "full"); ``weight``, its weight in the
        prediction; ``log_density``, the mean log density of the held-out rows that it predicted
        (NaN if there were none); ``restarts``, the positions of its posteriors in ``weights_``;
        ``seconds``, the time of its fits; ``sums_first``, whether the sum was fitted before the
        tensor; ``splines``, whether numbers in the tensor have linear splines; ``heavy``, whether
        ``likelihood="auto"`` chose "student_t"; and ``noise_factor`` and ``noise_dof``, the factor
        of the noise variance and the limit of the degrees of freedom, which were chosen such that
        intervals are correct for held-out rows. With a tensor train there are also ``cores`` and
        ``mode_order``.
    weights_ : ndarray of shape (restarts,)
        The weight of every restart in the prediction; they sum to 1. The weights of the restarts
        of a structure sum to its weight. Restarts that fit the training rows far worse than the
        best one are left out; ``fit`` warns if these are the majority.
    best_restart_ : int
        The position in ``weights_`` of the restart with the highest ELBO, among those of the
        structure with the highest weight. Attributes of a single restart, such as ``rank_``, belong
        to this one.
    rank_ : int or tuple of int
        Number of components of that restart, or the rank of each bond of a tensor train; 0 without
        a tensor.
        Diagonal cores have the same rank at every bond.
    ranks_ : ndarray
        The ranks of all restarts.
    cores_ : list of str
        Only with a tensor train: whether the cores of each restart are "full" or "diagonal".
    mode_order_ : ndarray
        Only with a tensor train: the positions of the columns in the order of that restart;
        columns that never vary are last.
    n_basis_ : ndarray of shape (inputs,)
        Functions kept for each input in the tensor of that restart, 1 for an input that is not in
        it.
    feature_importances_, feature_importances_std_ : ndarray of shape (inputs,)
        The importance of each input: its total Sobol index for independent inputs. They sum to 1,
        or are all 0 if the model has found no effect: if f varies less between the training rows
        than it is uncertain. The values are posterior means and standard deviations.
    lower_bound_, lower_bounds_ : float, ndarray
        ELBO (lower bound on the log evidence) of that restart, for the standardised targets: at the
        end, and after each sweep of the exact phase. It never falls, and stays constant for up to
        two sweeps while an over-relaxation step is tested.
    history_ : list of dict
        One entry per sweep and restart: ``restart``, ``sweep``, ``rows`` (how many were used),
        ``phase`` ("warm", "annealing" (see ``Solver``), "exact" or "newton"), ``elbo`` (NaN
        before the exact phase) and its ``terms``, ``rank``, ``noise_std``, ``seconds``,
        ``jitter``, ``trial`` (whether an over-relaxation step is being tested; the other values
        are then those before the step) and ``stage`` (how often the rank has grown). Restarts are
        numbered before any are left out.
    noise_std_ : float
        Standard deviation of the noise, in units of y (of log y for "log_normal", of the logit for
        "logit_normal"); NaN for counts and "gamma".
    likelihood_ : Likelihood
        The likelihood of that restart, with its learned parameters (``dof``, ``size``, ``shape``).
        That of log y or the logit of y is its ``noise``.
    calibration_ : Recalibration or None
        How held-out rows have recalibrated the predictive distribution (see ``calibrate``):
        ``kind`` is "split" or "cv", ``rows`` their number, ``highest_level`` the highest level of
        intervals that they can calibrate, and ``factor`` what multiplies standard deviations. None
        without recalibration.
    target_name_ : str or None
        The name of the column or series of the targets.
    fitted_ : explain.FittedModel
        The view of the fitted model that predictions, explanations, reports and files use. It is
        computed once per fit.
    n_samples_seen_ : int
        Rows of the fit, or of all batches of a stream.
    n_iter_ : int
        Sweeps of that restart, including those before the exact phase.
    converged_ : bool
        Whether every restart converged.
    stop_reason_ : str
        Why the fit ended, in a sentence.
    n_features_in_, feature_names_in_ : int, ndarray
        As in scikit-learn.

    See Also
    --------
    BTNClassifier : The same model for classes.
    TensorTrain, Priors, Solver : Options of the network, the priors and the algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm import BTNRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(100, 2))
    >>> y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(100)
    >>> model = BTNRegressor(n_init=1, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    """

    _lasting = (*Estimator._lasting, "noise")
    _defaults = Defaults(
        many_inputs=10,
        rank=20,
        rows=40_000,
        least_restarts=2,
        sweeps=80,
        sweeps_of_many=40,
        warm_rank=30,
    )

    _exposed = False  # whether the fit had exposures
    _exposure_name: str | None = None  # the column that they came from

    def __init__(
        self,
        basis: Any = "auto",
        *,
        likelihood: Any = "auto",
        noise: str = "auto",
        structure: str = "auto",
        network: Any = "cp",
        n_basis: int | str = "auto",
        max_rank: Any = "auto",
        priors: Priors | None = None,
        n_init: int | str = "auto",
        max_iter: int | str = "auto",
        tol: float = 1e-4,
        solver: Solver | None = None,
        extrapolate: str = "linear",
        calibration: str | None = None,
        memory_limit: float | str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
        warm_start: bool = False,
    ) -> None:
        super().__init__(
            basis=basis,
            structure=structure,
            network=network,
            n_basis=n_basis,
            max_rank=max_rank,
            priors=priors,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            solver=solver,
            extrapolate=extrapolate,
            calibration=calibration,
            memory_limit=memory_limit,
            n_jobs=n_jobs,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
            warm_start=warm_start,
        )
        self.likelihood = likelihood
        self.noise = noise

    @staticmethod
    def _check_y(name: str, y: Any) -> Array:
        if isinstance(y, Exposed):
            return np.column_stack([checks.check_target(name, y[:, 0]), y[:, 1]]).astype(float)
        return checks.check_target(name, y)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
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
        exposure : array of shape (n,), the name of a column of a frame, or None
            For counts: how long, or how much, each row was observed, such as years of insurance.
            The mean of y is the exposure times the rate that the model learns. y is the count
            itself. Needs a table in memory. None is 1 in every row. With ``warm_start``, either
            all fits have exposures, or none.
        checkpoint : path or None
            Checkpoint path. If the file exists, the fit resumes, and the result is the same as
            without the interruption. A checkpoint of other data or parameters raises an error. Uses
            pickle: load only trusted files.
        checkpoint_every : int, default=10
            Number of sweeps, of all restarts together, between two writes of the checkpoint.
        """
        if self.warm_start:
            self._check_goes_on(exposure)
        before = getattr(self, "posterior_", None)
        name = exposure if isinstance(exposure, str) else None
        if exposure is not None:
            X, y, sample_weight = with_exposure(X, y, sample_weight, exposure)
        super().fit(X, y, sample_weight, checkpoint=checkpoint, checkpoint_every=checkpoint_every)
        if self.posterior_ is not before:  # a fit that was stopped leaves the model as it was
            self._name_exposure(name)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        forget: float = 1.0,
    ) -> Self:
        """Update the model with a batch of rows.

        As long as a stream has (or, with ``forget``, remembers) up to 8,192 rows, the model and its
        file contain them. The model is fitted again to all of them each time their number has
        doubled. In longer streams, a batch updates the posterior, and only sums over its rows are
        kept. New categories are added, and components if more are needed. Scales, functions and
        the choice of inputs do not change. A recalibration is removed, with a warning.

        If a model from ``fit`` has a full tensor, it contains its rows as well. The first batch
        then starts a stream with a fit to these rows and its own. With ``structure="auto"`` the
        stream has the structure "tensor".

        Parameters
        ----------
        X, y, sample_weight, exposure
            As for ``fit``. Either all batches of a stream have an exposure, or none.
        forget : float, default=1.0
            Factor of the weights of all earlier rows. Below 1 the model follows drift: with
            batches of b rows it remembers about b / (1 - forget) rows.
        """
        fitted = hasattr(self, "posterior_")
        self._check_goes_on(exposure)
        name = exposure if isinstance(exposure, str) else None
        if exposure is not None:
            X, y, sample_weight = with_exposure(X, y, sample_weight, exposure)
        super().partial_fit(X, y, sample_weight, forget=forget)
        if not fitted:
            self._name_exposure(name)
        return self

    def _name_exposure(self, name: str | None) -> None:
        """Store the column of the exposures, which the program looks for in other tables."""
        if name != self._exposure_name:
            self._exposure_name = name
            self.__dict__.pop("fitted_", None)
            _ = self.fitted_

    def _check_goes_on(self, exposure: Any) -> None:
        """Raise an error if a fitted model cannot continue with or without exposures."""
        if hasattr(self, "posterior_") and self._exposed is (exposure is None):
            raise ValueError(
                "exposure must be given for all batches of a stream or for none, got "
                f"{'none' if exposure is None else 'one'} after a fit "
                f"{'with' if self._exposed else 'without'} it; give it every time, or never."
            )

    def _target(self, y: Array, weight: Array | None) -> Target:
        begun: Any = self._likelihood()
        exposed = y.ndim == 2
        if exposed and not hasattr(begun, "exposed"):
            raise ValueError(
                "exposure needs a likelihood of counts, got "
                f"likelihood={self.likelihood!r}; use 'negative_binomial' or 'poisson'."
            )
        transformation = begun if isinstance(begun, Transformed) else None
        # with exposures of 1, a likelihood begins as without them
        more = (y[:, 1],) if exposed and np.any(y[:, 1] != 1.0) else ()
        begun = begun.begin(y[:, 0] if exposed else y, weight, *more)
        _, likelihood, shift, scale = begun
        attributes = {"_y_shift": shift, "_y_scale": scale, "_exposed": exposed}
        noise = self._noise(likelihood)
        if transformation is not None:
            given = transformation.noise
            return Target(
                partial(_transformed, transformation, shift, scale),
                likelihood,
                scale,
                attributes,
                transformation=transformation,
                log_slope=float(np.average(transformation.log_slope(y), weights=weight)),
                tries_heavy_tails=isinstance(given, str) and given == "auto",
                noise=noise,
            )
        encode = partial(_standardised, shift, scale)
        heavy = isinstance(self.likelihood, str) and self.likelihood == "auto"
        return Target(encode, likelihood, scale, attributes, tries_heavy_tails=heavy, noise=noise)

    def _noise(self, likelihood: Likelihood) -> str:
        """Return the parameter ``noise``, which only additive noise may set to "varying"."""
        if not isinstance(self.noise, str) or self.noise not in ("auto", "constant", "varying"):
            raise ValueError(
                f"noise must be 'auto', 'constant' or 'varying', got {self.noise!r}; use 'auto'."
            )
        if isinstance(likelihood, Gaussian | StudentT):
            return self.noise
        if self.noise == "varying":
            raise ValueError(
                "noise='varying' needs Gaussian or Student-t noise, got "
                f"likelihood={self.likelihood!r}; leave noise at 'auto'."
            )
        return "constant"

    def _same_target(self) -> Target:
        noise, transformation = of_noise(self.likelihood_), self.fitted_.transformation
        likelihood = getattr(noise, "noise_at_zero", noise)
        scale = self._y_shift, self._y_scale
        if transformation is None:
            return Target(partial(_standardised, *scale), likelihood, self._y_scale, {})
        encode = partial(_transformed, transformation, *scale)
        return Target(encode, likelihood, self._y_scale, {}, transformation=transformation)

    def _likelihood(self) -> Likelihood:
        """Return the likelihood that the parameter stands for."""
        if isinstance(self.likelihood, str) and self.likelihood == "auto":
            return LIKELIHOODS["gaussian"]()
        if isinstance(self.likelihood, str) and self.likelihood in LIKELIHOODS:
            return LIKELIHOODS[self.likelihood]()
        other = isinstance(self.likelihood, str | type) or not hasattr(self.likelihood, "begin")
        if other or self.likelihood.of_labels or hasattr(self.likelihood, "at"):
            raise ValueError(
                f"likelihood must be 'auto', one of {sorted(LIKELIHOODS)} or an object such as "
                f"StudentT(dof=5.0), got {self.likelihood!r}; leave it out for 'auto'."
            )
        return self.likelihood

    def _finish(self) -> None:
        noise = [state.likelihood.noise_std**2 for state in self.posterior_]
        self.noise_std_ = float(self._y_scale * np.sqrt(self.weights_ @ noise))

    def _hint(self, task: Task, y: Array) -> None:
        if not isinstance(self.likelihood, str) or self.likelihood != "auto":
            return

        def below_zero() -> Array:
            rows = np.random.default_rng(task.seeds).permutation(len(y))[:_HINT_ROWS]
            return self._dist_at([column[rows] for column in task.sample.codes]).cdf(0.0)

        hint(np.asarray(y, dtype=float), below_zero)

    @anywhere
    def predict(self, X: Any, return_std: bool = False, *, exposure: Any = None) -> Any:
        """Return the mean of y for each row, and optionally its standard deviation with noise.

        Recalibration changes the standard deviation, but not the mean.

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs)
        return_std : bool, default=False
        exposure : array of shape (n,), the name of a column of X, or None
            For counts; None is 1, so that the mean is the rate.

        Returns
        -------
        mean : ndarray of shape (n,)
        std : ndarray of shape (n,), only if ``return_std``
        """
        check_is_fitted(self)
        if return_std or not self.likelihood_.additive:
            if not return_std:
                return self._of_rows(X, exposure, lambda distribution: (distribution.mean,))[0]
            return self._of_rows(X, exposure, lambda part: (part.mean, part.std))
        if exposure is not None:
            self._refuse_exposure()
        means = self._means(X)
        return self._y_shift + self._y_scale * (like(self.weights_, means) @ means)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, exposure: Any = None) -> float:
        """Return R^2 of the predictions of y (n,), which may be the name of a column of X.

        A model that was fitted with exposures needs those of these rows.
        """
        if exposure is None and self._exposed:
            raise ValueError(
                "exposure must be given to score a model that was fitted with one, got None; pass "
                "that of these rows."
            )
        X, y, sample_weight = with_targets(X, y, sample_weight)
        predicted = here(self.predict(X, exposure=exposure))
        return float(r2_score(here(y), predicted, sample_weight=here(sample_weight)))

    def predict_dist(self, X: Any, *, exposure: Any = None) -> PredictiveDistribution:
        """Return the predictive distribution of y at each row, with exposures as for predict."""
        X, exposure = exposure_of(X, exposure)
        return self._recalibrated(self.fitted_.encode(X), exposure)

    def _recalibrated(self, columns: list[Any], exposure: Array | None) -> PredictiveDistribution:
        """Return the distribution at rows with these coordinates."""
        distribution = self._dist_at(columns, exposure)
        if self.calibration_ is None:
            return distribution
        return RecalibratedDistribution(distribution, self.calibration_)

    def _of_rows(
        self, X: Any, exposure: Any, function: Callable[[PredictiveDistribution], tuple[Array, ...]]
    ) -> tuple[Any, ...]:
        """Return arrays (n, ...) of distributions, of few rows with copies at a time."""
        table, exposure = exposure_of(X, exposure)
        columns = self.fitted_.encode(table)
        if exposure is not None:
            check_consistent_length(columns[self._active[0]], exposure)  # before it is divided
        parts = [
            function(self._recalibrated(block, None if exposure is None else exposure[rows]))
            for rows, block in self.fitted_.copied_blocks(columns)
        ]
        return tuple(answered(X, np.concatenate(part)) for part in zip(*parts, strict=True))

    def _likelihoods_at(self, columns: list[Any], exposure: Array | None) -> list[Any]:
        """Return the likelihood of every restart for rows with these coordinates."""
        if exposure is not None:
            check_consistent_length(columns[self._active[0]], exposure)
        return self._exposed_to(exposure, self.fitted_.likelihoods_at(columns))

    def _exposed_to(self, exposure: Array | None, likelihoods: list[Any]) -> list[Any]:
        """Return the likelihood of every restart for rows with these exposures."""
        if exposure is None:
            return likelihoods
        if not hasattr(self.likelihood_, "exposed"):
            self._refuse_exposure()
        return [likelihood.exposed(np.log(exposure)) for likelihood in likelihoods]

    def _refuse_exposure(self) -> None:
        raise ValueError(
            "exposure is for counts, got it for a model with "
            f"{type(self.likelihood_).__name__} likelihood; leave it out."
        )

    def _dist_at(self, columns: list[Any], exposure: Array | None = None) -> PredictiveDistribution:
        """Return the distribution at rows with these coordinates, without recalibration."""
        parts = self._densities_at(columns, exposure)
        rows = self.fitted_.fills.rows(columns)
        if len(rows):
            copies = self._densities_of_copies(columns, rows, exposure)
            parts = [Averaged(part, rows, copy) for part, copy in zip(parts, copies, strict=True)]
        return self.fitted_.distribution(parts)

    def _densities_of_copies(
        self, columns: list[Any], rows: Array, exposure: Array | None
    ) -> list[Density]:
        """Return the distribution of y of each restart at the copies of some rows.

        The coordinates of all copies of many rows take too much memory, those of one do not.
        """
        fitted, size = self.fitted_, COUNT if len(rows) <= COPIED_ROWS else 1
        likelihoods, moments = [], []
        for begin in range(0, COUNT, size):
            copies = fitted.fills.copies(columns, rows, slice(begin, begin + size))
            likelihoods.append(fitted.likelihoods_at(copies))
            moments.append(self._moments_at(copies))
        together = [joined(list(of_restart)) for of_restart in zip(*likelihoods, strict=True)]
        if exposure is not None:
            exposure = np.tile(np.asarray(exposure)[rows], COUNT)
        return _densities(self._exposed_to(exposure, together), np.concatenate(moments, axis=2))

    def _densities_at(self, columns: list[Any], exposure: Array | None) -> list[Density]:
        """Return the distribution of y of each restart, as learned where a value is missing."""
        return _densities(self._likelihoods_at(columns, exposure), self._moments_at(columns))

    def calibrate(
        self, X: Any, y: Any = None, *, exposure: Any = None, sample_weight: Any = None
    ) -> Self:
        """Recalibrate the predictive distribution by rows that the fit has not seen.

        ``predict_interval`` becomes a conformal interval: if the rows and a new row are
        exchangeable, it contains y with a probability of at least ``level``, whatever the
        distribution. That is so on average over all rows, not for every kind of row. A level of
        0.95 needs 39 rows, and 0.99 needs 199. With fewer rows, the ends of the interval come from
        the tails of the model, without the guarantee. All other methods follow one smooth
        distribution function, which stays as it is unless the rows show that it is wrong. The mean
        and explanations do not change.

        The result is in ``calibration_``. It replaces an earlier recalibration, and ``fit`` and
        ``partial_fit`` remove it.

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs), or None
            At least 10 rows that were not used in the fit, and are like those to be predicted. None
            removes a recalibration.
        y : array of shape (n,), or the name of a column of X
        exposure : array of shape (n,), the name of a column of X, or None
            As for ``fit``.
        sample_weight : None
            Weights are not supported: the guarantee needs rows that count equally.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from btnkm import BTNRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(300, 1))
        >>> y = X[:, 0] + 0.1 * rng.standard_normal(300)
        >>> model = BTNRegressor(structure="sums").fit(X[:100], y[:100])
        >>> model.calibrate(X[100:], y[100:]).calibration_.rows
        200
        """
        if exposure is not None:
            X, y, sample_weight = with_exposure(X, y, sample_weight, exposure)
        super().calibrate(X, y, sample_weight=sample_weight)
        return self

    def _outcomes(self, X: Any, y: Array) -> tuple[Array, ...]:
        """Return the normal scores of y; of counts those of P(Y < y) and P(Y <= y)."""
        exposure = None
        if isinstance(y, Exposed):
            y, exposure = np.asarray(y).T
        if self._exposed and exposure is None:
            raise ValueError(
                "exposure must be given to recalibrate a model that was fitted with one, got None; "
                "pass that of the held-out rows."
            )
        if hasattr(self.likelihood_, "check"):
            self.likelihood_.check(y)
        distribution = self._dist_at(self.fitted_.encode(X), exposure)
        below, at = distribution.normal_scores(y)
        known = distribution.farthest - 0.1
        impossible = np.mean((below > known) | (at < -known))
        if impossible > _MOST_IMPOSSIBLE:
            raise ValueError(
                f"the model gives probability zero to y in {impossible:.0%} of the rows, so it "
                "cannot be recalibrated; use another likelihood."
            )
        return (below, at) if distribution.discrete else (at,)

    def _recalibration(self, kind: str, outcomes: tuple[Array, ...]) -> Recalibration:
        return Recalibration.of(kind, outcomes[0], outcomes[-1])

    @anywhere
    def predict_interval(self, X: Any, level: float = 0.95, *, exposure: Any = None) -> Array:
        """Return the central prediction interval of probability ``level``: (n, 2).

        It is a conformal interval if the model is recalibrated (see ``calibrate``).
        """
        return self._of_rows(X, exposure, lambda part: (part.interval(level),))[0]

    @anywhere
    def predict_quantiles(self, X: Any, q: Any, *, exposure: Any = None) -> Array:
        """Return quantiles of y: (n,) for one probability q, (n, k) for k of them."""
        return self._of_rows(X, exposure, lambda part: (part.quantile(q),))[0]

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, exposure: Any = None
    ) -> Array:
        """Return draws of y: functions drawn from the posterior, plus noise.

        With Dask, the draws are lazy: all blocks use the same functions, and each its own noise.
        Draws for rows with missing values may be independent between rows.

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs)
        n_samples : int, default=1
        random_state : int, RandomState or None, default=0
        exposure : array of shape (n,), the name of a column of X, or None
            As for ``predict``.

        Returns
        -------
        ndarray of shape (n, n_samples)
        """
        checks.check_integer("n_samples", n_samples, 1)
        seed = int(check_random_state(random_state).randint(2**31))
        X, exposure = exposure_of(X, exposure)
        if is_dask(X):
            return lazily(BTNRegressor._draws, self, X, n_samples, seed, numbered=True)
        return answered(X, self._draws(here(X), n_samples, seed, exposure=exposure))

    def _draws(
        self,
        X: Any,
        n_samples: int,
        seed: int,
        block: int | None = None,
        exposure: Array | None = None,
    ) -> Array:
        """Return draws of y: (n, n_samples).

        Functions depend on the seed; noise and missing values also depend on the block.
        """
        fitted = self.fitted_
        columns = fitted.encode(X)
        missing = [j for j in self._active if np.any(self.columns_[j].basis.unknown(columns[j]))]
        rng = np.random.default_rng(seed)
        noise = rng if block is None else np.random.default_rng([seed, block])
        n = len(columns[self._active[0]])
        out = np.empty((n, n_samples))
        chosen = rng.choice(len(self.posterior_), size=n_samples, p=self.weights_)
        likelihoods = self._likelihoods_at(columns, exposure)
        away = np.random.default_rng([seed, 1]).standard_normal(n_samples)  # of each function
        for k, state in enumerate(self.posterior_):
            which = np.flatnonzero(chosen == k)
            if self._mode_maps[k].full_tensor:
                f = self._full_draws(columns, k, len(which), rng, noise)
                self._move_away(f, columns, k, away[which])
                for i, place in enumerate(which):
                    out[:, place] = likelihoods[k].draw(f[:, i], noise)
                continue
            draws = posterior.draw_weights(state, len(which), rng)
            sums = None if state.sums is None else state.sums.draw(len(which), rng)
            predictor = fitted.predictors[k]
            within = replace(predictor, least=0.0, widens=False)
            level = rng.standard_normal(len(which))
            f = np.empty((n, len(which)))
            mode_map = self._mode_maps[k]
            for rows, (features,) in fitted.row_blocks(columns, restarts=slice(k, k + 1)):
                _, variance = within.moments(features.__getitem__)
                # the variance that the weights do not explain
                beyond = np.sqrt(np.maximum(predictor.least - variance, 0.0))
                for i in range(len(which)):
                    for j in missing:
                        filled = self.columns_[j].basis.fill(columns[j][rows], noise)
                        for d, basis in mode_map.modes_of(j):
                            features[d] = basis.features(filled)
                    drawn = [draw[i] for draw in draws]
                    effects = None if sums is None else sums[i]
                    f[rows, i] = posterior.evaluate(state, drawn, features.__getitem__, effects)
                    f[rows, i] += beyond * level[i]
            self._move_away(f, columns, k, away[which])
            for i, place in enumerate(which):
                out[:, place] = likelihoods[k].draw(f[:, i], noise)
        self._draw_averaged(out, columns, chosen, noise, exposure)
        out = self._y_shift + self._y_scale * out
        if fitted.transformation is not None:
            out = fitted.transformation.inverse(out)
        if self.calibration_ is None:
            return out
        distribution = self._dist_at(columns, exposure)
        return RecalibratedDistribution(distribution, self.calibration_).moved(out, noise)

    def _draw_averaged(
        self,
        out: Array,
        columns: list[Any],
        chosen: Array,
        noise: np.random.Generator,
        exposure: Array | None,
    ) -> None:
        """Replace draws of rows with missing values by others, which are independent."""
        rows = self.fitted_.fills.rows(columns)
        for begin in range(0, len(rows), COPIED_ROWS):
            some = rows[begin : begin + COPIED_ROWS]
            for k, copies in enumerate(self._densities_of_copies(columns, some, exposure)):
                which = np.flatnonzero(chosen == k)
                out[some[:, None], which] = draw_mixed(copies, COUNT, noise, len(which))

    def _move_away(self, f: Array, columns: list[Any], k: int, away: Array) -> None:
        """Add to draws of f (n, count) what is not known beyond the training range."""
        variance = self.fitted_.variance_beyond(columns, k)
        if variance is not None:
            f += np.sqrt(variance) * away

    def _full_draws(
        self,
        columns: list[Any],
        k: int,
        count: int,
        rng: np.random.Generator,
        noise: np.random.Generator,
    ) -> Array:
        """Return draws of f from a full tensor at every row: (n, count).

        What the training rows do not determine is drawn jointly for the rows of a block.
        """
        state: Any = self.posterior_[k]
        drawn = state.draw(count, rng)[:, 0]
        f = np.empty((len(columns[self._active[0]]), count))
        for rows, (features,) in self.fitted_.row_blocks(columns, _JOINT_ROWS, slice(k, k + 1)):
            xi = noise.standard_normal((rows.stop - rows.start, count))
            f[rows] = state.predictor.evaluate(drawn, features.__getitem__, xi)
        return f


def _densities(likelihoods: list[Any], moments: Array) -> list[Density]:
    """Return the distribution of y of each restart, given E[f] and Var[f]: (2, S, n)."""
    return [
        likelihood.predictive(mean, variance)
        for likelihood, mean, variance in zip(likelihoods, *moments, strict=True)
    ]


def _standardised(shift: float, scale: float, y: Array, weight: Array) -> tuple[Array, Array]:
    if y.ndim == 2:  # counts and their exposures
        return np.column_stack([y[:, 0], np.log(y[:, 1])]), weight
    return (y - shift) / scale, weight


def _transformed(
    transformation: Transformed, shift: float, scale: float, y: Array, weight: Array
) -> tuple[Array, Array]:
    transformation.check(y)  # also those rows that the fit did not begin with
    return _standardised(shift, scale, transformation.forward(y), weight)
