"""A bound on the work that one page may cost, whatever its lines hold."""

from __future__ import annotations


class Budget:
    """The steps that the parts of a page may take together: hostile ones take no longer than others."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> bool:
        """Take steps; return whether there were enough left."""
        self.left -= steps
        return self.left >= 0
