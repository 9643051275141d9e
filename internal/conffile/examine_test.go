package conffile

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestExamine: files that are missing or that others can read are named with the cure, and a
// folder that would be made beside a file system that is not mounted is warned of.
func TestExamine(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("secret\n"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		return path
	}
	c := Defaults()
	c.StateDir = dir
	c.Fill()
	if warnings, err := c.Examine("muster.yaml"); err != nil || len(warnings) > 0 {
		t.Errorf("nothing is named: %v, %v", warnings, err)
	}
	c.Reports.SMTPPasswordFile = put("password", 0o600)
	c.TLS.WebTokenFile = put("token", 0o400)
	c.Telemetry.PushHeadersFile = filepath.Join(dir, "of another host")
	if warnings, err := c.Examine("muster.yaml"); err != nil || len(warnings) > 0 {
		t.Errorf("all is well: %v, %v", warnings, err)
	}
	c.Reports.SMTPPasswordFile = put("password", 0o644)
	c.TLS.WebTokenFile = filepath.Join(dir, "gone")
	c.Telemetry.PushHeadersFile = put("headers", 0o640)
	c.ClickHouse.Embedded.ListenPasswordFile = put("reader", 0o644)
	c.Tokens.JWKS = dir
	c.Ledger.ArchiveDir = filepath.Join(dir, "mnt", "archive")
	warnings, err := c.Examine("muster.yaml")
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != 4 {
		t.Fatalf("%d problems: %v", len(problems), err)
	}
	for i, want := range []string{
		"tokens.jwks: " + dir + " is a folder",
		"tls.web_token_file: stat " + filepath.Join(dir, "gone"),
		"telemetry.push_headers_file: " + filepath.Join(dir, "headers") + " can be read by others (mode 0640): chmod 600 it",
		"reports.smtp_password_file: " + filepath.Join(dir, "password") + " can be read by others (mode 0644): chmod 600 it",
	} {
		if !strings.Contains(problems[i].Error(), want) {
			t.Errorf("%v does not say %q", problems[i], want)
		}
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "ledger.archive_dir: "+filepath.Join(dir, "mnt")+" does not exist") {
		t.Errorf("warnings %q", warnings)
	}
	// Nobody can log in without an address.
	c.ClickHouse.Embedded.Listen = "127.0.0.1:19000"
	if _, err := c.Examine("muster.yaml"); !strings.Contains(err.Error(), "listen_password_file: "+filepath.Join(dir, "reader")) {
		t.Errorf("the reader's password: %v", err)
	}
}

// TestEveryFileIsExamined: a key that names a file is looked at, or is one of those that name
// what a start makes, a folder or a socket, or a file that is read when the configuration is.
func TestEveryFileIsExamined(t *testing.T) {
	made := map[string]bool{
		"state_dir": true, "run_dir": true, "slurm_conf": true, "socket": true, "accounting_socket": true, "rest_socket": true,
		"clickhouse.embedded.data_dir": true, "clickhouse.embedded.socket": true, "tls.dir": true, "ledger.archive_dir": true,
		"telemetry.job_mapping_dir": true, "audit.file": true, "observe.bin": true,
	}
	c := Defaults()
	c.ClickHouse.Embedded.Listen = "127.0.0.1:19000"
	used := map[string]bool{}
	for _, u := range c.usedFiles() {
		used[u.key] = true
	}
	keys := map[string]bool{}
	eachPath(reflect.ValueOf(c).Elem(), func(key string, _ reflect.Value) {
		keys[key] = true
		if used[key] == made[key] {
			t.Errorf("%s: examined %v, made at a start %v", key, used[key], made[key])
		}
	}, "")
	for key := range used {
		if !keys[key] {
			t.Errorf("%s is no key", key)
		}
	}
}
