#!/usr/bin/env bash
# Fails when code of ours calls a function with a known vulnerability, in the main module or in kube/. The database is that
# of GOVULNDB, by default https://vuln.go.dev; a mirror may be a file:// address. usage: vuln.sh [--if-reachable]
#
#   --if-reachable   say so and succeed where the database cannot be reached
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v1.9.0 # of golang.org/x/vuln
database=${GOVULNDB:-https://vuln.go.dev}

if ! curl --silent --fail --max-time 20 --output /dev/null "$database/index/db.json"; then
	echo "vuln: cannot reach the database of vulnerabilities at $database (set GOVULNDB to a mirror)" >&2
	[ "${1:-}" = --if-reachable ] || exit 1
	exit 0
fi
rc=0
for module in . kube; do
	echo "vuln: module in $module"
	(cd "$module" && ${GO:-go} run golang.org/x/vuln/cmd/govulncheck@$version -db "$database" ./...) || rc=1
done
exit $rc
