"""Rows on devices, on disk and in batches give what the same rows in memory give."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from btnkm import BTNClassifier, BTNRegressor, sources, survey
from btnkm.core.arrays import host
from btnkm.execution.spill import Spilled

SMALL = {"n_basis": 6, "max_rank": 3, "n_init": 1, "max_iter": 8, "random_state": 0, "n_jobs": 1}


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
    yield "anchored", BTNRegressor(anchored=True), X, y, None
    yield "train", BTNRegressor(network="tt", cores="full", mode_order="given"), X, y, None
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


def assert_same(found, expected, rtol=1e-8):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(host(a), b, rtol=rtol, atol=rtol)


@cases
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_device_says_what_numpy_says(model, X, y, weight, library, monkeypatch):
    for module in (survey, sources):  # some of the rows only, where weights are all 1
        monkeypatch.setattr(module, "MOST_ROWS", 100 if weight is None else 1000)
    to = LIBRARIES[library]
    model.set_params(**SMALL)
    expected = answers(model.fit(X, y, weight), X)
    there = to(X)
    model.fit(there, to(y), None if weight is None else to(weight))
    found = answers(model, there)
    assert all(type(a) is type(there) for a in found)
    # rows of several classes change from one bound to another at a hair's breadth
    several = getattr(model, "classes_", np.empty(0)).size > 2
    assert_same(found, expected, rtol=5e-3 if several else 1e-8)
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
    for module in (survey, sources):
        monkeypatch.setattr(module, "MOST_ROWS", 100 if weight is None else 1000)
    model.set_params(**SMALL)
    expected = answers(model.fit(X, y, weight), X)
    assert_same(answers(model.fit(Batches(X, y, weight)), X), expected)


@pytest.mark.parametrize("most_rows", [100, 1000], ids=["spilled", "whole"])
def test_tables_on_disk_are_the_table(most_rows, monkeypatch, tmp_path):
    for module in (survey, sources):
        monkeypatch.setattr(module, "MOST_ROWS", most_rows)
    monkeypatch.setattr(sources, "BATCH_ROWS", 70)
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
    found = model.fit([nothing, (X[:90], y[:90]), nothing, (X[90:], y[90:])]).predict(X)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    table = pa.table({**{name: X[:, j] for j, name in enumerate("abcd")}, "y": y})
    for k, part in enumerate((table[:90], table[:0], table[90:])):
        pq.write_table(part, tmp_path / f"{k}.parquet")
    found = model.fit(tmp_path, "y").predict(tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    with pytest.raises(TypeError, match="must be a table in memory here"):
        model.predict_dist(tmp_path)


def test_a_column_that_is_all_gaps_in_a_batch_takes_its_type_from_the_others():
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


def test_many_levels_and_gradients_on_a_device():
    torch = pytest.importorskip("torch", reason="torch is an extra")
    rng = np.random.default_rng(0)
    level = rng.integers(0, 30, 600).astype(float)
    X = np.column_stack([level, rng.uniform(-1.0, 1.0, 600)])
    y = rng.standard_normal(30)[level.astype(int)] + X[:, 1] + 0.1 * rng.standard_normal(600)
    there = torch.tensor(X, requires_grad=True)
    model = BTNRegressor(**SMALL, basis={0: "categorical"}).fit(there, torch.asarray(y))
    found = model.predict(there)
    assert not found.requires_grad
    assert model.score(there, torch.asarray(y)) > 0.7
    X[:, 0] = np.nan
    model.fit(torch.asarray(X), torch.asarray(y))
    assert torch.all(torch.isfinite(model.predict(torch.asarray(X))))


def test_batches_that_cannot_be_fitted():
    X, y, _ = make(300)
    model = BTNRegressor(**SMALL)
    with pytest.raises(TypeError, match="read once"):
        model.fit(iter(Batches(X, y)))
    with pytest.raises(ValueError, match="in the batches"):
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
    for module in (survey, sources):
        monkeypatch.setattr(module, "MOST_ROWS", 100)
    X, y, _ = make(300)

    class Growing(Batches):
        def __iter__(self):
            self.rows += 10
            yield from list(super().__iter__())[:4]

    with pytest.raises(ValueError, match="same rows every time"):
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
    for module in (survey, sources):
        monkeypatch.setattr(module, "MOST_ROWS", 100)
    other = X.copy()
    other[7, 2] += 1e-3
    names = pd.DataFrame(X, columns=list("abcd"))
    later = ((X[:20], y[:20]), (X, y[::-1] + 0.1), (other, y), (X, y, y**2), (names, y))
    for rows in later:
        with pytest.raises(ValueError, match="same rows every time"):
            BTNRegressor(**SMALL).fit(Fickle(*rows))
    # another order is no other table
    order = np.random.default_rng(1).permutation(300)
    found = BTNRegressor(**SMALL).fit(Fickle(X[order], y[order])).predict(X)
    assert np.corrcoef(found, expected)[0, 1] > 0.98


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


def test_spilled_numbers_come_back():
    file = Spilled()
    parts = [np.arange(5.0), np.arange(7.0) + 0.5, np.empty(0)]
    for part in parts:
        file.append(part)
    whole = np.concatenate(parts)
    assert len(file) == 12
    assert file.shape == (12,)
    for rows in (slice(None), slice(3, 9), slice(11, 40), slice(4, 4)):
        np.testing.assert_array_equal(file[rows], whole[rows])


def test_rows_kept_do_not_depend_on_batches(monkeypatch):
    monkeypatch.setattr(survey, "MOST_ROWS", 50)
    X, y, _ = make(400)
    columns, weight = list(X.T), np.ones(400)
    whole = survey.Survey.of(survey.Batch(columns, y, weight), list("abcd"), 0)
    for size in (7, 50, 130):
        found = None
        for start in range(0, 400, size):
            batch = survey.Batch(columns, y, weight).take(slice(start, start + size))
            one = survey.Survey.of(batch, list("abcd"), start, (), found)
            found = one if found is None else found.merge(one)
        assert found.n == 400
        assert found.total == pytest.approx(whole.total)
        np.testing.assert_array_equal(found.places, whole.places)
        for a, b in zip(found.columns, whole.columns, strict=True):
            np.testing.assert_array_equal(a.values, b.values)
        assert len(found.sample.y) == 50
        ends = [(np.nanmin(c.values), np.nanmax(c.values)) for c in found.columns]
        assert ends == [(np.nanmin(c), np.nanmax(c)) for c in X.T]
