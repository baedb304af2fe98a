"""``btnkm demo``: a first look, with a data set that comes with scikit-learn."""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .console import Console, shares
from .options import add_output_options, command_parser, output_file

SETS = ("diabetes", "friedman1")
LEVELS = (0.50, 0.90, 0.95)
_EXAMPLES = """\
  btnkm demo
  btnkm demo --data friedman1 -o friedman1.png
"""
_DIABETES_INPUTS = (
    "age",
    "sex",
    "body mass index",
    "blood pressure",
    "total cholesterol",
    "LDL cholesterol",
    "HDL cholesterol",
    "cholesterol / HDL",
    "log triglycerides",
    "blood sugar",
)


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "demo",
        "Fit a regressor at its defaults to a data set that comes with scikit-learn, tell how well "
        "it predicts rows it has not seen, how honest its intervals are and what matters, and draw "
        "a picture (with matplotlib).",
        _EXAMPLES,
    )
    parser.add_argument("--data", choices=SETS, default=SETS[0], help="(default: %(default)s)")
    parser.add_argument(
        "-o",
        "--output",
        type=output_file,
        default=Path("demo.png"),
        metavar="FILE",
        help="where the picture goes (default: %(default)s)",
    )
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit, tell and draw."""
    from sklearn.model_selection import train_test_split

    import btnkm

    console = Console(arguments)
    X, y, inputs, target, title = load(arguments.data)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0)
    console.say(title)
    sizes = f"{len(y_train)} rows to learn from, {len(y_test)} to test on, {X.shape[1]} inputs"
    console.say(sizes)
    console.say("Fitting BTNRegressor() at its defaults ...\n")
    start = time.perf_counter()
    with console.library():
        model = btnkm.BTNRegressor(random_state=0).fit(X_train, y_train)
    seconds = time.perf_counter() - start
    said = model.predict_dist(X_test)
    found = figures(model, said, (X_train, y_train, X_test, y_test)) | {"seconds": seconds}
    _tell(found, inputs, console)
    picture = None
    if find_spec("matplotlib") is None:
        console.note("no picture is drawn without matplotlib; run: pip install 'btnkm[plot]'")
    else:
        from ..files.whole import whole_file
        from .demo_picture import draw

        picture = str(arguments.output)
        with whole_file(arguments.output) as path:
            draw(model, said, (X_train, y_train, y_test), inputs, target, path)
        console.say(f"\nPicture: {picture}")
    named = {name: found.pop(name) for name in ("relevance", "relevance_std")}
    every = zip(inputs, *named.values(), strict=True)
    listed = [{"name": name, "share": a, "share_std": b} for name, a, b in every]
    console.result({"data": arguments.data, **found, "inputs": listed, "picture": picture})
    return 0


def load(name: str) -> tuple[Any, Any, Any, str, str]:
    """Return inputs, targets, names of the inputs and of the target, and a title."""
    from sklearn.datasets import load_diabetes, make_friedman1

    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True, scaled=False)
        title = "diabetes: progression after one year from ten measurements (real data)"
        return X, y, _DIABETES_INPUTS, "progression after one year", title
    X, y = make_friedman1(n_samples=1000, noise=1.0, random_state=0)
    inputs = tuple(f"x{d + 1}" for d in range(X.shape[1]))
    title = "Friedman's first function: y depends on x1 to x5, not on x6 to x10 (made-up data)"
    return X, y, inputs, "y", title


def figures(model: Any, said: Any, rows: tuple[Any, ...]) -> dict[str, Any]:
    """Return error, calibration and structure of a fitted model."""
    import numpy as np
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from .scores import Scores

    X_train, y_train, X_test, y_test = rows
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
    gaps = ridge.fit(X_train, y_train).predict(X_test) - y_test
    scores = Scores()
    scores.add(said, y_test)
    return {
        **scores.found(),
        "rmse_linear": float(np.sqrt(np.mean(gaps**2))),
        "target_std": float(np.std(y_test)),
        "rank": float(np.mean(model.rank_)),
        "n_basis": int(model.n_basis_.sum()),
        "noise_std": model.noise_std_,
        "sweeps": model.n_iter_,
        "stop_reason": model.stop_reason_,
        "relevance": model.feature_relevance_.tolist(),
        "relevance_std": model.feature_relevance_std_.tolist(),
    }


def _tell(found: dict[str, Any], inputs: Any, console: Console) -> None:
    """Print error, calibration and structure."""
    say = console.say
    say("Error on the test rows (root mean square)")
    say(f"  btnkm                       {found['rmse']:8.3f}")
    say(f"  linear ridge                {found['rmse_linear']:8.3f}")
    say(f"  standard deviation of y     {found['target_std']:8.3f}")
    say("\nHow honest are the predicted distributions?")
    say(f"  mean negative log density   {found['nll']:8.3f}")
    for level in LEVELS:
        share = found[f"coverage_{level * 100:.0f}"]
        say(f"  {level:.0%} intervals hold         {share:8.1%}  of the test rows")
    say("\nWhat the fit decided by itself")
    say(f"  rank                        {found['rank']:8.3g}")
    say(f"  basis functions kept        {found['n_basis']:8.4g}  over {len(inputs)} inputs")
    say(f"  noise standard deviation    {found['noise_std']:8.3f}")
    say(f"  sweeps                      {found['sweeps']:8d}  ({found['stop_reason']})")
    say(f"  seconds                     {found['seconds']:8.2f}")
    say("\nRelevance of the inputs (share of the total, ± one standard deviation)")
    say(shares(inputs, found["relevance"], found["relevance_std"], console.width, len(inputs)))
