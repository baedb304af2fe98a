"""``btnkm demo``: a first look, on simulated data or on a data set of scikit-learn."""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import Console, importances
from .options import FilePath, add_output_options, command_parser, output_file

if TYPE_CHECKING:
    from ..data.frames import Frame

SETS = ("heating", "diabetes")
#: Simulated rows are enough to measure coverage well; real ones are few.
TEST_SIZE = {"heating": 0.4, "diabetes": 0.2}
LEVELS = (0.50, 0.90, 0.95)  # ``metrics.COVERAGE_LEVELS``, whose import is slow
_EXAMPLES = """\
  btnkm demo
  btnkm demo --data diabetes -o diabetes.png
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
        "Fit a regressor with default settings to a small data set. Print its error on held-out "
        "rows next to those of ridge regression and gradient boosting, the coverage of its "
        "intervals, and the importance of each input. Draw a picture if matplotlib is installed.",
        _EXAMPLES,
    )
    parser.add_argument(
        "--data", choices=SETS, default=SETS[0], help="data set (default: %(default)s)"
    )
    parser.add_argument(
        "-o",
        "--output",
        action=FilePath,
        type=output_file,
        default=Path("demo.png"),
        metavar="FILE",
        help="file for the picture (default: %(default)s)",
    )
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit, print and draw."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    import btnkm

    from ..explain import sobol_indices

    console = Console(arguments)
    X, y, target, title = load(arguments.data)
    train, test = train_test_split(
        np.arange(len(y)), test_size=TEST_SIZE[arguments.data], random_state=0
    )
    console.say(title)
    sizes = f"{len(train)} rows to train on, {len(test)} to test on, {X.shape[1]} inputs"
    console.say(sizes)
    console.say("Fitting BTNRegressor() with default settings ...\n")
    start = time.perf_counter()
    with console.library():
        model = btnkm.BTNRegressor(random_state=0).fit(X.take(train), y[train])
    seconds = time.perf_counter() - start
    predicted = model.predict_dist(X.take(test))
    result = figures(model, predicted, X, y, train, test) | {"seconds": seconds}
    sobol = sobol_indices(model)
    _print(result, console)
    console.say("\n" + importances(sobol, console.width, len(sobol.names)))
    picture = None
    if find_spec("matplotlib") is None:
        console.note("drawing a picture needs matplotlib; run: pip install 'btnkm[plot]'")
    else:
        picture = str(arguments.output)
        _draw(model, predicted, y[test], target, int(sobol.order[0]), arguments.output)
        console.say(f"\nPicture: {picture}")
    every = zip(sobol.names, sobol.total, sobol.total_std, strict=True)
    inputs = [{"name": name, "importance": a, "importance_std": b} for name, a, b in every]
    console.result({"data": arguments.data, **result, "inputs": inputs, "picture": picture})
    return 0


def load(name: str) -> tuple[Frame, Any, str, str]:
    """Return inputs, targets, the name of the target, and a title."""
    from sklearn.datasets import load_diabetes

    from ..data.frames import Frame
    from ..datasets import make_heating

    if name == "heating":
        columns, y = make_heating(as_frame=False)
        title = "heating: energy used in a day by 2,000 homes, from eight inputs (simulated data)"
        return Frame(columns), y, "energy in kWh", title
    X, y = load_diabetes(return_X_y=True, scaled=False)
    title = "diabetes: progression after one year from ten measurements (real data)"
    columns = dict(zip(_DIABETES_INPUTS, X.T, strict=True))
    return Frame(columns), y, "progression after one year", title


def figures(model: Any, predicted: Any, X: Frame, y: Any, train: Any, test: Any) -> dict[str, Any]:
    """Return error, coverage and structure of a fitted model, and the errors of other methods."""
    import numpy as np

    from ..explain.summary import structure_weights
    from .methods import Boosting, Ridge, Scores

    scores = Scores()
    scores.add(predicted, y[test])
    errors = {}
    for name, method in (("linear", Ridge), ("boosting", Boosting)):
        fitted = method(classify=False, random_state=0).fit(X.take(train), y[train], None)
        error = fitted.predictive(X.take(test)).mean - y[test]
        errors[f"rmse_{name}"] = float(np.sqrt(np.mean(error**2)))
    return {
        **scores.means(),
        **errors,
        "target_std": float(np.std(y[test])),
        "noise_std": model.noise_std_,
        "structures": structure_weights(model),
        "sweeps": model.n_iter_,
        "stop_reason": model.stop_reason_,
    }


def _print(result: dict[str, Any], console: Console) -> None:
    """Print error, coverage and structure."""
    say = console.say
    say("Root mean squared error (RMSE) on the test rows")
    say(f"  btnkm                       {result['rmse']:8.3f}")
    say(f"  gradient boosting           {result['rmse_boosting']:8.3f}")
    say(f"  ridge regression            {result['rmse_linear']:8.3f}")
    say(f"  standard deviation of y     {result['target_std']:8.3f}")
    say("\nPredictive distribution on the test rows")
    say(f"  mean negative log density   {result['nll']:8.3f}")
    for level in LEVELS:
        coverage = result[f"coverage_{level * 100:.0f}"]
        say(f"  coverage of {level:.0%} intervals   {coverage:8.1%}")
    say("\nThe fit")
    for name, weight in result["structures"].items():
        if weight:
            say(f"  {f'weight of {name}':27s} {weight:8.1%}")
    say(f"  noise standard deviation    {result['noise_std']:8.3f}")
    say(f"  sweeps                      {result['sweeps']:8d}  ({result['stop_reason']})")
    say(f"  seconds                     {result['seconds']:8.2f}")


def _draw(model: Any, predicted: Any, y: Any, target: str, first: int, path: Path) -> None:
    """Draw predictions, the importances, and the effect of the most important input."""
    from matplotlib.figure import Figure

    from ..explain import plot_effects, plot_importances
    from ..io.atomic_write import whole_file

    figure = Figure(figsize=(14, 4.4), layout="constrained")  # of no window: it needs no display
    left, middle, right = figure.subplots(1, 3)
    low, high = predicted.interval(0.90).T
    error = {"xerr": (predicted.mean - low, high - predicted.mean), "ecolor": "lightsteelblue"}
    left.errorbar(predicted.mean, y, fmt="o", markersize=4, **error)
    left.axline((y.mean(), y.mean()), slope=1.0, color="black", linewidth=1)
    left.set(xlabel=f"predicted {target}, 90% intervals", ylabel=f"observed {target}")
    left.spines[["top", "right"]].set_visible(False)
    plot_importances(model, ax=middle)
    plot_effects(model, [first], axes=right)
    right.set_ylabel(f"effect on {target}, 95% band")
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=150)
