"""Gitea and Forgejo, whose webhooks and pull requests resemble GitHub's."""
