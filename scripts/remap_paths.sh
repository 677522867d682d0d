#!/usr/bin/env bash
# Prints flags for RUSTFLAGS by which built files contain no path of this machine: neither the checkout, nor the registry's
# cache, nor the toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."
sysroot=$(rustc --print sysroot)
echo "--remap-path-prefix=$PWD=reshard --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo --remap-path-prefix=$sysroot=rust"
