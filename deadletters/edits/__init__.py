"""Edits of a job's data before its replay."""
