#!/bin/sh
# Installs Criticizer from this checkout on Debian or Ubuntu, as root: deploy/install.sh
# Program in /opt/criticizer, command in /usr/local/bin, account criticizer, data in /var/lib/criticizer.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3 python3-venv git ca-certificates passwd >/dev/null

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
install() { # VENV PIP-ARGUMENTS: the lock files name no package index; pip's configuration decides
    venv=$1 && shift
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "$@"
}
python3 -m venv "$build/venv"
install "$build/venv" --require-hashes -r "$source/requirements/build.txt"
(cd "$source" && "$build/venv/bin/python" -m hatchling build -t wheel -d "$build/wheel" >/dev/null 2>&1)

python3 -m venv --clear /opt/criticizer
install /opt/criticizer --require-hashes -r "$source/requirements/base.txt"
install /opt/criticizer --no-deps --no-index "$build"/wheel/*.whl
ln -sf /opt/criticizer/bin/criticizer /usr/local/bin/criticizer

id criticizer >/dev/null 2>&1 ||
    useradd --system --home-dir /var/lib/criticizer --shell /usr/sbin/nologin criticizer
data=/var/lib/criticizer
mkdir -p "$data"
chown criticizer: "$data"
chmod 0700 "$data"
echo "Criticizer is installed: criticizer help"
