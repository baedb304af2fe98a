"""SP-BTN: a Bayesian tensor network whose posterior has a low-rank mean and Kronecker spreads."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils import check_random_state

from .. import checks
from ..core.densities import noise_variance
from ..core.gamma import Gamma
from ..core.layout import components
from ..core.likelihoods import WARM_NOISE
from ..core.row_block import Chunk
from ..core.rows import Terms
from ..core.rows import terms as terms_of
from ..core.state import Factor
from .base import Baseline, outside

Array = np.ndarray
_FIRST_STD = 0.05  # of every weight
_WARM = 0.5  # share of the steps until the prior counts in full
_MEMORY = 0.98  # of the running average of the squared error that q(tau) is made of
_DECAYS = 0.9, 0.999  # of Adam's running averages


class Parameters(NamedTuple):
    """What q(W) is made of; W has D modes, M functions and R components.

    mean_dmr = sum_k modes_dk functions_mk components_rk, and the standard deviation of w_dmr is
    exp(log_modes_d + log_functions_m + log_components_r).
    """

    modes: Array  # (D, K)
    functions: Array  # (M, K)
    components: Array  # (R, K)
    log_modes: Array  # (D,)
    log_functions: Array  # (M,)
    log_components: Array  # (R,)

    def mean(self) -> Array:
        """Return the means: (D, M, R)."""
        return np.einsum("dk,mk,rk->dmr", self.modes, self.functions, self.components)

    def std(self) -> Array:
        """Return the standard deviations: (D, M, R)."""
        logs = np.add.outer(np.add.outer(self.log_modes, self.log_functions), self.log_components)
        return np.asarray(np.exp(logs))

    def pull_back(self, of_mean: Array, of_std: Array) -> Parameters:
        """Return slopes in the parameters from those in means and standard deviations."""
        a, b, c = self.modes, self.functions, self.components
        of_log = of_std * self.std()
        return Parameters(
            np.einsum("dmr,mk,rk->dk", of_mean, b, c),
            np.einsum("dmr,dk,rk->mk", of_mean, a, c),
            np.einsum("dmr,dk,mk->rk", of_mean, a, b),
            of_log.sum(axis=(1, 2)),
            of_log.sum(axis=(0, 2)),
            of_log.sum(axis=(0, 1)),
        )


class SPBTN(Baseline):
    """Structured-posterior Bayesian tensor network, by stochastic variational inference.

    All factors together are a tensor W (D, M, R) with q(W) Gaussian and independent in every
    entry: its means are a tensor of CP rank K, its standard deviations a Kronecker product over
    modes, functions and components. Gradients of the ELBO come from one draw of W at a time
    (reparameterised), and Adam follows them; q(tau) is Gamma. In the first half of the steps the
    prior is introduced gradually.

    Parameters
    ----------
    basis : str or Basis, default="polynomial"
    n_basis : int, default=20
    max_rank : int, default=10
        R, components of f.
    mean_rank : int, default=10
        K, the rank of the means.
    prior_std : float, default=1.0
        Standard deviation of every weight a priori.
    noise_prior : Gamma or None, default=None
        Gamma(1e-3, 1e-3).
    max_iter : int, default=3000
        Steps.
    learning_rate : float, default=0.02
        Of Adam, falling to a hundredth in the course of the steps.
    batch_size : int, default=1024
        Rows of a step.
    memory_limit : float, default=1.4
        GiB beyond the input.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    parameters_ : Parameters
    noise_std_ : float
    n_iter_ : int

    Notes
    -----
    Konstantinidis et al. (2022), Variational Bayesian tensor networks with structured posteriors.
    Their program is not public; what the paper leaves open is chosen here.
    """

    def __init__(
        self,
        basis: Any = "polynomial",
        *,
        n_basis: int = 20,
        max_rank: int = 10,
        mean_rank: int = 10,
        prior_std: float = 1.0,
        noise_prior: Gamma | None = None,
        max_iter: int = 3000,
        learning_rate: float = 0.02,
        batch_size: int = 1024,
        memory_limit: float = 1.4,
        random_state: Any = None,
    ) -> None:
        self.basis = basis
        self.n_basis = n_basis
        self.max_rank = max_rank
        self.mean_rank = mean_rank
        self.prior_std = prior_std
        self.noise_prior = noise_prior
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.memory_limit = memory_limit
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit q(W) and q(tau) to inputs X (n, D) and targets y (n,)."""
        for name in ("n_basis", "max_rank", "mean_rank", "max_iter", "batch_size"):
            checks.check_integer(name, getattr(self, name), 1)
        for name in ("prior_std", "learning_rate", "memory_limit"):
            checks.check_number(name, getattr(self, name))
        prior = checks.gamma_or_default("noise_prior", self.noise_prior, Gamma(1e-3, 1e-3))
        codes, modes, target = self._begin(X, y)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        batches = self._batches(codes, target, rng)
        sizes = [len(mode.keep) for mode in modes]
        parameters = _first(self.bases_, sizes, int(self.max_rank), int(self.mean_rank), rng)
        n, error = len(target), float(len(target))
        adam = Adam(parameters)
        for step in range(self.max_iter):
            batch = batches[rng.integers(len(batches))]
            # at first the noise is low and the prior is introduced gradually, or f vanishes
            share = min(1.0, (step + 1) / (_WARM * self.max_iter))
            precision = (prior.shape + 0.5 * n) / (prior.rate + 0.5 * error)
            if share < 1.0:
                precision = max(precision, 1.0 / WARM_NOISE)
            noise = rng.standard_normal((len(sizes), max(sizes), int(self.max_rank)))
            weight = n / len(batch.y)
            slopes, square = slopes_of_bound(
                parameters, noise, batch, sizes, weight, precision, self.prior_std, share
            )
            error = _MEMORY * error + (1.0 - _MEMORY) * square
            rate_now = float(self.learning_rate) * 0.01 ** (step / self.max_iter)
            parameters = adam.step(parameters, slopes, rate_now)
        self.parameters_, self.n_iter_ = parameters, self.max_iter
        variance = noise_variance(prior.shape + 0.5 * n, prior.rate + 0.5 * error)
        self.noise_std_ = self._y_scale * float(np.sqrt(variance))
        self._terms = [
            terms_of(mode, factor, spread=1.0)
            for mode, factor in zip(modes, _factors(parameters, sizes), strict=True)
        ]
        return self

    def _batches(self, codes: list[Array], target: Array, rng: np.random.Generator) -> list[Chunk]:
        """Return the rows in an order of chance, cut into blocks of a step each."""
        rows = rng.permutation(len(target))
        size = -(-len(rows) // -(-len(rows) // int(self.batch_size)))
        return self._blocks([column[rows] for column in codes], target[rows], size)


def slopes_of_bound(
    parameters: Parameters,
    noise: Array,
    batch: Any,
    sizes: list[int],
    weight: float,
    precision: float,
    prior_std: float,
    share: float = 1.0,
) -> tuple[Parameters, float]:
    """Return slopes of the bound in the parameters for one draw of W, and the squared error.

    ``noise`` (D, M, R) makes the draw, mean + std * noise; each row of the batch counts ``weight``
    times; ``precision`` is E[tau], ``share`` how much the prior counts.
    """
    mean, std = parameters.mean(), parameters.std()
    draw = mean + std * noise
    terms = [Terms(draw[d, :m], None) for d, m in enumerate(sizes)]
    batch.environments.reset()
    of_draw = np.zeros_like(draw)
    error: Array | None = None
    for d, m in enumerate(sizes):
        others = outside(batch, d, terms)
        phi = batch.features(d)[0]
        g = np.ones((len(phi), draw.shape[2])) if others is None else others.mean
        if error is None:
            error = batch.y - np.sum(g * (phi[:, :m] @ draw[d, :m]), axis=1)
        of_draw[d, :m] = weight * precision * (phi[:, :m].T @ (error[:, None] * g))
    assert error is not None
    counted = share * (np.arange(draw.shape[1]) < np.array(sizes)[:, None])[:, :, None]
    variance = prior_std**2
    # KL of each entry: (std^2 + mean^2) / (2 variance) - log std, up to a constant
    of_mean = of_draw - counted * mean / variance
    of_std = of_draw * noise - counted * (std / variance - 1.0 / std)
    return parameters.pull_back(of_mean, of_std), weight * float(error @ error)


def _first(
    bases: list[Any], sizes: list[int], rank: int, mean_rank: int, rng: np.random.Generator
) -> Parameters:
    """Return the constant function in every mode, plus small random parts."""
    n_modes, m = len(sizes), max(sizes)
    constant = np.zeros(m)
    widest = bases[int(np.argmax(sizes))]
    constant[: len(widest.constant_)] = widest.constant_
    modes = rng.normal(0.0, 0.3, (n_modes, mean_rank))
    functions = rng.normal(0.0, 0.3, (m, mean_rank))
    components = rng.normal(0.0, 0.3, (rank, mean_rank))
    modes[:, 0], functions[:, 0] = 1.0, constant
    components[:, 0] = rank ** (-1.0 / n_modes)
    log_std = np.log(_FIRST_STD)
    return Parameters(
        modes, functions, components, np.full(n_modes, log_std), np.zeros(m), np.zeros(rank)
    )


def _factors(parameters: Parameters, sizes: list[int]) -> list[Factor]:
    """Return q(W) of every mode as the core has it."""
    factors = []
    for mean, std, m in zip(parameters.mean(), parameters.std(), sizes, strict=True):
        rank = mean.shape[1]
        cov = np.diag((std[:m].T ** 2).ravel()).reshape(rank, m, rank, m)
        log_det = 2.0 * float(np.sum(np.log(std[:m])))
        factors.append(Factor(mean[:m], cov, log_det, components(rank)))
    return factors


class Adam:
    """Running averages of slopes and of their squares, by which steps are scaled."""

    def __init__(self, parameters: Parameters) -> None:
        self.count = 0
        self.first = [np.zeros_like(p) for p in parameters]
        self.second = [np.zeros_like(p) for p in parameters]

    def step(self, parameters: Parameters, slopes: Parameters, rate: float) -> Parameters:
        """Return the parameters a step further up."""
        self.count += 1
        slow, slower = _DECAYS
        moved = []
        for k, (p, slope) in enumerate(zip(parameters, slopes, strict=True)):
            self.first[k] = slow * self.first[k] + (1.0 - slow) * slope
            self.second[k] = slower * self.second[k] + (1.0 - slower) * slope**2
            mean = self.first[k] / (1.0 - slow**self.count)
            size = np.sqrt(self.second[k] / (1.0 - slower**self.count))
            moved.append(p + rate * mean / (size + 1e-8))
        return Parameters(*moved)
