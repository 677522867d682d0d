# What both lists of stages share: to be sourced, with `shared` naming a folder of the run.

# Everything is built once and from nothing: what makes a second build or a debugger quicker only costs here.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_RELEASE_DEBUG=false

# Of sweeps too long for every run an eighth is done, another with each commit.
eighth=$(($(git rev-list --count HEAD 2>/dev/null || echo 0) % 8))

stages=()
name=
began=$SECONDS
computed=0

# stage NAME: what comes next, after the time that the last one took, by the clock and of processors.
stage() {
    # Whose children are counted is the shell that asks: it is no subshell.
    times >"$shared/times.$$"
    local now
    now=$(awk -F'[ms ]+' 'END { printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' "$shared/times.$$")
    if [ -n "$name" ]; then
        stages+=("$(printf '%5d s %5d s  %s' "$((SECONDS - began))" "$((now - computed))" "$name")")
        echo "${stages[-1]}"
    fi
    name=$1
    began=$SECONDS
    computed=$now
    printf '\n== %s (%s s from the start)\n' "$name" "$SECONDS"
}

# The table of all stages so far.
stages_taken() {
    echo "by the clock, of processors:"
    printf '%s\n' "${stages[@]}"
    printf '%5d s          in all\n' "$SECONDS"
}

# skip WHAT: it is said at the end of the run, loudly.
skip() {
    echo "$1" >>"$shared/skipped"
}

# fetch NAME: scripts/NAME.sh from now on, beside the rest, with a log and a time limit.
fetch() {
    {
        timeout 1500 "scripts/$1.sh" >"$shared/$1.out" 2>"$shared/$1.log" && echo 0 >"$shared/$1.rc" || echo 1 >"$shared/$1.rc"
    } &
}

# is_fetched NAME: waits for it, and shows its log where it failed. What it printed is in "$shared/NAME.out".
is_fetched() {
    while [ ! -s "$shared/$1.rc" ]; do sleep 1; done
    if [ "$(cat "$shared/$1.rc")" = 0 ]; then
        return 0
    fi
    cat "$shared/$1.log" >&2
    return 1
}
