#!/bin/sh
# Builds Kubernetes' own servers and kubectl, once for each version, into the user's cache, and prints the folder that has
# them: kube-apiserver, kube-controller-manager, kube-scheduler and kubectl are links to one program of 160 MB.
#
#   test/kube/servers.sh           build if need be, print the folder
#   test/kube/servers.sh --have    print the folder, fail if it has not been built
set -eu
cd "$(dirname -- "$0")/servers"
version=$(sed -n 's/^[[:space:]]*k8s.io\/kubernetes //p' go.mod)
sum=$(cat go.mod go.sum main.go | sha256sum | cut -c1-12)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/muster/kubernetes-$version-$sum
case ${1:-} in
'') ;;
--have) [ -x "$dir/kube" ] || { echo "Kubernetes' servers have not been built: run test/kube/servers.sh (5 to 20 minutes)" >&2; exit 1; } ;;
*) echo "usage: $0 [--have]" >&2; exit 2 ;;
esac
if [ ! -x "$dir/kube" ]; then
	echo "building Kubernetes $version (5 to 20 minutes, once)" >&2
	mkdir -p "$dir"
	go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$dir/kube.new" .
	mv "$dir/kube.new" "$dir/kube"
fi
for name in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
	[ -e "$dir/$name" ] || ln -s kube "$dir/$name"
done
echo "$dir"
