"""Small random problems for the tests of the core, and the way from the library to the oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone

from btnkm.bases import Basis, BSpline, Categorical, Chebyshev, Fourier, Polynomial, WithMissing
from btnkm.core import cavi, rows
from btnkm.core.cp import CP
from btnkm.core.gamma import Gamma
from btnkm.core.layout import components
from btnkm.core.likelihoods import Gaussian
from btnkm.core.state import Factor, Priors, State
from btnkm.execution.modes import make_mode
from tests import oracle


class Hinges(Basis):
    """Nothing but phi: products go through the packed fallback."""

    def phi(self, x):
        return np.stack([np.ones_like(x), np.maximum(x, 0.0), np.maximum(-x, 0.0)], axis=1)


KINDS = {
    "chebyshev": Chebyshev(n_basis=4),
    "polynomial": Polynomial(n_basis=3),
    "powers": Polynomial(n_basis=3, offset=0.0),
    "fourier": Fourier(n_basis=3, lengthscale=0.5),
    "bspline": BSpline(n_basis=4, degree=2),
    "categorical": Categorical(),
    "packed": Hinges(),
    "missing": WithMissing(Chebyshev(n_basis=2)),
}
MIXES = [(kind,) for kind in KINDS] + [
    ("chebyshev", "categorical"),
    ("polynomial", "bspline"),
    ("missing", "packed"),
    ("fourier", "missing", "powers"),
    ("packed", "bspline", "polynomial"),
]
SMALL = [("chebyshev",), ("categorical", "fourier"), ("missing", "packed", "powers")]


@dataclass(frozen=True)
class Small:
    """A problem, a random posterior for it (nowhere optimal), and all the oracle needs."""

    bases: list
    codes: list
    features: list  # (phi, psi) of each mode
    y: np.ndarray
    weight: np.ndarray | None
    data: cavi.Data
    priors: Priors
    state: State

    @property
    def s(self):
        """Sample weights, ones where there are none."""
        return np.ones(len(self.y)) if self.weight is None else self.weight

    def with_state(self, state):
        return replace(self, state=state)


def column(kind, n, rng):
    """Return coordinates that suit the basis."""
    if kind == "categorical":
        return np.append([0.0, 1.0, 2.0], rng.integers(3, size=n - 3)).astype(float)
    x = rng.uniform(-1.0, 1.0, n)
    if kind == "missing":
        x[rng.integers(n, size=n // 4)] = np.nan
    return x


def random_factor(m, rank, rng):
    mean = rng.standard_normal((m, rank))
    root = rng.standard_normal((m * rank, m * rank))
    cov = 0.1 * root @ root.T / (m * rank) + 0.05 * np.eye(m * rank)
    return dense_factor(mean, cov)


def dense_factor(mean, cov):
    """Return the library's factor for a mean and a covariance, every field by dense algebra."""
    m, rank = mean.shape
    precision = np.linalg.inv(cov).reshape(rank, m, rank, m)
    blocks = np.array([precision[r, :, r] for r in range(rank)])
    cov, log_det = cov.reshape(rank, m, rank, m), np.linalg.slogdet(cov)[1]
    return Factor(mean, cov, log_det, components(rank), (blocks,))


def random_gamma(size, rng):
    return Gamma(rng.uniform(1.0, 4.0, size), rng.uniform(1.0, 4.0, size))


def make(kinds, rank=2, n=15, seed=0, weighted=False, basis_prior=True, dropped=False):
    """Return a problem with a random posterior; ``dropped`` takes one function out of each mode."""
    rng = np.random.default_rng([seed, len(kinds), rank])
    codes = [column(kind, n, rng) for kind in kinds]
    bases = [clone(KINDS[kind]).fit(code) for kind, code in zip(kinds, codes, strict=True)]
    features = [basis.features(code) for basis, code in zip(bases, codes, strict=True)]
    modes = [make_mode(basis, smoothness=0.7) for basis in bases]
    if dropped:
        # first, middle or last one: psi may get shorter, or keep columns nobody needs
        lost = [k % len(mode.keep) for k, mode in enumerate(modes)]
        every = [np.arange(len(mode.keep)) for mode in modes]
        modes = [mode.take(np.delete(e, k)) for mode, e, k in zip(modes, every, lost, strict=True)]
    y = rng.standard_normal(n)
    weight = rng.uniform(0.2, 3.0, n) if weighted else None
    s = np.ones(n) if weight is None else weight
    priors = Priors(Gamma(1.5, 0.7), Gamma(2.0, 1.3), Gamma(2.5, 1.7) if basis_prior else None)
    sizes = [len(mode.keep) for mode in modes]
    basis = [
        random_gamma(len(m.keep), rng) if basis_prior else Gamma(1.0, m.rate_scale) for m in modes
    ]
    state = State(
        tuple(modes),
        tuple(random_factor(m, rank, rng) for m in sizes),
        tuple(basis),
        (random_gamma(rank, rng),),
        Gaussian(Gamma(6.0, 2.0)),
        CP(),
    )
    data = cavi.Data(float(s.sum()), float(s @ y**2))
    small = Small(bases, codes, features, y, weight, data, priors, state)
    return small.with_state(with_error(state, oracle_error(small)))


def with_error(state, error):
    """Return the state of a Gaussian model with another error, and nothing else changed."""
    return replace(state, likelihood=replace(state.likelihood, error=error))


def phis(small):
    """Return phi of the kept functions of each mode."""
    return [
        np.asarray(phi)[:, mode.keep]
        for (phi, _), mode in zip(small.features, small.state.modes, strict=True)
    ]


def pair(gamma, size):
    """Return shape and rate of a Gamma as arrays, whichever of them is a number."""
    return tuple(np.broadcast_to(p, size).astype(float) for p in (gamma.shape, gamma.rate))


def dense(state, priors):
    """Return the oracle's view of a posterior."""
    sizes = [f.mean.shape for f in state.factors]
    (rank,) = state.rank
    return oracle.Q(
        means=tuple(f.mean for f in state.factors),
        covs=tuple(
            f.cov.reshape(m * r, m * r) for f, (m, r) in zip(state.factors, sizes, strict=True)
        ),
        basis=tuple(
            1.0 / mode.rate_scale if priors.basis is None else pair(g, len(mode.keep))
            for g, mode in zip(state.basis, state.modes, strict=True)
        ),
        rank=pair(rank, sizes[0][1]),
        noise=(float(state.likelihood.noise.shape), float(state.likelihood.noise.rate)),
    )


def dense_prior(state, priors):
    """Return the oracle's hyperpriors."""
    basis = None
    if priors.basis is not None:
        b = priors.basis
        basis = tuple((b.shape, b.rate * mode.rate_scale) for mode in state.modes)
    noise, rank = priors.noise, priors.rank
    return oracle.Prior((noise.shape, noise.rate), (rank.shape, rank.rate), basis)


def oracle_error(small):
    return oracle.expected_error(phis(small), dense(small.state, small.priors), small.y, small.s)


def oracle_elbo(small):
    """Return the bound by brute force; the error kept in the state plays no part."""
    q, prior = dense(small.state, small.priors), dense_prior(small.state, small.priors)
    return oracle.elbo(phis(small), q, prior, small.y, small.s)


def library_elbo(small):
    return sum(cavi.elbo_terms(small.state, small.data, small.priors).values())


def mode_moments(small, spread=True):
    """Return the library's moments of every mode."""
    state = small.state
    return [
        rows.moments(features, rows.terms(mode, factor, spread=spread))
        for features, mode, factor in zip(small.features, state.modes, state.factors, strict=True)
    ]


def product(parts):
    total = None
    for part in parts:
        total = rows.multiply(total, part)
    return total


def outside(small, d, spread=True):
    """Return the moments of the product over all modes but d, None if there is no other."""
    return product(m for k, m in enumerate(mode_moments(small, spread)) if k != d)


def block(small, d, spread=True):
    """Return the library's conjugate problem of mode d."""
    mode = small.state.modes[d]
    second, linear = rows.block_sums(
        small.features[d],
        outside(small, d, spread),
        None if small.weight is None else small.weight[:, None],
        (small.y if small.weight is None else small.weight * small.y)[:, None],
        mode,
        small.state.n_components,
    )
    return cavi.Block(mode, second, linear[mode.keep], small.state.factors[d].layout)


def solved(small, d):
    """Return the problem with q(W^(d)) at its optimum (library's update), and its block."""
    b = block(small, d)
    state, _ = cavi.update_factor(small.state, d, b)
    return small.with_state(with_error(state, error(state, d, b, small.data))), b


def error(state, d, b, data):
    """Return the library's E||y - f||^2, from the block of mode d."""
    factor = state.factors[d]
    return b.error(data.square, rows.terms(state.modes[d], factor, spread=1.0), factor)


def f_moments(small):
    """Return E[f] and E[f^2] by the oracle."""
    q = dense(small.state, small.priors)
    return oracle.f_moments(phis(small), q.means, q.covs)
