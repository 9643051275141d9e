package conffile

import (
	"strings"
	"testing"
)

// What of the energy's keys cannot be is said, with the key.
func TestEnergyKeys(t *testing.T) {
	for yaml, want := range map[string]string{
		"energy: {source: rapl, idle_watts: 150}":                                                         "",
		"energy: {source: sun}":                                                                           "energy.source",
		"energy: {source: redfish}":                                                                       "energy.redfish_url: is needed",
		"energy: {source: redfish, redfish_url: 'http://bmc'}":                                            "is not https://HOST",
		"energy: {source: redfish, redfish_url: 'https://%n-bmc'}":                                        "",
		"energy: {source: redfish, redfish_url: 'https://%n-bmc/redfish/v1'}":                             "is not https://HOST",
		"energy: {source: redfish, redfish_url: 'https://%h.bmc', redfish_user: m}":                       "name both or neither",
		"energy: {source: redfish, redfish_url: 'https://b', redfish_user: m, redfish_password_file: /p}": "",
		"energy: {idle_watts: -1}":                                                                        "energy.idle_watts",
		"energy: {interval: 10ms}":                                                                        "energy.interval",
	} {
		_, err := Parse(Source{Name: "/etc/muster/muster.yaml", Data: []byte(yaml)})
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", yaml, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", yaml, err, want)
		}
	}
}
