"""Documentation drift by meaning: the sections that describe what a change touches.

    documents ─► sections ─┐
    change ─► names, words ┴─► reference, symbol, full text ─► ranked sections ─► `reviewers.document_review`

Pure functions over texts. The mapping rests on the two trees alone: no history is read, so that none that is
purged can change it (guarantee G479).
"""
