"""A migration that breaks an older version is named before it is run."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import migrations, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState
from django.db.models.functions import Now

from criticizer.db.compatibility import Verdict, judge

ADDITIVE = [
    migrations.CreateModel("Other", [("id", models.BigAutoField(primary_key=True))]),
    migrations.AddField("thing", "seen", models.DateTimeField(null=True)),
    migrations.AddField("thing", "made", models.DateTimeField(db_default=Now())),
    migrations.AlterField("thing", "name", models.CharField(max_length=64)),
    migrations.AddIndex("thing", models.Index(fields=["name"], name="thing_name")),
]
BREAKING = [
    (migrations.RemoveField("thing", "name"), "removes the field thing.name"),
    (migrations.RenameField("thing", "name", "title"), "renames the field thing.name"),
    (migrations.DeleteModel("Thing"), "deletes the table of Thing"),
    (migrations.RenameModel("Thing", "Item"), "renames Thing"),
    (migrations.AddField("thing", "size", models.IntegerField(default=0)), "without null and"),
    (migrations.AlterField("thing", "name", models.CharField(max_length=16)), "shortens thing.name to 16"),
    (migrations.AlterField("thing", "name", models.CharField(max_length=32, unique=True)), "unique"),
    (migrations.AlterField("thing", "note", models.TextField()), "refuses null in thing.note"),
    (migrations.AlterField("thing", "kind", models.CharField(max_length=8)), "the default of thing.kind"),
]  # fmt: skip
UNKNOWN = [
    (migrations.RunSQL("SELECT 1"), "check it by hand"),
    (migrations.RunPython(migrations.RunPython.noop), "check it by hand"),
    (migrations.AlterField("thing", "name", models.TextField()), "from CharField to TextField"),
    (
        migrations.AddConstraint("thing", models.CheckConstraint(condition=~models.Q(name=""), name="named")),
        "adds a check, named",
    ),
]


def found(*operations: Operation) -> list[tuple[Verdict, str]]:
    """Judge a migration of `operations` on a table Thing."""
    fields: list[Any] = [
        ("id", models.BigAutoField(primary_key=True)),
        ("name", models.CharField(max_length=32)),
        ("note", models.TextField(null=True)),
        ("kind", models.CharField(max_length=8, db_default="")),
    ]
    state = ProjectState()
    state.add_model(ModelState("shop", "Thing", fields))
    migration = migrations.Migration("0002_next", "shop")
    migration.operations = list(operations)
    return [(finding.verdict, finding.reason) for finding in judge([migration], state)]


def test_what_only_adds_is_compatible() -> None:
    assert found(*ADDITIVE) == []


@pytest.mark.parametrize(("operation", "words"), BREAKING)
def test_what_an_older_version_cannot_live_with_is_named(operation: Operation, words: str) -> None:
    """Guarantee G486."""
    assert [(verdict, words in reason) for verdict, reason in found(operation)][:1] == [
        (Verdict.BREAKS, True)
    ]


@pytest.mark.parametrize(("operation", "words"), UNKNOWN)
def test_what_cannot_be_judged_is_left_to_a_person(operation: Operation, words: str) -> None:
    assert [(verdict, words in reason) for verdict, reason in found(operation)][:1] == [
        (Verdict.UNKNOWN, True)
    ]


@pytest.mark.django_db
def test_the_command_judges_what_is_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    said = StringIO()
    call_command("check_compatibility", stdout=said)
    assert "There is no migration to run" in said.getvalue()

    following = migrations.Migration("0999_following", "criticizer")
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *_: [(following, False)])
    following.operations = [migrations.AddField("workercluster", "load", models.FloatField(null=True))]
    call_command("check_compatibility", stdout=said)
    assert "1 migrations only add" in said.getvalue()

    following.operations = [migrations.RemoveField("workercluster", "pid")]
    with pytest.raises(CommandError, match="stop all machines of the version before"):
        call_command("check_compatibility", stdout=said)
    assert "removes the field workercluster.pid" in said.getvalue()
