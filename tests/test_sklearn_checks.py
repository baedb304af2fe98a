"""scikit-learn's own checks, and the estimator inside scikit-learn's tools."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    estimator_checks_generator,
    parametrize_with_checks,
)

from btnkm import BTNClassifier, BTNRegressor, Gamma, Priors, Solver, TensorTrain
from btnkm.bases import Chebyshev

SMALL = {"n_init": 1, "max_iter": 4, "max_rank": 3, "n_basis": 5, "random_state": 0}
GIVEN = {**SMALL, "structure": "sums+tensor"}
TRAIN = {**SMALL, "max_iter": 2, "max_rank": 2, "n_basis": 4, "network": "tt"}
TRAIN |= {"solver": Solver(warm_sweeps=2, full_rows=1)}  # a full tensor is compared with SMALL
GIVEN_TRAIN = {**TRAIN, "network": TensorTrain(cores="full", order="given"), "structure": "tensor"}
WEIGHTS = check_sample_weight_equivalence_on_dense_data.__name__
#: Checks that are repeated where structures are compared: what a fit does to its input, its
#: parameters and weights, what it returns when repeated, and rows in other orders and forms.
OF_COMPARISONS = {
    "check_classifiers_train",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_readonly_memmap_input",
    "check_regressors_train",
    WEIGHTS,
    "check_sample_weights_not_overwritten",
}


def checks_of_comparisons():
    """Yield estimators that compare structures, each with the checks that this could break."""
    for kind, parameters in itertools.product((BTNRegressor, BTNClassifier), (SMALL, TRAIN)):
        for estimator, check in estimator_checks_generator(kind(**parameters), mark=None):
            name = check.func.__name__
            if name not in OF_COMPARISONS or check.keywords:
                continue
            marks = ()
            if name == WEIGHTS and (kind, parameters) != (BTNClassifier, TRAIN):
                # of trains for labels the best has all the weight
                reason = "rows held out count as rows, whatever their weights add up to"
                marks = pytest.mark.xfail(reason=reason)
            case = f"{kind.__name__}-{parameters.get('network', 'cp')}-{name}"
            yield pytest.param(estimator, check, id=case, marks=marks)


@pytest.mark.filterwarnings("ignore:no input was found")  # pure noise, or few rows
@parametrize_with_checks(
    [
        BTNRegressor(**GIVEN),
        BTNClassifier(**GIVEN),
        BTNRegressor(**GIVEN_TRAIN),
        BTNClassifier(**GIVEN_TRAIN),
    ]
)
def test_sklearn_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:no input was found")
@pytest.mark.parametrize(("estimator", "check"), [*checks_of_comparisons()])
def test_sklearn_checks_where_structures_are_compared(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:no input was found")
@pytest.mark.parametrize("structure", ["sums", "tensor", "sums+tensor"])
@pytest.mark.parametrize("kind", [BTNRegressor, BTNClassifier])
def test_a_weight_of_k_is_k_rows_in_every_structure(kind, structure):
    estimator = kind(**SMALL, structure=structure)
    check_sample_weight_equivalence_on_dense_data(kind.__name__, estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (90, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(90)


def test_pipeline_equals_its_steps(data):
    X, y = data
    model = make_pipeline(StandardScaler(), BTNRegressor(**GIVEN)).fit(X, y)
    scaled = StandardScaler().fit_transform(X)
    direct = BTNRegressor(**GIVEN).fit(scaled, y)
    np.testing.assert_array_equal(model.predict(X), direct.predict(scaled))
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == y.shape


def test_set_output_pandas_feeds_frames(data):
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = make_pipeline(SimpleImputer(), BTNRegressor(**GIVEN)).set_output(transform="pandas")
    model.fit(frame, y)
    assert list(model[-1].feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict(frame), model[-1].predict(frame))


@pytest.mark.filterwarnings("ignore:no input was found")
def test_grid_search_over_the_basis_inside(data):
    X, y = data
    search = GridSearchCV(
        BTNRegressor(**{**SMALL, "basis": Chebyshev(), "structure": "tensor"}),
        {"basis__n_basis": [1, 2, 8]},
        cv=3,
    ).fit(X, y)
    assert search.best_params_ == {"basis__n_basis": 8}
    assert max(search.best_estimator_.n_basis_) <= 8
    scores = search.cv_results_["mean_test_score"]
    assert scores[0] < scores[1] < scores[2]


@pytest.mark.filterwarnings("ignore:no input was found")
def test_cross_val_score_finds_signal(data):
    X, y = data
    assert np.mean(cross_val_score(BTNRegressor(**SMALL), X, y, cv=2)) > 0.8
    noise = np.random.default_rng(1).standard_normal(90)
    assert np.mean(cross_val_score(BTNRegressor(**SMALL), X, noise, cv=2)) < 0.2


def test_clone_keeps_parameters_and_drops_the_fit(data):
    model = BTNRegressor(
        **GIVEN, basis={0: Chebyshev(n_basis=4)}, priors=Priors(noise=Gamma(1.0, 2.0))
    )
    model.fit(*data)
    copy = clone(model)
    assert copy.priors == model.priors
    assert copy.basis[0].get_params() == model.basis[0].get_params()
    with pytest.raises(NotFittedError):
        copy.predict(data[0])
    np.testing.assert_array_equal(copy.fit(*data).predict(data[0]), model.predict(data[0]))


def test_pickle_round_trip_predicts_the_same(data):
    X, y = data
    table = np.column_stack([X.astype(object), np.where(X[:, 0] > 0, "up", "down")])
    table[3, 3] = None
    model = BTNRegressor(**SMALL).fit(table, y)
    copy = pickle.loads(pickle.dumps(model))
    for before, after in zip(
        model.predict(table, return_std=True), copy.predict(table, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(model.sample_y(table, 3), copy.sample_y(table, 3))


def test_sample_weight_reaches_fit_and_score(data):
    X, y = data
    weight = np.random.default_rng(2).uniform(0.1, 3.0, 90)
    model = make_pipeline(StandardScaler(), BTNRegressor(**GIVEN))
    weighted = model.fit(X, y, btnregressor__sample_weight=weight).predict(X)
    assert np.max(np.abs(weighted - model.fit(X, y).predict(X))) > 1e-3
