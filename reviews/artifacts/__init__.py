"""Encrypted artifacts: storage, audited reading, integrity."""
