"""Retention of dead letters: policy, archive files, orphaned files."""
