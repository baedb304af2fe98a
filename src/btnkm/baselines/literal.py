"""The paper's algorithm to the letter: its equations from its own initial state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from .. import checks
from ..core import cavi
from ..core.cavi import Block
from ..core.cp import CP
from ..core.gamma import Gamma
from ..core.layout import components
from ..core.likelihoods import Gaussian
from ..core.posterior import Predictor
from ..core.rows import terms as terms_of
from ..core.state import Factor, Priors, State
from ..execution.local import LocalExecutor
from .base import Baseline, sums

Array = np.ndarray
#: Of all squared weights, above which a component counts (sections 3.2.5 and 4.2).
COMPONENT_SHARE = 1e-5


class LiteralBTN(Baseline):
    """Algorithm 1 of the paper with its initialisation, to see what it does.

    Factors start at W ~ N(0, 1) with covariances of 0.1, all precisions at 1, and every
    distribution is updated from the first sweep on: all factors, then lambda_M, lambda_R and tau.
    Second moments are exact (Theorem 4), and the rates of the precisions have the factor 1/2 that
    equation 29 has and 31, 33 and 35 omit. If functions are as large as the constant (such as
    Chebyshev polynomials), the second moments of a product over D inputs outweigh the data, and f
    collapses to a constant while the ELBO rises. The paper's own features are small enough to
    avoid this. Predictions add noise and model variance, which the paper's last formula
    multiplies. For other purposes use ``BTNRegressor``.

    Parameters
    ----------
    basis : str or Basis, default="polynomial"
    n_basis : int, default=20
        Functions of each input, "feature dimension".
    max_rank : int, default=25
    noise_prior, rank_prior, basis_prior : Gamma or None, default=None
        The paper's: Gamma(1e-3, 1e-3), Gamma(1e-5, 1e-6), Gamma(1e-6, 1e-6).
    max_iter : int, default=50
    tol : float, default=1e-4
        Relative change of the ELBO at which the sweeps end.
    memory_limit : float, default=1.4
        GiB beyond the input.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    lower_bounds_ : ndarray
        The ELBO after each sweep, with all constants.
    rank_, ranks_ : int, list of int
        Components left, and in each sweep.
    n_iter_ : int
    noise_std_ : float
    """

    def __init__(
        self,
        basis: Any = "polynomial",
        *,
        n_basis: int = 20,
        max_rank: int = 25,
        noise_prior: Gamma | None = None,
        rank_prior: Gamma | None = None,
        basis_prior: Gamma | None = None,
        max_iter: int = 50,
        tol: float = 1e-4,
        memory_limit: float = 1.4,
        random_state: Any = None,
    ) -> None:
        self.basis = basis
        self.n_basis = n_basis
        self.max_rank = max_rank
        self.noise_prior = noise_prior
        self.rank_prior = rank_prior
        self.basis_prior = basis_prior
        self.max_iter = max_iter
        self.tol = tol
        self.memory_limit = memory_limit
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # it may collapse, which is what it is here to show
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Run Algorithm 1 on inputs X (n, D) and targets y (n,)."""
        for name in ("n_basis", "max_rank", "max_iter"):
            checks.check_integer(name, getattr(self, name), 1)
        for name in ("tol", "memory_limit"):
            checks.check_number(name, getattr(self, name))
        priors = Priors(
            checks.gamma_or_default("noise_prior", self.noise_prior, Gamma(1e-3, 1e-3)),
            checks.gamma_or_default("rank_prior", self.rank_prior, Gamma(1e-5, 1e-6)),
            checks.gamma_or_default("basis_prior", self.basis_prior, Gamma(1e-6, 1e-6)),
        )
        codes, modes, target = self._begin(X, y)
        executor = LocalExecutor(self._blocks(codes, target))
        data = cavi.Data(float(len(target)), float(target @ target))
        state = _initial(modes, int(self.max_rank), check_random_state(self.random_state))
        bounds: list[float] = []
        ranks: list[int] = []
        for sweep in range(self.max_iter):
            state = _sweep(executor, state, data, priors)
            bounds.append(sum(cavi.elbo_terms(state, data, priors).values()))
            ranks.append(state.n_components)
            if sweep >= 3:
                state = _truncate(state)
                executor.each(lambda chunk: chunk.environments.reset())
            if sweep and abs(bounds[-1] - bounds[-2]) <= self.tol * abs(bounds[-2]):
                break
        self._terms = Predictor.of(state).terms
        self.noise_std_ = self._y_scale * state.likelihood.noise_std
        self.lower_bounds_, self.n_iter_ = np.array(bounds), len(bounds)
        self.rank_, self.ranks_ = state.n_components, ranks
        return self


def _initial(modes: list[Any], rank: int, rng: Any) -> State:
    """Return W ~ N(0, 1) with covariance 0.1, and precisions of mean 1."""
    factors = []
    for mode in modes:
        m = len(mode.keep)
        cov = 0.1 * np.eye(rank * m).reshape(rank, m, rank, m)
        log_det = rank * m * float(np.log(0.1))
        mean = rng.standard_normal((m, rank))
        factors.append(Factor(mean, cov, log_det, components(rank)))
    basis = tuple(Gamma(np.ones(len(mode.keep)), np.ones(len(mode.keep))) for mode in modes)
    components_of_one = Gamma(np.ones(rank), np.ones(rank))
    likelihood = Gaussian(Gamma(1.0, 1.0))
    return State(tuple(modes), tuple(factors), basis, (components_of_one,), likelihood, CP())


def _sweep(executor: Any, state: State, data: cavi.Data, priors: Priors) -> State:
    """Update all factors, then lambda_M of each mode, lambda_R and tau."""
    terms = Predictor.of(state).terms
    rank = state.n_components
    for d, mode in enumerate(state.modes):
        block = Block(mode, *sums(executor, d, terms, mode, rank), components(rank))
        state, _ = cavi.update_factor(state, d, block)
        terms[d] = terms_of(mode, state.factors[d], spread=1.0)
        executor.each(lambda chunk, d=d: chunk.environments.changed(d))
    error = block.error(data.square, terms[-1], state.factors[-1])
    for d in range(len(state.modes)):
        state = cavi.update_basis(state, d, priors)
    state = cavi.update_rank(state, 0, priors)
    return cavi.update_likelihood(state, (error,), data, priors)


def component_shares(state: State) -> Array:
    """Return each component's share of the sum of squares of all weights: (R,)."""
    power = np.sum([np.sum(factor.mean**2, axis=0) for factor in state.factors], axis=0)
    return np.asarray(power / max(float(power.sum()), np.finfo(float).tiny))


def _truncate(state: State) -> State:
    """Drop components with less than 1e-5 of the sum of squares of all weights (section 3.2.5)."""
    keep = np.flatnonzero(component_shares(state) >= COMPONENT_SHARE)
    if len(keep) in (0, state.n_components):
        return state
    factors = tuple(factor.take_columns(keep) for factor in state.factors)
    return replace(state, factors=factors, rank=(state.rank[0].take(keep),))
