"""One start at work: the modes updated in turn, from sums over rows that an executor adds up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace

from . import cavi, joint, rows
from .cavi import Block, Data
from .environments import Environments, MomentsOf
from .levels import LevelMode
from .likelihoods import Curved, Likelihood
from .state import Priors, State

Array = Any
# drops what the bound can do without in mode d, or returns None
Dropper = Callable[[State, int, Block], tuple[State, Block] | None]


class Executor(Protocol):
    """What the engine asks of whoever holds the rows."""

    def sum(self, fn: Callable[[Any], tuple[Array, ...]]) -> tuple[Array, ...]:
        """Return the sum over row blocks of what ``fn`` returns for each."""

    def each(self, fn: Callable[[Any], None]) -> None:
        """Apply ``fn`` to every row block."""


class Sweeper:
    """Walks the modes back and forth, so that each step extends the environments by one mode."""

    def __init__(self, executor: Executor, state: State, data: Data, priors: Priors) -> None:
        self.executor = executor
        self.state = state
        self.data = data
        self.priors = priors
        self.jitter = 0.0
        self.last: int | None = None  # the mode solved last
        self.switch(spread=0.0)

    def switch(self, *, spread: float) -> None:
        """Take this share of the covariances into the moments: none at 0, all at 1."""
        self.spread = spread
        self.restore(self.state)

    def refresh(self) -> None:
        """Make every mode's terms anew and forget the environments."""
        self.terms = [self._terms(d) for d in range(len(self.state.modes))]
        self.executor.each(lambda chunk: chunk.environments.reset())

    def rebalance(self) -> None:
        """Move scales between modes, or turn their axes; f is what it was."""
        before = self.state
        self.state, scales = before.network.rebalance(before, self.priors)
        if self.state is before:  # nothing was free to move
            return
        if scales is None:
            self.refresh()
            return
        # terms follow without a new look at covariances
        self.terms = [term.scale(c) for term, c in zip(self.terms, scales, strict=True)]
        self.executor.each(lambda chunk: chunk.environments.reset())

    def _terms(self, d: int) -> rows.Terms:
        """Return what the rows need of mode d, as much of its covariance as comes in."""
        state = self.state
        squares = state.output is not None and state.network.carries_asks
        return rows.terms(state.modes[d], state.factors[d], spread=self.spread, squares=squares)

    def leap(self, since: State, stretch: float) -> None:
        """Move every mean on by ``stretch`` times its change since then; covariances stay."""
        factors = tuple(
            replace(now, mean=now.mean + stretch * (now.mean - before.mean))
            for now, before in zip(self.state.factors, since.factors, strict=True)
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
        error, value = self._error_and_value()
        damping = joint.DAMPING
        for left in range(steps - 1, -1, -1):
            state, last_error, last_value = self.state, error, value
            system = self._joint_system()
            while damping <= joint.MOST:
                change = joint.step(*system, damping)
                if change is not None:
                    self.state = joint.moved(state, change)
                    self.refresh()
                    error, value = self._error_and_value()
                    if value > last_value:
                        break
                damping *= joint.MORE
            else:  # nowhere higher, up to rounding
                self.state, error = state, last_error
                self.refresh()
                break
            damping = max(joint.LESS * damping, joint.LEAST)
            if value - last_value < joint.ENOUGH * max(1.0, -value):
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
                self.state, block = smaller
                self._solve(d, block, mean_only=mean_only)
        factor = self.state.factors[d]
        term = self._terms(d)
        if self.spread:
            state = self.state
            if state.likelihood.fixed:  # the sums at hand have the error in them
                error = block.error(self.data.square, term, factor)
                state = cavi.update_likelihood(state, (error,), self.data, self.priors)
            state = cavi.update_basis(state, d, self.priors)
            self.state = cavi.update_rank(state, d, self.priors)
        pairs = zip(before.factors, self.state.factors, strict=True)
        if all(old.mean.shape[1] == new.mean.shape[1] for old, new in pairs):
            self._changed(d, term)
        else:
            self.refresh()
        self.last = d

    def _changed(self, d: int, term: rows.Terms) -> None:
        self.terms[d] = term
        self.executor.each(lambda chunk: chunk.environments.changed(d))

    def listen(self) -> None:
        """Let the rows say what they ask of f as it is now, where that depends on f."""
        if self.state.likelihood.fixed:
            return

        def look(chunk: Any) -> tuple[Array, ...]:
            chunk.f = self._moments_of_f(chunk, self.last or 0)
            return self._ask(chunk, self.state.likelihood)

        sums = self.executor.sum(look)
        learned = cavi.update_likelihood(self.state, sums, self.data, self.priors)
        other = learned.likelihood.propose(sums) if self.spread else None
        if other is not None:
            sums = self.executor.sum(lambda chunk: self._ask(chunk, other))
            tried = replace(learned, likelihood=other)
            tried = cavi.update_likelihood(tried, sums, self.data, self.priors)
            before, after = (
                sum(s.likelihood.terms(self.data.n, self.priors.noise).values())
                for s in (learned, tried)
            )
            if after >= before:
                learned = tried
            else:
                self.executor.sum(lambda chunk: self._ask(chunk, learned.likelihood))
        self.state = learned

    def settle(self) -> None:
        """Update the modes once by the likelihood itself instead of its bound; precisions stay.

        The bound is more curved than the likelihood, and q by it too narrow, its mean not quite
        where it should be. The Gaussian nearest to the posterior has E[-d^2 log p(y | f) / df^2]
        for weights; with E[d log p(y | f) / df] for slope, an update is a step of Newton's method.
        """
        likelihood: Any = self.state.likelihood
        assert isinstance(likelihood, Curved)

        def slope(chunk: Any) -> tuple[Array, Array]:
            chunk.f = mean, square = self._moments_of_f(chunk, self.last or 0)
            weight, pull = likelihood.expected(chunk.y, chunk.weight, mean, square)
            return (pull - weight * mean).sum(axis=0), weight.sum(axis=0)

        slopes, weights = (np.asarray(part) for part in self.executor.sum(slope))
        moved = likelihood.moved(np.clip(slopes / weights, -1.0, 1.0))
        self.state = replace(self.state, likelihood=moved)
        for d in range(len(self.state.modes)):

            def ask(chunk: Any, d: int = d) -> None:
                chunk.f = self._moments_of_f(chunk, d)
                self._give(chunk, moved.expected(chunk.y, chunk.weight, *chunk.f))

            self.executor.each(ask)  # for every mode: a bound would allow for steps, this does not
            self._solve(d, self._sums(d))
            self._changed(d, self._terms(d))
            self.last = d

    def information(self) -> Array:
        """Return how much all rows say of the level of f: the sum of their weights, (K,) or ()."""
        if self.state.likelihood.fixed:
            return self.data.n * self.state.likelihood.scale
        (total,) = self.executor.sum(lambda chunk: (chunk.asks[0].sum(axis=0),))
        return self.state.likelihood.scale * np.asarray(total)

    def _moments_of_f(self, chunk: Any, d: int) -> tuple[Array, Array]:
        """Return E[f] and E[f^2] of a block of rows, with the environments of mode d."""
        output, network = self.state.output, self.state.network
        layout = self.state.factors[d if output is None else output].layout
        if output is not None and network.carries_asks:
            product = chunk.environments.before(output, self._moments_in(chunk))
        else:
            outside = self._outside(chunk, d)
            here = None
            if d != output:
                here = rows.moments(chunk.features(d), self.terms[d], network.scratch)
            product = rows.multiply(outside, here, None if network.scratch is None else here)
        assert product is not None
        term = None if output is None else self.terms[output]
        mean, square = rows.contract(product, layout, term)
        return mean, mean * mean if square is None or not self.spread else square

    def _ask(self, chunk: Any, likelihood: Likelihood) -> tuple[Array, ...]:
        """Give a block of rows the weights and pulls of this likelihood; return its sums."""
        mean, square = chunk.f
        asks = likelihood.rows(chunk.y, chunk.weight, mean, square)
        self._give(chunk, (asks.weight, asks.pull))
        if not self.spread:
            self._give(chunk, likelihood.newton(chunk.y, chunk.weight, mean))
        return asks.sums

    def _give(self, chunk: Any, asks: tuple[Array, Array]) -> None:
        """Let a block of rows ask for something else from now on."""
        chunk.asks = asks
        if self.state.output is not None and self.state.network.carries_asks:
            chunk.environments.changed(self.state.output)

    def _outside(self, chunk: Any, d: int) -> rows.Moments | None:
        environments: Environments = chunk.environments
        return environments.outside(d, self._moments_in(chunk))

    def _moments_in(self, chunk: Any) -> MomentsOf:
        """Return what gives the moments of each mode in a block of rows."""
        output, network = self.state.output, self.state.network

        def moments_of(k: int, into: Any) -> rows.Moments | None:
            if k != output:
                return rows.moments(chunk.features(k), self.terms[k], into)
            if not network.carries_asks:
                return None
            weight, pull = chunk.asks
            weight, pull = rows.output_asks(weight, pull, self.terms[k])
            return rows.Moments(pull, weight, None)

        return moments_of

    def _error_and_value(self) -> tuple[float, float]:
        """Return E||y - f||^2 and the part of the bound that hangs on the means.

        From residuals, as the sums of the updates lose what little is left of y at little noise.
        """

        def look(chunk: Any) -> tuple[Array]:
            mean, square = self._moments_of_f(chunk, self.last or 0)
            error = (chunk.y - mean) ** 2 + (square - mean * mean)
            return ((error if chunk.weight is None else chunk.weight * error).sum(),)

        error = float(self.executor.sum(look)[0])
        scale = self.state.likelihood.scale
        return error, -0.5 * (scale * error + joint.penalty(self.state))

    def _joint_system(self) -> tuple[Array, Array]:
        """Return curvature and gradient of the bound in the means of all modes."""
        modes, rank = self.state.modes, self.state.n_components
        layout = self.state.factors[0].layout

        def sums(chunk: Any) -> tuple[Array, ...]:
            weight, pull = chunk.asks
            weight, pull = None if weight is None else weight[:, None], pull[:, None]
            parts: list[Array] = []
            blocks: list[Array] = []
            for d, mode in enumerate(modes):
                features, outside = chunk.features(d), self._outside(chunk, d)
                assert outside is not None
                blocks += rows.block_sums(features, outside, weight, pull, mode, rank)
                parts.append(joint.derivatives(features[0], mode.keep, outside.mean))
            xp = array_namespace(pull)
            j = xp.concat(parts, axis=1)
            j = j if weight is None else j * xp.sqrt(weight)
            return (j.T @ j, *blocks)

        gram, *rest = (np.asarray(part) for part in self.executor.sum(sums))
        blocks = [
            Block(mode, second, linear[mode.present], layout)
            for mode, second, linear in zip(modes, rest[::2], rest[1::2], strict=True)
        ]
        return joint.system(self.state, blocks, gram)

    def _sums(self, d: int) -> Block:
        mode, output, layout = self.state.modes[d], self.state.output, self.state.factors[d].layout

        def sums(chunk: Any) -> tuple[Array, Array]:
            outside = self._outside(chunk, d)
            weight, pull = chunk.asks
            if output is None:
                weight, pull = None if weight is None else weight[:, None], pull[:, None]
            elif d == output:
                assert outside is not None
                return rows.output_sums(outside, weight, pull)
            elif self.state.network.carries_asks:
                weight = pull = None
            else:
                weight, pull = rows.output_asks(weight, pull, self.terms[output])
            size = layout.n_columns
            return rows.block_sums(chunk.features(d), outside, weight, pull, mode, size)

        second, linear = (np.asarray(part) for part in self.executor.sum(sums))
        if isinstance(mode, LevelMode):
            return mode.block(second, linear, layout)
        return Block(mode, second, linear[mode.present], layout)

    def _solve(self, d: int, block: Block, *, mean_only: bool = False) -> None:
        self.state, jitter = cavi.update_factor(self.state, d, block, mean_only=mean_only)
        self.jitter = max(self.jitter, jitter)
