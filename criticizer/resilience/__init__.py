"""Failures, retries, circuit breakers, rate limits and health checks of dependencies."""
