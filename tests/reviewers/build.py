"""Changes for tests, made by hand (origin: constructed)."""

from __future__ import annotations

from reviews.sources.base import Action, Change, ChangeStatus, FileChange


def change(*files: FileChange, description: str = "Correct the rounding.") -> Change:
    return Change(
        changelist_id="12345",
        source="perforce",
        author="ann",
        description=description,
        status=ChangeStatus.SUBMITTED,
        created_at_epoch=1_700_000_000,
        version_key="v",
        files=files,
    )


def edited(path: str, old: str, new: str, **fields: object) -> FileChange:
    return FileChange(path=path, action=Action.EDIT, old_text=old, new_text=new, **fields)  # type: ignore[arg-type]


def added(path: str, new: str | None = "", **fields: object) -> FileChange:
    return FileChange(path=path, action=Action.ADD, new_text=new, **fields)  # type: ignore[arg-type]


def deleted(path: str, old: str = "x\n") -> FileChange:
    return FileChange(path=path, action=Action.DELETE, old_text=old)


def renamed(old_path: str, path: str, old: str = "x\n", new: str = "x\n") -> FileChange:
    return FileChange(path=path, action=Action.RENAME, old_path=old_path, old_text=old, new_text=new)


def fake_token() -> str:
    """Return a text of the form of a provider's token, put together so that no file holds one."""
    return "ghp_" + "FAKE" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD"[:32]


def fake_pem(lines: int = 6) -> str:
    """Return what has the form of a private key, with a body of counting letters."""
    body = "\n".join(
        "MIIFAKE" + f"{number:02d}" + "Qx7Lp2Vn9Rt4Ks8Wd3Hb6Jc1Zf5Gm0Ty"[:40] + "aZ4" * 5
        for number in range(lines)
    )
    return "-----BEGIN RSA " + "PRIVATE KEY-----\n" + body + "\n-----END RSA " + "PRIVATE KEY-----\n"
