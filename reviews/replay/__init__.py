"""Replay of dead-lettered jobs: preflight, dependencies, edits, resolution of deliveries."""
