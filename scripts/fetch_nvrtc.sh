#!/usr/bin/env bash
# Fetches CUDA's compiler and disassembler (90 MB) from their Python packages, for machines without CUDA. Prints the shell
# commands that put them on the search paths; fetches only missing files.
#
#   eval "$(scripts/fetch_nvrtc.sh [FOLDER])"        default: ${XDG_CACHE_HOME:-$HOME/.cache}/reshard
set -euo pipefail

packages=(nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-nvdisasm==13.5.37)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/reshard}/cuda

if [ ! -x "$folder/nvidia/cu13/bin/nvdisasm" ]; then
    python=$(command -v python3 || command -v python) || { echo "fetch_nvrtc: there is no python" >&2; exit 1; }
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$work" "${packages[@]}" >&2 </dev/null
    for wheel in "$work"/*.whl; do
        "$python" -m zipfile -e "$wheel" "$work/out"
    done
    chmod +x "$work"/out/nvidia/cu13/bin/*
    rm -rf "$folder/nvidia"
    mv "$work/out/nvidia" "$folder/nvidia"
fi
printf 'export LD_LIBRARY_PATH=%q PATH=%q\n' \
    "$folder/nvidia/cu13/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$folder/nvidia/cu13/bin:$PATH"
