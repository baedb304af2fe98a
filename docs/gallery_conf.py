"""Order and plot style of the examples in the gallery."""

#: The examples in reading order. The build fails if one is missing here.
ORDER = (
    "plot_first_fit.py",
    "plot_intervals.py",
    "plot_categories.py",
    "plot_classification.py",
    "plot_explain.py",
    "plot_big_data.py",
    "plot_tensor_train.py",
    "plot_custom_basis.py",
    "plot_from_gp.py",
    "plot_from_boosting.py",
)
INK, GRID, FAINT = "#1f2937", "#e5e7eb", "#9ca3af"
STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": FAINT,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.prop_cycle": (
        "cycler('color', ['2b59c3', 'e4793a', '1f9e89', '8e5ea2', 'd3a11d', '6b7280'])"
    ),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "figure.figsize": (7.6, 3.9),
    "font.size": 9.5,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.9,
    "lines.solid_capstyle": "round",
    "patch.linewidth": 0,
    "savefig.facecolor": "white",
    "text.color": INK,
    "xtick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.color": FAINT,
    "ytick.labelcolor": INK,
}


class Order:
    """Sort the examples of a folder by ``ORDER``."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, name):
        """Return the position of an example."""
        return ORDER.index(name)


def apply_style(gallery_conf, name):
    """Reset the plot style, which the previous example may have changed."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcdefaults()
    matplotlib.use("agg")
    matplotlib.rcParams.update(STYLE)
