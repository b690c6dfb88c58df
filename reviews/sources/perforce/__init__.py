"""The Perforce source, through the `p4` command line."""
