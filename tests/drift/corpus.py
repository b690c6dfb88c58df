"""Six small trees with documents, and mutations that each make named claims untrue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

Files = dict[str, str]
Flip = tuple[str, str, str]  # document, kind, subject


def _guides(folder: str, names: Mapping[str, str], readme: str = "README.md") -> Files:
    """Return small documents with a link back to the readme."""
    up = "../" * (folder.count("/") + 1)
    return {
        f"{folder}/{name}.md": f"# {name.title()}\n\n{text}\n\nBack to the [readme]({up}{readme}).\n"
        for name, text in names.items()
    }


PYTHON: Files = {
    "README.md": (
        "# Acme\n\nThe code is in `src/acme/core.py`; see the [guide](docs/guide.md#install).\n\n"
        "```sh\nmake lint\ntox -e unit\npython tools/report.py --all\npython manage.py sync_users\n```\n\n"
        "It requires Django 5.2 and Python 3.11 or newer.\n\n"
        "```python\nfrom acme.core import Client, connect\nimport acme.storage\n```\n"
    ),
    "docs/guide.md": (
        "# Guide\n\n## Install\n\nSet `ACME_API_URL` and `ACME_API_KEY` before you start.\n\n"
        "The option `max_retries` defaults to `5`.\n\n## Usage\n\nSee [configuration](config.md).\n"
    ),
    "docs/config.md": (
        "# Configuration\n\n| name | default | meaning |\n|---|---|---|\n"
        "| `page_size` | `50` | rows of a page |\n| `cache_timeout` | `30s` | how long |\n"
    ),
    "docs/api.md": "# API\n\n`GET /users/{id}` returns a user.\n\n- `POST /users` makes one.\n",
    **_guides(
        "docs/topics",
        {
            "storage": "Storage is in `src/acme/storage.py`.",
            "cli": "Run `make lint` first.",
            "workers": "Workers read `ACME_API_KEY`.",
            "testing": "Tests are in `tests/test_core.py`.",
            "deploy": "The image is built from `deploy/Dockerfile`.",
            "notes": "Nothing to verify here.",
        },
    ),
    "src/acme/__init__.py": "",
    "src/acme/core.py": (
        "import os\n\nURL = os.environ['ACME_API_URL']\nKEY = os.getenv('ACME_API_KEY')\n\n\n"
        "class Client:\n    def get(self, page_size=50):\n        return page_size\n\n\n"
        "def connect(max_retries=5):\n    return Client()\n"
    ),
    "src/acme/storage.py": "cache_timeout = 30\n",
    "src/acme/web.py": (
        "from flask import Flask\n\napp = Flask(__name__)\n\n\n@app.get('/users/<int:id>')\n"
        "def one(id):\n    return id\n\n\n"
        "@app.post('/users')\ndef new():\n    return ''\n"
    ),
    "src/acme/management/commands/sync_users.py": "class Command:\n    pass\n",
    "manage.py": "print(1)\n",
    "tools/report.py": "print(1)\n",
    "tests/test_core.py": "def test_a():\n    pass\n",
    "deploy/Dockerfile": "FROM python:3.12\n",
    "Makefile": "lint:\n\truff check\n\ntest:\n\tpytest\n",
    "tox.ini": "[tox]\nenvlist = unit\n\n[testenv:unit]\ncommands = pytest\n",
    "pyproject.toml": '[project]\nname = "acme"\nrequires-python = ">=3.11"\n'
    'dependencies = ["django~=5.2.0"]\n',
}

TYPESCRIPT: Files = {
    "README.md": (
        "# Webkit\n\n```bash\nnpm install\nnpm run build\nnpm run dev -- --port 3000\n```\n\n"
        "Works with Node 20 or newer and React 18.2.\n\nThe entry is [`src/index.ts`](src/index.ts).\n\n"
        "```ts\nimport { createApp, Router } from 'webkit';\n```\n"
    ),
    "docs/configuration.md": "# Configuration\n\nThe server reads `WEBKIT_PORT_NUMBER`.\n\n"
    "`retryDelay` (default: `250`).\n",
    "docs/routes.md": "# Routes\n\n`GET /health/ready` answers 200.\n\n`DELETE /sessions/:id` signs out.\n",
    **_guides(
        "docs/how",
        {
            "building": "Use `npm run build`; output settings are in `config/build.json`.",
            "linting": "`npm run lint` reads `config/lint.json`.",
            "routing": "See `src/router.ts`.",
            "theming": "Themes are in `src/themes/`.",
            "faq": "Ask.",
        },
    ),
    "src/index.ts": "export { Router } from './router';\nexport function createApp() { return 1; }\n",
    "src/router.ts": "export class Router {}\n",
    "src/server.ts": (
        "const port = process.env.WEBKIT_PORT_NUMBER;\nconst retryDelay = 250;\n"
        "app.get('/health/ready', h);\napp.delete('/sessions/:id', h);\n"
        "import express from 'express';\n"
    ),
    "src/themes/dark.ts": "export const dark = 1;\n",
    "config/build.json": "{}\n",
    "config/lint.json": "{}\n",
    "package.json": json.dumps(
        {
            "name": "webkit",
            "scripts": {"build": "tsc", "dev": "vite", "lint": "eslint"},
            "engines": {"node": ">=20"},
            "dependencies": {"react": "^18.2.0"},
        },
        indent=1,
    ),
}

GO: Files = {
    "README.md": (
        "# Gate\n\n```sh\nmake build\n./scripts/run.sh\ncd tools && make generate\n```\n\n"
        'Needs Go 1.22 or newer.\n\n```go\nimport "example.org/gate/pkg/limit"\n```\n'
    ),
    "docs/architecture.md": "# Architecture\n\n`cmd/gate/main.go` starts `pkg/limit/limit.go`.\n",
    "docs/env.md": "# Environment\n\n- `GATE_LISTEN_ADDR`\n- `GATE_LOG_LEVEL`\n",
    **_guides(
        "docs/parts",
        {
            "limit": "See `pkg/limit/`.",
            "proxy": "See [the proxy](../../pkg/proxy/proxy.go).",
            "metrics": "`GET /metrics/summary` counts.",
            "release": "`make release` does all.",
        },
    ),
    "cmd/gate/main.go": (
        'package main\n\nimport (\n\t"net/http"\n\t"os"\n)\n\nfunc main() {\n'
        '\taddr := os.Getenv("GATE_LISTEN_ADDR")\n'
        '\t_ = os.Getenv("GATE_LOG_LEVEL")\n\thttp.HandleFunc("/metrics/summary", nil)\n'
        "\thttp.ListenAndServe(addr, nil)\n}\n"
    ),
    "pkg/limit/limit.go": "package limit\n\nfunc Allow() bool { return true }\n",
    "pkg/proxy/proxy.go": "package proxy\n",
    "scripts/run.sh": "#!/bin/sh\n",
    "tools/Makefile": "generate:\n\tgo generate\n",
    "Makefile": ".PHONY: build release\nbuild:\n\tgo build\nrelease: build\n\tgo release\n",
    "go.mod": "module example.org/gate\n\ngo 1.22\n",
}

CPP: Files = {
    "README.md": "# Mesh\n\nHeaders are in `include/mesh/`.\n\n```cpp\n#include <mesh/solver.h>\n"
    "```\n\nRead [building](doc/building.md).\n",
    "doc/building.md": "# Building\n\nSettings: `cmake/options.cmake`.\n\n## With tests\n\n"
    "Run `scripts/test.sh`.\n",
    "doc/design.md": "# Design\n\nThe solver is `src/solver.cpp`. See [tests](building.md#with-tests).\n",
    **_guides(
        "doc/notes",
        {"memory": "See `src/pool.cpp`.", "threads": "See `src/threads.cpp`.", "style": "Four spaces."},
    ),
    "include/mesh/solver.h": "#pragma once\nint solve();\n",
    "src/solver.cpp": '#include "mesh/solver.h"\nint solve() { return 1; }\n',
    "src/pool.cpp": "int pool;\n",
    "src/threads.cpp": "int threads;\n",
    "cmake/options.cmake": "set(X 1)\n",
    "scripts/test.sh": "#!/bin/sh\n",
}

DEPOT: Files = {
    "README.md": "# Engine\n\nTools are in `Tools/Build/`; the map is [here](Docs/Map.md).\n",
    "Docs/Map.md": "# Map\n\n- `Engine/Source/Render.cs`\n- `Engine/Config/Base.ini`\n"
    "- `Game/Content.json`\n",
    "Docs/Build.md": "# Build\n\nRun `Tools/Build/make.py`.\n\n`TickRate` (default: `60`).\n",
    **_guides(
        "Docs/Teams",
        {"render": "Own `Engine/Source/Render.cs`.", "game": "Own `Game/`.", "tools": "Own `Tools/`."},
    ),
    "Engine/Source/Render.cs": "class Render {}\n",
    "Engine/Config/Base.ini": "[Core]\nTickRate = 60\n",
    "Game/Content.json": "{}\n",
    "Tools/Build/make.py": "print(1)\n",
}

SITE: Files = {
    "README.rst": "Site\n====\n\nStart with :doc:`docs/index`. Run ``make html``.\n",
    "docs/index.rst": "Index\n=====\n\n.. toctree::\n\n   install\n   guide/first\n   guide/second\n"
    "\nSee `setup <install.rst>`_.\n",
    "docs/install.rst": "Install\n=======\n\nThe file ``conf/site.toml`` is read.\n\n"
    ".. literalinclude:: ../conf/site.toml\n",
    "docs/guide/first.rst": "First\n=====\n\nSee :doc:`second`.\n\n.. image:: ../images/plan.png\n",
    "docs/guide/second.rst": "Second\n======\n\n.. code-block:: python\n\n"
    "   from sitekit.build import render\n",
    "docs/page.md": "# Page\n\n## First part\n\n"
    "See [below](#second-part) and [install](install.rst).\n\n## Second part\n\nText.\n",
    **_guides(
        "docs/extra",
        {
            "one": "See [the page](../page.md#first-part).",
            "two": "See ![plan](../images/plan.png).",
            "three": "Run `make html`.",
            "four": "Set `SITEKIT_OUT_DIR`.",
        },
        "README.rst",
    ),
    "docs/images/plan.png": "png",
    "conf/site.toml": 'title = "x"\n',
    "sitekit/__init__.py": "",
    "sitekit/build.py": "import os\n\nOUT = os.environ.get('SITEKIT_OUT_DIR', 'out')\n\n\n"
    "def render():\n    return OUT\n",
    "Makefile": "html:\n\tsphinx-build\n",
}

TREES = {"python": PYTHON, "typescript": TYPESCRIPT, "go": GO, "cpp": CPP, "depot": DEPOT, "site": SITE}


class Mutation(NamedTuple):
    """A change of one tree: `files` has new contents (None deletes), `moves` old and new paths."""

    tree: str
    name: str
    files: dict[str, str | None]
    flips: frozenset[Flip]
    moves: dict[str, str] = {}

    def applied(self) -> Files:
        files = dict(TREES[self.tree])
        for old, new in self.moves.items():
            files[new] = files.pop(old)
        for path, text in self.files.items():
            if text is None:
                del files[path]
            else:
                files[path] = text
        return files


def _edit(tree: str, path: str, old: str, new: str) -> dict[str, str | None]:
    assert TREES[tree][path].count(old) >= 1, (tree, path, old)
    return {path: TREES[tree][path].replace(old, new)}


def _m(
    tree: str, name: str, files: dict[str, str | None], *flips: Flip, moves: dict[str, str] | None = None
) -> Mutation:
    return Mutation(tree, name, files, frozenset(flips), moves or {})


_P, _C, _V, _R, _E, _D, _X = (
    "path_reference",
    "command",
    "dependency_version",
    "api_route",
    "environment",
    "config",
    "code_example",
)
_STORAGE = ("docs/topics/storage.md", _P, "src/acme/storage.py")
MUTATIONS = (
    _m(
        "python",
        "delete a module",
        {"src/acme/storage.py": None},
        _STORAGE,
        ("README.md", _X, "acme.storage"),
    ),
    _m(
        "python",
        "rename a module",
        {},
        _STORAGE,
        ("README.md", _X, "acme.storage"),
        moves={"src/acme/storage.py": "src/acme/disk.py"},
    ),
    _m("python", "delete a tool", {"tools/report.py": None}, ("README.md", _P, "tools/report.py")),
    _m(
        "python",
        "rename a target",
        _edit("python", "Makefile", "lint:", "check:"),
        ("README.md", _C, "make"),
        ("docs/topics/cli.md", _C, "make"),
    ),
    _m(
        "python",
        "rename an environment",
        _edit("python", "tox.ini", "unit", "fast"),
        ("README.md", _C, "tox"),
    ),
    _m(
        "python",
        "delete a command",
        {
            "src/acme/management/commands/sync_users.py": None,
            "src/acme/management/commands/other.py": "class Command: ...\n",
        },
        ("README.md", _C, "manage.py"),
    ),
    _m(
        "python",
        "raise a dependency",
        _edit("python", "pyproject.toml", "django~=5.2.0", "django~=6.0.0"),
        ("README.md", _V, "Django"),
    ),
    _m(
        "python",
        "raise the runtime",
        _edit("python", "pyproject.toml", ">=3.11", ">=3.12"),
        ("README.md", _V, "Python"),
    ),
    _m(
        "python",
        "rename a variable",
        _edit("python", "src/acme/core.py", "ACME_API_URL", "ACME_BASE_URL"),
        ("docs/guide.md", _E, "ACME_API_URL"),
    ),
    _m(
        "python",
        "stop reading a variable",
        _edit("python", "src/acme/core.py", "KEY = os.getenv('ACME_API_KEY')", "KEY = ''"),
        ("docs/guide.md", _E, "ACME_API_KEY"),
        ("docs/topics/workers.md", _E, "ACME_API_KEY"),
    ),
    _m(
        "python",
        "change a parameter's default",
        _edit("python", "src/acme/core.py", "max_retries=5", "max_retries=3"),
        ("docs/guide.md", _D, "max_retries"),
    ),
    _m(
        "python",
        "change a default of a table",
        _edit("python", "src/acme/core.py", "page_size=50", "page_size=20"),
        ("docs/config.md", _D, "page_size"),
    ),
    _m(
        "python",
        "change a time",
        _edit("python", "src/acme/storage.py", "30", "60"),
        ("docs/config.md", _D, "cache_timeout"),
    ),
    _m(
        "python",
        "rename a class",
        _edit("python", "src/acme/core.py", "Client", "Session"),
        ("README.md", _X, "acme.core"),
    ),
    _m(
        "python",
        "delete a function",
        _edit("python", "src/acme/core.py", "def connect(", "def _open("),
        ("README.md", _X, "acme.core"),
    ),
    _m(
        "python",
        "change a route",
        _edit("python", "src/acme/web.py", "'/users/<int:id>'", "'/people/<int:id>'"),
        ("docs/api.md", _R, "GET"),
    ),
    _m(
        "python",
        "change a method",
        _edit("python", "src/acme/web.py", "app.post", "app.put"),
        ("docs/api.md", _R, "POST"),
    ),
    _m(
        "python",
        "rename a heading",
        _edit("python", "docs/guide.md", "## Install", "## Set up"),
        ("README.md", _P, "docs/guide.md"),
    ),
    _m(
        "python",
        "rename a document",
        {},
        ("docs/guide.md", _P, "config.md"),
        moves={"docs/config.md": "docs/settings.md"},
    ),
    _m(
        "python",
        "move a test",
        {},
        ("docs/topics/testing.md", _P, "tests/test_core.py"),
        moves={"tests/test_core.py": "tests/unit/test_core.py"},
    ),
    _m(
        "python",
        "change a comment",
        _edit("python", "src/acme/core.py", "import os\n", "import os  # system\n"),
    ),
    _m("python", "add a module", {"src/acme/extra.py": "x = 1\n"}),
    _m(
        "typescript",
        "rename a script",
        _edit("typescript", "package.json", '"build"', '"compile"'),
        ("README.md", _C, "npm"),
        ("docs/how/building.md", _C, "npm"),
    ),
    _m(
        "typescript",
        "delete a script",
        _edit("typescript", "package.json", ',\n  "lint": "eslint"', ""),
        ("docs/how/linting.md", _C, "npm"),
    ),
    _m(
        "typescript",
        "delete a configuration",
        {"config/lint.json": None},
        ("docs/how/linting.md", _P, "config/lint.json"),
    ),
    _m(
        "typescript",
        "raise react",
        _edit("typescript", "package.json", "^18.2.0", "^19.0.0"),
        ("README.md", _V, "React"),
    ),
    _m(
        "typescript",
        "raise node",
        _edit("typescript", "package.json", ">=20", ">=22"),
        ("README.md", _V, "Node"),
    ),
    _m(
        "typescript",
        "rename an export",
        _edit("typescript", "src/index.ts", "createApp", "makeApp"),
        ("README.md", _X, "webkit"),
    ),
    _m(
        "typescript",
        "rename a variable",
        _edit("typescript", "src/server.ts", "WEBKIT_PORT_NUMBER", "WEBKIT_PORT"),
        ("docs/configuration.md", _E, "WEBKIT_PORT_NUMBER"),
    ),
    _m(
        "typescript",
        "change a default",
        _edit("typescript", "src/server.ts", "retryDelay = 250", "retryDelay = 500"),
        ("docs/configuration.md", _D, "retryDelay"),
    ),
    _m(
        "typescript",
        "remove a route",
        _edit("typescript", "src/server.ts", "app.get('/health/ready', h);\n", ""),
        ("docs/routes.md", _R, "GET"),
    ),
    _m(
        "typescript",
        "change a path",
        _edit("typescript", "src/server.ts", "/sessions/:id", "/logins/:id"),
        ("docs/routes.md", _R, "DELETE"),
    ),
    _m(
        "typescript",
        "move a folder",
        {},
        ("docs/how/theming.md", _P, "src/themes/"),
        moves={"src/themes/dark.ts": "src/looks/dark.ts"},
    ),
    _m(
        "typescript",
        "rename the entry",
        {},
        ("README.md", _P, "src/index.ts"),
        ("README.md", _P, "src/index.ts"),
        moves={"src/index.ts": "src/main.ts"},
    ),
    _m(
        "go",
        "rename a command",
        {},
        ("docs/architecture.md", _P, "cmd/gate/main.go"),
        moves={"cmd/gate/main.go": "cmd/gated/main.go"},
    ),
    _m(
        "go",
        "move a package",
        {},
        ("docs/architecture.md", _P, "pkg/limit/limit.go"),
        ("docs/parts/limit.md", _P, "pkg/limit/"),
        ("README.md", _X, "example.org/gate/pkg/limit"),
        moves={"pkg/limit/limit.go": "pkg/rate/limit.go"},
    ),
    _m("go", "delete a script", {"scripts/run.sh": None}, ("README.md", _P, "./scripts/run.sh")),
    _m(
        "go",
        "rename a target below",
        _edit("go", "tools/Makefile", "generate:", "gen:"),
        ("README.md", _C, "make"),
    ),
    _m(
        "go",
        "delete a phony target",
        {"Makefile": ".PHONY: build\nbuild:\n\tgo build\n"},
        ("docs/parts/release.md", _C, "make"),
    ),
    _m("go", "raise go", _edit("go", "go.mod", "go 1.22", "go 1.23"), ("README.md", _V, "Go")),
    _m(
        "go",
        "rename a variable",
        _edit("go", "cmd/gate/main.go", "GATE_LOG_LEVEL", "GATE_VERBOSITY"),
        ("docs/env.md", _E, "GATE_LOG_LEVEL"),
    ),
    _m(
        "go",
        "change a route",
        _edit("go", "cmd/gate/main.go", "/metrics/summary", "/stats/summary"),
        ("docs/parts/metrics.md", _R, "GET"),
    ),
    _m(
        "go",
        "delete a linked file",
        {"pkg/proxy/proxy.go": None},
        ("docs/parts/proxy.md", _P, "../../pkg/proxy/proxy.go"),
    ),
    _m(
        "cpp",
        "rename a header",
        {},
        ("README.md", _X, "mesh/solver.h"),
        moves={"include/mesh/solver.h": "include/mesh/engine.h"},
    ),
    _m("cpp", "delete a source", {"src/pool.cpp": None}, ("doc/notes/memory.md", _P, "src/pool.cpp")),
    _m(
        "cpp",
        "rename a heading",
        _edit("cpp", "doc/building.md", "## With tests", "## Testing"),
        ("doc/design.md", _P, "building.md"),
    ),
    _m("cpp", "delete a script", {"scripts/test.sh": None}, ("doc/building.md", _P, "scripts/test.sh")),
    _m(
        "cpp",
        "change a name's case",
        {},
        ("doc/notes/threads.md", _P, "src/threads.cpp"),
        moves={"src/threads.cpp": "src/Threads.cpp"},
    ),
    _m(
        "depot",
        "delete a source",
        {"Engine/Source/Render.cs": None},
        ("Docs/Map.md", _P, "Engine/Source/Render.cs"),
        ("Docs/Teams/render.md", _P, "Engine/Source/Render.cs"),
    ),
    _m(
        "depot",
        "change a setting",
        _edit("depot", "Engine/Config/Base.ini", "60", "30"),
        ("Docs/Build.md", _D, "TickRate"),
    ),
    _m(
        "depot",
        "move a folder",
        {},
        ("Docs/Map.md", _P, "Game/Content.json"),
        ("Docs/Teams/game.md", _P, "Game/"),
        moves={"Game/Content.json": "Play/Content.json"},
    ),
    _m(
        "site",
        "delete a page",
        {"docs/guide/second.rst": None},
        ("docs/index.rst", _P, "guide/second"),
        ("docs/guide/first.rst", _P, "second"),
    ),
    _m(
        "site",
        "move a configuration",
        {},
        ("docs/install.rst", _P, "conf/site.toml"),
        ("docs/install.rst", _P, "../conf/site.toml"),
        moves={"conf/site.toml": "etc/site.toml"},
    ),
    _m(
        "site",
        "delete an image",
        {"docs/images/plan.png": None},
        ("docs/guide/first.rst", _P, "../images/plan.png"),
        ("docs/extra/two.md", _P, "../images/plan.png"),
    ),
    _m(
        "site",
        "rename a function",
        _edit("site", "sitekit/build.py", "def render", "def draw"),
        ("docs/guide/second.rst", _X, "sitekit.build"),
    ),
    _m(
        "site",
        "rename headings",
        _edit("site", "docs/page.md", "part", "half"),
        ("docs/extra/one.md", _P, "../page.md"),
    ),
    _m(
        "site",
        "rename a target",
        _edit("site", "Makefile", "html:", "site:"),
        ("README.rst", _C, "make"),
        ("docs/extra/three.md", _C, "make"),
    ),
    _m(
        "site",
        "rename a variable",
        _edit("site", "sitekit/build.py", "SITEKIT_OUT_DIR", "SITEKIT_TARGET"),
        ("docs/extra/four.md", _E, "SITEKIT_OUT_DIR"),
    ),
)
