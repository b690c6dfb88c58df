"""The outbox that is the work queue, its django-q2 broker, leases and periodic tasks."""
