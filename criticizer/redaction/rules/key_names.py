"""Strength of a name: the likelihood that the value beside it is a secret.

A name is cut around a word that was found in it: `db_PASSWORD_old` has the head `db_`, the word
`password` and the tail `_old`. The strength is that of `value_heuristics`, 0 for none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from criticizer.redaction.patterns import compiled

PASSWORD, SECRET, WEAK = 3, 2, 1

# Words by strength. Those of the last two lists must begin a part of the name.
_STRONG_WORDS: Final = """
password passwd passphrase passcode passwort motdepasse contrasena senha
pswrd psword pswd passw pword kennwort wachtwoord contraseña hasło haslo lösenord losenord parola
passwrd pasword paswd psswd passord heslo salasana adgangskode jelszo jelszó lozinka slaptazodis slaptažodis
sifre şifre parool geslo пароль лозинка парола κωδικός κωδικος συνθηματικό σύνθημα συνθημα
密码 密碼 口令 パスワード 暗証番号 合言葉 비밀번호 암호 패스워드 รหัสผ่าน पासवर्ड পাসওয়ার্ড סיסמה סיסמא
unlock_code recovery_code backup_code contrasenya contrasinal kodeord lykilorð
pasahitza pasfhocal cyfrinair fjalëkalimi nenosiri pasvorto
wagwoord şifrə құпиясөз პაროლი գաղտնաբառ գաղտնաբառը கடவுச்சொல் گذرواژه پاسورڈ
"""
_ENGLISH: Final = (
    "password passwd passphrase passcode pswrd psword pswd passw pword passwrd pasword paswd psswd"
    " unlock_code recovery_code backup_code"
)
_PLAIN_WORDS: Final = """
secret token apikey api_key api-key access_key access-key accesskey auth_key authkey auth-key
private_key privatekey private-key encryption_key encryptionkey encryption-key signing_key signingkey
account_key accountkey sharedaccesskey shared_key license_key licensekey master_key masterkey
app_key appkey service_key credential xoauth2_bearer
subscription-key session_key default_authtok webhook_key sessionid session_id phpsessid jsessionid
_srt webhook_url
preshared pre_shared pre-shared cipher_key cipherkey hmac_key credentials otp_seed otpseed totp_seed
pin_code pincode access_code activation_code
geheimnis zugangstoken secreto segredo jeton токен секрет 密钥 密鑰 秘钥 令牌 トークン
シークレット 토큰 시크릿
"""
_SHORT_WORDS: Final = "pass pwd pw psw psk"
_WEAK_WORDS: Final = """
key auth sid salt bearer jwt _pat cred creds authentication sig signature hmac pepper
schlüssel schluessel chiave llave chave ключ
"""
# Words of a phrase stand apart, are joined, or have a dash or underscore between them.
_PHRASES: Final = (
    "mot de passe", "mật khẩu", "mật mã", "kata sandi", "kata laluan", "palavra passe", "parola d'ordine",
    "كلمة المرور", "كلمة مرور", "كلمة السر", "رمز عبور", "رمز العبور", "پاس ورڈ",
    "pass phrase", "pass word", "recovery code", "backup code",
)  # fmt: skip


def _encoded(words: str, join: str = "") -> list[bytes]:
    """Return the words, or the phrase they `join`, in all forms, with lower-case ASCII letters."""
    listed = [words.replace(" ", join)] if join else words.split()
    forms = (form for word in listed for form in (word, word.capitalize(), word.upper()))
    return list(dict.fromkeys(form.encode().lower() for form in forms))


# Word -> (strength, whether it must begin a part of the name).
WORDS: Final[dict[bytes, tuple[int, bool]]] = {
    **dict.fromkeys(_encoded(_STRONG_WORDS), (PASSWORD, False)),
    **{form: (PASSWORD, False) for phrase in _PHRASES for mark in " _-" for form in _encoded(phrase, mark)},
    **dict.fromkeys((b"clave", b"parole", b"sandi"), (PASSWORD, True)),
    **dict.fromkeys((*_encoded(_PLAIN_WORDS), b"api key", b"authentication key"), (SECRET, False)),
    **dict.fromkeys(_encoded(_SHORT_WORDS), (PASSWORD, True)),
    **dict.fromkeys(_encoded(_WEAK_WORDS), (WEAK, True)),
}

# In other languages words have endings: Passordet, Lösenordet, kata sandinya.
INFLECTED: Final = frozenset(
    word for word, (strength, own) in WORDS.items() if strength == PASSWORD and not own
).difference(_encoded(_ENGLISH))

# Words that may follow the word without changing the strength.
_KEEPS_TEXT: Final = """
value val string str text txt plain plaintext raw clear cleartext b64 base64 enc encoded encrypted
hash digest confirmation confirm again repeat verify old new current next prod production dev devel
development test testing staging stage live main primary secondary default backup root user db hex
data for is was of and or here env api client app server admin master one two first second key token
secret password pass passwd shared
"""
_KEEPS: Final = frozenset(_KEEPS_TEXT.split())
# Attributes of a password or token: the value is not a secret, but about one.
_ABOUT_TEXT: Final = """
id ids name names url uri urls link href file files filename path paths dir directory folder length
len size min max type types kind field fields expiry expires expire expiration expired ttl timeout
lifetime age count limit version algorithm alg regex pattern policy rule rules validator validators
validation valid reset form view prompt label hint placeholder error errors message msg help
required enabled disabled location endpoint host port var variable ref refs reference arn alias
generator provider manager service store storage vault ring board code down up press pressed event
selector index idx pair pairs map mapping list set usage format header prefix suffix param parameter
column attr attribute class bits rotation schedule source strength scope scopes audience issuer
status state mode method function func callback handler strategy title description comment page
screen input output button icon img image template request response requests info config settings
options option spec schema model table created updated date time at by on if not exists frame space
word words command cmd script program
stroke stone note notes hook hooks handle chain hole finder fingerprint bytes keyid
metadata tag tags labels group groups owner region zone domain module package import izer ized ize
ization isation isations ary arial meshing ing signatures identifier bundle browser cache
"""
_ABOUT: Final = frozenset(_ABOUT_TEXT.split())
# Last words before a name after which it names no secret: public_, csrf-, max. "number_of" ends in "of".
_HEAD_NOT_TEXT: Final = b"""
public pub csrf xsrf next prev page cursor continuation max min num number_of total cache sort partition
foreign unique primary composite idempotency row group object hash map dict bucket translation i18n locale
hot short arrow enter return shift ctrl alt query search registry lookup index schema sequence config has is
use show hide forgot reset lost change update no skip check validate parse end start stop pad eos bos unk sep
cls mask
"""
_HEAD_NOT: Final = frozenset(_HEAD_NOT_TEXT.split())
_NUMBER_OF: Final = b"number_of"
_DASHES: Final = bytes.maketrans(b"_.", b"--")
_HEAD_NOT_CAMEL: Final = compiled(
    rb"(?:Public|public|[Cc]srf|[Xx]srf|next|Next|page|Page|max|Max|cache|Cache|sort|Sort|partition|Partition|foreign|primary|"
    rb"sequence|schema|group|bucket|map|hash|object|lookup)$"
)
_GLUED: Final = compiled(
    rb"(?i)(?:db|database|sql|mysql|pg|user|usr|root|admin|smtp|mail|imap|pop3?|ftp|sftp|ssh|my|redis|mongo|ldap|proxy|wifi|key|"
    rb"store|trust|cert|pfx|vpn|web|api|bot|login|sys|host|sa|rpc|mq|svn|git|http|sudo|p4|app|access|secret|vault|sign|text|"
    rb"tp|x|sub|dev|prod|test|job|deploy|hub|lab|net|oauth|refresh|remote|local|import|export|sasl|bind|become|vnc|rdp|win|"
    rb"domain|svc|service|super|owner|master|default|send|relay|router|guest)$"
)
# Words before `key` that make it a secret key.
_KEY_OF: Final = compiled(
    rb"(?i)(?:api|access|secret|private|encryption|encrypt|signing|sign|auth|master|account|shared|licen[cs]e|deploy|"
    rb"service|app|aws|client|session|storage|server|admin|root|dev|prod|live|jwt|hmac|aes|token|security|webhook|crypt|"
    rb"xi|rest|write|read|function|host|integration|ingest|stripe|twilio|openai)[_.\- ]?$"
)

_BOUNDS: Final = (b"", b"_", b".", b"-")
_ENDS_PUBLIC: Final = (b"ckey", b"_key", b"recv", b"tion")  # of what the next expression finds
_PUBLIC: Final = compiled(rb"(?i)public_?key_?$|recv-?$|site-?verification$")


def _is_not(head: bytes) -> bool:
    """Return whether the last word before a name shows that it does not name a secret."""
    lower = head.lower()
    lower = lower[:-1] if lower[-1:] in (b"_", b".", b"-") else lower
    if lower.translate(_DASHES).rpartition(b"-")[2] in _HEAD_NOT:
        return True
    return lower.endswith(_NUMBER_OF) and lower[-len(_NUMBER_OF) - 1 : -len(_NUMBER_OF)] in _BOUNDS


def _words(tail: str) -> list[str]:
    out: list[str] = []
    word = ""
    for char, before in zip(tail, "_" + tail, strict=False):
        if not char.isalpha():
            out.append(word)
            word = ""
            continue
        if char.isupper() and not before.isupper() and word:
            out.append(word)
            word = ""
        word += char.lower()
    out.append(word)
    return [w for w in out if w]


@lru_cache(maxsize=8_192)
def strength(word: bytes, found: bytes, head: bytes, tail: bytes) -> int:
    """Return the strength of `head` + `found` + `tail`; `word` is `found` in lower case."""
    base, own_word = WORDS[word]
    if head.rstrip(b"_-")[-4:].lower() in _ENDS_PUBLIC and _PUBLIC.search(head) is not None:
        return 0
    before = head[-1:]
    glued = before.isalpha() and not (found[:1].isupper() and before.islower())
    if own_word and glued and _GLUED.search(head) is None:
        # vendorkey, somepass: a weak sign, which is harmless for monkey.
        return WEAK if not tail and word in (b"key", b"pass", b"pwd") else 0
    is_camel = base < PASSWORD and found[:1].isupper()
    if head and base < PASSWORD and _is_not(head):
        return 0
    if head and is_camel and _HEAD_NOT_CAMEL.search(head) is not None:
        return 0
    if base == WEAK and word == b"key" and _KEY_OF.search(head) is not None:
        base = SECRET
    if not tail:
        return base
    follows = tail[:1]
    if follows.isalpha() and follows.islower() == found[-1:].islower():
        # tokenizer, passenger, keyboard, secretary: other words; plurals are weak.
        if tail in (b"s", b"S"):
            return WEAK
        return base if tail.decode("ascii", "replace").lower() in _KEEPS else 0
    words = _words(tail.decode("ascii", "replace"))
    if any(w in _ABOUT for w in words):
        return 0
    if all(w in _KEEPS or len(w) == 1 for w in words):
        return base
    return WEAK if base > WEAK else 0
