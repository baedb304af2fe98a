"""How the program reads tables: text of any shape, in blocks of any size."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btnkm.data import csv_file
from btnkm.data.csv_file import CsvFile, DataError, Dialect
from btnkm.data.frames import Frame, check_names, split_columns
from btnkm.data.table_files import check_columns, open_table, scan
from btnkm.data.text import (
    BOOLEAN,
    DATE,
    MIN_BEFORE_TEXT,
    NUMBER,
    TEXT,
    InvalidValue,
    TypeGuess,
    decode,
)

USUAL = Dialect()


def kind_of(values, dialect):
    """Return the type of a column that is read at once."""
    guess = TypeGuess()
    guess.update(values, range(len(values)), dialect)
    return guess.kind


FIELDS = st.text(st.characters(exclude_characters="\0\r", codec="utf-8"), max_size=6)


def of_text(text, dialect=None):
    """Return the table in a text."""
    return CsvFile("-", io.BufferedReader(io.BytesIO(text.encode())), dialect or Dialect())


def scanned(text):
    """Return what a scan tells of a text with the input x and the target y."""
    table = of_text(text)
    return scan(table, table.blocks(), ["x"], "y")


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(FIELDS, FIELDS, FIELDS), max_size=8),
    separator=st.sampled_from([",", ";", "\t", "|"]),
    end=st.sampled_from(["\n", "\r\n"]),
    most=st.integers(1, 4),
)
def test_what_was_written_is_read_with_the_lines_it_is_in(rows, separator, end, most):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerow(["a", "b", "c"])
    lines = []
    for row in rows:
        lines.append(text.getvalue().count("\n") + 1)
        writer.writerow(row)
    table = of_text(text.getvalue())
    assert table.separator == separator
    before, csv_file.BLOCK_ROWS = csv_file.BLOCK_ROWS, most
    try:
        parts = list(table.blocks(["c", "a"]))
    finally:
        csv_file.BLOCK_ROWS = before
    assert all(len(part) <= most for part in parts)
    assert [line for part in parts for line in part.positions] == lines
    for j, name in ((0, "a"), (2, "c")):
        assert [v for part in parts for v in part.columns[name]] == [row[j] for row in rows]


def test_a_table_can_be_read_as_often_as_need_be(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x\n1\n2\n")
    table = open_table(str(path), Dialect())
    for _ in range(2):
        assert [block.columns["x"] for block in table.blocks()] == [("1", "2")]
    assert table.done == table.total == 6
    again = of_text("x\n1\n")
    assert len(list(again.blocks())) == len(list(again.blocks())) == 1


def test_blank_lines_and_blanks_after_separators_are_none_of_the_table():
    (part,) = of_text('x, y\n\n1, "a b"\n\n 2,c \n').blocks()
    assert part.columns == {"x": ("1", "2"), "y": ("a b", "c ")}
    assert list(part.positions) == [3, 5]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", " 2.5e3 ", "", "NA", "-0"], NUMBER),
        (["true", "False", "nan"], BOOLEAN),
        (["2024-02-29", "", "1970-01-01T12:30", "2000-01-01 00:00:00.5Z"], DATE),
        (["1", "true"], TEXT),
        (["2024-02-30"], TEXT),
        (["20240101", "20240102"], NUMBER),
        (["today", "now"], TEXT),
        (["1_000"], TEXT),
        (["1,5"], TEXT),
        (["", "null"], None),
    ],
)
def test_kinds_of_values(texts, kind):
    assert kind_of(texts, USUAL) == kind


def test_values_are_those_of_pandas():
    texts = ["1", "-2.5e-3", "", "NaN", "1e300"]
    expected = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy()
    np.testing.assert_array_equal(decode(texts, NUMBER, USUAL), expected)
    dates = [
        "2024-02-29",
        "",
        "1969-12-31T23:59:59.25",
        "2000-01-01T01:00+02:00",
        "2000-01-01 05:00Z",
    ]
    actual = decode(dates, DATE, USUAL)
    seen = [pd.Timestamp(d) for d in dates if d]
    utc = [d.tz_convert(None) if d.tzinfo else d for d in seen]
    assert actual[[0, 2, 3, 4]].tolist() == [d.to_pydatetime() for d in utc]
    assert np.isnat(actual[1])
    assert decode(["a", "", "NA", "nan ", "n "], TEXT, USUAL).tolist() == ["a", *[None] * 3, "n "]
    assert decode(["true", "", "FALSE"], BOOLEAN, USUAL).tolist()[::2] == [1.0, 0.0]


def test_marks_of_missing_values_and_decimals_are_the_readers_choice():
    marks = Dialect(missing=frozenset(["", "-999"]), decimal=",")
    actual = decode(["1,5", "-999", "", "2"], NUMBER, marks)
    np.testing.assert_array_equal(actual, [1.5, np.nan, np.nan, 2.0])
    with pytest.raises(InvalidValue) as bad:
        decode(["1,5", "NA"], NUMBER, marks)
    assert (bad.value.index, bad.value.value) == (1, "NA")
    with pytest.raises(InvalidValue, match="a number"):
        decode(["1.5"], NUMBER, marks)
    assert decode(["NA", "-999"], TEXT, marks).tolist() == ["NA", None]


COLUMN = st.lists(st.sampled_from(["1", "2.5", "", "x", "true", "2024-01-01", "1,5"]), max_size=12)


@settings(max_examples=80, deadline=None)
@given(column=COLUMN, most=st.integers(1, 5))
def test_kinds_do_not_depend_on_blocks(column, most):
    text = "".join(f"{'' if v is None else csv_quoted(v)},0\n" for v in column)
    result = []
    for size in (most, 1000):
        before, csv_file.BLOCK_ROWS = csv_file.BLOCK_ROWS, size
        try:
            result.append(scanned("x,y\n" + text))
        finally:
            csv_file.BLOCK_ROWS = before
    assert result[0].kinds == result[1].kinds
    assert result[0].n_rows == result[1].n_rows == len(column)
    assert result[0].kinds["x"] == (kind_of(column, USUAL) or NUMBER)


def csv_quoted(value):
    return f'"{value}"'


def test_where_numbers_end_is_known_wherever_it_is(monkeypatch):
    monkeypatch.setattr(csv_file, "BLOCK_ROWS", 8)
    rows = ["1"] * 20 + ["x"] + ["1"] * 5
    text = "x,y\n" + "".join(f"{v},0\n" for v in rows)
    first = scanned(text).first_texts["x"]
    assert (first.kind, first.value, first.position) == (NUMBER, "x", 22)
    # a few numbers at the head of a column of names are no surprise
    text = "x,y\n" + "".join(f"{v},0\n" for v in ["1"] * (MIN_BEFORE_TEXT - 1) + ["x"])
    assert scanned(text).first_texts == {}


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        (["1"] * 3 + ["x"] + ["2"] * 40, "x"),
        (["", "x"] + ["2.5"] * 30 + ["y"] + ["3"] * 30, "x"),
        (["x"] + ["2"] * (MIN_BEFORE_TEXT - 1), None),  # too few numbers
        (["1", "x", "y", "z"] + ["2"] * 40, None),  # too much text
        ([f"n{i}" for i in range(40)], None),
    ],
)
def test_text_among_numbers_is_known_wherever_it_is(values, odd):
    first = scanned("x,y\n" + "".join(f"{v},0\n" for v in values)).first_texts
    assert (first["x"].value if first else None) == odd
    assert not first or first["x"].position == 2 + values.index(odd)


def test_long_lines_are_refused_before_they_fill_memory(monkeypatch):
    monkeypatch.setattr(csv_file, "CHUNK", 100)
    monkeypatch.setattr(csv_file, "LONGEST_LINE", 1000)
    with pytest.raises(DataError, match="line 3: must have lines below"):
        of_text("x\n1\n" + "9" * 2000 + "\n")


def test_infinity_is_a_number_of_which_there_is_none():
    with pytest.raises(InvalidValue, match="a finite number"):
        decode(["1", "1e999"], NUMBER, USUAL)
    assert kind_of(["1", "inf"], USUAL) == NUMBER
    assert decode(["inf"], NUMBER, USUAL, finite=False)[0] == np.inf


def test_a_frame_has_columns_names_and_rows():
    frame = Frame({"a": np.array([1.0, 2.0]), "b": np.array(["x", None], dtype=object)})
    assert frame.shape == (2, 2)
    columns, names = split_columns(frame)
    assert names == ["a", "b"]
    assert columns[1].tolist() == ["x", None]
    assert frame.take(np.array([True, False])).columns["a"].tolist() == [1.0]

    class Model:
        pass

    model = Model()
    check_names(model, frame, reset=True)
    assert (model.n_features_in_, model.feature_names_in_.tolist()) == (2, ["a", "b"])
    check_names(model, frame, reset=False)
    with pytest.raises(ValueError, match="in the same order"):
        check_names(model, Frame({"b": np.zeros(2), "a": np.zeros(2)}), reset=False)


def test_a_column_that_is_not_there_is_told_with_one_that_is_similar():
    table = of_text("Ozone,wind\n1,2\n")
    for name, hint in (
        ("ozone", "Did you mean 'Ozone'[?]"),
        ("wimd", "Did you mean 'wind'[?]"),
        ("month", "Its columns are 'Ozone', 'wind'[.]"),
    ):
        message = rf"standard input: has no column '{name}' \(--target\)[.] {hint}"
        with pytest.raises(DataError, match=message) as error:
            check_columns(table, [name], "--target")
        assert error.value.where["column"] == name
    check_columns(table, ["wind"], "--target")
