#!/bin/sh
# Records the traces in this directory again.
#
#     traces/record.sh [DIRECTORY]      (where to put them; default: the directory of this script)
#
# Needs: valgrind (3.19 was used), setarch (util-linux), GNU sort, sqlite3, the text of Debian's package perl-modules-5.36,
# and the quietmm command; set QUIETMM to it unless cargo can build it here. Takes ten minutes and 100 MB of memory: lackey
# prints gigabytes, but they go through a pipe and are never stored.
#
# The same programs, libraries and valgrind give the same pages in the same order: no address is randomised (setarch -R), the
# environment is empty, sort has one thread and a fixed buffer, the SQL calls no random(). Other versions touch
# other pages.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "${1:-$here}" && pwd)
QUIETMM=${QUIETMM:-cargo run --release --quiet --manifest-path $here/../Cargo.toml --bin quietmm --}
# Valgrind puts the directory into the program's environment, on its stack: its name always has the same length.
work=$(mktemp -d /tmp/tmp.XXXXXXXXXX)
trap 'rm -rf "$work"' EXIT

# record NAME PROGRAM COMMAND...: lackey's output goes to descriptor 9, so that the command's own does not mix with it.
record() {
    name=$1 program=$2
    shift 2
    (
        cd "$work"
        env -i PATH=/usr/bin LC_ALL=C setarch -R \
            valgrind --tool=lackey --trace-mem=yes --log-fd=9 "$@" 9>&1 >/dev/null 2>&1 </dev/null
    ) | $QUIETMM trace import - --program "$program" --output "$out/$name.qtrace"
}

# The files in the order of their names' bytes, the first 4 MiB of them.
perl=/usr/share/perl/5.36.0
find "$perl" -type f | LC_ALL=C sort | xargs cat 2>/dev/null | head -c 4194304 >"$work/text.txt"
if [ "$(wc -c <"$work/text.txt")" -ne 4194304 ]; then
    echo "$perl: less than 4 MiB of text; install perl-modules-5.36 or set another text here" >&2
    exit 1
fi
cp "$here/orders.sql" "$work"

record sort "$(sort --version | head -n 1)" \
    /usr/bin/sort --parallel=1 --buffer-size=64M --output=sorted.txt text.txt
record sqlite "SQLite shell $(sqlite3 --version | cut -d ' ' -f 1)" \
    /usr/bin/sqlite3 -init /dev/null :memory: '.read orders.sql'
