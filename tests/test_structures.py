"""Structures: which are compared, what screening finds, and what every one of them can do."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

from btnkm import BTNClassifier, BTNRegressor, Gamma, Solver, explain, load
from btnkm.core.likelihoods import Gaussian, StudentT
from btnkm.explain.summary import likelihoods
from btnkm.plan import FitPlan
from btnkm.structures import candidates, screening, search, stacking

QUICK = {"n_init": 2, "max_iter": 8, "n_basis": 6, "max_rank": 3, "random_state": 0, "n_jobs": 1}
#: Structures of few components are compared as thoroughly as those of many.
SHORT = {"n_init": 1, "n_basis": 6, "max_rank": 4, "random_state": 0, "n_jobs": 1}
every = pytest.mark.parametrize("structure", ["sums", "tensor", "sums+tensor", "auto"])


def table(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 4))
    f = 2.0 * X[:, 0] + np.sin(3.0 * X[:, 1]) + 2.0 * X[:, 2] * X[:, 3]
    return X, f + 0.1 * rng.standard_normal(n), f


@every
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "negative_binomial"])
def test_every_structure_predicts_numbers(structure, likelihood):
    X, y, f = table()
    y = np.round(np.exp(y)) if likelihood == "negative_binomial" else y
    model = BTNRegressor(**QUICK, structure=structure, likelihood=likelihood).fit(X, y)
    dist = model.predict_dist(X)
    assert np.all(np.isfinite(dist.logpdf(y)))
    interval = model.predict_interval(X)
    assert np.all(interval[:, 0] <= interval[:, 1])
    assert model.sample_y(X[:3], 5).shape == (3, 5)
    assert np.corrcoef(dist.mean, y)[0, 1] > 0.6
    assert model.weights_.sum() == pytest.approx(1.0)
    restarts = sorted(k for entry in model.structures_ for k in entry["restarts"])
    assert restarts == list(range(len(model.posterior_)))
    for listed in model.structures_:
        assert listed["weight"] == pytest.approx(model.weights_[listed["restarts"]].sum())
    if structure != "auto":
        assert [entry["name"] for entry in model.structures_] == [structure]


@every
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_structure_predicts_classes(structure, n_classes):
    X, _, f = table()
    label = np.digitize(f, np.quantile(f, np.arange(1, n_classes) / n_classes))
    model = BTNClassifier(**QUICK, structure=structure).fit(X, label)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert np.mean(model.predict(X) == label) > 1.3 / n_classes


@every
def test_every_structure_goes_on(structure):
    X, y, _ = table(240)
    how = {**QUICK, "structure": structure}
    stream = BTNRegressor(**how)
    for rows in np.array_split(np.arange(240), 3):
        stream.partial_fit(X[rows], y[rows])
    assert stream.n_samples_seen_ == 240
    assert np.all(np.isfinite(stream.predict(X)))
    again = BTNRegressor(**how, warm_start=True).fit(X, y)
    first = again.predict(X)
    again.fit(X, y)
    assert np.corrcoef(first, again.predict(X))[0, 1] > 0.95


def test_the_structure_must_be_one_of_those_there_are():
    X, y, _ = table(30)
    with pytest.raises(ValueError, match="structure must be one of"):
        BTNRegressor(structure="sum").fit(X, y)


def test_straight_lines_are_left_to_the_sum():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((120, 5))
    y = X @ np.arange(1.0, 6.0) + 0.5 * rng.standard_normal(120)
    model = BTNRegressor(**SHORT).fit(X, y)
    new = rng.standard_normal((500, 5))
    f = new @ np.arange(1.0, 6.0)
    assert 1.0 - np.mean((model.predict(new) - f) ** 2) / np.var(f) > 0.995
    without = BTNRegressor(**SHORT, solver=Solver(full_rows=0)).fit(X, y)
    assert sum(entry["weight"] for entry in without.structures_ if "sums" in entry["name"]) > 0.9


def test_a_product_is_left_to_the_tensor():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (300, 3))
    y = 3.0 * X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(300)
    model = BTNRegressor(**SHORT).fit(X, y)
    assert model.score(X, y) > 0.95
    alone = [entry for entry in model.structures_ if entry["name"] == "sums"]
    assert alone[0]["weight"] < 0.05
    assert alone[0]["log_density"] < max(entry["log_density"] for entry in model.structures_) - 0.5


def test_a_step_is_found_and_a_curve_has_none():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1.0, 1.0, (400, 2))
    step = 2.0 * (x[:, 0] > 0.2) + np.sin(3.0 * x[:, 1]) + 0.2 * rng.standard_normal(400)
    model = BTNRegressor(structure="sums", random_state=0).fit(x, step)
    cuts = [effect.steps for effect in model._mode_maps[0].effects]
    assert len(cuts[0]) >= 1
    assert len(cuts[1]) == 0
    column = model.columns_[0]
    raw = np.interp(cuts[0], column.positions, column.knots)
    assert np.min(np.abs(raw - 0.2)) < 0.02
    near = np.column_stack([np.array([0.15, 0.25]), np.zeros(2)])
    assert np.diff(model.predict(near))[0] > 1.8


def test_of_many_inputs_those_that_act_together_are_in_the_tensor():
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, (400, 30))
    y = X[:, 3] + 3.0 * X[:, 7] * X[:, 19] + 0.2 * rng.standard_normal(400)
    model = BTNRegressor(**QUICK, structure="sums+tensor").fit(X, y)
    inputs = model._mode_maps[0].inputs
    assert {7, 19} <= set(inputs)
    assert len(inputs) < 30
    assert model.score(X, y) > 0.8


def test_products_of_three_inputs_have_the_scores_of_brute_force():
    rng = np.random.default_rng(0)
    n, sizes = 60, (2, 1, 2, 2)
    made = [rng.standard_normal((n, m)) for m in sizes]
    count, left = rng.integers(1, 4, n).astype(float), rng.standard_normal((n, 2))
    nothing = np.zeros((n, 2))
    residuals = screening.Residuals(np.arange(n), count, nothing, left, nothing)
    scores = screening._triple_scores(made, residuals)
    best = np.zeros(len(sizes))
    for i, j, k in itertools.combinations(range(len(sizes)), 3):
        for a, b, c in itertools.product(made[i].T, made[j].T, made[k].T):
            for r in left.T:
                spread = np.sqrt(np.sum(count * (r * a * b * c) ** 2))
                score = abs(np.sum(count * r * a * b * c)) / spread
                best[[i, j, k]] = np.maximum(best[[i, j, k]], score)
    each = [scores.best[scores.owner == i].max() for i in range(len(sizes))]
    np.testing.assert_allclose(each, best)


def test_three_inputs_that_act_only_together_are_in_the_tensor():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (800, 30))
    y = 4.0 * X[:, 17] * X[:, 22] * X[:, 28] + X[:, 3] + 0.3 * rng.standard_normal(len(X))
    how = {**QUICK, "n_init": 1, "max_iter": 1}  # inputs are chosen before
    model = BTNRegressor(**how, structure="sums+tensor").fit(X, y)
    assert {17, 22, 28} <= set(model._mode_maps[0].inputs)


def test_interactions_of_sorted_classes_are_found():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (4800, 14))
    f = 5.0 * X[:, [0, 2, 4]] * X[:, [1, 3, 5]]
    label = np.argmax(f + rng.gumbel(size=f.shape), axis=1)
    order = np.argsort(label, kind="stable")
    how = {**QUICK, "n_init": 1, "max_iter": 1}  # inputs are chosen before
    model = BTNClassifier(**how, structure="sums+tensor").fit(X[order], label[order])
    inputs = model._mode_maps[0].inputs
    assert set(range(6)) <= set(inputs[1:] if len(inputs) > 14 else inputs)


def test_very_many_columns():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((120, 300))
    y = 3.0 * X[:, 0] - 2.0 * X[:, 5] + 2.0 * np.sin(2.0 * X[:, 9]) + 0.5 * rng.standard_normal(120)
    model = BTNRegressor(**QUICK, structure="sums+tensor").fit(X, y)
    assert set(np.argsort(-model.feature_importances_)[:3]) == {0, 5, 9}


def test_collapsed_restarts_have_no_vote():
    X, y, _ = table()
    model = BTNRegressor(**{**QUICK, "n_init": 3}, structure="tensor").fit(X, y)

    class Task:
        sample = type("Rows", (), {"n": len(y), "y": np.asarray(y), "weights": np.ones(len(y))})
        seeds = [0]

    def scores(worst):
        logs = np.full((3, len(y)), -1.0)
        logs[0] = worst
        return lambda *_: Known(logs)

    class Known:
        def __init__(self, logs):
            self.logs = logs

        def log_densities(self):
            return self.logs

    original = candidates.held_out
    try:
        candidates.held_out = scores(-1.05)
        even = candidates.restart_weights(Task, model._mode_maps[0], [None] * 3)
        candidates.held_out = scores(-3.0)
        without = candidates.restart_weights(Task, model._mode_maps[0], [None] * 3)
        logs = np.array([-1.0, -5.0, -5.0])[:, None] * np.ones((3, len(y)))
        candidates.held_out = lambda *_: Known(logs)
        with pytest.warns(UserWarning, match="2 of 3 restarts fit far worse than the best one"):
            weights = candidates.restart_weights(Task, model._mode_maps[0], [None] * 3)
    finally:
        candidates.held_out = original
    assert even.min() > 0.2
    np.testing.assert_allclose(without, [0.0, 0.5, 0.5])
    np.testing.assert_array_equal(weights, [1.0, 0.0, 0.0])


@pytest.mark.parametrize("dof", [np.inf, 2.0])
def test_weights_of_few_rows_and_of_errors_against_brute_force(dof):
    rng = np.random.default_rng(6)
    scores = rng.normal(size=(2, 200))
    errors = rng.normal(size=(2, 200)) if np.isinf(dof) else rng.standard_t(2.0, size=(2, 200))
    prior, weight = np.array([2.0, 1.0]), np.ones(200)
    assert stacking._tails_of(errors, weight) == dof
    weights = stacking.stack(scores, weight, prior, errors)

    def value(w):
        mixed = np.log(w * np.exp(scores[0]) + (1.0 - w) * np.exp(scores[1])).sum()
        error = w * errors[0] + (1.0 - w) * errors[1]
        near = stats.norm.logpdf(error, scale=np.sqrt(np.mean(error**2))).sum()
        if np.isfinite(dof):
            of_scale = lambda log: -stats.t.logpdf(error, dof, scale=np.exp(log)).sum()  # noqa: E731
            near = 0.5 * (near - optimize.minimize_scalar(of_scale, (-1.0, 1.0)).fun)
        doubt = prior[0] * np.log(w) + prior[1] * np.log1p(-w)
        return mixed + doubt + stacking.WEIGHT_OF_ERROR * near

    coarse = np.linspace(0.01, 0.99, 99)
    best = coarse[np.argmax([value(w) for w in coarse])]
    fine = np.linspace(best - 0.009, best + 0.009, 19)
    best = fine[np.argmax([value(w) for w in fine])]
    assert weights[0] == pytest.approx(best, abs=1e-3)


@every
def test_tables_with_text_and_missing_values(structure):
    rng = np.random.default_rng(7)
    n = 150
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.choice(list("xyz"), n)})
    y = 2.0 * frame["a"] + (frame["b"] == "x") + 0.1 * rng.standard_normal(n)
    frame.loc[:12, "a"] = np.nan
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "no input was found")
        model = BTNRegressor(**QUICK, structure=structure).fit(frame, y)
    new = pd.DataFrame({"a": [0.5, np.nan, 0.5], "b": ["x", "y", "new"]})
    mean, std = model.predict(new, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(std > 0)


def held_out_rows(n, errors, model_variance=0.0, seed=0):
    """Rows held out whose errors are not those that the noise variance of 1 speaks of."""
    rng = np.random.default_rng(seed)
    likelihood = Gaussian(noise=Gamma(1000.0, 999.0))
    zeros = np.zeros((1, n))
    y = errors(rng, n)
    return stacking.HeldOut([likelihood], zeros, zeros + model_variance, y, np.ones(n))


@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0])
def test_the_noise_is_that_of_rows_held_out(factor):
    rows = held_out_rows(2000, lambda rng, n: np.sqrt(factor) * rng.standard_normal(n))
    actual, dof = stacking.best_noise([rows])
    assert actual == pytest.approx(factor)
    assert dof >= 30.0
    # a few rows change next to nothing
    few = held_out_rows(4, lambda rng, n: np.sqrt(factor) * rng.standard_normal(n))
    assert 0.5 < stacking.best_noise([few])[0] < 2.0


def test_the_noise_has_the_tails_of_rows_held_out():
    rows = held_out_rows(2000, lambda rng, n: rng.standard_t(3.0, n))
    noise = stacking.best_noise([rows])
    assert noise[1] == 4.0
    assert rows.score(noise).sum() > rows.score((3.0, np.inf)).sum() + 50.0
    assert np.mean(rows.inside(noise)) == pytest.approx(0.95, abs=0.015)


def test_noise_without_tails_may_hold_more_than_it_says():
    rows = held_out_rows(2000, lambda rng, n: rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), n))
    assert stacking.best_noise([rows]) == (1.0, np.inf)
    assert np.all(rows.inside((1.0, np.inf)))


def test_changed_noise_has_the_variance_and_the_tails_asked_for():
    likelihood = Gaussian(noise=Gamma(50.0, 98.0))
    for factor, dof in ((2.0, np.inf), (0.5, 6.0), (1.0, 200.0)):
        changed = likelihood.recalibrated(factor, dof)
        assert changed.noise_std**2 == pytest.approx(factor * likelihood.noise_std**2)
        assert 2.0 * changed.noise.shape == min(100.0, dof)
    robust = StudentT(dof=5.0, noise=Gamma(50.0, 98.0))
    assert robust.recalibrated(4.0, np.inf).noise_std == pytest.approx(2.0 * robust.noise_std)
    assert robust.recalibrated(4.0, 3.0).dof == 3.0
    assert robust.recalibrated(4.0, np.inf).dof == 5.0


def test_the_prediction_has_the_noise_of_rows_held_out():
    rng = np.random.default_rng(8)
    X = rng.uniform(-1.0, 1.0, (200, 2))
    y = X[:, 0] + 0.3 * rng.standard_t(2.5, 200)
    model = BTNRegressor(**SHORT, likelihood="gaussian").fit(X, y)
    best = model.structures_[0]
    assert best["noise_dof"] < 30.0
    states = [model.posterior_[k] for k in best["restarts"]]
    assert all(2.0 * state.likelihood.noise.shape == best["noise_dof"] for state in states)
    new = rng.uniform(-1.0, 1.0, (4000, 2))
    y_new = new[:, 0] + 0.3 * rng.standard_t(2.5, 4000)
    low, high = model.predict_interval(new, level=0.95).T
    assert np.mean((low <= y_new) & (y_new <= high)) == pytest.approx(0.95, abs=0.025)


def heavy_table(n=200, seed=8):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    f = np.sin(3.0 * X[:, 0])
    return X, f + 0.2 * rng.standard_t(1.5, n), f


def test_heavy_tails_of_rows_held_out_make_student_t_a_candidate(tmp_path):
    X, y, f = heavy_table(100)
    model = BTNRegressor(**SHORT).fit(X, y)
    heavy = [entry for entry in model.structures_ if entry["heavy"]]
    assert heavy
    assert sum(entry["weight"] for entry in heavy) > 0.3
    kinds = {
        type(model.posterior_[k].likelihood): entry["heavy"]
        for entry in model.structures_
        for k in entry["restarts"]
    }
    assert kinds[StudentT]
    assert not kinds.get(Gaussian, False)
    gaussian = BTNRegressor(likelihood="gaussian", **SHORT).fit(X, y)
    assert not any(entry["heavy"] for entry in gaussian.structures_)
    errors = [float(np.mean((fit.predict(X) - f) ** 2)) for fit in (model, gaussian)]
    assert errors[0] < errors[1]
    path = tmp_path / "heavy.btn"
    model.save(path)
    np.testing.assert_array_equal(load(path).predict_interval(X), model.predict_interval(X))


@pytest.mark.parametrize("seed", [0, 1])
def test_student_t_noise_of_few_rows_leaves_an_outlier_alone(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (120, 5))
    f = np.sin(3.0 * X[:, 0]) + X[:, 1] * X[:, 2]
    y = f + 0.1 * rng.standard_normal(len(X))
    y[7] += 15.0
    model = BTNRegressor(structure="full", likelihood="student_t", random_state=0).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.1
    assert model.likelihood_.dof < 5.0


def test_an_outlier_does_not_decide_the_weights():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (150, 3))
    f = np.sin(3.0 * X[:, 0]) + X[:, 1]
    y = f + 0.2 * rng.standard_normal(150)
    y[7] += 30.0
    model = BTNRegressor(**SHORT).fit(X, y)
    assert float(np.mean((model.predict(X) - f) ** 2)) ** 0.5 < 0.2
    assert np.mean(np.diff(model.predict_interval(X), axis=1)) < 2.0


@pytest.mark.parametrize("target", ["normal", "tied"])
def test_other_targets_have_gaussian_noise_alone(target):
    X, y, f = heavy_table(120)
    if target == "tied":
        y = np.where(X[:, 0] > 0.2, np.round(10.0 * y), 0.0)
        assert np.mean(y == 0.0) > search.MOST_TIED
    else:
        y = f + 0.2 * np.random.default_rng(0).standard_normal(120)
    model = BTNRegressor(**SHORT).fit(X, y)
    assert not any(entry["heavy"] or entry["varying"] for entry in model.structures_)


class _Shape:
    def __init__(self, full_tensor=False, low_rank=False, heavy=False):
        self.full_tensor, self.low_rank, self.heavy = full_tensor, low_rank, heavy
        self.inputs, self.full_cores = [0], False
        self.noise_effects, self.noise = (), (False, heavy)


def judged(*means, n=50):
    """Return candidates with log densities of these means: exact, heavy exact, then low-rank."""

    class Sample:
        weights = np.ones(n)

    class Target:
        likelihood = Gaussian()

    class Task:
        sample, target = Sample(), Target()

    shapes = [_Shape(True), _Shape(True, heavy=True)]
    shapes += [_Shape(low_rank=True) for _ in means[2:]]
    comparison = search.Comparison(
        None, Task(), [search.Candidate(mode_map) for mode_map in shapes]
    )
    noise = np.random.default_rng(0).standard_normal((len(means), n))
    for candidate, mean, entry in zip(comparison.candidates, means, noise, strict=True):
        candidate.scores = [mean + entry - entry.mean()]
        candidate.errors = [np.ones(n)]
    comparison.rows = [np.arange(n)]
    return comparison


def test_tensors_that_found_next_to_nothing_are_fitted_again():
    # sums, a tensor that has what there is, one that has collapsed, and one with other noise
    comparison = judged(0.0, 0.0, 1.0, 0.05, 0.5)
    sums, other, good, poor, heavy = comparison.candidates
    sums.mode_map.inputs, sums.mode_map.full_tensor = [], False
    heavy.mode_map.heavy = True
    comparison.remaining.remove(other)
    assert comparison.collapsed() == [poor]
    poor.scores[-1] = poor.scores[-1] + 0.5
    assert comparison.collapsed() == []
    comparison.rows.append(comparison.rows[0])  # nothing is known of the sum in these
    assert comparison.collapsed() == []


@pytest.mark.parametrize("fails", [None, "first", "second"])
def test_of_two_restarts_the_better_is_kept(fails, monkeypatch):
    comparison = judged(0.0, 0.0, 0.0)
    candidate = comparison.candidates[2]
    earlier = object()
    candidate.states = [(-1.0, "an earlier fold")]
    candidate.held = [earlier]
    monkeypatch.setattr(comparison, "_rescore", lambda _: None)

    def fit(fold, score):
        failed = fails == fold
        candidate.held.append(None if failed else fold)
        candidate.scores.append(np.full(50, -np.inf if failed else score))
        candidate.errors.append(np.ones(50))
        candidate.states += [] if failed else [(score, fold)]

    fit("first", -2.0)
    monkeypatch.setattr(comparison, "fit", lambda *_: fit("second", -1.0))
    comparison.fit_again(candidate, (np.arange(50), np.arange(50)), 1)
    kept = "first" if fails == "second" else "second"
    assert candidate.held == [earlier, kept]
    assert [state for _, state in candidate.states] == ["an earlier fold", kept]
    assert len(candidate.scores) == len(candidate.errors) == 2


def test_of_low_rank_tensors_behind_the_full_one_the_best_is_left():
    comparison = judged(0.0, -0.1, -0.2, -0.3, -0.25)
    comparison.drop()
    assert comparison.remaining == comparison.candidates[:3]
    ahead = judged(0.0, -0.1, 0.2, -0.3, 0.1)  # the worst is behind both
    ahead.drop()
    assert ahead.remaining == [ahead.candidates[k] for k in (0, 1, 2, 4)]


def test_doubt_is_in_favour_of_full_tensors():
    comparison = judged(0.0, 0.0, 0.0)
    shapes = [candidate.mode_map for candidate in comparison.candidates]
    doubts = [comparison._doubt(mode_map, shapes) for mode_map in shapes]
    half = search.DOUBT_OF_EXACT / 2.0  # shared by Gaussian and Student-t noise
    assert doubts == [search.DOUBT_OF_ALL + half, search.DOUBT_OF_ALL + half, 1.0]
    assert comparison._doubt(shapes[0], [shapes[0], shapes[2]]) == search.DOUBT_OF_ALL + 2.0 * half


def test_a_tensor_without_a_sum_has_all_inputs():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 16))
    y = X @ np.ones(16) + X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(300)
    model = BTNRegressor(**SHORT, solver=Solver(full_rows=10)).fit(X, y)
    kept = {mode_map.structure: len(mode_map.inputs) for mode_map in model._mode_maps}
    table = {entry["name"] for entry in model.structures_}
    assert {"tensor", "sums+tensor"} <= table
    assert kept.get("tensor", 16) == 16


@pytest.mark.parametrize(
    ("ranks", "max_rank", "expected"),
    [([9, 10], 40, 2), ([9, 5], 40, 8), ([10, 10], 10, 8), ([], 40, 8)],
)
def test_fewer_restarts_where_the_rank_is_about_to_grow(ranks, max_rank, expected):
    class State:
        modes = (None,)

        def __init__(self, rank):
            self.network = self
            self.rank = lambda _: rank

    class Plan(FitPlan):
        n = 1000
        ranks = staticmethod(lambda mode_map, n: (10, max_rank))

        def __init__(self):
            pass

    candidate_list = [
        search.Candidate(_Shape(low_rank=True), states=[State(rank) for rank in ranks])
    ]
    assert Plan().fewer_restarts(candidate_list, 8) == expected


def test_tensors_share_restarts_and_pass_on_weights_too_small_for_one():
    class Low:
        low_rank = True

    class Exact:
        low_rank = False

    candidate_list = [
        search.Candidate(Exact(), 0.4),
        search.Candidate(Low(), 0.4),
        search.Candidate(Low(), 0.15),
        search.Candidate(Low(), 0.05),
        search.Candidate(Exact(), 0.0),
    ]
    candidates.share_restarts(candidate_list, 4)
    assert [candidate.count for candidate in candidate_list] == [1, 1, 1, 0, 0]
    assert sum(candidate.weight for candidate in candidate_list) == pytest.approx(1.0)
    assert candidate_list[1].weight / candidate_list[2].weight == pytest.approx(0.4 / 0.15)
    assert candidate_list[3].weight == 0.0
    candidates.share_restarts(candidate_list[:1], 4)
    assert candidate_list[0].count == 1


def test_rows_held_out_find_how_large_f_of_classes_is():
    rng = np.random.default_rng(9)
    X = rng.uniform(-1.0, 1.0, (600, 2))
    labels = (np.arctan2(X[:, 0], X[:, 1]) / np.pi * 4.0 + 4.0).astype(int)  # none is in doubt
    new, truth = X[300:], labels[300:]

    def log_density(**how):
        model = BTNClassifier(**SHORT, **how)
        p = model.fit(X[:300], labels[:300]).predict_proba(new)
        return np.mean(np.log(p[np.arange(300), truth]))

    assert log_density() > log_density(structure="full") + 0.02


def test_a_model_tells_the_likelihoods_of_all_its_restarts():
    X, y, _ = heavy_table(100)
    model = BTNRegressor(**{**SHORT, "n_init": 2}).fit(X, y)
    every = likelihoods(model)
    kinds = [type(state.likelihood).__name__ for state in model.posterior_]
    assert {entry["name"] for entry in every} == set(kinds)
    for item in every:
        of_kind = model.weights_[[kind == item["name"] for kind in kinds]]
        assert item["weight"] == pytest.approx(of_kind.sum())
    assert "Student-t (" in str(explain.summary(model))
