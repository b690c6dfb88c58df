"""Settings of the drill: the product's own, with a stage notify that knows two mail servers."""

from benchmarks.settings import *  # noqa: F403

STAGES = {**STAGES, "notify": ("benchmarks.drill_stages.notify", STAGES["notify"][1])}  # noqa: F405
