"""Passwords in command lines and in calls that take one by position.

Functions with text and two offsets are handlers (`handlers`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules.characters import kinds, looks_random
from criticizer.redaction.rules.handlers import Handler, by_word, is_likely_literal, is_password, taken
from criticizer.redaction.rules.named_values import Span, group_span, usable
from criticizer.redaction.rules.value_heuristics import is_code, is_expression, is_slug, judge

WINDOW: Final = 2048
# One argument, as a shell or a program writes it: exactly one of three groups takes part.
WORD: Final = rb"(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'`;|&<>()]{3,}))"
_QUOTED: Final = rb"(?:\"([^\"\n]+)\"|'([^'\n]+)')"
_USER_FLAG = compiled(
    rb"[ \t\"',]+(?:-u|-U|--user|--proxy-user|--basic-auth|--auth|--creds?|-a|-A|--credentials?)"
    rb"[\"',=\s]+[\"']?([^\s:\"'=]+):(?:([^\s\"']*))"
)
_HTPASSWD = compiled(
    rb"(?m)[^|;\n]*?[ \t]-[a-zA-Z]*b[a-zA-Z]*[ \t]+(?:[^\s\"'|;]+[ \t]+){1,2}"
    + WORD
    + rb"[ \t\r]*(?:$|[|;&\n>])"
)
# A password before or after the name, where the command ends or continues with a switch.
_NET_USE = compiled(
    rb"(?m)[^\n]*?(?:\\\\[^\s]+[ \t]+" + WORD + rb"[ \t]+/(?i:user)"
    rb"|[ \t]/(?i:u(?:ser)?):(?:\"[^\"\n]*\"|[^\s\"]+)[ \t]+" + WORD + rb"(?:[ \t]+[/&|>]|[ \t\r]*$))"
)
_NET_USER = compiled(rb"(?m)[ \t]+[^\s/]+[ \t]+" + WORD + rb"(?:[ \t]+/|[ \t\r]*$)")
_ECHOED = compiled(
    rb"(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+|[\"']%s(?:\\n)?[\"'][ \t]+)?" + WORD + rb"[ \t]*\|[^|;\n]{0,80}$"
)
_HERE_STRING = compiled(rb"[^|;<\n]{0,60}<<<[ \t]*" + WORD)
_LOGIN = compiled(
    rb"[ \t]{0,4}(?:[$\w.>-]+[ \t]*,[ \t]*|[a-z_]+[ \t]*=[ \t]*)?[\"'][^\"'\n]*[\"'][ \t]*,[ \t]*"
    rb"(?:[a-zA-Z_]+[ \t]*=[ \t]*)?[bru]?" + _QUOTED
)
# login(user, "x") and authenticate("x"): the value itself has to look chosen.
_BY_NAME = compiled(
    rb"[ \t]{0,4}(?:(?:[a-z_]+[ \t]*=[ \t]*)?[$@A-Za-z_][\w.>()\[\]-]{0,60}[ \t]*,[ \t]*)?"
    rb"(?:[a-zA-Z_]+[ \t]*=[ \t]*)?[bru]?" + _QUOTED
)
_THIRD = compiled(
    rb"[ \t]{0,4}(?:[^,()\"'\n]{0,80}|\"[^\"\n]*\"|'[^'\n]*')[ \t]*,[ \t]*"
    rb"(?:[a-zA-Z_]+[ \t]*=[ \t]*)?[\"'][^\"'\n]*[\"'][ \t]*,[ \t]*(?:[a-zA-Z_]+[ \t]*=[ \t]*)?[bru]?"
    + _QUOTED
)


def _flags(names: bytes, between: bytes = rb"[ \t=]*") -> Any:
    """Return the pattern of a flag's argument, anywhere in the rest of a command."""
    return compiled(rb"[^|;\n]*?[ \t](?:" + names + rb")" + between + WORD)


_MYSQL = compiled(rb"[^|;\n]*?[ \t\"',](?:-p|--password=)(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'`;|]{3,}))")
_SSHPASS = compiled(rb"[ \t]+-p[ \t]*(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"']+))")
_SECURE_STRING = compiled(
    rb"(?:[ \t]+-(?:AsPlainText|Force|String|Key[ \t]+\S+))*[ \t]+"
    rb"(?:\\*\"([^\"\\\n]+)|\\*'([^'\\\n]+)|([^\s\"'$(-][^\s\"']{3,}))"
)


def line_start(text: bytes, at: int, most: int = 300) -> int:
    """Return where the line of `at` begins, at most `most` bytes before."""
    low = max(at - most, 0)
    return max(text.rfind(b"\n", low, at) + 1, low)


def line_end(text: bytes, at: int) -> int:
    end = text.find(b"\n", at, at + WINDOW)
    return end if end >= 0 else min(at + WINDOW, len(text))


def literal(text: bytes, match: Any, kind: str = "cli-password") -> list[Span]:
    span = group_span(match)
    if span is None:
        return []
    value = text[slice(*span)]
    if value[:1] in b"$%-/" or not usable(value) or is_expression(value):
        return []
    return [(*span, kind)]


def flag(pattern: Any, text: bytes, start: int, end: int) -> list[Span]:
    return literal(text, pattern.match(text, end, line_end(text, end)))


def user_flag(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of each `curl -u user:password` of a line, or the token of `-u token:`."""
    found: list[Span] = []
    for match in _USER_FLAG.finditer(text, end, line_end(text, end)):
        user, value = match.groups()
        if not value:
            if len(user) >= 16 and (looks_random(user, rate=0.3) or judge(user, 2, quoted=True)):
                found.append((*match.span(1), "cli-password"))
        elif usable(value) and not value.startswith((b"$", b"%", b"/")) and not is_expression(value):
            found.append((*match.span(2), "cli-password"))
    return found


def echoed(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password that is printed to a command: `echo PASSWORD | sudo -S`.

    Also to `docker login --password-stdin`, and to `chpasswd` (user:password).
    """
    span = printed_before(text, start) or group_span(_HERE_STRING.match(text, end, line_end(text, end)))
    if span is None:
        return []
    first, last = span
    if text[start:end].lower() == b"chpasswd":
        first = text.find(b":", first, last) + 1  # 0 without a user before it
    return [(first, last, "cli-password")] if first and _is_echoed(text[first:last]) else []


def printed_before(text: bytes, start: int) -> tuple[int, int] | None:
    """Return the span of the word that is printed to the command at `start`."""
    low = line_start(text, start)
    span = group_span(_ECHOED.search(text[low:start]))
    return None if span is None else (low + span[0], low + span[1])


def _is_echoed(value: bytes) -> bool:
    return value[:1] not in b"$%-/" and is_password(value) and not is_code(value)


def login(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `login("user", "password")` and the like."""
    stop = line_end(text, end)
    kind = "smtp-credential" if text[start:end].lower() == b"login(" else "password"
    match = _LOGIN.match(text, end, stop)
    if match is not None:
        return taken(text, match, kind, is_password)
    return taken(text, _BY_NAME.match(text, end, stop), kind, is_likely_literal)


def third(text: bytes, start: int, end: int) -> list[Span]:
    """Find the third argument of `getConnection(url, "user", "password")` and the like."""
    return taken(text, _THIRD.match(text, end, line_end(text, end)), "password", is_password)


def mysql(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `mysql -uroot -pX`."""
    return flag(_MYSQL, text, start, end)


def secure_string(text: bytes, start: int, end: int) -> list[Span]:
    """Find the argument of `ConvertTo-SecureString X`."""
    return literal(text, _SECURE_STRING.match(text, end, line_end(text, end)), "password")


# The text that is sent, after the quote or brace that opens it.
_SENT: Final = {
    quote: compiled(rb"([^" + quote + rb"\n\\]{4,})(?:\\[rn])*" + close)
    for quote, close in ((b'"', b'"'), (b"'", b"'"), (b"}", rb"\}"))
}
_PROMPT = compiled(rb"(?i)assw|[*?]word|passphrase|passcode|kennwort|mot de passe|contrase")
_PROMPT_BYTES: Final = 200  # before the text that is sent, in which its prompt is
_KEY_ARGUMENT = compiled(rb"[\"'`](?:0x)?([^\"'`\n]{12,130})[\"'`]")


def _option(pattern: Any, text: bytes, start: int, end: int) -> list[Span]:
    """Find the arguments of all such options of a command; numbers are ports, not passwords."""
    before = text[start - 1 : start]
    if before.isalnum() or before in (b"_", b".", b"$"):
        return []
    found: list[Span] = []
    at, stop = end - 1, line_end(text, end)
    while (match := pattern.match(text, at, stop)) is not None and match.end() > at:
        spans = literal(text, match)
        value = text[slice(*spans[0][:2])] if spans else b""
        if text[start:end].lower() in _BEFORE_HOST:
            value = value.partition(b"@")[0]
        if (
            len(value) >= 4
            and value.translate(None, b"0123456789:.")
            and not (value.islower() and value.isalpha())
        ):
            found.append((spans[0][0], spans[0][0] + len(value), spans[0][2]))
        at = match.end()
    return found


def sent(text: bytes, start: int, end: int) -> list[Span]:
    """Find the text that `send "x"` answers to `expect "assword:"`, and copies of that program."""
    low = max(start - _PROMPT_BYTES, 0)
    prompt = max((last for _, last in _PROMPT.places(text, low, start)), default=-1)
    if prompt < 0 or text.find(b"expect", prompt, start) >= 0:
        return []  # the text that is sent answers another prompt
    opened = text[end - 1 : end]
    match = _SENT[b"}" if opened == b"{" else opened].match(text, end, line_end(text, end))
    return taken(text, match, "password", is_password)


def keyed_call(text: bytes, start: int, end: int) -> list[Span]:
    """Find the key of `createHmac("sha256", "key")`, `AES.new(b"key")` and the like."""
    for match in _KEY_ARGUMENT.finditer(text, end, min(line_end(text, end), end + 200)):
        value = match.group(1)
        if not is_slug(value) and kinds(value)[2] and b" " not in value and usable(value):
            return [(*match.span(1), "secret")]
    return []


_LITERAL = compiled(rb"[\"'`]([^\"'`\n]{6,64})[\"'`]")


def hashed(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `bcrypt.hash("x", 10)` and the like, among names of algorithms."""
    for match in _LITERAL.finditer(text, end, min(line_end(text, end), end + 160)):
        if is_likely_literal(match.group(1)):
            return [(*match.span(1), "password")]
    return []


# Commands (separated by "|"), the options whose argument is a password, and the signs between.
_OPTIONS: Final[tuple[tuple[bytes, bytes, bytes], ...]] = (
    (b"mongo|mongosh|mongodump|mongorestore|mongoimport|mongoexport|cqlsh|"
     b"twine|oc login|crane|buildah|skopeo",
     rb"-p|--password|--passphrase", rb"[ \t=]+"),
    (b"docker login|podman login|nerdctl login|helm registry login|az login|"
     b"psexec|ncftp|beeline|rdesktop|sqoop|nats",
     rb"-p|-P|--password|--pass|--token", rb"[ \t=]+"),
    (b"sqlcmd|bcp |osql|isql|mosquitto_pub|mosquitto_sub|ipmitool", rb"-P", rb"[ \t]*"),
    (b"vault login", rb"(?:token=)?", b""),
    (b"security ", rb"-w|-p", rb"[ \t]+"),
    (b"ssh-keygen", rb"-N|-P", rb"[ \t]*"),
    (b"snmpwalk|snmpget|snmpset|snmpbulk|snmptrap", rb"-A|-X", rb"[ \t]*"),
    (b"xfreerdp|wfreerdp|cmdkey|runas|mstsc", rb"/p(?:ass|assword)?:", b""),
    (b"az keyvault|az webapp|aws ssm|aws secretsmanager|gh secret|flyctl|vercel env|doppler|secret-set-value",
     rb"--value|--body|-b|--secret-string|--base64", rb"[ \t=]+"),
    (b"aws configure|setapikey|user-secrets set|npm config set|rabbitmqctl",
     rb"aws_secret_access_key|aws_session_token|login|setapikey|set[ \t]+\"[^\"\n]+\""
     rb"|(?:add_user|change_password)[ \t]+[^\s]+"
     rb"|set[ \t]+[^\s\"]*(?i:token|password|secret|key)", rb"[ \t]+"),
    (b"mosquitto_passwd", rb"-b[ \t]+[^\s]+[ \t]+[^\s]+", rb"[ \t]+"),
    (b"nuget push|nuget ", rb"-k|-ApiKey|--api-key|setapikey", rb"[ \t]+"),
    (b"wpa_passphrase", rb"[^\s-]+", rb"[ \t]+"),
    (b"sqlplus|sqlldr|expdp|impdp|rman", rb"[A-Za-z]\w*/", b""),
    (b"openssl", rb"-k[ \t]+|-pass(?:in|out)?[ \t]+pass:", b""),
    (b"lftp", rb"-u[ \t]*[^,\s]+,", b""),
    (b"redis-cli", rb"-a|--pass", rb"[ \t=]*"),
    (b"smbclient", rb"-U[ \t]*[^%\s\"']+%", b""),
    (b"7z |7za |unrar|rar ", rb"-p|-hp", b""),
    (b"ldapsearch|ldapadd|ldapmodify|ldapdelete|ldapwhoami", rb"-w", rb"[ \t=]*"),
    (b"ldappasswd", rb"-w|-s|-a", rb"[ \t=]*"),
    (b"useradd|usermod", rb"-p|--password", rb"[ \t=]*"),
    (b"impala-shell", rb"-n", rb"[ \t]+"),
    (b"certutil|signtool|pvk2pfx", rb"-p|/p|-pi|-po", rb"[ \t]+"),
    (b"poetry config", rb"http-basic\.[\w-]+[ \t]+[^\s]+", rb"[ \t]+"),
    (b"schtasks|psexec|pskill|pslist", rb"/rp|-rp|-p", rb"[ \t]+"),
)  # fmt: skip
_BEFORE_HOST: Final = frozenset((b"sqlplus", b"sqlldr", b"expdp", b"impdp", b"rman"))
_ARGUMENTS: Final[dict[bytes, Any]] = {
    b"sshpass": _SSHPASS,
    b"htpasswd": _HTPASSWD,
    b"net use ": _NET_USE,
    b"net user": _NET_USER,
    b"operator unseal": compiled(rb"[ \t]+(?:-[^\s]+[ \t]+)*" + WORD),
    b"encrypt_string": compiled(rb"[^|;\n]*?[ \t]" + _QUOTED),
    b"zip -": compiled(rb"(?:[^|;\n]*?[ \t]-)?P[ \t]*" + WORD),
}
_WORDS: Final[tuple[tuple[Handler, bytes], ...]] = (
    (user_flag, b"curl|wget|http -a|https -a|es-cli|elasticsearch"),
    (mysql, b"mysql|mysqldump|mysqladmin|mariadb"),
    (
        echoed,
        b"sudo -s|--password-stdin|chpasswd|kinit|--stdin|passphrase-fd|cryptsetup|"
        b"pass insert|ssh-add|vncpasswd|smbpasswd",
    ),
    (sent, b'send "|send -- "|send \'|send {|send -- {|sendline("|sendline(\''),
    (login, b"login(|basicauth(|basic_auth(|auth=(|auth = (|credentials(|credential("),
    (login, b"authenticate(|authentication(|.auth(|credentials.basic(|wifi.begin("),
    (login, b"pgp_sym_encrypt(|pgp_sym_decrypt(|aes_encrypt(|aes_decrypt("),
    (third, b"plainauth(|getconnection(|mysqli_connect(|mysql_connect(|create_user(|create_superuser("),
    (third, b"mysqli(|pdo(|connector.connect(|psycopg2.connect(|pymysql.connect("),
    (secure_string, b"securestring"),
    (
        keyed_call,
        b"createhmac(|hmac.new(|createcipheriv(|aes.new(|secretkeyspec(|fernet(|jwt.encode(|jwt.sign(",
    ),
    (keyed_call, b"jwt.decode(|jwt.verify(|new wallet(|privatekeytoaccount("),
    (
        hashed,
        b"bcrypt.hash|bcrypt.compare|bcrypt.generatefrompassword(|argon2.hash(|argon2.verify(|scrypt(|"
        b"scryptsync(|pbkdf2(|pbkdf2sync(|pbkdf2_hmac(|createcipher(",
    ),
)
HANDLERS: Final[dict[bytes, Handler]] = {
    **{command: partial(flag, pattern) for command, pattern in _ARGUMENTS.items()},
    **{
        command: partial(_option, pattern)
        for commands, names, between in _OPTIONS
        for pattern in (_flags(names, between),)
        for command in commands.split(b"|")
    },
    **by_word(_WORDS),
}
# These read their whole window, and find all passwords of their kind in it.
READ_ALL: Final = frozenset((user_flag, mysql, secure_string, *(HANDLERS[c] for c in _ARGUMENTS)))
