"""The databases' own indexes of words: FTS5 on SQLite, GIN on PostgreSQL; then what is there already is indexed."""

from django.db import migrations

from chatsite.chat.words import normalised

SQLITE = [
    # The table's text is the index's: it is stored once.
    """CREATE VIRTUAL TABLE chat_passage_words USING fts5(
        user_id, words, content='chat_passage', content_rowid='id', tokenize='unicode61 remove_diacritics 0'
    )""",
    """CREATE TRIGGER chat_passage_added AFTER INSERT ON chat_passage BEGIN
        INSERT INTO chat_passage_words (rowid, user_id, words) VALUES (new.id, new.user_id, new.words);
    END""",
    """CREATE TRIGGER chat_passage_removed AFTER DELETE ON chat_passage BEGIN
        INSERT INTO chat_passage_words (chat_passage_words, rowid, user_id, words)
        VALUES ('delete', old.id, old.user_id, old.words);
    END""",
    """CREATE TRIGGER chat_passage_changed AFTER UPDATE ON chat_passage BEGIN
        INSERT INTO chat_passage_words (chat_passage_words, rowid, user_id, words)
        VALUES ('delete', old.id, old.user_id, old.words);
        INSERT INTO chat_passage_words (rowid, user_id, words) VALUES (new.id, new.user_id, new.words);
    END""",
]
WITHOUT_SQLITE = [
    *(f"DROP TRIGGER chat_passage_{name}" for name in ("added", "removed", "changed")),
    "DROP TABLE chat_passage_words",
]
POSTGRESQL = ["CREATE INDEX chat_passage_words ON chat_passage USING gin (to_tsvector('simple', words))"]
WITHOUT_POSTGRESQL = ["DROP INDEX chat_passage_words"]
BATCH = 1000


def create(apps, schema_editor):
    for statement in {"sqlite": SQLITE, "postgresql": POSTGRESQL}[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


def drop(apps, schema_editor):
    for statement in {"sqlite": WITHOUT_SQLITE, "postgresql": WITHOUT_POSTGRESQL}[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


def fill(apps, schema_editor):
    Passage = apps.get_model("chat", "Passage")

    def passages():
        for each in apps.get_model("chat", "Conversation").objects.iterator():
            yield Passage(user_id=each.user_id, conversation=each, words=normalised(each.title))
        messages = apps.get_model("chat", "Message").objects.exclude(text="").select_related("conversation")
        for each in messages.iterator():
            user, conversation = each.conversation.user_id, each.conversation_id
            yield Passage(user_id=user, conversation_id=conversation, message=each, words=normalised(each.text))
        parts = apps.get_model("chat", "ReplyJob").objects.exclude(job__text="").select_related("job", "message")
        for each in parts.iterator():
            user, conversation = each.job.user_id, each.message.conversation_id
            yield Passage(user_id=user, conversation_id=conversation, part=each, words=normalised(each.job.text))

    batch = []
    for passage in passages():
        batch.append(passage)
        if len(batch) == BATCH:
            Passage.objects.bulk_create(batch)
            batch = []
    Passage.objects.bulk_create(batch)


class Migration(migrations.Migration):

    dependencies = [("chat", "0003_keeping")]

    operations = [migrations.RunPython(create, drop), migrations.RunPython(fill, migrations.RunPython.noop)]
