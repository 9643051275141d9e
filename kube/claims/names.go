// Package claims ties the ledger's devices to ResourceClaims of Kubernetes: which
// GPUs of Muster a pod asks for by its claims, and the allocation that gives it exactly
// the devices that the ledger has for it. The node program of the driver (package dra)
// and what lets pods through (package executor) share its names.
package claims

import "strings"

// Driver is the name of the DRA driver, and of the DeviceClass of the chart.
const Driver = "gpu.musterhpc.github.io"

// TypeLabel is on the DeviceClasses by which pods ask for devices of the ledger: the type
// that the ledger knows them by, such as h100 or 1g.10gb, or empty for any.
const TypeLabel = "musterhpc.github.io/gres-type"

// LedgerTaint is on every device, so that Kubernetes' scheduler gives none out by
// itself: only who asks the ledger first writes an allocation.
const LedgerTaint = "musterhpc.github.io/ledger"

// DeviceName is a device's name in its pool: its UUID in small letters, which is a name
// by the rules of Kubernetes. GPUs thus have one identity on both sides.
func DeviceName(uuid string) string { return strings.ToLower(uuid) }

// UUID is the device of a name.
func UUID(name string) string {
	for _, prefix := range []string{"gpu-", "mig-"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return strings.ToUpper(prefix) + rest
		}
	}
	return name
}

// Pool is the name of the pool with the devices of a Node.
func Pool(node string) string { return node }
