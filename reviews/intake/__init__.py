"""Intake of changes: requests, source events, polling, API keys."""
