# What the stages of .ci/run share: to be sourced, with `shared` naming a folder of the run.

# One eighth of the sweeps that are too long for every run. It is the same on every run unless another is asked for, so that a
# verdict depends on the change alone.
export RESHARD_EXHAUSTIVE=${RESHARD_EXHAUSTIVE:-0}
export RESHARD_TORCH_SWEEP=$RESHARD_EXHAUSTIVE RESHARD_JAX_SWEEP=$RESHARD_EXHAUSTIVE
# No build holds a path of this machine, so that the wheel needs none of its own. Cargo keeps what was built without these flags.
export RUSTFLAGS="$(scripts/remap_paths.sh)"
export CARGO_INCREMENTAL=0
# Every call of the compiler leaves a line there: what it built and how long it took.
export RESHARD_BUILDS=$shared/builds RUSTC_WRAPPER=$PWD/.ci/rustc

stages=()
name=
again=
began=$SECONDS
computed=0

# Sets `now` to the seconds of processors that this shell's children have taken. A subshell would count its own.
now=0
processors() {
    times >"$shared/times.$$"
    now=$(awk -F'[ms ]+' 'END { printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' "$shared/times.$$")
}

finished() {
    processors
    if [ -n "$name" ]; then
        stages+=("$(printf '%5d s %5d s  %s' "$((SECONDS - began))" "$((now - computed))" "$name")")
        echo "${stages[-1]}"
    fi
    name= began=$SECONDS computed=$now
}

# stage NAME COMMAND..: runs it, and takes its time by the clock and of processors.
stage() {
    name=$1
    shift
    again=$*
    printf '\n== %s (%s s from the start)\n   %s\n' "$name" "$SECONDS" "$again"
    "$@"
    finished
}

# What failed, and the one command that does it again.
failed() {
    {
        echo
        echo "FAILED: $name"
        echo "again:  RESHARD_EXHAUSTIVE=$RESHARD_EXHAUSTIVE${RESHARD_SEED:+ RESHARD_SEED=$RESHARD_SEED} $again"
    } >&2
}

# The table of all stages so far.
stages_taken() {
    echo "by the clock, of processors:"
    printf '%s\n' "${stages[@]}"
    processors
    printf '%5d s %5d s  in all\n' "$SECONDS" "$now"
}

# skip WHAT: it is said at the end of the run, loudly.
skip() {
    echo "SKIPPED: $1"
    echo "$1" >>"$shared/skipped"
}

# fetch NAME: scripts/NAME.sh from now on, beside the rest, with a log and a time limit. What it builds is no build of ours.
fetch() {
    {
        env -u RUSTC_WRAPPER -u RUSTFLAGS timeout 1500 "scripts/$1.sh" >"$shared/$1.out" 2>"$shared/$1.log" && echo 0 >"$shared/$1.rc" || echo 1 >"$shared/$1.rc"
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
