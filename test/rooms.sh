#!/usr/bin/env bash
# The packages that `make test` runs: rooms.sh racing|plain
#
# racing are those in which something may run at once: a file of theirs, or a test, starts a
# goroutine. They are tested with the race detector. plain are the others, and the pure rooms, whose
# property tests and simulations are several times faster without the detector. Whole programs
# (test/e2e and its neighbours) belong to `make e2e`.
set -euo pipefail
cd "$(dirname "$0")/.."

pure='/(spec|sim|cli/local/whatif|ledger/(event|state|view)|scheduler|nodeagent/(plan|gpu/device|gpu/attrib)|accounting/(tally|kpi|query)|internal/(catalogue|tidy))(/|$)'
programs='/test/(attack|chaos|clients|console|e2e|effects|grafana)(/|$)'
starts='^\s*go (func\(|[A-Za-z_.]+\()|\.Go\(|\.Spawn\(|\bAfterFunc\(|\.Parallel\(\)'

kind=${1:?use: rooms.sh racing|plain}
"${GO:-go}" list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r package dir; do
	[[ $package =~ $programs ]] && continue
	room=racing
	if [[ $package =~ $pure && ! $package =~ /daemon(/|$) ]]; then
		room=plain
	elif ! grep -qE "$starts" "$dir"/*.go; then
		room=plain
	fi
	[ "$room" != "$kind" ] || echo "$package"
done
