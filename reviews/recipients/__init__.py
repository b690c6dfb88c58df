"""Recipients of a review: resolution, subscriptions, viewing scopes, visibility."""
