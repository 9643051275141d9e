package spec

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseImage(t *testing.T) {
	for text, want := range map[string]string{
		"ubuntu":                       "docker://ubuntu",
		"docker://ubuntu:24.04":        "docker://ubuntu:24.04",
		"nvcr.io#nvidia/pytorch:24.01": "docker://nvcr.io/nvidia/pytorch:24.01",
		"docker://127.0.0.1:5000#a/b":  "docker://127.0.0.1:5000/a/b",
		"ghcr.io/x/y@sha256:0123":      "docker://ghcr.io/x/y@sha256:0123",
		"/scratch//rootfs/":            "/scratch/rootfs",
	} {
		if got, err := ParseImage(text); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "expected", "a b": "expected", "/x/y.sqsh": "squashfs", "oci:/x": "only docker://", "dockerd://x": "only docker://", "./x": "absolute",
		"docker://me@nvcr.io#x": "ask for a user", "a#b#c": "one #",
	} {
		if got, err := ParseImage(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want an error with %q", text, got, err, want)
		}
	}
}

func TestParseMounts(t *testing.T) {
	got, err := ParseMounts("/data,/a:/b:ro,/c//d:/e/:rw+rbind")
	want := []ContainerMount{{Source: "/data", Target: "/data"}, {Source: "/a", Target: "/b", ReadOnly: true}, {Source: "/c/d", Target: "/e"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"data:/x": "absolute paths", "/a:x": "absolute paths", "/a:/b:exec": `flag "exec" is not supported`, "/a:/b:ro:x": "expected",
		"/a:/": "cannot be replaced", "/a:/proc": "cannot be replaced", "": "absolute paths",
	} {
		if got, err := ParseMounts(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", text, got, err, want)
		}
	}
}
