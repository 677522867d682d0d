#!/usr/bin/env bash
# Pages of `reshard report` and the committed pictures, looked at by a real headless Chromium: scripts/pictures/check.mjs says for what.
# Screenshots stay in target/pictures. Exits with 3 where there is no browser or driver and none can be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${CARGO_TARGET_DIR:-target}/pictures
mkdir -p "$out"

browser() {
    for name in "${RESHARD_CHROMIUM:-}" chromium chromium-browser google-chrome-stable google-chrome; do
        if [ -n "$name" ] && command -v "$name"; then return 0; fi
    done
    return 1
}
skip() {
    echo "check_pictures: $1" >&2
    exit 3
}
if ! chromium=$(browser); then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        export DEBIAN_FRONTEND=noninteractive
        { apt-get install --yes --quiet --no-install-recommends chromium fonts-dejavu-core ||
            { apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends chromium fonts-dejavu-core; }; } >&2 || true
    fi
    chromium=$(browser) || skip "there is no Chromium, and apt-get could not install it"
fi
command -v node >/dev/null && command -v npm >/dev/null || skip "there is no Node.js, which drives the browser"
if [ ! -d "$out/node_modules/playwright-core" ] || [ ! -d "$out/node_modules/axe-core" ]; then
    # Only what drives the browser and what it looks with; the browser is the system's.
    (cd "$out" && { [ -f package.json ] || echo '{"private":true}' >package.json; } &&
        PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm install --silent --no-audit --no-fund playwright-core@1.65 axe-core@4.14 >&2) ||
        skip "npm could not fetch playwright-core and axe-core"
fi

cargo build --quiet --package reshard-cli
reshard=${CARGO_TARGET_DIR:-target}/debug/reshard
pages=$out/pages
rm -rf "$pages" "$out"/*.png
mkdir -p "$pages"
page() {
    local name=$1
    shift
    "$reshard" report "$@" --html "$pages/$name.html" >/dev/null
}

step=$pages/step.txt
cat >"$step" <<'EOF'
mesh dp=2,tp=2
x: f32[64,128] S(0),I
up: f32[128,512] R,S(1)
down: f32[512,128] R,S(0)
h = mm(x, up)
a = gelu(h)
y = mm(a, down)
z = square(y)
loss = sum(z)
gradient loss wrt up, down
EOF
page plan plan --mesh dp=2,tp=4 --shape 64,32 --from 'P,S(1)' --to 'S(0),R'
page plan_types plan --mesh dp=2,tp=2 --shape 8,8 --from 'S(0),P|S(0),R' --to 'S(0),R|S(0),P' --types
page plan_large plan --mesh pp=4,dp=64,tp=8 --shape 100000,70000 --from 'S(0),S(0),S(1)' --to 'S(1),R,S(0)' --topology h100
page check check "$step" --topology h100
page trace trace "$step" --rank 0 --topology h100 --hoist-bytes 1000000
"$reshard" run --out "$pages/checkpoint" >/dev/null
page inspect inspect "$pages/checkpoint"
# The committed pictures, all on one page.
{
    echo '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,"><title>pictures</title>'
    echo '<meta name="viewport" content="width=device-width"><style>body{margin:8px}figure{margin:8px 0;overflow-x:auto}'
    echo '@media (prefers-color-scheme:dark){body{background:#16181d}}</style></head><body><main><h1 style="color:#767676">Pictures</h1>'
    for picture in docs/pictures/*.svg; do
        echo "<figure tabindex=\"0\" role=\"region\" aria-label=\"$(basename "$picture" .svg)\">"
        cat "$picture"
        echo '</figure>'
    done
    echo '</main></body></html>'
} >"$pages/pictures.html"

timeout 300 node scripts/pictures/check.mjs "$chromium" "$out" "$pages"/*.html
