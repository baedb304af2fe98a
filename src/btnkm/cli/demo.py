"""``btnkm demo``: a first look, with a data set that comes with scikit-learn."""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import Console, shares
from .options import add_output_options, command_parser, output_file

if TYPE_CHECKING:
    from ..data.frames import Frame

SETS = ("diabetes", "friedman1")
LEVELS = (0.50, 0.90, 0.95)
_EXAMPLES = """\
  btnkm demo
  btnkm demo --data friedman1 -o friedman1.png
"""
_DIABETES_INPUTS: tuple[str, ...] = (
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
    import numpy as np
    from sklearn.model_selection import train_test_split

    import btnkm

    from ..explain import sobol_indices

    console = Console(arguments)
    X, y, target, title = load(arguments.data)
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=0)
    console.say(title)
    sizes = f"{len(train)} rows to learn from, {len(test)} to test on, {X.shape[1]} inputs"
    console.say(sizes)
    console.say("Fitting BTNRegressor() at its defaults ...\n")
    start = time.perf_counter()
    with console.library():
        model = btnkm.BTNRegressor(random_state=0).fit(X.take(train), y[train])
    seconds = time.perf_counter() - start
    said = model.predict_dist(X.take(test))
    found = figures(model, said, X, y, train, test) | {"seconds": seconds}
    shared = sobol_indices(model)
    _tell(found, len(shared.names), console)
    console.say("\n" + shares(shared, console.width, len(shared.names)))
    picture = None
    if find_spec("matplotlib") is None:
        console.note("no picture is drawn without matplotlib; run: pip install 'btnkm[plot]'")
    else:
        picture = str(arguments.output)
        _draw(model, said, y[test], target, int(shared.order[0]), arguments.output)
        console.say(f"\nPicture: {picture}")
    every = zip(shared.names, shared.total, shared.total_std, strict=True)
    inputs = [{"name": name, "share": a, "share_std": b} for name, a, b in every]
    console.result({"data": arguments.data, **found, "inputs": inputs, "picture": picture})
    return 0


def load(name: str) -> tuple[Frame, Any, str, str]:
    """Return inputs, targets, what the target is called, and a title."""
    from sklearn.datasets import load_diabetes, make_friedman1

    from ..data.frames import Frame

    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True, scaled=False)
        inputs, target = _DIABETES_INPUTS, "progression after one year"
        title = "diabetes: progression after one year from ten measurements (real data)"
    else:
        X, y = make_friedman1(n_samples=1000, noise=1.0, random_state=0)
        inputs, target = tuple(f"x{d + 1}" for d in range(X.shape[1])), "y"
        title = "Friedman's first function: y depends on x1 to x5, not on x6 to x10 (made-up data)"
    return Frame(dict(zip(inputs, X.T, strict=True))), y, target, title


def figures(model: Any, said: Any, X: Frame, y: Any, train: Any, test: Any) -> dict[str, Any]:
    """Return error, calibration and structure of a fitted model."""
    import numpy as np
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from .scores import Scores

    table = np.column_stack(list(X.columns.values()))
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
    gaps = ridge.fit(table[train], y[train]).predict(table[test]) - y[test]
    scores = Scores()
    scores.add(said, y[test])
    return {
        **scores.found(),
        "rmse_linear": float(np.sqrt(np.mean(gaps**2))),
        "target_std": float(np.std(y[test])),
        "rank": float(np.mean(model.rank_)),
        "n_basis": int(model.n_basis_.sum()),
        "noise_std": model.noise_std_,
        "sweeps": model.n_iter_,
        "stop_reason": model.stop_reason_,
    }


def _tell(found: dict[str, Any], inputs: int, console: Console) -> None:
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
    say(f"  basis functions kept        {found['n_basis']:8.4g}  over {inputs} inputs")
    say(f"  noise standard deviation    {found['noise_std']:8.3f}")
    say(f"  sweeps                      {found['sweeps']:8d}  ({found['stop_reason']})")
    say(f"  seconds                     {found['seconds']:8.2f}")


def _draw(model: Any, said: Any, y: Any, target: str, first: int, path: Path) -> None:
    """Draw predictions against truth, what matters, and the effect of what matters first."""
    from matplotlib.figure import Figure

    from ..explain import plot_effects, plot_importances
    from ..io.atomic_write import whole_file

    figure = Figure(figsize=(14, 4.4), layout="constrained")  # of no window: it needs no display
    left, middle, right = figure.subplots(1, 3)
    low, high = said.interval(0.90).T
    error = {"xerr": (said.mean - low, high - said.mean), "ecolor": "lightsteelblue"}
    left.errorbar(said.mean, y, fmt="o", markersize=4, **error)
    left.axline((y.mean(), y.mean()), slope=1.0, color="black", linewidth=1)
    left.set(xlabel=f"predicted {target}, 90% intervals", ylabel=f"observed {target}")
    left.spines[["top", "right"]].set_visible(False)
    plot_importances(model, ax=middle)
    plot_effects(model, [first], axes=right)
    right.set_ylabel(f"effect on {target}, 95% band")
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=150)
