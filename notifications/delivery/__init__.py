"""Exactly-once delivery: prepare, send, record, and decide what is uncertain."""
