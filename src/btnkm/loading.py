"""Loading fitted models from files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .bases import Basis
from .classifier import BTNClassifier
from .io.models import read_model
from .regressor import BTNRegressor


def load(path: Any, bases: Iterable[type[Basis]] = ()) -> Any:
    """Return the model that ``model.save(path)`` has written.

    It predicts exactly what the saved model does, and continues to learn in the same way. Loading
    runs no code from the file, so files from untrusted sources are safe. A file that is not a
    model, or that was changed, raises a ValueError.

    Parameters
    ----------
    path : str or path
    bases : iterable of classes
        The classes of custom bases in the model.

    Returns
    -------
    BTNRegressor or BTNClassifier

    Examples
    --------
    >>> import numpy as np, tempfile, os, btnkm
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = btnkm.BTNRegressor(structure="sums").fit(X, np.sin(5 * X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.btn")
    ...     model.save(path)
    ...     same = btnkm.load(path)
    >>> bool(np.all(same.predict(X) == model.predict(X)))
    True
    """
    estimators = {"BTNClassifier": BTNClassifier, "BTNRegressor": BTNRegressor}
    return read_model(path, estimators, bases)
