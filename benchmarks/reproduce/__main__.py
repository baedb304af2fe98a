"""Command line: ``python -m benchmarks.reproduce EXPERIMENT``."""

import sys
from collections.abc import Sequence

from .command import parser, reproduce


def main(arguments: Sequence[str] | None = None) -> int:
    """Run experiments, and return the exit status; what cannot be done is one sentence."""
    try:
        return reproduce(parser().parse_args(arguments))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
