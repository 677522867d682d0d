#!/usr/bin/env bash
# Installs packages with apt-get, one caller at a time. If that is not possible, fails with the missing packages.
#
#   scripts/apt_install.sh PACKAGE..
set -euo pipefail
exec >&2

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "apt_install: install $*; apt-get would need root"
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
exec 9>"${TMPDIR:-/tmp}/reshard_apt.lock"
flock 9
install=(apt-get install --yes --quiet --no-install-recommends "$@")
"${install[@]}" || { apt-get update --quiet && "${install[@]}"; } || { echo "apt_install: apt-get could not install $*"; exit 1; }
