#!/bin/sh
# Back up an installation, so that it can be restored elsewhere to its last point (docs/operations/backup.md).
#   backup.sh base              copy database and files: daily
#   backup.sh point             make what came since then restorable: each minute
#   backup.sh archive %p %f     keep a segment of PostgreSQL's log: its archive_command
# BACKUP_DIR            a folder on another machine's disk
# CRITICIZER_DATA_DIR   has artifacts/ and letters/; leave it unset where they are in buckets
# PGHOST, PGUSER, ...   a superuser of the database server, as psql reads them
set -eu
export LC_ALL=C # what tar says is read below
umask 077
fail() { echo "backup.sh: $*" >&2; exit 1; }
: "${BACKUP_DIR:?set BACKUP_DIR to a folder on another machine}"
case $BACKUP_DIR in /*) ;; *) fail "BACKUP_DIR is $BACKUP_DIR: it must begin with /" ;; esac

lock() { # one base and one point at a time; released when this process ends, however it ends
  exec 9>"$BACKUP_DIR/.$1.lock"
  flock -n 9 || fail "another backup.sh $1 is at work: let it end"
}

keep() { # $1 under its name $2: whole or not at all
  sync "$1"
  mv "$1" "$2"
  sync "${2%/*}"
}

copy_files() { # into base $1 as $2: what changed since the last copy. Files are written once, before their rows.
  [ -n "${CRITICIZER_DATA_DIR:-}" ] || return 0
  [ -n "$(ls -A "$CRITICIZER_DATA_DIR")" ] || fail "$CRITICIZER_DATA_DIR is missing or empty: is it mounted?"
  mkdir -p "$1/files"
  since=$(cat "$1/files.since" 2>/dev/null || echo 0)
  touch "$CRITICIZER_DATA_DIR/.backup"
  begun=$(stat -c %Z "$CRITICIZER_DATA_DIR/.backup") # by the clock of the files' times
  (
    cd "$CRITICIZER_DATA_DIR"
    printf '.\0'
    for part in artifacts letters; do
      [ ! -d $part ] || find $part -ignore_readdir_race -newerct "@$since" -print0
    done
  ) >"$1/.list"
  status=0
  said=$(tar -C "$CRITICIZER_DATA_DIR" --null --no-recursion -T "$1/.list" -cf "$1/.files" 2>&1) || status=$?
  # 1: a file was being written, so no row names it yet. 2 is good only where each complaint is of a deleted file.
  gone='Cannot (stat|open): No such file or directory$|^tar: Exiting with failure status'
  if [ $status -gt 2 ] || { [ $status = 2 ] && printf '%s\n' "$said" | grep -Ev "$gone" >&2; }; then
    fail "the files of $CRITICIZER_DATA_DIR could not be copied (tar: $status)"
  fi
  keep "$1/.files" "$1/files/$2.tar"
  echo $((begun - 120)) >"$1/.since" # some are copied twice: better than never
  keep "$1/.since" "$1/files.since"
}

case ${1:-} in
base)
  [ "$(psql -XAtc 'SHOW archive_mode')" != off ] || fail "archive_mode of PostgreSQL is off: set it and archive_command"
  lock base
  draft=$BACKUP_DIR/.draft
  trap 'rm -rf "$draft"' EXIT
  rm -rf "$draft" # of one that was killed
  mkdir -p "$draft/points"
  pg_basebackup -D "$draft/database" -X stream -c fast
  copy_files "$draft" base
  mv "$draft" "$BACKUP_DIR/base-$(date -u +%Y%m%dT%H%M%SZ)"
  ;;
point)
  lock point
  base=$(ls -d "$BACKUP_DIR"/base-* 2>/dev/null | tail -n 1)
  [ -n "$base" ] || fail "there is no base in $BACKUP_DIR: run backup.sh base"
  name=point-$(date -u +%Y%m%dT%H%M%SZ)-$$ # two of one second are two
  segment=$(psql -XAtc "SELECT pg_walfile_name(pg_create_restore_point('$name'))")
  copy_files "$base" "$name" # after the point: each row of then has its file
  psql -XAtqc "SELECT pg_switch_wal()" >/dev/null
  tries=0
  until [ -e "$BACKUP_DIR/wal/$segment.gz" ]; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || fail "PostgreSQL has not archived $segment: see pg_stat_archiver and its log"
    sleep 0.2
  done
  : >"$base/points/$name"
  echo "$name" >"$base/.last"
  keep "$base/.last" "$base/last-point"
  ;;
archive)
  kept=$BACKUP_DIR/wal/$3.gz
  if [ -e "$kept" ]; then # PostgreSQL repeats what it did not note before it died
    gunzip -c "$kept" | cmp -s - "$2" || fail "$kept is there with other content: does another server archive there?"
  else
    gzip -1c "$2" >"$kept.part"
    keep "$kept.part" "$kept"
  fi
  ;;
*)
  fail "say what: backup.sh base, backup.sh point, or backup.sh archive %p %f"
  ;;
esac
