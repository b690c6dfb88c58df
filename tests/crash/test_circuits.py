"""An outage of the model under real clusters: its circuit opens, and the work ends after it."""

from __future__ import annotations

import pytest

from criticizer.models import Circuit, CircuitEvent, OutboxMessage
from deadletters.models import DeadLetter
from reviews.models import StageRun
from tests.crash.conftest import World
from tests.fakes.llm import error
from tests.stack import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.long]
JOBS = 25
LLM = "llm:openai"


@pytest.mark.parametrize("world", [{"commits": JOBS}], indirect=True)
def test_an_outage_of_the_model_costs_no_job(world: World) -> None:
    world.llm.server.respond = lambda _: error(503, "down")
    jobs = [world.post(number) for number in range(JOBS)]
    # Each cluster asks the model's list of models, which is as ill as the rest.
    probed = Circuit.objects.filter(name=LLM, state="open", probe_detail__startswith="UPSTREAM")
    eventually(probed.exists, 60)
    assert not DeadLetter.objects.exists()

    world.llm.server.respond = None
    assert world.succeeded(*jobs, seconds=90)
    world.seen_once(JOBS)
    assert Circuit.objects.get(pk=LLM).state == "closed"
    assert CircuitEvent.objects.filter(name=LLM, reason="a health check was answered").exists()
    assert max(StageRun.objects.filter(stage="llm").values_list("attempts", flat=True)) <= 5
    assert not DeadLetter.objects.exists()
    assert not OutboxMessage.objects.exists()
