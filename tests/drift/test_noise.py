"""Texts that look like claims and are none (guarantee G472)."""

from __future__ import annotations

import pytest

from reviews.drift.change import compare
from reviews.drift.claims import Verdict
from tests.drift.test_mutations import tree

# Each stands in a document that a change adds to a repository with the files of FILES.
SENTENCES = """
See `https://example.com/src/a.py`.|Mail `mailto:a@b.c`.|Read [it](https://x.org/y.md).
The file `/etc/app/conf.yml` is used.|Look at `~/.config/app.toml`.|On `C:\\src\\a.py` it works.
On `\\\\host\\share\\x.txt`.|Use `../../../outside/x.md`.|All of `src/*.py`.|All of `src/**/x.py`.
One of `src/<name>.py`.|One of `src/{name}.py`.|Use `$HOME/src/a.py`.|See `src/…/a.py`.|See `src/.../a.py`.
Use `src/example/a.py`.|Use `src/foo.py`.|Use `src/bar/baz.py`.|Use `your-app/src/a.py`.
Use `my-app/main.py`.|Use `path/to/file.py`.|Use `src/path/to/x.py`.|Use `src/your_module.py`.
Set the locale `pt-BR`.|Set `en_US`.|A bare `somewhere.py` is fine.|A bare `config.json`.
Send `application/json`.|Send `text/html`.|Clone `owner/repo`.|Install `@scope/package`.|Import `a.b.c`.
Take `1/2` of it.|On `2024-01-01`.|In `v1.2.3`.|It is `and/or`.|Use `client/server`.|Error `E501/E502`.
The file `src/old.py` was removed.|It was formerly `src/old.py`.|There is no longer `src/old.py`.
It used to be `src/old.py`.|The file `src/old.py` does not exist.|It was renamed from `src/old.py`.
It replaces `src/old.py`.|Deprecated: `src/old.py`.|A planned `src/next.py` comes.
It will be in `src/next.py`.|TODO: `src/next.py`.|Coming soon: `src/next.py`.
Put it somewhere, e.g. `src/some.py`.|Such a file, for example `src/some.py`.|Files such as `src/some.py`.
Create `src/new.py` first.|This writes `src/out.py`.|It generates `src/gen.py`.|Save it as `src/kept.py`.
Add a file `src/added.py`.|Name it `src/named.py`.|See `build/out.js`.|See `dist/app.js`.
See `.venv/bin/python`.|See `node_modules/x/index.js`.|Edit `.env`.|See `src/app.log`.|See `src/x.pyc`.
In another repository, `src/theirs.py` does it.|The upstream project has `src/up.py`.
In a separate repository: `src/sep.py`.|<!-- See `src/hidden.py` -->|[x](#)|[x](url)|[x](<a b.md>)
[x]({{ link }})|[x](mailto:a@b.c)|![x](data:image/png;base64,AA)|[x](your-page.md)|[x](path/to/page.md)
[x](example.md)|[x](/site/page)|Press `Ctrl/Cmd`.|It is `true/false`.|Use `GET`.|Use `x | y`.
Run `npm install`.|Run `npm test`.|Run `npm ci`.|Run `npm run build -w app`.|Run `npm --workspace=a run b`.
Run `yarn add x`.|Run `make -f other.mk thing`.|Run `make $TARGET`.|Run `make <target>`.|Run `make VAR=1`.
Run `unknown-tool run thing`.|Run `git checkout src/x.py`.|Run `curl http://x/y.py`.
Run `cat out/result.txt`.|Run `docker run image/name`.|Run `pip install a/b`.|Run `cargo build`.
Run `go test ./...`.|Run `tox`.|Run `tox -e py311`.|Run `just build`.|Run `poe lint`.|Run `nox -s tests`.
See Section 2.1 of it.|Chapter 3.2 says so.|Since Acme 4.5.|HTTP 1.1 is spoken.|It took 2.5 seconds.
Up to 100 MB.|Version 1.0 is out.|The year 2024.|ISO 8601 dates.|Windows 11 works.|Ubuntu 24.04 works.
Use `FOO_BAR`.|Use `SOME_CONSTANT_NAME`.|Use `HTTP_PROXY`.|The `GITHUB_TOKEN` is yours.
Use `POST /their/api/thing`.|`GET /` is it.|The `width` defaults to `80`.|`colour` (default: `red`).
Symbols such as `Client()` are.|The function `parse_all()` is.|A class `Thing`.|Type `Map<String, int>`.
Diagnostic `F401`.|Use `--flag`.|It is `a/b/c/d`.|Colours `red/green/blue`.|Input `stdin/stdout`.
The `read/write` lock.|A `N/A` cell.|Use `x.y.z`.|Run `python -m theirs`.|Run `python -c 'print(1)'`.
Use `import theirs`.|A `.py` file.|A `*.md` file.|The `docs` folder.|The `src` folder.|Press `q`.
"""
SINGLE = [one for line in SENTENCES.strip().splitlines() for one in line.split("|") if "| " not in one or one]
BLOCKS = (
    "## Examples\n\nSee `src/none.py`.",
    "## Example of use\n\n```sh\nmake nothing\n```",
    "```console\n$ ls\nmake nothing\n./src/none.sh\n```",
    "```text\nmake nothing\n```",
    "```\nmake nothing\n```",
    "```sh\n# make nothing\n```",
    "```sh\ncat <<EOF\nmake nothing\nEOF\n```",
    "```python\nimport theirs.thing\n```",
    "```python\nfrom .relative import x\n```",
    "```js\nimport { x } from 'theirs';\n```",
    '```go\nimport "fmt"\n```',
    "<!-- drift: off -->\n\nSee `src/none.py`.\n\n<!-- drift: on -->",
    "    make nothing",
    "The helper was renamed to something\nelse in 2.0 and `src/none.py`\nwas removed with it.",
)
FILES = {
    "src/a.py": "x = 1\n",
    "docs/b.md": "# B\n",
    "Makefile": "all:\n\ttrue\n",
    "package.json": '{"scripts": {"build": "x"}}',
    ".gitignore": "*.log\nout/\n",
}


def test_the_table_is_long_enough() -> None:
    assert len(SINGLE) + len(BLOCKS) >= 120


@pytest.mark.parametrize("path", ["docs/new.md", "docs/new.rst"])
def test_what_looks_like_a_claim_and_is_none_is_no_finding(path: str) -> None:
    found = {}
    for text in (*SINGLE, *(BLOCKS if path.endswith(".md") else ())):
        written = text if path.endswith(".md") else text.replace("`", "``")
        report = compare(tree(FILES), tree({**FILES, path: f"# Title\n\n{written}\n"}))
        if report.drifted or report.counts[Verdict.REFUTED]:
            found[text] = [one.claim for one in report.drifted]
    assert found == {}


@pytest.mark.parametrize(
    "name", ["CHANGELOG.md", "docs/HISTORY.rst", "docs/release-notes.md", "NEWS.md", "docs/adr/0001.md"]
)
def test_histories_claim_nothing(name: str) -> None:
    files = {**FILES, name: "See `src/a.py`.\n"}
    after = {path: text for path, text in files.items() if path != "src/a.py"}
    assert compare(tree(files), tree(after)).drifted == []


@pytest.mark.parametrize(
    ("title", "drifts"), [("# Example shop", 1), ("# Examples", 0), ("# Shop\n\n## Example of use", 0)]
)
def test_the_title_of_a_document_makes_no_example_of_it(title: str, drifts: int) -> None:
    files = {**FILES, "docs/c.md": f"{title}\n\nThe prices are in `src/a.py`.\n"}
    after = {path: text for path, text in files.items() if path != "src/a.py"}
    assert len(compare(tree(files), tree(after)).drifted) == drifts
