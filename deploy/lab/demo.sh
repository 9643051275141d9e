#!/usr/bin/env bash
# The tour: a fresh cluster in a folder of its own, everything the README
# promises, and down again. KEEP=1 leaves it up. Fails if an expectation does.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LAB=${LAB:-$(mktemp -d "${TMPDIR:-/tmp}/muster-demo.XXXXXX")}
export LAB
# Ports of its own, so that the tour never meets a cluster that is in use.
LAB_PORT=${LAB_PORT:-$((20000 + RANDOM % 20000))}
export LAB_PORT

rc=0
began=$SECONDS
"$here/lab.sh" all || rc=$?
if [ "${KEEP:-}" = 1 ]; then
	printf '\nThe cluster is up. Use it with:\n  export MUSTER_SOCKET=%s PATH=$PWD/bin:$PATH\n  muster squeue\nand end it with:\n  muster down --dir %s --jobs\n' "$LAB/run/muster.sock" "$LAB"
else
	"$here/lab.sh" down || rc=$?
	[ "$rc" -ne 0 ] || rm -rf "$LAB"
fi
if [ "$rc" -eq 0 ]; then
	printf '\nThe demo took %s s: everything was as expected.\n' $((SECONDS - began))
else
	printf '\nThe demo failed; its folder is %s\n' "$LAB" >&2
fi
exit "$rc"
