#!/usr/bin/env bash
# Provides a Chromium, Node.js, and the package by which Node.js drives the browser. Prints the browser and the driver's
# folder. The browser is the system's (RESHARD_CHROMIUM names another), installed by apt-get if it is missing and that is
# possible; the driver is npm's. Fails if they are not available.
#
#   scripts/fetch_browser.sh [FOLDER]        default: ${XDG_CACHE_HOME:-$HOME/.cache}/reshard
set -euo pipefail

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/reshard}/browser

browser() {
    for name in "${RESHARD_CHROMIUM:-}" chromium chromium-browser google-chrome-stable google-chrome; do
        if [ -n "$name" ] && command -v "$name"; then return 0; fi
    done
    return 1
}
missing=()
browser >/dev/null || missing+=(chromium fonts-dejavu-core)
command -v npm >/dev/null || missing+=(nodejs npm)
[ ${#missing[@]} -eq 0 ] || "$(dirname "$0")/apt_install.sh" "${missing[@]}"
if [ ! -d "$folder/node_modules/playwright-core" ] || [ ! -d "$folder/node_modules/axe-core" ]; then
    mkdir -p "$folder"
    [ -f "$folder/package.json" ] || echo '{"private":true}' >"$folder/package.json"
    # Only the driver of the browser, and the accessibility checks.
    (cd "$folder" && PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm install --silent --no-audit --no-fund playwright-core@1.65 axe-core@4.14 >&2) ||
        { echo "fetch_browser: npm could not fetch playwright-core and axe-core" >&2; exit 1; }
fi
browser
echo "$folder"
