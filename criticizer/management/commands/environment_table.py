"""`manage.py environment_table`: write `.env.example` and docs/configuration.md."""

from criticizer.environment import reference
from criticizer.management.generated import GeneratedFilesCommand


class Command(GeneratedFilesCommand):
    help = "Write .env.example and docs/configuration.md from the table of environment variables."

    def files(self) -> dict[str, str]:
        return {".env.example": reference.example(), "docs/configuration.md": reference.page()}
