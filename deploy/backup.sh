#!/bin/sh
# Back up an installation, so that it can be restored elsewhere to its last point (docs/operations/backup.md).
#   backup.sh base     copy the whole database: daily
#   backup.sh point    make what came since then restorable: each minute
# BACKUP_DIR            is on another machine's disk; PostgreSQL archives into BACKUP_DIR/wal
# CRITICIZER_DATA_DIR   has artifacts/ and letters/; leave it unset where they are in buckets
# PGHOST, PGUSER, ...   a superuser of the database server, as psql reads them
set -eu
: "${BACKUP_DIR:?set BACKUP_DIR to a folder on another machine}"
umask 077
now=$(date -u +%Y%m%dT%H%M%SZ)

fail() { echo "backup.sh: $*" >&2; exit 1; }

copy_files() { # what is newer than the last copy; files are written once and never change
  [ -n "${CRITICIZER_DATA_DIR:-}" ] || return 0
  mkdir -p "$1/files"
  touch "$1/files.begun"
  set -- "$1" $(cd "$CRITICIZER_DATA_DIR" && ls -d artifacts letters 2>/dev/null || :)
  to=$1; shift
  [ $# -gt 0 ] || return 0
  changed=""; [ ! -e "$to/files.copied" ] || changed="-cnewer $to/files.copied" # by ctime: a rename changes it
  # A file may be deleted meanwhile: its time was over.
  # shellcheck disable=SC2086
  (cd "$CRITICIZER_DATA_DIR" && find "$@" -type f $changed -print0 |
    tar --null --no-recursion --ignore-failed-read --warning=no-failed-read -cf - -T -) | tar -C "$to/files" -xpf -
  mv "$to/files.begun" "$to/files.copied"
}

case ${1:-} in
base)
  [ "$(psql -XAtc 'SHOW archive_mode')" = on ] || fail "archive_mode of PostgreSQL is off: set it and archive_command"
  draft=$BACKUP_DIR/.$now
  mkdir -p "$draft"
  pg_basebackup -D "$draft/database" -X stream -c fast
  mv "$draft" "$BACKUP_DIR/base-$now"
  ;;
point)
  base=$(ls -d "$BACKUP_DIR"/base-* 2>/dev/null | tail -n 1)
  [ -n "$base" ] || fail "there is no base in $BACKUP_DIR: run backup.sh base"
  name=point-$now-$$ # two of one second are two
  segment=$(psql -XAtc "SELECT pg_walfile_name(pg_create_restore_point('$name'))")
  copy_files "$base" # after the point: each row of then has its file
  psql -XAtqc "SELECT pg_switch_wal()" >/dev/null
  tries=0
  until [ -e "$BACKUP_DIR/wal/$segment" ]; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || fail "PostgreSQL has not archived $segment: see pg_stat_archiver and its log"
    sleep 0.2
  done
  echo "$name" >"$base/.last" && mv "$base/.last" "$base/last-point"
  ;;
*)
  fail "say what: backup.sh base, or backup.sh point"
  ;;
esac
