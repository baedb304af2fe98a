"""Configuration of Sphinx: ``make docs``, or sphinx-build -W -n docs docs/_build/html."""

import os
import re
import sys
from contextlib import redirect_stdout, suppress
from functools import cached_property
from importlib import import_module
from io import StringIO
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for gallery_conf.py beside this file

# Fits use one thread, so that two examples can be built in parallel.
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

from btnkm import __version__  # noqa: E402  (NumPy must not be loaded before)


def members_of_public_classes():
    """Return methods and properties of every public class, without those from scikit-learn."""
    members = {}
    modules = ("btnkm", "btnkm.bases", "btnkm.likelihoods", "btnkm.explain", "btnkm.baselines")
    for module in modules:
        for name in import_module(module).__all__:
            kind = getattr(import_module(module), name)
            if isinstance(kind, type):
                members[f"{module}.{name}"] = _members(kind)
    return members


def _members(kind):
    """Return the names of public methods and properties, own ones before inherited ones."""
    methods, properties = [], []
    for owner in kind.__mro__:
        if not owner.__module__.startswith("btnkm."):
            continue
        for name, value in vars(owner).items():
            if name.startswith("_") or name in methods or name in properties:
                continue
            if isinstance(value, property | cached_property):
                properties.append(name)
            elif callable(value) or isinstance(value, classmethod | staticmethod):
                methods.append(name)
    return methods, properties


project = "btnkm"
author = "the btnkm developers"
copyright = f"2026, {author}"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas without a network connection
    "myst_parser",
    "numpydoc",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "reproduction/*.md",
    "gallery/*.ipynb",
    "gallery/*.py",
    "gallery/*.zip",
]
templates_path = ["_templates"]
nitpicky = True

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # docstrings have types and shapes
autodoc_member_order = "bysource"
autosummary_generate = True
autosummary_context = {"members_of": members_of_public_classes()}
numpydoc_show_class_members = False  # templates list them
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"  # types are words such as "array of shape (n,)", except these names
numpydoc_xref_aliases = {
    "ndarray": "numpy.ndarray",
    "RandomState": "numpy.random.RandomState",
    "DataFrame": "pandas.DataFrame",
    "Bunch": "sklearn.utils.Bunch",
    "csr_array": "scipy.sparse.csr_array",
    "bool": "bool",
    "dict": "dict",
    "float": "float",
    "int": "int",
    "list": "list",
    "None": "None",
    "str": "str",
    "tuple": "tuple",
    "Basis": "btnkm.bases.Basis",
    "BTNRegressor": "btnkm.BTNRegressor",
    "BTNClassifier": "btnkm.BTNClassifier",
    "Gamma": "btnkm.Gamma",
    "Likelihood": "btnkm.likelihoods.Likelihood",
    "PredictiveDistribution": "btnkm.PredictiveDistribution",
}
numpydoc_xref_aliases |= {
    name: f"btnkm.explain.{name}"
    for name in import_module("btnkm.explain").__all__
    if name[0].isupper()
}
#: Documentation of names of other projects. Intersphinx would need a network connection.
ELSEWHERE = {
    "numpy.ndarray": "https://numpy.org/doc/stable/reference/generated/numpy.ndarray.html",
    "numpy.random.RandomState": "https://numpy.org/doc/stable/reference/random/legacy.html",
    "numpy.memmap": "https://numpy.org/doc/stable/reference/generated/numpy.memmap.html",
    "pandas.DataFrame": "https://pandas.pydata.org/docs/reference/frame.html",
    "scipy.sparse.csr_array": (
        "https://docs.scipy.org/doc/scipy/reference/generated/scipy.sparse.csr_array.html"
    ),
    "sklearn.utils.Bunch": (
        "https://scikit-learn.org/stable/modules/generated/sklearn.utils.Bunch.html"
    ),
    "None": "https://docs.python.org/3/library/constants.html#None",
    "callable": "https://docs.python.org/3/library/functions.html#callable",
    "iterable": "https://docs.python.org/3/glossary.html#term-iterable",
    "sequence": "https://docs.python.org/3/glossary.html#term-sequence",
    "bool": "https://docs.python.org/3/library/functions.html#bool",
    "dict": "https://docs.python.org/3/library/stdtypes.html#dict",
    "float": "https://docs.python.org/3/library/functions.html#float",
    "int": "https://docs.python.org/3/library/functions.html#int",
    "list": "https://docs.python.org/3/library/stdtypes.html#list",
    "str": "https://docs.python.org/3/library/stdtypes.html#str",
    "tuple": "https://docs.python.org/3/library/stdtypes.html#tuple",
}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "ignore_pattern": r"^(?!.*plot_)",
    "within_subsection_order": "gallery_conf.Order",
    "reset_modules": ("gallery_conf.apply_style",),
    "reference_url": {},
    "image_srcset": ["2x"],
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 1e9,  # times differ between builds
    "show_memory": False,
    "write_computation_times": False,
    "abort_on_example_error": False,
    "parallel": 2,
}

toc_object_entries_show_parents = "hide"
html_theme = "pydata_sphinx_theme"
html_title = "btnkm"
html_static_path = ["_static"]
html_css_files = ["btnkm.css"]
html_extra_path = ["_extra"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {
        "image_light": "_static/logo-light.svg",
        "image_dark": "_static/logo-dark.svg",
        "alt_text": "btnkm",
    },
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "gallery/index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "pygments_light_style": "github-light",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"index": [], "compare": [], "install": [], "gallery/**": []}


#: Files of the repository that are included in a page. Links to them lead to that page.
PAGES = {
    "examples/GALLERY_HEADER.rst": "/gallery/index.rst",
    "GLOSSARY.md": "/project/glossary.md",
    "CHANGELOG.md": "/project/changelog.md",
    "CONTRIBUTING.md": "/project/contributing.md",
    "CITATION.cff": "/project/citing.md",
    "benchmarks/README.md": "/project/benchmarks.md",
}


class ProgramHelp(SphinxDirective):
    """Show the help of a command of the program."""

    required_arguments = 1

    def run(self):
        """Return the help as a literal block."""
        from btnkm.cli.program import main

        os.environ["COLUMNS"] = "82"  # the width that btnkm.css allows, with its margin
        printed = StringIO()
        with redirect_stdout(printed), suppress(SystemExit):
            main([self.arguments[0], "--help"])
        text = printed.getvalue()
        if not text.startswith(f"usage: btnkm {self.arguments[0]}"):
            raise self.error(
                f"the directive must name a command of btnkm, got {self.arguments[0]!r}"
            )
        return [nodes.literal_block(text, text, language="text", classes=["program-help"])]


def make_report(folder):
    """Write the example report of the guide, unless it exists."""
    from btnkm import BTNRegressor
    from btnkm.datasets import make_heating

    place = folder / "report.html"
    if not place.exists():
        folder.mkdir(exist_ok=True)
        X, y = make_heating()
        model = BTNRegressor(n_init=2, random_state=0).fit(X[:1200], y[:1200])
        model.report(place, X[1200:], y[1200:], title="Energy used by homes (simulated data)")


def relink(app, docname, source):
    """Replace links to files of the repository by links to their pages."""

    def page(link):
        example = re.fullmatch(r"examples/(plot_\w+)\.py", link[1])
        place = f"/gallery/{example[1]}.rst" if example else PAGES.get(link[1])
        return link[0] if place is None else f"]({place})"

    source[0] = re.sub(r"\]\((?:\.\./)+([\w./-]+)\)", page, source[0])


def resolve_elsewhere(app, env, node, contnode):
    """Return a link to the documentation of a name of another project, or None."""
    place = ELSEWHERE.get(node.get("reftarget", "").removeprefix("python:"))
    if place is None:
        return None
    return nodes.reference("", "", contnode, internal=False, refuri=place)


def setup(app):
    """Connect the functions of this file to Sphinx."""
    make_report(HERE / "_extra")
    app.add_directive("program-help", ProgramHelp)
    app.connect("source-read", relink)
    app.connect("missing-reference", resolve_elsewhere)
