"""Models as ONNX graphs say under onnxruntime what they say in Python."""

from __future__ import annotations

import builtins

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from btnkm import BTNClassifier, BTNRegressor, Solver
from btnkm.core.linalg import square_root as root_by_python
from btnkm.data.frames import as_numbers, split_columns
from tests.models import MAKERS, SMALL, fitted, mixed, smooth
from tests.problems import Hinges

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def session(proto):
    onnx.checker.check_model(proto, full_check=True)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return runtime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def told(model, X):
    """Return the outputs of a model's graph for a table."""
    opened = session(model.to_onnx())
    fed = {}
    for given, column in zip(opened.get_inputs(), split_columns(X)[0], strict=True):
        values = as_numbers(column)
        if given.type == "tensor(string)":
            missing = [v is None or v != v for v in values.tolist()]
            values = np.where(missing, "", values.astype(object))
        fed[given.name] = values.reshape(-1, 1)
    return opened.run(None, fed)


def check(model, X):
    actual = told(model, X)
    if isinstance(model, BTNClassifier):
        label, probability = actual
        expected = model.predict_proba(X)
        np.testing.assert_allclose(probability, expected, rtol=1e-9, atol=1e-12)
        assert label.shape == (len(X), 1)
        assert np.array_equal(label[:, 0], model.predict(X))
        return
    mean, std = model.predict(X, return_std=True)
    assert actual[0].shape == actual[1].shape == (len(X), 1)
    np.testing.assert_allclose(actual[0][:, 0], mean, rtol=1e-9)
    np.testing.assert_allclose(actual[1][:, 0], std, rtol=1e-9)


@pytest.mark.parametrize("name", MAKERS)
def test_a_graph_says_what_the_model_says(name):
    check(*fitted(name))


@pytest.mark.parametrize(
    "name",
    ["mixed", "no gaps in training", "many levels", "gone on", "bases", "train of a mixed table"],
)
def test_a_graph_says_the_same_of_rows_like_none_before(name):
    model, X = fitted(name)
    rng = np.random.default_rng(0)
    table = X if hasattr(X, "iloc") else pd.DataFrame(X, columns=[f"x{j}" for j in range(4)])
    wild = table.sample(80, replace=True, random_state=0).reset_index(drop=True)
    for column in wild.columns:
        if wild[column].dtype == float:
            wild[column] *= rng.choice([1.0, -3.0, 0.1, 1e6], len(wild))
        elif wild[column].dtype == object:
            new = pd.Series(rng.choice(["", "new", "level 1"], len(wild)), dtype=object)
            wild[column] = wild[column].where(rng.random(len(wild)) < 0.6, new)
            wild.loc[wild[column] == "", column] = None
        if wild[column].dtype != bool:
            wild[column] = wild[column].mask(rng.random(len(wild)) < 0.2)
    check(model, wild if hasattr(X, "iloc") else wild.to_numpy())


@pytest.mark.parametrize("name", ["gaussian", "two classes", "train of three classes"])
def test_no_rows_have_no_answers_and_one_row_has_one(name):
    model, X = fitted(name)
    opened = session(model.to_onnx())
    for n in (0, 1):
        actual = opened.run(None, {f"x{j}": X[:n, [j]] for j in range(3)})
        assert [len(part) for part in actual] == [n, n]
    check(model, X[:1])


def test_columns_that_are_missing_together_have_the_same_copies():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 1)) + 0.2 * rng.standard_normal((120, 3))
    model = BTNRegressor(n_init=1, structure="sums").fit(X, X.sum(axis=1))
    assert sorted(model.fitted_.fills.told) == [0, 1, 2]
    check(model, np.where(rng.random(X.shape) < 0.5, np.nan, X))


def test_single_values_and_their_neighbours_are_told_apart():
    model, X = fitted("mixed")
    assert len(model.columns_[5].basis.basis_.spikes_) == 1  # pay of 0
    rows = pd.concat([X.iloc[:1]] * 4, ignore_index=True)
    rows["pay"] = [0.0, -1.0, 1e-6, 1e-3]  # below the range is at its end
    check(model, rows)
    at, below, beside, _ = told(model, rows)[0][:, 0]
    assert at == below
    assert abs(at - beside) > 1e-3


def test_categories_may_be_numbers_and_names_those_of_outputs():
    rng = np.random.default_rng(0)
    n = 240
    X = pd.DataFrame(
        {
            "mean": rng.integers(5, size=n).astype(float),
            "std": 1.5 * rng.integers(30, size=n),
            "v0": rng.normal(size=n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(4, size=n), "D"),
            "text": rng.choice(["", "a", "b"], n).astype(object),
        }
    )
    y = X["mean"] + np.sin(X["std"]) + X["v0"] ** 2 + (X["text"] == "") + 0.1 * rng.normal(size=n)
    basis = {"mean": "categorical", "std": "categorical", "day": "categorical"}
    model = BTNRegressor(basis=basis, **SMALL).fit(X, y)
    X.loc[0, "mean"], X.loc[1, "mean"], X.loc[2, "std"], X.loc[3, "text"] = 77.0, np.nan, 1.25, "c"
    X.loc[4, "day"], X.loc[5, "day"] = pd.NaT, pd.Timestamp("2029-01-01")
    check(model, X)
    names = [given.name for given in session(model.to_onnx()).get_inputs()]
    assert names == ["mean_", "std_", "v0", "day", "text"]


@pytest.mark.parametrize("kind", [int, float, bool, str, "U"])
def test_labels_have_the_type_they_had(kind):
    X, y = smooth(2)
    labels = np.array(["no", "yes"]) if kind == "U" else np.array([kind(0), kind(1)])
    labels = labels.astype(object) if kind is str else labels
    model = BTNClassifier(**SMALL).fit(X, labels[(y > 0).astype(int)])
    assert told(model, X)[0].dtype.kind == {int: "i", float: "f", bool: "b"}.get(kind, "O")
    check(model, X)


def test_five_classes_of_eight_components():
    X, y = smooth(3)
    codes = np.digitize(y, np.quantile(y, [0.2, 0.4, 0.6, 0.8]))
    how = {
        "n_init": 2,
        "max_iter": 8,
        "random_state": 0,
        "n_jobs": 1,
        "solver": Solver(prune=False),
    }
    model = BTNClassifier(**how, structure="tensor").fit(X, codes)
    assert model.rank_ == 8  # as many columns have a covariance, some of them tiny
    check(model, X)


@pytest.mark.parametrize("size", [1, 2, 3, 6, 9])
def test_roots_by_rotations_are_those_of_eigenvectors(size):
    from btnkm.io.onnx.graph import Graph
    from btnkm.io.onnx.outputs import square_root

    rng = np.random.default_rng(size)
    thin = rng.normal(size=(20, size, max(size - 2, 1)))
    matrices = thin @ np.swapaxes(thin, 1, 2) + 1e-6 * rng.random((20, 1, 1)) * np.eye(size)
    matrices[0], matrices[1] = 0.0, np.eye(size)
    graph = Graph(["given", "root"])
    root = square_root(graph, graph.input("given", "f", ("n", size, size)), size)
    proto = graph.model({"root": (root, "f", ("n", size, size))}, "")
    (actual,) = session(proto).run(None, {"given": matrices})
    np.testing.assert_allclose(actual, np.swapaxes(actual, 1, 2), atol=1e-12)
    np.testing.assert_allclose(actual @ actual, matrices, atol=1e-12)
    for item, matrix in zip(actual, matrices, strict=True):
        np.testing.assert_allclose(item @ item.T, root_by_python(matrix) @ root_by_python(matrix).T)
        assert np.linalg.eigvalsh(item).min() > -1e-9


@pytest.mark.parametrize("dof", [2.0, 5.0, 30.0, 1e3, 1e5])
def test_students_distribution_by_quadrature(dof):
    from scipy.special import stdtr

    from btnkm.io.onnx.graph import Graph, student_excess

    graph = Graph(["z", "excess"])
    excess = student_excess(graph, graph.input("z", "f"), dof)
    opened = session(graph.model({"excess": (excess, "f", ("n", 1))}, ""))
    z = np.append(np.linspace(-60.0, 60.0, 201), [1e-9, 1e9, -1e300])[:, None]
    (actual,) = opened.run(None, {"z": z})
    np.testing.assert_allclose(0.5 + actual, stdtr(dof, z), atol=1e-10)


def test_a_graph_can_be_written_and_read(tmp_path):
    model, X = fitted("gaussian")
    onnx.save(model.to_onnx(), tmp_path / "model.onnx")
    opened = runtime.InferenceSession(
        str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    assert [given.name for given in opened.get_inputs()] == ["x0", "x1", "x2"]
    assert [answer.name for answer in opened.get_outputs()] == ["mean", "std"]
    fed = {f"x{j}": X[:, [j]] for j in range(3)}
    np.testing.assert_allclose(opened.run(["mean"], fed)[0][:, 0], model.predict(X), rtol=1e-9)


def test_what_cannot_be_written_is_told(monkeypatch):
    with pytest.raises(NotFittedError):
        BTNRegressor().to_onnx()
    X, y = smooth(2)
    with pytest.raises(TypeError, match="column 'x0': the basis Hinges has no portable form"):
        BTNRegressor(basis=Hinges(), **SMALL).fit(X, y).to_onnx()
    dates = np.array(["2024-01-01", "2024-01-02"], dtype="M8[D]")[(y > 0).astype(int)]
    with pytest.raises(ValueError, match="labels must be text, numbers or booleans for ONNX"):
        BTNClassifier(**SMALL).fit(X, dates).to_onnx()
    model, _ = fitted("gaussian")
    usual = builtins.__import__

    def without(name, globals=None, locals=None, fromlist=(), level=0):
        if name == "onnx" and level == 0:
            raise ImportError(name)
        return usual(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'btnkm\[onnx\]'"):
        model.to_onnx()


def test_columns_without_a_part_are_inputs_all_the_same():
    X, y = mixed()
    X = X.assign(same=1.0, none=np.nan)
    model = BTNRegressor(**SMALL).fit(X.iloc[:100], y[:100])
    check(model, X.iloc[100:])
