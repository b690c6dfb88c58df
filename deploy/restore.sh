#!/bin/sh
# Restore a backup of backup.sh on an empty machine (docs/operations/backup.md).
#   restore.sh            to the last point
#   restore.sh NAME       to another point of the newest base, such as point-20261128T031500Z-4711
# BACKUP_DIR            what backup.sh wrote
# PGDATA                a folder that does not exist: the database server's data, started by you afterwards
# CRITICIZER_DATA_DIR   gets artifacts/ and letters/, if they are in the backup
set -eu
: "${BACKUP_DIR:?set BACKUP_DIR to the folder of backup.sh}" "${PGDATA:?set PGDATA to a folder to be made}"
umask 077
fail() { echo "restore.sh: $*" >&2; exit 1; }

base=$(ls -d "$BACKUP_DIR"/base-* 2>/dev/null | tail -n 1)
[ -n "$base" ] || fail "there is no base in $BACKUP_DIR"
[ ! -e "$PGDATA" ] || fail "$PGDATA exists: move it away"
point=${1:-$(cat "$base/last-point")}
case $point in *[!A-Za-z0-9-]*) fail "$point is no name of a point" ;; esac

cp -a "$base/database" "$PGDATA"
cat >>"$PGDATA/postgresql.auto.conf" <<END
restore_command = 'cp "$BACKUP_DIR/wal/%f" "%p"'
recovery_target_name = '$point'
recovery_target_action = 'promote'
END
touch "$PGDATA/recovery.signal"
if [ -d "$base/files" ] && [ -n "${CRITICIZER_DATA_DIR:-}" ]; then
  mkdir -p "$CRITICIZER_DATA_DIR"
  for part in "$base"/files/*; do
    [ ! -e "$part" ] || cp -a "$part" "$CRITICIZER_DATA_DIR/"
  done
fi
echo "Restored to $point. Start PostgreSQL on $PGDATA and wait until pg_is_in_recovery() is false."
