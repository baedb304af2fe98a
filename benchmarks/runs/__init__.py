"""Many measurements: cells, worker processes, results on disk, scores."""
