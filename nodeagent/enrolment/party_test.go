package enrolment

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// TestEnrolmentWaitsForAController: a host asks all controllers again until one answers,
// says once that it waits, and does not ask again where the answer is no.
func TestEnrolmentWaitsForAController(t *testing.T) {
	away := &rpcstatus.Error{Wire: rpcstatus.Unavailable}
	told := 0
	party := Party{Waiting: func(err error) {
		told++
		if !errors.Is(err, away) {
			t.Errorf("it waits because of %v", err)
		}
	}}
	var asked []string
	err := party.askInTurn(t.Context(), []string{"a", "b"}, func(address string) error {
		asked = append(asked, address)
		if len(asked) < 6 {
			return away
		}
		return nil
	})
	if want := []string{"a", "b", "a", "b", "a", "b"}; err != nil || told != 1 || !slices.Equal(asked, want) {
		t.Errorf("asked %v, told %d times, %v", asked, told, err)
	}

	asked = nil
	refusal := errors.New("the token was used")
	err = party.askInTurn(t.Context(), []string{"a", "b"}, func(address string) error {
		asked = append(asked, address)
		return refusal
	})
	if !errors.Is(err, refusal) || len(asked) != 1 {
		t.Errorf("a refusal: asked %v, %v", asked, err)
	}

	asked = nil
	err = party.askInTurn(t.Context(), []string{"a", "b"}, func(address string) error {
		asked = append(asked, address)
		return pki.ErrPin
	})
	if !errors.Is(err, pki.ErrPin) || !slices.Equal(asked, []string{"a", "b"}) {
		t.Errorf("controllers of another cluster: asked %v, %v", asked, err)
	}

	over, cancel := context.WithCancel(t.Context())
	cancel()
	err = party.askInTurn(over, []string{"a"}, func(string) error { return away })
	if !errors.Is(err, away) {
		t.Errorf("when the time is over: %v", err)
	}
}

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
