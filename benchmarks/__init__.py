"""Benchmarks: one runnable file per figure, peers beside us in one run (docs/benchmarks.md)."""
