#!/usr/bin/env bash
# Checks that the recipes of CONTRIBUTING.md still work: applies every diff of docs/recipes to a copy of the tracked files,
# alone and with all others. Runs the tests at the beginning of a diff in that copy if a file that the diff changes has
# changed since they last ran: docs/recipes/tested.txt has the hash of those files.
#
#     scripts/check_recipes.sh                 all of them; tests of those that changed
#     scripts/check_recipes.sh --all           all of them, with all tests; writes docs/recipes/tested.txt
#     scripts/check_recipes.sh NAME..          these, with all tests
#     scripts/check_recipes.sh --make NAME     rewrites docs/recipes/NAME.diff: the changes of the working tree since HEAD
#
# A diff begins with a description and with its tests, one `    cargo test SELECTION -- FILTER..` a line.
set -euo pipefail
# A recipe changes what a sweep finds, and an eighth of one may find too few cases.
unset RESHARD_EXHAUSTIVE
cd "$(dirname "$0")/.."
recipes=docs/recipes

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# Prints the text before a diff.
comment() {
    sed '/^diff --git /,$d' "$1"
}

if [ "${1:-}" = --make ]; then
    file=$recipes/${2:?the name of a recipe}.diff
    [ -f "$file" ] || fail "there is no $file: write what it adds and its tests there first"
    comment "$file" >"$tmp/diff"
    # Use a separate index, so that new files are in the diff and the real index stays as it is. One line of context:
    # the less a diff quotes, the longer it applies.
    export GIT_INDEX_FILE=$tmp/index
    git read-tree HEAD
    git add -A -- . ":!$recipes"
    git diff --cached -U1 --full-index HEAD -- . ":!$recipes" >>"$tmp/diff"
    grep -q '^diff --git ' "$tmp/diff" || fail "$file: the working tree is HEAD, so there is nothing to write"
    cp "$tmp/diff" "$file"
    echo "$file is written; put its change away with: git stash push -u -- . ':!$recipes'"
    exit
fi

changed_only=
if [ $# -eq 0 ]; then changed_only=1; fi
all=
if [ "${1:-}" = --all ]; then
    all=1
    shift
fi
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for file in "$recipes"/*.diff; do names+=("$(basename "$file" .diff)"); done
fi

mkdir "$tmp/tree"
while IFS= read -r -d '' file; do
    if [ -f "$file" ]; then printf '%s\0' "$file"; fi
done < <(git ls-files -z) | tar --null --files-from - --create | tar --extract --directory "$tmp/tree"

# Inside a repository `git apply` would resolve the paths there.
apply() {
    (cd "$tmp/tree" && GIT_CEILING_DIRECTORIES=$tmp git apply "$@")
}

stale() {
    fail "$recipes/$1.diff no longer applies $2. Either" \
        "    git apply --3way $recipes/$1.diff        and mend and git add what is in conflict," \
        "or follow the recipe in CONTRIBUTING.md again; run its tests, and then" \
        "    scripts/check_recipes.sh --make $1"
}

# hash_of NAME: of the diff, and of the existing files that it changes.
hash_of() {
    local file=$recipes/$1.diff
    {
        cat "$file"
        git apply --numstat "$file" | cut -f3 | sort | while IFS= read -r touched; do
            if [ -f "$touched" ]; then cat "$touched"; fi
        done
    } | sha256sum | cut -d' ' -f1
}

tested() {
    [ -n "$changed_only" ] && grep -qxF "$1 $(hash_of "$1")" "$recipes/tested.txt" 2>/dev/null
}

declare -A filters=()
selections=()
skipped=()
for name in "${names[@]}"; do
    file=$PWD/$recipes/$name.diff
    [ -f "$file" ] || fail "there is no $recipes/$name.diff"
    grep -q '^diff --git ' "$file" || fail "$recipes/$name.diff is empty"
    apply --check "$file" || stale "$name" "to the tree"
    [ -n "$(apply --numstat "$file")" ] || fail "$recipes/$name.diff changes nothing"
    skip_tests=
    if tested "$name"; then
        skip_tests=1
        skipped+=("$name")
    fi
    tests=0
    while IFS= read -r line; do
        [[ $line =~ ^"    cargo test "(.+)" -- "(.+)$ ]] || continue
        tests=$((tests + 1))
        [ -z "$skip_tests" ] || continue
        [ -n "${filters[${BASH_REMATCH[1]}]:-}" ] || selections+=("${BASH_REMATCH[1]}")
        filters[${BASH_REMATCH[1]}]+=" ${BASH_REMATCH[2]}"
    done < <(comment "$file")
    [ $tests -gt 0 ] || fail "$recipes/$name.diff names no test: a line such as \"    cargo test -p reshard-planner --test laws -- golden\""
done
for name in "${names[@]}"; do
    apply "$PWD/$recipes/$name.diff" || stale "$name" "after those before it: ${names[*]}"
    echo "applied: $name"
done

if [ ${#skipped[@]} -gt 0 ]; then echo "nothing that they touch has changed, so their tests do not run: ${skipped[*]}"; fi
if [ ${#selections[@]} -eq 0 ]; then exit; fi

# Use one folder in all runs and write only files that differ, so that cargo finds earlier builds. Its target directory is
# separate: cargo distinguishes the members of two copies of a workspace only by their paths below its root, and would
# confuse the builds of this tree with those of the other.
tree=${CARGO_TARGET_DIR:-target}/recipes/tree
mkdir -p "$tree"
tree=$(cd "$tree" && pwd)
(cd "$tree" && find . -type f -print0) | while IFS= read -r -d '' file; do
    if [ ! -f "$tmp/tree/$file" ]; then rm "$tree/$file"; fi
done
(cd "$tmp/tree" && find . -type f -print0) | while IFS= read -r -d '' file; do
    if ! cmp --silent "$tmp/tree/$file" "$tree/$file"; then
        mkdir -p "$(dirname "$tree/$file")"
        cp "$tmp/tree/$file" "$tree/$file"
    fi
done
export CARGO_TARGET_DIR=${tree%/tree}/target
root=$PWD
cd "$tree"

for selection in "${selections[@]}"; do
    read -ra select <<<"$selection"
    read -ra wanted <<<"${filters[$selection]}"
    listed=$(cargo test --locked --quiet "${select[@]}" -- --list)
    for filter in "${wanted[@]}"; do
        grep -q -F -- "$filter" <(grep ': test$' <<<"$listed") || fail "cargo test $selection -- $filter: no test has that name"
    done
    printf '\ncargo test %s --%s\n' "$selection" "${filters[$selection]}"
    cargo test --locked "${select[@]}" -- "${wanted[@]}"
done
echo "${#names[@]} recipes apply, and the tests of those that changed pass: ${names[*]}"
if [ -n "$all" ]; then
    cd "$root"
    for name in "${names[@]}"; do echo "$name $(hash_of "$name")"; done >"$recipes/tested.txt"
    echo "$recipes/tested.txt is written"
elif [ -n "$changed_only" ]; then
    echo "scripts/check_recipes.sh --all keeps that in $recipes/tested.txt"
fi
