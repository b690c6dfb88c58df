# ruff: noqa: E501 - tables are read by their rows
"""Values on a line below their names, and joined values: whole and on both sides of a diff."""

from __future__ import annotations

import pytest
from unidiff import PatchSet

from criticizer.redaction import guard, redact
from tests.redaction.fakes import diff as diff_of
from tests.redaction.fakes import draw, password

P, OLD = password(), password(8)
K = draw(32, "0123456789abcdef")  # shows by nothing but its name
A, B = "Hx7#kLm", "2!pQz9W"

BELOW = {
    "python": f'password = (\n    "{P}"\n)',
    "python, a remark": f'password = (  # nosec\n    # the old one\n    "{P}"\n)',
    "python, annotated": f'password: str = (\n    "{P}"\n)',
    "python, argument": f'connect(\n    password=(\n        "{P}"\n    ),\n)',
    "python, three quotes": f'password = """\n{P}\n"""',
    "python, one line": f'password = ("{P}")',
    "call": f'password = SecretStr(\n    "{P}"\n)',
    "default": f'password = os.environ.get(\n    "PW",\n    "{P}",\n)',
    "setter": f'user.set_password(\n    "{P}"\n)',
    "login": f'server.login(\n    "bob@example.com",\n    "{P}",\n)',
    "javascript": f"const apiKey =\n  '{K}';",
    "java": f'private static final String DB_PASSWORD =\n        "{P}";',
    "java, sign below": f'String password\n    = "{P}";',
    "go": f'dbPassword :=\n\t"{P}"',
    "ruby": f':password =>\n  "{P}",',
    "fallback": f'const password = given ||\n  "{P}";\nconst x = process.env.PASSWORD ||\n  "{P}";',
    "backslash": f'password: \\\n "{P}"',
    "yaml": f"db:\n  password:\n    {P}\n  user: bob",
    "yaml, quoted": f"password:\n  '{P}'",
    "yaml, block": f"password: |\n  {P}\nuser: bob",
    "yaml, folded": f"  password: >-\n    {P}\n  user: bob",
    "yaml, value below": f"password:\n  value: {P}",
    "json": f'{{\n  "password":\n    "{P}",\n  "user": "bob"\n}}',
    "json, value below": f'"adminPassword": {{\n  "type": "string",\n  "value": "{P}"\n}}',
    "xml": f"<password>\n  {P}\n</password>",
    "xml, key": f"<conf>\n  <apiToken>\n    {K}\n  </apiToken>\n</conf>",
    "here-document": f"password = <<EOT\n{P}\nEOT",
    "shell": f"export DB_PASSWORD=\\\n{P}",
    "shell, flag": f"tool --password \\\n  {P} \\\n  run",
    "shell, flag with a sign": f"tool --api-key=\\\n  '{K}'",
    "curl": f"curl -X POST \\\n  -u bob:{P} \\\n  https://example.com",
    "curl, carriage returns": f"curl -X POST \\\r\n  -u bob:{P} \\\r\n  https://example.com",
    "mysql": f"mysql -h db \\\n  -u root \\\n  -p{P} shop",
    "sshpass": f"sshpass \\\n  -p '{P}' ssh u@h",
}  # fmt: skip
TOGETHER = {
    "plus": 'password = "A!" + "B!"',
    "three": 'password = "A!" + "xy7#" + "B!"',
    "nothing between": 'password = ("A!"\n            "B!")',
    "nothing between, below": 'password = (\n    "A!"\n    "B!"\n)',
    "nothing between, one line": 'password = "A!" "B!"',
    "nothing between, a remark": 'password = ("A!"  # one\n            "B!")',
    "nothing between, bytes": 'password = (b"A!"\n            b"B!")',
    "backslash": 'password = "A!" \\\n    "B!"',
    "backslash in the string": 'password = "A!\\\nB!"',
    "php": "$password = 'A!' . 'B!';",
    "php, below": "$password = 'A!'\n    . 'B!';",
    "lua": 'password = "A!" .. "B!"',
    "visual basic": 'password = "A!" & "B!"',
    "visual basic, below": 'password = "A!" & _\n    "B!"',
    "sql": "password = 'A!' || 'B!'",
    "elixir": 'password = "A!" <> "B!"',
    "haskell": 'password = "A!" ++ "B!"',
    "java": 'String password = "A!" +\n        "B!";',
    "java, sign below": 'String password = "A!"\n        + "B!";',
    "java, setter": 'setPassword("A!" + "B!")',
    "java, escaped": 'x = "password = \\"A!\\" + \\"B!\\""',
    "go": 'password := "A!" +\n\t"B!"',
    "javascript": "const password =\n  `A!` +\n  'B!'",
    "json": '"password": "A!" + "B!",',
    "wrapped": 'password = SecretStr(\n    "A!"\n    "B!"\n)',
    "an empty one": 'password = "" + "A!" + "B!"',
    "line feeds": 'password = "A!\\n" + "B!\\n"',
}  # fmt: skip
ORDINARY = [
    "PASSWORD=\nHOST=db1.example.com\nAPI_KEY=\nUSER2=bob22", "password:\nusername: bob2022x", "db:\n  password:\n  host: db1x9Q.example",
    "if password:\n    x9_run2()\n    return", "if not api_key:\n    raise ValueError('E1002: key x9 missing')",
    'def check(self, token):\n    """Check t0ken x9!."""', 'class Password:\n    """See RFC2898, PBKDF2-HMAC!."""',
    "password = (\n    os.environ['X']\n)", "password:\n  valueFrom:\n    secretKeyRef: db-1", "password:\n  type: string\n  minLength: 8",
    '"password": {\n  "type": "string",\n  "minLength": 12\n}', "usage: login <user> <password>\noptions2x:",
    "<password>\n  ${db.password}\n</password>", "password: |\n  Please enter the 8 characters\n  of your new one.",
    "key: >-\n  v1-${{ runner.os }}-deps-${{ hashFiles('x') }}", 'const key =\n  "ArrowDown2";',
    'fields = [\n  "username",\n  "password",\n  "first_name2",\n]', 'token = "abc" + suffix', 'password = "" + ""',
    '"password=" + password + "&user2=x9!"', 'print("password: " + "Please enter 8 characters!")', 'label = _("Password") + ":"',
    "token =\n    parser.next_token2();", "password \\\n  and other2 \\\n  words", 'PASSWORD="$PW"\n"$BIN2x!" run',
    'password_help = password = """\nSee RFC2898, or c0de x9! for words.\n"""', "api_key = (\n    settings.API_KEY2\n)", 'password =\n    "Please enter your password"', "_token = (r'(?:[%s]+|(?:%s|%s)+)' % x)",
    f"Keys for releases (some sign with subkeys):\n\n* **Ann**\n  `{K}`\n* **Bob**\n  `{K}`",
    'key = (r"%s\\6.0\\Build System\\Components\\Platforms"\n       % base)', "openssl req -nodes \\\n  -keyout localhost-key.pem -out cert.pem",
]  # fmt: skip


def added(text: str) -> str:
    """Return a diff that adds the text."""
    return diff_of(*(f"+{line}" for line in text.split("\n")))


def shape(diff: str) -> list[str]:
    """Return the kinds of the lines that another parser reads."""
    return [line.line_type for file in PatchSet(diff) for hunk in file for line in hunk]


@pytest.mark.parametrize("name", BELOW)
def test_value_below_its_name_is_taken_out(name: str) -> None:
    text = BELOW[name]
    assert P in text or K in text
    for wrapped in (text, added(text), added(text).replace("\n+", "\n-"), added(text).replace("\n+", "\n ")):
        result = redact(wrapped)
        assert P not in result.text
        assert K not in result.text
        assert guard(result) == result.text
        assert result.text.count("\n") == wrapped.count("\n")
        assert redact(result.text).text == result.text


@pytest.mark.parametrize("name", TOGETHER)
def test_every_piece_of_a_concatenation_is_taken_out_under_one_number(name: str) -> None:
    text = TOGETHER[name].replace("A!", A).replace("B!", B)
    for wrapped in (text, added(text)):
        result = redact(wrapped).text
        assert A not in result
        assert B not in result
        assert result.count("<REDACTED:password:1>") >= 2
        assert "<REDACTED:password:2>" not in result
        assert redact(result).text == result
    assert shape(redact(added(text)).text) == shape(added(text))


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_lines_one_below_the_other_stay_as_they_are(text: str) -> None:
    assert redact(text).text == text
    assert redact(added(text)).text == added(text)


def test_pieces_that_form_a_password_together_are_removed() -> None:
    text = 'password = ("abc"\n            "d9!fQz"\n            "x7")'
    assert redact(text).text == (
        'password = ("<REDACTED:password:1>"\n'
        '            "<REDACTED:password:1>"\n'
        '            "<REDACTED:password:1>")'
    )


def test_value_has_one_number_whole_and_in_pieces() -> None:
    text = f'password = "{A}{B}"\npassword = "{A}" + "{B}"\npassword = "{B}" + "{A}"'
    result = redact(text).text.split("\n")
    assert result[0] == 'password = "<REDACTED:password:1>"'
    assert result[1] == 'password = "<REDACTED:password:1>" + "<REDACTED:password:1>"'
    assert result[2] == 'password = "<REDACTED:password:2>" + "<REDACTED:password:2>"'


CHANGED = {
    "python": (" password = (", f'-    "{OLD}"', f'+    "{P}"', " )"),
    "name added": ('-password = "x"', "+password = (", f'+    "{P}"', "+)"),
    "value in the context": ("-passwd =", "+password =", f'     "{P}"'),
    "yaml": (" password:", f"-  {OLD}", f"+  {P}"),
    "yaml, block": (" password: |", f"-  {OLD}", f"+  {P}", " user: bob"),
    "json": (" {", '   "password":', f'-    "{OLD}"', f'+    "{P}"', " }"),
    "xml": (" <password>", f"-  {OLD}", f"+  {P}", " </password>"),
    "interleaved": ("-passwd =", "+password =", f'-  "{OLD}"', f'+  "{P}"'),
    "shell": (" tool --password \\", f"-  {OLD} \\", f"+  {P} \\", "   run"),
    "curl": (" curl \\", f"-  -u bob:{OLD} \\", f"+  -u bob:{P} \\", "   https://example.com"),
    "second piece": (' password = ("Hx7#kLm"', f'-   "{OLD}"', f'+   "{P}"', " )"),
    "pair": (" - name: DB_PASSWORD", f"-   value: {OLD}", f"+   value: {P}"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_old_and_new_value_below_a_name_in_the_context_are_taken_out(name: str) -> None:
    text = diff_of(*CHANGED[name])
    result = redact(text).text
    assert P not in result
    assert OLD not in result
    assert [line[:1] for line in result.split("\n")] == [line[:1] for line in text.split("\n")]


@pytest.mark.parametrize("border", ["@@ -40,1 +40,1 @@", "--- a/b.py\n+++ b/b.py\n@@ -1,1 +1,1 @@"])
@pytest.mark.parametrize("name", ["+password = (", "+password:", "+tool --password \\", "+password = 'Hx7#' +", "+password: |"])  # fmt: skip
def test_value_is_not_looked_for_behind_the_border_of_a_hunk(name: str, border: str) -> None:
    text = diff_of(name) + f'{border}\n+    "{draw(9)} x"\n'
    assert redact(text).text.split("\n")[6:] == text.split("\n")[6:]


def test_value_is_not_looked_for_on_the_other_side() -> None:
    text = diff_of("-password = (", "-)", '+labels = ("Hx7#kLm2!pQ")')
    assert redact(text).text == text


@pytest.mark.parametrize("quote", ["'", '"'])
def test_argument_after_a_flags_value_is_not_joined_to_it(quote: str) -> None:
    text = f"tool --password {quote}{A}{quote} {quote}other9!{quote}"
    assert redact(text).text == f"tool --password {quote}<REDACTED:password:1>{quote} {quote}other9!{quote}"
