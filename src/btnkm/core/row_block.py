"""One block of rows: its data, its view of q, and the commands of the engine.

Every command is a plain function of the block and a few small arguments, so that it can be sent to
wherever the rows are. Results add up over blocks. A block keeps the environments of its modes and
the working responses of its rows; both can be recomputed from the view of q alone
(``Sweeper.recall``), so that a lost block costs only time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from . import rows
from .arrays import has_triton, like
from .cp import CP
from .layout import Layout
from .likelihoods import Curved, Likelihood, of_rows, of_targets
from .network import Environments, MomentsOf, Network
from .sums import SumsTerms

Array = Any


@dataclass
class View:
    """What the rows need to know of q."""

    network: Network
    layouts: list[Layout]
    terms: list[rows.Terms]  # of every mode
    output: int | None  # the mode of the outputs
    exact: bool  # whether covariances are in the terms
    sums: SumsTerms | None = None  # the main effects beside the network

    @property
    def many(self) -> bool:
        """Whether f has many outputs."""
        return self.output is not None or (self.sums is not None and len(self.sums.mean) > 1)

    @property
    def carries_responses(self) -> bool:
        """Whether environments contain the working responses of the outputs."""
        return self.output is not None and self.network.carries_responses


@dataclass
class Chunk:
    """One block of rows: targets, sample weights, features on demand, and its environments.

    ``responses`` are the weights and working responses of the likelihood (see likelihoods), ``f``
    the moments of f that they were computed for.
    """

    features: Callable[[int], tuple[Array, Array]]
    y: Array
    weight: Array | None
    environments: Environments
    responses: tuple[Array | None, Array] = field(init=False)
    f: tuple[Array, Array] | None = None
    view: View = field(init=False)
    _sum_means: Array | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Begin with those of least squares, which are right where they do not depend on f."""
        y = self.counts
        self.responses = self.weight, y if self.weight is None else self.weight * y
        if has_triton(self.y):
            self.environments.times = self._times

    @property
    def counts(self) -> Array:
        """The targets without exposures: (n,)."""
        return self.y if self.y.ndim == 1 else self.y[:, 0]

    def set_responses(self, responses: tuple[Array, Array]) -> None:
        """Set the weights and working responses of the rows."""
        self.responses = responses
        self._responses_changed()

    def sum_features(self) -> Array:
        """Return the functions of the sum: (n, P)."""
        assert self.view.sums is not None
        return self.view.sums.features(self.features)

    def sum_means(self) -> Array:
        """Return E[a]: (n,), or (n, K) with K outputs."""
        assert self.view.sums is not None
        if self._sum_means is None:
            means = self.view.sums.means(self.sum_features())
            self._sum_means = means if self.view.many else means[:, 0]
        return self._sum_means

    def set_sums(self, terms: SumsTerms) -> None:
        """Take another q of the main effects."""
        self.view.sums, self._sum_means = terms, None
        self._responses_changed()

    def _responses_changed(self) -> None:
        """Reset the environments that contain the responses less what the sum explains."""
        if self.view.carries_responses:
            assert self.view.output is not None
            self.environments.changed(self.view.output)

    @property
    def tensor_responses(self) -> tuple[Array | None, Array]:
        """Weights, and working responses less what the sum explains of them."""
        weight, response = self.responses
        if self.view.sums is None:
            return weight, response
        mean = self.sum_means()
        return weight, response - (mean if weight is None else weight * mean)

    def outside(self, d: int) -> rows.Moments | None:
        """Return the product over all modes but d."""
        return self.environments.outside(d, self._moments_of())

    def moments_of_f(self, d: int) -> tuple[Array, Array]:
        """Return E[f] and E[f^2], with the environments of mode d."""
        view = self.view
        if view.sums is None:
            return self.moments_of_tensor(d)
        phi = self.sum_features()
        first, spread = view.sums.means(phi), view.sums.variances(phi)
        if not view.many:
            first, spread = first[:, 0], spread[:, 0]
        mean, square = self.moments_of_tensor(d)
        total = mean + first
        if not view.exact:
            return total, total * total
        return total, square + first * (2.0 * mean + first) + spread

    def moments_of_tensor(self, d: int) -> tuple[Array, Array]:
        """Return E[T] and E[T^2], with the environments of mode d."""
        view = self.view
        if not view.terms:
            zero = array_namespace(self.y).zeros_like(self.counts)
            if view.many:
                assert view.sums is not None
                zero = array_namespace(zero).stack([zero] * len(view.sums.mean), axis=1)
            return zero, zero
        layout = view.layouts[d if view.output is None else view.output]
        if view.carries_responses:
            assert view.output is not None
            product = self.environments.before(view.output, self._moments_of())
        else:
            outside, step, scratch = self.outside(d), None, view.network.scratch
            if d != view.output:
                step = rows.moments(self.features(d), view.terms[d], scratch)
            product = rows.multiply(outside, step, None if scratch is None else step)
        assert product is not None
        term = None if view.output is None else view.terms[view.output]
        mean, square = rows.contract(product, layout, term)
        return mean, mean * mean if square is None or not view.exact else square

    def _times(self, k: int, before: rows.Moments) -> rows.Moments | None:
        """Return the moments of mode k times those before, by one kernel, where there is one."""
        if not self._fused(before) or k == self.view.output:
            return None
        from .triton_kernels import fits, times_moments

        term, features = self.view.terms[k], self.features(k)
        if not fits(*features):
            return None
        parts = zip(features, (term.mean, term.second), (before.mean, before.second), strict=True)
        mean, second = (times_moments(a, like(c, a), b) for a, c, b in parts)
        return rows.Moments(mean, second, None)

    def _fused(self, *moments: rows.Moments | None) -> bool:
        """Return whether the Triton kernels apply to these moments."""
        if not self.view.exact or not isinstance(self.view.network, CP):
            return False
        from .triton_kernels import MOST_PRODUCTS, fits

        if max(len(term.mean) for term in self.view.terms) > MOST_PRODUCTS // 2:
            return False
        return all(m is None or (m.exponent is None and fits(m.mean, m.second)) for m in moments)

    def fused_sums(self, d: int, widths: rows.Widths) -> tuple[Array, Array] | None:
        """Return ``block_sums`` by the Triton kernels, or None where they do not apply."""
        if self.view.output is not None or self.environments.times is None:
            return None
        left, right = self.environments.sides(d, self._moments_of())
        if (left is None and right is None) or not self._fused(left, right):
            return None
        from .triton_kernels import fits, sums

        (phi, psi), (weight, response) = self.features(d), self.tensor_responses
        if not fits(phi, psi):
            return None
        a, b = (m if m is not None else rows.Moments(None, None, None) for m in (left, right))
        second = sums(psi[:, : widths.n_psi], a.second, b.second, weight)
        return second, sums(phi[:, : widths.n_phi], a.mean, b.mean, response)

    def _moments_of(self) -> MomentsOf:
        """Return a function that computes the moments of each mode."""
        view = self.view

        def moments_of(k: int, into: Any) -> rows.Moments | None:
            if k != view.output:
                return rows.moments(self.features(k), view.terms[k], into)
            if not view.carries_responses:
                return None
            weight, response = rows.output_responses(*self.tensor_responses, view.terms[k])
            return rows.Moments(response, weight, None)

        return moments_of


def set_view(chunk: Chunk, view: View) -> None:
    """Take another q; nothing computed before holds for it. Local blocks share the view."""
    chunk.view = view
    chunk.environments.reset()
    chunk._sum_means = None


def set_terms(chunk: Chunk, d: int, term: rows.Terms) -> None:
    """Take another q(W) of mode d."""
    chunk.view.terms[d] = term
    chunk.environments.changed(d)


def set_sums(chunk: Chunk, terms: SumsTerms) -> None:
    """Take another q of the main effects."""
    chunk.set_sums(terms)


def sum_grams(chunk: Chunk) -> tuple[Array, Array]:
    """Return weighted products of the functions of the sum, and with the working responses.

    These are (K, P, P) and (K, P), with K = 1 for one output.
    """
    xp, phi = array_namespace(chunk.y), chunk.sum_features()
    weight, response = chunk.responses
    response = response if chunk.view.many else response[:, None]
    linear = rows.long_product(response, phi)
    if weight is None:
        return rows.long_product(phi, phi)[None, ...], linear
    weight = weight if chunk.view.many else weight[:, None]
    grams = [rows.long_product(phi * weight[:, k : k + 1], phi) for k in range(weight.shape[1])]
    return xp.stack(grams), linear


def sum_beside(chunk: Chunk, d: int) -> tuple[Array]:
    """Return what the tensor explains of the working responses, times the functions: (K, P)."""
    mean, _ = chunk.moments_of_tensor(d)
    weight = chunk.responses[0]
    explained = mean if weight is None else weight * mean
    explained = explained if chunk.view.many else explained[:, None]
    return (rows.long_product(explained, chunk.sum_features()),)


def count(chunk: Chunk) -> tuple[int]:
    """Return the number of rows."""
    return (int(chunk.y.shape[0]),)


def averages(chunk: Chunk, n_modes: int) -> tuple[Array, ...]:
    """Return the weighted sums of phi (M,) and psi (K,) of every mode."""
    weight = chunk.weight
    if weight is None:
        weight = array_namespace(chunk.y).ones_like(chunk.counts)
    sums: list[Array] = []
    for d in range(n_modes):
        sums += [weight @ part for part in chunk.features(d)]
    return tuple(sums)


def effect_averages(chunk: Chunk, first: int, modes: Sequence[int | None]) -> tuple[Array, ...]:
    """Return weighted sums of g, g g^T and g phi^T for every main effect g: see posterior.py."""
    sums: list[Array] = []
    for i, mode in enumerate(modes):
        g = chunk.features(first + i)[0]
        weighed = g if chunk.weight is None else g * chunk.weight[:, None]
        sums += [array_namespace(g).sum(weighed, axis=0), rows.long_product(weighed, g)]
        if mode is None:
            sums.append(g[:0, :].T)
        else:
            phi = chunk.features(mode)[0]
            sums.append((phi.T @ weighed).T)
    return tuple(sums)


def block_sums(chunk: Chunk, d: int, widths: rows.Widths) -> tuple[Array, Array]:
    """Return the sums that the update of mode d needs: see ``rows.block_sums``."""
    fused = chunk.fused_sums(d, widths)
    if fused is not None:
        return fused
    view, outside = chunk.view, chunk.outside(d)
    weight, response = chunk.tensor_responses
    if view.output is None:
        weight, response = None if weight is None else weight[:, None], response[:, None]
    elif d == view.output:
        assert outside is not None
        return rows.output_sums(outside, weight, response)
    elif view.carries_responses:
        weight = response = None
    else:
        weight, response = rows.output_responses(weight, response, view.terms[view.output])
    size = view.layouts[d].n_columns
    return rows.block_sums(chunk.features(d), outside, weight, response, widths, size)


def update_moments(chunk: Chunk, likelihood: Likelihood, d: int) -> tuple[Array, ...]:
    """Compute the moments of the current f and the working responses; return the sums."""
    chunk.f = chunk.moments_of_f(d)
    return update_responses(chunk, likelihood)


def update_responses(chunk: Chunk, likelihood: Likelihood) -> tuple[Array, ...]:
    """Compute the working responses for the last moments of f; return the sums."""
    assert chunk.f is not None
    mean, square = chunk.f
    likelihood, y = of_targets(of_rows(likelihood, chunk.features), chunk.y)
    updated = likelihood.rows(y, chunk.weight, mean, square)
    chunk.set_responses((updated.weight, updated.response))
    if not chunk.view.exact:
        chunk.set_responses(likelihood.newton(y, chunk.weight, mean))
    return updated.sums


def slopes(chunk: Chunk, likelihood: Curved, d: int) -> tuple[Array, Array]:
    """Return the sums of E[d log p(y | f) / df] and of weights E[-d^2 log p(y | f) / df^2]."""
    mean, square = chunk.moments_of_f(d)
    exposed, y = of_targets(likelihood, chunk.y)
    weight, response = exposed.expected(y, chunk.weight, mean, square)
    xp = array_namespace(mean)
    return xp.sum(response - weight * mean, axis=0), xp.sum(weight, axis=0)


def expand_likelihood(chunk: Chunk, likelihood: Curved, d: int) -> None:
    """Compute the working responses of the likelihood itself, not its bound, at the current f."""
    mean, square = chunk.moments_of_f(d)
    exposed, y = of_targets(likelihood, chunk.y)
    chunk.set_responses(exposed.expected(y, chunk.weight, mean, square))


def expected_sums(chunk: Chunk, likelihood: Any, d: int) -> tuple[Array, ...]:
    """Return the sums from which a likelihood refines its own parameters, at the current f."""
    mean, square = chunk.moments_of_f(d)
    sums: tuple[Array, ...] = likelihood.expected_sums(chunk.y, chunk.weight, mean, square)
    return sums


def information(chunk: Chunk) -> tuple[Array]:
    """Return the sum of the rows' weights, of every output."""
    weight = chunk.responses[0]
    return (array_namespace(weight).sum(weight, axis=0),)


def squared_error(chunk: Chunk, d: int) -> tuple[Array]:
    """Return the sum of E[(y - f)^2].

    From residuals: at little noise, the sums of the updates lose what is left of y to rounding.
    """
    mean, square = chunk.moments_of_f(d)
    error = (chunk.y - mean) ** 2 + (square - mean * mean)
    error = error if chunk.weight is None else chunk.weight * error
    return (array_namespace(mean).sum(error),)


def joint_sums(
    chunk: Chunk, widths: Sequence[rows.Widths], keep: Sequence[np.ndarray]
) -> tuple[Array, ...]:
    """Return J^T J, J the derivatives of E[f] by all weights, and the sums of every mode."""
    weight, response = chunk.tensor_responses
    weight, response = None if weight is None else weight[:, None], response[:, None]
    parts: list[Array] = []
    blocks: list[Array] = []
    for d, (width, kept) in enumerate(zip(widths, keep, strict=True)):
        features, outside = chunk.features(d), chunk.outside(d)
        assert outside is not None
        size = chunk.view.layouts[d].n_columns
        blocks += rows.block_sums(features, outside, weight, response, width, size)
        parts.append(rows.derivatives(features[0], kept, outside.mean))
    xp = array_namespace(response)
    j = xp.concat(parts, axis=1)
    j = j if weight is None else j * xp.sqrt(weight)
    return (j.T @ j, *blocks)
