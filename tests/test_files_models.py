"""Models as files: what is read is what was written, bit for bit, and learns on alike."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from dataclasses import fields, is_dataclass
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import btnkm
from btnkm import BTNClassifier, BTNRegressor, Gamma, Priors, Solver, TensorTrain
from btnkm.bases import Basis, BSpline, Fourier, Polynomial
from btnkm.bases.effect import Coordinates, MainEffect
from btnkm.likelihoods import StudentT

QUICK = {
    "n_init": 2,
    "max_iter": 4,
    "solver": Solver(warm_sweeps=4),
    "random_state": 0,
    "n_jobs": 1,
}
QUICK |= {"n_basis": 6, "max_rank": 4, "structure": "tensor"}
# full tensors have files in test_full_files; main effects: see also test_sums_exports
AUTO = {**QUICK, "structure": "auto", "solver": Solver(warm_sweeps=4, full_rows=0)}


class Hinges(Basis):
    def __init__(self, at=0.0):
        self.at = at

    def phi(self, x):
        return np.stack([np.ones_like(x), np.maximum(x - self.at, 0)], axis=1)


def table(n=160, seed=0):
    """Return numbers, text, dates and gaps, and a function of them with noise."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "pay": np.where(rng.random(n) < 0.4, 0.0, rng.uniform(0, 9, n)),
            "colour": rng.choice(["red", "green", "blue"], n).astype(object),
            "day": pd.Timestamp("2024-02-01") + pd.to_timedelta(rng.integers(0, 900, n), "h"),
        }
    )
    f = np.sin(2 * frame["size"]) + 0.2 * frame["pay"] + 1.0 * (frame["colour"] == "red")
    frame.loc[frame.index % 7 == 0, "size"] = np.nan
    frame.loc[frame.index % 11 == 0, "colour"] = None
    return frame, f.to_numpy() + 0.1 * rng.normal(size=n)


def numbers(n=150, inputs=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, inputs))
    return X, np.sin(3 * X[:, 0]) + X[:, 0] * X[:, -1] + 0.1 * rng.normal(size=n)


def labels(y, count):
    return np.digitize(y, np.quantile(y, np.arange(1, count) / count))


def levels(n=400, count=40):
    rng = np.random.default_rng(3)
    shop = rng.integers(count, size=n)
    frame = pd.DataFrame({"shop": [f"shop {k}" for k in shop], "x": rng.uniform(size=n)})
    return frame, np.sin(shop) + frame["x"].to_numpy() + 0.1 * rng.normal(size=n)


def _stream(model, names=None):
    frame, y = table(150)
    y = y if names is None else np.array(names, dtype=object)[labels(y, len(names))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for rows in np.array_split(np.arange(len(y)), 3):
            model.partial_fit(frame.iloc[rows], y[rows])
    return model, frame


def _fit(model, X, y, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that quick fits found little
        return model.fit(X, y, **more), X


def _torch():
    torch = pytest.importorskip("torch")
    X, y = numbers()
    model, _ = _fit(BTNRegressor(**QUICK), torch.asarray(X), torch.asarray(y))
    return model, X


def _classes(count, text=False, frame=False, **more):
    X, y = table() if frame else numbers()
    codes = labels(y, count)
    return _fit(
        BTNClassifier(**QUICK, **more), X, np.array(list("abcdef"))[codes] if text else codes
    )


MODELS = {
    "gaussian": lambda: _fit(BTNRegressor(**QUICK), *table()),
    "student_t": lambda: _fit(BTNRegressor(**QUICK, likelihood="student_t"), *numbers()),
    "dof held": lambda: _fit(BTNRegressor(**QUICK, likelihood=StudentT(dof=5.0)), *numbers()),
    "counts": lambda: _fit(
        BTNRegressor(**QUICK, likelihood="negative_binomial"),
        numbers()[0],
        np.random.default_rng(0).poisson(np.exp(numbers()[1])),
    ),
    "two classes": lambda: _classes(2, frame=True),
    "two as text": lambda: _classes(2, text=True, class_weight={"a": 1.0, "b": 3.0}),
    "true or false": lambda: _fit(BTNClassifier(**QUICK), numbers()[0], numbers()[1] > 0),
    "three classes": lambda: _classes(3, text=True, class_weight="balanced"),
    "least_squares": lambda: _classes(2, likelihood="least_squares", class_weight="balanced"),
    "levels": lambda: _fit(BTNRegressor(**QUICK), *levels()),
    "anchored": lambda: _fit(BTNRegressor(**QUICK), *numbers(inputs=10)),
    "anchored classes": lambda: _fit(
        BTNClassifier(**QUICK), numbers(inputs=8)[0], labels(numbers(inputs=8)[1], 3)
    ),
    "full train": lambda: _fit(
        BTNRegressor(**QUICK, network=TensorTrain(cores="full", order="given")),
        *numbers(),
    ),
    "train": lambda: _fit(BTNRegressor(**QUICK, network="tt"), *numbers()),
    "train of classes": lambda: _classes(3, network=TensorTrain(cores="full", order=[2, 0, 1])),
    "bases": lambda: _fit(
        BTNRegressor(
            **QUICK,
            basis={0: BSpline(n_basis=7), 1: Fourier(n_basis=np.int64(6)), 2: Polynomial(5, 0.0)},
            priors=Priors(basis=Gamma(2.0, 1.0), noise=Gamma(1e-3, 1e-3)),
        ),
        *numbers(),
    ),
    "polynomial": lambda: _fit(BTNRegressor("polynomial", **QUICK), *numbers()),
    "one column": lambda: _fit(BTNRegressor(**QUICK), *numbers(inputs=1)),
    "any structure": lambda: _fit(BTNRegressor(**AUTO), *table()),
    "classes of any structure": lambda: _fit(
        BTNClassifier(**AUTO), numbers()[0], labels(numbers()[1], 3)
    ),
    "a stream of any structure": lambda: _stream(BTNRegressor(**AUTO)),
    "columns by number": lambda: _fit(
        BTNRegressor(**QUICK), pd.DataFrame(numbers()[0]), numbers()[1]
    ),
    "a stream": lambda: _stream(BTNRegressor(**QUICK)),
    "a stream of labels": lambda: _stream(BTNClassifier(**QUICK), ["low", "high"]),
    "torch": _torch,
}


@cache
def fitted(name):
    return MODELS[name]()


@pytest.fixture
def again(tmp_path):
    """Return a function that writes a model, and reads it."""

    def write_and_read(model):
        model.save(tmp_path / "again.btn")
        return btnkm.load(tmp_path / "again.btn")

    return write_and_read


def answers(model, X):
    """Return all that a model says of rows, under fixed seeds."""
    if isinstance(model, BTNClassifier):
        decision, std = model.decision_function(X, return_std=True)
        interval = model.predict_proba_interval(X)
        return [model.predict(X), model.predict_proba(X), decision, std, interval]
    return [
        model.predict(X),
        *model.predict(X, return_std=True),
        model.predict_interval(X),
        model.predict_quantiles(X, [0.1, 0.6]),
        model.sample_y(X, 3, random_state=5),
    ]


def unlike(a, b, where="model", seen=None):
    """Return where two objects differ, in type, bits or memory layout; None if nowhere."""
    seen = set() if seen is None else seen
    if (id(a), id(b)) in seen:
        return None
    seen.add((id(a), id(b)))
    if type(a) is not type(b):
        return f"{where}: {type(a)} {type(b)}"
    if isinstance(a, np.ndarray):
        order = [np.argsort([-s for s in v.strides], kind="stable").tolist() for v in (a, b)]
        alike = a.dtype == b.dtype and a.shape == b.shape
        alike = alike and (order[0] == order[1] or 1 in a.shape)
        bits = [v.tolist() if v.dtype == object else v.tobytes() for v in (a, b)]
        return None if alike and bits[0] == bits[1] else where
    if isinstance(a, sp.csr_array):
        parts = [
            (name, getattr(a, name), getattr(b, name)) for name in ("data", "indices", "indptr")
        ]
    elif isinstance(a, dict):
        if list(a) != list(b):
            return f"{where}: {list(a)} {list(b)}"
        parts = [(k, a[k], b[k]) for k in a]
    elif isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{where}: {len(a)} {len(b)}"
        parts = [(k, x, y) for k, (x, y) in enumerate(zip(a, b, strict=True))]
    elif isinstance(a, partial):
        parts = [("func", a.func, b.func), ("args", a.args, b.args)]
    elif is_dataclass(a):
        parts = [(f.name, getattr(a, f.name), getattr(b, f.name)) for f in fields(a)]
    elif isinstance(a, Basis | BTNClassifier | BTNRegressor | Coordinates | MainEffect):
        parts = [("attributes", vars(a), vars(b))]
    else:
        return None if a == b or (a != a and b != b) else f"{where}: {a!r} {b!r}"
    actual = (unlike(x, y, f"{where}.{name}", seen) for name, x, y in parts)
    return next((text for text in actual if text), None)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_bit_for_bit(name, again):
    model, X = fitted(name)
    same = again(model)
    for a, b in zip(answers(model, X), answers(same, X), strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)
    assert unlike(model, same) is None
    assert repr(same) == repr(model)
    assert same.get_params().keys() == model.get_params().keys()


@pytest.mark.parametrize("name", ["gaussian", "levels", "three classes", "full train"])
def test_what_was_one_object_is_one_again(name, again):
    model = fitted(name)[0]
    same = again(model)

    def places(model):
        """Return which mode map each restart has, and which basis of a column each mode."""
        every = list(model._mode_maps)
        position_of = {id(column.basis): j for j, column in enumerate(model.columns_)}
        modes = [basis for mode_map in every for basis in mode_map.bases[mode_map.first_input :]]
        bases = [[basis, getattr(basis, "basis", None)] for basis in modes]
        first = [[other is mode_map for other in every].index(True) for mode_map in every]
        return first, [[position_of.get(id(basis)) for basis in two] for two in bases]

    assert places(same) == places(model)
    assert all(any(j is not None for j in two) for two in places(same)[1])


def test_a_process_without_the_training_data_predicts_the_same(tmp_path):
    model, X = fitted("gaussian")
    model.save(tmp_path / "m.btn")
    X.head(40).to_pickle(tmp_path / "rows")
    code = (
        "import sys, btnkm, numpy as np, pandas as pd\n"
        "model, X = btnkm.load(sys.argv[1]), pd.read_pickle(sys.argv[2])\n"
        "mean, std = model.predict(X, return_std=True)\n"
        "ends, draws = model.predict_interval(X), model.sample_y(X, 2, random_state=5)\n"
        "np.savez(sys.argv[3], mean=mean, std=std, ends=ends, draws=draws)\n"
    )
    paths = [str(tmp_path / name) for name in ("m.btn", "rows", "out.npz")]
    subprocess.run([sys.executable, "-c", code, *paths], check=True, timeout=600)
    X = X.head(40)
    with np.load(tmp_path / "out.npz") as told:
        mean, std = model.predict(X, return_std=True)
        assert np.array_equal(told["mean"], mean)
        assert np.array_equal(told["std"], std)
        assert np.array_equal(told["ends"], model.predict_interval(X))
        assert np.array_equal(told["draws"], model.sample_y(X, 2, random_state=5))


@pytest.mark.parametrize(
    "name", ["a stream", "two classes", "three classes", "levels", "full train"]
)
def test_learning_on_is_what_it_would_have_been(name, again):
    model, X = fitted(name)
    before, after = copy.deepcopy(model), again(model)
    X = X.iloc[:50] if hasattr(X, "iloc") else X[:50]
    y = np.resize(model.classes_, 50) if hasattr(model, "classes_") else np.arange(50.0) % 7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for item in (before, after):
            item.partial_fit(X, y, forget=0.9)
    for a, b in zip(answers(before, X), answers(after, X), strict=True):
        assert np.array_equal(a, b)
    assert unlike(before._pasts, after._pasts) is None
    assert unlike(before._window, after._window) is None


def test_a_stream_takes_new_categories_after_it_was_read(again):
    model, X = _stream(BTNRegressor(**QUICK))
    more = X.iloc[:30].assign(colour="violet")
    first, other = copy.deepcopy(model), again(model)
    for each in (first, other):
        each.partial_fit(more, np.arange(30.0) % 3)
        each.partial_fit(more, np.arange(30.0) % 3)
    for a, b in zip(answers(first, more), answers(again(other), more), strict=True):
        assert np.array_equal(a, b)


def test_warm_start_goes_on_and_still_tells_other_parameters(again):
    X, y = numbers()
    model = BTNRegressor(**QUICK, warm_start=True, priors=Priors(smoothness=np.float64(1.0))).fit(
        X, y
    )
    same = again(model)
    assert np.array_equal(model.fit(X, y).predict(X), same.fit(X, y).predict(X))
    same.priors = Priors(smoothness=2.0)
    with pytest.raises(ValueError, match="priors.smoothness must stay what it was"):
        again(same).fit(X, y)


def test_clone_and_pickle_work_after_a_model_was_read(again):
    model, X = fitted("three classes")
    same = again(model)
    assert clone(same).get_params() == clone(model).get_params()
    assert np.array_equal(pickle.loads(pickle.dumps(same)).predict_proba(X), model.predict_proba(X))


def test_a_model_that_was_read_is_written_again_to_the_same_bytes(tmp_path):
    model, _ = fitted("gaussian")
    model.save(tmp_path / "first.btn")
    btnkm.load(tmp_path / "first.btn").save(tmp_path / "second.btn")
    assert (tmp_path / "first.btn").read_bytes() == (tmp_path / "second.btn").read_bytes()


def test_what_lasts_for_one_process_is_left_out(again):
    X, y = numbers()
    seen = []
    model = BTNRegressor(
        **{**QUICK, "random_state": np.random.RandomState(0)}, callback=seen.append
    )
    model.fit(X, y)
    model.note = {"of": "mine"}
    same = again(model)
    assert same.callback is None
    assert same.random_state is None
    assert not hasattr(same, "note")
    assert model.callback is not None


def test_a_model_that_is_not_fitted_or_of_another_class_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        BTNRegressor().save(tmp_path / "m.btn")

    class Mine(BTNRegressor):
        pass

    X, y = numbers()
    with pytest.raises(TypeError, match="must be a BTNRegressor or a BTNClassifier"):
        Mine(**QUICK).fit(X, y).save(tmp_path / "m.btn")
    assert list(tmp_path.iterdir()) == []


def test_a_basis_of_ones_own_is_read_with_its_class(tmp_path):
    X, y = numbers()
    model, _ = _fit(BTNRegressor(basis=Hinges(at=0.25), **QUICK), X, y)
    path = tmp_path / "m.btn"
    model.save(path)
    same = btnkm.load(path, bases=[Hinges])
    assert np.array_equal(same.predict(X), model.predict(X))
    assert same.basis.at == 0.25
    with pytest.raises(ValueError, match="a basis that is not btnkm's, 'Hinges'; pass its class"):
        btnkm.load(path)
    with pytest.raises(TypeError, match="bases must be classes of bases"):
        btnkm.load(path, bases=[Hinges()])


def test_what_cannot_be_stored_is_told(tmp_path):
    X, y = numbers()
    frame = pd.DataFrame(X, columns=pd.date_range("2024-01-01", periods=3))
    model, _ = _fit(BTNRegressor(**QUICK), frame, y)
    with pytest.raises(ValueError, match="the attribute columns_ must be plain data.*Timestamp"):
        model.save(tmp_path / "m.btn")
    model, _ = _fit(BTNRegressor(**QUICK, basis=Hinges()), X, y)
    model.columns_[0].basis.basis_.at = tmp_path
    with pytest.raises(ValueError, match="the basis Hinges must be plain data.*Path"):
        model.save(tmp_path / "m.btn")

    class Own(StudentT):
        pass

    other, _ = _fit(BTNRegressor(**QUICK, likelihood=Own(dof=5.0)), X, y)
    with pytest.raises(ValueError, match="the parameter likelihood must be plain data.*type Own"):
        other.save(tmp_path / "m.btn")
    model.network = TensorTrain(order={1, 2})
    with pytest.raises(ValueError, match="the parameter network must be plain data"):
        model.save(tmp_path / "m.btn")
    assert list(tmp_path.iterdir()) == []


def test_a_parameter_of_any_plain_type_comes_back(again):
    X, y = numbers()
    how = {
        "max_rank": np.int64(3),
        "tol": np.float32(1e-3),
        "memory_limit": 0.5,
        "solver": Solver(warm_sweeps=4, prune=np.True_),
    }
    model, _ = _fit(BTNRegressor(**{**QUICK, **how}), X, y)
    same = again(model)
    for name, value in how.items():
        assert type(getattr(same, name)) is type(value)
        assert getattr(same, name) == value
