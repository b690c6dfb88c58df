"""GitLab, whose merge requests are pull requests here."""
