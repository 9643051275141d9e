package tool

import (
	"bytes"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// TestRefusedOnce: what is wrong with a request is said, and then not that the
// request is not valid; other refusals say both.
func TestRefusedOnce(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{spec.Refuse(spec.CodeBadRequest, "there is no such month"), "muster x: error: there is no such month\n"},
		{spec.Refuse(spec.CodeBadRequest, ""), "muster x: error: The request is not valid\n"},
		{spec.Refuse(spec.CodeAccessDenied, "ask root"), "muster x: error: ask root\nmuster x: error: Access/permission denied\n"},
	} {
		var out bytes.Buffer
		if code := Report(&Env{Stderr: &out}, c.err, "muster x", 2); code != 1 || out.String() != c.want {
			t.Errorf("%v: %d %q, want %q", c.err, code, out.String(), c.want)
		}
	}
}
