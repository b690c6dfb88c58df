"""Gitea and Forgejo, whose webhooks and pull requests are much like GitHub's."""
