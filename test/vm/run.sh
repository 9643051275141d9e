#!/bin/sh
# Boots Debian's cloud kernel with a pure v2 hierarchy and runs the proofs of
# test/vm/guest in it. bin/ must have been built; `make test-vm` does that.
#
#   VM_LIMIT=SECONDS   stop the machine after so long (default 1800)
#   VM_KEEP=FILE       keep the console's text in this file
#   VM_ONLY=WORD,...   run only the variants and the proofs whose name has one of these words,
#                      variants where one of them is root or delegated
#   VM_REPEAT=N        run the proofs of a variant N times (default 1)
set -eu
cd "$(dirname "$0")/../.."

kernel=$(ls /boot/vmlinuz-*-cloud-* 2>/dev/null | sort -V | tail -n 1)
[ -n "$kernel" ] || { echo "run.sh: no kernel in /boot: install linux-image-cloud-amd64 (deploy/deps/install.sh vm)" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root/bin" "$root/etc" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/run" "$root/var" "$root/tests" "$root/usr/bin"

CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$root/init" ./test/vm/guest
CGO_ENABLED=0 go test -c -trimpath -ldflags '-s -w' -o "$root/tests/cgroup.test" ./nodeagent/runtime/cgroup
cp bin/muster bin/musterd bin/muster-agent bin/muster-shepherd "$root/bin/"
cp "$(command -v busybox)" "$root/bin/busybox"
cp "/lib/modules/${kernel#/boot/vmlinuz-}/kernel/fs/overlayfs/overlay.ko" "$root/overlay.ko" # containers need it
for name in sh bash cat dd echo false grep ls mkdir mv nproc rm sed setsid sleep taskset test timeout touch tr true; do
	ln -s busybox "$root/bin/$name"
	ln -s /bin/busybox "$root/usr/bin/$name"
done
for command in sbatch srun scancel scontrol squeue; do ln -s muster "$root/bin/$command"; done
# Two of the programs are linked dynamically: they carry their libraries.
for program in musterd muster-agent; do ldd "bin/$program"; done | grep -o '/lib[^ ]*' | sort -u | while read -r library; do
	mkdir -p "$root$(dirname "$library")"
	cp -L "$library" "$root$library"
done
printf 'root:x:0:0:root:/tmp:/bin/sh\nalice:x:1000:1000:alice:/tmp:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nalice:x:1000:\n' >"$root/etc/group"
printf '127.0.0.1 localhost vm\n' >"$root/etc/hosts"
printf 'passwd: files\ngroup: files\nhosts: files\n' >"$root/etc/nsswitch.conf"
(cd "$root" && find . -print0 | cpio --null --create --format=newc --quiet) >"$work/initrd"

# A /dev/kvm that opens need not work: nested virtualisation can hang before the
# kernel's first line. A kernel without an initrd panics within seconds, and says so.
accel=tcg
cpu=max
if [ -w /dev/kvm ] && timeout 15 qemu-system-x86_64 -machine q35,accel=kvm -cpu host -m 256 -nographic -no-reboot -nic none \
	-kernel "$kernel" -append "console=ttyS0 panic=-1" </dev/null 2>/dev/null | grep -q 'Kernel panic'; then
	accel=kvm
	cpu=host
fi
console=${VM_KEEP:-$work/console}
echo "machine: $(basename "$kernel"), cgroup v2 only, accelerator $accel"
timeout "${VM_LIMIT:-1800}" qemu-system-x86_64 -machine "q35,accel=$accel" -cpu "$cpu" -m 2048 -smp 2 -nographic -no-reboot -nic none \
	-kernel "$kernel" -initrd "$work/initrd" \
	-append "console=ttyS0 quiet panic=-1 cgroup_no_v1=all rdinit=/init VM_ONLY=${VM_ONLY:-} VM_REPEAT=${VM_REPEAT:-}" </dev/null 2>&1 | tee "$console" | tr -d '\r' || true
tr -d '\r' <"$console" | grep -q '^muster-vm: finished, 0 failed$'
