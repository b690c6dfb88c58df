"""Findings of a redaction peer in texts; runs alone, in the peers' own environment.

`python redaction_peers.py TOOL < texts.json`: a list of texts in, and out `{"texts": …, "seconds": …}`,
the texts without what the tool found in them, and the processor time that it took.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

Found = list[list[str]]  # of each text, the values found in it


def detect_secrets(paths: list[Path]) -> Found:
    """Scan files, with the tool's own settings."""
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    with default_settings():
        return [[one.secret_value or "" for one in scan_file(str(path))] for path in paths]


def detect_secrets_by_line(paths: list[Path]) -> Found:
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import default_settings

    with default_settings():
        return [
            [
                one.secret_value or ""
                for line in path.read_text("utf-8").split("\n")
                for one in scan_line(line)
            ]
            for path in paths
        ]


def credsweeper(paths: list[Path]) -> Found:
    """Scan files with rules and model, as the command does."""
    from credsweeper import CredSweeper
    from credsweeper.file_handler.files_provider import FilesProvider

    sweeper = CredSweeper()
    sweeper.run(FilesProvider(list(paths)))
    found: dict[str, list[str]] = {str(path): [] for path in paths}
    for candidate in sweeper.credential_manager.get_credentials():
        for line in candidate.line_data_list:
            found[line.path].append(line.value or "")
    return list(found.values())


TOOLS: dict[str, Callable[[list[Path]], Found]] = {
    "detect-secrets": detect_secrets,
    "detect-secrets by line": detect_secrets_by_line,
    "CredSweeper": credsweeper,
}


def _without(text: str, values: Iterable[str]) -> str:
    for value in sorted(filter(None, values), key=len, reverse=True):
        text = text.replace(value, "<found>")
    return text


def main() -> None:
    """Read texts, print them without what the tool named in the arguments finds."""
    texts = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.txt" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        begun = time.process_time()
        found = TOOLS[sys.argv[1]](paths)
        seconds = time.process_time() - begun
    left = [_without(text, values) for text, values in zip(texts, found, strict=True)]
    json.dump({"texts": left, "seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    main()
