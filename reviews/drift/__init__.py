"""Documentation drift: does a change make a sentence of a document untrue?

    document ─► page ─► claims ─┐
    tree before, tree after ────┴─► verdict before, verdict after ─► what the change made untrue

Pure functions over two trees (`trees.Tree`). Nothing of a repository is run, no address is opened and no
model is asked. A claim is reported where it held before the change and is refuted after it, or where the
change itself makes it and it is refuted at once (guarantee G470).
"""
