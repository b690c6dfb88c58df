"""Webhooks, and the policy that keeps them out of internal networks."""
