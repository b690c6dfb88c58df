"""Worker processes: supervisor, watchdog, maintenance, subprocesses."""
