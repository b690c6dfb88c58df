"""Names of secrets in every spelling of code and configuration, and look-alikes."""

from __future__ import annotations

import random


def _words(text: str) -> list[str]:
    return text.split()


_PASSWORD = _words("""
password password password password password password password password passwd passwd pwd pwd
pass passphrase passcode pswd passwrd pasword userpass
""")
_FOREIGN = _words("""
passwort kennwort motdepasse contrasena contraseña senha wachtwoord haslo hasło heslo parola
salasana losenord lösenord adgangskode passord jelszo lozinka parole slaptazodis sifre şifre parool
пароль
""")
_TOKEN = _words("""
token secret api_key apikey access_token auth_token secret_key client_secret refresh_token
private_key api_token access_key encryption_key signing_key api_secret app_secret bearer_token
webhook_secret secret_token
""")
_OWNER = _words("""
db database admin root smtp redis app user backup mysql postgres ldap ftp ssh mail proxy service
deploy jenkins grafana rabbitmq billing payment partner kafka elastic vault keystore sonar nexus
stripe twilio acme orders
""")
_AFTER = _words("""
prod dev test new old value default main primary 1 2
""")


def _styled(words: list[str], source: random.Random, style: int) -> str:
    if style == 0:
        return "_".join(words)
    if style == 1:
        return "_".join(words).upper()
    if style == 2:
        return words[0] + "".join(word.capitalize() for word in words[1:])
    if style == 3:
        return "".join(word.capitalize() for word in words)
    return source.choice("-.").join(words)


def _name(core: str, source: random.Random, styles: range) -> str:
    words = core.split("_")
    if source.random() < 0.6:
        words = [source.choice(_OWNER), *words]
    if source.random() < 0.12:
        words = [*words, source.choice(_AFTER)]
    return _styled(words, source, source.choice(styles))


def password(source: random.Random) -> str:
    return _name(source.choice(_PASSWORD if source.random() < 0.85 else _FOREIGN), source, range(4))


def password_key(source: random.Random) -> str:
    return _name(source.choice(_PASSWORD if source.random() < 0.85 else _FOREIGN), source, range(5))


def upper(source: random.Random) -> str:
    return _name(source.choice(_PASSWORD), source, range(1, 2))


def upper_token(source: random.Random) -> str:
    return _name(source.choice(_TOKEN), source, range(1, 2))


def token(source: random.Random) -> str:
    return _name(source.choice(_TOKEN), source, range(4))


def token_key(source: random.Random) -> str:
    return _name(source.choice(_TOKEN), source, range(5))
