"""The sweeps of one restart: modes are updated in turn, from sums over rows by an executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from . import cavi, row_block, rows
from .batch_stats import BatchStats, EffectStats, ModeStats
from .categories import CategoryMode
from .cavi import Block, Data
from .likelihoods import Curved, Gaussian, of_past, propose
from .reduction import Smaller
from .state import Priors, State
from .sums import SumsTerms, refine, smaller

Array = Any
# drops what the ELBO is higher without in mode d, or returns None
Dropper = Callable[[State, int, Block], Smaller | None]
Command = Callable[[Any], Any]  # of a block of rows; it can be pickled
SUM_STEPS, SUM_STEPS_ALONE = 3, 10  # of the precisions of main effects in a sweep


class Executor(Protocol):
    """Whatever holds the rows: it applies the commands of ``row_block`` to every block."""

    # returns the commands that bring a new block up to date, for executors that can lose blocks
    recall: Callable[[], list[Command]]

    def sum(self, command: Command) -> tuple[Array, ...]:
        """Return the sum over row blocks of what a command returns for each: NumPy arrays."""

    def each(self, command: Command) -> None:
        """Apply a command to every row block; this may happen as late as the next sum."""

    def close(self) -> None:
        """Release the row blocks."""


class Memory(NamedTuple):
    """All that another sweeper needs to go on from this one."""

    state: State
    last: int | None
    jitter: float
    spread: float
    view: row_block.View
    gauge: list[Array] | None
    commands: list[Command]


class Sweeper:
    """Sweeps back and forth over the modes, so that each step extends environments by one mode.

    Attributes
    ----------
    state : State
    past : BatchStats or None
        Sums over the rows of earlier batches.
    spread : float
        Fraction of the covariances in the moments: 0 in the warm phase, 1 in the exact phase.
    last : int or None
        The mode solved last.
    gauge : list of ndarray of shape (C,), or None
        See ``rebalance``.
    jitter : float
        Largest jitter that a factorisation has needed.
    view : View
        What the rows know of q.
    """

    def __init__(
        self,
        executor: Executor,
        state: State,
        data: Data,
        priors: Priors,
        memory: Memory | None = None,
        past: BatchStats | None = None,
    ) -> None:
        self.executor = executor
        self.state = state
        self.data = data
        self.priors = priors
        self.past = past
        self._before = state.likelihood  # that the sums over earlier rows are for
        self._grams: Any = None  # of the sum, where the likelihood is fixed: see _sum_grams
        self._square = data.square  # sum s_n E[(y_n - a_n)^2]
        self.jitter = self.spread = 0.0
        self.last: int | None = None
        self.gauge: list[Array] | None = None
        self._commands: list[Command] = []  # see _remember
        self.view: row_block.View
        executor.recall = self.recall
        if memory is None:
            self.switch(spread=0.0)
            if past is not None and state.modes:  # new columns add nothing to f yet
                self.last = state.network.first_mode(state)
            return
        self.state, self.last, self.jitter, self.spread = memory[:4]
        view, self.gauge, self._commands = memory[4:]
        self.view = replace(view, terms=list(view.terms))  # others may go on from it as well
        for command in self.recall():
            executor.each(command)
        self._update_residuals()

    def memory(self) -> Memory:
        """Return all that another sweeper needs to go on from here."""
        view = replace(self.view, terms=list(self.view.terms))
        return Memory(
            self.state, self.last, self.jitter, self.spread, view, self.gauge, self._commands
        )

    def switch(self, *, spread: float) -> None:
        """Use this fraction of the covariances in the moments."""
        # without covariances, f may leave nothing for the noise: both are learned by a sweep first
        holds = self.spread == 0.0 and getattr(self.state.likelihood, "holds", False)
        self.spread = spread
        self.refresh()
        self.update_responses(learn=not holds)

    def refresh(self) -> None:
        """Compute the terms of all modes and reset the environments."""
        self._show([self._terms(d) for d in range(len(self.state.modes))])

    def _show(self, terms: list[rows.Terms]) -> None:
        """Send the current q to the rows."""
        layouts = [factor.layout for factor in self.state.factors]
        network, output = self.state.network, self.state.output
        sums = self._sum_terms()
        self.view = row_block.View(network, layouts, terms, output, self.spread > 0, sums)
        if self.past is not None and self.gauge is not None:
            modes = zip(self.past.modes, self.gauge, layouts, strict=True)
            scaled = tuple(sums.scaled(gauge, layout) for sums, gauge, layout in modes)
            self.past = replace(self.past, modes=scaled)
        self.gauge = None
        self.executor.each(partial(row_block.set_view, view=self.view))
        self._update_residuals()

    def rebalance(self) -> None:
        """Move scales between modes, or turn their axes; f stays what it was.

        Scales are not sent to the rows: their weights of mode d are those of q divided by a gauge,
        (C,), and the gauges of all modes multiply to 1.
        """
        if self.past is not None and self.state.network.turns:  # its sums are for the old axes
            return
        before = self.state
        self.state, scales = before.network.rebalance(before, self.priors)
        if self.state is before:  # nothing was free to move
            return
        if scales is None:
            self.refresh()
            return
        gauges = self.gauge or [np.ones(len(c)) for c in scales]
        self.gauge = [gauge * c for gauge, c in zip(gauges, scales, strict=True)]

    def _terms(self, d: int) -> rows.Terms:
        """Return what the rows need of mode d, with the current fraction of its covariance."""
        state = self.state
        squares = state.output is not None and state.network.carries_responses
        return rows.terms(state.modes[d], state.factors[d], spread=self.spread, squares=squares)

    def over_relax(self, origin: State, factor: float) -> None:
        """Move every mean on by ``factor`` times its change since ``origin``; covariances stay."""
        factors = tuple(
            replace(now, mean=now.mean + factor * (now.mean - before.mean))
            for now, before in zip(self.state.factors, origin.factors, strict=True)
        )
        self.restore(replace(self.state, factors=factors))

    def restore(self, state: State) -> None:
        """Go on from another state."""
        self.state = state
        self.refresh()
        self.update_responses()

    def sweep(self, *, mean_only: bool = False, drop: Sequence[Dropper] = ()) -> None:
        """Update the modes once, from the one solved last to the other end.

        The mode solved last is left out where it is still optimal. It is not where the weights of
        the rows depend on f; and anchored components need their amplitudes in every sweep.
        """
        for d in self._order():
            self.step(d, mean_only=mean_only, drop=drop)
        self.update_sums(drop=bool(drop) and self.spread > 0.0)  # before, the ELBO has no say
        self.update_responses()

    def _order(self) -> range:
        """Return the modes from the one solved last to the other end."""
        n = len(self.state.modes)
        again = self.state.anchored or not self.state.likelihood.fixed
        first = 0 if self.last is None or n == 1 or again else 1
        backward = self.last is not None and self.last == n - 1 and n > 1
        return range(n - 1 - first, -1, -1) if backward else range(first, n)

    def step(self, d: int, *, mean_only: bool = False, drop: Sequence[Dropper] = ()) -> None:
        """Update mode d and, in the exact phase, the precisions of its weights."""
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
            if state.likelihood.fixed:  # the error follows from the sums at hand
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
            earlier = self.past.sums_of(sums)
            gram, linear = gram + earlier.gram, linear + earlier.linear
        if self.state.likelihood.fixed:
            self._grams = sums, gram, linear
        return gram, linear

    def update_sums(self, *, learn: bool = True, drop: bool = False) -> None:
        """Update the main effects given the tensor and, with ``learn``, their precisions.

        Precisions are learned in the warm phase as well: if they were held, main effects would
        explain everything, and without them the tensor would (docs/experiments.md).
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
        of_tensor = 0.0
        if self.spread and isinstance(likelihood, Gaussian) and self.state.modes:
            of_tensor = likelihood.error - self._square - 2.0 * float(np.sum(sums.mean * beside))
        steps = SUM_STEPS if self.state.modes else SUM_STEPS_ALONE
        solved, jitter = refine(sums, scale * gram, scale * (linear - beside), steps, learn=learn)
        if drop:
            solved = smaller(solved, scale * gram, scale * (linear - beside))
        self.jitter = max(self.jitter, jitter)
        self.state = replace(self.state, sums=solved)
        self.view.sums = terms = SumsTerms.of(solved, self.state.n_inputs)
        self.executor.each(partial(row_block.set_sums, terms=terms))
        if not likelihood.fixed:
            return
        kept = sums.places_of(solved)
        self._grams = solved, gram[:, kept[:, None], kept], linear[:, kept]
        self._update_residuals()
        if self.spread:
            error = self._square + of_tensor + 2.0 * float(np.sum(solved.mean * beside[:, kept]))
            self.state = cavi.update_likelihood(self.state, (error,), self.data, self.priors)

    def _update_residuals(self) -> None:
        """Compute sum s_n E[(y_n - a_n)^2], for a likelihood whose weights are fixed."""
        sums = self.state.sums
        if sums is None or not self.state.likelihood.fixed:
            return
        (gram,), (linear,) = self._sum_grams()
        mean, cov = sums.mean[0], sums.cov[0]
        square = self.data.square - 2.0 * float(linear @ mean) + float(mean @ gram @ mean)
        self._square = square + (float(np.sum(gram * cov)) if self.spread else 0.0)

    def _forget(self, smaller: Smaller) -> None:
        """Forget the gauge and the past of columns that are dropped."""
        if self.gauge is not None:  # a new list: a pause may hold the old one
            kept = smaller.kept
            self.gauge = [g[kept[k]] if k in kept else g for k, g in enumerate(self.gauge)]
        for k, columns in smaller.kept.items():
            if self.past is not None:
                before, after = (s.factors[k].layout for s in (self.state, smaller.state))
                stats = self.past.modes[k].take(columns, before, after)
                self.past = self.past.with_mode(k, stats)

    def _changed(self, d: int, term: rows.Terms) -> None:
        if self.gauge is not None:
            term = term.scale(1.0 / self.gauge[d])
        self.view.terms[d] = term
        self.executor.each(partial(row_block.set_terms, d=d, term=term))

    def update_responses(self, *, learn: bool = True) -> None:
        """Update the weights and working responses of the rows, where they depend on f.

        With ``learn``, the likelihood learns, unless the warm phase holds it.
        """
        if self.state.likelihood.fixed:
            return
        update = partial(row_block.update_moments, d=self.last or 0)
        self._remember(partial(update, likelihood=self.state.likelihood))
        sums = self._with_past(self.executor.sum(self._commands[-1]), self.state.likelihood)
        if not learn or (self.spread == 0.0 and getattr(self.state.likelihood, "holds", False)):
            return
        learned = cavi.update_likelihood(self.state, sums, self.data, self.priors)
        if self.spread:
            # the sums of earlier batches are for the old offset
            learned = self._proposed(learned, sums if self.past is None else None)
        self.state = learned

    def _proposed(self, state: State, sums: tuple[Any, ...] | None) -> State:
        """Return a state with another likelihood that has a higher ELBO, or the same state."""

        def value(state: State) -> float:
            return sum(state.likelihood.terms(self.data.n, self.priors.noise).values())

        def updated(likelihood: Any) -> tuple[Any, ...]:
            self._remember(
                partial(row_block.update_moments, d=self.last or 0, likelihood=likelihood)
            )
            update = partial(row_block.update_responses, likelihood=likelihood)
            return self._with_past(self.executor.sum(update), likelihood)

        attempt = 0
        while (other := propose(state.likelihood, sums, attempt)) is not None:
            tried = replace(state, likelihood=other)
            tried = cavi.update_likelihood(tried, updated(other), self.data, self.priors)
            if value(tried) >= value(state):
                return tried
            attempt += 1
        if attempt:
            updated(state.likelihood)
        return state

    def _with_past(self, sums: tuple[Any, ...], likelihood: Any) -> tuple[Any, ...]:
        """Add the sums of earlier batches that a likelihood learns from."""
        if self.past is None:
            return sums
        earlier = of_past(likelihood, self.past.likelihood_sums, self._before)
        return tuple(a + b for a, b in zip(sums, earlier, strict=True))

    def batch_stats(self, features: tuple[tuple[Array, Array], ...]) -> BatchStats:
        """Return the sums over the rows for the current q, given the sums of their features."""
        self.spread = 1.0
        self.refresh()
        likelihood, learned = self.state.likelihood, ()
        if not likelihood.fixed:
            self._remember(update := partial(row_block.update_moments, likelihood=likelihood, d=0))
            learned = self.executor.sum(update)
        if isinstance(likelihood, Curved):
            self._expand(likelihood, 0)
        modes = []
        for d in range(len(self.state.modes)):
            modes.append(ModeStats(*self._row_sums(d)))
            # its environments are of no more use
            self.executor.each(partial(row_block.set_terms, d=d, term=self.view.terms[d]))
        sums = None
        if self.state.sums is not None:
            gram, linear = self.executor.sum(row_block.sum_grams)
            (beside,) = self.executor.sum(partial(row_block.sum_beside, d=0))
            sums = EffectStats(self.state.sums, gram, linear, beside)
        information = np.zeros(())
        if not likelihood.fixed:
            (information,) = self.executor.sum(row_block.information)
        return BatchStats(self.data, tuple(modes), learned, information, features, sums)

    def past_stats(self) -> BatchStats:
        """Return the sums of earlier batches for the current q."""
        self.refresh()  # without a gauge
        assert self.past is not None
        modes = tuple(self._past_sums(d) for d in range(len(self.state.modes)))
        sums = None if self.state.sums is None else self.past.sums_of(self.state.sums)
        learned = of_past(self.state.likelihood, self.past.likelihood_sums, self._before)
        return replace(self.past, modes=modes, likelihood_sums=learned, sums=sums)

    def newton_sweep(self) -> None:
        """Update the modes once by the likelihood itself instead of its bound; precisions stay.

        The bound is more curved than the likelihood, so q is too narrow and its mean is off. The
        Gaussian nearest to the posterior has the weights E[-d^2 log p(y | f) / df^2]; with the
        slopes E[d log p(y | f) / df], an update is a step of Newton's method.
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
            # for every mode: unlike the bound, the expansion holds only where it is made
            self._expand(moved, d)
            self._solve(d, self._sums(d))
            self._changed(d, self._terms(d))
            self.last = d
        if self.state.sums is not None:
            self._expand(moved, self.last or 0)
            self.update_sums(learn=False)
        if self.past is None and hasattr(moved, "refined"):
            refine = partial(row_block.expected_sums, likelihood=moved, d=self.last or 0)
            refined = moved.refined(self.executor.sum(refine), self.data.n)
            self.state = replace(self.state, likelihood=refined)

    def _expand(self, likelihood: Curved, d: int) -> None:
        """Let the rows expand the likelihood itself around the current f."""
        self._remember(expand := partial(row_block.expand_likelihood, likelihood=likelihood, d=d))
        self.executor.each(expand)

    def information(self) -> Array:
        """Return the sum of the weights of all rows, for every output: (K,) or ()."""
        if self.state.likelihood.fixed:
            return self.data.n * self.state.likelihood.scale
        (total,) = self.executor.sum(row_block.information)
        if self.past is not None:
            total = total + self.past.information
        return self.state.likelihood.scale * np.asarray(total)

    def recall(self) -> list[Command]:
        """Return the commands that bring a new block of rows up to date."""
        return [*self._commands, partial(row_block.set_view, view=self.view)]

    def _remember(self, command: Command) -> None:
        """Keep the command that sets the weights of the rows, and the view of q it refers to."""
        view = replace(self.view, terms=list(self.view.terms))
        self._commands = [partial(row_block.set_view, view=view), command]

    def _row_sums(self, d: int) -> tuple[Array, Array]:
        widths = widths_of(self.state.modes[d])
        second, linear = self.executor.sum(partial(row_block.block_sums, d=d, widths=widths))
        return second, linear

    def _sums(self, d: int) -> Block:
        mode, layout = self.state.modes[d], self.state.factors[d].layout
        second, linear = self._row_sums(d)
        if self.past is not None:
            earlier = self._past_sums(d)
            second, linear = second + earlier.second, linear + earlier.linear
        if self.gauge is not None:  # the other modes have the inverse of its gauge
            c, e = layout.first
            gauge = self.gauge[d]
            second, linear = second / (gauge[c] * gauge[e]), linear / gauge
        if isinstance(mode, CategoryMode):
            return mode.block(second, linear, layout)
        return Block(mode, second, linear[mode.present], layout)

    def _past_sums(self, d: int) -> ModeStats:
        assert self.past is not None
        widths = widths_of(self.state.modes[d])
        return self.past.modes[d].first(widths.n_psi, widths.n_phi)

    def _solve(self, d: int, block: Block, *, mean_only: bool = False) -> None:
        self.state, jitter = cavi.update_factor(self.state, d, block, mean_only=mean_only)
        self.jitter = max(self.jitter, jitter)


def widths_of(mode: Any) -> rows.Widths:
    """Return how many functions of phi and psi a mode has left."""
    return rows.Widths(mode.n_phi, mode.n_psi)
