"""Preferences of recipients, and their unsubscribe links."""
