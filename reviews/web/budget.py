"""A bound on the work that one page may cost, whatever its lines hold."""

from __future__ import annotations


class Budget:
    """Steps that the parts of a page may take together.

    Hostile parts take no longer than others.
    """

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.refused = 0  # how often there were not enough

    def spend(self, steps: int) -> bool:
        """Take steps; return whether there were enough left.

        Refused steps are left for smaller parts.
        """
        is_enough = steps <= self.left
        self.left -= steps if is_enough else 0
        self.refused += not is_enough
        return is_enough
