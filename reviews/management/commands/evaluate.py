"""`manage.py evaluate`: measure reviews on a corpus or benchmark (docs/evaluation.md)."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from criticizer.environment import CODE_DIR
from criticizer.resilience.failures import Failure
from reviews.evaluation import modes
from reviews.evaluation.answers import NotMeasured
from reviews.evaluation.corpus import CorpusError
from reviews.evaluation.figures import lost

GATE_REFUSED, NOT_MEASURED = 1, 2


class Command(BaseCommand):
    help = (
        "Measure reviews. oracle: without a model, for changes of prompts and pipeline; real: the "
        "configured model; replay: recorded answers; martian, aacr: public benchmarks by path. "
        "Exits 1 when a figure is worse than in the --gate, 2 when nothing was measured. Needs no database."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        def path(name: str, text: str, **more: Any) -> None:
            parser.add_argument(name, type=Path, metavar="PATH", help=text, **more)

        parser.add_argument("mode", nargs="?", default="oracle", choices=sorted(modes.MODES))
        path("--corpus", "directory of *.toml (default: the checkout's)", default=CODE_DIR / "tests/corpus")
        parser.add_argument("--seed", type=int, default=1, help="of line numbers, noise and request markers")
        path("--gate", "output of an earlier run: no figure may be lower")
        path("--output", "write the figures and how they came about here")
        parser.add_argument("--runs", type=int, default=3, help="of a real model, at least 3 (default: 3)")
        parser.add_argument(
            "--judge", default="", metavar="MODEL", help="a model of the same server as judge"
        )
        path("--record", "real: append the model's answers to this file")
        path("--answers", "replay: the file that --record wrote")
        path("--judged", "martian: recorded judgements; real: pairs to test the judge with")
        path("--goldens", "martian: the directory golden_comments")
        path("--samples", "aacr: the file positive_samples.json")
        path("--repositories", "martian, aacr: directory with clones of the pull requests' repositories")

    def handle(self, *, mode: str, gate: Path | None, output: Path | None, **options: Any) -> None:
        logging.disable(logging.WARNING)  # a line for each command of git and each answer
        try:
            if output and not output.parent.is_dir():
                raise NotMeasured(f"--output: there is no directory {output.parent}")
            baseline = _baseline(gate) if gate else None
            report = modes.MODES[mode](modes.Options.of(settings, options))
            if baseline is not None and baseline["corpus"] != report["corpus"]:
                raise NotMeasured(f"{gate} was measured on another corpus: write it again with --output")
        except (NotMeasured, CorpusError, Failure) as error:
            raise CommandError(f"not measured: {error}", returncode=NOT_MEASURED) from error
        finally:
            logging.disable(logging.NOTSET)
        if output:
            output.write_text(json.dumps(report, indent=1) + "\n")
        for name, value in report["figures"].items():
            self.stdout.write(f"{name:24} {_shown(value)}")
        if baseline is not None and (worse := lost(_means(report["figures"]), _means(baseline["figures"]))):
            worse += [f"now missed: {name}" for name in report["missed"] if name not in baseline["missed"]]
            raise CommandError(f"worse than {gate}: {'; '.join(worse)}", returncode=GATE_REFUSED)


def _baseline(file: Path) -> dict[str, Any]:
    try:
        report = json.loads(file.read_text())
        baseline = {name: report[name] for name in ("corpus", "figures", "missed")}
        _means(baseline["figures"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotMeasured(f"{file} is no output of evaluate: {error}") from error
    return baseline


def _means(figures: dict[str, Any]) -> dict[str, float]:
    return {name: value["mean"] if isinstance(value, dict) else value for name, value in figures.items()}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {number:g}" for name, number in value.items())
    return f"{value:g}"
