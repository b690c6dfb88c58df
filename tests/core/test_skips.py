"""A skipped test that the committed list does not name fails the run."""

from __future__ import annotations

import pytest

from tests.skips import LIST, SkippedTests, expected_skips

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(("reason", "status"), [("needs a moon", 1), ("no IPv6 here", 0)])
def test_only_a_skip_that_is_expected_passes(pytester: pytest.Pytester, reason: str, status: int) -> None:
    pytester.makepyfile(f"import pytest\n\ndef test_a() -> None:\n    pytest.skip({reason!r})\n")
    plugin = SkippedTests([("test_only", "no IPv6")])
    found = pytester.inline_run("-p", "no:randomly", "-p", "no:django", plugins=[plugin])
    assert found.ret == status
    assert dict(plugin.found) == {(next(iter(plugin.found))[0], reason): 1}


def test_a_module_that_skips_itself_is_seen(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n\npytest.importorskip('no_such_module', reason='needs nothing')\n")
    plugin = SkippedTests([])
    pytester.inline_run("-p", "no:randomly", "-p", "no:django", plugins=[plugin])
    assert [reason for _, reason in plugin.unexpected()] == ["needs nothing"]


def test_the_nightly_run_may_skip_no_s3_test() -> None:
    s3 = "tests/pipeline/test_artifacts_s3.py"
    assert s3 in {path for path, _ in expected_skips(of_all=False)}
    assert s3 not in {path for path, _ in expected_skips(of_all=True)}


def test_every_listed_file_exists() -> None:
    for path, _ in expected_skips(of_all=False):
        assert (LIST.parent.parent / path).exists(), path
