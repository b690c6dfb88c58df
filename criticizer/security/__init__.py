"""Login throttling, re-authentication, headers, encryption, and the secrets of the deployment."""
