"""BTNClassifier: labels as targets, and their probabilities as predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, ndtr
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight

from . import checks
from .core.densities import Student
from .core.gamma import Gamma
from .core.likelihoods import Bernoulli, Gaussian
from .core.softmax import Softmax
from .machine import Auto, Machine, Target
from .predictive import PredictiveDistribution, check_level

Array = np.ndarray
LIKELIHOODS = ("logistic", "least_squares")
_INTERVAL_ROWS = 256  # whose probabilities are held at a time, at every point of every start


class BTNClassifier(ClassifierMixin, Machine):
    """Bayesian kernel machine for classes, with probabilities integrated over the posterior.

    With two classes the log odds of the second are offset + f(x), with f as in BTNRegressor and an
    offset that starts at the log odds of all rows together; a Polya-Gamma variable per row keeps
    every update in closed form. With more classes the probabilities are a softmax of f_k(x), and
    f_k(x) = sum_r c_kr prod_d w_r^(d) . phi^(d)(x_d): all classes share the components, each with
    weights of its own, so that a class costs no more than a basis function.

    Parameters
    ----------
    basis, n_basis, max_rank, n_init, max_iter, tol, warm_sweeps, rank_prior, basis_prior, \
smoothness, anchored, prune, memory_limit, n_jobs, random_state, callback, verbose
        As in BTNRegressor, but labels say less than numbers: "auto" is a ``max_rank`` of 8 without
        anchors, 8,000 rows of all starts together (1 to 8 starts), a ``max_iter`` of 32, or 20
        above 10,000 rows, and ``anchored`` from 8 inputs on.
    likelihood : "logistic" or "least_squares", default="logistic"
        "least_squares" regresses the signs of two classes and takes as probability that of a
        positive sign: the classifier of the paper, for comparison. Its probabilities are poor.
    class_weight : "balanced", dict or None, default=None
        Weight of each class, multiplied with the sample weights; "balanced" makes all classes weigh
        the same. Probabilities are then those of such a population.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    rank_, n_basis_, feature_relevance_, feature_relevance_std_, lower_bound_, lower_bounds_, \
history_, n_iter_, converged_, stop_reason_, n_features_in_, feature_names_in_
        As in BTNRegressor; ``history_`` has no noise.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm import BTNClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(300, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = BTNClassifier(n_init=1, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    _auto = Auto(many_inputs=8, rank=8, rows=8_000, least_starts=1, sweeps=32, sweeps_of_many=20)

    def __init__(
        self,
        basis: Any = "auto",
        *,
        likelihood: str = "logistic",
        n_basis: int | str = "auto",
        max_rank: int | str = "auto",
        n_init: int | str = "auto",
        max_iter: int | str = "auto",
        tol: float = 1e-4,
        warm_sweeps: int = 10,
        rank_prior: Gamma | None = None,
        basis_prior: Gamma | str | None = None,
        smoothness: float = 1.25,
        anchored: bool | str = "auto",
        class_weight: Any = None,
        prune: bool = True,
        memory_limit: float = 1.4,
        n_jobs: int | None = None,
        random_state: Any = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            basis,
            n_basis=n_basis,
            max_rank=max_rank,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            warm_sweeps=warm_sweeps,
            rank_prior=rank_prior,
            basis_prior=basis_prior,
            smoothness=smoothness,
            anchored=anchored,
            prune=prune,
            memory_limit=memory_limit,
            n_jobs=n_jobs,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )
        self.likelihood = likelihood
        self.class_weight = class_weight

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.likelihood, str) or self.likelihood not in LIKELIHOODS:
            raise ValueError(
                f"likelihood must be one of {', '.join(map(repr, LIKELIHOODS))}, got "
                f"{self.likelihood!r}; leave it out for 'logistic'."
            )

    def _check_y(self, y: Any) -> Array:
        return checks.check_labels(type(self).__name__, y)

    def _target(self, y: Array, weight: Array | None) -> Target:
        try:
            classes, codes = np.unique(y, return_inverse=True)
        except TypeError:
            kinds = sorted({type(v).__name__ for v in y.tolist()})
            raise ValueError(
                f"y must have labels of one type, got {' and '.join(kinds)}; make them all text."
            ) from None
        if len(classes) < 2:
            raise ValueError(
                f"y must have at least two classes, got 1 class, {classes.tolist()[0]!r}; give "
                "rows of another."
            )
        if self.class_weight is not None:
            by_class = compute_sample_weight(self.class_weight, y)
            if not np.all(by_class > 0):
                label = y[[np.argmin(by_class)]].tolist()[0]
                raise ValueError(
                    f"class_weight must be positive for every class, got {by_class.min():g} for "
                    f"{label!r}; leave out its rows instead."
                )
            weight = by_class if weight is None else weight * by_class
        if self.likelihood == "least_squares":
            if len(classes) > 2:
                raise ValueError(
                    f"likelihood='least_squares' must have two classes, got {len(classes)}; "
                    "leave it out for any number."
                )
            signs, likelihood, shift, scale = Gaussian().begin(2.0 * codes - 1.0, weight)
            attributes = {"classes_": classes, "_threshold": -shift / scale}
            return Target(signs, weight, likelihood, scale, attributes)
        many = len(classes) if len(classes) > 2 else None
        labels = (Bernoulli() if many is None else Softmax()).begin(codes.astype(float), weight)
        return Target(labels.target, weight, labels.likelihood, 1.0, {"classes_": classes}, many)

    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Return the log odds of ``classes_[1]`` and, if asked, how uncertain they are.

        With more than two classes, log probabilities less their mean over the classes.

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs)
        return_std : bool, default=False

        Returns
        -------
        decision : ndarray of shape (n,) or (n, n_classes)
            Made from ``predict_proba``: positive where ``predict`` says ``classes_[1]``, or highest
            for the class that it says.
        std : ndarray of the same shape, only if ``return_std``
            Standard deviation of offset + f over the posterior, the log odds before they are
            averaged.
        """
        means, variances = self._moments(X)
        log_p = np.log(self._probabilities(means, variances))
        decision = log_p[1] - log_p[0] if len(log_p) == 2 else (log_p - log_p.mean(axis=0)).T
        if not return_std:
            return decision
        spread = (means + self._offsets()).var(axis=0)
        return decision, np.sqrt(variances.mean(axis=0) + spread)

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, averaged over the posterior: (n, n_classes)."""
        return self._probabilities(*self._moments(X)).T

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of ``predict_proba``: (n, n_classes)."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each row: (n,)."""
        probability = self.predict_proba(X)
        return self.classes_[np.argmax(probability, axis=1)]

    def predict_proba_interval(self, X: Any, level: float = 0.95) -> Array:
        """Return the central interval that holds the probability of a class, by the posterior.

        It tells how sure the model is about the probability itself.

        Returns
        -------
        ndarray of shape (n, 2), for ``classes_[1]``; of shape (n, n_classes, 2) for more than two
        """
        levels = check_level(level)
        means, variances = self._moments(X)
        if means.ndim == 3:
            return self._intervals(means, variances, levels)
        parts = [  # so many degrees of freedom make a normal distribution
            Student(mean, np.maximum(variance, 1e-300), 0.0, 1e9)
            for mean, variance in zip(means + self._offsets(), variances, strict=True)
        ]
        ends = PredictiveDistribution(parts).quantile(levels)
        if self.likelihood == "least_squares":  # the probability that noise leaves the sign alone
            noise = self.likelihood_.noise_std
            return np.asarray(ndtr((ends - self._threshold) / noise))
        return np.asarray(expit(ends))

    def _intervals(self, means: Array, variances: Array, levels: list[float]) -> Array:
        """Return quantiles of the probabilities, (n, K, 2), a few rows at a time."""
        likelihoods: list[Any] = [state.likelihood for state in self.posterior_]
        out = np.empty((*means.shape[1:], 2))
        for start in range(0, means.shape[1], _INTERVAL_ROWS):
            rows = slice(start, start + _INTERVAL_ROWS)
            drawn = [
                p
                for likelihood, mean, variance in zip(likelihoods, means, variances, strict=True)
                for p in likelihood.probabilities(mean[rows], variance[rows])
            ]
            out[rows] = np.moveaxis(np.quantile(drawn, levels, axis=0), 0, -1)
        return out

    def _offsets(self) -> Any:
        """Return what f departs from in every start: (S, 1), or (S, 1, K) with K classes."""
        likelihoods: list[Any] = [state.likelihood for state in self.posterior_]
        if isinstance(likelihoods[0], Gaussian):
            return 0.0
        if isinstance(likelihoods[0], Softmax):
            return np.array([[likelihood.offsets] for likelihood in likelihoods])
        return np.array([[likelihood.offset] for likelihood in likelihoods])

    def _probabilities(self, means: Array, variances: Array) -> Array:
        """Return the probability of every class, each to its last digits: (K, n)."""
        parts = []
        for state, mean, variance in zip(self.posterior_, means, variances, strict=True):
            if isinstance(state.likelihood, Gaussian):
                signs = [(1.0, self._threshold), (-1.0, -self._threshold)]
                parts.append(
                    [
                        state.likelihood.predictive(sign * mean, variance).cdf(threshold)
                        for sign, threshold in signs
                    ]
                )
            else:
                parts.append(state.likelihood.predictive(mean, variance).probabilities)
        return np.maximum(np.mean(parts, axis=0), np.finfo(float).tiny)
