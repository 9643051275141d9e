#!/usr/bin/env bash
# Fails when there are functions that no program and no test reaches, or that
# only tests reach and ALLOW does not excuse. Lines of ALLOW that excuse nothing
# fail too. Lines with the reason "kube:" excuse from both. usage: deadcode.sh ALLOW
set -euo pipefail
allow=$1
rc=0

patterns=$(sed -e 's/[[:space:]]*#.*//' -e '/^$/d' "$allow")
elsewhere=$(sed -n 's/[[:space:]]*# kube:.*//p' "$allow")

unreached=$(go tool deadcode -test ./...)
unreached=$(grep -vE "$elsewhere" <<<"$unreached" || true)
if [ -n "$unreached" ]; then
	printf 'neither a program nor a test reaches (delete it):\n%s\n' "$unreached" >&2
	rc=1
fi

found=$(go tool deadcode ./cmd/... ./docs/... ./deploy/... ./test/...)
more=$(grep -vE "$patterns" <<<"$found" || true)
if [ -n "$more" ]; then
	printf 'no program reaches (wire it, delete it, or excuse it in %s):\n%s\n' "$allow" "$more" >&2
	rc=1
fi
while read -r pattern; do
	if ! grep -qE "$pattern" <<<"$found"; then
		printf '%s: %s excuses nothing, remove it\n' "$allow" "$pattern" >&2
		rc=1
	fi
done <<<"$patterns"
exit $rc
