"""How close batches, one after the other, come to all rows at once, and to an f that turns."""

import time

import numpy as np

BATCH, BATCHES = 500, 40
TEST_ROWS = 5_000
NOISE = 0.3
TURN = 20  # the batch from which on a drifting f is another one
#: Kinds of streams: what they are about.
STREAMS = {
    "steady": "ten products of two of six inputs each, of falling size",
    "labels": "the same, and whether it exceeds its median",
    "turned": f"one input alone, and from batch {TURN + 1} on the same as steady",
}


def truth(X):
    """Return a function that few rows show the larger half of."""
    f = np.zeros(len(X))
    for k in range(10):
        one, other = X[:, k % 6], X[:, (k + 1 + k // 6) % 6]
        f += 2.0 * 0.6**k * np.sin((1 + k % 3) * one + k) * np.cos(2.0 * other)
    return f


def batch_of(stream, place, split, n=BATCH):
    """Return inputs, targets and f of the batch at a place of a stream."""
    rng = np.random.default_rng([split, place])
    X = rng.uniform(-1.0, 1.0, (n, 6))
    f = X[:, 0] if stream == "turned" and place < TURN else truth(X)
    y = f + NOISE * rng.standard_normal(n)
    return X, y > -0.3 if stream == "labels" else y, f


def scores_of(model, stream, split):
    """Return how well a model knows the stream as it is at its end."""
    X, y, f = batch_of(stream, BATCHES, split, TEST_ROWS)
    if stream == "labels":
        p = model.predict_proba(X)[np.arange(len(y)), y.astype(int)]
        return {"error": float(np.mean(p < 0.5)), "nll": float(-np.mean(np.log(p)))}
    found = model.predict_dist(X)
    low, high = model.predict_interval(X, level=0.9).T
    return {
        "rmse_to_f": float(np.sqrt(np.mean((found.mean - f) ** 2))),
        "nll": float(-np.mean(found.logpdf(y))),
        "coverage_90": float(np.mean((y >= low) & (y <= high))),
    }


def measure_stream(cell):
    """Learn one stream in this process, and score what was learned.

    Parameters
    ----------
    cell : Cell
        The method is "at-once", "first", "stream", "forget" (a stream that forgets) or "sums" (a
        stream whose rows are let go of as soon as they were heard).

    Returns
    -------
    metrics : dict
        See `scores_of`; `fit_seconds`, and `ranks` of the starts.
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
