"""The tests that redaction must have, by subject, and that each of them exists.

| subject | tests |
|---|---|
| positive and negative, per class | `POSITIVE`, `NEGATIVE` |
| boundaries: several lines, truncated, chunk and hunk edges | `BOUNDARY` |
| leaks that were found | `REGRESSION` |
| the guard, broken on purpose | `GUARD` |
| holds for every text | `PROPERTY` |
| hostile text | `HOSTILE` |
| logs, stacks and contexts, which the same engine cleans | `ELSEWHERE` |
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import criticizer.redaction as package
from criticizer.redaction.rules import commands, key_names, syntax
from criticizer.redaction.rules.issuer_tokens import KINDS, TOKEN_RULES

PACKAGE = Path(package.__file__).parent
POSITIVE = """
test_rules.test_secret_is_taken_out
test_rules.test_secret_is_taken_out_of_both_sides_of_a_diff
test_rules.test_every_issuer_mark_has_a_token_that_is_taken_out
test_rules.test_token_of_its_issuers_form_is_taken_out_whatever_its_letters_are
test_logical_lines.test_value_below_its_name_is_taken_out
test_logical_lines.test_every_piece_of_a_concatenation_is_taken_out_under_one_number
test_generalisation.test_recall_keeps_its_floor
test_pem.test_body_goes_in_every_shape
test_engine.test_own_secret_is_taken_out_in_every_spelling
test_engine.test_policy_takes_out_people_hosts_and_networks
"""
NEGATIVE = """
test_rules.test_ordinary_text_is_left_alone
test_rules.test_issuer_mark_alone_or_masked_is_unchanged
test_logical_lines.test_ordinary_lines_one_below_the_other_stay_as_they_are
test_generalisation.test_ordinary_text_is_unchanged
test_generalisation.test_hashes_uuids_lock_files_and_embedded_files_never_change
test_pem.test_text_about_keys_is_left_alone
test_engine.test_policy_leaves_what_it_does_not_name
"""
BOUNDARY = """
test_rules.test_token_cut_short_by_truncation_is_still_taken_out
test_rules.test_value_longer_than_the_window_is_taken_out_to_its_end
test_pem.test_key_is_followed_into_the_next_hunk_and_not_into_the_next_file
test_pem.test_interleaved_old_and_new_key_are_separated
test_engine.test_concatenated_literal_is_followed
test_logical_lines.test_old_and_new_value_below_a_name_in_the_context_are_taken_out
test_logical_lines.test_value_is_not_looked_for_behind_the_border_of_a_hunk
test_engine.test_value_found_in_one_part_is_taken_out_of_all_parts
test_boundaries.test_secret_at_every_edge_of_a_part_is_taken_out
test_boundaries.test_key_block_cut_anywhere_leaves_no_whole_line
"""
REGRESSION = """
test_regressions.test_known_leak_stays_closed
test_regressions.test_known_false_alarm_is_unchanged
test_regressions.test_text_that_once_took_minutes_is_fast
"""
GUARD = """
test_guard.test_second_engine_stops_what_a_hole_in_the_first_lets_through
test_mutations.test_skipped_stage_lets_nothing_out
test_mutations.test_raising_stage_lets_nothing_out
test_mutations.test_removed_rule_lets_nothing_out
test_mutations.test_anything_but_redacted_text_is_stopped
test_mutations.test_trick_with_the_seal_is_stopped
test_mutations.test_any_other_version_of_the_rules_is_stopped
test_mutations.test_any_other_policy_than_the_required_one_is_stopped
test_mutations.test_file_that_cannot_be_read_with_certainty_is_stopped
test_mutations.test_time_used_up_stops_the_engine_and_the_guard
"""
PROPERTY = """
test_properties.test_redacting_again_changes_nothing
test_properties.test_lines_stay_where_they_are
test_properties.test_result_is_the_same_in_every_process
test_properties.test_another_parser_reads_the_same_diff_before_and_after
"""
HOSTILE = """
test_hostile.test_flood_is_worked_off_or_refused
test_hostile.test_work_grows_no_faster_than_the_text
test_hostile.test_lines_are_put_together_in_work_that_grows_with_the_text
"""
ELSEWHERE = """
test_log_scrubbing.test_stack_has_chain_frames_and_functions_and_no_secret
test_log_scrubbing.test_context_is_json_bounded_and_without_secrets
test_log_scrubbing.test_standard_logging_is_cleaned_with_arguments_extras_and_errors
test_log_scrubbing.test_mail_and_answers_of_a_model_are_cleaned
"""
REQUIRED = [*POSITIVE.split(), *NEGATIVE.split(), *BOUNDARY.split(), *REGRESSION.split(), *GUARD.split(),
            *PROPERTY.split(), *HOSTILE.split(), *ELSEWHERE.split()]  # fmt: skip


@pytest.mark.parametrize("name", REQUIRED)
def test_required_test_is_there(name: str) -> None:
    module, _, function = name.partition(".")
    assert callable(getattr(importlib.import_module(f"tests.redaction.{module}"), function))


def test_there_are_about_sixty_classes_of_rules_and_more() -> None:
    assert len({rule.kind for rule in TOKEN_RULES}) >= 60
    assert len({rule.kind for rule in TOKEN_RULES} | KINDS) == len(KINDS)
    assert len({*syntax.HANDLERS, *commands.HANDLERS}) >= 60
    assert len(key_names.WORDS) >= 60


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", _modules(), ids=lambda path: path.name)
def test_no_module_of_the_package_uses_a_backtracking_engine(path: Path) -> None:
    """`re` and its relatives can be made to run for hours by the text they read; RE2 cannot."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        imported = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        assert not {name.partition(".")[0] for name in imported} & {"re", "regex", "sre_compile", "fnmatch"}


def test_one_module_makes_redacted_text_and_one_function_of_the_engine_asks_for_it() -> None:
    root = PACKAGE.parents[1]
    places = [
        path.relative_to(root).as_posix()
        for app in ("criticizer", "reviews", "notifications", "deadletters")
        for path in (root / app).rglob("*.py")
        if "RedactedText(" in (text := path.read_text(encoding="utf-8")) and "class RedactedText" not in text
    ]
    assert places == []
    callers = [
        path.name
        for path in _modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "seal"
    ]
    assert callers == ["engine.py"]
