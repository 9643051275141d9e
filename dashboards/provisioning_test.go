package dashboards_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestProvisioning reads the shipped provisioning files: the kinds of data
// source are those that the dashboards ask for, and no password stands there.
func TestProvisioning(t *testing.T) {
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool              `yaml:"isDefault"`
			JSONData                     map[string]string `yaml:"jsonData"`
			SecureJSONData               map[string]string `yaml:"secureJsonData"`
		}
	}
	var boards struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Folder, Type    string
			FolderUID             string `yaml:"folderUid"`
			DisableDeletion       bool   `yaml:"disableDeletion"`
			AllowUIUpdates        bool   `yaml:"allowUiUpdates"`
			UpdateIntervalSeconds int    `yaml:"updateIntervalSeconds"`
			Options               map[string]string
		}
	}
	for path, into := range map[string]any{"datasources/muster.yaml": &sources, "dashboards/muster.yaml": &boards} {
		f, err := os.Open(filepath.Join("../deploy/grafana/provisioning", path))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		d := yaml.NewDecoder(f)
		d.KnownFields(true)
		if err := d.Decode(into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	types := map[string]bool{}
	for _, s := range sources.Datasources {
		types[s.Type] = true
		if p := s.SecureJSONData["password"]; p != "" && p[:7] != "$__file" {
			t.Errorf("%s: a password stands in the file", s.Name)
		}
	}
	if !types["prometheus"] || !types["grafana-clickhouse-datasource"] || len(boards.Providers) != 1 || boards.Providers[0].Options["path"] == "" {
		t.Errorf("%+v %+v", sources, boards)
	}
}
