"""Competitors of the paper, as scikit-learn estimators on the contractions of this library."""

from .literal import LiteralBTN
from .tkrr import TKRR

__all__ = ["TKRR", "LiteralBTN"]
