"""Code hosts: reading of their webhooks, and calls of their APIs. No models, no settings."""
