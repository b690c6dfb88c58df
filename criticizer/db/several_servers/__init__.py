"""Django's PostgreSQL backend for a DATABASE_URL that names several servers."""
