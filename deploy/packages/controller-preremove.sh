#!/bin/sh
# dpkg says "remove", rpm says how many versions stay: 0. An upgrade stops nothing.
set -e
case $1 in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
for unit in musterd.service; do
	systemctl disable --now "$unit" || true # it was never enabled
done
