"""Edits of a dead letter before its replay."""
