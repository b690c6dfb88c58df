"""Admin of deliveries, providers and suppressions. Importing this package registers it."""

from notifications.admin import deliveries, suppressions
