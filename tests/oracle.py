"""Dense brute force for small problems, written from the model and not from the library.

The weights of all modes form one vector w = sum_r w_r^(1) (x) ... (x) w_r^(D) of length
M_1 ... M_D, and f_n = w . (phi_n^(1) (x) ... (x) phi_n^(D)). Under q the first two moments of w are
sums of Kronecker products, so every expectation the bound needs is a plain product of arrays.
vec(W) stacks the columns of the (M, R) matrix W: component outer, function inner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from scipy import stats
from scipy.special import digamma, gammaln


@dataclass(frozen=True)
class Q:
    """The posterior, dense; every Gamma is a pair (shape, rate) of arrays."""

    means: tuple  # (M, R) each
    covs: tuple  # (M R, M R) each
    basis: tuple  # pairs of (M,), or (M,) values where lambda_m is known
    rank: tuple  # pair of (R,)
    noise: tuple  # pair of numbers

    def put(self, d, **changed):
        """Return a copy with mode d's entry of the named tuples replaced."""
        new = {
            k: getattr(self, k)[:d] + (v,) + getattr(self, k)[d + 1 :] for k, v in changed.items()
        }
        return replace(self, **new)


@dataclass(frozen=True)
class Prior:
    """Hyperpriors as (shape, rate); ``basis`` holds one pair per mode, or is None."""

    noise: tuple
    rank: tuple
    basis: tuple | None


def second_moment(mean, cov):
    """Return E[w_mr w_kt] as an (M, R, M, R) array, entry by entry."""
    m, rank = mean.shape
    out = np.empty((m, rank, m, rank))
    for i in range(m):
        for r in range(rank):
            for j in range(m):
                for s in range(rank):
                    out[i, r, j, s] = mean[i, r] * mean[j, s] + cov[r * m + i, s * m + j]
    return out


def kron_all(parts):
    return reduce(np.kron, parts)


def tensor_moments(means, covs):
    """Return E[w] and E[w w^T] of the full weight vector."""
    rank = means[0].shape[1]
    seconds = [second_moment(m, c) for m, c in zip(means, covs, strict=True)]
    first = sum(kron_all([m[:, r] for m in means]) for r in range(rank))
    second = sum(
        kron_all([e[:, r, :, s] for e in seconds]) for r in range(rank) for s in range(rank)
    )
    return first, second


def tensor_features(phis):
    """Return the rows phi_n^(1) (x) ... (x) phi_n^(D)."""
    return np.array([kron_all(rows) for rows in zip(*phis, strict=True)])


def f_moments(phis, means, covs):
    """Return E[f] and E[f^2] of every row."""
    first, second = tensor_moments(means, covs)
    x = tensor_features(phis)
    return x @ first, np.einsum("ni,ij,nj->n", x, second, x)


def draw_weights(means, covs, rng):
    """Return one draw of every factor."""
    draws = []
    for mean, cov in zip(means, covs, strict=True):
        m, rank = mean.shape
        flat = rng.multivariate_normal(mean.T.ravel(), cov, method="eigh")
        draws.append(flat.reshape(rank, m).T)
    return draws


def f_values(phis, weights):
    """Return f of every row for given weights, by the definition of the network."""
    rank = weights[0].shape[1]
    f = np.zeros(len(phis[0]))
    for r in range(rank):
        product = np.ones(len(f))
        for phi, w in zip(phis, weights, strict=True):
            product = product * (phi @ w[:, r])
        f += product
    return f


def outside_moments(phis, means, covs, d, n):
    """Return g (R,) and H (R, R) of row n: moments of the product over all modes but d."""
    rank = means[0].shape[1]
    g, h = np.ones(rank), np.ones((rank, rank))
    for k, (phi, mean, cov) in enumerate(zip(phis, means, covs, strict=True)):
        if k == d:
            continue
        row = phi[n]
        m = len(row)
        for r in range(rank):
            g[r] *= row @ mean[:, r]
            for s in range(rank):
                spread = cov[r * m : (r + 1) * m, s * m : (s + 1) * m]
                h[r, s] *= row @ (np.outer(mean[:, r], mean[:, s]) + spread) @ row
    return g, h


def block_sums(phis, q, y, s, d):
    """Return sum_n s_n H_n (x) phi phi^T and sum_n s_n y_n g_n (x) phi_n."""
    size = q.means[d].size
    a, b = np.zeros((size, size)), np.zeros(size)
    for n, row in enumerate(phis[d]):
        g, h = outside_moments(phis, q.means, q.covs, d, n)
        a += s[n] * np.kron(h, np.outer(row, row))
        b += s[n] * y[n] * np.kron(g, row)
    return a, b


def gamma_mean(pair):
    return np.asarray(pair[0]) / np.asarray(pair[1])


def gamma_log_mean(pair):
    return digamma(pair[0]) - np.log(pair[1])


def basis_mean(q, d):
    return gamma_mean(q.basis[d]) if isinstance(q.basis[d], tuple) else q.basis[d]


def basis_log_mean(q, d):
    return gamma_log_mean(q.basis[d]) if isinstance(q.basis[d], tuple) else np.log(q.basis[d])


def factor_problem(phis, q, y, s, d):
    """Return the precision and the linear term of q(vec W^(d))."""
    tau = gamma_mean(q.noise)
    a, b = block_sums(phis, q, y, s, d)
    return tau * a + np.diag(np.kron(gamma_mean(q.rank), basis_mean(q, d))), tau * b


def solve_factor(phis, q, y, s, d):
    """Return q with the optimal q(W^(d))."""
    a, b = factor_problem(phis, q, y, s, d)
    m, rank = q.means[d].shape
    mean = np.linalg.solve(a, b).reshape(rank, m).T
    return q.put(d, means=mean, covs=np.linalg.inv(a))


def squares(q, d):
    """Return E[w_mr^2]: (M, R)."""
    m, rank = q.means[d].shape
    e = second_moment(q.means[d], q.covs[d])
    return np.array([[e[i, r, i, r] for r in range(rank)] for i in range(m)])


def solve_basis(q, prior, d):
    """Return q with the optimal q(lambda_M^(d))."""
    shape0, rate0 = prior.basis[d]
    lam = gamma_mean(q.rank)
    w2 = squares(q, d)
    m, rank = w2.shape
    rate = [rate0[i] + 0.5 * sum(lam[r] * w2[i, r] for r in range(rank)) for i in range(m)]
    return q.put(d, basis=(np.full(m, shape0 + 0.5 * rank), np.array(rate)))


def solve_rank(q, prior):
    """Return q with the optimal q(lambda_R)."""
    rank = q.means[0].shape[1]
    shape = prior.rank[0] + 0.5 * sum(len(m) for m in q.means)
    rate = np.full(rank, float(prior.rank[1]))
    for d in range(len(q.means)):
        rate += 0.5 * basis_mean(q, d) @ squares(q, d)
    return replace(q, rank=(np.full(rank, shape), rate))


def expected_error(phis, q, y, s):
    """Return E||y - f||^2, row by row."""
    mean, second = f_moments(phis, q.means, q.covs)
    return sum(s[n] * (y[n] ** 2 - 2 * y[n] * mean[n] + second[n]) for n in range(len(y)))


def solve_noise(phis, q, prior, y, s):
    """Return q with the optimal q(tau)."""
    rate = prior.noise[1] + 0.5 * expected_error(phis, q, y, s)
    return replace(q, noise=(prior.noise[0] + 0.5 * np.sum(s), rate))


def gamma_cross(q, prior):
    """Return E_q log Ga(x; prior), summed."""
    shape, rate = prior
    log_x, x = gamma_log_mean(q), gamma_mean(q)
    return np.sum(shape * np.log(rate) - gammaln(shape) + (shape - 1) * log_x - rate * x)


def gamma_entropy(q):
    return np.sum(stats.gamma(a=np.asarray(q[0]), scale=1.0 / np.asarray(q[1])).entropy())


def elbo(phis, q, prior, y, s):
    """Return E_q log p(y, W, lambda, tau) plus the entropy of q; rows count s_n times."""
    tau, log_tau = gamma_mean(q.noise), gamma_log_mean(q.noise)
    mean, second = f_moments(phis, q.means, q.covs)
    total = 0.0
    for n, weight in enumerate(s):
        residual = y[n] ** 2 - 2 * y[n] * mean[n] + second[n]
        total += weight * 0.5 * (log_tau - np.log(2 * np.pi) - tau * residual)
    lam, log_lam = gamma_mean(q.rank), gamma_log_mean(q.rank)
    for d, (mean_d, cov) in enumerate(zip(q.means, q.covs, strict=True)):
        mu, log_mu, w2 = basis_mean(q, d), basis_log_mean(q, d), squares(q, d)
        for i in range(mean_d.shape[0]):
            for r in range(mean_d.shape[1]):
                log_precision = log_mu[i] + log_lam[r]
                total += 0.5 * (log_precision - np.log(2 * np.pi) - mu[i] * lam[r] * w2[i, r])
        total += stats.multivariate_normal(mean_d.T.ravel(), cov).entropy()
        if prior.basis is not None:
            total += gamma_cross(q.basis[d], prior.basis[d]) + gamma_entropy(q.basis[d])
    total += gamma_cross(q.rank, prior.rank) + gamma_entropy(q.rank)
    total += gamma_cross(q.noise, prior.noise) + gamma_entropy(q.noise)
    return float(total)


def without_functions(phis, q, prior, d, lost):
    """Return phis, q and prior of the model in which mode d never had the functions ``lost``.

    q(W^(d)) is a placeholder, to be solved.
    """
    m, rank = q.means[d].shape
    keep = [i for i in range(m) if i not in set(lost)]
    flat = [r * m + i for r in range(rank) for i in keep]
    phis = [p[:, keep] if k == d else p for k, p in enumerate(phis)]
    q = q.put(d, means=q.means[d][keep], covs=q.covs[d][np.ix_(flat, flat)])
    if prior.basis is None:
        q = q.put(d, basis=q.basis[d][keep])
    else:
        q = q.put(d, basis=tuple(np.broadcast_to(p, m)[keep] for p in q.basis[d]))
        shape, rate = prior.basis[d]
        new = prior.basis[:d] + ((shape, rate[keep]),) + prior.basis[d + 1 :]
        prior = replace(prior, basis=new)
    return phis, q, prior


def without_components(q, lost):
    """Return q of the model that never had the components ``lost``: marginals of the others."""
    rank = q.means[0].shape[1]
    keep = [r for r in range(rank) if r not in set(lost)]
    means, covs = [], []
    for mean, cov in zip(q.means, q.covs, strict=True):
        m = len(mean)
        flat = [r * m + i for r in keep for i in range(m)]
        means.append(mean[:, keep])
        covs.append(cov[np.ix_(flat, flat)])
    kept_rank = tuple(np.broadcast_to(p, rank)[keep] for p in q.rank)
    return replace(q, means=tuple(means), covs=tuple(covs), rank=kept_rank)
