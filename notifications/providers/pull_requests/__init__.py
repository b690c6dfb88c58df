"""The summary of a review on its pull request, and its inline comments."""
