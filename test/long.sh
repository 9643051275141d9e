#!/usr/bin/env bash
# Runs at full length the tests that -short makes shorter: those whose own body
# asks testing.Short. Arguments go to go test.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(git ls-files '*_test.go' | xargs grep -l 'testing\.Short()')
names=$(awk '/^func Test/ {name = $2; sub(/\(.*/, "", name)} /testing\.Short\(\)/ {print name}' "${files[@]}" | sort -u | paste -sd'|')
mapfile -t folders < <(printf './%s\n' "${files[@]%/*}" | sort -u)
exec "${GO:-go}" test "$@" -run "^($names)\$" "${folders[@]}"
