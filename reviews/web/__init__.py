"""The reviewers' web pages."""
