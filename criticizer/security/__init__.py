"""Login throttling, re-authentication, headers, encryption, and configured secrets."""
