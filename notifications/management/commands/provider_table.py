"""`manage.py provider_table`: write docs/providers.md from the providers' code."""

from criticizer.management.generated import GeneratedFilesCommand
from notifications.admin import capability_table


class Command(GeneratedFilesCommand):
    help = "Write docs/providers.md from the providers' code."

    def files(self) -> dict[str, str]:
        return {"docs/providers.md": capability_table.markdown()}
