"""The text that rules read: diff sides, normalized characters, logical lines, joined literals."""
