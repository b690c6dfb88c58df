"""Tasks for agents of the customer: the only writer of their states.

    offer ─► claim, heartbeat, release ─► submit ─► the last final task makes its stage due
                                            expire ─┘  also cancels, and obeys operators

Each transition is one guarded UPDATE. The database's clock decides. Statements that may end a task lock its
stage first, then the task.
"""
