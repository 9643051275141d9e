package conffile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// usedFile is a file that a key names and this host reads.
type usedFile struct {
	key    string
	closed fs.FileMode // permissions that it must not have
	other  bool        // it may be for other hosts, and is looked at only where it exists
}

// Permissions that files with secrets must not have, as their readers see it.
const (
	closedToGroup  fs.FileMode = 0o077
	closedToOthers fs.FileMode = 0o007
)

// usedFiles are the files that are read at a start, or later by a program that fails then.
func (c *Config) usedFiles() []usedFile {
	files := []usedFile{
		{key: "clickhouse.dsn_file", closed: closedToGroup},
		{key: "clickhouse.embedded.library"},
		{key: "clickhouse.embedded.listen_cert"},
		{key: "clickhouse.embedded.listen_key", closed: closedToOthers},
		{key: "tokens.jwks"},
		{key: "oidc.ca_file"},
		{key: "oidc.client_secret_file", closed: closedToGroup},
		{key: "oidc.user_map"},
		{key: "tls.web_config"},
		{key: "tls.agent_web_config", other: true},
		{key: "tls.web_token_file", closed: closedToGroup},
		{key: "telemetry.counters_file", other: true},
		{key: "telemetry.push_headers_file", closed: closedToGroup, other: true},
		{key: "telemetry.push_ca", other: true},
		{key: "audit.syslog_ca"},
		{key: "audit.syslog_cert"},
		{key: "audit.syslog_key", closed: closedToOthers},
		{key: "otlp.ca"},
		{key: "otlp.cert"},
		{key: "otlp.key", closed: closedToOthers},
		{key: "otlp.token_file", closed: closedToGroup},
		{key: "energy.ipmitool", other: true},
		{key: "energy.redfish_ca_file", other: true},
		{key: "energy.redfish_password_file", closed: closedToGroup, other: true},
		{key: "reports.smtp_password_file", closed: closedToGroup},
		{key: "observe.rest_token_file", closed: closedToGroup},
	}
	if !c.ClickHouse.Embedded.Listen.Off() {
		files = append(files, usedFile{
			key:    "clickhouse.embedded.listen_password_file",
			closed: closedToOthers,
		})
	}
	return files
}

// Examine looks at the files and folders that the configuration names: what is missing, or open
// to those who must not read it, would show only when it is needed. Warnings are about what works
// and is perhaps not what was meant.
func (c *Config) Examine(file string) (warnings []string, err error) {
	paths := map[string]string{}
	c.EachPath(func(key, path string) { paths[key] = path })
	var problems Problems
	for _, used := range c.usedFiles() {
		path := paths[used.key]
		if path == "" {
			continue
		}
		if text := used.trouble(path); text != "" {
			problems = append(problems, Problem{File: file, Path: used.key, Text: text})
		}
	}
	for _, key := range []string{"ledger.archive_dir", "clickhouse.embedded.data_dir"} {
		path := paths[key]
		if _, err := os.Stat(filepath.Dir(path)); path != "" && errors.Is(err, fs.ErrNotExist) {
			warnings = append(warnings, fmt.Sprintf(
				"%s: %s does not exist and will be made: make sure that its file system is mounted",
				key,
				filepath.Dir(path),
			))
		}
	}
	return warnings, problems.asError()
}

// trouble says what is wrong with a file; empty: nothing.
func (u usedFile) trouble(path string) string {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && u.other:
		return ""
	case err != nil:
		return err.Error()
	case info.IsDir():
		return path + " is a folder"
	case info.Mode().Perm()&u.closed != 0:
		cure := "chmod 600 it"
		if u.closed == closedToOthers {
			cure = "chmod o-rwx it"
		}
		return fmt.Sprintf(
			"%s %v (mode %04o): %s, and replace the secret if others may have read it",
			path,
			ErrExposed,
			info.Mode().Perm(),
			cure,
		)
	}
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	if err := file.Close(); err != nil {
		return err.Error()
	}
	return ""
}
