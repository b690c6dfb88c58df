# ruff: noqa: E501 - tables are read by their rows
"""Secrets that are removed and text that is unchanged, class by class."""

from __future__ import annotations

import base64

import pytest

from criticizer.redaction import guard, redact
from criticizer.redaction.rules.issuer_tokens import KINDS, TOKEN_RULES, TokenRule
from tests.redaction import samples
from tests.redaction.fakes import ALNUM, HEX, diff, draw, password

P = password()
T20, T24, T32, T40 = draw(20), draw(24), draw(32), draw(40)
H32, H40 = draw(32, HEX), draw(40, HEX)
UUID = "-".join(draw(n, HEX) for n in (8, 4, 4, 4, 12))
BASIC = base64.b64encode(f"bob:{draw(11)}".encode()).decode()
B64 = base64.b64encode(bytes(range(7, 39))).decode()
TICKET = draw(32, "0123456789ABCDEF")
ENCODED = base64.b64encode(b'{"user":"bob","password":"' + P.encode() + b'"}').decode()

NAMED = {
    # assignments in many syntaxes
    "python": (f'password = "{P}"', P),
    "python annotated": (f'password: str = "{P}"', P),
    "python default": (f'def connect(user, password="{P}"):', P),
    "environment default": (f'token = os.getenv("TOKEN", "{T40}")', T40),
    "environment or": (f'pw = os.environ.get("PW") or "{P}"', P),
    "node fallback": (f'const secret = process.env.SECRET || "{T32}";', T32),
    "shell default": ("PASSWORD=${PASSWORD:-" + P + "}", P),
    "java": (f'private static final String DB_PASSWORD = "{P}";', P),
    "java wrapped": (f'String password = new String("{P}");', P),
    "go": (f'vendorToken := "{T40}"', T40),
    "ruby": (f":password => '{P}',", P),
    "php": (f"$cfg['password'] = '{P}';", P),
    "php define": (f"define( 'PASSWORD' , '{P}' );", P),
    "c define": (f'#define DB_PASSWORD "{P}"', P),
    "rust": (f'let password: String = "{P}".to_string();', P),
    "yaml": (f"  password: {P}", P),
    "yaml on two lines": (f"- name: API_TOKEN\n  value: {T32}", T32),
    "json": (f'"password":"{P}"', P),
    "json pair": ('{"name": "DB_PASSWORD", "value": "' + P + '"}', P),
    "json escaped": (f'"{{\\"password\\": \\"{P}\\"}}"', P),
    "properties": (f"spring.mail.password={P}", P),
    "dotenv": (f"EMAIL_HOST_PASSWORD={P}", P),
    "setter": (f'user.set_password("{P}")', P),
    "put": (f'props.put("password", "{P}");', P),
    "comparison": (f'if (password !== "{P}") {{', P),
    "prose": (f"The password is {P}", P),
    "spoken key": (f"Your API key is {H32}, keep it", H32),
    "walrus": (f'if SECRET := getenv("X", "{P}"):', P),
    "xml element": (f"<password>{P}</password>", P),
    "xml attribute": (f'<property name="password" value="{P}"/>', P),
    "jenkins": (f"<secret>{{AQAAABAAAAAg {T32}}}</secret>", T32),
    "html entities": (f"Password: &quot;{P}&quot;", P),
    "bytes": ("Secret: []byte{12, 9, 100, 114, 245, 164, 134, 217, 225}", "100, 114, 245"),
    "docker file": (f"ENV REDIS_PASSWORD {P}", P),
    "glued name": (f"vendorkey = '{draw(32, HEX + 'ghijklmnop')}'", draw(32, HEX + "ghijklmnop")),
    # connection strings and addresses
    "ado": (f"Server=s;User Id=sa;Password={P};Encrypt=true", P),
    "azure storage": (f"AccountName=a;AccountKey={B64};EndpointSuffix=x", B64),
    "postgres uri": (f"postgres://app:{T20}@db.example.com:5432/app", T20),
    "redis uri": (f"redis://:{T20}@cache:6379/0", T20),
    "smtp uri": (f"smtps://bot@example.com:{T20}@mail.example.com:465", T20),
    "git token uri": (f"https://{T40}@example.com/o/r.git", T40),
    "perforce uri": (f"perforce://svc:{T20}@p4:1666", T20),
    "no scheme": (f"ssl:svc:{T20}@p4.example.com:1666", T20),
    "encoded uri": (f"u=https%3A%2F%2Fx%3A{T20}%40example.com", T20),
    "oracle": (f"jdbc:oracle:thin:scott/{T20}@//h:1521/x", T20),
    "jdbc query": (f"jdbc:mysql://h/db?user=root&password={T20}&x=1", T20),
    "azure sas": (f"https://h/c?sv=2020&sig={T40}%3D&se=2025", T40),
    "query parameter": (f"https://h/v1?apikey={T32}&page=2", T32),
    # headers
    "bearer": (f"Authorization: Bearer {T40}", T40),
    "basic": (f'"Authorization": "Basic {BASIC}"', BASIC),
    "go header": (f'req.Header.Set("Authorization", "Bearer {T40}")', T40),
    "proxy": (f"Proxy-Authorization: Basic {BASIC}", BASIC),
    "api key header": (f"-H 'X-Api-Key: {T40}'", T40),
    "private token": (f"PRIVATE-TOKEN: {T20}", T20),
    "cookie": (f"Cookie: sessionid={T40}; theme=dark", T40),
    "set-cookie": (f"Set-Cookie: session={T40}; HttpOnly", T40),
    # mail
    "smtp auth": (f"AUTH PLAIN {BASIC}", BASIC),
    "smtp login call": (f'server.login("bot@example.com", "{P}")', P),
    "sasl map": (f"[smtp.example.com]:587 bot@example.com:{P}", P),
    # commands
    "mysql": (f"mysql -h db -u root -p{P} shop", P),
    "sshpass": (f"sshpass -p '{P}' ssh u@h", P),
    "curl": (f'curl -u "bob:{P}" https://x', P),
    "flag": (f"tool --api-key {T32} run", T32),
    "single dash flag": (f"tool -secret {T20}", T20),
    "powershell": (f'ConvertTo-SecureString "{P}" -AsPlainText', P),
    "sql": (f"CREATE USER bob IDENTIFIED BY '{P}';", P),
    "sql with": (f"ALTER LOGIN bob WITH PASSWORD = '{P}';", P),
    "sql set": (f"SET PASSWORD FOR 'bob'@'%' = PASSWORD('{P}');", P),
    "netrc": (f"machine example.com login bob password {P}", P),
    "pgpass": (f"localhost:5432:db:bob:{P}", P),
    "redis conf": (f"requirepass {P}", P),
    # perforce
    "p4passwd": (f"P4PASSWD={TICKET}", TICKET),
    "p4 flag": (f"p4 -u bob -P {TICKET} info", TICKET),
    "p4tickets": (f"ssl:perforce:1666=bob:{TICKET}", TICKET),
    # random on their own
    "unnamed": (f'g = "{T40}"', T40),
    "unnamed base64": (f'blob = "{B64}"', B64),
    "unnamed in a diff": (diff(f"+x = '{T40}'"), T40),
    # disguises
    "zero width": (f"gho_{T20[:8]}\u200b{T20[8:]}", T20[8:]),
    "look-alike": (f'p\u0430ssword = "{P}"', P),
    "full width": (f'\uff50\uff41\uff53\uff53word = "{P}"', P),
    "ansi": (f"\x1b[94mghp_{T32}\x1b[0m", T32),
    "encoded once more": (f"[{ENCODED}]", ENCODED),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_secret_is_taken_out(name: str) -> None:
    text, secret = NAMED[name]
    result = redact(text)
    assert secret in text
    assert secret not in result.text
    assert sum(result.counts.values()) >= 1
    assert set(result.counts) <= KINDS


@pytest.mark.parametrize("name", [name for name in NAMED if not NAMED[name][0].startswith("diff")])
def test_secret_is_taken_out_of_both_sides_of_a_diff(name: str) -> None:
    text, secret = NAMED[name]
    lines = text.split("\n")
    body = [*(f"-{line}" for line in lines), " context", *(f"+{line}" for line in lines)]
    result = redact(diff(*body)).text
    assert secret not in result
    assert [line[:1] for line in result.split("\n")] == [line[:1] for line in diff(*body).split("\n")]


KEPT = [
    # values that are read from elsewhere
    'smtp_password = settings.MAIL["password"]', "pwd = getpass.getpass('Password again: ')", 'secret = vault.get("app/web")',
    "token: ${{ secrets.PUBLISH_TOKEN }}", "MAIL_PASSWORD=${MAIL_PASSWORD:?set it first}", "  passphrase: $KEY_PASSPHRASE",
    'password = form.cleaned_data["password"]', "def connect(host, user, password=None, token=None):",
    "password = forms.CharField(widget=forms.PasswordInput, max_length=72)", "const apiToken = await session.fetchToken(user.id);",
    "new_token = signing.make_token(user, days=3)", "api_key = self.options.api_key", "secretKey: import.meta.env.SECRET_KEY,",
    "password_hasher = get_hasher('argon2')", "token = tokens[index - 1]", "key = frozenset(sorted(options))",
    # words about secrets
    '<label for="password">Password</label> <input type="password" name="password">', '"password": _("The two entries differ."),',
    'msgid "Your password has been changed."', 'path("accounts/password/change/", views.ChangeView.as_view()),',
    "token_lifetime_minutes: int = 1440", "password_min_length = 12", "PASSWORD_HASHERS = [", "tokenSecretRef:", "secret_count = 3",
    'parser = Tokenizer.load("xlm-roberta-large-v2")', "# with <password> in the text, as C<passwd> usually is",
    "SET PASSWORD FOR users, see below", "keyframes = animation(200)", "passthrough = enabled", "monkeypatch.setattr(client, 'get', fake)",
    "for key, entry in registry.items():", 'hotkey = "alt+shift+f4"', "KeyCode.ENTER2 = kReturn.value",
    # nothing but a place for one
    'API_KEY = "<insert the key here>"', 'password: "changeme"', 'secret = "xxxxxxxxxxxxxxxx"', "token = '****************'",
    'headers = {"Authorization": f"Token {api_token}"}', 'request.headers["Authorization"] = "Basic " + encoded',
    'curl -H "Authorization: Bearer ${TOKEN}" https://x', 'DSN = "amqp://localhost:5672/jobs"',
    'dsn = "mysql://{name}:{password}@{host}:{port}".format(**values)', "see http://127.0.0.1:9000/find?who=ann@x",
    'token = "hf_' + "x" * 34 + '"', "hvs." + "x" * 60, "npm_" + "X" * 36, r're.compile(r"glpat-[\w-]{20}")', 'match = "AKIA[A-Z0-9]{16}"',
    # identifiers, hashes, versions, code
    "credentialRef: '" + UUID + "'", 'tenant = "' + UUID + '"', "<ProjectSecretsId>" + UUID + "</ProjectSecretsId>",
    "commit: " + H40, "image: web@sha256:" + draw(64, HEX), 'checksum = "' + draw(64, HEX) + '"', 'ETag: W/"' + H32 + '"',
    "      - uses: actions/cache@" + H40, "integrity sha512-" + draw(86) + "==", "example.com/mod v0.3.1 h1:" + draw(43) + "=",
    "src: url(data:font/woff2;base64," + draw(400) + ")", "#define SEC_ASN1EncoderClearTakeFromBuf Clear_Util",
    "int d2i_ECPrivateKey_bio(BIO *bp, EC_KEY **eckey);", "scale3d_moz_transform_origin_25_percent_width", 'ALPHABET = "' + ALNUM + '+/"',
    "class AbstractSingletonBeanFactory2ConfigurationProviderTest:", 'public_key = "' + draw(43) + '"',
    "token_endpoint_url='https://example.com/oauth/token',", 'MODEL_SECRET_NAME = "TEAM-MODEL2-KEY"', "server.keystore.file=conf/web.p12",
    'if text.startswith("-----BEGIN PRIVATE KEY-----"):', "openssl req -x509 -nodes -keyout key.pem -out cert.pem", "mail ann@example.com about it", "listen 127.0.0.1:8443 or 10.1.2.3", "",
]  # fmt: skip


@pytest.mark.parametrize("text", KEPT)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text).text == text
    assert redact(diff(f"+{text}", f"-{text}")).text == diff(f"+{text}", f"-{text}")


@pytest.mark.parametrize("rule", TOKEN_RULES, ids=samples.names())
def test_every_issuer_mark_has_a_token_that_is_taken_out(rule: TokenRule) -> None:
    def is_taken(token: str) -> bool:
        return token not in redact(token).text

    token = samples.token_of(rule, is_taken)
    value = rule.pattern.fullmatch(token.encode())
    secret = token[slice(*value.span(1))] if rule.pattern.groups else token
    for text in (token, f"x = '{token}'", f"[{token}]", diff(f"+{token}"), f"see {token}\\n"):
        result = redact(text).text
        assert secret not in result
        assert "<REDACTED:" in result


@pytest.mark.parametrize("rule", TOKEN_RULES, ids=samples.names())
def test_issuer_mark_alone_or_masked_is_unchanged(rule: TokenRule) -> None:
    mark = rule.mark.decode()
    texts = [
        f"tokens begin with {mark} and go on",
        f'if value.startswith("{mark}"):',
        f"{mark}...",
        f"{mark}****",
    ]
    if rule.mark[-1:].isalnum() and rule.back == 0 and not rule.inside:
        texts.append(f"un{mark.lower()}able")
    if not rule.back:
        texts += [f"{mark}{'x' * 36}", f'"{mark}{"X" * 40}"']
    for text in texts:
        assert redact(text).text == text


@pytest.mark.parametrize(
    "prefix", ["ghp_", "glpat-", "AKIA", "sk-ant-", "npm_", "hvs.", "xoxb-", "rk_live_", "pypi-Ag"]
)
def test_token_cut_short_by_truncation_is_still_taken_out(prefix: str) -> None:
    body = (
        draw(18, "ABCDEFGH0123456789")
        if prefix == "AKIA"
        else ("200656-" if prefix == "xoxb-" else "") + draw(18)
    )
    text = f'token = "{prefix}{body}\n...[truncated]'
    assert body not in redact(text).text


SEQUENCE = "abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    ("prefix", "length"), [("npm_", 36), ("ghp_", 36), ("hf_", 34), ("gsk_", 52), ("pplx-", 48), ("r8_", 37)]
)
def test_token_of_its_issuers_form_is_taken_out_whatever_its_letters_are(prefix: str, length: int) -> None:
    token = prefix + (SEQUENCE * 2)[:length]
    for text in (
        token,
        f'token = "{token}"',
        f"//registry.example.com/:_authToken={token}",
        diff(f"+{token}"),
    ):
        result = redact(text)
        assert token[len(prefix) :] not in result.text
        assert guard(result) == result.text


def test_words_after_an_issuers_mark_are_unchanged() -> None:
    for text in (
        "npm_config_registry_of_a_long_name_2",
        "npm_lifecycleEventName",
        "hf_transformers_pipeline_v2",
    ):
        assert redact(text).text == text


def test_only_the_value_is_removed() -> None:
    text = f'  "db_password": "{P}",  # and postgres://app:{T20}@db:5432/x'
    expected = (
        '  "db_password": "<REDACTED:password:1>",  # and postgres://app:<REDACTED:uri-password:1>@db:5432/x'
    )
    assert redact(text).text == expected


def test_value_longer_than_the_window_is_taken_out_to_its_end() -> None:
    long = draw(6_000)
    for text in (f'secret = "{long}"', f"secret={long}", f"Authorization: Bearer {long}", f"x = ghp_{long}"):
        assert draw(6_000)[-40:] not in redact(text).text
