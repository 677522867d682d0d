#!/bin/sh
# Instructions per operation, counted by callgrind: the same on every run and on every machine of one kind, so
# that a change of a few percent is visible.
#
#     benches/instructions.sh layout|sharding|planner|propagation|schedule|program [--check|--write]
#
# Prints a table of the operations of that program. With --check it compares with the stored counts in
# benches/layout_instructions.txt (or the corresponding file of the others) and fails if one grew by more than
# 5 percent; with --write it stores the counts. A count is the difference between few runs and many, divided
# by the difference of the runs. For a schedule a run is a thousand calls, and the check also fails if a call
# takes more than 20 instructions beyond the same call in a plain loop.
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
layout) few=1000 many=2000 ;;
sharding) few=800 many=1600 ;; # every sharding a hundred times, and two hundred times
planner) few=48 many=144 ;; # every list of pairs once, and three times
propagation) few=48 many=96 ;; # every list of inputs once, and twice
schedule) few=1000 many=2000 ;;
program) few=1 many=3 ;;
*)
    echo "usage: benches/instructions.sh layout|sharding|planner|propagation|schedule|program [--check|--write]" >&2
    exit 2
    ;;
esac
name="$1_instructions"
command -v valgrind >/dev/null || { echo "valgrind is not installed: instruction counts skipped"; exit 0; }
cargo build --quiet --release -p reshard-benches --bin "$name"
program="${CARGO_TARGET_DIR:-target}/release/$name"
table="$(mktemp)"
trap 'rm -f "$table" "$table".out' EXIT

count() {
    valgrind --tool=callgrind --callgrind-out-file="$table".out "$program" "$1" "$2" 2>&1 |
        sed -n 's/.*refs: *//p' | tr -d ','
}

for operation in $("$program" --list); do
    case "$operation" in
    between_*) from=1 to=3 ;; # one such plan takes as many instructions as a list of the others
    *) from="$few" to="$many" ;;
    esac
    printf '%-18s %8d\n' "$operation" \
        $((($(count "$operation" "$to") - $(count "$operation" "$from")) / (to - from))) | tee -a "$table"
done

if [ "$1" = schedule ]; then
    awk '{ count[$1] = $2 }
        END {
            call = (count["calls_scheduled"] - count["calls_plain"]) / 1000
            exchange = (count["exchanges_scheduled"] - count["exchanges_plain"]) / 1000
            printf "over the plain loop: %.1f instructions a call (at most 20), %.1f a post and a wait\n", call, exchange
            exit !("calls_plain" in count && call <= 20)
        }' "$table" || { echo "a scheduled call takes more than is promised" >&2; exit 1; }
fi

case "${2:-}" in
--write) cp "$table" "benches/$name.txt" ;;
--check)
    failed=0
    while read -r operation before; do
        after="$(awk -v name="$operation" '$1 == name { print $2 }' "$table")"
        if [ -z "$after" ] || [ "$after" -gt $((before * 105 / 100)) ]; then
            echo "$operation: $before instructions before, ${after:-none} now"
            failed=1
        fi
    done <"benches/$name.txt"
    exit "$failed"
    ;;
esac
