package tidy

import (
	"strings"
	"testing"
)

// TestLinked: a forbidden package is found wherever in the list it stands, and
// a package that only shares letters with it is not.
func TestLinked(t *testing.T) {
	p := program{dir: "cmd/x", never: []string{"google.golang.org/grpc", "net/http"}, reason: "because"}
	list := []listed{{ImportPath: "fmt"}, {ImportPath: "google.golang.org/grpcish"}, {ImportPath: "net/httpx"}}
	if got := p.linked(list); len(got) != 0 {
		t.Errorf("innocent packages: %v", got)
	}
	list = append(list, listed{ImportPath: "google.golang.org/grpc/codes"}, listed{ImportPath: "net/http"})
	got := p.linked(list)
	if len(got) != 2 || !strings.Contains(got[0].Text, "links google.golang.org/grpc (google.golang.org/grpc/codes): because") {
		t.Errorf("got %v", got)
	}
}

// TestLinksSeesThroughImports runs the real check on a program that exists:
// the one that makes the generated files links YAML through conffile.
func TestLinksSeesThroughImports(t *testing.T) {
	list, err := goList("../..", []string{"-deps", "./docs/gen"})
	if err != nil {
		t.Fatal(err)
	}
	if got := (program{dir: "docs/gen", never: []string{mYAML}}).linked(list); len(got) != 1 {
		t.Errorf("%s is linked through a package in between, found %v", mYAML, got)
	}
	if got := (program{dir: "docs/gen", never: []string{"github.com/hashicorp/raft"}}).linked(list); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}
