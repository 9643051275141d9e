package power

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/energy"
	"github.com/musterhpc/muster/spec"
)

const now = spec.Instant(1_700_000_000) * spec.Instant(spec.Second)

// tree writes files below a folder, as /sys has them.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var twoSockets = map[string]string{
	"class/powercap/intel-rapl/enabled":                    "1",
	"class/powercap/intel-rapl:0/name":                     "package-0",
	"class/powercap/intel-rapl:0/energy_uj":                "112233445566",
	"class/powercap/intel-rapl:0/max_energy_range_uj":      "262143328850",
	"class/powercap/intel-rapl:0:0/name":                   "dram",
	"class/powercap/intel-rapl:0:0/energy_uj":              "5566",
	"class/powercap/intel-rapl:0:0/max_energy_range_uj":    "65712999613",
	"class/powercap/intel-rapl:0:1/name":                   "core",
	"class/powercap/intel-rapl:0:1/energy_uj":              "99",
	"class/powercap/intel-rapl:1/name":                     "package-1",
	"class/powercap/intel-rapl:1/energy_uj":                "7",
	"class/powercap/intel-rapl:1/max_energy_range_uj":      "262143328850",
	"class/powercap/intel-rapl:2/name":                     "psys",
	"class/powercap/intel-rapl:2/energy_uj":                "888",
	"class/powercap/intel-rapl-mmio:0/name":                "package-0",
	"class/powercap/intel-rapl-mmio:0/energy_uj":           "112233445566",
	"class/powercap/intel-rapl-mmio:0/max_energy_range_uj": "262143328850",
}

func TestSourcesOfTheKernel(t *testing.T) {
	watts := map[string]string{"class/hwmon/hwmon1/name": "power_meter", "class/hwmon/hwmon1/power1_average": "321500000",
		"class/hwmon/hwmon0/name": "amdgpu", "class/hwmon/hwmon0/power1_average": "90000000"}
	amd := map[string]string{"class/hwmon/hwmon3/name": "amd_energy",
		"class/hwmon/hwmon3/energy1_label": "Ecore000", "class/hwmon/hwmon3/energy1_input": "11",
		"class/hwmon/hwmon3/energy65_label": "Esocket0", "class/hwmon/hwmon3/energy65_input": "123456"}
	cray := map[string]string{"cray/pm_counters/energy": "26614 J 1418238411 us", "cray/pm_counters/power": "300 W"}
	rapl := &energy.Reading{At: now, Zones: []energy.Zone{
		{Name: "intel-rapl:0", Micro: 112233445566, Max: 262143328850},
		{Name: "intel-rapl:0:0", Micro: 5566, Max: 65712999613},
		{Name: "intel-rapl:1", Micro: 7, Max: 262143328850}}}
	both := map[string]string{}
	for _, m := range []map[string]string{twoSockets, watts, cray} {
		for k, v := range m {
			both[k] = v
		}
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		auto  string
		want  *energy.Reading
	}{
		{"two sockets", twoSockets, "rapl", rapl},
		{"an ACPI meter", watts, "hwmon", &energy.Reading{At: now, MilliWatts: 321_500, WithGPUs: true}},
		{"AMD's driver", amd, "hwmon", &energy.Reading{At: now, Zones: []energy.Zone{{Name: "hwmon3/Esocket0", Micro: 123456}}}},
		{"a Cray", cray, "pm_counters", &energy.Reading{At: now, Zones: []energy.Zone{{Name: "node", Micro: 26_614_000_000}}, WithGPUs: true}},
		{"all of it", both, "pm_counters", nil},
		{"a virtual machine", map[string]string{"class/net/lo/mtu": "1"}, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			sys := os.DirFS(tree(t, c.files))
			source := Auto(sys, now)
			if source == nil {
				if c.auto != "" {
					t.Fatal("no meter found")
				}
				for _, s := range []Source{&RAPL{sys}, &Hwmon{sys}, &PMCounters{sys}} {
					if _, err := s.Read(t.Context(), now); !errors.Is(err, ErrNoMeter) {
						t.Errorf("%s: %v", s.Name(), err)
					}
				}
				return
			}
			got, err := source.Read(t.Context(), now)
			if err != nil || source.Name() != c.auto || source.IsSlow() {
				t.Fatalf("%s: %v", source.Name(), err)
			}
			if c.want != nil && !reflect.DeepEqual(got, c.want) {
				t.Errorf("\n got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct {
		name, path, text string
		source           func(sys string) Source
	}{
		{"a counter that is no number", "class/powercap/intel-rapl:0/energy_uj", "none", func(s string) Source { return &RAPL{os.DirFS(s)} }},
		{"energy without a unit", "cray/pm_counters/energy", "12", func(s string) Source { return &PMCounters{os.DirFS(s)} }},
		{"energy that does not fit", "cray/pm_counters/energy", "99999999999999999 J", func(s string) Source { return &PMCounters{os.DirFS(s)} }},
	} {
		dir := tree(t, map[string]string{"class/powercap/intel-rapl:0/name": "package-0", c.path: c.text})
		if r, err := c.source(dir).Read(t.Context(), now); err == nil || errors.Is(err, ErrNoMeter) {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
}

// What ipmitool prints, by a program that prints it: no machine here has a controller.
func TestIPMI(t *testing.T) {
	const good = `
    Instantaneous power reading:                   412 Watts
    Minimum during sampling period:                 88 Watts
    Maximum during sampling period:                630 Watts
    Average power reading over sample period:      401 Watts
    IPMI timestamp:                           Wed Nov 25 23:00:01 2026
    Sampling period:                          00000010 Seconds.
    Power reading state is:                   activated
`
	for _, c := range []struct {
		name, script, said string
		none               bool
		want               int64
	}{
		{"a reading", "[ \"$*\" = 'dcmi power reading' ] || exit 9\ncat <<'X'" + good + "X", "", false, 412_000},
		{"not measuring", "echo '    Instantaneous power reading:   0 Watts'; echo '    Power reading state is:  deactivated'", "does not measure", true, 0},
		{"no device", "echo 'Could not open device at /dev/ipmi0' >&2; exit 1", "Could not open device", false, 0},
		{"other words", "echo nothing", "no instantaneous power reading", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "ipmitool")
			if err := os.WriteFile(file, []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			got, err := (&IPMI{Program: file}).Read(t.Context(), now)
			if c.said == "" {
				if err != nil || got.MilliWatts != c.want || !got.WithGPUs {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.said) || errors.Is(err, ErrNoMeter) != c.none {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := (&IPMI{Program: "/no/such/ipmitool"}).Read(t.Context(), now); !errors.Is(err, ErrNoMeter) || !strings.Contains(err.Error(), "install ipmitool") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&IPMI{Program: "/bin/cat"}).Read(ctx, now); err == nil {
		t.Error("a question whose time is over has an answer")
	}
}

// A controller over real HTTPS: a chassis of today, one of yesterday, one that
// measures nothing.
func TestRedfish(t *testing.T) {
	answers := map[string]string{
		"/redfish/v1/Chassis":         `{"Members":[{"@odata.id":"/redfish/v1/Chassis/1"},{"@odata.id":"/redfish/v1/Chassis/2"},{"@odata.id":"/redfish/v1/Chassis/3"}]}`,
		"/redfish/v1/Chassis/1":       `{"EnvironmentMetrics":{"@odata.id":"/redfish/v1/Chassis/1/Env"},"Power":{"@odata.id":"/redfish/v1/Chassis/1/Power"}}`,
		"/redfish/v1/Chassis/1/Env":   `{"PowerWatts":{"Reading":350.5}}`,
		"/redfish/v1/Chassis/2":       `{"Power":{"@odata.id":"/redfish/v1/Chassis/2/Power"}}`,
		"/redfish/v1/Chassis/2/Power": `{"PowerControl":[{"PowerConsumedWatts":100},{"PowerConsumedWatts":null}]}`,
		"/redfish/v1/Chassis/3":       `{}`,
	}
	asked := map[string]int{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path]++
		user, password, _ := r.BasicAuth()
		text, ok := answers[r.URL.Path]
		switch {
		case user != "muster" || password != "secret":
			w.WriteHeader(http.StatusUnauthorized)
		case !ok:
			http.NotFound(w, r)
		default:
			_, _ = w.Write([]byte(text))
		}
	}))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	password := "secret"
	source, err := NewRedfish(server.URL, "muster", func() (string, error) { return password, nil }, ca)
	if err != nil {
		t.Fatal(err)
	}
	got, err := source.Read(t.Context(), now)
	if err != nil || got.MilliWatts != 450_500 || !got.WithGPUs || asked["/redfish/v1/Chassis/1/Power"] != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	password = "guess"
	if _, err := source.Read(t.Context(), now); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("with a wrong password: %v", err)
	}
	password = "secret"
	answers["/redfish/v1/Chassis/1"], answers["/redfish/v1/Chassis/2"] = `{}`, `{}`
	if _, err := source.Read(t.Context(), now); !errors.Is(err, ErrNoMeter) {
		t.Errorf("nothing measures: %v", err)
	}
	answers["/redfish/v1/Chassis"] = `{"Members":[{"@odata.id":"@evil.example/x"}]}`
	if _, err := source.Read(t.Context(), now); err == nil || !strings.Contains(err.Error(), "not its own") {
		t.Errorf("a link elsewhere: %v", err)
	}
	stranger, err := NewRedfish(server.URL, "muster", func() (string, error) { return "secret", nil }, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Read(t.Context(), now); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
	for _, address := range []string{"http://bmc", "bmc", "https://"} {
		if _, err := NewRedfish(address, "", nil, ""); err == nil {
			t.Errorf("%s is taken", address)
		}
	}
}
