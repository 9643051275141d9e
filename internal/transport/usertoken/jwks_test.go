package usertoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/musterhpc/muster/internal/transport/identity"
)

func base(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }

// set writes public keys as a JSON Web Key Set.
func set(t *testing.T, keys map[string]crypto.PublicKey) []byte {
	t.Helper()
	var list []map[string]string
	for kid, k := range keys {
		switch k := k.(type) {
		case *rsa.PublicKey:
			list = append(list, map[string]string{"kty": "RSA", "kid": kid, "n": base(k.N), "e": base(big.NewInt(int64(k.E)))})
		case *ecdsa.PublicKey:
			list = append(list, map[string]string{"kty": "EC", "kid": kid, "crv": k.Params().Name, "x": base(k.X), "y": base(k.Y), "use": "sig"})
		}
	}
	text, err := json.Marshal(map[string]any{"keys": append(list, map[string]string{"kty": "oct", "kid": "secret", "k": "AAAA"})})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Tokens of another issuer are those that one of its keys signed, for a user of this
// host, and for as long as the key is in its file.
func TestIssuer(t *testing.T) {
	now := time.Now()
	first, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "jwks.json")
	write := func(at time.Time, keys map[string]crypto.PublicKey) {
		if err := os.WriteFile(file, set(t, keys), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(now, map[string]crypto.PublicKey{"one": &first.PublicKey, "two": &second.PublicKey})
	keys, err := Open(filepath.Join(dir, "key"), "c", func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	token := func(method jwt.SigningMethod, key any, kid string, change func(jwt.MapClaims)) string {
		claims := jwt.MapClaims{"preferred": "ada", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "aud": "muster"}
		if change != nil {
			change(claims)
		}
		made := jwt.NewWithClaims(method, claims)
		made.Header["kid"] = kid
		text, err := made.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := token(jwt.SigningMethodRS256, first, "one", nil)
	if _, err := keys.Verify(good); err == nil {
		t.Error("a foreign token is accepted where no issuer is configured")
	}
	keys.Trust(&Issuer{File: file, UserClaim: "preferred", Audience: "muster", User: func(name string) (uint32, uint32, bool) {
		ids := map[string]uint32{"ada": 1000, "root": 0}
		id, ok := ids[name]
		return id, id, ok
	}})
	accepted := func(what, text string) {
		t.Helper()
		if id, err := keys.Verify(text); err != nil || id.Kind != identity.AttestedUser || id.UID != 1000 || id.User != "ada" {
			t.Errorf("%s: %v, %v", what, id, err)
		}
	}
	refused := func(what, text, words string) {
		t.Helper()
		if id, err := keys.Verify(text); err == nil || !strings.Contains(err.Error(), words) || id.Kind != identity.Anonymous {
			t.Errorf("%s: %v, %v, want an error with %q", what, id, err, words)
		}
	}
	accepted("RS256", good)
	accepted("ES256", token(jwt.SigningMethodES256, second, "two", nil))
	refused("a key that is not the issuer's", token(jwt.SigningMethodES256, stranger, "two", nil), "signature")
	refused("an unknown kid", token(jwt.SigningMethodES256, stranger, "three", nil), "not among")
	refused("no kid", token(jwt.SigningMethodRS256, first, "", nil), "does not name its key")
	refused("a kid of another kind of key", token(jwt.SigningMethodRS256, first, "two", nil), "is for ES256")
	refused("an EC key with the kid of an RSA key", token(jwt.SigningMethodES256, second, "one", nil), "")
	refused("expired", token(jwt.SigningMethodRS256, first, "one", func(c jwt.MapClaims) { c["exp"] = now.Add(-time.Second).Unix() }), "expired")
	refused("without an end", token(jwt.SigningMethodRS256, first, "one", func(c jwt.MapClaims) { delete(c, "exp") }), "exp")
	refused("for somebody else", token(jwt.SigningMethodRS256, first, "one", func(c jwt.MapClaims) { c["aud"] = "mail" }), "aud")
	refused("no user", token(jwt.SigningMethodRS256, first, "one", func(c jwt.MapClaims) { delete(c, "preferred") }), "names no user")
	refused("an unknown user", token(jwt.SigningMethodRS256, first, "one", func(c jwt.MapClaims) { c["preferred"] = "eve" }), "no user eve")
	refused("root", token(jwt.SigningMethodRS256, first, "one", func(c jwt.MapClaims) { c["preferred"] = "root" }), "a token of another issuer cannot name root")
	refused("alg none", token(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "one", nil), "")
	// The public key is no secret: what is signed with it as if it were one is worth nothing.
	refused("HS384 by the public key", token(jwt.SigningMethodHS384, set(t, map[string]crypto.PublicKey{"one": &first.PublicKey}), "one", nil), "")
	write(now.Add(time.Second), map[string]crypto.PublicKey{"two": &second.PublicKey})
	refused("a key that was taken out of the file", good, "not among")
	if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	accepted("while the file is broken", token(jwt.SigningMethodES256, second, "two", nil))
	own, err := keys.Issue(Bearer{ID: "t1", User: "ada", UID: 1000, GID: 1000}, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	accepted("this cluster's own", own)
}

func TestParseKeys(t *testing.T) {
	for text, words := range map[string]string{
		`[]`: "not a JSON Web Key Set", `{"keys":[]}`: "no RSA or EC key", `{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`: "no kid",
		`{"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"}]}`:                  "too short",
		`{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"AQAB","y":"AQAB"}]}`:     "not on the curve",
		`{"keys":[{"kty":"EC","kid":"a","crv":"secp256k1","x":"AQAB","y":"AQAB"}]}`: "is not P-256",
		`{"keys":[{"kty":"RSA","kid":"a","n":"!","e":"AQAB"}]}`:                     "base64url",
	} {
		if _, err := ParseKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"AQAB","y":"AQAB"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := ParseKeys(data)
		if err == nil && len(keys) == 0 {
			t.Error("no key, and no error")
		}
	})
}
