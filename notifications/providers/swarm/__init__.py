"""P4 Code Review (Swarm)."""
