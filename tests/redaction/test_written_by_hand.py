# ruff: noqa: E501, RUF001 - a table is read by its rows, in several scripts
"""Lines written by hand, in formats that the generator does not draw (G191).

Each secret goes, and ordinary lines stay.
"""

from __future__ import annotations

import pytest

from criticizer.redaction import redact

SECRETS = [
    ('variable "db_password" {\n  type    = string\n  default = "Tr1ckyHarbor!58"\n}\n', 'Tr1ckyHarbor!58'),
    ('resource "aws_db_instance" "main" {\n  username = "app"\n  password = "mellow-Otter-4417"\n}\n', 'mellow-Otter-4417'),
    ('diff --git a/ansible/.vault_pass b/ansible/.vault_pass\nnew file mode 100644\n--- /dev/null\n+++ b/ansible/.vault_pass\n@@ -0,0 +1 @@\n+nJ7qPz2vX9wLd4\n', 'nJ7qPz2vX9wLd4'),
    ('services:\n  db:\n    image: postgres:16\n    environment:\n      - POSTGRES_PASSWORD=goldfinch82Q\n', 'goldfinch82Q'),
    ('services:\n  mq:\n    environment:\n      RABBITMQ_DEFAULT_PASS: "willow!Tree77"\n', 'willow!Tree77'),
    ('jobs:\n  deploy:\n    env:\n      SONAR_TOKEN: 4f1c9a77be02d3e8a6510c9f3be7712d84aa90c1\n', '4f1c9a77be02d3e8a6510c9f3be7712d84aa90c1'),
    ('      - name: login\n        run: echo "Zx81-Spectr!m" | docker login -u ci --password-stdin registry.example.com\n', 'Zx81-Spectr!m'),
    ('//npm.pkg.example.com/:_authToken=8d0f5b3e-6a1c-4f0e-9d7b-2c41e0b7a9f3\n', '8d0f5b3e-6a1c-4f0e-9d7b-2c41e0b7a9f3'),
    ('_auth=Y2ktYm90OlBsdW0tUm9ja2V0OTE=\nalways-auth=true\n', 'Y2ktYm90OlBsdW0tUm9ja2V0OTE='),
    ('machine git.example.com login ci password Plum-Rocket91\n', 'Plum-Rocket91'),
    ('machine git.example.com\n  login ci\n  password Plum-Rocket91\n', 'Plum-Rocket91'),
    ('[pypi]\nrepository = https://upload.example.com/legacy/\nusername = build\npassword = k4mchatka-Bear\n', 'k4mchatka-Bear'),
    ('url=jdbc:sqlserver://db:1433;databaseName=shop;user=sa;password=Qu1ckfox+Jump;encrypt=true\n', 'Qu1ckfox+Jump'),
    ('spring.datasource.url=jdbc:mysql://db/shop?user=app&password=otterPond64&useSSL=false\n', 'otterPond64'),
    ('cnxn = pyodbc.connect("DRIVER={ODBC Driver 18};SERVER=db;UID=app;PWD=n3st.Egret20")\n', 'n3st.Egret20'),
    ('CELERY_BROKER = "amqp://worker:hazel.Nut-55@mq.internal:5672//"\n', 'hazel.Nut-55'),
    ('redis-cli -h cache -a "s4ffron!Dawn" ping\n', 's4ffron!Dawn'),
    ('REDIS=redis://:s4ffronDawn21@cache:6379/0\n', 's4ffronDawn21'),
    ('curl -u "deploy:br1stle-Cone" https://repo.example.com/upload\n', 'br1stle-Cone'),
    ('curl -H "X-Api-Key: 7Hq2mVbT9xKcLpW4nZ8s" https://api.example.com/v1/jobs\n', '7Hq2mVbT9xKcLpW4nZ8s'),
    ('wget --http-user=bob --http-password=m4gpie_Lane https://files.example.com/x.tgz\n', 'm4gpie_Lane'),
    ('PGPASSWORD=kestrel9Ridge psql -h db -U app shop\n', 'kestrel9Ridge'),
    ('mysql -h db -u root -pLant3rnFish shop < dump.sql\n', 'Lant3rnFish'),
    ('private val dbPassword: String by lazy { "cobalt#Reef31" }\n', 'cobalt#Reef31'),
    ('const val STRIPE_SECRET = "whk_9fQ2mZt7Lx0VbN4cR8sYpD"\n', 'whk_9fQ2mZt7Lx0VbN4cR8sYpD'),
    ('let apiSecret: String = "Zq8Lw2Nf6Rt0Xv4Bc9Kd"\n', 'Zq8Lw2Nf6Rt0Xv4Bc9Kd'),
    ('static let password = "Juniper_2291"\n', 'Juniper_2291'),
    ('const DB_PASS: &str = "marble-Lynx!7";\n', 'marble-Lynx!7'),
    ('let token = String::from("h5Tn0Wq9Zx3Lk7Vb2Mc8");\n', 'h5Tn0Wq9Zx3Lk7Vb2Mc8'),
    ('  val credentials = BasicCredentials("reporter", "Fjord&Skiff8")\n', 'Fjord&Skiff8'),
    ("define('DB_PASSWORD', 'qu4rtz.Vane');\n", 'qu4rtz.Vane'),
    ("'connections' => ['mysql' => ['password' => env('DB_PASSWORD', 'glint-Moss42')]],\n", 'glint-Moss42'),
    ('my $dbh = DBI->connect("dbi:Pg:dbname=shop", "app", "t0paz-Heron");\n', 't0paz-Heron'),
    ('config :shop, Shop.Repo,\n  username: "app",\n  password: "br4mble.Wick"\n', 'br4mble.Wick'),
    ('secret_key_base: "Xk2vQ9sLr7ZtN4wBc8YpH1mJ6gDf0aEu5Ro3Ti"\n', 'Xk2vQ9sLr7ZtN4wBc8YpH1mJ6gDf0aEu5Ro3Ti'),
    ('$cred = New-Object PSCredential("svc", (ConvertTo-SecureString "Cl0ver!Gate" -AsPlainText -Force))\n', 'Cl0ver!Gate'),
    ('[string]$AdminPassword = "Sn0wdrop-Pier"\n', 'Sn0wdrop-Pier'),
    ('[HKEY_LOCAL_MACHINE\\SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion\\Winlogon]\n"DefaultUserName"="kiosk"\n"DefaultPassword"="Anchor*Bay66"\n', 'Anchor*Bay66'),
    ('<add key="SmtpPassword" value="f0xglove-Mill" />\n', 'f0xglove-Mill'),
    ('<connectionStrings><add name="Main" connectionString="Server=db;Database=shop;User Id=app;Password=r3d.Willow!;"/></connectionStrings>\n', 'r3d.Willow!'),
    ('<bean id="ds"><property name="username" value="app"/><property name="password" value="c1nder_Vale"/></bean>\n', 'c1nder_Vale'),
    ('2026-11-02 10:11:12 DEBUG > X-Auth-Token: gAAAAABlq7Wc2vT9xKpL0mZ8nR4sYd\n', 'gAAAAABlq7Wc2vT9xKpL0mZ8nR4sYd'),
    ('DEBUG http: request headers={"Authorization": "Basic cmVwb3J0ZXI6VGhpc3RsZTg4", "Accept": "*/*"}\n', 'cmVwb3J0ZXI6VGhpc3RsZTg4'),
    ('{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75","alg":"HS256"}\n', 'AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75'),
    ('{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4","e":"AQAB","d":"X4cTteJY_gn4FYPsXB8rdXix5vwsg1FLN5E3EaG6RJoVH-HLLKD9"}\n', 'X4cTteJY_gn4FYPsXB8rdXix5vwsg1FLN5E3EaG6RJoVH-HLLKD9'),
    ('Host bastion\n  User ops\n  # pw: t1nder-Oak9\n', 't1nder-Oak9'),
    ('users:\n- name: admin\n  user:\n    token: eZ2kPq7Rt5Vx9Lm3Nb8Wc1\n', 'eZ2kPq7Rt5Vx9Lm3Nb8Wc1'),
    ('users:\n- name: admin\n  user:\n    username: admin\n    password: h4rvest.Moon\n', 'h4rvest.Moon'),
    ('    client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFcEFJQkFBS0NBUUVB\n', 'LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFcEFJQkFBS0NBUUVB'),
    ('RELEASE_STORE_PASSWORD=p3bble-Creek\nRELEASE_KEY_ALIAS=upload\n', 'p3bble-Creek'),
    ('signing.keyId=24875D73\nsigning.password=L1chen+Stone\n', 'L1chen+Stone'),
    ('ENV JWT_SECRET d41mnR8sKq2Zx7\n', 'd41mnR8sKq2Zx7'),
    ('ARG NPM_TOKEN=0b7f3a9e-55d1-4c7e-8a10-93f2c6d84e1b\n', '0b7f3a9e-55d1-4c7e-8a10-93f2c6d84e1b'),
    ('RUN echo "root:v1olet!Fern" | chpasswd\n', 'v1olet!Fern'),
    ('auth:\n  postgresPassword: "w1llow-Finch"\n  replicationPassword: basalt77Cove\n', 'basalt77Cove'),
    ('ingress:\n  basicAuth:\n    user: ops\n    pass: g1nger.Root4\n', 'g1nger.Root4'),
    ('proxy_set_header Authorization "Basic b3BzOkNvcHBlci1EYWxlNQ==";\n', 'b3BzOkNvcHBlci1EYWxlNQ=='),
    ('proxy_set_header X-Internal-Token "q9Lw3Zn7Rt1Vx5Bk8Mc2";\n', 'q9Lw3Zn7Rt1Vx5Bk8Mc2'),
    ('# Das neue Passwort für den Testserver ist Brombeere!47, bitte nicht weitergeben.\n', 'Brombeere!47'),
    ('// Le mot de passe du compte de service : Glaçon-Bleu39\n', 'Bleu39'),
    ('# La contraseña del servidor de pruebas es Naranja_Dulce88.\n', 'Naranja_Dulce88'),
    ('# 测试环境的密码是 Moonlight_66x\n', 'Moonlight_66x'),
    ('To log in use ops with password "Saffron Lane 83" until the migration.\n', 'Saffron Lane 83'),
    ('ldapsearch -x -D "cn=admin,dc=example" -w "Tulip;Field3" -b "dc=example"\n', 'Tulip;Field3'),
    ("sshpass -p 'Hollow^Reed9' ssh ops@10.0.0.4\n", 'Hollow^Reed9'),
    ('openssl enc -aes-256-cbc -k Nimbus.Gate51 -in a -out b\n', 'Nimbus.Gate51'),
    ('security.basic.credentials=ops:Clay-Kiln204\n', 'Clay-Kiln204'),
    ('ftp://upload:Pike+Perch6@ftp.example.com/in/\n', 'Pike+Perch6'),
    ('smtp_sasl_password_maps = static:mailer:Lupine-Cart12\n', 'Lupine-Cart12'),
    ('MAIL_DSN=smtp://mailer:Lupine%2DCart12@mail.example.com:587\n', 'Lupine%2DCart12'),
    ('@Value("${app.jwt.secret:Rk7vZq2Lw9Xt4Nb8Mc3P}")\nprivate String secret;\n', 'Rk7vZq2Lw9Xt4Nb8Mc3P'),
    ('bot = TelegramBot("7183642095:AAGh3kQz8WmTn5Rv1XpLc9Yd2Bf6Js4Ue0K")\n', '7183642095:AAGh3kQz8WmTn5Rv1XpLc9Yd2Bf6Js4Ue0K'),
    ('user_pref("mail.password", "Drift!Wood62");\n', 'Drift!Wood62'),
    ('wpa_supplicant: network={ ssid="office" psk="granite Walrus 12" }\n', 'granite Walrus 12'),
    ('export TF_VAR_admin_password=Bramble-Wren3\n', 'Bramble-Wren3'),
    ('setx DB_PASSWORD "Cedar$Knoll5"\n', 'Cedar$Knoll5'),
    ('kubectl create secret generic db --from-literal=password=Umber-Vole28\n', 'Umber-Vole28'),
    ('helm install db bitnami/postgresql --set auth.postgresPassword=Indigo-Newt6\n', 'Indigo-Newt6'),
    ('vault kv put secret/app db_password="Ochre.Finch19"\n', 'Ochre.Finch19'),
    ('http --auth ops:Tawny-Owl73 https://api.example.com\n', 'Tawny-Owl73'),
    ('ansible-playbook site.yml -e "ansible_become_pass=Lichen7Moth"\n', 'Lichen7Moth'),
    ('keytool -genkey -alias app -storepass Pewter8Jar -keypass Pewter9Jar\n', 'Pewter9Jar'),
    ('net use Z: \\\\nas\\share Sorrel!Stem4 /user:corp\\ops\n', 'Sorrel!Stem4'),
    ("sequelize = new Sequelize('shop', 'app', 'M0ss-Lantern')\n", 'M0ss-Lantern'),
    ("client = boto3.client('s3', aws_secret_access_key='wJa1rXUtnFEMI/K7MDENG/bPxRfiCYzEXAMP9KEY')\n", 'wJa1rXUtnFEMI/K7MDENG/bPxRfiCYzEXAMP9KEY'),
    ('snmp-server user ops grp v3 auth sha Falcon!Crest7 priv aes 128 Harb0r!Light8\n', 'Harb0r!Light8'),
    ('terraform { backend "s3" { secret_key = "Jq7Lw2Nf6Rt0Xv4Bc9Kd8Zm1" } }\n', 'Jq7Lw2Nf6Rt0Xv4Bc9Kd8Zm1'),
    ('  - name: GRAFANA_ADMIN_PASSWORD\n    value: clearwater\n', 'clearwater'),
    ('apiVersion: v1\nkind: Secret\nstringData:\n  password: clearwater\n', 'clearwater'),
    ('secret_key: 8f2b1c7e9d\n', '8f2b1c7e9d'),
    ('<Setting Name="ApiToken" Value="k2J9x0Qm4Lw7"/>\n', 'k2J9x0Qm4Lw7'),
    ('<entry key="db.password">blackbird7</entry>\n', 'blackbird7'),
    ('<param name="password" value="blackbird7"/>\n', 'blackbird7'),
    ('jdbc.password : blackbird7\n', 'blackbird7'),
    ('password -> "Blackbird7"\n', 'Blackbird7'),
    ('"password" => "Blackbird7",\n', 'Blackbird7'),
    (":password => 'Blackbird7'\n", 'Blackbird7'),
    ('@config["password"] = "Blackbird7"\n', 'Blackbird7'),
    ('os.environ["DB_PASSWORD"] = "blackbird"\n', 'blackbird'),
    ('os.environ.setdefault("DB_PASSWORD", "blackbird7")\n', 'blackbird7'),
    ('System.setProperty("javax.net.ssl.keyStorePassword", "blackbird7");\n', 'blackbird7'),
    ('props.put("password", "blackbird7");\n', 'blackbird7'),
    ('.withPassword("blackbird7")\n', 'blackbird7'),
    ('.password("Black-Bird7")\n', 'Black-Bird7'),
    ('new UsernamePasswordCredentials("ops", "Black-Bird7")\n', 'Black-Bird7'),
    ('UserCredential(user: "ops", password: "Black-Bird7")\n', 'Black-Bird7'),
    ('$env:DB_PASSWORD = "Black-Bird7"\n', 'Black-Bird7'),
    ('Set-Variable -Name Password -Value "Black-Bird7"\n', 'Black-Bird7'),
    ('[Environment]::SetEnvironmentVariable("API_KEY", "k2J9x0Qm4Lw7Zt")\n', 'k2J9x0Qm4Lw7Zt'),
    ('db_opts = [user: "app", password: "Black-Bird7"]\n', 'Black-Bird7'),
    ('let opts = MysqlOpts::new().user(Some("app")).pass(Some("Black-Bird7"));\n', 'Black-Bird7'),
    ('&mysql.Config{User: "app", Passwd: "Black-Bird7"}\n', 'Black-Bird7'),
    ('sql.Open("mysql", "app:Black-Bird7@tcp(db:3306)/shop")\n', 'Black-Bird7'),
    ('DATABASE_URL="mysql2://app:Black-Bird7@db/shop?pool=5"\n', 'Black-Bird7'),
    ('mongodb+srv://app:Black-Bird7@cluster0.example.mongodb.net/shop\n', 'Black-Bird7'),
    ('Endpoint=sb://x.servicebus.example.net/;SharedAccessKeyName=Root;SharedAccessKey=Zk3Lw9Qx7Rt5Vb1Nm8Pc2Yd6Hf4Jg0Sa+Ue/Ti=\n', 'Zk3Lw9Qx7Rt5Vb1Nm8Pc2Yd6Hf4Jg0Sa+Ue/Ti='),
    ('X-Vault-Token: hvs.CAESIJ8z3kQw7Lx2Rt9Vb5Nm1Pc4Yd\n', 'hvs.CAESIJ8z3kQw7Lx2Rt9Vb5Nm1Pc4Yd'),
    ('Cookie: session=eyJ1c2VyIjoib3BzIn0.Zk3Lw9.Qx7Rt5Vb1Nm8Pc2Yd6Hf4Jg0\n', 'Qx7Rt5Vb1Nm8Pc2Yd6Hf4Jg0'),
    ('pinentry: echo "blackbird77" | gpg --batch --passphrase-fd 0 -d x.gpg\n', 'blackbird77'),
    ('gpg --batch --passphrase blackbird77 -d x.gpg\n', 'blackbird77'),
    ('7z x -pblackbird77 a.7z\n', 'blackbird77'),
    ('zip -P blackbird77 a.zip a\n', 'blackbird77'),
    ('mount -t cifs //nas/x /mnt -o username=ops,password=Black-Bird7\n', 'Black-Bird7'),
    ('rclone config create r sftp user ops pass Black-Bird7x\n', 'Black-Bird7x'),
    ("CREATE USER ops WITH ENCRYPTED PASSWORD 'blackbird';\n", 'blackbird'),
    ("GRANT ALL ON *.* TO 'ops'@'%' IDENTIFIED BY 'blackbird';\n", 'blackbird'),
    ("UPDATE users SET password = 'blackbird77' WHERE id = 1;\n", 'blackbird77'),
    ('# login: ops / Black-Bird7\n', 'Black-Bird7'),
    ('Benutzer: ops, Kennwort: Black-Bird7\n', 'Black-Bird7'),
    ('user ops password Black-Bird7 role admin\n', 'Black-Bird7'),
    ('passwd: "{{ undef }}"\nroot_pw: Black-Bird7\n', 'Black-Bird7'),
    ('htpasswd -b /etc/x ops Black-Bird7\n', 'Black-Bird7'),
    ('wifi_password = "blackbird"\n', 'blackbird'),
    ('const auth = { username: "ops", password: "blackbird" };\n', 'blackbird'),
    ('  api_token: 9f8e7d6c5b4a3928\n', '9f8e7d6c5b4a3928'),
    ('bearer_token = "ops-7Kq2Lw9Zx4"\n', 'ops-7Kq2Lw9Zx4'),
    ('slack_signing_secret: 1f3a5c7e9b2d4f6a8c0e1d3b5a7f9c2e\n', '1f3a5c7e9b2d4f6a8c0e1d3b5a7f9c2e'),
    ('key chain ospf\n key 1\n  key-string Fen-Cr4ne!8\n', 'Fen-Cr4ne!8'),
    ('set security ike policy site pre-shared-key ascii-text "Gull-R0ck*5"\n', 'Gull-R0ck*5'),
    ('tunnel protection\n bind-key L4rch.Stone9\n', 'L4rch.Stone9'),
    ('vault operator unseal 0d5a9be1c27f4463a8f1e6b20c94d7753ab8e1f09d42c6775be83a10f2d9c64e\n', '0d5a9be1c27f4463a8f1e6b20c94d7753ab8e1f09d42c6775be83a10f2d9c64e'),
    ("ansible-vault encrypt_string 'Sedge!Bank61' --name 'x'\n", 'Sedge!Bank61'),
    ('smtp.login(user, "Aspen!K9frost")\n', 'Aspen!K9frost'),
    ('expect(user.authenticate("Br00k-Fern!")).to be_truthy\n', 'Br00k-Fern!'),
    ('stored = await bcrypt.hash("M0ss+Lintel", 10)\n', 'M0ss+Lintel'),
    ('const c = crypto.createCipher("aes-256-cbc", "R0wan;Quay7")\n', 'R0wan;Quay7'),
    ('const client = algoliasearch("LATENCY001", "4e8d1c7a90b2f36655ad0c19e7f4b823");\n', '4e8d1c7a90b2f36655ad0c19e7f4b823'),
    ('const p = new Pusher("880143", "c1a9e07b5d34f2861b90", "7f20cd9a4be81635d0fc");\n', '7f20cd9a4be81635d0fc'),
    ('user root / pass T4rn!Hollow on the staging box\n', 'T4rn!Hollow'),
    ('username: admin, pw Gr0ve*Amber\n', 'Gr0ve*Amber'),
    ('my recovery code: 5c0e9f13a7d84b2296fe1b08d3a47c65\n', '5c0e9f13a7d84b2296fe1b08d3a47c65'),
    ('σύνθημα: H3ron!Marsh\n', 'H3ron!Marsh'),
    ('password = "Winter-XuOyHdQ"\n', 'Winter-XuOyHdQ'),
]  # fmt: skip
INNOCENT = [
    'variable "db_password" {\n  type      = string\n  sensitive = true\n}\n',
    'password = var.db_password\n',
    'password: ${{ secrets.DB_PASSWORD }}\n',
    '      - POSTGRES_PASSWORD_FILE=/run/secrets/db_password\n',
    '//registry.npmjs.org/:_authToken=${NPM_TOKEN}\n',
    'machine git.example.com login ci password $GIT_PASSWORD\n',
    'password = getpass.getpass("Password for %s: " % user)\n',
    'url=jdbc:postgresql://db:5432/shop?ssl=true\n',
    'private val passwordField: EditText by lazy { findViewById(R.id.password) }\n',
    'let token = tokens.next().expect("expected a token");\n',
    'func validatePassword(_ password: String) -> Bool {\n    return password.count >= 12\n}\n',
    'pub struct Credentials { pub user: String, pub password: String }\n',
    "$this->password = $request->get('password');\n",
    'my $password = shift @ARGV or die "usage: login PASSWORD\\n";\n',
    'field :password, :string, virtual: true, redact: true\n',
    '[Parameter(Mandatory=$true)][SecureString]$AdminPassword\n',
    '"DefaultPassword"=-\n',
    '<add key="SmtpPassword" value="#{SmtpPassword}#" />\n',
    '<property name="password" value="${db.password}"/>\n',
    '{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4","e":"AQAB","kid":"2026-01-sig"}\n',
    'Host bastion\n  IdentityFile ~/.ssh/id_ed25519\n  PasswordAuthentication no\n',
    '    certificate-authority: /etc/kubernetes/pki/ca.crt\n    tokenFile: /var/run/secrets/token\n',
    'signing.keyId=24875D73\nsigning.secretKeyRingFile=/home/ci/.gnupg/secring.gpg\n',
    'auth_basic "Restricted area";\nauth_basic_user_file /etc/nginx/.htpasswd;\n',
    'existingSecret: postgres-credentials\nsecretKeys:\n  adminPasswordKey: postgres-password\n',
    '# Das Passwort muss mindestens 12 Zeichen und 2 Ziffern enthalten.\n',
    "// Le mot de passe expire après 90 jours, l'utilisateur reçoit un courriel.\n",
    '# La contraseña se guarda con bcrypt y 12 rondas.\n',
    '# 密码长度至少为12个字符，并且必须包含数字。\n',
    'The password reset token is valid for 30 minutes; see RFC 6749 section 4.1.2.\n',
    'Password hashing moved from PBKDF2-SHA256 with 600000 rounds to Argon2id (m=64MiB, t=3).\n',
    '    "integrity": "sha512-3oSeUO0TMV67hN1AmXsK4+eqY7tWSeVLlLZRzVkRuAmq1q3l3IYp3KBNkwZkEoFhCtZ7cDXzBxGh0C4A2+VrOw==",\n',
    'github.com/99designs/keyring v1.2.1 h1:tYLp1ULvO7i3fI5vE21ReQuj99QFSs7lGm0xWyJo87o=\n',
    'assert_eq!(parse_key("ctrl+shift+F12"), Key::new(Mods::CTRL | Mods::SHIFT, F(12)));\n',
    'key_mapping = {"KEY_F1": 0x3B, "KEY_F2": 0x3C, "KEY_LEFTSHIFT": 0x2A}\n',
    'const tokenExpiry = Date.now() + 15 * 60 * 1000;\n',
    'TOKEN_URL = "https://login.example.com/oauth2/v2.0/token"\n',
    'max_tokens=4096, temperature=0.2, model="gpt-4o-2024-08-06"\n',
    "SELECT id, password_changed_at FROM users WHERE password_changed_at < now() - interval '90 days';\n",
    'kubectl create secret generic db --from-literal=password="$DB_PASSWORD"\n',
    'docker login -u "$CI_USER" --password-stdin < token.txt\n',
    'secretName: tls-2026-wildcard\n',
    'test("rejects a password shorter than 8 characters", async () => {\n',
    'access_key_id: <%= ENV["AWS_ACCESS_KEY_ID"] %>\n',
    'CSRF_COOKIE_NAME = "csrftoken2"\n',
    'PasswordPolicy policy = new PasswordPolicy(12, 128, Charset.ASCII);\n',
    'commit 4f1c9a77be02d3e8a6510c9f3be7712d84aa90c1\nAuthor: Ann <ann@example.com>\n',
    '  <PackageReference Include="IdentityModel.Tokens.Jwt" Version="7.0.3" PublicKeyToken="31bf3856ad364e35" />\n',
    'Set the environment variable API_KEY to the key from https://console.example.com/keys.\n',
    'login: { user: "admin", password: process.env.ADMIN_PASSWORD ?? throwMissing("ADMIN_PASSWORD") },\n',
    'password = wordlist[0]\n',
    'passwords = load_words("rockyou.txt")\n',
    '- name: password\n  type: string\n  required: true\n',
    'password: string;\n',
    '  password: Passwort\n  username: Benutzername\n',
    'username: Benutzername\npassword: Passwort\n',
    '  user: Benutzer\n  password: Kennwort vergessen\n',
    'PASSWORD_RESET_TIMEOUT=259200\n',
    'TOKEN_BUCKET_SIZE=1000\n',
    'make PASSWORD=$(shell pass show x) deploy\n',
    'docker run -e DB_PASSWORD -p 5432:5432 postgres:16.2\n',
    '[db]\npassword = ${DB_PASSWORD}\n',
    '--password-file /run/secrets/db2\n',
    'tool --password PASSWORD --user USER\n',
    'Use --password to set it, or --token-file.\n',
    'Changed the password policy to version 2\n',
    'Set password length to 12\n',
    'The new password is required to contain 2 digits.\n',
    'keyboard-interactive/pam password publickey\n',
    '  password: hashed_password,\n',
    'DB_PASSWORD=password\n',
    'POSTGRES_PASSWORD=postgres\n',
    'password=None\n',
    'secret: false\n',
    'api_key: required\n',
    'KEY=value\n',
    'password: !vault |\n',
    '  "password.title": "Passwort",\n  "password.hint": "Mindestens 8 Zeichen",\n',
    'msgid "Enter your password"\nmsgstr "Gib dein Passwort ein"\n',
    'passwordLabel: "Kennwort"\n',
    'login(request, "accounts/login-form-v2.html")\n',
    'user.authenticate("ldap")\nauthenticate(request, "header-v2")\n',
    'digest = bcrypt.hash(value, rounds=12)\nhashlib.pbkdf2_hmac("sha256", key, salt, 100_000)\n',
    'github.getCommit("3f9d2b7a81c04e65f0d1a2b37c84e95d6f017a28")\n',
    'const client = algoliasearch(process.env.ALGOLIA_APP, process.env.ALGOLIA_KEY);\n',
    'first pass, pass by reference, and pass null-terminated1 strings\n',
    'The cipher is PBEWithMD5AndTripleDES, a password based one.\n',
    'password = "forgot-password-link"\n',
    'enter the recovery code: 6 digits from the mail\n',
]  # fmt: skip
# Words, names and numbers as passwords, which in code would be expressions.
VALUES = (
    "Bramble-Wren3", "h4rvest.Moon", "Tulip_Field3", "kestrel9Ridge", "willow!Tree77", "wintertiger", "blue_sky_42",
    "zebra99", "hunter2hunter2", "T3mp!Fix", "7even.Dwarfs",
)  # fmt: skip
# Where what stands behind the sign is a literal, whatever it reads like.
LITERAL_PLACES = (
    "DB_PASSWORD={}\n",
    "export app_password={}\n",
    "ENV DB_PASSWORD={}\n",
    "    environment:\n      - POSTGRES_PASSWORD={}\n",
    "spring.datasource.password={}\n",
    "[db]\n; of the shop\nuser = app\npassword = {}\n",
    "db:\n  user: app\n  password: {}\n",
    "url=jdbc:sqlserver://db:1433;user=sa;password={};encrypt=true\n",
    "helm install db --set auth.postgresPassword={}\n",
    "docker run -e MYSQL_ROOT_PASSWORD={} mysql\n",
    "PGPASSWORD={} psql -h db\n",
)
# The same words where they are an expression.
EXPRESSIONS = (
    "    password = {}\n    return password\n",
    "connect(user, password={})\n",
    "const body = {{\n  username: user.name,\n  password: {},\n}}\n",
    "x = a[0]\npassword = {}\n",
)
SENTENCES = (
    "Das neue Passwort f\u00fcr den Testserver lautet {}.",
    "Le mot de passe du compte de service : {}",
    "La contrase\u00f1a del servidor es {}.",
    "\u6d4b\u8bd5\u73af\u5883\u7684\u5bc6\u7801\u662f {}",
    "Changed the password of bob to {} today",
)


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_in_a_format_written_by_hand_is_taken_out(text: str, secret: str) -> None:
    assert secret not in redact(text).text


@pytest.mark.parametrize("text", INNOCENT)
def test_an_ordinary_line_about_secrets_stays(text: str) -> None:
    assert redact(text).text == text


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", LITERAL_PLACES)
def test_a_word_is_a_literal_where_no_expression_can_stand(place: str, value: str) -> None:
    assert value not in redact(place.format(value)).text
    diff = f"@@ -1,3 +1,3 @@\n unrelated\n+{place.format(value)[:-1].replace(chr(10), chr(10) + '+')}\n"
    assert value not in redact(diff).text


@pytest.mark.parametrize("place", EXPRESSIONS)
@pytest.mark.parametrize("value", ["wintertiger", "settings.db_password", "old_value_2", "Config.Field2"])
def test_a_word_stays_where_it_is_an_expression(place: str, value: str) -> None:
    assert value in redact(place.format(value)).text


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize(
    "value", ["Bramble-Wren3", "kestrel9Ridge", "zebra99", "correcthorse9", "Gla\u00e7on-Bleu39"]
)
def test_what_a_sentence_says_that_a_password_is_is_taken_out(sentence: str, value: str) -> None:
    assert value not in redact(sentence.format(value)).text


def test_both_passwords_of_a_sentence_are_taken_out() -> None:
    text = "Reset the password of bob from Harbor9173- to lzi5WlPPU2OM!"
    result = redact(text).text
    assert "Harbor9173" not in result
    assert "lzi5WlPPU2OM" not in result
    assert "Brombeere" not in redact("Passwort lautet jetzt Brombeere!47, vorher war es Brombeere!46.").text


@pytest.mark.parametrize(
    "text",
    [
        "Das Passwort ist mindestens 12 Zeichen lang.",
        "Le mot de passe est SHA256 puis tronqu\u00e9.",
        "Changed the password hashing to Argon2id in 2.1",
        "Reset the password to at least 12 characters",
        "password = 'at least 12'",
        "\u5bc6\u7801\u957f\u5ea6\u81f3\u5c11\u4e3a12\u4e2a\u5b57\u7b26",
    ],
)
def test_a_sentence_about_passwords_stays(text: str) -> None:
    assert redact(text).text == text
