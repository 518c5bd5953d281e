import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0004_task_message")]

    operations = [
        migrations.CreateModel(
            name="Verification",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("node", models.CharField(max_length=100, unique=True)),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                ("findings", models.JSONField(blank=True, default=list)),
            ],
            options={"ordering": ["node"]},
        ),
    ]
