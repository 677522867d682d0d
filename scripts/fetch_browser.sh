#!/usr/bin/env bash
# Makes sure that there are a Chromium, Node.js, and what drives the one by the other. Prints the browser and the folder of its driver.
# The browser is the system's (RESHARD_CHROMIUM names another), installed by apt-get where it is missing and that is possible; the driver
# is npm's. Fails where they cannot be had.
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
    # Only what drives the browser and what it looks with.
    (cd "$folder" && PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm install --silent --no-audit --no-fund playwright-core@1.65 axe-core@4.14 >&2) ||
        { echo "fetch_browser: npm could not fetch playwright-core and axe-core" >&2; exit 1; }
fi
browser
echo "$folder"
