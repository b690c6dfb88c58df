"""The operators' desk: lists, pages and deeds of groups, letters, batches and edits."""
