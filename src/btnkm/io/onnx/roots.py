"""Square roots of symmetric matrices, for which ONNX has no operator: Jacobi's rotations."""

from __future__ import annotations

import numpy as np

from .graph import Graph, Value

Array = np.ndarray
SWEEPS = 10  # over all pairs; rotations converge quadratically, and six do for twenty columns


def square_root(graph: Graph, matrices: Value, size: int) -> Value:
    """Return the symmetric root of each matrix, negative eigenvalues taken for zero: (n, R, R).

    In each round every column is turned together with one other, so that the number between them
    vanishes; after all rounds every two have met.
    """
    if size == 1:
        return graph.node("Sqrt", graph.node("Max", matrices, 0.0))
    meetings = _rounds(size)
    ends = np.array([[a for a, _ in pairs] for pairs in meetings])
    others = np.array([[b for _, b in pairs] for pairs in meetings])
    count, half = ends.shape
    # which numbers of a matrix a round looks at, and where sines and cosines go in a rotation
    looks, cosines = np.zeros((count, size**2, 3 * half)), np.zeros((count, half, size**2))
    sines, rest = np.zeros_like(cosines), np.zeros((count, 1, size**2))
    for t in range(count):
        rest[t, 0] = np.eye(size).ravel()
        for i, (a, b) in enumerate(zip(ends[t], others[t], strict=True)):
            for k, place in enumerate((a * size + a, b * size + b, a * size + b)):
                looks[t, place, k * half + i] = 1.0
            for place in (a * size + a, b * size + b):
                cosines[t, i, place], rest[t, 0, place] = 1.0, 0.0
            sines[t, i, a * size + b], sines[t, i, b * size + a] = 1.0, -1.0
    body = graph.inner()
    number, _ = body.argument("i"), body.argument("b")
    a, v = body.argument("f", "n", size, size), body.argument("f", "n", size, size)
    now = body.node("Mod", number, np.array(count))
    look, cosine, sine, still = (
        body.node("Gather", table, now, axis=0) for table in (looks, cosines, sines, rest)
    )
    seen = a.reshaped(-1, size**2) @ look
    first, second, between = (seen.columns(np.arange(k * half, (k + 1) * half)) for k in range(3))
    apart = second - first
    twice = 2.0 * between
    size_of = body.node("Abs", apart) + body.node("Sqrt", apart * apart + twice * twice)
    alike = body.node("LessOrEqual", size_of, 0.0)  # and nothing between them
    sign = body.where(body.node("LessOrEqual", 0.0, apart), 1.0, -1.0)
    tangent = body.where(alike, 0.0, sign * twice / body.where(alike, 1.0, size_of))
    c = 1.0 / body.node("Sqrt", 1.0 + tangent * tangent)
    turn = (c @ cosine + (tangent * c) @ sine + still).reshaped(-1, size, size)
    results = [turn.turned() @ a @ turn, v @ turn]
    # the identity, as often as there are matrices
    begin = 0.0 * matrices + np.eye(size)[None]
    turned, turns = graph.loop(SWEEPS * count, body, results, [matrices, begin])
    diagonal = (turned * np.eye(size)[None]) @ np.ones((size, 1))
    roots = graph.node("Sqrt", graph.node("Max", diagonal, 0.0)).reshaped(-1, 1, size)
    return (turns * roots) @ turns.turned()


def _rounds(size: int) -> list[list[tuple[int, int]]]:
    """Return rounds of pairs in which every two meet once, as in a tournament."""
    players = list(range(size + size % 2))
    rounds = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        pairs = zip(players[:half], players[: half - 1 : -1], strict=True)
        rounds.append([(min(p), max(p)) for p in pairs if max(p) < size])
        players = [players[0], players[-1], *players[1:-1]]
    return rounds
