"""`manage.py failure_table`: write docs/failures.md from the tables of failures."""

from criticizer.management.generated import GeneratedFilesCommand
from reviews import failure_reference


class Command(GeneratedFilesCommand):
    help = "Write docs/failures.md from the tables of failures."

    def files(self) -> dict[str, str]:
        return {"docs/failures.md": failure_reference.markdown()}
