"""Code hosts: who sent a webhook, and what it asks for. No models and no settings."""
