"""The environment variables that configure the service: `.env`, reading, validation."""
