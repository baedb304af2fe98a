"""Structures: what a model may be made of, which are compared, and their weights."""
