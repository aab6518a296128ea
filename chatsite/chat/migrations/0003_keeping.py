import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0002_turning'),
        ('generation', '0005_count_messages_that_no_longer_fitted'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='conversation',
            name='deleted_at',
            field=models.DateTimeField(blank=True, help_text='soon swept away, unless it is restored', null=True),
        ),
        migrations.AddField(
            model_name='conversation',
            name='pinned_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='conversation',
            name='title_edited',
            field=models.BooleanField(db_default=False, default=False, help_text='by a person; no model changes it'),
        ),
        migrations.AddIndex(
            model_name='conversation',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True), ('pinned_at__isnull', True)), fields=['user', '-updated_at', '-id'], name='conversation_list'),
        ),
        migrations.AddIndex(
            model_name='conversation',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True), ('pinned_at__isnull', False)), fields=['user', '-pinned_at'], name='conversation_pinned'),
        ),
        migrations.AddIndex(
            model_name='conversation',
            index=models.Index(condition=models.Q(('deleted_at__isnull', False)), fields=['deleted_at'], name='conversation_deleted'),
        ),
        migrations.CreateModel(
            name='TitleJob',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('conversation', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='title_job', to='chat.conversation')),
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='title_of', to='generation.job')),
            ],
        ),
        migrations.CreateModel(
            name='Passage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('words', models.TextField(blank=True)),
                ('conversation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='passages', to='chat.conversation')),
                ('message', models.OneToOneField(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='passage', to='chat.message')),
                ('part', models.OneToOneField(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='passage', to='chat.replyjob')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(condition=models.Q(('message', None), ('part', None)), fields=('conversation',), name='passage_of_a_title')],
            },
        ),
    ]
