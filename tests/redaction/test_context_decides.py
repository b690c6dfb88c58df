# ruff: noqa: E501 - a table is read by its rows
"""Secrets that only the lines or the command around them show to be secrets (G191).

Their innocent twins stay.
"""

from __future__ import annotations

import pytest

from criticizer.redaction import redact

P = "Harbor!Tide58"
# Each form, with what makes a secret of it; "{}" stands for the password.
PLACES = {
    "basicauth of Caddy": "example.com {\n  basicauth /admin/* {\n    bob {}\n  }\n}\n",
    "its second user": "basic_auth bcrypt \"ops only\" {\n\t# of the shop\n\n\tann {env.HASH}\n\tbob {}\n}\n",
    "users of Traefik": "  basicAuth:\n    users:\n      - bob:{}\n",
    "users of Traefik in TOML": "[http.middlewares.a.basicAuth]\n  users = [\n    \"bob:{}\",\n  ]\n",
    "net use, password last": "net use \\\\nas\\share /user:ops {}\n",
    "net use, and switches": "net use Z: \\\\nas\\share /user:corp\\ops {} /persistent:yes\n",
    "net use, short": "net use Z: \\\\nas\\share /u:ops \"{}\" && dir Z:\n",
    "send of expect": "expect \"*?assword:*\"\nsend \"{}\\r\"\n",
    "send to a prompt in capitals": "expect \"PASSWORD: \"\nsend -- \"{}\\r\"\n",
    "send with braces": "expect -re \".*word:\"\nsend {{}}\n",
    "sendline of pexpect": "child.expect('Password:')\nchild.sendline('{}')\n",
    "the prompt behind another": "expect \"(yes/no)?\"\nsend \"yes\\r\"\nexpect \"assword:\"\nsend \"{}\\r\"\n",
    "chap-secrets by its head": "# client\tserver\tsecret\t\tIP addresses\nalice\t*\t{}\t*\n",
    "pap-secrets by its head": "# Secrets for authentication using PAP\n# client server secret\n\"alice@isp\" * \"{}\"\n",
    "chap-secrets by its path": "--- a/etc/ppp/chap-secrets\n+++ b/etc/ppp/chap-secrets\n@@ -1 +1,2 @@\n # of the office\n+bob office {} 10.0.0.5\n",
    "chap-secrets as it is written": "echo \"bob * {} *\" | sudo tee -a /etc/ppp/chap-secrets\n",
    "chap-secrets as it is fed": "cat > /etc/ppp/chap-secrets <<EOF\nbob * {} *\nEOF\n",
    "a row of a tunnel": "bob pptpd {} 10.0.0.5\n",
    "passwd-file of Dovecot": "bob:{PLAIN}{}:1000:1000::/home/bob\n",
    "scheme in a table": "INSERT INTO mail VALUES ('bob@example.com', '{PLAIN}{}');\n",
    "scheme in LDIF": "attr: {CLEAR}{}\n",
    "crypt with a salt": "INSERT INTO users VALUES ('bob', crypt('{}', gen_salt('bf', 8)));\n",
    "crypt over two lines": "UPDATE users SET h = CRYPT('{}'::text,\n  gen_salt('md5'));\n",
    "pgcrypto": "SELECT pgp_sym_decrypt(card, '{}') FROM cards;\n",
    "map of Terraform": "  secret_string = jsonencode({\n    username = \"app\"\n    db       = \"{}\"\n  })\n",
    "complex key of YAML": "db:\n  ? password\n  : {}\n",
    "complex key, quoted": "? \"password\"\n: \"{}\"\n",
    "complex key, block": "? password\n: |\n  {}\n",
    "JSON broken at the colon": "{\n  \"password\"\n  :\n  \"{}\"\n}\n",
    "JSON broken behind the colon": "{\n  \"password\":\n    \"{}\"\n}\n",
    "comment above": "// admin password:\nconst x = \"{}\";\n",
    "comment above, whose it is": "# the password for the shop\nX = \"{}\"\n",
    "comment above a line": "# database password\n{}\n",
    "closed comment above": "/* password */\n\"{}\"\n",
    "heading above": "## Password\n\n`{}`\n",
    "both in comments": "# password\n# {}\n",
    "emoji behind the name": "password\U0001f511 = \"{}\"\n",
    "emoji before the sign": "password \U0001f511: {}\n",
}  # fmt: skip
HASHES = [
    "bob:{CRAM-MD5}9186d855e11eba527a7a52ca82b313e180d62234f0acc9051b527243d41e2740:\n",
    "basicauth {\n  bob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\n",
]
INNOCENT = [
    "The PIN is 6 digits long.\n",
    "const int LED_PIN = 1024;\n",
    "pin: 4711\n",
    "spin is 4711 turns\n",
    "Bengaluru, PIN: 560001\n",
    "The PIN is 4711ms late\n",
    "basicauth {\n  bob {$HASH}\n  ann {env.ANN_HASH}\n}\n",
    "example.com {\n  basicauth @admin {\n    import users\n  }\n  reverse_proxy app:8080\n  encode zstd2 gzip\n}\n",
    "app.use(basicAuth, (req) => {\n  return next1();\n});\n",
    "fun basicAuth {\n  return Session7\n}\n",
    "  basicAuth:\n    secret: web-users-2\n  image: shop:v1.2.3\nusers:\n  - bob:staff\n",
    "  basicAuth:\n    users:\n      - ${ADMIN_USERS}\n",
    "net use Z: \\\\nas\\share2 /user:corp\\ops /persistent:yes\n",
    "net use Z: \\\\nas\\share /user:ops %PASS%\n",
    "Map it with net use Z: \\\\nas\\share /user:ops before build42 runs.\n",
    "expect \"assword:\"\nsend \"$password\\r\"\nexpect \"# \"\nsend \"apt install python3\\r\"\n",
    "expect \"$ \"\nsend \"ls -la /tmp/run2\\r\"\n",
    "child.expect('version')\nchild.sendline('Harbor!Tide58')\n",
    "# client server latency\nalice * 1200ms *\n",
    "# client secret is read from the environment\nalice web Frontend2 *\n",
    "/etc/ppp/chap-secrets has to be readable by root only.\nbob * Frontend2 *\n",
    "  *   int *\tconst *\tvalue2\n",
    "apt install pptpd xl2tpd ppp2.4\n",
    "<p>{PLAIN}text12</p>\n",
    "f\"{PLAIN}suffix_a\"\n",
    "GET /repos/{SHA}/statuses/check-run-2\n",
    "SELECT crypt(new_password, gen_salt('bf'));\n",
    "SELECT crypt('%s', gen_salt('bf'));\n",
    "SELECT pgp_sym_decrypt(card, current_setting('app.key'));\n",
    "  secret_string = jsonencode({\n    password = random_password.db.result\n    engine   = \"postgres15\"\n  })\n",
    "? a password is longer than 12 signs\n: yes\n",
    "? password\n: ${DB_PASSWORD}\n",
    "{\n  \"password\"\n  :\n  null\n}\n",
    "# hash of the password\nalgorithm = \"pbkdf2_sha256\"\n",
    "# user and password\nUSERNAME = \"bob-Builder7\"\n",
    "// reset the password\nconst path = \"/reset/v2/form7\";\n",
    "# The password must have 12 signs.\nLEAST = \"twelve12\"\n",
    "# password\ncheck_password2()\n",
    "# password\n\n\nRelease-2026b\n",
    "## Password\n\nSee chapter-7 of the manual.\n",
    "token\U0001f511 login works again\n",
    "- \U0001f511 Password: stored as argon2id\n",
]  # fmt: skip


def added(text: str) -> str:
    """Return a diff that adds the text, or the text where it is one."""
    lines = text.splitlines()
    body = "".join(f"+{line}\n" for line in lines)
    return text if "@@ " in text else f"@@ -1,1 +1,{len(lines) + 1} @@\n unrelated\n{body}"


@pytest.mark.parametrize("name", PLACES)
def test_what_its_context_makes_a_secret_is_taken_out(name: str) -> None:
    text = PLACES[name].replace("{}", P)
    for one in (text, added(text)):
        result = redact(one).text
        assert P not in result
        assert result.count("\n") == one.count("\n")
        assert redact(result).text == result


@pytest.mark.parametrize("text", HASHES)
def test_what_was_made_of_a_password_is_taken_out(text: str) -> None:
    assert text.split("\n")[0 if text.startswith("bob") else 1][12:40] not in redact(text).text


@pytest.mark.parametrize(
    "text",
    ["The PIN is 4711.\n", "Die PIN lautet 83047261, bitte merken\n", "SIM PIN: 9305\n", "PIN = `6038`\n"],
)
def test_a_pin_of_a_sentence_is_taken_out(text: str) -> None:
    for one in (text, added(text)):
        assert not any(pin in redact(one).text for pin in ("4711", "83047261", "9305", "6038"))


@pytest.mark.parametrize("text", INNOCENT)
def test_an_innocent_twin_stays(text: str) -> None:
    assert redact(text).text == text
    assert redact(added(text)).text == added(text)


def test_a_block_is_left_where_its_hunk_ends() -> None:
    head = "@@ -1,2 +1,2 @@\n unrelated\n+basicauth {\n"
    text = f"{head}@@ -40,2 +40,2 @@\n unrelated\n+bob Frontend2\n"
    assert redact(text).text == text
    assert "Frontend2" not in redact(head + "+  bob Frontend2\n+}\n").text
