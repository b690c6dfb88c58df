"""Rules that find secrets, by issuer, name, syntax, or randomness."""
