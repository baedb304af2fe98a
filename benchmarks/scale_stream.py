"""Streams in batches: how close they come to a fit of all rows, and how they follow a change."""

import time

import numpy as np

BATCH, BATCHES = 500, 40
TEST_ROWS = 5_000
NOISE = 0.3
TURN = 20  # the batch from which on the function of "turned" is another one
#: Kinds of streams.
STREAMS = {
    "steady": "ten products of two of six inputs each, of decreasing size",
    "labels": "whether the same exceeds a threshold",
    "turned": f"one input alone, and from batch {TURN + 1} on the same as steady",
}


def truth(X):
    """Return the sum of ten products; few rows show only the larger ones."""
    f = np.zeros(len(X))
    for k in range(10):
        a, b = X[:, k % 6], X[:, (k + 1 + k // 6) % 6]
        f += 2.0 * 0.6**k * np.sin((1 + k % 3) * a + k) * np.cos(2.0 * b)
    return f


def batch_of(stream, place, split, n=BATCH):
    """Return inputs, targets and f of a batch, by its place in the stream."""
    rng = np.random.default_rng([split, place])
    X = rng.uniform(-1.0, 1.0, (n, 6))
    f = X[:, 0] if stream == "turned" and place < TURN else truth(X)
    y = f + NOISE * rng.standard_normal(n)
    return X, y > -0.3 if stream == "labels" else y, f


def scores_of(model, stream, split):
    """Return the scores of a model on new rows from the end of the stream."""
    X, y, f = batch_of(stream, BATCHES, split, TEST_ROWS)
    if stream == "labels":
        p = model.predict_proba(X)[np.arange(len(y)), y.astype(int)]
        return {"error": float(np.mean(p < 0.5)), "nll": float(-np.mean(np.log(p)))}
    dist = model.predict_dist(X)
    low, high = model.predict_interval(X, level=0.9).T
    return {
        "rmse_to_f": float(np.sqrt(np.mean((dist.mean - f) ** 2))),
        "nll": float(-np.mean(dist.logpdf(y))),
        "coverage_90": float(np.mean((y >= low) & (y <= high))),
    }


def measure_stream(cell):
    """Fit one stream in this process, and score the model.

    Parameters
    ----------
    cell : Cell
        The method is "at-once", "first", "stream", "forget" (with ``forget`` below 1) or "sums" (a
        stream that keeps no rows).

    Returns
    -------
    metrics : dict
        See `scores_of`; `fit_seconds`, and `ranks` of the restarts.
    """
    from btnkm import BTNClassifier, BTNRegressor, streaming

    config = dict(cell.config)
    forget = {"forget": config.pop("forget")} if "forget" in config else {}
    model = (BTNClassifier if cell.dataset == "labels" else BTNRegressor)(**config)
    batches = [batch_of(cell.dataset, k, cell.split)[:2] for k in range(BATCHES)]
    begin = time.perf_counter()
    if cell.method == "at-once":
        model.fit(*(np.concatenate(part) for part in zip(*batches, strict=True)))
    elif cell.method == "first":
        model.fit(*batches[0])
    else:
        if cell.method == "sums":
            streaming.WINDOW = 0
        for X, y in batches:
            model.partial_fit(X, y, **forget)
    seconds = time.perf_counter() - begin
    scores = scores_of(model, cell.dataset, cell.split)
    return scores | {"fit_seconds": seconds, "ranks": model.ranks_.tolist()}
