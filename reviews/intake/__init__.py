"""Ways in for changes: requests, source events, polling, API keys."""
