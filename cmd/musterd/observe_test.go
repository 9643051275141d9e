package main

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
)

// TestRestOf: what is set of slurmrestd fits together, or is refused.
func TestRestOf(t *testing.T) {
	for want, o := range map[string]conffile.Observe{
		"":                       {Cluster: "peer"},
		"no use":                 {RESTUser: "monitor"},
		"needs observe.cluster":  {REST: "http://slurm:6820"},
		"observe.rest_user":      {REST: "http://slurm:6820", Cluster: "peer", RESTTokenFile: "/t"},
		"http://slurm:6820 ok":   {REST: "http://slurm:6820", Cluster: "peer", RESTUser: "monitor", RESTTokenFile: "/t"},
		"unix:/run/r.sock ok":    {REST: "unix:/run/r.sock", Cluster: "peer"},
		"observe.rest, the addr": {RESTTokenFile: "/t"},
	} {
		got := ""
		rest, err := restOf(&o)
		if err != nil {
			got = err.Error()
		} else if rest != nil {
			got = rest.URL + " ok"
		}
		if !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%+v: %q, want %q", o, got, want)
		}
	}
}
