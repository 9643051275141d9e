package credential

import (
	"bytes"
	"errors"
	"testing"

	"github.com/musterhpc/muster/spec"
)

func TestPublicKeyBytes(t *testing.T) {
	r, err := NewRing(spec.AtUnix(1000))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Public() {
		got, err := ParsePublicKey(k.Bytes())
		if err != nil || !bytes.Equal(got.Key, k.Key) || got.From != k.From || got.Until != k.Until {
			t.Fatalf("%+v became %+v, %v", k, got, err)
		}
	}
	for _, bad := range [][]byte{nil, make([]byte, publicSize), make([]byte, publicSize+1)} {
		if _, err := ParsePublicKey(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}
