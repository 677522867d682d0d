#!/usr/bin/env bash
# Coalescing, refinement, composition and complement are implemented once, in reshard-layout. The former duplicates of
# them are listed here and may not come back; each has the function to use instead.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
# gone PATTERN INSTEAD PATH..: no line of these paths matches the extended regular expression.
gone() {
    local pattern=$1 instead=$2
    shift 2
    if found=$(git grep --untracked -nE "$pattern" -- "$@"); then
        echo "check_one_algebra: $instead, not" >&2
        echo "$found" >&2
        status=1
    fi
}

sharding=('sharding/src/*.rs' 'sharding/planner/src/*.rs' 'sharding/ops/src/*.rs' 'sharding/verify/src/*.rs' 'program/src/*.rs')
planner=('sharding/planner/src/*.rs')
kernels=('kernels/src/*.rs' 'kernels/cuda/src/*.rs')
collectives=('collectives/src/*.rs' 'collectives/*/src/*.rs')

gone '\b(struct|enum|type) (Digit|Digits|Owner|Word|Words|Position|Positions)\b' \
    'a digit is a Mode<At>, whose stride says who holds it; a dim is a list of Modes' "${sharding[@]}"
gone '\bmod (digits|merge|extent)\b' 'these are layout, states::refine and cut' "${sharding[@]}"
gone '\bfn (canonical|canonical_word|cut_word|word_of|joined|join_digits)\b' \
    'coalesce: Modes::push_coalesced, Layout::coalesced' "${sharding[@]}"
gone '\bfn (give|decode_axis|regroup|intervals_of_word)\b' \
    'layout::encode, layout::decode, split_into and layout::inverse' "${sharding[@]}"
gone '\bfn (complement|join)\b' 'Mesh::complement over algebra::gaps, Modes::push_coalesced' 'sharding/src/axis.rs'
gone '\b(struct Merged \{[^}]*positions|fn lay_words|fn local_strides|fn owners|struct View<)' \
    'the zip of two layouts: System::zip, System::zip_of, sliced at coordinates' "${planner[@]}"
gone '\bpub struct Mode\b|source_stride|target_stride' 'Mode<(i64, i64)>: a block is a layout of pairs' "${planner[@]}"
gone '\b(struct Loop|fn is_one_loop)\b' 'Mode<(i64, i64)>, algebra::zip and Modes::coalesce' "${kernels[@]}"
gone '\bfn (try_map|boundaries|within_boundaries)\b' 'Layout::compose_at' "${collectives[@]}"
gone '\bSmallVec<\[\((i64, i64|usize, usize)\); [0-9]+\]>.*(modes|digits)' 'Modes' 'sharding/src/group.rs' \
    'sharding/src/group/*.rs' 'sharding/src/mesh.rs' 'sharding/src/notation/*.rs'
# Only one function converts coordinates to ranks, so that a mesh may have its devices in any order.
gone 'layout(\(\))?\.at\(c' 'Mesh::rank_at' 'sharding/planner/src/*.rs' 'sharding/src/layout/*.rs' \
    'sharding/src/shards.rs' 'sharding/src/sharding.rs' 'sharding/src/notation/*.rs'
exit "$status"
