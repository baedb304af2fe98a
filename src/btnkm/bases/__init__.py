"""Bases: the functions of one input, and the few functions that span their products."""

from .base import Basis
from .bspline import BSpline
from .categorical import Categorical
from .chebyshev import Chebyshev
from .fourier import Fourier
from .missing import WithMissing
from .polynomial import Polynomial
from .spiked import Spiked

BASES: dict[str, type[Basis]] = {
    "chebyshev": Chebyshev,
    "polynomial": Polynomial,
    "fourier": Fourier,
    "bspline": BSpline,
    "categorical": Categorical,
}
#: The library's own, which files may hold; a class that is registered later is not among them.
BUILT_IN: tuple[type[Basis], ...] = tuple(BASES.values())

__all__ = [
    "BASES",
    "BSpline",
    "Basis",
    "Categorical",
    "Chebyshev",
    "Fourier",
    "WithMissing",
    "Polynomial",
    "Spiked",
]
