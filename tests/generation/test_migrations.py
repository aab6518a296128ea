"""Migrations run while the old version's processes still work: each may only add what those needn't know."""

from collections.abc import Iterator, Sequence

import pytest
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.models import NOT_PROVIDED

APPS = ("generation", "chat")

# (app, migration): why it may run though an older version can't work beside it.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("chat", "0004_search"): "it only reads what an older version writes, and indexes a table that none of them knows",
}

HARMLESS = (
    migrations.CreateModel,
    migrations.AddIndex,
    migrations.RemoveIndex,
    migrations.RenameIndex,
    migrations.AlterModelOptions,
    migrations.AlterModelManagers,
)


def complaints(operations: Sequence[Operation]) -> Iterator[str]:
    """What an older version would stumble over: columns it must fill, or that it reads and no longer finds."""
    for operation in operations:
        if isinstance(operation, migrations.AddField):
            field = operation.field
            is_column = not field.many_to_many
            if is_column and not field.null and field.db_default is NOT_PROVIDED:
                yield f"{operation.describe()}: an older version's INSERT leaves it out, so it needs null or db_default"
            elif field.unique:
                yield f"{operation.describe()}: an older version's rows would all have the same value"
        elif isinstance(operation, migrations.SeparateDatabaseAndState):
            yield from complaints(operation.database_operations)
        elif isinstance(operation, migrations.AlterField) and operation.field.null:
            continue  # wider than before; what narrows a column otherwise needs a look and a reason
        elif not isinstance(operation, HARMLESS):
            yield f"{operation.describe()}: an older version may rely on what was before"


def later_migrations() -> list[migrations.Migration]:
    """All but each app's first, which no older version is beside."""
    found = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    return [migration for (app, _), migration in sorted(found.items()) if app in APPS and not migration.initial]


def test_every_migration_may_run_beside_the_version_before_it() -> None:
    known = {(migration.app_label, migration.name): migration for migration in later_migrations()}
    assert known
    bad = {name: list(complaints(migration.operations)) for name, migration in known.items() if name not in EXCEPTIONS}
    assert not {name: found for name, found in bad.items() if found}
    assert set(EXCEPTIONS) <= set(known)
    assert all(EXCEPTIONS.values()), "an exception tells its reason"


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AddField("job", "tone", models.CharField(max_length=10)),
        migrations.AddField("job", "tone", models.CharField(max_length=10, default="plain")),
        migrations.AddField("job", "tone", models.ForeignKey("generation.queue", models.CASCADE)),
        migrations.AddField("job", "tone", models.CharField(max_length=10, db_default="plain", unique=True)),
        migrations.RemoveField("job", "text"),
        migrations.RenameField("job", "text", "reply"),
        migrations.RenameModel("job", "request"),
        migrations.DeleteModel("job"),
        migrations.AlterModelTable("job", "elsewhere"),
        migrations.AlterField("job", "started_at", models.DateTimeField()),
        migrations.AddConstraint("job", models.UniqueConstraint(fields=["task_id"], name="task_once")),
        migrations.RunSQL("DELETE FROM generation_job"),
        migrations.SeparateDatabaseAndState([migrations.RemoveField("job", "text")]),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_it_finds_what_an_older_version_can_not_bear(operation: Operation) -> None:
    assert len(list(complaints([operation]))) == 1


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AddField("job", "tone", models.CharField(max_length=10, null=True)),
        migrations.AddField("job", "tone", models.CharField(max_length=10, db_default="plain")),
        migrations.AddField("job", "friends", models.ManyToManyField("generation.queue")),
        migrations.AlterField("job", "text", models.TextField(null=True)),
        migrations.AddIndex("job", models.Index(fields=["task_id"], name="job_task")),
        migrations.CreateModel("Tone", [("id", models.AutoField(primary_key=True))]),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_it_lets_pass_what_an_older_version_does_not_notice(operation: Operation) -> None:
    assert list(complaints([operation])) == []
