"""`manage.py configuration_table`: write the page, the schema and the example of `.criticizer.yml`."""

from criticizer.management.generated import GeneratedFilesCommand
from reviews.configuration import reference


class Command(GeneratedFilesCommand):
    help = (
        "Write the documentation, the JSON Schema and the example of .criticizer.yml from the table of keys."
    )

    def files(self) -> dict[str, str]:
        return {
            "docs/repository-configuration.md": reference.page(),
            "docs/criticizer.example.yml": reference.example(),
            f"reviews/static/reviews/{reference.SCHEMA_FILE}": reference.schema(),
        }
