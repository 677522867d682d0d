#!/usr/bin/env bash
# Makes sure that there are an MPI library with its compiler wrapper and launcher, and libclang: what the feature `mpi`
# needs. Installs Open MPI with apt-get where they are missing and that is possible; fails otherwise.
set -euo pipefail

complete() {
    command -v mpirun >/dev/null && command -v mpicc >/dev/null &&
        { [ -n "${LIBCLANG_PATH:-}" ] || ldconfig -p | grep -q libclang || compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null; }
}

complete && exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "install_mpi: install Open MPI or MPICH and libclang; apt-get would need root" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# One apt-get at a time.
exec 9>"${TMPDIR:-/tmp}/reshard_apt.lock"
flock 9
apt-get install --yes --quiet --no-install-recommends openmpi-bin libopenmpi-dev libclang-dev >&2 ||
    { apt-get update --quiet >&2 &&
        apt-get install --yes --quiet --no-install-recommends openmpi-bin libopenmpi-dev libclang-dev >&2; } ||
    { echo "install_mpi: apt-get could not install Open MPI and libclang" >&2; exit 1; }
complete || { echo "install_mpi: installed, and still incomplete" >&2; exit 1; }
