#!/bin/sh
# Instructions per operation of the layout algebra, counted by callgrind: the same on every run and every machine of one
# kind, so a change of a few percent shows. Prints a table; with --check compares with layout_instructions.txt and fails
# where a count grew by more than 5 percent; with --write writes that file.
set -eu
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "valgrind is not installed: instruction counts skipped"; exit 0; }
cargo build --quiet --release -p reshard-benches --bin layout_instructions
program="${CARGO_TARGET_DIR:-target}/release/layout_instructions"
table="$(mktemp)"
trap 'rm -f "$table" "$table".out' EXIT

count() {
    valgrind --tool=callgrind --callgrind-out-file="$table".out "$program" "$1" "$2" 2>&1 |
        sed -n 's/.*refs: *//p' | tr -d ','
}

for operation in $("$program" --list); do
    few="$(count "$operation" 1000)"
    many="$(count "$operation" 2000)"
    printf '%-16s %6d\n' "$operation" $(((many - few) / 1000)) | tee -a "$table"
done

case "${1:-}" in
--write) cp "$table" benches/layout_instructions.txt ;;
--check)
    failed=0
    while read -r operation before; do
        after="$(awk -v name="$operation" '$1 == name { print $2 }' "$table")"
        if [ -z "$after" ] || [ "$after" -gt $((before * 105 / 100)) ]; then
            echo "$operation: $before instructions before, ${after:-none} now"
            failed=1
        fi
    done <benches/layout_instructions.txt
    exit "$failed"
    ;;
esac
