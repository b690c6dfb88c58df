from tests.acceptance.world import World, MAIL


def test_it(world: World) -> None:
    job = world.job(world.change(), MAIL, world.hook)
    world.settle()
    print(world.status(job), world.attempts(job, "fetch")[0].detail)
    assert world.status(job) == "succeeded"
    assert len(world.mails()) == 1
    assert len(world.receiver.processed) == 1
