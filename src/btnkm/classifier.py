"""BTNClassifier: labels as targets, and their probabilities as predictions."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.special import expit, log_ndtr, ndtr
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from . import checks
from .core.arrays import here, host
from .core.densities import Averaged, Density, Student
from .core.likelihoods import Bernoulli, Gaussian, Softmax
from .core.likelihoods.softmax import COPY_POINTS, INTERVAL_POINTS, PROBABILITY_POINTS
from .core.recalibration import LogitScaling
from .data.dask_input import anywhere
from .data.fills import COUNT
from .data.readers import with_targets
from .estimator import Estimator, answered
from .parameters import Priors, Solver
from .plan import Defaults
from .predictive import PredictiveDistribution, check_level, mixed_variance, weighted_quantiles
from .structures.task import Target

Array = np.ndarray
CLASSIFIER_LIKELIHOODS = ("logistic", "least_squares")
_POINT_NUMBERS = 2**22  # probabilities in memory at a time


class BTNClassifier(ClassifierMixin, Estimator):
    """Bayesian kernel machine for classes, with probabilities averaged over the posterior.

    With two classes, the log odds of the second class are offset + f(x), with f as in BTNRegressor
    and an offset that starts at the log odds of all rows. With more classes, the probabilities are
    a softmax of f_k(x). The tensor of f_k is sum_r c_kr prod_d w_r^(d) . phi^(d)(x_d). All
    classes share the components, and each class has its own weights c_kr, so a class costs no more
    than a basis function. Each class has its own coefficients in the sum of main effects.
    Every update has a closed form.

    Parameters
    ----------
    basis, structure, network, n_basis, max_rank, priors, n_init, max_iter, tol, solver, \
extrapolate, calibration, memory_limit, n_jobs, random_state, callback, verbose, warm_start
        As in BTNRegressor. "auto" has other values, because labels contain less information than
        numbers. ``n_basis`` is such that there are at least four rows for every function of all
        inputs together, but at least 4 for each input. It is up to 20 if that leaves eight rows for
        every function. Without anchors the initial rank is at most 8, and ``max_rank`` is 16 up to
        10,000 rows and 8 above. ``n_init`` is 48,000 divided by the number of rows, at least 2 and
        at most 8. ``max_iter`` is 32, and 20 above 10,000 rows. Components are anchored from 8
        inputs on.
    likelihood : "logistic" or "least_squares", default="logistic"
        "least_squares" regresses the signs of two classes and uses the probability of a positive
        sign. This is the classifier of the paper, for comparison; its probabilities are poor.
    class_weight : "balanced", dict or None, default=None
        For every class, its frequency in the population divided by that in the training rows.
        "balanced" makes all classes equally frequent. The model is fitted without these weights,
        because they would make intervals for a rare class too narrow. The log odds are shifted
        afterwards, so that the probabilities are those of the population. "least_squares" has no
        log odds, so rows are weighted instead.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    calibration_ : LogitScaling or None
        How held-out rows have recalibrated the probabilities (see ``calibrate``): log probabilities
        are divided by ``temperature``, and with two classes ``offset`` is added to the log odds of
        the second. ``kind`` is "split" or "cv", and ``rows`` the number of rows. None without
        recalibration.
    structures_, weights_, best_restart_, rank_, ranks_, cores_, mode_order_, n_basis_, \
feature_importances_, feature_importances_std_, lower_bound_, lower_bounds_, history_, \
target_name_, fitted_, n_samples_seen_, n_iter_, converged_, stop_reason_, n_features_in_, \
feature_names_in_
        As in BTNRegressor, without noise in ``history_``.

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

    _defaults = Defaults(
        many_inputs=8,
        rank=8,
        rows=48_000,
        least_restarts=2,
        sweeps=32,
        sweeps_of_many=20,
        growth=(2, 1),
        rows_per_function=4,
    )

    def __init__(
        self,
        basis: Any = "auto",
        *,
        likelihood: str = "logistic",
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
        class_weight: Any = None,
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
        self.class_weight = class_weight

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.likelihood, str) or self.likelihood not in CLASSIFIER_LIKELIHOODS:
            raise ValueError(
                f"likelihood must be one of {', '.join(map(repr, CLASSIFIER_LIKELIHOODS))}, got "
                f"{self.likelihood!r}; leave it out for 'logistic'."
            )
        weight = self.class_weight
        named = isinstance(weight, str) and weight == "balanced"
        if not (weight is None or named or isinstance(weight, Mapping)):
            raise ValueError(
                f"class_weight must be None, 'balanced' or a dict from class to weight, got "
                f"{weight!r}; leave it out for none."
            )
        for label, value in weight.items() if isinstance(weight, Mapping) else ():
            number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not number or not 0.0 < float(value) < np.inf:
                raise ValueError(
                    f"class_weight must be positive for every class, got {value!r} for {label!r}; "
                    "leave out its rows instead."
                )

    _check_y = staticmethod(checks.check_labels)
    _lasting = (*Estimator._lasting, "class_weight")

    @staticmethod
    def _encoder(classes: Array, *signs: Any) -> Any:
        """Return how labels become targets: codes, or signs given what these are scaled by."""
        return partial(_signs if signs else _codes, classes, *signs)

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
                f"y must have at least two classes, got 1 class, {classes.tolist()[0]!r}; add "
                "rows of another class."
            )
        log_weights = np.log(self._class_weights(y, codes, weight))
        attributes: dict[str, Any] = {
            "classes_": classes,
            "_log_weights": log_weights - log_weights.mean(),
        }
        if self.likelihood == "least_squares":
            if len(classes) > 2:
                raise ValueError(
                    f"likelihood='least_squares' must have two classes, got {len(classes)}; "
                    "leave it out for any number."
                )
            of_class = np.ones(2)
            if self.class_weight is not None:  # signs have no odds to shift
                of_class = np.exp(log_weights)
                weight = of_class[codes] * (1.0 if weight is None else weight)
            _, likelihood, shift, scale = Gaussian().begin(2.0 * codes - 1.0, weight)
            attributes["_threshold"] = -shift / scale
            encode = self._encoder(classes, shift, scale, of_class)
            attributes |= {"_encode": encode, "_y_scale": scale}
            return Target(encode, likelihood, scale, attributes, signs=True)
        many = len(classes) if len(classes) > 2 else None
        labels = (Bernoulli() if many is None else Softmax()).begin(codes.astype(float), weight)
        encode = self._encoder(classes)
        attributes |= {"_encode": encode, "_y_scale": 1.0}
        return Target(encode, labels.likelihood, 1.0, attributes, many)

    def _same_target(self) -> Target:
        many = len(self.classes_) if len(self.classes_) > 2 else None
        return Target(self._encode, self.likelihood_, self._y_scale, {}, many)

    def _states(self) -> tuple[Any, ...]:
        if isinstance(self.likelihood_, Gaussian):
            return self.posterior_
        return tuple(
            replace(state, likelihood=likelihood.shifted(-self._log_weights))
            for state, likelihood in zip(self.posterior_, self._likelihoods, strict=True)
        )

    def partial_fit(  # type: ignore[override]  # scikit-learn has classes third
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        forget: float = 1.0,
    ) -> Self:
        """Update the model with a batch of rows; see ``BTNRegressor.partial_fit``.

        The first batch must contain all classes.

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``.
        classes : array or None
            All classes. With them, an unknown class, or a class that is missing in the first
            batch, raises an error.
        forget : float, default=1.0
            Factor of the weights of all earlier rows. Below 1 the model follows drift: with
            batches of b rows it remembers about b / (1 - forget) rows.
        """
        if classes is not None:
            self._check_classes(classes, with_targets(X, y, None)[1])
        return super().partial_fit(X, y, sample_weight, forget=forget)

    def _check_classes(self, classes: Any, y: Any) -> None:
        """Raise a ValueError unless these are all classes, and the first batch contains them."""
        array = np.asarray(classes)
        if array.ndim != 1 or len({type(label) for label in array.tolist()}) > 1:
            raise ValueError(
                f"classes must be an array of labels, got {classes!r}; pass weights of rows as "
                "sample_weight=..."
            )
        known, there = set(array.tolist()), None
        if hasattr(self, "classes_"):
            there = set(self.classes_.tolist())
        elif hasattr(y, "__len__") and not isinstance(y, str):
            there = set(checks.check_labels(type(self).__name__, here(y)).tolist())
        if there is None or there == known:
            return
        if there - known or hasattr(self, "classes_"):
            raise ValueError(
                f"classes must contain all classes, {_some(there)}, got {_some(known)}; pass "
                "weights of rows as sample_weight=..."
            )
        raise ValueError(
            f"the first batch must contain every class, got none of {_some(known - there)}; "
            "make it larger."
        )

    def _class_weights(self, y: Array, codes: Array, weight: Array | None) -> Array:
        """Return the weight of each class: (n_classes,)."""
        rows = np.bincount(codes, weights=weight)
        if self.class_weight is None:
            return np.ones(len(rows))
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            return rows.sum() / (len(rows) * rows)
        by_row = compute_sample_weight(self.class_weight, y)
        return np.asarray(by_row[np.unique(codes, return_index=True)[1]])

    def _finish(self) -> None:
        if isinstance(self.likelihood_, Gaussian) or not np.any(self._log_weights):
            return
        best: Any = self.likelihood_
        self.likelihood_ = best.shifted(self._log_weights)
        self.posterior_ = tuple(
            replace(state, likelihood=likelihood.shifted(self._log_weights))
            for state, likelihood in zip(self.posterior_, self._likelihoods, strict=True)
        )

    @anywhere
    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Return the log odds of ``classes_[1]``, and optionally their standard deviation.

        With more than two classes, return log probabilities minus their mean over the classes.

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs)
        return_std : bool, default=False

        Returns
        -------
        decision : ndarray of shape (n,) or (n, n_classes)
            Computed from ``predict_proba``: positive if ``predict`` returns ``classes_[1]``, or
            highest for the predicted class.
        std : ndarray of the same shape, only if ``return_std``
            Posterior standard deviation of offset + f, minus its mean over the classes if there
            are more than two.
        """
        check_is_fitted(self)
        scaling = self._scaling
        if len(self.classes_) > 2:
            log_p = np.log(self._probabilities(X))
            decision = log_p - log_p.mean(axis=1, keepdims=True)
            decision = answered(X, decision)
            if not return_std:
                return decision
            columns = self.fitted_.encode(X)
            offsets = np.array([[likelihood.offsets] for likelihood in self._likelihoods])
            offsets = offsets - offsets.mean(axis=2, keepdims=True)
        else:
            columns = self.fitted_.encode(X)
            log_p = np.log(self._of_two(columns))
            decision = answered(X, scaling.log_odds(log_p[1] - log_p[0]))
            if not return_std:
                return decision
            offsets = self._offsets()
        return decision, answered(X, scaling.slope * self._std(columns, offsets))

    @anywhere
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, averaged over the posterior: (n, n_classes)."""
        return answered(X, self._probabilities(X))

    def _std(self, columns: list[Any], offsets: Any) -> Array:
        """Return the standard deviation of offset + f, less its mean over many classes: (n, ..)."""

        def moments(columns: Sequence[Any]) -> Array:
            both = self.fitted_.predict(columns, lambda model, rows: model.contrasts(rows), 2)
            means, variances = host(both)
            means = means + offsets
            return np.stack([means, variances + means**2])

        if not len(self.fitted_.fills.rows(columns)):
            both = self.fitted_.predict(columns, lambda model, rows: model.contrasts(rows), 2)
            means, variances = host(both)
            return np.sqrt(mixed_variance(self.weights_, means + offsets, variances))
        means, squares = self.fitted_.averaged(columns, moments, 2)
        variances = np.maximum(squares - means**2, 0.0)
        return np.sqrt(mixed_variance(self.weights_, means, variances))

    @property
    def _scaling(self) -> LogitScaling:
        """The recalibration, or one that changes nothing."""
        return LogitScaling("", 0) if self.calibration_ is None else self.calibration_

    def _outcomes(self, X: Any, y: Array) -> tuple[Array, ...]:
        """Return log probabilities without recalibration (n, K), and the codes of the classes."""
        known = set(self.classes_.tolist())
        other = [label for label in y.tolist() if label not in known]
        if other:
            raise ValueError(
                f"y must contain only classes of the model, {_some(known)}, got {other[0]!r}; "
                "leave such rows out."
            )
        codes, _ = _codes(self.classes_, y, y)
        return np.log(self._unscaled(X)), codes.astype(int)

    def _recalibration(self, kind: str, outcomes: tuple[Array, ...]) -> LogitScaling:
        return LogitScaling.of(kind, *outcomes)

    def _probabilities(self, X: Any) -> Array:
        p = self._unscaled(X)
        return p if self.calibration_ is None else self.calibration_.probabilities(p)

    def _unscaled(self, X: Any) -> Array:
        """Return the probabilities of the classes without recalibration: (n, K)."""
        check_is_fitted(self)
        columns = self.fitted_.encode(X)
        if len(self.classes_) == 2:
            return self._of_two(columns).T
        probability = self.fitted_.averaged(columns, self._of_many, 0)
        return np.maximum(probability, np.finfo(float).tiny)

    def _of_many(self, columns: Sequence[Any]) -> Array:
        """Return the probabilities of more than two classes: (n, K)."""
        points = self._points(columns, PROBABILITY_POINTS)
        share = np.repeat(self.weights_ / PROBABILITY_POINTS, PROBABILITY_POINTS)
        return np.concatenate([np.tensordot(share, p, 1) for p in points])

    @anywhere
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of ``predict_proba``: (n, n_classes)."""
        return answered(X, np.log(self._probabilities(X)))

    @anywhere
    def predict(self, X: Any) -> Array:
        """Return the most probable class of each row: (n,)."""
        most = np.argmax(self._probabilities(X), axis=1)
        labels = self.classes_[most]
        return answered(X, labels) if labels.dtype.kind in "biuf" else labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy for labels y (n,), which may be the name of a column of X."""
        X, y, sample_weight = with_targets(X, y, sample_weight)
        predicted = here(self.predict(X))
        return float(accuracy_score(here(y), predicted, sample_weight=here(sample_weight)))

    @anywhere
    def predict_proba_interval(self, X: Any, level: float = 0.95) -> Array:
        """Return the central credible interval of the probability of each class.

        It shows how certain the model is about the probability. With more than two classes the ends
        are quantiles of 1024 points per restart, so levels beyond .99 are approximate.

        Returns
        -------
        ndarray of shape (n, 2), for ``classes_[1]``; of shape (n, n_classes, 2) for more than two
        """
        check_is_fitted(self)
        levels = check_level(level)
        columns = self.fitted_.encode(X)
        if len(self.classes_) > 2:
            ends = self._quantiles(columns, levels)
            rows = self.fitted_.fills.rows(columns)
            points = COUNT * COPY_POINTS * len(self.weights_) * len(self.classes_)  # of a row
            size = max(1, _POINT_NUMBERS // points)
            for begin in range(0, len(rows), size):
                some = rows[begin : begin + size]
                ends[:, some] = self._quantiles(columns, levels, some)
            return answered(X, np.moveaxis(ends, 0, -1))
        blocks = self.fitted_.copied_blocks(columns)
        ends = np.concatenate([self._ends_of_two(block, levels) for _, block in blocks])
        if isinstance(self.likelihood_, Gaussian):
            noise = self.likelihood_.noise_std  # the probability is that it leaves the sign alone
            ends = (ends - self._threshold) / noise
            if self.calibration_ is None:
                return answered(X, np.asarray(ndtr(ends)))
            ends = log_ndtr(ends) - log_ndtr(-ends)
        return answered(X, np.asarray(expit(self._scaling.log_odds(ends))))

    def _ends_of_two(self, columns: Sequence[Any], levels: list[float]) -> Array:
        """Return quantiles of offset + f, with two classes: (n, k)."""
        parts, rows = self._normals(columns), self.fitted_.fills.rows(columns)
        if len(rows):
            copies = self._normals(self.fitted_.fills.copies(columns, rows))
            parts = [Averaged(part, rows, copy) for part, copy in zip(parts, copies, strict=True)]
        return PredictiveDistribution(parts, weights=self.weights_).quantile(levels)

    def _normals(self, columns: Sequence[Any]) -> list[Density]:
        """Return the distribution of offset + f in each restart, with two classes."""
        means, variances = self._moments_at(columns)
        return [  # so many degrees of freedom make a normal distribution
            Student(mean, np.maximum(variance, 1e-300), 0.0, 1e9)
            for mean, variance in zip(means + self._offsets(), variances, strict=True)
        ]

    def _quantiles(
        self, columns: Sequence[Any], levels: list[float], rows: Array | None = None
    ) -> Array:
        """Return quantiles of the probabilities of more than two classes: (k, n, K).

        Those of some ``rows`` are of the mixture over their copies.
        """
        count = INTERVAL_POINTS
        if rows is not None:
            columns, count = self.fitted_.fills.copies(columns, rows), COPY_POINTS
        points = self._points(columns, count)
        if self.calibration_ is not None:
            points = map(self.calibration_.probabilities, points)
        share = np.repeat(self.weights_ / count, count)
        if rows is None:
            both = [weighted_quantiles(p, share, levels) for p in points]
            return np.concatenate(both, axis=1)
        p = np.concatenate(list(points), axis=1).reshape(
            len(share), -1, len(rows), len(self.classes_)
        )
        copies = p.shape[1]
        return weighted_quantiles(
            p.reshape(-1, *p.shape[2:]), np.repeat(share / copies, copies), levels
        )

    def _points(self, columns: Sequence[Any], count: int) -> Iterator[Array]:
        """Yield the probabilities at points spread over the posterior: (S count, n, K) by block."""
        fitted = self.fitted_
        predictors = fitted.predictors
        numbers = count * len(self.classes_) * len(predictors)  # of a row
        for _, features in fitted.row_blocks(columns, max(1, _POINT_NUMBERS // numbers)):
            parts = []
            for predictor, state, features_of in zip(
                predictors, self.posterior_, features, strict=True
            ):
                likelihood: Any = state.likelihood
                joint = predictor.joint(features_of.__getitem__)
                parts.append(likelihood.probabilities(*joint, count=count))
            yield np.concatenate(parts)

    @property
    def _likelihoods(self) -> list[Any]:
        return [state.likelihood for state in self.posterior_]

    def _offsets(self) -> Any:
        """Return the offset of f in every restart, with two classes: (S, 1)."""
        if isinstance(self.likelihood_, Gaussian):
            return 0.0
        return np.array([[likelihood.offset] for likelihood in self._likelihoods])

    def _of_two(self, columns: list[Any]) -> Array:
        """Return the probabilities of two classes, each with full precision: (2, n)."""
        probability = self.fitted_.averaged(columns, self._of_two_at, 1)
        return np.maximum(probability, np.finfo(float).tiny)

    def _of_two_at(self, columns: Sequence[Any]) -> Array:
        means, variances = self._moments_at(columns)
        parts = []
        for likelihood, mean, variance in zip(self._likelihoods, means, variances, strict=True):
            if isinstance(likelihood, Gaussian):
                signs = [(1.0, self._threshold), (-1.0, -self._threshold)]
                parts.append(
                    [likelihood.predictive(sign * mean, variance).cdf(at) for sign, at in signs]
                )
            else:
                parts.append(likelihood.predictive(mean, variance).probabilities)
        return np.asarray(np.tensordot(self.weights_, parts, 1))


def _codes(classes: Array, y: Array, weight: Array) -> tuple[Array, Array]:
    """Return the position of each row's class in ``classes``, and the weights unchanged."""
    codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    other = classes[codes] != y
    if np.any(other):
        raise ValueError(
            f"y must contain only the classes of the first rows, {classes.tolist()[:10]}, got "
            f"{y[other].tolist()[0]!r}; fit anew, with every class among the first rows."
        )
    return codes.astype(float), weight


def _signs(
    classes: Array, shift: float, scale: float, of_class: Array, y: Array, weight: Array
) -> tuple[Array, Array]:
    """Return the class as a standardised sign, and the weights times that of the class."""
    codes, weight = _codes(classes, y, weight)
    return (2.0 * codes - 1.0 - shift) / scale, weight * of_class[codes.astype(int)]


def _some(labels: set[Any]) -> str:
    """Return the labels, or the first ten of them, as text."""
    listed = sorted(labels, key=str)
    return f"{listed[:10]!r}" if len(listed) <= 10 else f"{listed[:10]!r} and others"
