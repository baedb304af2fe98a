"""Model files that someone has changed, and those of a corpus that later versions must read.

``python -m tests.model_files FOLDER`` writes a corpus of the present format: three small models,
and their predictions in ``golden.json``.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

import btnkm
from btnkm import BTNClassifier, BTNRegressor, Solver
from btnkm.explain import summary


def forge(path, change):
    """Change the ``model.json`` of a file, whose checksum is right again."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    manifest = change(json.loads(members["model.json"]))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        for name, data in {**members, "model.json": json.dumps(manifest)}.items():
            new.writestr(name, data)
        new.comment = b"0" * 64
    body = out.getvalue()[:-64]
    path.write_bytes(body + hashlib.sha256(body).hexdigest().encode())


def refusals(path, X, kinds, others, count, more=()):
    """Put other values into random fields of a file; return how many of these files are refused.

    The fields are those of objects of these ``kinds``, and of the objects ``more`` by number. A
    model that is loaded nevertheless must predict finite means and positive deviations for X.
    """
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as file:
        objects = json.loads(file.read("model.json"))["objects"]
    chosen = [k for k, o in enumerate(objects) if k in more or o["kind"] in kinds]
    fields = [(k, field) for k in chosen for field in objects[k]["fields"]]
    rng, messages = np.random.default_rng(0), []
    for _ in range(count):
        (k, field), other = fields[rng.integers(len(fields))], others[rng.integers(len(others))]

        def put(manifest, k=k, field=field, other=other):
            manifest["objects"][k]["fields"][field] = other
            return manifest

        path.write_bytes(whole)
        forge(path, put)
        try:
            same = btnkm.load(path)
        except ValueError as error:
            messages.append(str(error))
            continue
        mean, std = same.predict(X, return_std=True)
        assert np.all(np.isfinite(mean)), (objects[k]["kind"], field, other)
        assert np.all(std > 0), (objects[k]["kind"], field, other)
        assert str(summary(same)), (objects[k]["kind"], field, other)
    assert all(text.startswith("path must name a model saved by btnkm, got") for text in messages)
    return len(messages)


def table(n, seed):
    """Return a table with numbers, dates and categories, each with missing values."""
    rng = np.random.default_rng(seed)
    size = np.round(rng.uniform(-1.0, 2.0, n), 3)
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    colour = rng.choice(["blue", "green", "red"], n).astype(object)
    X = pd.DataFrame({"size": size, "when": when, "colour": colour})
    for column in X:
        X.loc[rng.random(n) < 0.1, column] = None
    return X


def corpus():
    """Return small models that were fitted in a moment, by name."""
    X, rng = table(60, 0), np.random.default_rng(1)
    f = np.sin(2.0 * X["size"].fillna(0.5)) + (X["colour"] == "red")
    counts = rng.poisson(np.exp(f)).astype(float)
    smooth = f + 0.1 * rng.normal(size=len(f))
    few = {"random_state": 0, "n_jobs": 1, "max_iter": 6}
    poisson = BTNRegressor(likelihood="poisson", structure="sums", n_init=1, **few)
    full = BTNRegressor(structure="full", solver=Solver(full_rows=60), n_init=1, **few)
    train = BTNClassifier(structure="tensor", network="tt", max_rank=2, n_init=2, n_basis=5, **few)
    kinds = np.digitize(smooth, [0.2, 1.2])
    return {
        "poisson": poisson.fit(X[["size", "colour"]], counts),
        "kernel": full.fit(X, smooth),
        "classes": train.fit(X, np.array(["low", "middle", "high"])[kinds]),
    }


def golden(model, rows):
    """Return what a model says of rows and of itself, as plain data."""
    rows = rows[list(model.feature_names_in_)]
    if isinstance(model, BTNClassifier):
        values = {"predict_proba": model.predict_proba(rows)}
    else:
        mean, std = model.predict(rows, return_std=True)
        values = {"predict": mean, "std": std, "interval": model.predict_interval(rows)}
    elbos = [None if np.isnan(sweep["elbo"]) else sweep["elbo"] for sweep in model.history_]
    return {
        **{name: array.tolist() for name, array in values.items()},
        "best_restart": model.best_restart_,
        "elbo": elbos,
        "restarts": [sweep["restart"] for sweep in model.history_],
        "phases": [sweep["phase"] for sweep in model.history_],
        "importances": model.feature_importances_.tolist(),
        "importances_std": model.feature_importances_std_.tolist(),
    }


def main(folder):
    """Write the models and what they predict for rows unlike those of the training."""
    rows = table(8, 2)
    rows.loc[0, "size"], rows.loc[1, "colour"], rows.loc[2, "colour"] = 9.0, "violet", None
    rows.loc[3, "when"], rows.loc[4, "size"] = pd.Timestamp("2030-05-05"), None
    given = rows.assign(when=rows["when"].dt.strftime("%Y-%m-%d"))
    plain = {name: [None if pd.isna(v) else v for v in given[name]] for name in given}
    written = {"rows": plain}
    for name, model in corpus().items():
        path = folder / f"{name}.btn"
        model.save(path)
        packed = gzip.compress(path.read_bytes(), mtime=0)
        (folder / f"{name}.btn.gz").write_bytes(packed)
        path.unlink()
        written[name] = golden(model, rows)
    (folder / "golden.json").write_text(json.dumps(written) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
