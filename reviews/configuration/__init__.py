"""Reads and resolves `.criticizer.yml`, by which a repository says how it is reviewed.

    bytes ─► events of YAML, bounded ─► tree with lines ─► one table of keys ─► values, warnings, sources

Nothing here does I/O. No file makes a review fail. A key that protects and cannot be read takes its strict
reading.
"""

FILE_NAMES = (".criticizer.yml", ".criticizer.yaml")  # the first that exists is read
MAX_FILE_BYTES = 65_536
