"""Benchmarks of btnkm: suites, a resumable runner and tables.

Run from the root of the checkout with ``python -m benchmarks``.
"""
