#!/usr/bin/env bash
# The browser that the report's tests open pages in: found, installed where this may be done, or plainly missed.
# STEELYARD_CHROMIUM and STEELYARD_CHROMEDRIVER name others.
set -euo pipefail

packages=(chromium chromium-driver fonts-dejavu-core)

there() {
  command -v "${STEELYARD_CHROMIUM:-chromium}" >/dev/null && command -v "${STEELYARD_CHROMEDRIVER:-chromedriver}" >/dev/null
}

missing() {
  local then="are skipped"
  [ -z "${CI:-}" ] || then="fail, for CI is set"
  echo "warning: no Chromium, so the tests that open reports in a browser $then: $1" >&2
  echo "  install it: apt-get install --no-install-recommends ${packages[*]}" >&2
  echo "  or name another: STEELYARD_CHROMIUM=/path/to/chrome STEELYARD_CHROMEDRIVER=/path/to/chromedriver make test" >&2
  exit 0
}

there && exit 0
[ -z "${STEELYARD_CHROMIUM:-}${STEELYARD_CHROMEDRIVER:-}" ] || missing "STEELYARD_CHROMIUM or STEELYARD_CHROMEDRIVER names no program"
command -v apt-get >/dev/null || missing "it is not on PATH, and there is no apt-get to install it with"
[ "$(id -u)" = 0 ] || missing "it is not on PATH, and only root may install it"
echo "installing ${packages[*]} for the tests that open reports in a browser" >&2
export DEBIAN_FRONTEND=noninteractive
install=(apt-get install -qq -y --no-install-recommends "${packages[@]}")
"${install[@]}" >&2 || { apt-get update -qq >&2 && "${install[@]}" >&2; } || missing "apt-get could not install it (see above)"
there || missing "apt-get installed it, but it is not on PATH"
