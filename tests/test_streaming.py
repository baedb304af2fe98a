"""Batches one after the other come close to all rows at once, and a fit can go on from another."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from btnkm import BTNClassifier, BTNRegressor, Solver, TensorTrain, estimator, streaming
from btnkm.data import column_stats, readers
from btnkm.parameters import with_options

SMALL = {"n_basis": 6, "max_rank": 4, "n_init": 2, "max_iter": 30, "random_state": 0, "n_jobs": 1}
SMALL |= {"structure": "tensor"}


def rows(n, seed, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    f = np.sin(3.0 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2
    return X, f, f + noise * rng.standard_normal(n)


def batches(n, count):
    return np.array_split(np.arange(n), count)


@pytest.fixture
def no_window(monkeypatch):
    """Let go of every row as soon as it was heard."""
    monkeypatch.setattr(streaming, "WINDOW", 0)


@pytest.mark.usefixtures("no_window")
@pytest.mark.parametrize("kind", ["cp", "tt", "student_t"])
def test_batches_come_close_to_all_rows(kind):
    X, _, y = rows(2000, 0)
    new, f, y_new = rows(1000, 1)
    more = {"likelihood": "student_t"} if kind == "student_t" else {"network": kind}
    if kind == "tt":
        more |= {"network": TensorTrain(cores="full", order="given")}
    model = BTNRegressor(**SMALL, **more)

    def gap():
        distribution = model.predict_dist(new)
        low, high = model.predict_interval(new, level=0.9).T
        return (
            np.sqrt(np.mean((distribution.mean - f) ** 2)),
            -np.mean(distribution.logpdf(y_new)),
            np.mean((y_new >= low) & (y_new <= high)),
        )

    model.fit(X[:250], y[:250])
    first = gap()
    model.fit(X, y)
    whole = gap()
    streamed = BTNRegressor(**SMALL, **more)
    for part in batches(2000, 8):
        streamed.partial_fit(X[part], y[part])
    model = streamed
    error, nll, coverage = gap()
    assert error < whole[0] + 0.25 * (first[0] - whole[0])
    assert nll < whole[1] + 0.01
    assert 0.86 < coverage < 0.94
    assert streamed.noise_std_ == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize("window", [0, 10_000])
def test_labels_in_batches(window, monkeypatch):
    monkeypatch.setattr(streaming, "WINDOW", window)
    X, _, y = rows(2000, 0)
    new, _, y_new = rows(1000, 1)
    nll = []
    for count in (1, 4):
        model = BTNClassifier(**SMALL)
        for part in batches(2000, count):
            model.partial_fit(X[part], y[part] > 0.3)
        p = model.predict_proba(new)
        nll.append(-np.mean(np.log(p[np.arange(len(new)), (y_new > 0.3).astype(int)])))
    assert nll[1] < nll[0] + 0.01
    before = model.predict_proba(new)
    with pytest.raises(ValueError, match=r"classes of the first rows, \[False, True\], got 2"):
        model.partial_fit(X, np.full(2000, 2))
    np.testing.assert_array_equal(model.predict_proba(new), before)


def with_new_components(model, most):
    """Let a model get at most so many components with every batch."""
    model._defaults = model._defaults._replace(new_components=most)
    return model


@pytest.mark.usefixtures("no_window")
def test_what_is_forgotten_makes_room_for_what_is_new():
    X, f, y = rows(600, 0, noise=0.1)
    other, g, z = rows(600, 1, noise=0.1)
    errors = {}
    for forget in (1.0, 0.2):
        # without new components, of which nothing is to be forgotten
        model = with_new_components(BTNRegressor(**SMALL), 0).partial_fit(X, y)
        for _ in range(3):
            model.partial_fit(other, -z, forget=forget)  # the world has turned
        errors[forget] = np.sqrt(np.mean((model.predict(other) + g) ** 2))
    assert errors[0.2] < 0.3 * errors[1.0]


def test_a_streamed_model_can_be_stored_on_the_way():
    X, _, y = rows(600, 0)
    model = BTNRegressor(**SMALL).partial_fit(X[:300], y[:300])
    stored = pickle.loads(pickle.dumps(model))
    for m in (model, stored):
        m.partial_fit(X[300:], y[300:])
    np.testing.assert_array_equal(model.predict(X), stored.predict(X))


@pytest.mark.usefixtures("no_window")
def test_batches_may_follow_a_fit():
    X, _, y = rows(600, 0)
    models = [BTNRegressor(**SMALL).fit(X[:300], y[:300])]
    models.append(BTNRegressor(**SMALL).partial_fit(X[:300], y[:300]))
    for model in models:
        model.partial_fit(X[300:], y[300:])
    np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X))


@pytest.mark.usefixtures("no_window")
def test_importance_is_that_of_the_function_whatever_the_batch():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (630, 2))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(630)
    model = BTNRegressor(**SMALL).partial_fit(X[:600], y[:600]).partial_fit(X[600:], y[600:])
    assert model.feature_importances_[0] > 0.98


def test_later_batches_must_hold_what_the_likelihood_is_for():
    X, f, _ = rows(300, 0)
    counts = np.random.default_rng(0).poisson(np.exp(f)).astype(float)
    model = BTNRegressor(**SMALL, likelihood="negative_binomial").partial_fit(X, counts)
    with pytest.raises(ValueError, match="must hold counts"):
        model.partial_fit(X, counts - 3.0)
    model.partial_fit(X[:5], np.zeros(5))
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize("likelihood", ["negative_binomial", "poisson"])
@pytest.mark.parametrize("wrong", [-10.0, 0.5, 1e10])
def test_a_small_batch_must_hold_what_the_likelihood_is_for(likelihood, wrong):
    X, _, _ = rows(60, 0)
    counts = np.random.default_rng(0).poisson(np.exp(1.0 + 2.0 * X[:, 0])).astype(float)
    how = {**SMALL, "n_init": 1, "max_iter": 5, "likelihood": likelihood}
    how |= {"structure": "sums", "warm_start": True}
    fitted = BTNRegressor(**how).fit(X, counts)
    before = fitted.predict(X)
    with pytest.raises(ValueError, match="must hold counts"):
        fitted.fit(X, counts + wrong)
    with pytest.raises(ValueError, match="must hold counts"):
        fitted.partial_fit(X[:5], counts[:5] + wrong)
    np.testing.assert_array_equal(fitted.predict(X), before)
    streamed = BTNRegressor(**how).partial_fit(X, counts)
    with pytest.raises(ValueError, match="must hold counts"):
        streamed.partial_fit(X[:5], counts[:5] + wrong)
    streamed.partial_fit(X[:5], np.zeros(5))
    assert np.all(np.isfinite(streamed.predict(X)))


def test_a_stop_before_all_restarts_have_gone_on_changes_nothing():
    X, _, y = rows(300, 0)
    model = BTNRegressor(**SMALL, warm_start=True).fit(X, y)
    before = model.predict(X)
    model.set_params(callback=lambda entry: True)
    with pytest.warns(ConvergenceWarning, match="the model is unchanged"):
        model.fit(X, y)
    np.testing.assert_array_equal(model.predict(X), before)
    assert len(model.posterior_) == 2


def test_partial_fit_says_what_it_cannot_do():
    X, _, y = rows(100, 0)
    model = BTNRegressor(**{**SMALL, "max_iter": 3})
    for forget in (0.0, 1.5, "much", True):
        with pytest.raises(ValueError, match="forget must be above 0 and at most 1"):
            model.partial_fit(X, y, forget=forget)
    with pytest.raises(ValueError, match=r"got none of \[2\]; make it larger"):
        BTNClassifier(**SMALL).partial_fit(X, y > 0.3, classes=[0, 1, 2])
    fresh = BTNRegressor(**{**SMALL, "max_iter": 3}).partial_fit(X, y)
    with pytest.raises(ValueError, match="3 features"):
        fresh.partial_fit(X[:, :2], y)


@pytest.mark.parametrize("estimator", [BTNRegressor, BTNClassifier])
def test_a_fit_goes_on_from_the_posterior_there_is(estimator):
    X, _, y = rows(500, 0)
    y = y if estimator is BTNRegressor else y > 0.3
    short = estimator(**{**SMALL, "max_iter": 4, "tol": 0.0}, warm_start=True).fit(X, y)
    bound, sweeps = short.lower_bound_, short.n_iter_
    short.fit(X, y)
    assert short.n_iter_ < sweeps  # no phase before the exact one
    assert short.lower_bounds_[0] >= bound - 1e-6 * abs(bound)
    assert short.lower_bound_ > bound
    anew = estimator(**{**SMALL, "max_iter": 4, "tol": 0.0}).fit(X, y)
    assert anew.fit(X, y).n_iter_ == sweeps
    with pytest.raises(ValueError, match="leave one of them out"):
        short.fit(X, y, checkpoint="somewhere")


def test_classes_that_weigh_more_still_do_after_going_on():
    X, _, y = rows(500, 0)
    model = BTNClassifier(**SMALL, class_weight="balanced", warm_start=True).fit(X, y > 0.8)
    before = model.predict_proba(X)[:, 1].mean()
    for _ in range(2):
        model.fit(X, y > 0.8)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(before, abs=0.02)


@pytest.mark.usefixtures("no_window")
def test_of_one_input_batches_say_what_all_rows_do():
    """With no other mode that could move, what is kept of rows is all that they say."""
    X, _, y = rows(400, 0)
    X, how = X[:, 2:], {**SMALL, "n_init": 1, "max_iter": 200, "tol": 0.0}
    how["solver"] = Solver(prune=False)
    model, whole = (BTNRegressor(**how, warm_start=True).fit(X[::2], y[::2]) for _ in range(2))
    alone = model.predict(X)
    model.partial_fit(X[1::2], y[1::2])
    whole.fit(X, y)  # in the scales of the first rows, as those of a stream are
    assert np.abs(model.predict(X) - alone).max() > 0.01
    # beyond the range of the first rows, variances depend on which rows are looked at
    X = np.clip(X, X[::2].min(axis=0), X[::2].max(axis=0))
    for a, b in zip(*(m.predict(X, return_std=True) for m in (model, whole)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def products(n, seed):
    """Return rows of a function that takes six products, more than few rows can show."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 6))
    pairs = [(X[:, k], X[:, (k + 1) % 6]) for k in range(6)]
    f = sum(np.sin((1 + k) * a + k) * np.cos(2.0 * b) for k, (a, b) in enumerate(pairs))
    return X, f, f + 0.3 * rng.standard_normal(n)


@pytest.mark.usefixtures("no_window")
@pytest.mark.parametrize("kind", ["cp", "tt", "anchored"])
def test_the_rank_grows_with_the_rows(kind):
    X, _, y = products(3000, 0)
    new, f, _ = products(1000, 1)
    how = {**SMALL, "n_basis": 8, "max_rank": 12, "n_init": 1}
    if kind == "tt":
        how |= {"network": TensorTrain(cores="full", order="given"), "max_rank": 5}
    elif kind == "anchored":
        how |= {"solver": Solver(anchored=True)}
    errors, ranks = [], []
    for new_components in (0, BTNRegressor._defaults.new_components):
        model = with_new_components(BTNRegressor(**how), new_components)
        for part in batches(3000, 10):
            model.partial_fit(X[part], y[part])
        errors.append(np.sqrt(np.mean((model.predict(new) - f) ** 2)))
        ranks.append(np.max(model.rank_))
    assert ranks[1] > ranks[0]
    assert errors[1] < 0.9 * errors[0]


@pytest.mark.usefixtures("no_window")
def test_the_rank_of_many_classes_grows():
    X, f, _ = products(1500, 0)
    labels = np.digitize(f, [-0.7, 0.7])
    model = BTNClassifier(**{**SMALL, "n_init": 1, "max_rank": 8})
    for part in batches(1500, 3):
        model.partial_fit(X[part], labels[part])
    assert model.score(X, labels) > 0.6


def with_groups(n, levels, seed):
    rng = np.random.default_rng(seed)
    g, x = rng.integers(0, levels, n), rng.uniform(-1.0, 1.0, n)
    f = np.sin(3.0 * x) + np.cos(7.0 * g) * (1.0 + 0.5 * x)
    table = pd.DataFrame({"g": [f"level {k}" for k in g], "x": x})
    table.loc[:2, "g"] = None
    return table, np.where(np.arange(n) < 3, np.nan, f), f + 0.2 * rng.standard_normal(n)


@pytest.mark.parametrize("window", [0, 10_000])
@pytest.mark.parametrize(("few", "many"), [(3, 6), (12, 16), (30, 50)])
def test_categories_that_come_later_join_in(few, many, window, monkeypatch):
    monkeypatch.setattr(streaming, "WINDOW", window)
    first, _, y = with_groups(800, few, 0)
    then, _, z = with_groups(800, many, 1)
    new, f, y_new = with_groups(1000, many, 2)
    late = new["g"].isin([f"level {k}" for k in range(few, many)]).to_numpy()
    how = {**SMALL, "n_init": 1}
    model = BTNRegressor(**how).partial_fit(first, y)
    unknown = np.sqrt(np.nanmean((model.predict(new) - f)[late] ** 2))
    model.partial_fit(then, z)
    whole = BTNRegressor(**how).fit(pd.concat([first, then]), np.append(y, z))
    for part in (late, ~late):
        error, best = (np.sqrt(np.nanmean((m.predict(new) - f)[part] ** 2)) for m in (model, whole))
        assert error < max(1.4 * best, 0.05)
    assert np.sqrt(np.nanmean((model.predict(new) - f)[late] ** 2)) < 0.2 * unknown
    low, high = model.predict_interval(new, level=0.9).T
    assert np.mean((y_new >= low) & (y_new <= high)) > 0.84
    assert model.columns_[0].basis.n_functions_ > many
    model.partial_fit(first.iloc[:50], y[:50])
    assert np.all(np.isfinite(model.predict(new)))


@pytest.mark.usefixtures("no_window")
def test_categories_of_single_rows_share_one():
    first, _, y = with_groups(800, 30, 0)
    then, _, z = with_groups(100, 30, 1)
    then["g"] = [f"row {k}" for k in range(100)]
    model = BTNRegressor(**{**SMALL, "n_init": 1}).partial_fit(first, y)
    before = model.columns_[0].basis.n_functions_
    model.partial_fit(then, z)
    assert model.columns_[0].basis.n_functions_ == before + 1
    then["g"] = [f"another row {k}" for k in range(100)]
    model.partial_fit(then, z)
    assert model.columns_[0].basis.n_functions_ == before + 1


def test_rows_of_a_short_stream_are_fitted_together():
    X, _, y = rows(600, 0)
    model = BTNRegressor(**SMALL).partial_fit(X[:300], y[:300]).partial_fit(X[300:], y[300:])
    np.testing.assert_array_equal(model.predict(X), BTNRegressor(**SMALL).fit(X, y).predict(X))
    assert len(model._window.rows.y) == 600
    assert BTNRegressor(**SMALL).fit(X, y)._window is None


def test_rows_are_kept_until_they_are_many_or_forgotten(monkeypatch):
    X, _, y = rows(700, 0)
    monkeypatch.setattr(streaming, "WINDOW", 500)
    model = BTNRegressor(**{**SMALL, "max_iter": 4})
    for n in (300, 100, 100):
        model.partial_fit(X[:n], y[:n])
    assert (len(model._window.rows.y), model._window.fitted, model._window.since) == (500, 300, 200)
    model.partial_fit(X[:50], y[:50])
    assert model._window is None
    model = BTNRegressor(**{**SMALL, "max_iter": 4})
    for _ in range(3):
        model.partial_fit(X[:100], y[:100], forget=0.05)
    assert np.unique(model._window.rows.weight).tolist() == [0.05, 1.0]


def test_a_stream_that_cannot_begin_again_stays_as_it_was():
    X, _, y = rows(400, 0)
    model = BTNRegressor(**SMALL).partial_fit(X[:200], y[:200])
    before = model.predict(X)

    def fail(entry):
        raise OSError("no more")

    model.set_params(callback=fail)
    with pytest.raises(OSError, match="no more"):
        model.partial_fit(X[200:], y[200:])
    np.testing.assert_array_equal(model.predict(X), before)
    model.set_params(callback=None).partial_fit(X[200:], y[200:])
    assert len(model._window.rows.y) == 400


@pytest.mark.usefixtures("no_window")
def test_a_stop_in_mid_batch_leaves_a_stream_as_it_was():
    X, _, y = rows(400, 0)
    model = BTNRegressor(**SMALL).partial_fit(X[:200], y[:200])
    before = model.predict(X)
    model.set_params(callback=lambda entry: entry["phase"] == "exact")
    with pytest.warns(ConvergenceWarning, match="the model is unchanged"):
        model.partial_fit(X[200:], y[200:])
    np.testing.assert_array_equal(model.predict(X), before)
    model.set_params(callback=None).partial_fit(X[200:], y[200:])


@pytest.mark.usefixtures("no_window")
@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("kind", ["level", "gap", "number"])
def test_what_is_new_in_a_batch_says_nothing_of_what_was_known(kind, anchored):
    """Rows of a level never seen, or with gaps where there were none, are about themselves."""

    def table(n, seed, levels):
        rng = np.random.default_rng(seed)
        a, k = rng.uniform(-2.0, 2.0, n), rng.choice(levels, n)
        f = np.sin(2.0 * a) + 2.0 * (k == "u") + (2.0 / 3.0) * (k == "new")
        return pd.DataFrame({"a": a, "k": k}), f + 0.1 * rng.standard_normal(n)

    X, y = table(1000, 0, list("uvw"))
    how = {**SMALL, "n_init": 1, "solver": Solver(anchored=anchored)}
    model = BTNRegressor(**how).partial_fit(X, y)
    new, y_new = table(500, 1, list("uvw"))
    later, z = table(200, 2, ["new"])
    if kind == "gap":
        later["k"] = None
    elif kind == "number":
        later, z = table(200, 2, list("uvw"))
        z = z - np.sin(2.0 * later["a"].to_numpy()) + 0.5
        later["a"] = np.nan
    before, noise = model.score(new, y_new), model.noise_std_
    unseen = model.score(later, z)
    model.partial_fit(later, z)
    assert model.score(new, y_new) > before - 0.01
    assert model.noise_std_ == pytest.approx(noise, rel=0.1)
    assert model.score(later, z) > max(unseen, 0.8)
    model.partial_fit(*table(200, 3, ["u", "another"]))
    assert model.score(new, y_new) > before - 0.01


def test_batches_may_follow_any_fit_but_a_large_one(monkeypatch):
    X, _, y = rows(400, 0)
    how = {**SMALL, "max_iter": 3}
    going_on = BTNRegressor(**how, warm_start=True).fit(X, y).fit(X, y)
    assert np.all(np.isfinite(going_on.partial_fit(X, y).predict(X)))
    for module in (column_stats, readers, streaming, estimator):
        monkeypatch.setattr(module, "MOST_ROWS", 200)
    monkeypatch.setattr(streaming, "WINDOW", 0)
    first = BTNRegressor(**how).partial_fit(X, y)  # a sample first, then all
    assert {entry["rows"] for entry in first.history_} == {200, 400}
    first.partial_fit(X, y)
    with pytest.raises(ValueError, match="use partial_fit for the first rows, too"):
        BTNRegressor(**how).fit(X, y).partial_fit(X, y)


def test_a_fit_that_was_interrupted_can_go_on():
    X, _, y = rows(400, 0)

    def stop(entry):
        if entry["phase"] == "exact":
            raise KeyboardInterrupt

    model = BTNRegressor(**{**SMALL, "n_init": 1}, callback=stop)
    with pytest.warns(ConvergenceWarning, match="Interrupted"):
        model.fit(X, y)
    model.set_params(callback=None).partial_fit(X, y)
    before = model.predict(X)
    model.set_params(callback=stop)
    with pytest.warns(ConvergenceWarning, match="the model is unchanged"):
        model.partial_fit(X[:50], y[:50])
    np.testing.assert_array_equal(model.predict(X), before)
    model.set_params(callback=None).partial_fit(X, y)


def test_what_must_not_change_is_refused():
    X, _, y = rows(300, 0)
    model = BTNRegressor(**{**SMALL, "max_iter": 3}, warm_start=True).fit(X, y)
    changes = {"network": "tt", "likelihood": "student_t", "basis": "fourier"}
    changes |= {"priors.smoothness": 2.0, "priors.basis": "off", "solver.anchored": True}
    for name, value in changes.items():
        changed = with_options({name: value})
        was = {group: getattr(model, group) for group in changed}
        model.set_params(**changed)
        for go_on in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=f"{name} must stay what it was in the first fit"):
                go_on(X, y)
        model.set_params(**was)
    model.set_params(max_iter=2, tol=0.0).fit(X, y)
    with pytest.warns(UserWarning, match="y has moved .* standard deviations of the first rows"):
        model.partial_fit(X, y + 1000.0)


def test_classes_are_looked_at_in_every_batch():
    X, _, y = rows(300, 0)
    labels = (y > 0.3).astype(int)
    fresh = BTNClassifier(**{**SMALL, "max_iter": 3})
    model = BTNClassifier(**{**SMALL, "max_iter": 3}).partial_fit(X, labels, classes=[0, 1])
    for stream in (fresh, model):
        for wrong in (np.ones(300), object(), 3, ["a", 1, None]):
            with pytest.raises(ValueError, match="pass weights of rows as sample_weight"):
                stream.partial_fit(X, labels, wrong)
    with pytest.raises(ValueError, match=r"contain all classes, \[0, 1\], got \[0, 1, 2\]"):
        model.partial_fit(X, labels, classes=[0, 1, 2])


def test_a_batch_of_no_rows_changes_nothing():
    X, _, y = rows(200, 0)
    model = BTNRegressor(**{**SMALL, "max_iter": 3}).partial_fit(X, y)
    before = model.predict(X)
    np.testing.assert_array_equal(model.partial_fit(X[:0], y[:0]).predict(X), before)
    with pytest.raises(ValueError, match="0 sample"):
        BTNRegressor(**SMALL).partial_fit(X[:0], y[:0])


@pytest.mark.usefixtures("no_window")
def test_rows_elsewhere_do_not_bring_new_components():
    """Of what those would do where rows were before, nothing would be known."""
    rng = np.random.default_rng(0)

    def at(low, high, n):
        X = np.column_stack([rng.uniform(low, high, n), rng.uniform(-1.0, 1.0, (n, 2))])
        return X, np.sin(3.0 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.1 * rng.standard_normal(n)

    model = BTNRegressor(**{**SMALL, "n_init": 1, "max_rank": 8}).partial_fit(*at(-1.0, 0.6, 400))
    rank = model.rank_
    model.partial_fit(*at(0.7, 1.0, 300))
    assert model.rank_ <= rank


@pytest.mark.usefixtures("no_window")
def test_the_level_of_labels_is_not_that_of_the_last_batch():
    X, _, y = rows(1500, 0)
    model = BTNClassifier(**{**SMALL, "n_init": 1}).partial_fit(X[:1400], y[:1400] > 0.3)
    before = model.predict_proba(X)[:, 1].mean()
    late = X[1400:1430].copy()
    late[:, 2] = 0.99
    model.partial_fit(np.concatenate([late, X[1430:1432]]), np.append(np.ones(30), [0, 1]) > 0.5)
    away = np.abs(X[:, 2]) < 0.5
    assert model.predict_proba(X)[away, 1].mean() < before + 0.05


def test_a_window_is_never_less_than_what_came_and_knows_what_fades():
    X, _, y = rows(300, 0)
    batch = column_stats.Batch(list(X.T), y, np.full(300, 1e-3))
    window = streaming.Window.of(batch.take(slice(100))).then(batch, 0.5)
    assert len(window.rows.y) == 400  # small weights are no old rows
    assert window.kept(0.5, streaming.WINDOW) is not None
    assert len(window.then(batch, 1e-3).rows.y) == 300
    other = batch._replace(columns=[X[:, 0], np.array(["a"] * 300, dtype=object), X[:, 2]])
    with pytest.raises(ValueError, match="'b' must have one type in every batch, got numbers and"):
        column_stats.check_kinds(["a", "b", "c"], batch, other)


def test_a_fit_of_other_rows_ends_a_window():
    X, _, y = rows(300, 0)
    model = BTNRegressor(**{**SMALL, "max_iter": 3}, warm_start=True).partial_fit(X[:100], y[:100])
    model.fit(X, y)
    assert model._window is None


@pytest.mark.usefixtures("no_window")
def test_importance_after_a_batch_of_one_row():
    X, _, y = rows(400, 0)
    model = BTNRegressor(**{**SMALL, "n_init": 1}).partial_fit(X, y)
    before = model.feature_importances_
    model.partial_fit(X[:1], y[:1])
    np.testing.assert_allclose(model.feature_importances_, before, atol=0.05)


def test_a_constant_category_that_gets_company():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"k": ["a"] * 150 + [None] * 50, "x": rng.uniform(-1, 1, 200)})
    y = frame["x"].to_numpy() + frame["k"].isna() + 0.1 * rng.standard_normal(200)
    how = {**SMALL, "max_iter": 3, "n_init": 1, "solver": Solver(anchored=True)}
    model = BTNRegressor(**how).fit(frame, y)
    later = frame.assign(k="b")
    assert np.all(np.isfinite(model.partial_fit(later, y + 1.0).predict(later)))
