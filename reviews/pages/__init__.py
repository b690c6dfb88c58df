"""The reviewers' pages: what they show, and what their buttons do."""
