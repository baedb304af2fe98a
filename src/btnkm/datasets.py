"""The six data sets and the splits of the paper, and simulated data.

The data sets are read from the folder ``data_dir``, or the folder in the environment variable
``BTNKM_DATA``. Without a folder they are fetched from OpenML and kept in scikit-learn's cache. Rows
fetched from OpenML are checked: they must be those of the paper in the same order, since the splits
depend on it.
"""

from __future__ import annotations

import csv
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from . import checks

Array = np.ndarray
FOLDER_VARIABLE = "BTNKM_DATA"
_FOLDER_HELP = f"the folder given by data_dir or {FOLDER_VARIABLE}"


class Source(NamedTuple):
    """Where a data set is, and what it contains."""

    files: tuple[str, ...]  # in the folder
    openml: int  # id of the data set on OpenML
    rows: int
    fingerprint: tuple[float, float]  # of the whole table, see ``fingerprint``
    description: str


SOURCES = {
    "yacht": Source(
        ("yacht.csv",),
        42370,
        308,
        (0.4093, 0.0541),
        "Residuary resistance of sailing yachts (UCI Yacht Hydrodynamics, CC BY 4.0).",
    ),
    "energy": Source(
        ("energy.csv",),
        1472,
        768,
        (-0.4100, 0.1251),
        "Heating and cooling load of buildings (UCI Energy Efficiency, CC BY 4.0).",
    ),
    "concrete": Source(
        ("concrete.csv",),
        4353,
        1030,
        (-1.0610, -0.1269),
        "Compressive strength of concrete (UCI Concrete Compressive Strength, CC BY 4.0).",
    ),
    "airfoil": Source(
        ("airfoil.csv",),
        44957,
        1503,
        (-0.7093, 0.4852),
        "Sound pressure level of airfoil sections (UCI Airfoil Self-Noise, CC BY 4.0).",
    ),
    "spambase": Source(
        ("spambase.csv",),
        44,
        4601,
        (0.6677, 0.1529),
        "Mail that is spam, 1, or is not, 0 (UCI Spambase, CC BY 4.0).",
    ),
    "adult": Source(
        ("adult.data", "adult.test"),
        1590,
        48842,
        (-0.0110, 0.0022),
        "Yearly income above 50K, 1, or not, 0, of the US census of 1994 (UCI Adult, CC BY 4.0).",
    ),
}

ENERGY_COLUMNS = (
    *("compactness", "surface_area", "wall_area", "roof_area", "height", "orientation"),
    *("glazing_area", "glazing_distribution", "heating_load", "cooling_load"),
)
ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
)
ADULT_NUMBERS = (
    *("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"),
)


def load_yacht(*, return_X_y: bool = False, as_frame: bool = False, data_dir: Any = None) -> Any:
    """Load 308 sailing yachts: 6 inputs on shape and speed, and the residuary resistance.

    Parameters
    ----------
    return_X_y : bool, default=False
        Return (data, target) instead of a Bunch.
    as_frame : bool, default=False
        Return pandas objects.
    data_dir : path-like or None, default=None
        The folder with the files. None uses the folder in ``BTNKM_DATA``, or else OpenML.

    Returns
    -------
    Bunch with data, target, frame, feature_names, target_names and DESCR, or (data, target)
    """
    return _bunch("yacht", *_numbers("yacht", data_dir), return_X_y, as_frame)


def load_concrete(*, return_X_y: bool = False, as_frame: bool = False, data_dir: Any = None) -> Any:
    """Load 1030 concrete mixtures: 8 inputs on ingredients and age, and the compressive strength.

    Parameters and return values are those of ``load_yacht``.
    """
    return _bunch("concrete", *_numbers("concrete", data_dir), return_X_y, as_frame)


def load_airfoil(*, return_X_y: bool = False, as_frame: bool = False, data_dir: Any = None) -> Any:
    """Load 1503 measurements of airfoils: 5 settings, and the sound pressure level.

    Parameters and return values are those of ``load_yacht``.
    """
    return _bunch("airfoil", *_numbers("airfoil", data_dir), return_X_y, as_frame)


def load_spambase(*, return_X_y: bool = False, as_frame: bool = False, data_dir: Any = None) -> Any:
    """Load 4601 mails: 57 frequencies of words and characters, and 1 for spam.

    Parameters and return values are those of ``load_yacht``.
    """
    X, y, names = _numbers("spambase", data_dir)
    return _bunch("spambase", X, y.astype(int), names, return_X_y, as_frame)


def load_energy(
    *,
    variant: str = "standard",
    return_X_y: bool = False,
    as_frame: bool = False,
    data_dir: Any = None,
) -> Any:
    """Load 768 buildings: 8 inputs, and the heating load.

    Parameters
    ----------
    variant : "standard" or "paper", default="standard"
        "paper" is the table of the paper's experiments. The target is the cooling load, the heating
        load is a ninth input, with which it is highly correlated, and the first row is missing,
        since it was read as a header.
    return_X_y, as_frame, data_dir
        As in ``load_yacht``.
    """
    if variant not in ("standard", "paper"):
        raise ValueError(
            f"variant must be 'standard' or 'paper', got {variant!r}; leave it out for 'standard'."
        )
    X, y, names = _numbers("energy", data_dir, ENERGY_COLUMNS)
    if variant == "standard":
        return _bunch("energy", X[:, :8], X[:, 8], names[:9], return_X_y, as_frame)
    return _bunch("energy", X[1:], y[1:], names, return_X_y, as_frame)


def load_adult(
    *,
    form: str = "native",
    return_X_y: bool = False,
    as_frame: bool | None = None,
    data_dir: Any = None,
) -> Any:
    """Load 45,222 people without missing values, and 1 for an income above 50K.

    Parameters
    ----------
    form : "native" or "paper96", default="native"
        "native" has 14 columns, 8 of them text, and is a DataFrame. "paper96" is the paper's
        matrix: the 6 numbers, then indicators of all categories of each text column but the first.
    return_X_y, data_dir
        As in ``load_yacht``.
    as_frame : bool or None, default=None
        None is True for "native", which is always a DataFrame, and False for "paper96".
    """
    if form not in ("native", "paper96"):
        raise ValueError(
            f"form must be 'native' or 'paper96', got {form!r}; leave it out for 'native'."
        )
    if form == "native" and as_frame is False:
        raise ValueError(
            "as_frame must be True for form='native', which has text columns, got False; "
            "leave it out, or take form='paper96'."
        )
    columns = _adult_columns(data_dir)
    y = np.array([label == ">50K" for label in columns.pop("income")], dtype=int)
    if form == "native":
        pandas = _pandas()
        frame = pandas.DataFrame(
            {
                name: values if name in ADULT_NUMBERS else pandas.Categorical(values)
                for name, values in columns.items()
            }
        )
        return _bunch("adult", frame, y, [*columns, "income"], return_X_y, True)
    names = list(ADULT_NUMBERS)
    parts = [columns[name] for name in ADULT_NUMBERS]
    for name, values in columns.items():
        if name not in ADULT_NUMBERS:
            for category in sorted(set(values.tolist()))[1:]:
                names.append(f"{name}={category}")
                parts.append((values == category).astype(float))
    return _bunch(
        "adult", np.column_stack(parts), y, [*names, "income"], return_X_y, bool(as_frame)
    )


def make_heating(
    n_samples: int = 2000,
    *,
    noise: float = 5.0,
    random_state: int = 0,
    as_frame: bool = True,
) -> Any:
    """Simulate homes: eight inputs, and the energy used in a day, in kWh.

    The data are simulated, so the true relation is known. Heat loss is the product of floor area,
    insulation (which follows the year of construction), type of home, wind, and the difference
    between indoor and outdoor temperature. The efficiency of a heat pump falls with the outdoor
    temperature. Hot water adds a fixed amount per person, appliances a fixed amount per home. A
    tenth of the indoor temperatures and a tenth of the numbers of people are missing.

    Parameters
    ----------
    n_samples : int, default=2000
        The number of rows.
    noise : float, default=5.0
        The standard deviation of Gaussian noise in kWh.
    random_state : int, default=0
        The random seed.
    as_frame : bool, default=True
        Return pandas objects; False for a dict of columns, which needs no pandas.

    Returns
    -------
    X : DataFrame or dict of str to ndarray
        The columns area, built, home, system, outdoor, indoor, wind and people.
    y : Series or ndarray of shape (n_samples,)
        The energy in kWh.

    Examples
    --------
    >>> from btnkm.datasets import make_heating
    >>> columns, energy = make_heating(500, as_frame=False)
    >>> sorted(columns)
    ['area', 'built', 'home', 'indoor', 'outdoor', 'people', 'system', 'wind']
    >>> energy.shape
    (500,)
    """
    checks.check_integer("n_samples", n_samples, 1)
    rng = np.random.default_rng(random_state)
    columns = {
        "area": rng.gamma(9.0, 13.0, n_samples).clip(30, 300).round(),
        "built": rng.integers(1900, 2021, n_samples).astype(float),
        "home": rng.choice(list(_HOMES), n_samples, p=(0.3, 0.3, 0.4)).astype(object),
        "system": rng.choice(list(_SYSTEMS), n_samples, p=(0.5, 0.2, 0.3)).astype(object),
        "outdoor": rng.normal(5.0, 6.0, n_samples).round(1),
        "indoor": rng.normal(20.5, 1.3, n_samples).round(1),
        "wind": rng.gamma(3.0, 1.5, n_samples).round(1),
        "people": rng.integers(1, 6, n_samples).astype(float),
    }
    energy = _energy_of_homes(columns) + noise * rng.standard_normal(n_samples)
    for name in ("indoor", "people"):
        columns[name][rng.random(n_samples) < 0.1] = np.nan
    if not as_frame:
        return columns, energy
    pandas = _pandas()
    return pandas.DataFrame(columns), pandas.Series(energy, name="energy")


#: Heat loss of each type of home relative to a terraced house, and efficiency of each system.
_HOMES = {"detached": 1.25, "terraced": 1.0, "flat": 0.75}
_SYSTEMS = {"gas boiler": 0.9, "district heating": 1.0, "heat pump": 2.6}


def _energy_of_homes(columns: dict[str, Array]) -> Array:
    """Return the true energy of homes in kWh a day, before values are lost."""
    insulation = 0.03 + 0.045 / (1 + np.exp((columns["built"] - 1975) / 12))
    home = np.array([_HOMES[name] for name in columns["home"]])
    missing_degrees = np.logaddexp(0, columns["indoor"] - columns["outdoor"] - 4)
    heat = columns["area"] * insulation * home * (1 + 0.03 * columns["wind"]) * missing_degrees
    efficiency = np.array([_SYSTEMS[name] for name in columns["system"]])
    pump = columns["system"] == "heat pump"
    efficiency = efficiency + pump * 0.9 * np.tanh((columns["outdoor"] - 5) / 12)
    return 12 + (heat + 2.5 * columns["people"]) / efficiency


def paper_splits(n: int, i: int) -> tuple[Array, Array]:
    """Return the rows of split i of the paper: nine tenths to train on, the rest to test on.

    Parameters
    ----------
    n : int
        The number of rows of the data set.
    i : int
        The number of the split; the paper has 0 to 9.

    Returns
    -------
    train, test : ndarray of int, shapes (int(0.9 n),) and (n - int(0.9 n),)

    Examples
    --------
    >>> from btnkm.datasets import paper_splits
    >>> train, test = paper_splits(10, 0)
    >>> train.tolist(), test.tolist()
    ([2, 8, 4, 9, 1, 6, 7, 3, 0], [5])
    """
    checks.check_integer("n", n, 2)
    checks.check_integer("i", i, 0)
    # The legacy generator is part of the protocol: the newer one permutes differently.
    order = np.random.RandomState(i).permutation(n)
    n_train = int(0.9 * n)
    return order[:n_train], order[n_train:]


def fingerprint(table: Array) -> tuple[float, float]:
    """Return two numbers that identify a table (n, c), including the order of its rows.

    Columns are scaled to unit standard deviation and added up with different weights. The first
    number is the mean over the rows, the second a mean with weights that rise from row to row.
    """
    scaled = (table - np.median(table, axis=0)) / np.maximum(np.std(table, axis=0), 1e-100)
    rows = scaled @ np.cos(np.arange(1.0, table.shape[1] + 1))
    return float(np.mean(rows)), float(np.mean(rows * np.linspace(-1.0, 1.0, len(rows))))


def _numbers(
    name: str, data_dir: Any, names: tuple[str, ...] | None = None
) -> tuple[Array, Array, list[str]]:
    """Return the inputs, the target, which is the last column, and the names of the columns.

    The file has a header unless ``names`` are given. OpenML has the same columns in the same order.
    """
    folder = _folder(name, data_dir)
    if folder is None:
        fetched = _fetch(name)
        table = np.asarray(fetched.data, dtype=float)
        _check_content(name, table)
        return table[:, :-1], table[:, -1], list(names or fetched.feature_names)
    path = folder / SOURCES[name].files[0]
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = [row for row in csv.reader(file) if row]
        header = list(names) if names is not None else [v.strip() for v in lines.pop(0)]
        table = np.array(lines, dtype=float)
    except (IndexError, ValueError) as error:
        raise ValueError(
            f"{path} must contain rows of numbers separated by commas, but reading it failed "
            f"({type(error).__name__}: {error}); put the original file there."
        ) from None
    if table.ndim != 2 or table.shape[1] != len(header) or len(header) < 2:
        raise ValueError(
            f"{path} must contain at least one row, with a number for each column, got "
            f"{len(header)} column(s) and an array of shape {table.shape}; put the original file "
            "there."
        )
    return table[:, :-1], table[:, -1], header


def _adult_columns(data_dir: Any) -> dict[str, Array]:
    """Return the columns of Adult, numbers as floats and text as objects, of complete rows."""
    folder = _folder("adult", data_dir)
    if folder is None:
        fetched = _fetch("adult")
        columns = {}
        for name, openml_name, values in zip(
            ADULT_COLUMNS, fetched.feature_names, fetched.data.T, strict=True
        ):
            categories = (fetched.categories or {}).get(openml_name)
            if categories is not None:
                text = np.array([*categories, "?"], dtype=object)
                values = text[np.where(np.isnan(values), -1, values).astype(int)]
            columns[name] = values
        _check_content(
            "adult", np.column_stack([columns[name] for name in ADULT_NUMBERS]).astype(float)
        )
    else:
        rows = []
        # the second file starts with a comment, and its labels end with a full stop
        for name, skip in (("adult.data", 0), ("adult.test", 1)):
            with (folder / name).open(newline="", encoding="utf-8") as file:
                reader = csv.reader(file, skipinitialspace=True)
                rows += [row for row in list(reader)[skip:] if row]
        wrong = next((row for row in rows if len(row) != len(ADULT_COLUMNS)), None)
        if wrong is not None:
            raise ValueError(
                f"every row of Adult must have {len(ADULT_COLUMNS)} fields, got {wrong}; put the "
                f"original files into {folder}."
            )
        values = np.array(rows, dtype=object)
        columns = dict(zip(ADULT_COLUMNS, values.T, strict=True))
        columns["income"] = np.array([v.rstrip(".") for v in columns["income"]], dtype=object)
    text_columns = [name for name in ADULT_COLUMNS[:-1] if name not in ADULT_NUMBERS]
    complete = ~np.any([columns[name] == "?" for name in text_columns], axis=0)
    return {
        name: values[complete].astype(float) if name in ADULT_NUMBERS else values[complete]
        for name, values in columns.items()
    }


def _folder(name: str, data_dir: Any) -> Path | None:
    """Return the folder that contains a data set; None if no folder is given."""
    place = data_dir if data_dir is not None else os.environ.get(FOLDER_VARIABLE)
    if not place:
        return None
    folder = Path(place).expanduser()
    absent = [file for file in SOURCES[name].files if not (folder / file).is_file()]
    if absent:
        problem = "is not a folder" if not folder.is_dir() else "does not contain it"
        raise FileNotFoundError(
            f"{' and '.join(absent)} must be in {_FOLDER_HELP}, but {folder} {problem}; put the "
            f"original there (https://www.openml.org/d/{SOURCES[name].openml}), or give no "
            "folder to fetch it."
        )
    return folder


def _fetch(name: str) -> Any:
    """Return a data set of OpenML; the error says what to download and where to put it."""
    source = SOURCES[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of each failed attempt
            return fetch_openml(
                data_id=source.openml,
                target_column=None,  # all columns, in the order of the file
                as_frame=False,
                parser="liac-arff",
                n_retries=1,
            )
    except OSError as error:
        raise FileNotFoundError(
            f"{' and '.join(source.files)} must be in {_FOLDER_HELP}, or OpenML must be available, "
            f"but no folder is given and OpenML does not respond ({error}); download "
            f"https://www.openml.org/d/{source.openml} and put it there as {source.files[0]}."
        ) from error


def _check_content(name: str, table: Array) -> None:
    source = SOURCES[name]
    actual = fingerprint(table) if len(table) == source.rows else (np.nan, np.nan)
    if not np.allclose(actual, source.fingerprint, atol=2e-3):
        raise ValueError(
            f"the rows of {name} must be those of the paper's experiments in the same order, got "
            f"{len(table)} other rows from OpenML; put the original into {_FOLDER_HELP}."
        )


def _bunch(name: str, X: Any, y: Array, names: list[str], return_X_y: bool, as_frame: bool) -> Any:
    """Return the result of a loader, as in scikit-learn; the last name is that of the target."""
    frame = None
    if as_frame:
        pandas = _pandas()
        X = X if hasattr(X, "iloc") else pandas.DataFrame(X, columns=names[:-1])
        y = pandas.Series(y, name=names[-1])
        frame = pandas.concat([X, y], axis=1)
    if return_X_y:
        return X, y
    return Bunch(
        data=X,
        target=y,
        frame=frame,
        feature_names=names[:-1],
        target_names=names[-1:],
        DESCR=SOURCES[name].description,
    )


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError(
            "pandas must be installed for DataFrames, but it is missing; run pip install pandas."
        ) from None
    return pandas
