"""Commands travel, and blocks that are lost come back as they were."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from btnkm import BTNClassifier, BTNRegressor, TensorTrain
from btnkm.core.network import Environments
from btnkm.core.row_block import Chunk
from btnkm.execution import local


class Forgetful(local.LocalExecutor):
    """Sends every command through a parcel, carries it out late, and keeps losing blocks."""

    lost = 0

    def __init__(self, chunks, threads=None):
        super().__init__(chunks)
        self.pending = []
        self.rng = np.random.default_rng(0)

    def each(self, command):
        self.pending.append(pickle.dumps(command))

    def sum(self, command):
        for i, chunk in enumerate(self.chunks):
            if self.rng.random() < 0.1 and hasattr(self, "recall"):
                Forgetful.lost += 1
                old = chunk.environments
                env = Environments(old.n_modes, stride=old.stride, network=old.network)
                self.chunks[i] = Chunk(chunk.features, chunk.y, chunk.weight, env)
                parcels = [pickle.dumps(c) for c in self.recall()]
            else:
                parcels = self.pending
            for parcel in parcels:
                pickle.loads(parcel)(self.chunks[i])
        self.pending = []
        return super().sum(pickle.loads(pickle.dumps(command)))


def numbers(n=400):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    f = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2]
    return X, f, rng


def cases():
    X, f, rng = numbers()
    noisy = f + 0.1 * rng.standard_normal(len(f))
    yield "gaussian", BTNRegressor(), X, noisy
    yield "train", BTNRegressor(network=TensorTrain(cores="full", order="given")), X, noisy
    yield "student", BTNRegressor(likelihood="student_t"), X, noisy
    yield "counts", BTNRegressor(likelihood="negative_binomial"), X, rng.poisson(np.exp(f))
    yield "two", BTNClassifier(), X, noisy > 0
    yield "three", BTNClassifier(), X, np.digitize(noisy, [-0.5, 0.5])
    yield (
        "three, train",
        BTNClassifier(network=TensorTrain(cores="full", order="given")),
        X,
        np.digitize(noisy, [-0.5, 0.5]),
    )


@pytest.mark.parametrize(("model", "X", "y"), [pytest.param(*c[1:], id=c[0]) for c in cases()])
def test_blocks_that_are_lost_cost_nothing_but_time(model, X, y, monkeypatch):
    model.set_params(structure="sums+tensor" if model.network == "cp" else "tensor")
    model.set_params(n_basis=6, max_rank=3, n_init=1, max_iter=12, random_state=0, n_jobs=1)
    weight = 1.0 + np.arange(len(y)) % 2
    answers = []
    make_plan = local.make_plan

    def in_blocks(*args, **kwargs):
        plan = make_plan(*args, **kwargs)
        return local.MemoryPlan(100, plan.keep_features, plan.stride, plan.n_parallel, plan.n_bytes)

    monkeypatch.setattr(local, "make_plan", in_blocks)
    for executor in (local.LocalExecutor, Forgetful):
        monkeypatch.setattr(local, "LocalExecutor", executor)
        model.fit(X, y, sample_weight=weight)
        of = model.predict_proba if hasattr(model, "classes_") else model.predict
        answers.append((of(X), model.lower_bounds_))
    assert Forgetful.lost > 10
    Forgetful.lost = 0
    for plain, forgetful in zip(*answers, strict=True):
        np.testing.assert_allclose(forgetful, plain, rtol=1e-7)
