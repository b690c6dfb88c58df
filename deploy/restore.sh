#!/bin/sh
# Restore a backup of backup.sh on an empty machine (docs/operations/backup.md).
#   restore.sh            to the last point
#   restore.sh NAME       to another point, such as point-20261128T031500Z-4711 (BACKUP_DIR/base-*/points)
# BACKUP_DIR            what backup.sh wrote
# PGDATA                a folder that does not exist: the database server's data, started by you afterwards
# CRITICIZER_DATA_DIR   gets artifacts/ and letters/, if they are in the backup
set -eu
umask 077
fail() { echo "restore.sh: $*" >&2; exit 1; }
: "${BACKUP_DIR:?set BACKUP_DIR to the folder of backup.sh}" "${PGDATA:?set PGDATA to a folder to be made}"
case $BACKUP_DIR in
[!/]* | *[!A-Za-z0-9/._\ -]*) fail "BACKUP_DIR is $BACKUP_DIR: it must begin with / and have no special characters" ;;
esac

if [ $# -gt 0 ]; then
  point=$1
  case $point in *[!A-Za-z0-9-]*) fail "$point is no name of a point" ;; esac
  found=$(ls -d "$BACKUP_DIR"/base-*/points/"$point" 2>/dev/null | tail -n 1)
  base=${found%/points/*}
else
  found=$(ls -d "$BACKUP_DIR"/base-*/last-point 2>/dev/null | tail -n 1) # a new base has none yet
  base=${found%/last-point}
  [ -z "$found" ] || point=$(cat "$found")
fi
[ -n "$found" ] || fail "there is no point ${1:-}${1:+ }in $BACKUP_DIR"
[ ! -e "$PGDATA" ] || fail "$PGDATA exists: move it away"
[ ! -d "$base/files" ] || : "${CRITICIZER_DATA_DIR:?set CRITICIZER_DATA_DIR: the backup has files}"

cp -a "$base/database" "$PGDATA"
rm -f "$PGDATA"/.s.PGSQL.* # sockets and their locks, where they are among the data
cat >>"$PGDATA/postgresql.auto.conf" <<END
restore_command = 'gunzip -c "$BACKUP_DIR/wal/%f.gz" >"%p"'
recovery_target_name = '$point'
recovery_target_action = 'promote'
archive_mode = off # not among the log of the lost server
END
touch "$PGDATA/recovery.signal"
if [ -d "$base/files" ]; then
  mkdir -p "$CRITICIZER_DATA_DIR"
  for copy in "$base"/files/*.tar; do
    tar -C "$CRITICIZER_DATA_DIR" -xpf "$copy"
  done
fi
echo "Restored to $point. Start PostgreSQL on $PGDATA and wait until pg_is_in_recovery() is false."
