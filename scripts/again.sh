#!/usr/bin/env bash
# Runs failed tests once more, one at a time: a test that measures times can fail because of the tests that run beside it.
# At most three, and each is named even if it passes now. With more failures than that, the cause is not chance.
# Usage: again.sh FOLDER, the folder with python and pytest, after a run of pytest that failed.
set -euo pipefail
most=3
failed=.pytest_cache/v/cache/lastfailed
[ -f "$failed" ] || exit 1
mapfile -t names < <("$1/python" -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$failed")
[ "${#names[@]}" -ge 1 ] && [ "${#names[@]}" -le "$most" ] || exit 1
echo "== once more, with no other test running:"
printf '%s\n' "${names[@]}"
"$1/pytest" -p no:xdist "${names[@]}" || exit 1
echo "== these failed beside other tests and passed alone:"
printf '%s\n' "${names[@]}"
