"""Settings of the drill: the product's own, with a stage notify that knows two mail servers."""

from benchmarks.settings import *  # noqa: F403

# Their own, of a call or two a second, would make a run of hundreds of calls too long.
RATE_LIMITS = {**RATE_LIMITS, "github": 50.0, "gitea": 50.0, "gitlab": 50.0}  # noqa: F405
STAGES = {**STAGES, "notify": ("benchmarks.drill_stages.notify", STAGES["notify"][1])}  # noqa: F405
