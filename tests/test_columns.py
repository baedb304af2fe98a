"""Tables of every kind: what becomes numeric, what categories, and missing values."""

from __future__ import annotations

import datetime as dt
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

from btnkm import BTNClassifier, BTNRegressor, Solver
from btnkm.bases import Basis, BSpline, Categorical, Chebyshev
from btnkm.bases.categorical import ManyCategories
from btnkm.data import columns as columns_room
from btnkm.data.column_stats import ColumnValues
from btnkm.data.columns import MAX_CATEGORIES, MAX_KNOTS, fit_columns, grown
from btnkm.data.frames import split_columns

N = 240
FEW = {"n_init": 1, "max_iter": 10, "max_rank": 4, "n_basis": 6, "random_state": 0}
FEW |= {"structure": "tensor"}
WORDS = np.array(["ash", "oak", "yew"])


def model(**changes):
    return BTNRegressor(**{**FEW, **changes})


def draw(seed=0, n=N):
    """Return a number, an integer, a truth value, a word and a date of each row, and a target."""
    rng = np.random.default_rng(seed)
    number, count = rng.uniform(-2, 2, n), rng.integers(0, 7, n)
    truth, word = rng.random(n) < 0.4, rng.integers(0, 3, n)
    days = rng.permutation(n)
    y = number + 0.5 * count * truth + 2.0 * (word == 1) + 0.02 * days
    return number, count, truth, WORDS[word], days, y + 0.1 * rng.standard_normal(n)


def gaps(seed, n=N):
    return np.random.default_rng(100 + seed).random(n) < 0.04


def with_gaps(values, where, missing):
    return [missing if gap else value for value, gap in zip(list(values), where, strict=True)]


DAY0 = dt.datetime(2020, 1, 1)
DAYS = [DAY0 + dt.timedelta(days=d) for d in range(N)]


def objects(gap=None):
    """Return the reference: an object array of plain Python values."""
    number, count, truth, word, days, y = draw()
    columns = [number.tolist(), count.tolist(), truth.tolist(), word.tolist()]
    columns.append([DAYS[d] for d in days])
    out = np.empty((N, 5), dtype=object)
    for j, column in enumerate(columns):
        out[:, j] = with_gaps(column, gaps(j), gap)
    return out, y


def pandas_table(kind):
    table, _ = objects()
    frame = pd.DataFrame(table, columns=list("abcde"))
    if kind == "object":
        return frame.astype(object)
    if kind == "nullable":
        types = {"a": "Float64", "b": "Int64", "c": "boolean", "d": "string"}
        return frame.astype({**types, "e": "datetime64[ns]"})
    if kind == "arrow":
        arrow = {"a": "double", "b": "int64", "c": "bool", "d": "string", "e": "timestamp[ms]"}
        return frame.astype({name: f"{kind}[pyarrow]" for name, kind in arrow.items()})
    if kind == "category":
        types = {"a": float, "b": float, "c": "boolean", "d": "category", "e": "datetime64[s]"}
        return frame.astype(types)
    assert kind == "zoned"
    frame = frame.astype({"a": float, "b": float, "c": object, "d": "str"})
    return frame.assign(e=pd.to_datetime(frame["e"]).dt.tz_localize("UTC"))


def polars_table(kind):
    table, _ = objects()
    frame = pl.DataFrame({name: list(table[:, j]) for j, name in enumerate("abcde")})
    if kind == "strings":
        return frame
    types = {"d": pl.Categorical if kind == "categorical" else pl.Enum(list(WORDS))}
    date = pl.Date if kind == "categorical" else pl.Datetime("ns", "UTC")
    return frame.cast({**types, "e": date, "b": pl.Int8, "a": pl.Float64})


TABLES = {
    **{f"pandas {k}": (pandas_table, k) for k in ["object", "nullable", "arrow", "category"]},
    "pandas zoned": (pandas_table, "zoned"),
    **{f"polars {k}": (polars_table, k) for k in ["strings", "categorical", "enum"]},
}


@pytest.fixture(scope="module")
def reference():
    table, y = objects()
    fitted = model().fit(table, y)
    return fitted, table, y, fitted.predict(table)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_predicts_as_plain_objects_do(reference, name):
    _, _, y, expected = reference
    make, kind = TABLES[name]
    frame = make(kind)
    fitted = model().fit(frame, y)
    np.testing.assert_allclose(fitted.predict(frame), expected, rtol=1e-12)
    assert list(fitted.feature_names_in_) == list("abcde")
    assert fitted.score(frame, y) > 0.8


def test_a_fit_on_one_kind_of_table_predicts_on_another(reference):
    _, _, y, expected = reference
    fitted = model().fit(pandas_table("nullable"), y)
    for make, kind in TABLES.values():
        np.testing.assert_allclose(fitted.predict(make(kind)), expected, rtol=1e-12)


@pytest.mark.parametrize("gap", [np.nan, pd.NA, pd.NaT, float("nan"), np.datetime64("NaT")])
def test_every_sign_of_a_missing_value_is_one(reference, gap):
    fitted, _, _, expected = reference
    np.testing.assert_array_equal(fitted.predict(objects(gap)[0]), expected)


def test_lists_of_rows(reference):
    fitted, table, y, expected = reference
    rows = table.tolist()
    np.testing.assert_array_equal(fitted.predict(rows), expected)
    np.testing.assert_array_equal(model().fit(rows, y).predict(rows), expected)


def test_plain_text_with_numbers_in_a_list():
    X = [[1, "a"], [2, "b"], [3, "a"], [4, "b"]]
    fitted = model().fit(X, [1.0, 5.0, 1.5, 5.5])
    assert [c.categories for c in fitted.columns_] == [None, {"a": 0, "b": 1}]


@pytest.mark.parametrize("dtype", [float, np.float32, int, np.int8, bool, object])
def test_arrays_of_numbers_are_numeric(dtype):
    rng = np.random.default_rng(3)
    X = rng.integers(0, 2, (40, 3))
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.standard_normal(40)
    expected = model().fit(X.astype(float), y).predict(X.astype(float))
    given = X.astype(dtype)
    np.testing.assert_array_equal(model().fit(given, y).predict(given), expected)


def test_numbers_in_frames_equal_numbers_in_arrays():
    rng = np.random.default_rng(4)
    X = rng.uniform(size=(50, 2))
    X[rng.random(X.shape) < 0.1] = np.nan
    y = np.nan_to_num(X).sum(axis=1)
    expected = model().fit(X, y).predict(X)
    frame = pd.DataFrame(X, columns=["a", "b"])
    for given in (frame, frame.astype("Float64"), pl.from_pandas(frame), pl.DataFrame(X)):
        np.testing.assert_array_equal(model().fit(given, y).predict(given), expected)


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns"])
def test_dates_and_durations_mean_the_same_in_any_unit(unit):
    days = np.random.default_rng(5).permutation(60)
    y = np.sin(days / 10)
    start = np.datetime64("2021-01-01")
    dates = (start + days.astype("m8[D]"))[:, None]
    durations = days.astype("m8[D]")[:, None]
    expected = model().fit(days[:, None], y).predict(days[:, None])
    for table, code in ((dates, "M8"), (durations, "m8")):
        fitted = model().fit(table, y)
        given = table.astype(f"{code}[{unit}]")
        np.testing.assert_allclose(fitted.predict(given), expected, rtol=1e-9)
        frame = pd.DataFrame(given)
        np.testing.assert_allclose(fitted.predict(frame), expected, rtol=1e-9)
        as_objects = table.astype(f"{code}[us]").astype(object)
        np.testing.assert_allclose(fitted.predict(as_objects), expected, rtol=1e-9)


def test_polars_durations_and_times():
    days = np.random.default_rng(5).permutation(60)
    y = np.sin(days / 10)
    expected = model().fit(days[:, None], y).predict(days[:, None])
    durations = pl.DataFrame({"a": [dt.timedelta(days=int(d)) for d in days]})
    times = pl.DataFrame({"a": [dt.time(minute=int(d)) for d in days]})
    for frame in (durations, times):
        np.testing.assert_allclose(model().fit(frame, y).predict(frame), expected, rtol=1e-9)


def test_zoned_dates_as_objects():
    zone = dt.timezone(dt.timedelta(hours=5))
    days = np.random.default_rng(5).permutation(60)
    plain = np.array([[DAYS[d]] for d in days], dtype=object)
    zoned = np.array([[DAYS[d].replace(tzinfo=dt.UTC).astimezone(zone)] for d in days], object)
    fitted = model().fit(plain, days / 10)
    np.testing.assert_array_equal(fitted.predict(zoned), fitted.predict(plain))


@pytest.mark.parametrize("codes", [[3, 1, 2], [True, False], [0.5, 1.0, 7.0]], ids=str)
def test_categories_may_be_numbers(codes):
    rng = np.random.default_rng(6)
    values = rng.choice(np.array(codes), 60)
    y = np.where(values == codes[0], 3.0, -1.0) + 0.1 * rng.standard_normal(60)
    frame = pd.DataFrame({"a": pd.Series(values).astype("category")})
    fitted = model().fit(frame, y)
    assert fitted.columns_[0].categories is not None
    assert len(fitted.columns_[0].categories) == len(codes)
    expected = fitted.predict(frame)
    assert fitted.score(frame, y) > 0.95
    # the type was lost on the way: equal numbers are still the same categories
    np.testing.assert_array_equal(fitted.predict(pd.DataFrame({"a": values})), expected)
    # and a column of numbers with a Categorical basis is the same model
    same = model(basis=Categorical()).fit(pd.DataFrame({"a": values}), y)
    np.testing.assert_array_equal(same.predict(pd.DataFrame({"a": values})), expected)


def test_categories_with_missing_values_and_without_the_unused():
    frame = pd.DataFrame({"a": pd.Categorical(["x", None, "y", "x"] * 10, categories=list("wxyz"))})
    y = np.tile([1.0, 5.0, 3.0, 1.0], 10)
    fitted = model().fit(frame, y)
    assert fitted.columns_[0].categories == {"x": 0, "y": 1}
    np.testing.assert_allclose(fitted.predict(frame), y, atol=0.3)


def test_mixed_objects_are_text():
    values = np.array([["a"], [1], [np.int64(1)], [2.5], [None], [np.float32(1.0)]] * 8, object)
    y = np.tile([0.0, 4.0, 4.0, 9.0, -3.0, 4.0], 8)
    fitted = model().fit(values, y)
    assert set(fitted.columns_[0].categories) == {"a", "1", "2.5"}
    numbers = np.array([[1.0], [2.5]])
    np.testing.assert_allclose(fitted.predict(numbers), [4.0, 9.0], atol=0.5)


def words(n=60, gap=False):
    rng = np.random.default_rng(7)
    word = rng.choice(["a", "b", "c"], n).astype(object)
    y = np.array([{"a": 0.0, "b": 1.0, "c": 5.0}[w] for w in word])
    if gap:
        word[:12], y[:12] = None, -4.0
    return word[:, None], y + 0.05 * rng.standard_normal(n)


def test_unseen_category_is_the_average_of_the_categories_where_missing_was_seen():
    X, y = words(gap=True)
    fitted = model().fit(X, y)
    new = np.array([["zzz"], [None]], dtype=object)
    unseen, missing = fitted.predict(new)
    assert missing == pytest.approx(-4.0, abs=0.3)
    observed = X[:, 0] != np.array(None)
    assert unseen == pytest.approx(fitted.predict(X[observed]).mean(), rel=1e-9)
    _, std = fitted.predict(new, return_std=True)
    assert std[0] > 5 * std[1]  # any of the categories, whose means are far apart
    draws = fitted.sample_y(new, 2000)
    assert draws[0].std() == pytest.approx(std[0], rel=0.1)


def test_unseen_category_acts_as_the_average_where_none_was_missing():
    X, y = words()
    fitted = model().fit(X, y)
    new = np.array([["zzz"], [None], [""]], dtype=object)
    unseen, *missing = fitted.predict(new)
    assert unseen == pytest.approx(fitted.predict(X).mean(), rel=1e-9)
    np.testing.assert_allclose(missing, unseen, atol=0.1)  # averages over 32 of the rows


@pytest.mark.parametrize("basis", ["chebyshev", "bspline", "fourier", "polynomial", "categorical"])
def test_missing_number_acts_as_the_average_where_none_was_missing(basis):
    rng = np.random.default_rng(8)
    X = np.column_stack([rng.choice(np.linspace(-1, 1, 9), 60), rng.uniform(size=60)])
    y = X[:, 0] ** 2 * (1 + X[:, 1])
    fitted = model(basis={0: basis}).fit(X, y)
    assert np.ptp(fitted.predict(X)) > 0.5
    at = np.column_stack([X[:, 0], np.full(60, 0.3)])
    gap = fitted.predict(np.array([[np.nan, 0.3]]))
    # over 32 of the rows, at even ranks
    np.testing.assert_allclose(gap, fitted.predict(at).mean(), atol=0.03)


def test_missing_number_has_its_own_value_where_some_were_missing():
    rng = np.random.default_rng(9)
    X = rng.uniform(size=(80, 2))
    X[:20, 0] = np.nan
    y = np.where(np.isnan(X[:, 0]), 7.0, X[:, 0]) + 0.05 * rng.standard_normal(80)
    fitted = model().fit(X, y)
    np.testing.assert_allclose(fitted.predict([[np.nan, 0.5]]), 7.0, atol=0.3)


def test_order_and_names_of_columns_must_match():
    frame = pd.DataFrame(np.random.default_rng(0).uniform(size=(30, 2)), columns=["a", "b"])
    fitted = model().fit(frame, frame["a"])
    with pytest.raises(ValueError, match="must be in the same order"):
        fitted.predict(frame[["b", "a"]])
    with pytest.raises(ValueError, match="unseen at fit time"):
        fitted.predict(pl.DataFrame({"a": [1.0], "c": [2.0]}))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        fitted.predict(frame.to_numpy())
    unnamed = model().fit(frame.to_numpy(), frame["a"])
    with pytest.raises(ValueError, match="X has 3 features, but BTNRegressor is expecting 2"):
        unnamed.predict(np.zeros((4, 3)))


@pytest.mark.parametrize("names", [["a", "a", "b"], [1, 2, 1]])
def test_equal_column_names_raise(names):
    frame = pd.DataFrame(np.zeros((4, 3)), columns=names)
    with pytest.raises(ValueError, match="must have unique names, got .* 2 times; rename"):
        model().fit(frame, np.arange(4.0))


def test_integer_column_names_are_names_before_positions():
    X = np.random.default_rng(0).uniform(size=(40, 3))
    frame = pd.DataFrame(X, columns=[1, 2, 7])
    fitted = model(basis={1: "bspline", 7: "fourier"}).fit(frame, X[:, 0])
    assert [type(c.basis.basis_).__name__ for c in fitted.columns_] == [
        "BSpline",
        "Spiked",
        "Fourier",
    ]
    assert not hasattr(fitted, "feature_names_in_")
    assert np.all(np.isfinite(fitted.predict(frame)))


def test_mixed_column_names_get_the_message_of_scikit_learn():
    frame = pd.DataFrame(np.zeros((5, 2)), columns=["a", 1])
    with pytest.raises(TypeError, match="Feature names are only supported if all"):
        model().fit(frame, np.arange(5.0))


@pytest.mark.parametrize("numbers", [np.arange(60.0), np.arange(60).astype("M8[D]")])
def test_text_in_fit_and_numbers_in_predict(numbers):
    X, y = words()
    fitted = model().fit(X, y)
    with pytest.raises(
        ValueError, match="column 'x0' must hold text.*got (numbers|dates).*give the col"
    ):
        fitted.predict(numbers[:, None])
    # but nothing at all is a gap, whatever its type
    gaps = fitted.predict(np.full((2, 1), np.nan))
    np.testing.assert_allclose(gaps, fitted.predict(X).mean(), atol=0.1)


def test_numbers_in_fit_and_text_in_predict():
    X = np.random.default_rng(0).uniform(size=(40, 1))
    frame = pd.DataFrame(X, columns=["size"])
    fitted = model().fit(frame, X[:, 0])
    with pytest.raises(ValueError, match="column 'size' must hold numbers.*got 'big'; give the"):
        fitted.predict(pd.DataFrame({"size": ["0.5", "big"]}))
    written = pd.DataFrame({"size": [repr(v) for v in X[:, 0].tolist()]})
    np.testing.assert_array_equal(fitted.predict(written), fitted.predict(frame))
    with pytest.raises(ValueError, match="column 'size' must be finite"):
        fitted.predict(pd.DataFrame({"size": ["inf"]}))


def test_digits_as_text_in_fit_and_numbers_in_predict():
    codes = np.random.default_rng(0).integers(1, 4, 60)
    fitted = model().fit(codes.astype(str)[:, None].astype(object), codes**2.0)
    np.testing.assert_allclose(fitted.predict([[1], [2], [3]]), [1, 4, 9], atol=0.5)


def test_text_needs_a_basis_for_text():
    X, y = words()
    with pytest.raises(ValueError, match="column 'x0' must hold numbers.*or a Categorical basis"):
        model(basis="chebyshev").fit(X, y)


class Hinges(Basis):
    """A user's own basis: phi and nothing else."""

    def __init__(self, corner=0.0):
        self.corner = corner

    def phi(self, x):
        return np.stack([np.ones_like(x), x, np.maximum(x - self.corner, 0)], axis=1)


BASES = {
    "name": "bspline",
    "object": Chebyshev(n_basis=5),
    "dict by name": {"a": "fourier", "b": BSpline(n_basis=5)},
    "dict by position": {0: "polynomial", -1: Chebyshev(n_basis=3)},
    "dict of NumPy integers": {np.int64(1): "auto"},
    "own": Hinges(corner=0.1),
    "own in a dict": {"b": Hinges()},
    "levels": {"b": Categorical()},
    "levels by name": {"b": "categorical"},
}


@pytest.mark.parametrize("basis", BASES.values(), ids=BASES)
def test_every_way_to_name_a_basis(basis):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.uniform(-1, 1, 80), "b": rng.integers(0, 6, 80)})
    y = frame["a"] + (frame["b"] == 2)
    before = repr(basis)
    fitted = model(basis=basis).fit(frame, y)
    assert fitted.score(frame, y) > 0.6
    assert repr(basis) == before
    assert fitted.get_params(deep=False)["basis"] is basis
    copy = clone(fitted).fit(frame, y)
    np.testing.assert_array_equal(copy.predict(frame), fitted.predict(frame))


def test_the_basis_asked_for_is_the_one_used():
    X = np.random.default_rng(1).uniform(size=(50, 3))
    fitted = model(basis={"x0": Hinges(), 2: "fourier"}, n_basis=7).fit(X, X[:, 0])
    kinds = [type(c.basis.basis_).__name__ for c in fitted.columns_]
    assert kinds == ["Hinges", "Spiked", "Fourier"]
    assert [c.basis.n_functions_ for c in fitted.columns_] == [3, 7, 7]


BAD_BASES = ["wavelet", 3, None, Chebyshev, ["chebyshev"], {"a": 3}, {"a": None}, {0: "nope"}]


@pytest.mark.parametrize("basis", BAD_BASES, ids=repr)
def test_a_bad_basis_raises(basis):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match="basis must be 'auto'.*got .*for example"):
        model(basis=basis).fit(frame, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("key", ["b", 1, -2, ("a",), 0.5], ids=repr)
def test_a_key_that_is_no_column_raises(key):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match=r"every key of basis.*got .*the columns are \['a'\]"):
        model(basis={key: "bspline"}).fit(frame, [1.0, 2.0, 3.0])


def test_thousands_of_categories():
    rng = np.random.default_rng(2)
    names = np.array([f"id {k}" for k in range(5000)], dtype=object)
    common = rng.random(6000) < 0.15
    names = np.where(common, "often", np.resize(names, 6000))
    y = np.where(common, 3.0, 0.0) + 0.1 * rng.standard_normal(6000)
    frame = pd.DataFrame({"name": names, "z": rng.uniform(size=6000)})
    fitted = model(max_iter=4).fit(frame, y)
    assert isinstance(fitted.columns_[0].basis, ManyCategories)
    plain = model(max_iter=4, solver=Solver(anchored=False)).fit(frame, y)
    assert plain.columns_[0].basis.n_functions_ == MAX_CATEGORIES
    often = fitted.predict(pd.DataFrame({"name": ["often", "id 4999", "id 3"], "z": 0.5}))
    np.testing.assert_allclose(often, [3.0, 0.0, 0.0], atol=0.3)


@pytest.mark.parametrize("rows", [1, 5])
def test_rare_categories_share_a_code_and_frequent_ones_do_not(rows):
    """210 rows or so are enough for 26 categories, five times as many for 100."""
    often = [1 + (k < 60) + 2 * (k < 20) for k in range(150)]
    values = np.array([f"v{k}" for k in range(150) for _ in range(rows * often[k])], dtype=object)
    columns, codes = fit_columns([ColumnValues(values, np.ones(len(values)))], ["a"], "auto", 20)
    levels = columns[0].categories
    most = min(MAX_CATEGORIES, len(values) // 8)
    assert len(set(levels.values())) == most
    count = 20 if rows == 1 else 60
    frequent = [levels[f"v{k}"] for k in range(count)]
    assert len(set(frequent)) == count
    assert most - 1 not in frequent
    assert codes[0].max() == most - 1


def test_a_category_of_its_own_for_every_row_is_none():
    values = np.array([f"id{k}" for k in range(120)], dtype=object)
    columns, codes = fit_columns([ColumnValues(values, np.ones(120))], ["id"], "auto", 20)
    assert columns[0].basis.n_functions_ == 1
    assert np.all(codes[0] == 0)


def test_few_categories_are_kept_however_few_the_rows():
    values = np.array(list("aabbccddeeffgghhii") + ["j"], dtype=object)
    columns, _ = fit_columns([ColumnValues(values, np.ones(19))], ["a"], "auto", 20)
    assert columns[0].basis.n_functions_ == 10


def test_a_column_named_twice_raises():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1.0, 5.0, 2.0]})
    with pytest.raises(ValueError, match="name every column once, got 'b' twice"):
        model(basis={"b": "fourier", -1: "bspline"}).fit(frame, [1.0, 2.0, 3.0])


def test_weights_decide_which_categories_are_frequent():
    values = np.array([f"v{k}" for k in range(150)], dtype=object)
    weight = np.ones(150)
    weight[140] = 5.0
    levels = fit_columns([ColumnValues(values, weight)], ["a"], "auto", 20)[0][0].categories
    assert list(levels.values()).count(levels["v140"]) == 1


def test_the_warp_is_half_rank_and_half_value():
    values = np.array([0.0, 1.0, 1.0, 4.0])
    column = fit_columns([ColumnValues(values, np.ones(4))], ["a"], "auto", 20)[0][0]
    # mid-ranks 0.5, 2, 3.5 -> 0, 1/2, 1 and values 0, 1/4, 1
    np.testing.assert_allclose(column.encode(values), [-1.0, -0.25, -0.25, 1.0])
    # beyond the range of 4, the distance in units of it
    beyond = column.encode(np.array([-1e9, 1e9, np.nan]))
    np.testing.assert_allclose(beyond, [-1.0 - 2.5e8, 2.5e8, np.nan])


def test_the_warp_keeps_few_knots_and_stays_close():
    values = np.random.default_rng(0).lognormal(size=20_000)
    column = fit_columns([ColumnValues(values, np.ones(len(values)))], ["a"], "auto", 20)[0][0]
    assert len(column.knots) <= MAX_KNOTS
    rank = (np.argsort(np.argsort(values))) / (len(values) - 1)
    value = (values - values.min()) / np.ptp(values)
    np.testing.assert_allclose(column.encode(values), rank + value - 1, atol=2e-3)


@pytest.mark.parametrize("empty", [pd.DataFrame(index=range(4)), pl.DataFrame()])
def test_a_table_without_columns_raises(empty):
    with pytest.raises(ValueError, match=r"at least one row and one column, got .*0 feature"):
        model().fit(empty, np.arange(4.0))


def test_a_table_without_rows_can_be_predicted_but_not_fitted():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    fitted = model().fit(frame, frame["a"])
    for none in (frame[:0], pl.from_pandas(frame[:0])):
        assert fitted.predict(none).shape == (0,)
    with pytest.raises(ValueError, match="got 0 sample"):
        model().fit(frame[:0], [])


def test_a_lazy_table_raises():
    with pytest.raises(TypeError, match=r"must be a table in memory.*call its collect\(\)"):
        model().fit(pl.DataFrame({"a": [1.0, 2.0]}).lazy(), [1.0, 2.0])


def test_intervals_are_categories_periods_dates_and_decimals_numbers():
    x = np.linspace(0.0, 1.0, 40)
    X = pd.DataFrame(
        {
            "bin": pd.cut(x, 4),
            "month": pd.Series(pd.period_range("2020-01", periods=4, freq="M")).repeat(10).array,
            "price": [None, *(Decimal(i) / 7 for i in range(39))],
            "part": [Fraction(i, 7) for i in range(40)],
        }
    )
    fitted = model().fit(X, x)
    assert len(fitted.columns_[0].categories) == 4
    assert [column.categories for column in fitted.columns_[1:]] == [None] * 3
    assert [len(column.knots) for column in fitted.columns_[1:]] == [4, 39, 40]


def test_numbers_beyond_floats_raise_and_name_the_column():
    with pytest.raises(ValueError, match="column 'big' must hold numbers below 1e308"):
        model().fit(pd.DataFrame({"big": [10**400, 1, 2]}), [1.0, 2.0, 3.0])


@pytest.mark.parametrize("value", [{"k": 1}, [1, 2], 1j, object()], ids=lambda v: type(v).__name__)
def test_values_that_are_nothing_known_raise(value):
    X = np.empty((3, 1), dtype=object)
    X[:, 0] = ["a", "b", value]
    with pytest.raises(TypeError, match="must hold text, numbers or dates, got .*convert"):
        model().fit(X, np.arange(3.0))


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_infinity_in_a_frame_names_the_column(make):
    with pytest.raises(ValueError, match="column 'size' must be finite or missing, got infinity"):
        model().fit(make({"size": [1.0, np.inf, 2.0]}), np.arange(3.0))


def test_ragged_rows_raise():
    with pytest.raises(ValueError, match=r"inhomogeneous|sequence"):
        model().fit([[1, 2], [3]], [1.0, 2.0])


@pytest.mark.filterwarnings("ignore:no input was found")
def test_tables_are_left_as_they_were():
    frame = pandas_table("category")
    before = frame.copy(deep=True)
    model().fit(frame, np.arange(float(N))).predict(frame)
    pd.testing.assert_frame_equal(frame, before)
    array = np.random.default_rng(0).uniform(size=(30, 2))
    copy = array.copy()
    array.flags.writeable = False
    model().fit(array, copy[:, 0]).predict(array)
    np.testing.assert_array_equal(array, copy)


def test_split_columns_knows_kinds():
    frame = pandas_table("nullable").assign(f=pd.Categorical(np.arange(N) % 3))
    columns, names = split_columns(frame)
    assert names == list("abcdef")
    kinds = "".join(column.dtype.kind for column in columns)
    assert kinds == "fffOMO"
    assert [int(np.isnan(c).sum()) for c in columns[:3]] == [int(gaps(j).sum()) for j in range(3)]
    assert set(columns[5]) == {"0", "1", "2"}


def of_all_libraries():
    """Return one table with every type that pandas, polars and pyarrow share, in each of them."""
    rng = np.random.default_rng(8)
    n = 60
    times = [DAY0 + dt.timedelta(seconds=float(s)) for s in rng.uniform(0, 1e8, n)]
    zone = dt.timezone(dt.timedelta(hours=5))
    columns = {
        "float": (pa.float64(), rng.normal(size=n).tolist()),
        "single": (pa.float32(), rng.normal(size=n).astype(np.float32).tolist()),
        "int": (pa.int64(), rng.integers(-(2**50), 2**50, n).tolist()),
        "count": (pa.uint8(), rng.integers(0, 9, n).tolist()),
        "bool": (pa.bool_(), (rng.random(n) < 0.5).tolist()),
        "text": (pa.string(), rng.choice(["oak", "Ash", "yew"], n).tolist()),
        "category": (
            pa.dictionary(pa.int32(), pa.string()),
            rng.choice(["z", "b", "a"], n).tolist(),
        ),
        "time": (pa.timestamp("us"), times),
        "fine": (pa.timestamp("ns"), times),
        "zoned": (pa.timestamp("us", "Asia/Tokyo"), [t.replace(tzinfo=zone) for t in times]),
        "date": (pa.date32(), [t.date() for t in times]),
        "duration": (pa.duration("us"), [t - DAY0 for t in times]),
        "price": (
            pa.decimal128(12, 3),
            [Decimal(int(v)) / 1000 for v in rng.integers(-9000, 9000, n)],
        ),
        "nothing": (pa.null(), [None] * n),
    }
    arrays = {
        name: pa.array(with_gaps(values, gaps(j, n), None), kind)
        for j, (name, (kind, values)) in enumerate(columns.items())
    }
    arrow = pa.table(arrays)
    return {
        "pyarrow": arrow,
        "record batch": arrow.to_batches()[0],
        "polars": pl.from_arrow(arrow),
        "pandas": arrow.to_pandas(),
        "pandas with Arrow": arrow.to_pandas(types_mapper=pd.ArrowDtype),
        "pandas nullable": arrow.to_pandas(
            types_mapper={
                pa.int64(): pd.Int64Dtype(),
                pa.uint8(): pd.UInt8Dtype(),
                pa.bool_(): pd.BooleanDtype(),
                pa.string(): pd.StringDtype(),
                pa.float64(): pd.Float64Dtype(),
            }.get
        ),
    }


def test_frames_of_every_library_have_the_same_columns():
    tables = of_all_libraries()
    expected, names = split_columns(tables.pop("pyarrow"))
    kinds = dict(zip(names, (column.dtype.str[1:] for column in expected), strict=True))
    assert kinds == {
        **dict.fromkeys(["float", "single", "int", "count", "bool", "price", "nothing"], "f8"),
        **dict.fromkeys(["text", "category"], "O"),
        **dict.fromkeys(["time", "fine", "zoned", "date"], "M8[us]"),
        "duration": "m8[us]",
    }
    for library, table in tables.items():
        columns, actual = split_columns(table)
        assert actual == names, library
        for name, column, other in zip(names, columns, expected, strict=True):
            assert column.dtype == other.dtype, (library, name)
            np.testing.assert_array_equal(column, other, err_msg=f"{library}, {name}")


def test_predictions_do_not_depend_on_the_library_of_a_frame():
    tables = of_all_libraries()
    X = tables.pop("pandas").drop(columns=["single", "fine", "nothing"])
    names = list(X.columns)
    y = X["float"].fillna(0.0).to_numpy() + 2.0 * (X["category"] == "a").to_numpy()
    label = np.where(y > 0.5, "high", "low")
    regressor, classifier = model(), BTNClassifier(**FEW)
    regressor.fit(X, y)
    classifier.fit(X, label)
    del tables["record batch"]  # scikit-learn does not see its names
    for library, table in tables.items():
        some = table[names] if hasattr(table, "iloc") else table.select(names)
        same = model().fit(some, y)
        assert list(same.feature_names_in_) == names
        assert same.lower_bound_ == regressor.lower_bound_, library
        for fitted in (regressor, same):
            mean, std = fitted.predict(some, return_std=True)
            assert type(mean) is type(std) is np.ndarray
            np.testing.assert_array_equal(mean, regressor.predict(X))
            np.testing.assert_array_equal(
                fitted.predict_interval(some), regressor.predict_interval(X)
            )
        labels = classifier.predict(some)
        assert type(labels) is np.ndarray
        assert labels.dtype == label.dtype
        np.testing.assert_array_equal(labels, classifier.predict(X))
        np.testing.assert_array_equal(classifier.predict_proba(some), classifier.predict_proba(X))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_targets_and_weights_are_columns_of_frames_of_any_library(library):
    number, count, _, word, _, y = draw()
    table = pa.table({"a": number, "y": y, "b": word, "w": count + 1.0})
    make = {"pandas": pa.Table.to_pandas, "polars": pl.from_arrow, "pyarrow": lambda t: t}
    fitted = model().fit(make[library](table), "y", "w")
    X = pd.DataFrame({"a": number, "b": word})
    expected = model().fit(X, y, count + 1.0)
    assert (fitted.target_name_, list(fitted.feature_names_in_)) == ("y", ["a", "b"])
    np.testing.assert_array_equal(fitted.predict(X), expected.predict(X))


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for make, kind in TABLES.values():
            split_columns(make(kind))


def test_a_value_that_stands_out_has_an_effect_of_its_own():
    """Pay is often exactly 0 and means something else than a little pay."""
    rng = np.random.default_rng(0)
    pay = np.where(rng.random(800) < 0.3, 0.5, rng.uniform(0, 1, 800).round(3))
    y = np.where(pay == 0.5, 3.0, 0.0) + pay + 0.1 * rng.standard_normal(800)
    fitted = model(max_iter=20).fit(pay[:, None], y)
    near, at = fitted.predict([[0.49], [0.5]])
    assert at - near > 2.5
    smooth = model(max_iter=20, basis="chebyshev").fit(pay[:, None], y)
    near, at = smooth.predict([[0.49], [0.5]])
    assert at - near < 2.5


KINDS = {
    "numbers": np.linspace(0, 10, 60),
    "dates": pd.to_datetime("2020-01-01") + pd.to_timedelta(np.arange(60), "D"),
    "durations": pd.to_timedelta(np.arange(60), "D"),
    "text": np.array(["a", "b", "c"] * 20, dtype=object),
}


@pytest.mark.parametrize("given", KINDS)
@pytest.mark.parametrize("fitted", KINDS)
def test_dates_durations_and_numbers_are_not_taken_for_one_another(fitted, given):
    y = np.sin(np.linspace(0, 3, 60)) + (np.arange(60) % 3)
    fit = model().fit(pd.DataFrame({"a": KINDS[fitted]}), y)
    frame = pd.DataFrame({"a": KINDS[given][:5]})
    if fitted == given:
        assert np.all(np.isfinite(fit.predict(frame)))
    else:
        with pytest.raises(ValueError, match=f"column 'a' must hold {fitted}, as it did in fit"):
            fit.predict(frame)
    empty = pd.DataFrame({"a": [None, None]}, dtype=frame["a"].dtype)
    assert np.all(np.isfinite(fit.predict(empty)))


def test_categories_that_come_one_by_one_share_a_function_beyond_a_hundred(monkeypatch):
    monkeypatch.setattr(columns_room, "MOST_CATEGORIES", MAX_CATEGORIES + 20)
    values = np.array([f"level {k % 5}" for k in range(50)], dtype=object)
    (column,), _ = fit_columns([ColumnValues(values, np.ones(50))], ["g"], "auto", 8)
    for k in range(MAX_CATEGORIES + 30):
        later = ColumnValues(np.array([f"later {k}"], dtype=object), np.ones(1))
        column, growth = grown(column, later)
        assert growth.categories == (k <= MAX_CATEGORIES - 5)
    assert column.basis.n_functions_ == MAX_CATEGORIES + 1
    assert column.rest == MAX_CATEGORIES
    assert len(column.categories) == MAX_CATEGORIES + 20
    codes = column.encode(np.array(["later 97", "later 110", "later 129"], dtype=object))
    assert codes.tolist() == [MAX_CATEGORIES, MAX_CATEGORIES, -1]
