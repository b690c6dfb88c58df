"""PostgreSQL: prepared statements, reconnecting, limits, privileges, triggers, the embedded server."""
