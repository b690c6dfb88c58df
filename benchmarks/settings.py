"""Settings of the benchmarks: the product's own, under a fixed environment.

`benchmarks.ground` sets what is needed before this is imported and hands it on to the
processes it starts: CRITICIZER_DATA_DIR (temporary), BENCHMARK_DATABASE, BENCHMARK_STAGES (a
module whose functions replace the stages, all on the queue `stages` unless BENCHMARK_QUEUES is set),
BENCHMARK_URLCONF.
"""

import os

from criticizer.environment import dotenv

# A .env of this checkout names somebody's real database and model.
os.environ[dotenv.IGNORED] = "1"

from criticizer.db.embedded import OWNER
from criticizer.settings import *  # noqa: F403

DATABASES["default"]["NAME"] = os.environ.get("BENCHMARK_DATABASE", "criticizer")  # noqa: F405

DATABASES["default"]["USER"] = OWNER  # noqa: F405  peers beside us make tables of their own

if _stages := os.environ.get("BENCHMARK_STAGES"):
    _own = "BENCHMARK_QUEUES" in os.environ
    STAGES = {
        stage: (f"{_stages}.{stage}", queue if _own else "stages")
        for stage, (_, queue) in STAGES.items()  # noqa: F405
    }
if os.environ.get("BENCHMARK_SYNCHRONOUS"):
    # One process per call: the stage llm on the plain queue, where a worker runs one thing at a time.
    STAGES = {stage: (function, "stages") for stage, (function, _) in STAGES.items()}

ROOT_URLCONF = os.environ.get("BENCHMARK_URLCONF", ROOT_URLCONF)  # noqa: F405
