package telemetry

import "github.com/musterhpc/muster/nodeagent/gpu/device"

// domainsOf gives each device the lowest index of the devices that NVLink
// joins it with, over any number of hops: its NVLink domain on the node. A
// device without NVLink is a domain of its own.
func domainsOf(devices []device.Device) []int {
	out := make([]int, len(devices))
	for i := range out {
		out[i] = -1
	}
	for i := range devices {
		if out[i] >= 0 {
			continue
		}
		for reach := []int{i}; len(reach) > 0; reach = reach[1:] {
			at := reach[0]
			if out[at] >= 0 {
				continue
			}
			out[at] = devices[i].Index
			for k, link := range devices[at].Links {
				if link.Kind == device.LinkNVLink && k < len(out) && out[k] < 0 {
					reach = append(reach, k)
				}
			}
		}
	}
	return out
}

// bestLink is a device's best path to a peer as topology matrices print it
// (NV18, PIX); empty when it has no peer.
func bestLink(gpu *device.Device) string {
	var best device.Link
	for _, link := range gpu.Links {
		if link.Kind != device.LinkSelf &&
			(link.Kind > best.Kind || link.Kind == best.Kind && link.NVLinks > best.NVLinks) {
			best = link
		}
	}
	if best.Kind == device.LinkUnknown {
		return ""
	}
	return best.String()
}
