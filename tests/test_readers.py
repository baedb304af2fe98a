"""Rows on devices, on disk and in batches give what the same rows in memory give."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from btnkm import BTNClassifier, BTNRegressor, Solver, TensorTrain
from btnkm.core.arrays import host
from btnkm.data import column_stats, readers
from btnkm.execution.memory import spilled_columns

SMALL = {"n_basis": 6, "max_rank": 3, "n_init": 1, "max_iter": 8, "random_state": 0, "n_jobs": 1}
SMALL |= {"structure": "tensor"}


def make(n=300, gaps=True):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, 4))
    X[:, 3] = np.round(2 * X[:, 3])
    f = np.sin(3.0 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.5 * (X[:, 3] == 1)
    y = f + 0.1 * rng.standard_normal(n)
    if gaps:
        X[rng.random((n, 4)) < 0.02] = np.nan
    return X, y, rng


def torch_array(a):
    torch = pytest.importorskip("torch", reason="torch is an extra")
    return torch.asarray(a)


LIBRARIES = {"strict": array_api_strict.asarray, "torch": torch_array}


def models():
    X, y, rng = make()
    three = np.digitize(y, [-0.5, 0.5])
    weight = rng.integers(0, 3, len(y)).astype(float)
    yield "numbers", BTNRegressor(), X, y, None
    yield "weights", BTNRegressor(), X, y, weight
    yield "anchored", BTNRegressor(solver=Solver(anchored=True)), X, y, None
    yield "train", BTNRegressor(network=TensorTrain(cores="full", order="given")), X, y, None
    yield "robust", BTNRegressor(likelihood="student_t"), X, y, weight
    yield "counts", BTNRegressor(likelihood="negative_binomial"), X, np.round(np.exp(y)), None
    yield "levels", BTNRegressor(basis={3: "categorical", 0: "bspline"}), X, y, None
    yield "two classes", BTNClassifier(), X, (y > 0).astype(int), weight
    yield "three classes", BTNClassifier(), X, three, None
    yield (
        "signs",
        BTNClassifier(likelihood="least_squares", class_weight="balanced"),
        X,
        y > 0,
        None,
    )


cases = pytest.mark.parametrize(
    ("model", "X", "y", "weight"), [pytest.param(*m[1:], id=m[0]) for m in models()]
)


def answers(model, X):
    if hasattr(model, "predict_proba"):
        return [model.predict_proba(X), model.decision_function(X)]
    return [*model.predict(X, return_std=True), model.predict(X), model.predict_interval(X)]


def assert_same(actual, expected, rtol=1e-8):
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(host(a), b, rtol=rtol, atol=rtol)


@cases
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_device_says_what_numpy_says(model, X, y, weight, library, monkeypatch):
    for module in (column_stats, readers):  # some of the rows only, where weights are all 1
        monkeypatch.setattr(module, "MOST_ROWS", 100 if weight is None else 1000)
    to = LIBRARIES[library]
    model.set_params(**SMALL)
    expected = answers(model.fit(X, y, weight), X)
    there = to(X)
    model.fit(there, to(y), None if weight is None else to(weight))
    actual = answers(model, there)
    assert all(type(a) is type(there) for a in actual)
    # rows of several classes change from one bound to another at a hair's breadth
    several = getattr(model, "classes_", np.empty(0)).size > 2
    assert_same(actual, expected, rtol=5e-3 if several else 1e-8)
    assert model.score(there, to(y)) > 0.5


def test_single_precision_stays_and_is_summed_in_double():
    torch = pytest.importorskip("torch", reason="torch is an extra")
    X, y, _ = make()
    expected = BTNRegressor(**SMALL).fit(X, y)
    there = torch.asarray(X, dtype=torch.float32)
    model = BTNRegressor(**SMALL).fit(there, torch.asarray(y, dtype=torch.float32))
    mean, std = model.predict(there, return_std=True)
    assert mean.dtype == std.dtype == torch.float32
    for a, b in zip((mean, std), expected.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (array_api_strict.ones(5), "shape"),
        (array_api_strict.full((5, 2), np.inf), "infinity"),
        (array_api_strict.ones((5, 2), dtype=array_api_strict.complex128), "real numbers"),
    ],
)
def test_arrays_elsewhere_that_cannot_be_fitted(X, message):
    with pytest.raises(ValueError, match=message):
        BTNRegressor(**SMALL).fit(X, np.arange(5.0))


class Batches:
    """Batches that can be gone through again and again."""

    def __init__(self, X, y, weight=None, rows=60):
        self.parts = (X, y) if weight is None else (X, y, weight)
        self.rows = rows

    def __iter__(self):
        for start in range(0, len(self.parts[1]), self.rows):
            yield tuple(part[start : start + self.rows] for part in self.parts)


def frame(n=300):
    X, y, rng = make(n)
    table = pd.DataFrame(X, columns=list("abcd"))
    table["town"] = np.array(["Ulm", "Bonn", "Kiel", None])[rng.integers(0, 4, n)]
    table["street"] = [f"s{k}" for k in rng.integers(0, 30, n)]
    table["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    table["sure"] = rng.random(n) < 0.5
    return table, y + (table["town"] == "Ulm")


@cases
def test_batches_are_the_table(model, X, y, weight, monkeypatch):
    for module in (column_stats, readers):
        monkeypatch.setattr(module, "MOST_ROWS", 100 if weight is None else 1000)
    model.set_params(**SMALL)
    expected = answers(model.fit(X, y, weight), X)
    assert_same(answers(model.fit(Batches(X, y, weight)), X), expected)


@pytest.mark.parametrize("most_rows", [100, 1000], ids=["spilled", "whole"])
def test_tables_on_disk_are_the_table(most_rows, monkeypatch, tmp_path):
    for module in (column_stats, readers):
        monkeypatch.setattr(module, "MOST_ROWS", most_rows)
    monkeypatch.setattr(readers, "BATCH_ROWS", 70)
    table, y = frame()
    model = BTNRegressor(**SMALL)
    expected = answers(model.fit(table, y), table)
    pq.write_table(pa.table(table.assign(target=y, w=1.0)), tmp_path / "rows.parquet")
    for X in (ds.dataset(tmp_path / "rows.parquet"), tmp_path / "rows.parquet"):
        model.fit(X, "target", "w")
        assert model.feature_names_in_.tolist() == list(table.columns)
        assert_same(answers(model, X), expected)
        assert_same(answers(model, table), expected)
    assert_same(answers(model.fit(pa.table(table), y), pa.table(table)), expected)
    numbers = table[list("abcd")].to_numpy()
    expected = answers(model.fit(numbers, y), numbers)
    mapped = np.memmap(tmp_path / "x", dtype=float, mode="w+", shape=numbers.shape)
    mapped[:] = numbers
    assert_same(answers(model.fit(mapped, y.to_numpy()), mapped), expected)


def test_empty_batches_and_files_are_passed_over(tmp_path):
    X, y, _ = make(200)
    model = BTNRegressor(**SMALL)
    expected = model.fit(X, y).predict(X)
    nothing = (X[:0], y[:0])
    actual = model.fit([nothing, (X[:90], y[:90]), nothing, (X[90:], y[90:])]).predict(X)
    np.testing.assert_allclose(actual, expected, rtol=1e-8)
    table = pa.table({**{name: X[:, j] for j, name in enumerate("abcd")}, "y": y})
    for k, part in enumerate((table[:90], table[:0], table[90:])):
        pq.write_table(part, tmp_path / f"{k}.parquet")
    actual = model.fit(tmp_path, "y").predict(tmp_path)
    np.testing.assert_allclose(actual, expected, rtol=1e-8)
    with pytest.raises(TypeError, match="must be a table in memory here"):
        model.predict_dist(tmp_path)


@pytest.mark.parametrize("kind", ["numbers", "two", "three"])
def test_no_rows_have_no_answers(kind):
    table, y = frame(100)
    model = BTNRegressor(**SMALL) if kind == "numbers" else BTNClassifier(**SMALL)
    y = y if kind == "numbers" else np.digitize(y, [0.0] if kind == "two" else [-0.5, 0.5])
    array = table[list("abcd")].to_numpy()
    there = array_api_strict.asarray(array)
    for X, empty in ((array, array[:0]), (there, there[:0, :]), (table, table[:0])):
        some, none = answers(model.fit(X, y), X), answers(model, empty)
        for a, b in zip(none, some, strict=True):
            assert a.shape == (0, *b.shape[1:])
            assert (type(a), a.dtype) == (type(b), b.dtype)
    for learn in (model.fit, type(model)().partial_fit):
        with pytest.raises(ValueError, match="0 sample"):
            learn(table[:0], y[:0])


def test_a_column_that_is_missing_in_a_batch_takes_its_type_from_the_others():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 300)
    other = rng.uniform(-1.0, 1.0, 300)
    gaps = pd.DataFrame({"a": pd.Categorical([None] * 100), "b": other[:100]})
    numbers = pd.DataFrame({"a": x[100:], "b": other[100:]})
    y = np.where(np.arange(300) < 100, 0.0, np.sin(3.0 * x)) + other
    for order in ((0, 1), (1, 0)):
        batches = [(gaps, y[:100]), (numbers, y[100:])]
        model = BTNRegressor(**SMALL).fit([batches[k] for k in order])
        assert model.score(numbers, y[100:]) > 0.95


def test_many_categories_and_gradients_on_a_device():
    torch = pytest.importorskip("torch", reason="torch is an extra")
    rng = np.random.default_rng(0)
    level = rng.integers(0, 30, 600).astype(float)
    X = np.column_stack([level, rng.uniform(-1.0, 1.0, 600)])
    y = rng.standard_normal(30)[level.astype(int)] + X[:, 1] + 0.1 * rng.standard_normal(600)
    there = torch.tensor(X, requires_grad=True)
    model = BTNRegressor(**SMALL, basis={0: "categorical"}).fit(there, torch.asarray(y))
    actual = model.predict(there)
    assert not actual.requires_grad
    assert model.score(there, torch.asarray(y)) > 0.7
    X[:, 0] = np.nan
    model.fit(torch.asarray(X), torch.asarray(y))
    assert torch.all(torch.isfinite(model.predict(torch.asarray(X))))


def test_batches_that_cannot_be_fitted():
    X, y, _ = make(300)
    model = BTNRegressor(**SMALL)
    with pytest.raises(TypeError, match="can be read several times"):
        model.fit(iter(Batches(X, y)))
    with pytest.raises(ValueError, match="part of the batches"):
        model.fit(Batches(X, y), sample_weight=y)
    with pytest.raises(ValueError, match="got none"):
        model.fit(Batches(X[:0], y[:0]))
    with pytest.raises(ValueError, match="same columns"):
        model.fit([(X, y), (X[:, :2], y)])
    text = np.array([["a"], ["b"]] * 150, dtype=object)
    with pytest.raises(ValueError, match="one type in every batch, got numbers and text"):
        model.fit([(X[:, :1], y), (text, y)])
    assert not hasattr(model, "posterior_")


def test_batches_that_change_between_passes(monkeypatch):
    for module in (column_stats, readers):
        monkeypatch.setattr(module, "MOST_ROWS", 100)
    X, y, _ = make(300)

    class Growing(Batches):
        def __iter__(self):
            self.rows += 10
            yield from list(super().__iter__())[:4]

    with pytest.raises(ValueError, match="same rows in every pass"):
        BTNRegressor(**SMALL).fit(Growing(X, y))


def test_batches_with_other_rows_in_a_later_pass(monkeypatch):
    X, y, _ = make(300)

    class Fickle:
        passes = 0

        def __init__(self, *later):
            self.later = later

        def __iter__(self):
            self.passes += 1
            yield from [(X, y)] if self.passes == 1 else [self.later]

    # all is kept from the first pass, which nothing may use up
    model = BTNRegressor(**SMALL).fit(Fickle(X[:20], y[:20]))
    assert {entry["rows"] for entry in model.history_} == {300}
    expected = model.predict(X)
    for module in (column_stats, readers):
        monkeypatch.setattr(module, "MOST_ROWS", 100)
    other = X.copy()
    other[7, 2] += 1e-3
    names = pd.DataFrame(X, columns=list("abcd"))
    later = ((X[:20], y[:20]), (X, y[::-1] + 0.1), (other, y), (X, y, y**2), (names, y))
    for rows in later:
        with pytest.raises(ValueError, match="same rows in every pass"):
            BTNRegressor(**SMALL).fit(Fickle(*rows))
    # another order is no other table
    order = np.random.default_rng(1).permutation(300)
    actual = BTNRegressor(**SMALL).fit(Fickle(X[order], y[order])).predict(X)
    assert np.corrcoef(actual, expected)[0, 1] > 0.98


def numbers_and_text(n=300):
    """Return a frame of which every column matters."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.uniform(-1.0, 1.0, n), "k": rng.integers(0, 3, n)})
    table["t"] = np.array(["u", "v"])[rng.integers(0, 2, n)]
    y = table["a"] + table["k"] + (table["t"] == "u") + 0.1 * rng.standard_normal(n)
    return table.assign(y=y, w=1.0)


def test_what_folders_names_tell_is_a_column(tmp_path):
    path = tmp_path / "year=3" / "rows"  # of a folder above the table nothing is told
    numbers_and_text().to_parquet(path, partition_cols=["k"])
    table = pd.read_parquet(path)
    assert table["k"].dtype == "category"
    expected = BTNRegressor(**SMALL).fit(table.drop(columns=["y", "w"]), table["y"])
    inputs = table.drop(columns=["y", "w"])
    for X in (path, str(path), path / "*" / "*.parquet", path / "k=*"):
        model = BTNRegressor(**SMALL).fit(X, "y", "w")
        assert model.feature_names_in_.tolist() == ["a", "t", "k"]
        np.testing.assert_allclose(model.predict(inputs), expected.predict(inputs), rtol=1e-8)
        np.testing.assert_allclose(model.predict(X), expected.predict(inputs), rtol=1e-8)
        assert model.score(X, "y") > 0.95
    parts = sorted(path.iterdir())
    model.fit(parts, "y", "w")
    assert set(model.feature_names_in_) == {"a", "t", "k", "year"}  # as pandas has it
    assert model.score(parts, "y", "w") > 0.95
    assert BTNClassifier(**SMALL).fit(path, "k").classes_.tolist() == [0, 1, 2]
    file = next(parts[0].iterdir())
    assert model.fit(file, "y", "w").feature_names_in_.tolist() == ["a", "t"]


def test_names_of_rows_are_no_input(tmp_path):
    table = numbers_and_text()[::-1]  # whose index is no range, and goes into the file
    table.to_parquet(tmp_path / "rows.parquet")
    model = BTNRegressor(**SMALL).fit(tmp_path / "rows.parquet", "y", "w")
    assert model.feature_names_in_.tolist() == ["a", "k", "t"]


FILES = {
    "a column less": lambda part: part.drop(columns="t"),
    "integers": lambda part: part,
    "gaps": lambda part: part.assign(t=None, a=None),
    "gaps of numbers": lambda part: part.assign(t=np.nan),
    "categories": lambda part: part.assign(t=part["t"].astype("category")),
    "truth": lambda part: part.assign(k=part["k"] > 0),
}


@pytest.mark.parametrize("change", FILES.values(), ids=FILES)
@pytest.mark.parametrize("first", [True, False])
def test_files_of_one_table_need_not_be_alike(change, first, tmp_path):
    table = numbers_and_text()
    parts = [change(table[:100]), table[100:].assign(k=table["k"][100:].astype(float))]
    for name, part in zip("01" if first else "10", parts, strict=True):
        part.to_parquet(tmp_path / f"{name}.parquet")
    rows = pd.concat(parts if first else parts[::-1])
    rows["t"] = rows["t"].astype(object)
    rows["k"] = rows["k"].astype(float)
    X, y = rows[["a", "k", "t"]], rows["y"]
    expected = BTNRegressor(**SMALL).fit(X, y).predict(X)
    model = BTNRegressor(**SMALL).fit(tmp_path, "y", "w")
    assert set(model.feature_names_in_) == {"a", "k", "t"}
    np.testing.assert_allclose(model.predict(tmp_path), expected, rtol=1e-6)
    files = [tmp_path / "0.parquet", str(tmp_path / "1.parquet")]
    np.testing.assert_allclose(model.fit(files, "y", "w").predict(files), expected, rtol=1e-6)


def test_files_that_cannot_be_fitted(tmp_path):
    table = numbers_and_text()
    model = BTNRegressor(**SMALL)
    for where in (tmp_path / "nowhere", tmp_path / "*.parquet", tmp_path, [tmp_path / "nowhere"]):
        with pytest.raises(FileNotFoundError, match="path of Parquet files, got .*there are non"):
            model.fit(where, "y")
    table[:100].to_parquet(tmp_path / "1.parquet")
    table[100:].assign(t=1).to_parquet(tmp_path / "2.parquet")
    with pytest.raises(ValueError, match=r"'t' must .* text in '.*1.parq.* numbers in '.*2.parq"):
        model.fit(tmp_path, "y")
    (tmp_path / "0.csv").write_text("a,y")
    for where in (tmp_path, tmp_path / "0.csv"):
        with pytest.raises(ValueError, match=r"must be a Parquet file, got '.*0.csv'"):
            model.fit(where, "y")
    model.fit(tmp_path / "1.*", "y")
    readers = [pq.ParquetFile(tmp_path / "1.parquet"), pq.ParquetDataset(tmp_path / "1.parquet")]
    scanner = ds.dataset(tmp_path / "1.parquet").scanner()
    for reader in (*readers, scanner, scanner.to_reader()):
        for call in (model.fit, model.predict):
            with pytest.raises(TypeError, match=f"got a pyarrow {type(reader).__name__}; pass"):
                call(reader)


def test_dates_to_the_nanosecond(tmp_path):
    rng = np.random.default_rng(0)
    when = rng.integers(-(10**15), 10**15, 300)
    table = pd.DataFrame({"at": when.astype("M8[ns]"), "for": when[::-1].astype("m8[ns]")})
    table["y"] = when / 1e15 + 0.1 * rng.standard_normal(300)
    table.to_parquet(tmp_path / "f.parquet")
    X = table.drop(columns="y")
    expected = BTNRegressor(**SMALL).fit(X, table["y"]).predict(X)
    model = BTNRegressor(**SMALL).fit(tmp_path / "f.parquet", "y")
    np.testing.assert_array_equal(model.predict(tmp_path / "f.parquet"), expected)
    np.testing.assert_array_equal(model.predict(pa.table(X)), expected)


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_targets_and_weights_may_be_columns_of_a_frame(library):
    table = numbers_and_text().assign(w=np.arange(300) % 3)
    inputs, y, w = table[["a", "k", "t"]], table["y"], table["w"].to_numpy(float)
    model = BTNRegressor(**SMALL).fit(inputs, y, w)
    expected, score = model.predict(inputs), model.score(inputs, y, w)
    polars = pytest.importorskip("polars", reason="polars is an extra")
    to = {"pandas": pd.DataFrame, "polars": polars.from_pandas, "arrow": pa.table}[library]
    X = to(table)
    np.testing.assert_allclose(model.fit(X, "y", "w").predict(to(inputs)), expected, rtol=1e-8)
    assert model.score(X, "y", "w") == pytest.approx(score)
    model = BTNRegressor(**SMALL).partial_fit(X, "y", "w")
    np.testing.assert_allclose(model.predict(to(inputs)), expected, rtol=1e-8)
    labels = BTNClassifier(**SMALL).partial_fit(X, "k", [0, 1, 2], "w")
    assert labels.score(X, "k", "w") > 0.8
    with pytest.raises(ValueError, match=r"contain every class, got none of \[3\]"):
        BTNClassifier(**SMALL).partial_fit(X, "k", [0, 1, 2, 3])
    with pytest.raises(ValueError, match="y must name a column of X, got 'z'; the columns are"):
        model.fit(X, "z")
    with pytest.raises(ValueError, match="sample_weight must name a column of X, got 'z'"):
        model.fit(X, "y", "z")


def test_lists_are_batches_as_tuples_are():
    X, y, _ = make(200)
    expected = BTNRegressor(**SMALL).fit(X, y).predict(X)
    for batches in ([[X[:90], y[:90]], [X[90:], y[90:]]], [[X.tolist(), y.tolist()]]):
        np.testing.assert_allclose(
            BTNRegressor(**SMALL).fit(batches).predict(X), expected, rtol=1e-8
        )


def test_what_is_no_table_is_told_what_to_be(tmp_path):
    X, y, _ = make(200)
    model = BTNRegressor(**SMALL).fit(X, y)
    record = np.rec.fromarrays(X.T, names="a,b,c,d")
    mapped = np.memmap(tmp_path / "m", dtype=record.dtype, mode="w+", shape=record.shape)
    cases = [
        (((X, y),), "a tuple of arrays; pass one of them, and the target"),
        (([(X, y)], y), r"batches \(list\); pass batches to fit"),
        ((Batches(X, y), y), r"batches \(Batches\); pass batches to fit"),
        (([(X, y, y, y)],), "every batch must be a tuple.*got 4 items"),
        (({0: X}.values(),), "every batch must be a tuple.*got ndarray"),
        (({"a": 1},), "an array, a DataFrame or nested lists .*got dict; convert"),
        ((record, y), r"got a structured array; pass pandas.DataFrame\(X\)"),
        ((mapped, y), r"got a structured array; pass pandas.DataFrame\(X\)"),
    ]
    for arguments, message in cases:
        with pytest.raises(TypeError, match=message):
            model.fit(*arguments)
    for batches in ([(X, y)], Batches(X, y), iter(Batches(X, y))):
        with pytest.raises(TypeError, match="got batches .*predict them one by one"):
            model.predict(batches)
    with pytest.raises(ValueError, match="y must name a column of X, got 'y'; X has no names"):
        model.fit(X, "y")


def test_tensors_of_every_sort():
    torch = pytest.importorskip("torch", reason="torch is an extra")
    X, y, _ = make(200, gaps=False)
    X, y = torch.asarray(X), torch.asarray(y)
    short = BTNRegressor(**SMALL).fit(X.bfloat16(), y.bfloat16())
    assert short.score(X.bfloat16(), y.bfloat16()) > 0.9
    with pytest.raises(TypeError, match="must be dense, got a sparse tensor"):
        short.fit(X.to_sparse(), y)
    with pytest.raises(ValueError, match="at least one row and one column, got 0 sample"):
        short.fit(X[:0], y[:0])
    assert short.predict(X[:0]).shape == (0,)


def test_spilled_numbers_come_back():
    parts = [np.arange(5.0), np.arange(7.0) + 0.5, np.empty(0)]
    whole = np.concatenate(parts)
    files = spilled_columns(3, len(whole))
    for part in parts:
        for k, file in enumerate(files):
            file.append(k * part)
    for k, file in enumerate(files):
        assert len(file) == 12
        assert file.shape == (12,)
        for rows in (slice(None), slice(3, 9), slice(11, 40), slice(4, 4)):
            np.testing.assert_array_equal(file[rows], k * whole[rows])


def test_a_table_may_have_more_columns_than_a_process_may_open_files(monkeypatch):
    resource = pytest.importorskip("resource", reason="Windows has no such limits")
    for module in (column_stats, readers):
        monkeypatch.setattr(module, "MOST_ROWS", 20)
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 300))
    batches = readers.Batches(lambda: [(X[:30], X[:30, 0]), (X[30:], X[30:, 0])], np.asarray)
    seen = batches.table_stats(lambda names: ())
    column, target = Same(), Same()
    sample = readers.LocalRows([], np.empty(0), None)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        rows = batches.code([column] * 300, target, seen, sample)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for code, expected in zip(rows.codes, X.T, strict=True):
        np.testing.assert_array_equal(code[10:50], expected[10:50])


class Same:
    """A column, or a target, whose coordinates are its values."""

    is_logarithm = False

    def encode(self, values, second=None):
        """Return values; of a target (values, weight), of a column up to a farthest value."""
        return (values, second) if isinstance(second, np.ndarray) else values


def test_rows_kept_do_not_depend_on_batches(monkeypatch):
    monkeypatch.setattr(column_stats, "MOST_ROWS", 50)
    X, y, _ = make(400)
    columns, weight = list(X.T), np.ones(400)
    whole = column_stats.TableStats.of(column_stats.Batch(columns, y, weight), list("abcd"), 0)
    for size in (7, 50, 130):
        result = None
        for start in range(0, 400, size):
            batch = column_stats.Batch(columns, y, weight).take(slice(start, start + size))
            part = column_stats.TableStats.of(batch, list("abcd"), start, (), result)
            result = part if result is None else result.merge(part)
        assert result.n == 400
        assert result.total == pytest.approx(whole.total)
        np.testing.assert_array_equal(result.places, whole.places)
        for a, b in zip(result.columns, whole.columns, strict=True):
            np.testing.assert_array_equal(a.values, b.values)
        assert len(result.sample.y) == 50
        ends = [(np.nanmin(c.values), np.nanmax(c.values)) for c in result.columns]
        assert ends == [(np.nanmin(c), np.nanmax(c)) for c in X.T]


def noted(values, weight, sizes):
    """Return the note of a column that comes in batches of these sizes."""
    ends = np.cumsum([0, *sizes])
    parts = [slice(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    notes = [
        column_stats.ColumnStats.of(values[rows], weight[rows], categorical=True) for rows in parts
    ]
    actual = notes[0]
    for note in notes[1:]:
        actual = actual.merge(note, "x")
    return actual


def test_categories_are_counted_whatever_they_are():
    rng = np.random.default_rng(0)
    weight = rng.integers(1, 4, 200).astype(float)
    for levels in (["b", "a", None, "c"], [2.0, np.nan, 0.0, 1.0], [b"a", "a", 1, (1, 2)]):
        kind = float if levels[0] == 2.0 else object
        table = np.empty(4, dtype=kind)
        table[:] = levels
        values = table[rng.integers(0, 4, 200)]
        note = noted(values, weight, [50, 1, 149])
        seen = [v for v in levels if v is not None and v == v]
        assert note.missing == (len(seen) < 4)
        assert set(note.totals) == set(seen)
        for level in seen:
            which = np.array([v == level for v in values.tolist()])
            assert note.totals[level] == weight[which].sum()


def test_names_of_rows_are_not_all_remembered(monkeypatch):
    monkeypatch.setattr(column_stats, "MOST_CATEGORIES", 50)
    rng = np.random.default_rng(0)
    often = [f"often{k}" for k in range(20) for _ in range(30)]
    once = [f"once{k:04d}" for k in range(1400)]
    mixed = np.array(often + once, dtype=object)[rng.permutation(2000)]
    weight = np.ones(2000)
    expected = {**dict.fromkeys(often, 30.0), **dict.fromkeys(once[:30], 1.0)}
    for sizes in ([2000], [100] * 20, [1, 999, 700, 300]):
        for values in (mixed, mixed[::-1]):
            note = noted(values, weight, sizes)
            assert len(note.totals) <= 100
            batch = column_stats.Batch([values[:1]], weight[:1], weight[:1])
            seen = column_stats.TableStats(
                ["x"], 2000, 2000.0, batch, np.empty(1), np.empty(1), [note]
            )
            summary = seen.columns[0]
            assert dict(zip(summary.values, summary.weight, strict=True)) == expected


def test_a_column_of_names_does_no_harm(monkeypatch):
    for module in (column_stats, readers):
        monkeypatch.setattr(module, "MOST_ROWS", 100)
    X, y, _ = make(300)
    table = pd.DataFrame(X, columns=list("abcd")).assign(name=[f"n{k}" for k in range(300)])
    model = BTNRegressor(**SMALL)
    expected = answers(model.fit(Batches(table, y)), table)
    monkeypatch.setattr(column_stats, "MOST_CATEGORIES", 40)
    assert_same(answers(model.fit(Batches(table, y)), table), expected)
    assert len(model.columns_[-1].categories) == 40
