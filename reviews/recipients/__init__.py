"""Recipients of a review: resolution, subscriptions, viewing scopes, reports per recipient."""
