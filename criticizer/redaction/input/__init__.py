"""Text as rules read it: diff sides, normalized characters, logical lines, joined literals."""
