"""One start at work: the modes updated in turn, from sums over rows that an executor adds up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from . import cavi, gauss_newton, row_block, rows
from .batch_stats import Past, Said, SumsSaid
from .cavi import Block, Data
from .levels import LevelMode
from .likelihoods import Curved, Gaussian
from .reduction import Smaller
from .state import Priors, State
from .sums import Sums, SumsTerms, refine

Array = Any
# drops what the bound can do without in mode d, or returns None
Dropper = Callable[[State, int, Block], Smaller | None]
Command = Callable[[Any], Any]  # of a block of rows; can be pickled
SUM_STEPS, SUM_STEPS_ALONE = 3, 10  # of the precisions of main effects in a sweep


class Executor(Protocol):
    """What the engine asks of whoever holds the rows: commands of chunks.py, for every block."""

    # returns what brings a new block to where the others are, for executors that can lose some
    recall: Callable[[], list[Command]]

    def sum(self, command: Command) -> tuple[Array, ...]:
        """Return the sum over row blocks of what a command returns for each: NumPy arrays."""

    def each(self, command: Command) -> None:
        """Give a command to every row block; it may be carried out as late as the next sum."""

    def close(self) -> None:
        """Let go of the row blocks."""


class Memory(NamedTuple):
    """What a sweeper must remember to go on elsewhere."""

    state: State
    last: int | None
    jitter: float
    spread: float
    view: row_block.View
    gauge: list[Array] | None
    asked: list[Command]


class Sweeper:
    """Walks the modes back and forth, so that each step extends the environments by one mode."""

    def __init__(
        self,
        executor: Executor,
        state: State,
        data: Data,
        priors: Priors,
        memory: Memory | None = None,
        past: Past | None = None,
    ) -> None:
        self.executor = executor
        self.state = state
        self.data = data
        self.priors = priors
        self.past = past
        self._grams: Any = None  # of the sum, where the likelihood is fixed: see _sum_grams
        self._square = data.square  # sum s_n E[(y_n - a_n)^2]
        self.jitter = 0.0
        self.last: int | None = None  # the mode solved last
        self._asked: list[Command] = []
        self._gauge: list[Array] | None = None  # see rebalance
        self.view: row_block.View
        executor.recall = self.recall
        if memory is None:
            self.switch(spread=0.0)
            if past is not None and state.modes:  # columns may be new, and add nothing to f yet
                self.last = state.network.first_to_speak(state)
            return
        self.state, self.last, self.jitter, self.spread = memory[:4]
        view, self._gauge, self._asked = memory[4:]
        self.view = replace(view, terms=list(view.terms))  # which others may go on from, too
        for command in self.recall():
            executor.each(command)
        self._see_residuals()

    def memory(self) -> Memory:
        """Return what another sweeper needs to go on from here."""
        view = replace(self.view, terms=list(self.view.terms))
        return Memory(
            self.state, self.last, self.jitter, self.spread, view, self._gauge, self._asked
        )

    def switch(self, *, spread: float) -> None:
        """Take this share of the covariances into the moments: none at 0, all at 1."""
        self.spread = spread
        self.restore(self.state)

    def refresh(self) -> None:
        """Make every mode's terms anew and forget the environments."""
        self._show([self._terms(d) for d in range(len(self.state.modes))])

    def _show(self, terms: list[rows.Terms]) -> None:
        """Let the rows know q as it is."""
        layouts = [factor.layout for factor in self.state.factors]
        network, output = self.state.network, self.state.output
        sums = self._sum_terms()
        self.view = row_block.View(network, layouts, terms, output, self.spread > 0, sums)
        if self.past is not None and self._gauge is not None:
            modes = zip(self.past.modes, self._gauge, layouts, strict=True)
            said = tuple(said.scaled(gauge, layout) for said, gauge, layout in modes)
            self.past = replace(self.past, modes=said)
        self._gauge = None
        self.executor.each(partial(row_block.see, view=self.view))
        self._see_residuals()

    def rebalance(self) -> None:
        """Move scales between modes, or turn their axes; f is what it was.

        Of scales the rows are told nothing: their weights of mode d are those of q over a gauge,
        (C,), and the gauges of all modes multiply to 1.
        """
        if self.past is not None and self.state.network.turns:  # sums have the axes of their time
            return
        before = self.state
        self.state, scales = before.network.rebalance(before, self.priors)
        if self.state is before:  # nothing was free to move
            return
        if scales is None:
            self.refresh()
            return
        before_that = self._gauge or [np.ones(len(c)) for c in scales]
        self._gauge = [gauge * c for gauge, c in zip(before_that, scales, strict=True)]

    def _terms(self, d: int) -> rows.Terms:
        """Return what the rows need of mode d, as much of its covariance as comes in."""
        state = self.state
        squares = state.output is not None and state.network.carries_asks
        return rows.terms(state.modes[d], state.factors[d], spread=self.spread, squares=squares)

    def over_relax(self, origin: State, factor: float) -> None:
        """Move every mean on by ``factor`` times its change since ``origin``; covariances stay."""
        factors = tuple(
            replace(now, mean=now.mean + factor * (now.mean - before.mean))
            for now, before in zip(self.state.factors, origin.factors, strict=True)
        )
        self.restore(replace(self.state, factors=factors))

    def ascend(self, steps: int, goal: float = np.inf) -> float:
        """Move the means of all modes together, up to so many steps, and update the noise.

        Only where ``joint.possible``; the bound never falls. Steps end early once they gain next to
        nothing. With a finite ``goal`` the noise is held, and steps end as well once the pace of
        the last one would not bring the error down to it in those left.

        Returns
        -------
        error : float
            E||y - f||^2.
        """
        if self._gauge is not None:  # derivatives are those of the rows' own weights
            self.refresh()
        error, value = self._error_and_value()
        damping = gauss_newton.DAMPING
        for left in range(steps - 1, -1, -1):
            state, last_error, last_value = self.state, error, value
            system = self._joint_system()
            while damping <= gauss_newton.MOST:
                change = gauss_newton.step(*system, damping)
                if change is not None:
                    self.state = gauss_newton.moved(state, change)
                    self.refresh()
                    error, value = self._error_and_value()
                    if value > last_value:
                        break
                damping *= gauss_newton.MORE
            else:  # nowhere higher, up to rounding
                self.state, error = state, last_error
                self.refresh()
                break
            damping = max(gauss_newton.LESS * damping, gauss_newton.LEAST)
            if value - last_value < gauss_newton.ENOUGH * max(1.0, -value):
                break
            if error - left * (last_error - error) > goal:
                break
        if goal == np.inf:
            self.state = cavi.update_likelihood(self.state, (error,), self.data, self.priors)
        return error

    def restore(self, state: State) -> None:
        """Go on from another state."""
        self.state = state
        self.refresh()
        self.listen()

    def sweep(self, *, mean_only: bool = False, drop: Sequence[Dropper] = ()) -> None:
        """Update the modes once, from the one solved last to the other end.

        That one is left out where nothing has changed since but what hangs on it. Rows that ask for
        something else have; and amplitudes are what anchored components live or die by.
        """
        for d in self._order():
            self.step(d, mean_only=mean_only, drop=drop)
        self.update_sums(drop=bool(drop) and self.spread > 0.0)  # before, the ELBO has no say
        self.listen()

    def _order(self) -> range:
        """Return the modes from the one solved last to the other end."""
        n = len(self.state.modes)
        again = self.state.anchored or not self.state.likelihood.fixed
        first = 0 if self.last is None or n == 1 or again else 1
        backward = self.last is not None and self.last == n - 1 and n > 1
        return range(n - 1 - first, -1, -1) if backward else range(first, n)

    def step(self, d: int, *, mean_only: bool = False, drop: Sequence[Dropper] = ()) -> None:
        """Update mode d and, in the exact phase, the precisions that hang on it."""
        before = self.state
        block = self._sums(d)
        self._solve(d, block, mean_only=mean_only)
        for dropper in drop:  # each needs mode d solved, and leaves it to be solved anew
            smaller = dropper(self.state, d, block)
            if smaller is not None:
                self._forget(smaller)
                self.state, block = smaller.state, smaller.block
                self._solve(d, block, mean_only=mean_only)
        factor = self.state.factors[d]
        term = self._terms(d)
        if self.spread:
            state = self.state
            if state.likelihood.fixed:  # the sums at hand have the error in them
                error = block.error(self._square, term, factor)
                state = cavi.update_likelihood(state, (error,), self.data, self.priors)
            state = cavi.update_basis(state, d, self.priors)
            self.state = cavi.update_rank(state, d, self.priors)
        pairs = zip(before.factors, self.state.factors, strict=True)
        if all(old.mean.shape[1] == new.mean.shape[1] for old, new in pairs):
            self._changed(d, term)
        else:
            self.refresh()
        self.last = d

    def _sum_terms(self) -> SumsTerms | None:
        """Return what the rows need of the main effects."""
        sums = self.state.sums
        return None if sums is None else SumsTerms.of(sums, self.state.n_inputs)

    def _sum_grams(self) -> tuple[Array, Array]:
        """Return products of the functions of the sum, and with the working responses."""
        sums = self.state.sums
        assert sums is not None
        if self._grams is not None and sums.same_functions(self._grams[0]):
            _, gram, linear = self._grams
            return gram, linear
        gram, linear = self.executor.sum(row_block.sum_grams)
        if self.past is not None:
            said = self.past.sums_of(sums)
            gram, linear = gram + said.gram, linear + said.linear
        if self.state.likelihood.fixed:
            self._grams = sums, gram, linear
        return gram, linear

    def update_sums(self, *, learn: bool = True, drop: bool = False) -> None:
        """Update the main effects, given the tensor, and their precisions if they are to learn.

        They learn in the warm phase, too: with precisions that are held there, main effects would
        take all that there is, and with none the tensor would (docs/experiments.md).
        """
        sums = self.state.sums
        if sums is None:
            return
        gram, linear = self._sum_grams()
        beside = np.zeros_like(linear)
        if self.state.modes:
            (beside,) = self.executor.sum(partial(row_block.sum_beside, d=self.last or 0))
            if self.past is not None:
                beside = beside + self.past.sums_of(sums).beside
        scale, likelihood = self.state.likelihood.scale, self.state.likelihood
        # of the tensor alone: sum s_n E[T^2 - 2 y T]
        rest = 0.0
        if self.spread and isinstance(likelihood, Gaussian) and self.state.modes:
            rest = likelihood.error - self._square - 2.0 * float(np.sum(sums.mean * beside))
        steps = SUM_STEPS if self.state.modes else SUM_STEPS_ALONE
        solved, jitter = refine(sums, scale * gram, scale * (linear - beside), steps, learn=learn)
        if drop:
            solved = _smaller(solved, scale * gram, scale * (linear - beside))
        self.jitter = max(self.jitter, jitter)
        self.state = replace(self.state, sums=solved)
        self.view.sums = terms = SumsTerms.of(solved, self.state.n_inputs)
        self.executor.each(partial(row_block.change_sums, terms=terms))
        if not likelihood.fixed:
            return
        left = sums.places_of(solved)
        self._grams = solved, gram[:, left[:, None], left], linear[:, left]
        self._see_residuals()
        if self.spread:
            error = self._square + rest + 2.0 * float(np.sum(solved.mean * beside[:, left]))
            self.state = cavi.update_likelihood(self.state, (error,), self.data, self.priors)

    def _see_residuals(self) -> None:
        """Find sum s_n E[(y_n - a_n)^2], for a likelihood whose weights are fixed."""
        sums = self.state.sums
        if sums is None or not self.state.likelihood.fixed:
            return
        (gram,), (linear,) = self._sum_grams()
        mean, cov = sums.mean[0], sums.cov[0]
        square = self.data.square - 2.0 * float(linear @ mean) + float(mean @ gram @ mean)
        self._square = square + (float(np.sum(gram * cov)) if self.spread else 0.0)

    def _forget(self, smaller: Smaller) -> None:
        """Let go of what is known of columns that are dropped."""
        if self._gauge is not None:  # a new list: a pause may hold the old one
            kept = smaller.kept
            self._gauge = [g[kept[k]] if k in kept else g for k, g in enumerate(self._gauge)]
        for k, columns in smaller.kept.items():
            if self.past is not None:
                before, after = (s.factors[k].layout for s in (self.state, smaller.state))
                said = self.past.modes[k].take(columns, before, after)
                self.past = self.past.with_mode(k, said)

    def _changed(self, d: int, term: rows.Terms) -> None:
        if self._gauge is not None:
            term = term.scale(1.0 / self._gauge[d])
        self.view.terms[d] = term
        self.executor.each(partial(row_block.change, d=d, term=term))

    def listen(self) -> None:
        """Let the rows say what they ask of f as it is now, where that depends on f."""
        if self.state.likelihood.fixed:
            return
        look = partial(row_block.look, d=self.last or 0)
        self._remember(partial(look, likelihood=self.state.likelihood))
        sums = self._with_past(self.executor.sum(self._asked[-1]))
        learned = cavi.update_likelihood(self.state, sums, self.data, self.priors)
        # what rows that are gone think of another offset is not known
        free = self.spread and self.past is None
        other = learned.likelihood.propose(sums) if free else None
        if other is not None:
            self._remember(partial(look, likelihood=other))
            sums = self._with_past(self.executor.sum(partial(row_block.ask, likelihood=other)))
            tried = replace(learned, likelihood=other)
            tried = cavi.update_likelihood(tried, sums, self.data, self.priors)
            before, after = (
                sum(s.likelihood.terms(self.data.n, self.priors.noise).values())
                for s in (learned, tried)
            )
            if after >= before:
                learned = tried
            else:
                self._remember(partial(look, likelihood=learned.likelihood))
                self.executor.sum(partial(row_block.ask, likelihood=learned.likelihood))
        self.state = learned

    def _with_past(self, sums: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add what a likelihood learned from rows that are gone."""
        if self.past is None:
            return sums
        return tuple(a + b for a, b in zip(sums, self.past.asked, strict=True))

    def absorbed(self, features: tuple[tuple[Array, Array], ...]) -> Past:
        """Return what the rows, whose features add up so, have to say of q as it is."""
        self.spread = 1.0
        self.refresh()
        likelihood, asked = self.state.likelihood, ()
        if not likelihood.fixed:
            self._remember(look := partial(row_block.look, likelihood=likelihood, d=0))
            asked = self.executor.sum(look)
        if isinstance(likelihood, Curved):
            self._remember(truth := partial(row_block.ask_truth, likelihood=likelihood, d=0))
            self.executor.each(truth)
        modes = []
        for d in range(len(self.state.modes)):
            modes.append(Said(*self._row_sums(d)))
            # what was behind it is of no more use
            self.executor.each(partial(row_block.change, d=d, term=self.view.terms[d]))
        sums = None
        if self.state.sums is not None:
            gram, linear = self.executor.sum(row_block.sum_grams)
            (beside,) = self.executor.sum(partial(row_block.sum_beside, d=0))
            sums = SumsSaid(self.state.sums, gram, linear, beside)
        information = np.zeros(())
        if not likelihood.fixed:
            (information,) = self.executor.sum(row_block.information)
        return Past(self.data, tuple(modes), asked, information, features, sums)

    def remembered(self) -> Past:
        """Return what rows that are gone say of q as it is."""
        self.refresh()  # without a gauge
        assert self.past is not None
        said = tuple(self._said(d) for d in range(len(self.state.modes)))
        sums = None if self.state.sums is None else self.past.sums_of(self.state.sums)
        return replace(self.past, modes=said, sums=sums)

    def newton_sweep(self) -> None:
        """Update the modes once by the likelihood itself instead of its bound; precisions stay.

        The bound is more curved than the likelihood, and q by it too narrow, its mean not quite
        where it should be. The Gaussian nearest to the posterior has E[-d^2 log p(y | f) / df^2]
        for weights; with E[d log p(y | f) / df] for slope, an update is a step of Newton's method.
        """
        likelihood: Any = self.state.likelihood
        assert isinstance(likelihood, Curved)
        moved: Any = likelihood
        if self.past is None:
            slopes_of = partial(row_block.slopes, likelihood=likelihood, d=self.last or 0)
            slopes, weights = self.executor.sum(slopes_of)
            moved = likelihood.moved(np.clip(slopes / weights, -1.0, 1.0))
        self.state = replace(self.state, likelihood=moved)
        for d in range(len(self.state.modes)):
            # for every mode: a bound would allow for steps, this does not
            self._remember(asked := partial(row_block.ask_truth, likelihood=moved, d=d))
            self.executor.each(asked)
            self._solve(d, self._sums(d))
            self._changed(d, self._terms(d))
            self.last = d
        if self.state.sums is not None:
            self._remember(
                asked := partial(row_block.ask_truth, likelihood=moved, d=self.last or 0)
            )
            self.executor.each(asked)
            self.update_sums(learn=False)

    def information(self) -> Array:
        """Return how much all rows say of the level of f: the sum of their weights, (K,) or ()."""
        if self.state.likelihood.fixed:
            return self.data.n * self.state.likelihood.scale
        (total,) = self.executor.sum(row_block.information)
        if self.past is not None:
            total = total + self.past.information
        return self.state.likelihood.scale * np.asarray(total)

    def recall(self) -> list[Command]:
        """Return what brings a block of rows that has just been made to where the others are."""
        return [*self._asked, partial(row_block.see, view=self.view)]

    def _remember(self, asked: Command) -> None:
        """Keep what made the rows ask for what they do, and the q that it was made by."""
        then = replace(self.view, terms=list(self.view.terms))
        self._asked = [partial(row_block.see, view=then), asked]

    def _error_and_value(self) -> tuple[float, float]:
        """Return E||y - f||^2 and the part of the bound that hangs on the means."""
        (error,) = self.executor.sum(partial(row_block.squared_error, d=self.last or 0))
        error = float(error)
        scale = self.state.likelihood.scale
        return error, -0.5 * (scale * error + gauss_newton.penalty(self.state))

    def _joint_system(self) -> tuple[Array, Array]:
        """Return curvature and gradient of the bound in the means of all modes."""
        modes, layout = self.state.modes, self.state.factors[0].layout
        widths, keep = [_widths(mode) for mode in modes], [mode.keep for mode in modes]
        gram, *rest = self.executor.sum(partial(row_block.joint_sums, widths=widths, keep=keep))
        blocks = [
            Block(mode, second, linear[mode.present], layout)
            for mode, second, linear in zip(modes, rest[::2], rest[1::2], strict=True)
        ]
        return gauss_newton.system(self.state, blocks, gram)

    def _row_sums(self, d: int) -> tuple[Array, Array]:
        widths = _widths(self.state.modes[d])
        second, linear = self.executor.sum(partial(row_block.block_sums, d=d, widths=widths))
        return second, linear

    def _sums(self, d: int) -> Block:
        mode, layout = self.state.modes[d], self.state.factors[d].layout
        second, linear = self._row_sums(d)
        if self.past is not None:
            said = self._said(d)
            second, linear = second + said.second, linear + said.linear
        if self._gauge is not None:  # what is around a mode has the inverse of its gauge
            c, e = layout.first
            gauge = self._gauge[d]
            second, linear = second / (gauge[c] * gauge[e]), linear / gauge
        if isinstance(mode, LevelMode):
            return mode.block(second, linear, layout)
        return Block(mode, second, linear[mode.present], layout)

    def _said(self, d: int) -> Said:
        assert self.past is not None
        widths = _widths(self.state.modes[d])
        return self.past.modes[d].first(widths.n_psi, widths.n_phi)

    def _solve(self, d: int, block: Block, *, mean_only: bool = False) -> None:
        self.state, jitter = cavi.update_factor(self.state, d, block, mean_only=mean_only)
        self.jitter = max(self.jitter, jitter)


def _smaller(sums: Sums, gram: Array, linear: Array) -> Sums:
    """Return the sum without what the ELBO can do without, solved anew."""
    lost = sums.expendable(gram)
    while lost:
        smaller = sums.without(np.array(lost))
        left = sums.places_of(smaller)
        rest = gram[:, left[:, None], left], linear[:, left]
        solved, _ = smaller.solved(*rest)
        if solved.value(*rest) >= sums.value(gram, linear):
            return solved
        lost = lost[: len(lost) // 2]
    return sums


def _widths(mode: Any) -> rows.Widths:
    return rows.Widths(mode.n_phi, mode.n_psi)
