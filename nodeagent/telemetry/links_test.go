package telemetry

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// devicesOf reads a topology matrix as the field prints it: a line for each
// device.
func devicesOf(matrix string) []device.Device {
	var out []device.Device
	for i, line := range strings.Split(strings.TrimSpace(matrix), "\n") {
		d := device.Device{Index: i}
		for _, cell := range strings.Fields(line) {
			switch {
			case cell == "X":
				d.Links = append(d.Links, device.Link{Kind: device.LinkSelf})
			case strings.HasPrefix(cell, "NV"):
				d.Links = append(d.Links, device.Link{Kind: device.LinkNVLink, NVLinks: cell[2] - '0'})
			case cell == "PIX":
				d.Links = append(d.Links, device.Link{Kind: device.LinkSingle})
			default:
				d.Links = append(d.Links, device.Link{Kind: device.LinkSystem})
			}
		}
		out = append(out, d)
	}
	return out
}

func TestDomains(t *testing.T) {
	for _, tc := range []struct {
		name, matrix string
		domains      []int
		links        []string
	}{
		{"alone", "X", []int{0}, []string{""}},
		{"no NVLink", "X PIX\nPIX X", []int{0, 1}, []string{"PIX", "PIX"}},
		{"two pairs", "X NV4 SYS SYS\nNV4 X SYS SYS\nSYS SYS X NV4\nSYS SYS NV4 X", []int{0, 0, 2, 2}, []string{"NV4", "NV4", "NV4", "NV4"}},
		{"a chain is one domain", "X NV1 SYS\nNV1 X NV2\nSYS NV2 X", []int{0, 0, 0}, []string{"NV1", "NV2", "NV2"}},
	} {
		devices := devicesOf(tc.matrix)
		if got := domainsOf(devices); !slices.Equal(got, tc.domains) {
			t.Errorf("%s: domains %v, want %v", tc.name, got, tc.domains)
		}
		for i := range devices {
			if got := bestLink(&devices[i]); got != tc.links[i] {
				t.Errorf("%s: device %d: best link %q, want %q", tc.name, i, got, tc.links[i])
			}
		}
	}
	// A provider that knows no links: every device stands alone.
	if got := domainsOf([]device.Device{{Index: 0}, {Index: 1}}); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("without links: %v", got)
	}
}
