package deploy

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestSIEMExamples: the examples are at least well formed, and rsyslog takes its one.
func TestSIEMExamples(t *testing.T) {
	for _, path := range []string{"siem/wazuh/ossec.conf", "siem/wazuh/muster_rules.xml"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(strings.NewReader(string(data)))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", path, err)
		}
	}
	var beat struct {
		Inputs []struct{ Paths []string } `yaml:"filebeat.inputs"`
	}
	data, err := os.ReadFile("siem/elastic/filebeat.yml")
	if err == nil {
		err = yaml.Unmarshal(data, &beat)
	}
	if err != nil || len(beat.Inputs) != 1 || len(beat.Inputs[0].Paths) != 1 {
		t.Errorf("filebeat.yml: %v, %+v", err, beat)
	}
	program, err := exec.LookPath("rsyslogd")
	if err != nil {
		t.Skip("rsyslogd is not installed: deploy/deps/install.sh test installs it")
	}
	out, err := exec.Command(program, "-N1", "-f", "siem/rsyslog.conf").CombinedOutput()
	if err != nil || strings.Contains(string(out), "error") {
		t.Errorf("rsyslog.conf: %v\n%s", err, out)
	}
}
