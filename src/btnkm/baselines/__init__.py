"""Competitors of the paper, as scikit-learn estimators on the contractions of this library."""

from .gp import ExactGP
from .literal import LiteralBTN
from .spbtn import SPBTN
from .tkrr import TKRR

__all__ = ["SPBTN", "TKRR", "ExactGP", "LiteralBTN"]
