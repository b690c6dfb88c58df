#!/usr/bin/env python
"""Criticizer's command line in a checkout."""

from criticizer.__main__ import main

if __name__ == "__main__":
    main()
