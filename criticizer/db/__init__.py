"""PostgreSQL: statements, reconnecting, limits, privileges, triggers, embedded server."""
