"""Suppressed addresses, and the reports of mail services that suppress them."""
