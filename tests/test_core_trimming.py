"""Joint steps against finite differences, and redundant components that are taken away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from btnkm.bases import Chebyshev
from btnkm.core import cavi, trimming
from btnkm.core.cp import CP
from btnkm.core.gamma import Gamma
from btnkm.core.likelihoods import Gaussian
from btnkm.core.schedule import Schedule
from btnkm.core.state import Priors
from btnkm.core.sweeper import Sweeper
from btnkm.execution import fitting
from btnkm.execution.local import LocalRows
from btnkm.execution.modes import size_of
from btnkm.execution.restarts import RestartSettings

PRIORS = Priors(Gamma(1e-6, 1e-14), Gamma(1e-5, 1e-6), Gamma(1.0, 1.0))


def make_problem(noise, seed=0, n=300, weighted=False):
    """Return rows of a tensor of rank 2 in three inputs."""
    rng = np.random.default_rng(seed)
    codes = [rng.uniform(-1.0, 1.0, n) for _ in range(3)]
    bases = [Chebyshev(n_basis=4).fit(x) for x in codes]
    z = [b.phi(x) @ rng.standard_normal((4, 2)) for b, x in zip(bases, codes, strict=True)]
    f = np.prod(z, axis=0).sum(axis=1)
    y = f / f.std() + noise * rng.standard_normal(n)
    return fitting.Problem(
        bases, LocalRows(codes, y, rng.uniform(0.5, 2.0, n) if weighted else None)
    )


def make_settings(rank=4, **schedule):
    return RestartSettings(
        priors=PRIORS,
        likelihood=Gaussian(),
        schedule=Schedule(**schedule),
        smoothness=1.0,
        network=CP(),
        initial_rank=rank,
        max_rank=rank,
        n_init=1,
        memory_limit=1.0,
        n_jobs=1,
    )


def run(problem, settings):
    return fitting.fit(problem, settings, [0], lambda k, progress: None).restarts[0]


def sweeper_at(problem, settings, state):
    sizes = [size_of(basis) for basis in problem.bases]
    _, _, plan = fitting.plan_restarts(settings, len(problem.rows.y), sizes, 1, 1)
    executor = problem.rows.blocks(plan, problem.bases).executor(len(sizes))
    data = problem.rows.data()
    sweeper = Sweeper(executor, state, data, PRIORS)
    sweeper.switch(spread=1.0)
    return sweeper


def value_at(sweeper, state):
    sweeper.restore(state)
    return trimming.error_and_value(sweeper)[1]


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def sweeper(request):
    problem = make_problem(0.1, weighted=request.param)
    settings = make_settings(most_weights=0, max_iter=4)
    state = run(problem, settings).state
    change = np.random.default_rng(1).standard_normal(
        sum(factor.mean.size for factor in state.factors)
    )
    return sweeper_at(problem, settings, trimming.moved(state, 0.03 * change))


def test_the_gradient_of_a_joint_step_is_that_of_the_bound(sweeper):
    state = sweeper.state
    _, gradient = trimming.joint_system(sweeper)
    direction = np.random.default_rng(2).standard_normal(len(gradient))
    up, down = (value_at(sweeper, trimming.moved(state, h * direction)) for h in (1e-5, -1e-5))
    assert (up - down) / 2e-5 == pytest.approx(gradient @ direction, rel=1e-5)


def test_the_value_of_joint_steps_is_the_means_part_of_the_bound(sweeper):
    def bound(state, error):
        likelihood = replace(state.likelihood, error=error)  # at the same q(tau)
        state = replace(state, likelihood=likelihood)
        return sum(cavi.elbo_terms(state, sweeper.data, PRIORS).values())

    state = sweeper.state
    error, value = trimming.error_and_value(sweeper)
    curvature, gradient = trimming.joint_system(sweeper)
    other = trimming.moved(state, trimming.step(curvature, gradient, 1.0))
    sweeper.restore(other)
    other_error, other_value = trimming.error_and_value(sweeper)
    gain = bound(other, other_error) - bound(state, error)
    assert gain == pytest.approx(other_value - value, rel=1e-8)
    assert gain > 0


def test_the_bound_rises_with_joint_steps(sweeper):
    def bound():
        return sum(cavi.elbo_terms(sweeper.state, sweeper.data, PRIORS).values())

    error, _ = trimming.error_and_value(sweeper)
    sweeper.state = cavi.update_likelihood(sweeper.state, (error,), sweeper.data, PRIORS)
    before = bound()
    assert trimming.ascend(sweeper, 5) == pytest.approx(sweeper.state.likelihood.error)
    assert bound() > before + 1.0


@pytest.mark.parametrize("noise", [1e-5, 1e-3, 1e-2])
def test_redundant_components_are_trimmed(noise):
    problem = make_problem(noise)
    plain, trimmed = (run(problem, make_settings(most_weights=m)) for m in (0, 200))
    assert plain.sweeps[-1].rank > 2
    assert trimmed.sweeps[-1].rank == 2
    assert trimmed.state.likelihood.noise_std == pytest.approx(noise, rel=0.15)
    bounds = [p.bound for p in trimmed.sweeps if p.phase in ("exact", "trim")]
    assert np.all(np.diff(bounds) > -1e-7 * np.abs(bounds[1:]))
    assert bounds[-1] > plain.sweeps[-1].bound + 10.0


def test_what_is_needed_stays_as_it_is():
    problem = make_problem(1e-2)
    plain, trimmed = (run(problem, make_settings(rank=2, most_weights=m)) for m in (0, 200))
    for a, b in zip(plain.state.factors, trimmed.state.factors, strict=True):
        assert np.array_equal(a.mean, b.mean)
    assert trimmed.sweeps[-1].bound == plain.sweeps[-1].bound


def test_who_wants_no_pruning_gets_no_trimming():
    start = run(make_problem(1e-3), make_settings(drop_components=False, max_iter=8))
    assert start.sweeps[-1].rank == 4
    assert len(start.sweeps) == 18
