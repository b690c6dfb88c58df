"""This room in the console: what its admin is made of."""
