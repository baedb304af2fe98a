"""BTNRegressor: numbers as targets, and distributions of them as predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from . import checks
from .core import posterior
from .core.arrays import here, like
from .core.gamma import Gamma
from .core.likelihoods import LIKELIHOODS, Likelihood
from .data.dask_input import is_dask, lazily
from .data.dispatch import anywhere
from .data.readers import with_targets
from .estimator import Machine, answered
from .plan import Auto
from .predictive import PredictiveDistribution
from .structures.multistart import Target

Array = np.ndarray
_JOINT_ROWS = 1000  # of which draws of a full tensor are made together


class BTNRegressor(RegressorMixin, Machine):
    """Bayesian kernel machine: a sum of main effects beside a low-rank tensor of all inputs.

    f(x) = sum_d a_d(x_d) + sum_r prod_d w_r^(d) . phi^(d)(x_d), or either part alone. Priors find
    the main effects that are needed, the number of components R and the functions of each input;
    the posterior is variational, with full covariances. Columns may be numeric, boolean, dates,
    text or categories, with missing values; they are warped, scaled and encoded inside, and so is
    y. Beyond the training range an input stays at the nearer end of it.

    Parameters
    ----------
    basis : "auto", str, Basis or dict, default="auto"
        Functions of each input in the tensor. "auto" takes Chebyshev polynomials for numeric
        columns, with an indicator for each value that stands out (``bases.Spiked``), and one
        indicator per category for text and categories (the rarest may share one); where structures
        are compared, linear splines are tried in place of the polynomials as well. A name
        ("chebyshev", "polynomial", "fourier", "bspline", "categorical") or a Basis serves every
        column; a dict from column name or position to one of these overrides "auto" where it has
        an entry.
    likelihood : "auto", a name in ``likelihoods.LIKELIHOODS`` or Likelihood, default="auto"
        The distribution of y given f. "auto" is "gaussian", but where structures are compared and
        held-out rows have heavy tails, the best candidates are also fitted with "student_t" and
        weighted beside them. "student_t" is robust to outliers and learns the degrees of freedom.
        "negative_binomial" is for counts: f is the logarithm of the rate up to a constant, and the
        overdispersion is learned. An object such as ``likelihoods.StudentT(dof=5.0)`` keeps the
        parameters that it is given.
    structure : "auto", "tensor", "sums", "sums+tensor" or "full", default="auto"
        What f is made of. "sums" is a sum of main effects: of a number a straight line, a curve,
        steps and an indicator for each value that stands out; an indicator for each category; and
        one for missing values. "tensor" is the low-rank tensor of all inputs. "sums+tensor" has
        both. "full" is the tensor without a limit to its rank, beside a sum: a kernel machine with
        an exact posterior, whose cost grows with the cube of the rows. "auto" fits several of them
        to some of the rows and weighs them by how well they predict the others; see
        ``structures_``. With more than 12 inputs, and unless ``structure`` is
        "tensor", only inputs that seem to interact enter the tensor; a "tensor" that is compared
        with the others also has those with the largest main effects.
    network : "cp" or "tt", default="cp"
        The form of the tensor. "cp" sums products of functions of one input each. "tt" is a tensor
        train: a product of matrices, one for each input, which suits functions in which inputs
        meet along a chain. All inputs are in a tensor train.
    cores : "auto" or "full", default="auto"
        Of a tensor train. "full" has matrices with all their entries. "auto" also considers
        diagonal ones, that is sums of products as with "cp", from three inputs on and unless
        ``max_rank`` is a list; with ``structure="auto"`` it considers the sum alone and the sum
        beside diagonal cores, too. All of them are weighed as structures are. Diagonal cores
        count as if they had predicted ten rows more.
    mode_order : "auto", "given" or list, default="auto"
        The order of the inputs in a tensor train. "given" is that of the columns. "auto" weighs it
        against the order in which the bonds of a CP tensor, fitted before, would have least to
        carry. A list has the name of every column, or its position where no column has that name.
        Of no meaning with "cp".
    n_basis : int or "auto", default="auto"
        Most smooth functions per input in the tensor, for bases given by name. A column never gets
        more than it has distinct values. "auto" divides 160 functions, or one for every 16 rows if
        that is more, among the inputs: at least 8 each, and at most 20, or one for every 250 rows
        if that is more, up to 40.
    max_rank : int, list of int or "auto", default="auto"
        Most components of the tensor, or indices of every bond of a tensor train. Those that add
        nothing are dropped. "auto" is 80 up to 10,000 rows and 40 above; where components are
        ``anchored`` it is 40 and 20. Diagonal cores have the "auto" of "cp", full cores one of 6
        at every bond. A list has one number for each bond between inputs that vary, and one more
        for three classes or more. The cost of a sweep of full cores grows with the sixth power of
        the rank where rows are few.
    initial_rank : int or "auto", default="auto"
        Components to begin with. A restart that ends with nine tenths of them or more goes on from
        a warm phase of twice as many as are left, with ``max_iter`` sweeps more, until fewer are
        left or ``max_rank``, or what ``memory_limit`` has room for, is reached. This needs
        ``prune``. "auto" is ``max_rank`` if that is given or cores are full; else it is one
        component for every 25 rows, at least 4 and at most 20, or 10 where components are
        ``anchored``. Up to 10,000 rows and without anchors the warm phase begins with more of
        them and drops those that matter least: with 30, one for every 20 rows, or twice the rank,
        whichever is least.
    n_init : int or "auto", default="auto"
        Restarts of the tensor from random factors, whose posteriors are averaged. "auto" is 40,000
        divided by the number of rows, at least 2 and at most 8; fewer where ``memory_limit`` has no
        room for their posteriors, and one for each structure, two at least, where the fits that
        compare structures use all components that they begin with. Tensors share as many of them
        as their weights say, and two at least. A sum alone has nothing random and is fitted once.
    max_iter : int or "auto", default="auto"
        Most sweeps of the exact phase; "auto" is 80. Up to 8,000 rows, restarts may go on from the
        fits by which structures were compared, for up to ``max_iter`` sweeps, "auto" 20. A table of
        more than 262,144 rows is fitted to so many of them first, and all rows go on from there for
        up to ``max_iter`` sweeps, "auto" 20.
    tol : float, default=1e-4
        A restart has converged when the last four sweeps, looked at after every fourth, raised its
        ELBO by less than this per sweep and row (or unit of sample weight) on average; 0 always
        uses ``max_iter`` sweeps. Most restarts use all of them; ``stop_reason_`` tells.
    warm_sweeps : int, default=10
        Sweeps of the warm phase, without covariances, that come first. With fewer than four rows
        (or units of weight) per basis function a thaw of 12 sweeps follows, with full cores always
        one of 20, in which the covariances come in little by little. 0 leaves out both.
    noise_prior : Gamma or None, default=None
        Prior of the noise precision in units of 1 / var(y); None is Gamma(1e-6, 1e-6).
    rank_prior : Gamma or None, default=None
        Prior of each component's precision; None is Gamma(1e-5, 1e-6).
    basis_prior : Gamma, "off" or None, default=None
        Prior of each function's precision; None is Gamma(1, 1). "off" learns none of them: they
        are held at the mean of that prior, (1 + m)^(2 smoothness).
    smoothness : float, default=1.25
        The rate of ``basis_prior`` falls like (1 + m)^(-2 smoothness) with the function's degree m.
    anchored : bool or "auto", default="auto"
        Whether every input is the constant 1 plus what it adds to it, in every component, with a
        precision of its own: an input that a component does not use then costs it nothing. "auto"
        is True from 10 inputs on. With fewer, scales that move freely between the inputs find
        interactions more reliably.
    full_rows : int, default=2000
        Up to how many rows "full" is a candidate of "auto", and accepted.
    prune : bool, default=True
        Drop components and functions that are negligible and whose loss raises the ELBO and, where
        at most 200 weights are left in the end, components whose work the others can do as well.
    memory_limit : float or "auto", default="auto"
        Most memory, in GiB, that the fit may use beyond its input: "auto" is 1.4, or nine tenths of
        what a device has left for rows that are there; of a cluster, of each process. Less memory
        means more recomputation and the same result, if there is room for as many restarts.
    n_jobs : int or None, default=None
        Cores to use, None as many as BLAS would. Restarts run side by side: in threads where rows
        are many; where they are few, in processes that are started when the work left is worth it,
        serve later fits too, and end after a minute without work.
    random_state : int, RandomState or None, default=None
    callback : callable or None, default=None
        Called after every sweep, maybe from another thread and maybe some sweeps late, with its
        entry of ``history_``; the fit stops if it returns True, which it may from the exact phase
        of a restart on. A restart whose helper process was killed is run, and seen, again. The fits
        by which structures are compared are not seen.
    verbose : int, default=0
        1 prints the structures that are compared and a line per ten sweeps, 2 a line per sweep.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the posterior there is, if there is one: with its columns,
        functions, components and scales, and up to 20 exact sweeps ("auto") of the rows it is
        given now.

    Attributes
    ----------
    structures_ : list of dict
        The structures that were compared, or the one that was given; that with the highest weight
        first. ``name`` is "sums", "tensor", "sums+tensor" or "full"; ``weight`` is that in the
        prediction, 0 for one that has no restart; ``log_density`` is the mean over the rows held
        out that it was asked to predict, NaN where there were none; ``restarts`` are the positions
        of its posteriors in ``weights_``; ``seconds`` is the time that its fits took;
        ``sums_first`` tells whether the sum was fitted before the tensor; ``splines`` whether
        numbers in the tensor have linear splines; ``heavy`` whether ``likelihood="auto"`` has given
        it "student_t". ``noise_factor`` is what the noise variance was
        multiplied by, and ``noise_dof`` the most degrees of freedom of the noise, so that intervals
        hold in the rows held out. With ``network="tt"`` there are also ``cores`` and
        ``mode_order``.
    weights_ : ndarray of shape (restarts,)
        The weight of every restart in the prediction; they add up to 1. Restarts of one structure
        share its weight. Those that fit the training rows far worse than the best of them are left
        out; ``fit`` warns if these are most.
    rank_ : int or tuple of int
        Components of the restart with the highest ELBO, or indices of each bond of a tensor train,
        and 0 where there is no tensor. All that is said of one restart is said of this one, among
        those of the structure with the highest weight; ``ranks_`` has the ranks of all. Diagonal
        cores have as many indices at every bond.
    cores_ : list of str
        Of a tensor train: whether the cores of each restart are "full" or "diagonal".
    mode_order_ : ndarray
        Of a tensor train: the positions of the columns in the order of that restart, those that
        never vary last.
    n_basis_ : ndarray of shape (inputs,)
        Functions kept for each input in the tensor of that restart, 1 for an input that is not in
        it.
    feature_importances_, feature_importances_std_ : ndarray of shape (inputs,)
        The importance of each input: its part in the variance of f (total effect, scaled to sum to
        1), posterior mean and standard deviation. Inputs are taken as independent of each other.
    lower_bound_, lower_bounds_ : float, ndarray
        ELBO, the lower bound on the log evidence of the standardised targets, in the restart where
        it is highest: at the end, and after each sweep of the exact phase. It never falls, and
        stands still for up to two sweeps while a leap is on trial.
    history_ : list of dict
        One entry per sweep and restart: start (which restart), sweep, rows (how many were looked
        at), phase ("warm", "thaw" where rows are few, or "exact"), bound (the ELBO, NaN before the
        exact phase), terms, rank, noise_std, seconds, jitter and trial: whether a leap is on trial,
        when all else is as it was before the leap; stage: how often the rank has grown. Restarts
        are counted before any are left out.
    noise_std_ : float
        Standard deviation of the noise, in units of y; NaN for counts.
    likelihood_ : Likelihood
        With its own parameters as learned (``dof``, ``size``), in the restart with the highest
        ELBO.
    best_restart_ : int
        Which of the restarts that is, in ``weights_``.
    target_name_ : str or None
        What the column or series of the targets is called.
    n_samples_seen_ : int
        Rows of the fit, or of all batches of a stream.
    n_iter_ : int
        Sweeps of the restart with the highest ELBO, those before the exact phase included.
    converged_ : bool
        Whether every restart converged.
    stop_reason_ : str
        Why the fit ended, in a sentence.
    n_features_in_, feature_names_in_ : int, ndarray
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

    _auto = Auto(
        many_inputs=10,
        rank=20,
        rows=40_000,
        least_starts=2,
        sweeps=80,
        sweeps_of_many=40,
        warm_rank=30,
    )

    def __init__(
        self,
        basis: Any = "auto",
        *,
        likelihood: Any = "auto",
        structure: str = "auto",
        network: str = "cp",
        cores: str = "auto",
        mode_order: Any = "auto",
        n_basis: int | str = "auto",
        max_rank: Any = "auto",
        initial_rank: int | str = "auto",
        n_init: int | str = "auto",
        max_iter: int | str = "auto",
        tol: float = 1e-4,
        warm_sweeps: int = 10,
        noise_prior: Gamma | None = None,
        rank_prior: Gamma | None = None,
        basis_prior: Gamma | str | None = None,
        smoothness: float = 1.25,
        anchored: bool | str = "auto",
        full_rows: int = 2000,
        prune: bool = True,
        memory_limit: float | str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
        warm_start: bool = False,
    ) -> None:
        super().__init__(
            basis,
            structure=structure,
            network=network,
            cores=cores,
            mode_order=mode_order,
            n_basis=n_basis,
            max_rank=max_rank,
            initial_rank=initial_rank,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            warm_sweeps=warm_sweeps,
            rank_prior=rank_prior,
            basis_prior=basis_prior,
            smoothness=smoothness,
            anchored=anchored,
            full_rows=full_rows,
            prune=prune,
            memory_limit=memory_limit,
            n_jobs=n_jobs,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
            warm_start=warm_start,
        )
        self.likelihood = likelihood
        self.noise_prior = noise_prior

    _check_y = staticmethod(checks.check_target)

    def _target(self, y: Array, weight: Array | None) -> Target:
        _, likelihood, shift, scale = self._likelihood().begin(y, weight)
        attributes = {"_y_shift": shift, "_y_scale": scale}
        encode = partial(_standardised, shift, scale)
        heavy = isinstance(self.likelihood, str) and self.likelihood == "auto"
        return Target(encode, likelihood, scale, attributes, may_be_heavy=heavy)

    def _same_target(self) -> Target:
        encode = partial(_standardised, self._y_shift, self._y_scale)
        return Target(encode, self.likelihood_, self._y_scale, {})

    def _likelihood(self) -> Likelihood:
        """Return the likelihood that the parameter names or is."""
        if isinstance(self.likelihood, str) and self.likelihood == "auto":
            return LIKELIHOODS["gaussian"]()
        if isinstance(self.likelihood, str) and self.likelihood in LIKELIHOODS:
            return LIKELIHOODS[self.likelihood]()
        other = isinstance(self.likelihood, str | type) or not hasattr(self.likelihood, "begin")
        if other or self.likelihood.of_labels:
            raise ValueError(
                f"likelihood must be 'auto', one of {sorted(LIKELIHOODS)} or an object such as "
                f"StudentT(dof=5.0), got {self.likelihood!r}; leave it out for 'auto'."
            )
        return self.likelihood

    def _finish(self) -> None:
        noise = [state.likelihood.noise_std**2 for state in self.posterior_]
        self.noise_std_ = float(self._y_scale * np.sqrt(self.weights_ @ noise))

    @anywhere
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
        check_is_fitted(self)
        if return_std or not self.likelihood_.additive:
            distribution = self.predict_dist(X)
            mean, std = answered(X, distribution.mean), answered(X, distribution.std)
            return (mean, std) if return_std else mean
        means = self._means(X)
        return self._y_shift + self._y_scale * (like(self.weights_, means) @ means)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the predictions of y (n,), which may be the name of a column of X."""
        X, y, sample_weight = with_targets(X, y, sample_weight)
        return float(r2_score(here(y), here(self.predict(X)), sample_weight=here(sample_weight)))

    def predict_dist(self, X: Any) -> PredictiveDistribution:
        """Return the predictive distribution of y at each row."""
        parts = [
            state.likelihood.predictive(mean, variance)
            for state, mean, variance in zip(self.posterior_, *self._moments(X), strict=True)
        ]
        return PredictiveDistribution(parts, self._y_shift, self._y_scale, self.weights_)

    @anywhere
    def predict_interval(self, X: Any, level: float = 0.95) -> Array:
        """Return the central interval that holds y with probability ``level``: (n, 2)."""
        return answered(X, self.predict_dist(X).interval(level))

    @anywhere
    def predict_quantiles(self, X: Any, q: Any) -> Array:
        """Return quantiles of y: (n,) for one level, (n, k) for k levels."""
        return answered(X, self.predict_dist(X).quantile(q))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Return draws of y: whole functions from the posterior, plus noise.

        Of Dask these are made block by block once they are computed: the same functions in every
        block, and noise of its own, whose size is drawn for every block.

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
        seed = int(check_random_state(random_state).randint(2**31))
        if is_dask(X):
            return lazily(BTNRegressor._draws, self, X, n_samples, seed, numbered=True)
        return answered(X, self._draws(here(X), n_samples, seed))

    def _draws(self, X: Any, n_samples: int, seed: int, block: int | None = None) -> Array:
        """Return draws of y (n, n_samples); functions depend on the seed, noise on the block, too.

        Gaps are filled as noise is.
        """
        columns = self._columns_of(X)
        gaps = [j for j in self._active if np.any(self.columns_[j].basis.unknown(columns[j]))]
        rng = np.random.default_rng(seed)
        noise = rng if block is None else np.random.default_rng([seed, block])
        n = len(columns[self._active[0]])
        out = np.empty((n, n_samples))
        chosen = rng.choice(len(self.posterior_), size=n_samples, p=self.weights_)
        for k, state in enumerate(self.posterior_):
            which = np.flatnonzero(chosen == k)
            if self._arrangements[k].kernel:
                f = self._full_draws(columns, k, len(which), rng, noise)
                for i, place in enumerate(which):
                    out[:, place] = state.likelihood.draw(f[:, i], noise)
                continue
            draws = posterior.draw_weights(state, len(which), rng)
            sums = None if state.sums is None else state.sums.draw(len(which), rng)
            predictor = posterior.Predictor.of(state)
            within = replace(predictor, least=0.0)
            level = rng.standard_normal(len(which))
            f = np.empty((n, len(which)))
            one = self._arrangements[k]
            for rows, (features,) in self._row_blocks(columns, starts=slice(k, k + 1)):
                _, variance = within.moments(features.__getitem__)
                # what weights do not tell
                beyond = np.sqrt(np.maximum(predictor.least - variance, 0.0))
                for i in range(len(which)):
                    for j in gaps:
                        filled = self.columns_[j].basis.fill(columns[j][rows], noise)
                        for d, basis in one.modes_of(j):
                            features[d] = basis.features(filled)
                    drawn = [draw[i] for draw in draws]
                    effects = None if sums is None else sums[i]
                    f[rows, i] = posterior.evaluate(state, drawn, features.__getitem__, effects)
                    f[rows, i] += beyond * level[i]
            for i, place in enumerate(which):
                out[:, place] = state.likelihood.draw(f[:, i], noise)
        return self._y_shift + self._y_scale * out

    def _full_draws(
        self,
        columns: list[Any],
        k: int,
        count: int,
        rng: np.random.Generator,
        noise: np.random.Generator,
    ) -> Array:
        """Return draws of f from a full tensor at every row: (n, count).

        What the training rows do not determine is drawn for the rows of a block together.
        """
        state: Any = self.posterior_[k]
        drawn = state.draw(count, rng)[:, 0]
        f = np.empty((len(columns[self._active[0]]), count))
        for rows, (features,) in self._row_blocks(columns, _JOINT_ROWS, slice(k, k + 1)):
            xi = noise.standard_normal((rows.stop - rows.start, count))
            f[rows] = state.predictor.evaluate(drawn, features.__getitem__, xi)
        return f


def _standardised(shift: float, scale: float, y: Array, weight: Array) -> tuple[Array, Array]:
    return (y - shift) / scale, weight
