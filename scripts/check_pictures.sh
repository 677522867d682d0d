#!/usr/bin/env bash
# Checks pages of `reshard report` and the committed pictures in a real headless Chromium; scripts/pictures/check.mjs lists
# the checks. Screenshots stay in target/pictures.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${CARGO_TARGET_DIR:-target}/pictures
mkdir -p "$out"

installed=$(scripts/fetch_browser.sh)
{ read -r chromium && read -r driver; } <<<"$installed"

cargo build --quiet --release --bin reshard
reshard=${CARGO_TARGET_DIR:-target}/release/reshard
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
page plan_types plan --mesh dp=2,tp=2 --shape 8,8 --from 'S(0)|S(0),P|R' --to 'S(0)|S(0),R|P' --types
page plan_large plan --mesh pp=4,dp=64,tp=8 --shape 100000,70000 --from 'S(0),S(0),S(1)' --to 'S(1),R,S(0)' --topology h100
page check check "$step" --topology h100
page trace trace "$step" --rank 0 --topology h100 --in-flight-bytes 1000000
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

timeout 300 node scripts/pictures/check.mjs "$chromium" "$driver" "$out" "$pages"/*.html
