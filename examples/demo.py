"""Fit a Bayesian tensor-network kernel machine at its defaults and show what it found.

Run ``python examples/demo.py``; it is the command ``btnkm demo``, and needs no download.
"""

import sys

from btnkm.cli.program import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
