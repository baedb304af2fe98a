"""The methods of classification, built like those of `benchmarks.methods`.

Here `predictive(X)` returns the classes and their probabilities (see `btnkm.metrics`).
"""

import numpy as np

from benchmarks.methods import parameters_of
from btnkm.metrics import ClassPredictive


class Constant:
    """Predict the frequencies of the classes in the training rows: the least to expect."""

    rank = None

    def fit(self, X, y):
        """Count the classes of `y`."""
        self.classes, counts = np.unique(y, return_counts=True)
        self.frequencies = counts / len(y)
        return self

    def predictive(self, X):
        """Return the same probabilities for each row."""
        return ClassPredictive(self.classes, np.tile(self.frequencies, (len(X), 1)))


class Estimator:
    """A method with a scikit-learn estimator, `model`, which subclasses set."""

    rank = None

    def fit(self, X, y):
        """Fit the estimator on raw inputs."""
        self.model.fit(X, y)
        return self

    def predictive(self, X):
        """Return the probabilities of the estimator."""
        return ClassPredictive(self.model.classes_, self.model.predict_proba(X))


class BTN(Estimator):
    """Bayesian tensor-network kernel machine: `btnkm.BTNClassifier`."""

    def __init__(self, **config):
        from btnkm import BTNClassifier

        self.model = BTNClassifier(**parameters_of(config))

    @property
    def rank(self):
        """Mean rank over the restarts."""
        return float(np.mean(self.model.rank_))


class BTNOneVsRest(Estimator):
    """One `btnkm.BTNClassifier` per class, its rows against all others.

    scikit-learn's `OneVsRestClassifier` divides the probabilities by their sum.
    """

    def __init__(self, **config):
        from sklearn.multiclass import OneVsRestClassifier

        from btnkm import BTNClassifier

        self.model = OneVsRestClassifier(BTNClassifier(**parameters_of(config)))

    @property
    def rank(self):
        """Mean rank over the classes and the restarts."""
        return float(np.mean([np.mean(model.rank_) for model in self.model.estimators_]))


class HGB(Estimator):
    """Histogram gradient boosting; it takes the categories of a DataFrame as they are."""

    def __init__(self, **config):
        from sklearn.ensemble import HistGradientBoostingClassifier

        self.model = HistGradientBoostingClassifier(**config)


def encoder(**options):
    """Return a transformer of DataFrames: standardised numbers, and indicators of categories."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    indicators = OneHotEncoder(handle_unknown="ignore", **options)
    return make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="number")),
        (indicators, make_column_selector(dtype_include="category")),
    )


class Logistic(Estimator):
    """Logistic regression on standardised numbers and one indicator for each category."""

    def __init__(self, **config):
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        regression = LogisticRegression(**config)
        self.of_table = make_pipeline(encoder(), regression)
        self.of_array = make_pipeline(StandardScaler(), regression)

    def fit(self, X, y):
        """Fit the pipeline that suits the kind of table."""
        self.model = self.of_table if hasattr(X, "columns") else self.of_array
        return super().fit(X, y)


#: Name to class and default configuration.
CLASSIFIERS = {
    "btn": (BTN, {"random_state": 0}),
    "btn-ovr": (BTNOneVsRest, {"random_state": 0}),
    "hgb": (HGB, {"random_state": 0}),
    "logistic": (Logistic, {"max_iter": 2000}),
    "constant": (Constant, {}),
}
