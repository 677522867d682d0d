#!/usr/bin/env bash
# Provides the dependencies of the feature `mpi`: an MPI library with its compiler wrapper and launcher, and libclang.
# Installs Open MPI with apt-get if they are missing and that is possible; fails otherwise.
set -euo pipefail

complete() {
    command -v mpirun >/dev/null && command -v mpicc >/dev/null &&
        { [ -n "${LIBCLANG_PATH:-}" ] || [[ $(ldconfig -p) == *libclang* ]] || compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null; }
}

complete && exit 0
"$(dirname "$0")/apt_install.sh" openmpi-bin libopenmpi-dev libclang-dev
complete || { echo "install_mpi: installed, and still incomplete" >&2; exit 1; }
