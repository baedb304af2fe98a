"""Several restarts: threads agree, Ctrl-C keeps what there is, errors leave nothing running."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from btnkm import BTNClassifier, BTNRegressor, Solver
from btnkm.bases import Chebyshev
from btnkm.bases.anchored import Anchored
from btnkm.core.cavi import Data
from btnkm.core.gamma import Gamma
from btnkm.core.likelihoods import Bernoulli, Gaussian, StudentT
from btnkm.core.schedule import Progress
from btnkm.execution.fitting import fit
from btnkm.execution.restarts import Restart, n_threads, run_restarts
from btnkm.plan import FitPlan
from btnkm.structures.mode_map import ModeMap
from btnkm.structures.task import Target
from tests.test_core_schedule import MILD, make_problem, make_settings

SMALL = {"max_iter": 8, "max_rank": 4, "n_basis": 6, "random_state": 0}
SMALL |= {"structure": "tensor"}


def draw(n=80, inputs=3):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, inputs))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize(("n", "starts"), [(80, 3), (9000, 1)], ids=["restarts", "row blocks"])
def test_n_jobs_changes_no_result(n, starts):
    X, y = draw(n)
    first, two = (BTNRegressor(**SMALL, n_init=starts, n_jobs=jobs).fit(X, y) for jobs in (1, 2))
    for a, b in zip(first.predict(X, True), two.predict(X, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(first.ranks_, two.ranks_)
    assert first.lower_bound_ == pytest.approx(two.lower_bound_, rel=1e-8)


@pytest.mark.parametrize(
    "likelihood", [Gaussian(Gamma(1.0, 0.01)), Bernoulli()], ids=["y", "class"]
)
def test_threads_and_helpers_change_no_result(likelihood, waiting_helper):
    problem = make_problem(("chebyshev", "packed", "categorical"), 60, 0)
    labels = replace(problem.rows, y=(problem.rows.y > 0).astype(float))
    problem = replace(problem, rows=labels) if isinstance(likelihood, Bernoulli) else problem
    serial = replace(make_settings(MILD, n_init=4), likelihood=likelihood)
    threads = replace(serial, n_jobs=2, worth_a_thread=0)
    helpers = replace(serial, n_jobs=2, worth_helpers=0.0)
    names = []

    def observe(k, progress):
        names.append(threading.current_thread().name)

    expected, *others = (fit(problem, how, [0], observe) for how in (serial, threads, helpers))
    assert any(name.startswith("btnkm") for name in names)
    for result in others:
        for a, b in zip(expected.restarts, result.restarts, strict=True):
            elbos = [[p.bound for p in restart.sweeps] for restart in (a, b)]
            np.testing.assert_array_equal(*elbos)
            for f, g in zip(a.state.factors, b.state.factors, strict=True):
                np.testing.assert_array_equal(f.mean, g.mean)
                np.testing.assert_array_equal(f.cov, g.cov)


def test_the_prediction_is_the_mixture_of_the_restarts():
    X, y = draw()
    several = BTNRegressor(**SMALL, n_init=3).fit(X, y)
    assert len(several.posterior_) == len(several.ranks_) == 3
    mean, std = several.predict(X, return_std=True)
    parts = []
    for state in several.posterior_:
        single = BTNRegressor(**SMALL, n_init=1).fit(X, y)
        single.posterior_ = (state,)
        del single.fitted_  # made of the former posteriors
        parts.append(single.predict(X, return_std=True))
    means, stds = np.array(parts).transpose(1, 0, 2)
    weights = several.weights_
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(mean, weights @ means)
    np.testing.assert_allclose(std**2, weights @ (stds**2 + (means - mean) ** 2))
    assert means.var(axis=0).max() > 0


def test_more_restarts_begin_with_the_same_ones():
    X, y = draw()
    few, many = (BTNRegressor(**SMALL, n_init=k).fit(X, y) for k in (1, 2))
    first, again, other = (s.factors[0].mean for s in (*few.posterior_, *many.posterior_))
    np.testing.assert_array_equal(first, again)
    assert np.any(first[0, 0] != other[0, 0])


class Rows:
    """What a plan asks of rows of weight 1: how many they are, and the usual limit of memory."""

    usual_memory = 1.4

    def __init__(self, n):
        self.n = n

    def data(self):
        return Data(float(self.n), 0.0)


def settings_of(estimator, likelihood, n, mode_map, n_outputs=None):
    target = Target(lambda y, weight: (y, weight), likelihood, 1.0, {}, n_outputs)
    plan = FitPlan.of(estimator, estimator._defaults, target, n, 1)
    return plan.settings(mode_map, Rows(n), plan.restarts(mode_map))


def arranged(anchored):
    return ModeMap(full_cores=False, inputs=[0], bases=[], anchored=anchored)


@pytest.mark.parametrize(
    ("n", "count"), [(1, 8), (5_000, 8), (5_001, 7), (10_000, 4), (20_000, 2), (10**7, 2)]
)
def test_number_of_restarts(n, count):
    settings = settings_of(BTNRegressor(), Gaussian(), n, arranged(anchored=False))
    assert (settings.n_init, settings.may_reduce_restarts) == (count, True)
    assert settings.initial_rank == np.clip(n // 25, 4, 20)
    assert settings.max_rank == (80 if n <= 10_000 else 40)
    given = BTNRegressor(n_init=5, max_rank=3)
    given = settings_of(given, Gaussian(), n, arranged(anchored=True))
    assert (given.n_init, given.max_rank, given.may_reduce_restarts) == (5, 3, False)


@pytest.mark.parametrize(("n", "count", "rank"), [(800, 8, 20), (16_000, 3, 10), (10**5, 2, 10)])
def test_number_of_restarts_for_labels(n, count, rank):
    settings = settings_of(BTNClassifier(), Bernoulli(), n, arranged(anchored=True))
    assert (settings.n_init, settings.max_rank) == (count, rank)


LEAST_SQUARES, LABELS = Gaussian(), Bernoulli()  # a label is worth a quarter of a number
TWO = [Chebyshev(10).fit(np.linspace(-1.0, 1.0, 50)) for _ in range(2)]
ANCHORED = [Anchored(basis).fit(np.linspace(-1.0, 1.0, 50)) for basis in TWO]


@pytest.mark.parametrize(
    ("likelihood", "n", "annealing", "smoothing"),
    [
        (LEAST_SQUARES, 79, 12, 3.0),
        (LEAST_SQUARES, 80, 0, 1.0),
        (LABELS, 319, 12, 1.5),
        (LABELS, 320, 0, 1.0),
    ],
)
def test_annealing_where_rows_are_few(likelihood, n, annealing, smoothing):
    schedule = settings_of(
        BTNRegressor(), likelihood, n, ModeMap(False, [0, 1], TWO, False)
    ).schedule
    assert (schedule.annealing_sweeps, schedule.warm_smoothing) == (annealing, smoothing)
    short = BTNRegressor(solver=Solver(warm_sweeps=0))
    schedule = settings_of(short, likelihood, n, ModeMap(False, [0, 1], TWO, False)).schedule
    assert (schedule.warm_sweeps, schedule.annealing_sweeps, schedule.warm_smoothing) == (0, 0, 1.0)


@pytest.mark.parametrize("n", [79, 800])
def test_annealing_of_anchored_components_and_of_full_cores(n):
    mode_map = ModeMap(False, [0, 1], ANCHORED, True)
    schedule = settings_of(BTNRegressor(), LEAST_SQUARES, n, mode_map).schedule
    assert (schedule.annealing_sweeps, schedule.warm_smoothing) == (10, 1.0)
    mode_map = ModeMap(True, [0, 1], TWO, False)
    schedule = settings_of(BTNRegressor(network="tt"), LEAST_SQUARES, n, mode_map).schedule
    assert (schedule.annealing_sweeps, schedule.warm_smoothing) == (20, 1.5)


@pytest.mark.parametrize(
    ("likelihood", "warm_sweeps"), [(LEAST_SQUARES, 0), (StudentT(), 10), (LABELS, 0)]
)
def test_a_sum_alone_needs_no_warm_phase_unless_its_noise_is_learned_in_it(likelihood, warm_sweeps):
    both = ModeMap(False, [0, 1], TWO, False, sums_first=True)
    for schedule in (
        settings_of(BTNRegressor(), likelihood, 40, ModeMap(False, [], [], False)).schedule,
        settings_of(BTNRegressor(), likelihood, 40, both).schedule_of_sums,
    ):
        assert (schedule.warm_sweeps, schedule.annealing_sweeps) == (warm_sweeps, 0)


@pytest.mark.parametrize(
    ("likelihood", "n", "warm_rank"),
    [(LEAST_SQUARES, 10_000, 30), (LEAST_SQUARES, 300, 15), (LABELS, 1200, 15)],
)
def test_extra_components_of_the_warm_phase(likelihood, n, warm_rank):
    two = ModeMap(False, [0, 1], TWO, False)
    settings = settings_of(BTNRegressor(), likelihood, n, two)
    assert settings.warm_rank == warm_rank
    assert settings.extra_components(10) == min(10, warm_rank - 10)
    assert settings.extra_components(40) == 0
    short = BTNRegressor(solver=Solver(warm_sweeps=4))
    for other in (
        settings_of(short, likelihood, n, two),
        settings_of(BTNRegressor(), likelihood, 10_001, two),
        settings_of(BTNRegressor(), likelihood, n, two, n_outputs=3),
        settings_of(BTNRegressor(), likelihood, n, ModeMap(False, [0], TWO[:1], False)),
        settings_of(BTNRegressor(), likelihood, n, ModeMap(False, [0, 1], ANCHORED, True)),
        settings_of(BTNRegressor(network="tt"), likelihood, n, ModeMap(True, [0, 1], TWO, False)),
    ):
        assert (other.warm_rank, other.extra_components(10)) == (0, 0)


def test_a_fit_that_resumes_has_no_phase_before_the_exact_one():
    target = Target(lambda y, weight: (y, weight), LEAST_SQUARES, 1.0, {})
    for model, sweeps in ((BTNRegressor(), 20), (BTNRegressor(max_iter=7), 7)):
        plan = FitPlan.of(model, model._defaults, target, 40, 2)
        settings = plan.settings(ModeMap(False, [0, 1], TWO, False), Rows(40), 2)
        actual = plan.settings_to_resume(settings, 3)
        schedule = actual.schedule
        assert (schedule.warm_sweeps, schedule.annealing_sweeps, schedule.max_iter) == (
            0,
            0,
            sweeps,
        )
        assert (actual.n_init, actual.may_reduce_restarts) == (3, False)


@pytest.mark.parametrize(
    ("n", "max_iter", "expected"),
    [(1, "auto", 25), (4000, "auto", 25), (5000, "auto", 20), (100_000, "auto", 12), (5000, 7, 7)],
)
def test_a_short_fit_has_fewer_sweeps_the_more_rows_there_are(n, max_iter, expected):
    model, target = BTNRegressor(max_iter=max_iter), Target(None, LEAST_SQUARES, 1.0, {})
    plan = FitPlan.of(model, model._defaults, target, 10 * n, 2)
    mode_map = ModeMap(False, [0, 1], TWO, False)
    settings = plan.settings_to_try(mode_map, Rows(n), n, 3)
    assert (settings.schedule.max_iter, settings.schedule.warm_sweeps) == (expected, 10)
    assert settings.initial_rank == settings.max_rank


def test_number_of_threads():
    cores = n_threads(-1)
    assert cores >= 1
    assert n_threads(3) == 3
    assert n_threads(-cores) == n_threads(-1000) == 1
    assert 1 <= n_threads(None) <= cores


def sweeps(count, log=None, fail_at=None, error=ValueError):
    """Return a run that yields ``count`` sweeps, exact from the third on."""

    def make_run(k):
        for sweep in range(1, count + 1):
            if sweep == fail_at:
                raise error(f"sweep {sweep}")
            if log is not None:
                log.append((k, sweep))
            phase = "exact" if sweep > 2 else "warm"
            yield Progress(sweep, phase, 0.0, {}, 1, 1.0, 0.0, 0.0, state=object())

    return make_run


@pytest.mark.parametrize("threads", [1, 3])
def test_every_restart_runs_to_its_end(threads):
    seen = []

    def observe(k, p):
        seen.append((k, p.sweep))

    restarts, interrupted = run_restarts(sweeps(5), 4, threads, observe)
    assert not interrupted
    assert sorted(seen) == [(k, s) for k in range(4) for s in range(1, 6)]
    assert [s.stop_reason for s in restarts] == ["finished"] * 4
    assert all(s.usable for s in restarts)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_observer_stops_all(threads):
    log = []
    restarts, interrupted = run_restarts(
        sweeps(10_000, log), 4, threads, lambda k, p: k == 0 and p.sweep == 4
    )
    assert not interrupted
    assert len(restarts[0].sweeps) == 4
    assert len(log) < 20_000
    assert restarts[0].stop_reason == "stopped"
    assert restarts[0].usable


def test_a_restart_in_its_warm_phase_is_not_usable():
    restarts, _ = run_restarts(sweeps(10), 1, 1, lambda k, p: p.sweep == 2)
    assert not restarts[0].usable


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_run_reaches_the_caller(threads):
    with pytest.raises(ValueError, match="sweep 4"):
        run_restarts(sweeps(9, fail_at=4), 5, threads, lambda k, p: None)


def test_an_interrupt_keeps_the_sweeps_so_far():
    run = sweeps(9, fail_at=6, error=KeyboardInterrupt)
    restarts, interrupted = run_restarts(run, 3, 1, lambda k, p: None)
    assert interrupted
    assert [len(s.sweeps) for s in restarts] == [5, 0, 0]
    assert [s.usable for s in restarts] == [True, False, False]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_in_the_callback_leaves_nothing_running(jobs):
    problem = make_problem(("chebyshev", "packed"), 60, 0)
    how = replace(make_settings(MILD, n_init=4), n_jobs=jobs, worth_a_thread=0)

    def observe(k, progress):
        if progress.sweep == 12:
            raise LookupError("of the user")

    before = set(threading.enumerate())
    with pytest.raises(LookupError, match="of the user"):
        fit(problem, how, [0], observe)
    assert set(threading.enumerate()) <= before


def test_an_error_in_the_callback_leaves_the_estimator_unfitted():
    X, y = draw()

    def callback(entry):
        if entry["sweep"] == 12:
            raise LookupError("of the user")

    failed = BTNRegressor(**SMALL, n_init=4, callback=callback)
    with pytest.raises(LookupError, match="of the user"):
        failed.fit(X, y)
    with pytest.raises(NotFittedError):
        failed.predict(X)


SCRIPT = """
    import sys, warnings
    import numpy as np
    from sklearn.exceptions import ConvergenceWarning, NotFittedError
    from btnkm import BTNRegressor, Solver

    phase, jobs = sys.argv[1], int(sys.argv[2])
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 4))
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(2000)
    there = []

    def callback(entry):
        if entry["phase"] == phase and entry["restart"] not in there:
            there.append(entry["restart"])
            if len(there) == jobs:
                print("now", flush=True)

    warm = 10**6 if phase == "warm" else 2
    model = BTNRegressor(
        n_init=2, n_jobs=jobs, max_iter=10**6, tol=0, max_rank=4, n_basis=6,
        solver=Solver(warm_sweeps=warm), callback=callback, random_state=0, structure="tensor",
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, y)
        except KeyboardInterrupt as error:
            print("raised", error)
    try:
        print("finite", np.all(np.isfinite(model.predict(X, return_std=True))))
        print("kept", len(model.posterior_), model.converged_, model.stop_reason_)
    except NotFittedError:
        print("unfitted")
    for w in caught:
        print("warned", w.category.__name__, w.message)
"""


def interrupt(phase, jobs):
    """Return what a fit prints that gets SIGINT once ``jobs`` starts are in the phase."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), phase, str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        timer = threading.Timer(60.0, process.kill)  # or a fit that never gets there blocks
        timer.start()
        try:
            assert process.stdout.readline() == "now\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=600)
        finally:
            timer.cancel()
            process.kill()
    assert process.returncode == 0, err
    return out


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_the_posterior(jobs):
    out = interrupt("exact", jobs)
    assert "raised" not in out
    assert "finite True" in out
    assert f"kept {jobs} False Interrupted: the posteriors of {jobs} of 2 restarts" in out
    assert "warned ConvergenceWarning Interrupted" in out


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_in_the_warm_phase_leaves_the_estimator_unfitted(jobs):
    out = interrupt("warm", jobs)
    assert "raised no restart had reached its exact phase: nothing to keep" in out
    assert "unfitted" in out
    assert "warned" not in out


def test_only_the_last_sweep_keeps_its_state():
    restart = Restart()
    for sweep in range(3):
        restart.add(Progress(sweep, "exact", 0.0, {}, 1, 1.0, 0.0, 0.0, state=f"state {sweep}"))
    assert [progress.state for progress in restart.sweeps] == [None, None, "state 2"]
    assert restart.state == "state 2"
