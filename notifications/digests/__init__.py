"""Digests: several reviews in one message."""
