#!/bin/sh
# Generates the Go code of api/ from its .proto files, with the plugins that go.mod pins.
#
#   deploy/deps/protoc.sh           write the generated files in place
#   deploy/deps/protoc.sh --check   write nothing; fail and name what is stale
#
# Needs protoc (Debian: protobuf-compiler). Its version stands in the generated files' heads; a check ignores that line,
# so that another release of protoc does not make the files stale.
set -eu

cd "$(dirname -- "$0")/../.."
module=github.com/musterhpc/muster

case ${1:-} in
'') into=. ;;
--check) into=$(mktemp -d) && trap 'rm -rf "$into"' EXIT ;;
*) echo "usage: $0 [--check]" >&2; exit 2 ;;
esac

if ! command -v protoc >/dev/null 2>&1; then
	echo "generate: protoc is missing: run deploy/deps/install.sh, or apt-get install protobuf-compiler" >&2
	exit 1
fi

tools=$PWD/bin/tools
mkdir -p "$tools"
GOBIN=$tools go install google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc

# Every folder with a .proto file is an import path, deepest first, so that files name each other by their base name.
dirs=$(find api -name '*.proto' -exec dirname {} \; | sort -ru)
[ -n "$dirs" ] || { echo "generate: no .proto files under api/" >&2; exit 1; }
set --
for d in $dirs; do set -- "$@" -I "$d"; done
# shellcheck disable=SC2046 # paths of this repository hold no spaces
protoc --plugin="$tools/protoc-gen-go" --plugin="$tools/protoc-gen-go-grpc" "$@" \
	--go_out="$into" --go_opt=module=$module --go-grpc_out="$into" --go-grpc_opt=module=$module \
	$(find api -name '*.proto' | sort)

# A command that lives for milliseconds and never touches the runtime must not pay for its start: the descriptors of a file are
# built when the first of its messages, enums or descriptors is asked for, not when the program starts. (A file of services only
# has none to ask for and stays as it is.)
for f in $(cd "$into" && grep -rl --include='*.pb.go' '^	sync "sync"$' api); do
	awk '
		/^func init\(\) \{ file_[a-z0-9_]*_proto_init\(\) \}$/ { match($0, /file_[a-z0-9_]*_proto_init/); init = substr($0, RSTART, RLENGTH); next }
		{ line[++n] = $0 }
		END {
			if (init == "") exit 1
			for (i = 1; i <= n; i++) {
				if (index(line[i], "func " init "() {") == 1)
					print "// " init "_once builds the descriptors at their first use.\nvar " init "_once = sync.OnceFunc(" init ")\n"
				if (line[i] ~ /^\tfile_[a-z0-9_]*_proto_init\(\)$/) sub(/_init\(\)/, "_init_once()", line[i])
				print line[i]
				if (line[i] ~ /^func \(.*\) (ProtoReflect|Descriptor|Type|EnumDescriptor)\(\) .*\{$/) print "\t" init "_once()"
			}
		}' "$into/$f" >"$into/$f.new" || { echo "generate: $f: where are its descriptors built?" >&2; exit 1; }
	mv "$into/$f.new" "$into/$f"
done

[ "$into" != . ] || exit 0
stale=0
for f in $(cd "$into" && find . -name '*.pb.go' | sort); do
	if ! diff -q -I '^// [-	]* *protoc ' "$into/$f" "$f" >/dev/null 2>&1; then
		echo "generate: stale: $f" >&2
		stale=1
	fi
done
for f in $(find api -name '*.pb.go'); do
	[ -f "$into/$f" ] || { echo "generate: no .proto file makes $f any more" >&2; stale=1; }
done
[ $stale = 0 ] || { echo "generate: run \`make generate\` and commit the result" >&2; exit 1; }
