"""`manage.py text_table`: write docs/texts.md from the table of texts."""

from criticizer import texts
from criticizer.management.generated import GeneratedFilesCommand


class Command(GeneratedFilesCommand):
    help = "Write docs/texts.md from the table of texts."

    def files(self) -> dict[str, str]:
        return {"docs/texts.md": texts.markdown()}
