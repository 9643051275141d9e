package enrolment

import (
	"path/filepath"
	"testing"

	"github.com/musterhpc/muster/internal/transport/pki"
)

// TestEnrolmentUnderAWrongName: a request that was made under a mistyped name
// does not stand in the way of the right one, and one for the right name is used
// again, since its answer may have been lost.
func TestEnrolmentUnderAWrongName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	nameIn := func(csr []byte) string {
		parsed, err := pki.ParseRequest(csr)
		if err != nil {
			t.Fatal(err)
		}
		return parsed.Subject.CommonName
	}
	wrong, right := Party{Name: "n11", TLS: dir}, Party{Name: "n1", TLS: dir}
	if _, _, err := wrong.signingRequest(); err != nil {
		t.Fatal(err)
	}
	first, firstKey, err := right.signingRequest()
	if err != nil || nameIn(first) != "n1" {
		t.Fatalf("asked as %q: %v", nameIn(first), err)
	}
	again, againKey, err := right.signingRequest()
	if err != nil || string(again) != string(first) || string(againKey) != string(firstKey) {
		t.Errorf("the retry sends another request: %v", err)
	}
}
