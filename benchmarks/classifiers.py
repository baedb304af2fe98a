"""The methods of classification, built like those of `benchmarks.methods`.

Here `predictive(X)` returns the classes and their probabilities (see `btnkm.metrics`).
"""

import numpy as np

from benchmarks.methods import parameters_of
from btnkm.metrics import ClassPredictive


class Constant:
    """Predict the shares of the classes among the training rows: the floor."""

    rank = None

    def fit(self, X, y):
        """Count the classes of `y`."""
        self.classes, counts = np.unique(y, return_counts=True)
        self.shares = counts / len(y)
        return self

    def predictive(self, X):
        """Return the same probabilities for each row."""
        return ClassPredictive(self.classes, np.tile(self.shares, (len(X), 1)))


class Estimator:
    """What methods around a scikit-learn estimator share; they set `model`."""

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
        """Mean rank over the starts."""
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
        """Mean rank over the classes and the starts."""
        return float(np.mean([np.mean(model.rank_) for model in self.model.estimators_]))


class HGB(Estimator):
    """Histogram gradient boosting; it takes the categories of a DataFrame as they are."""

    def __init__(self, **config):
        from sklearn.ensemble import HistGradientBoostingClassifier

        self.model = HistGradientBoostingClassifier(**config)


class Logistic(Estimator):
    """Logistic regression on standardised numbers and one indicator per level of a category."""

    def __init__(self, **config):
        from sklearn.compose import make_column_selector, make_column_transformer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        numbers = make_column_selector(dtype_include="number")
        categories = make_column_selector(dtype_include="category")
        columns = make_column_transformer(
            (StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), categories)
        )
        regression = LogisticRegression(**config)
        self.of_table = make_pipeline(columns, regression)
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
