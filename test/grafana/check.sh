#!/bin/sh
# Holds the generated dashboards to Grafana's own library and types; see README.md.
set -eu
cd "$(dirname -- "$0")"
go test -count=1 ./...
if ! command -v npm >/dev/null 2>&1 || ! command -v node >/dev/null 2>&1; then
	echo "NOT TESTED with tsc and @grafana/schema: there is no npm (deploy/deps/install.sh installs it)" >&2
	exit 0
fi
cd schema
npm install --no-audit --no-fund --ignore-scripts --no-package-lock --loglevel=error
node check.mjs ../../../dashboards/generated
