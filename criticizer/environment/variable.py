"""Declaration of an environment variable, for the table and for code hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from criticizer.environment.parsers import Invalid, Parser
from criticizer.environment.reader import wrong


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable. `doc` is Markdown; `example` is shown where there is no default."""

    name: str
    parser: Parser
    doc: str
    default: str = ""
    example: str = ""
    is_secret: bool = False
    is_required: bool = False

    def parse(self, text: str) -> Any:
        """Return the value of `text`, or of the default where it is empty.

        Raises ImproperlyConfigured, which repeats nothing of a secret.
        """
        text = text or self.default
        if self.is_required and not text:
            raise wrong(
                self.name, "is not set", f"{self.parser.accepts}, in the environment or the file .env"
            )
        try:
            return self.parser.parse(text) if text else self.parser.unset()
        except Invalid as error:
            raise wrong(self.name, str(error), self.parser.accepts) from None
        except ValueError as error:
            # The error may quote a part of the value.
            problem = "is not valid" if self.is_secret else str(error)
            raise wrong(self.name, problem, self.parser.accepts) from None


def secret_variable(name: str, parser: Parser, doc: str, *, example: str = "") -> Variable:
    """Return a variable whose value is read at use and never shown."""
    return Variable(name, parser, doc, example=example, is_secret=True)
