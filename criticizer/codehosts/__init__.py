"""Code hosts: who sent a webhook and what it asks for, and what we say there. No models and no settings."""
