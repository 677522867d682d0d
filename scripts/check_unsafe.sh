#!/usr/bin/env bash
# Checks that unsafe code is denied in the whole workspace. The files listed here may allow it, each with a reason and a
# SAFETY comment. Unsafe code elsewhere is an error, and so is a crate without the workspace's lints.
set -euo pipefail
cd "$(dirname "$0")/.."

allowed=(
    kernels/src/host.rs                # copies between raw pointers
    kernels/src/lanes.rs               # the registers of these copies
    collectives/src/threads/barrier.rs # ranks read each other's buffers while the owners wait
    collectives/mpi/src/raw.rs         # calls into the MPI library; buffers are lent to it for the length of a call
    kernels/cuda/src/library.rs        # the binding's probe of CUDA's libraries
    kernels/cuda/src/compile.rs        # calls of NVRTC
    kernels/cuda/src/device.rs         # launches of kernels
    kernels/cuda/src/device_draw.rs    # launches of draws
    kernels/cuda/src/graph.rs          # a query of a stream, and captured launches
    collectives/nccl/src/real.rs       # calls into NCCL
    collectives/device/src/cuda.rs     # launches by absolute addresses
    python/src/buffers.rs              # the memory of Python's arrays, read and written in place
    c/src/error.rs                     # names of functions that C calls, as in all files of c
    c/src/handles.rs                   # a name alone: handles are never followed
    c/src/memory.rs                    # what callers of C lend: texts, lists, places for answers
    c/src/layout.rs                    # functions that C calls
    c/src/mesh.rs                      # the same
    c/src/sharding.rs                  # the same
    c/src/propagate.rs                 # the same
    c/src/types.rs                     # the same
    c/src/planner.rs                   # the same
    c/src/plan.rs                      # the same
    c/src/messages.rs                  # functions that C calls, and structs that point into what is kept beside them
    c/src/calls.rs                     # the same
    c/src/files.rs                     # the same
    tests/support/src/allocations.rs   # an allocator that counts by thread
    collectives/tests/allocations.rs   # a counting allocator: plans that run need no heap
    program/tests/allocations.rs       # the same for schedules that run
)

status=0
complain() {
    echo "check_unsafe: $1" >&2
    status=1
}

sources=$(git ls-files --cached --others --exclude-standard '*.rs')
while IFS= read -r file; do
    [[ " ${allowed[*]} " == *" $file "* ]] ||
        complain "$file allows unsafe code and is not on the list"
done < <(grep -nHE 'unsafe_code' $sources | grep -vE '(forbid|deny)\(unsafe_code\)' | cut -d: -f1 | sort -u)

for file in "${allowed[@]}"; do
    [ -f "$file" ] || { complain "$file is on the list and not in the tree"; continue; }
    grep -q 'SAFETY' "$file" || complain "$file has no SAFETY comment"
done

for crate in layout sharding; do
    grep -q '^#!\[forbid(unsafe_code)\]' "$crate/src/lib.rs" || complain "$crate/src/lib.rs must forbid unsafe code"
done

while IFS= read -r manifest; do
    [[ $(grep -A1 '^\[lints\]' "$manifest") == *$'\n''workspace = true'* ]] ||
        complain "$manifest does not take the lints of the workspace"
done < <(git ls-files --cached --others --exclude-standard 'Cargo.toml' '*/Cargo.toml')

[ $status = 0 ] && echo "unsafe code is allowed in the listed files only"
exit $status
