"""Whole fits: the bound never falls, and neither blocks nor memory change the result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from btnkm.bases import Categorical, Chebyshev, WithMissing
from btnkm.core import cavi, rows
from btnkm.core.cp import CP
from btnkm.core.gamma import Gamma
from btnkm.core.growing import _warm_basis
from btnkm.core.likelihoods import Gaussian
from btnkm.core.schedule import Schedule
from btnkm.core.state import Priors
from btnkm.core.sweeper import Sweeper
from btnkm.execution import fitting, local
from btnkm.execution.local import LocalRows
from btnkm.execution.modes import make_mode
from btnkm.execution.restarts import RestartSettings
from tests import problems

NUMERIC = ["chebyshev", "polynomial", "fourier", "bspline", "packed", "missing"]
AGGRESSIVE = Schedule(warm_sweeps=4, max_iter=14, tol=0.0, negligible=1.0, plain_sweeps=3)
MILD = Schedule(warm_sweeps=4, max_iter=14, tol=0.0, plain_sweeps=3)
PRIORS = Priors(Gamma(1e-3, 1e-3), Gamma(1e-5, 1e-6), Gamma(1.0, 1.0))


def make_problem(kinds, n, seed, *, weighted=False, gaps=0.0, noise=0.3):
    """Return rows of a smooth function of the first two inputs, standardised."""
    rng = np.random.default_rng(seed)
    codes, signal = [], np.zeros(n)
    for d, kind in enumerate(kinds):
        x = problems.column(kind, n, rng)
        if d < 2:
            signal = signal * np.nan_to_num(x) + np.sin(2.0 * np.nan_to_num(x) + d)
        codes.append(np.where(rng.uniform(size=n) < gaps, np.nan, x))
    bases = []
    for kind, code in zip(kinds, codes, strict=True):
        basis = clone(problems.KINDS[kind])
        if np.any(np.isnan(code)) and kind != "missing":
            basis = WithMissing(basis)
        bases.append(basis.fit(code))
    y = signal + noise * rng.standard_normal(n)
    weight = rng.uniform(0.3, 3.0, n) if weighted else None
    return fitting.Problem(bases, LocalRows(codes, (y - y.mean()) / y.std(), weight))


def make_settings(schedule, rank=3, priors=PRIORS, memory_limit=1.0, n_init=1):
    return RestartSettings(
        priors=priors,
        likelihood=Gaussian(Gamma(1.0, 0.01)),
        schedule=schedule,
        smoothness=1.0,
        network=CP(),
        initial_rank=rank,
        max_rank=rank,
        n_init=n_init,
        memory_limit=memory_limit,
        n_jobs=1,
    )


def run(problem, how, seed=0):
    return fitting.fit(problem, how, [seed], lambda k, progress: None)


def exact_sweeps(result):
    return [p for p in result.restarts[0].sweeps if p.phase == "exact"]


def exact_sweeps_with_states(problem, how):
    """Return the sweeps as an observer sees them: a start itself keeps its last state only."""
    seen = []
    fitting.fit(problem, how, [0], lambda k, progress: seen.append(progress))
    return [p for p in seen if p.phase == "exact"]


def assert_monotone(sweeps):
    bounds = np.array([p.bound for p in sweeps])
    assert np.all(np.isfinite(bounds))
    falls = bounds[:-1] - bounds[1:]
    assert np.all(falls <= 1e-8 * (1.0 + np.abs(bounds[1:]))), bounds


def as_small(problem, priors, state):
    """Return the oracle's view of a fitted state."""
    data = problem.rows.data()
    features = [b.features(c) for b, c in zip(problem.bases, problem.rows.codes, strict=True)]
    return problems.Small(
        list(problem.bases),
        list(problem.rows.codes),
        features,
        problem.rows.y,
        problem.rows.weight,
        data,
        priors,
        state,
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    kinds=st.lists(st.sampled_from([*NUMERIC, "categorical"]), min_size=1, max_size=4),
    rank=st.integers(1, 5),
    n=st.integers(8, 30),
    seed=st.integers(0, 2**32 - 1),
    weighted=st.booleans(),
    gaps=st.sampled_from([0.0, 0.2]),
    noise=st.sampled_from([0.01, 0.3, 10.0]),
    prior=st.booleans(),
    aggressive=st.booleans(),
)
def test_the_bound_never_falls(kinds, rank, n, seed, weighted, gaps, noise, prior, aggressive):
    problem = make_problem(kinds, n, seed, weighted=weighted, gaps=gaps, noise=noise)
    priors = PRIORS if prior else replace(PRIORS, basis=None)
    schedule = AGGRESSIVE if aggressive else MILD
    assert_monotone(exact_sweeps(run(problem, make_settings(schedule, rank, priors))))


@pytest.mark.parametrize("schedule", [AGGRESSIVE, MILD], ids=["aggressive", "mild"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_the_bound_of_a_fit_is_the_oracles(schedule, weighted):
    problem = make_problem(("chebyshev", "missing", "categorical"), 25, 3, weighted=weighted)
    for progress in exact_sweeps_with_states(problem, make_settings(schedule)):
        small = as_small(problem, PRIORS, progress.state)
        assert progress.bound == pytest.approx(problems.oracle_elbo(small), rel=1e-8)
        assert progress.state.likelihood.error == pytest.approx(
            problems.oracle_error(small), rel=1e-7
        )
        assert progress.rank == progress.state.n_components


def test_forced_reductions_really_drop_and_raise_the_bound():
    problem = make_problem(("chebyshev", "bspline", "packed"), 30, 1, noise=1.0)
    sweeps = exact_sweeps_with_states(problem, make_settings(AGGRESSIVE, rank=5))
    assert_monotone(sweeps)
    sizes = [[len(m.keep) for m in p.state.modes] for p in sweeps]
    assert sweeps[0].rank == 5
    assert sweeps[-1].rank < 5
    assert sum(sizes[-1]) < sum(sizes[0])
    ranks = [p.rank for p in sweeps]
    assert ranks == sorted(ranks, reverse=True)


def test_reductions_can_be_switched_off():
    problem = make_problem(("chebyshev", "bspline"), 30, 1, noise=1.0)
    off = replace(AGGRESSIVE, drop_components=False, drop_functions=False)
    last = exact_sweeps(run(problem, make_settings(off, rank=5)))[-1]
    assert last.rank == 5
    assert [len(m.keep) for m in last.state.modes] == [b.n_functions_ for b in problem.bases]
    only = replace(AGGRESSIVE, drop_components=False)
    last = exact_sweeps(run(problem, make_settings(only, rank=5)))[-1]
    assert last.rank == 5


def test_warm_sweeps_have_no_bound_and_come_first():
    problem = make_problem(("chebyshev", "packed"), 20, 0)
    sweeps = run(problem, make_settings(replace(MILD, most_weights=0))).restarts[0].sweeps
    assert [p.phase for p in sweeps] == ["warm"] * 4 + ["exact"] * MILD.max_iter
    assert all(np.isnan(p.bound) and not p.terms for p in sweeps[:4])
    assert [p.sweep for p in sweeps] == list(range(1, 5 + MILD.max_iter))


def test_annealing_comes_between_and_lets_in_the_covariances_step_by_step(monkeypatch):
    problem = make_problem(("chebyshev", "packed", "categorical"), 30, 0)
    how = replace(MILD, annealing_sweeps=3)
    shares = []
    switch = Sweeper.switch

    def record(self, *, spread):
        shares.append(spread)
        switch(self, spread=spread)

    monkeypatch.setattr(Sweeper, "switch", record)
    sweeps = run(problem, make_settings(how)).restarts[0].sweeps
    np.testing.assert_allclose(shares, [0.0, 0.01, np.sqrt(0.0095), 0.95, 1.0])
    assert [p.phase for p in sweeps] == ["warm"] * 4 + ["annealing"] * 3 + ["exact"] * how.max_iter
    assert all(np.isnan(p.bound) and not p.terms for p in sweeps[:7])
    assert [p.sweep for p in sweeps] == list(range(1, 8 + how.max_iter))
    assert_monotone(sweeps[7:])


@pytest.mark.parametrize("warm", [5, 6, 10])
@pytest.mark.parametrize("kinds", [("chebyshev", "packed"), ("chebyshev", "packed", "bspline")])
def test_the_warm_phase_has_extra_components(warm, kinds):
    problem = make_problem(kinds, 140, 0)
    how = replace(make_settings(replace(MILD, warm_sweeps=warm, max_iter=5), rank=3), warm_rank=20)
    sweeps = run(problem, how).restarts[0].sweeps
    ranks = [p.rank for p in sweeps if p.phase == "warm"]
    assert ranks[: warm // 2] == [6] * (warm // 2)  # twice as many, and not 20
    assert ranks[-3:] == [3] * 3
    exact = [p for p in sweeps if p.phase == "exact"]
    assert max(p.rank for p in exact) <= 3
    assert_monotone(exact)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_of_the_covariance_scales_its_part_of_the_second_moments(share):
    problem = make_problem(("chebyshev", "packed"), 20, 0)
    state = exact_sweeps_with_states(problem, make_settings(MILD))[-1].state
    mode, factor = state.modes[1], state.factors[1]
    scaled = rows.terms(mode, replace(factor, cov=share * factor.cov), spread=1.0)
    shared = rows.terms(mode, factor, spread=share)
    np.testing.assert_allclose(shared.mean, scaled.mean)
    if share:
        np.testing.assert_allclose(shared.second, scaled.second)
    else:  # the outer product of the means, which nobody needs to store
        assert shared.second is None


@pytest.mark.parametrize("warm", [0, 1, 2, 3])
def test_few_warm_sweeps(warm):
    """Every mode has a covariance once the first exact sweep is over, however short the start."""
    problem = make_problem(("chebyshev", "packed", "categorical"), 30, 0)
    how = make_settings(replace(MILD, warm_sweeps=warm, max_iter=5, most_weights=0))
    sweeps = exact_sweeps(run(problem, how))
    assert len(sweeps) == 5
    assert_monotone(sweeps)


def test_an_over_relaxation_too_far_is_undone():
    """The sweeps that try to save it gain nothing; the rest is as if it had not happened."""
    problem = make_problem(("chebyshev", "packed", "categorical"), 30, 0)
    still = replace(MILD, max_iter=16, drop_components=False, drop_functions=False)
    plain = [
        p.bound for p in exact_sweeps(run(problem, make_settings(replace(still, plain_sweeps=99))))
    ]
    sweeps = exact_sweeps_with_states(problem, make_settings(replace(still, over_relaxation=1e6)))
    bounds = [p.bound for p in sweeps]
    assert_monotone(sweeps)
    # over-relaxations follow sweeps 8 and 12; two sweeps try to make up for each
    kept = bounds[:8] + bounds[10:12] + bounds[14:]
    np.testing.assert_allclose(kept, plain[: len(kept)], rtol=1e-9)
    for trial in (sweeps[8:10], sweeps[12:14]):
        assert trial[0].bound == trial[1].bound
        assert trial[0].state is trial[1].state


def test_over_relaxation_climbs_faster_than_plain_sweeps():
    gains = []
    for seed in range(4):
        problem = make_problem(("chebyshev", "chebyshev", "chebyshev"), 60, seed, noise=0.1)
        ends = [
            exact_sweeps(run(problem, make_settings(replace(MILD, max_iter=40, plain_sweeps=k))))[
                -1
            ]
            for k in (8, 99)
        ]
        gains.append(ends[0].bound - ends[1].bound)
    assert np.mean(gains) > 1.0, gains


def test_over_relaxation_moves_the_means_and_nothing_else():
    problem = make_problem(("chebyshev", "packed"), 20, 0)
    old, now = (p.state for p in exact_sweeps_with_states(problem, make_settings(MILD))[:2])
    sweeper = Sweeper(local.LocalExecutor([]), now, cavi.Data(20.0, 20.0), PRIORS)
    sweeper.over_relax(old, 3.0)
    for new, at, was in zip(sweeper.state.factors, now.factors, old.factors, strict=True):
        np.testing.assert_allclose(new.mean, at.mean + 3.0 * (at.mean - was.mean))
        assert new.cov is at.cov
    assert sweeper.state.likelihood is now.likelihood


def test_an_over_relaxation_on_trial_is_reported():
    problem = make_problem(("chebyshev", "packed", "categorical"), 30, 0)
    how = replace(MILD, max_iter=18, plain_sweeps=4, over_relaxation=1e6)  # none pays
    how = replace(how, drop_components=False, drop_functions=False)
    sweeps = exact_sweeps(run(problem, make_settings(how)))
    assert [p.sweep - 4 for p in sweeps if p.trial] == [9, 10, 13, 14, 17, 18]


def test_one_mode_alone_is_never_over_relaxed(monkeypatch):
    monkeypatch.setattr(Sweeper, "over_relax", lambda *args: pytest.fail("over-relaxed"))
    problem = make_problem(("chebyshev",), 30, 0)
    run(problem, make_settings(replace(MILD, max_iter=20, plain_sweeps=0), rank=2))


def test_no_over_relaxation_without_two_sweeps_after_it(monkeypatch):
    steps = []
    monkeypatch.setattr(Sweeper, "over_relax", lambda *args: steps.append(args))
    problem = make_problem(("chebyshev", "packed"), 30, 0)
    for sweeps, count in [(8, 1), (9, 1), (10, 2)]:
        steps.clear()
        run(problem, make_settings(replace(MILD, max_iter=sweeps, plain_sweeps=0)))
        assert len(steps) == count


def test_stops_when_the_bound_is_calm():
    problem = make_problem(("chebyshev",), 40, 0)
    result = run(problem, make_settings(replace(MILD, tol=1e-5, max_iter=200), rank=1))
    assert result.best.last.converged
    assert len(exact_sweeps(result)) < 200
    assert exact_sweeps(result)[-1].converged


def test_converged_posterior_is_a_fixed_point_of_every_update():
    problem = make_problem(("chebyshev", "packed"), 40, 0)
    how = replace(MILD, max_iter=400, drop_components=False, drop_functions=False)
    state = exact_sweeps(run(problem, make_settings(how, rank=2)))[-1].state
    small = as_small(problem, PRIORS, state)
    bound = problems.oracle_elbo(small)
    for d in range(2):
        after, _ = problems.solved(small, d)
        assert problems.oracle_elbo(after) == pytest.approx(bound, abs=1e-3)


# Blocks of rows and memory.


def assert_same(a, b, **tolerance):
    """Compare two fits: bounds of every sweep and the last posterior."""
    for x, y in zip(exact_sweeps(a), exact_sweeps(b), strict=True):
        np.testing.assert_allclose(x.bound, y.bound, **tolerance)
    x, y = exact_sweeps(a)[-1].state, exact_sweeps(b)[-1].state
    for f, g in zip(x.factors, y.factors, strict=True):
        scale = np.max(np.abs(g.mean))
        np.testing.assert_allclose(f.mean / scale, g.mean / scale, atol=1e-10, **tolerance)
        scale = np.max(np.abs(g.cov))
        np.testing.assert_allclose(f.cov / scale, g.cov / scale, atol=1e-10, **tolerance)
    np.testing.assert_allclose(x.likelihood.noise.rate, y.likelihood.noise.rate, **tolerance)


@pytest.fixture(scope="module")
def blocky():
    problem = make_problem(("chebyshev", "missing", "categorical"), 150, 2, weighted=True)
    how = make_settings(replace(MILD, max_iter=5))
    return problem, how, run(problem, how)


@pytest.mark.parametrize("block_rows", [7, 64, 149, 1000])
@pytest.mark.parametrize("keep_features", [True, False])
@pytest.mark.parametrize("stride", [0, 1, 2])
def test_blocks_do_not_change_the_result(blocky, monkeypatch, block_rows, keep_features, stride):
    problem, how, expected = blocky
    plan = local.MemoryPlan(block_rows, keep_features, stride, 1, 0)
    monkeypatch.setattr(local, "make_plan", lambda *args, **_: plan)
    assert_same(run(problem, how), expected, rtol=1e-10)


def all_plans(problem, rank):
    """Return every plan that ever lower memory limits lead to, with its limit in GiB."""
    sizes = [(b.n_functions_, b.n_products_) for b in problem.bases]
    footprint = CP().footprint(rank, len(sizes))
    actual, limit = [], 1.0
    while True:
        try:
            plan = local.make_plan(len(problem.rows.y), sizes, footprint, 1, 1, limit)
        except MemoryError:
            return actual
        actual.append((limit, plan))
        limit = (plan.n_bytes - 1) / local.GIB


def test_memory_limits_do_not_change_the_result():
    problem = make_problem(("chebyshev", "bspline", "packed"), 1200, 2)
    how = make_settings(Schedule(warm_sweeps=2, max_iter=2))
    plans = all_plans(problem, how.max_rank)
    assert len({(p.keep_features, p.stride) for _, p in plans}) >= 3
    assert len({p.block_rows for _, p in plans}) >= 2
    expected = run(problem, how)
    for limit, plan in plans:
        assert plan.n_bytes <= limit * local.GIB
        actual = run(problem, replace(how, memory_limit=limit))
        assert_same(actual, expected, rtol=1e-10)
        if plan.block_rows == plans[0][1].block_rows:  # then it is the same to the last bit
            assert exact_sweeps(actual)[-1].bound == exact_sweeps(expected)[-1].bound
    with pytest.raises(MemoryError, match="memory_limit must be at least"):
        run(problem, replace(how, memory_limit=1e-9))


def test_rows_across_threads_give_the_same_bits(blocky, monkeypatch):
    problem, how, _ = blocky
    plan = local.MemoryPlan(32, True, True, 1, 0)
    monkeypatch.setattr(local, "make_plan", lambda *args, **_: plan)
    first, two = run(problem, how), run(problem, replace(how, n_jobs=2))
    np.testing.assert_array_equal(
        [p.bound for p in exact_sweeps(first)], [p.bound for p in exact_sweeps(two)]
    )


def test_a_weight_of_two_is_a_row_twice():
    problem = make_problem(("chebyshev", "categorical"), 30, 4)
    times = 1 + np.arange(30) % 2
    counted = replace(problem, rows=replace(problem.rows, weight=times.astype(float)))
    index = np.repeat(np.arange(30), times)
    repeated = replace(problem, rows=problem.rows.take(index))
    how = make_settings(replace(MILD, max_iter=4))
    assert_same(run(counted, how), run(repeated, how), rtol=1e-8)


def test_several_restarts_differ_and_the_best_is_named():
    problem = make_problem(("chebyshev", "packed"), 30, 4)
    result = run(problem, make_settings(MILD, n_init=3))
    bounds = [s.sweeps[-1].bound for s in result.restarts]
    assert len(set(bounds)) == 3
    assert result.best.last.bound == max(bounds)


def test_many_inputs_fit_without_overflow():
    """Hundreds of modes from a random start: no warning, no NaN, a bound that never falls."""
    rng = np.random.default_rng(0)
    codes = [rng.uniform(-1.0, 1.0, 20) for _ in range(500)]
    bases = [Chebyshev(n_basis=2).fit(c) for c in codes]
    y = codes[0] + 0.1 * rng.standard_normal(20)
    problem = fitting.Problem(bases, LocalRows(codes, (y - y.mean()) / y.std(), None))
    how = make_settings(
        Schedule(warm_sweeps=3, annealing_sweeps=2, max_iter=12, plain_sweeps=0), rank=2
    )
    sweeps = exact_sweeps(run(problem, how))
    assert_monotone(sweeps)
    assert len({p.bound for p in sweeps}) > 6  # sweeps after over-relaxation, too


def test_the_warm_phase_is_smoother_where_functions_are_many():
    how = Schedule()
    for m in (5, 20, 40):
        mode = make_mode(Chebyshev(m).fit(np.linspace(-1, 1, 100)), 1.25)
        prior = PRIORS.basis_of(mode)
        warm = _warm_basis(mode, prior, how)
        if m <= 20:
            np.testing.assert_array_equal(warm.rate, prior.rate)
        else:
            assert np.all(warm.mean[1:] > prior.mean[1:])
            assert warm.mean[0] == prior.mean[0]
    levels = make_mode(Categorical().fit(np.arange(60.0)), 1.25)
    prior = PRIORS.basis_of(levels)
    np.testing.assert_array_equal(_warm_basis(levels, prior, how).rate, prior.rate)
