"""Replay of dead-lettered jobs: checks, edits, effects, and the resolution of deliveries."""
