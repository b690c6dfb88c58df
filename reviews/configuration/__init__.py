"""`.criticizer.yml`, by which a repository says how it is reviewed: reading and resolving it, without I/O.

    bytes ─► events of YAML, bounded ─► tree with lines ─► one table of keys ─► values, warnings, sources

No file makes a review fail. Where a key that protects cannot be read, its strict reading holds.
"""

FILE_NAMES = (".criticizer.yml", ".criticizer.yaml")  # the first that exists is read
MAX_FILE_BYTES = 65_536
