#!/bin/sh
# Instructions per operation, counted by callgrind: the same on every run and every machine of one kind, so a change of a
# few percent shows.
#
#     benches/instructions.sh layout|sharding|planner|propagation [--check|--write]
#
# Prints a table of the operations of that program; with --check compares with the kept counts in
# benches/layout_instructions.txt or its like for the others and fails where one grew by more than 5 percent; with
# --write keeps these. A count is the difference between few runs and many, divided by theirs.
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
layout) few=1000 many=2000 ;;
sharding) few=800 many=1600 ;; # every sharding a hundred times, and two hundred times
planner) few=48 many=144 ;; # every list of pairs once, and three times
propagation) few=48 many=96 ;; # every list of inputs once, and twice
*)
    echo "usage: benches/instructions.sh layout|sharding|planner|propagation [--check|--write]" >&2
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
    printf '%-18s %8d\n' "$operation" \
        $((($(count "$operation" "$many") - $(count "$operation" "$few")) / (many - few))) | tee -a "$table"
done

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
