"""The audit of access rules: recorded history and its hash chain."""
