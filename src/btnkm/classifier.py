"""BTNClassifier: two classes as targets, and their probabilities as predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import type_of_target

from . import checks
from .core.gamma import Gamma
from .core.likelihoods import Bernoulli
from .core.state import State
from .machine import Machine, Target
from .predictive import PredictiveDistribution, expected_sigmoid

Array = np.ndarray


class BTNClassifier(ClassifierMixin, Machine):
    """Bayesian kernel machine for two classes, with probabilities integrated over the posterior.

    The log odds of the second class are offset + f(x), with f as in BTNRegressor and as offset the
    log odds of all rows together. A Polya-Gamma variable per row keeps every update in closed form.

    Parameters
    ----------
    basis, n_basis, max_rank, n_init, max_iter, tol, warm_sweeps, rank_prior, basis_prior, \
smoothness, anchored, prune, memory_limit, n_jobs, random_state, callback, verbose
        As in BTNRegressor.
    class_weight : "balanced", dict or None, default=None
        Weight of each class, multiplied with the sample weights; "balanced" makes all classes weigh
        the same. Probabilities are then those of such a population.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
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
        self.class_weight = class_weight

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

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
        if len(classes) != 2:
            many = "1 class" if len(classes) == 1 else f"{len(classes)} classes"
            raise ValueError(
                "Only binary classification is supported: y must have two classes, got "
                f"{many}; the type of the target is {type_of_target(y)}."
            )
        if self.class_weight is not None:
            by_class = compute_sample_weight(self.class_weight, y)
            weight = by_class if weight is None else weight * by_class
        share = float(np.average(codes, weights=weight))
        offset = float(np.log(share) - np.log1p(-share))
        attributes = {"classes_": classes}
        return Target(codes.astype(float), weight, Bernoulli(offset), np.nan, attributes)

    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Return the log odds of ``classes_[1]`` and, if asked, how uncertain they are.

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs)
        return_std : bool, default=False

        Returns
        -------
        log_odds : ndarray of shape (n,)
            Those of ``predict_proba``: positive where ``predict`` says ``classes_[1]``.
        std : ndarray of shape (n,), only if ``return_std``
            Standard deviation of the log odds over the posterior.
        """
        means, variances = self._moments(X)
        first, second = self._probabilities(means, variances)
        log_odds = np.log(second) - np.log(first)
        if return_std:
            spread = (means + self._offsets).var(axis=0)
            return log_odds, np.sqrt(variances.mean(axis=0) + spread)
        return log_odds

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, averaged over the posterior: (n, 2)."""
        return self._probabilities(*self._moments(X)).T

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of ``predict_proba``: (n, 2)."""
        return np.log(self.predict_proba(X))

    @property
    def _offsets(self) -> Array:
        """What f departs from in every start: (S, 1)."""
        return np.array([[_offset(state)] for state in self.posterior_])

    def _probabilities(self, means: Array, variances: Array) -> Array:
        """Return the probabilities of both classes, each to its last digits: (2, n)."""
        log_odds = means + self._offsets
        both = [expected_sigmoid(sign * log_odds, variances).mean(axis=0) for sign in (-1, 1)]
        return np.maximum(both, np.finfo(float).tiny)

    def predict(self, X: Any) -> Array:
        """Return the more probable class of each row: (n,)."""
        probability = self.predict_proba(X)
        return self.classes_[(probability[:, 1] > 0.5).astype(int)]

    def predict_proba_interval(self, X: Any, level: float = 0.95) -> Array:
        """Return the central interval that holds the probability of ``classes_[1]``: (n, 2).

        It tells how sure the model is about the probability, with this posterior probability.
        """
        means, variances = self._moments(X)
        normal = np.full(len(means), 1e9)  # degrees of freedom: a normal distribution
        log_odds = PredictiveDistribution(
            means + self._offsets, np.maximum(variances, 1e-300), np.zeros(len(means)), normal
        )
        return np.asarray(expit(log_odds.interval(level)))


def _offset(state: State) -> float:
    """Return what f departs from."""
    assert isinstance(state.likelihood, Bernoulli)
    return state.likelihood.offset
