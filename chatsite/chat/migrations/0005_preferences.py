import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('chat', '0004_search'),
    ]

    operations = [
        migrations.CreateModel(
            name='PersonPreferences',
            fields=[
                ('model', models.CharField(blank=True, db_default='', default='', max_length=100)),
                ('system_prompt', models.TextField(blank=True, db_default='', default='')),
                ('params', models.JSONField(blank=True, help_text='as in the protocol, only what was set', null=True)),
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name_plural': 'preferences of persons',
            },
        ),
        migrations.AddField(
            model_name='conversation',
            name='model',
            field=models.CharField(blank=True, db_default='', default='', max_length=100),
        ),
        migrations.AddField(
            model_name='conversation',
            name='params',
            field=models.JSONField(blank=True, help_text='as in the protocol, only what was set', null=True),
        ),
        migrations.AddField(
            model_name='conversation',
            name='system_prompt',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
    ]
