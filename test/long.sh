#!/usr/bin/env bash
# Runs the longest tests at full length: those whose own body asks for
# MUSTER_LONG. Arguments go to go test.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(git ls-files '*_test.go' | xargs grep -l MUSTER_LONG)
names=$(awk '/^func Test/ {name = $2; sub(/\(.*/, "", name)} /MUSTER_LONG/ {print name}' "${files[@]}" | sort -u | paste -sd'|')
mapfile -t folders < <(printf './%s\n' "${files[@]%/*}" | sort -u)
export MUSTER_LONG=1
exec "${GO:-go}" test "$@" -run "^($names)\$" "${folders[@]}"
