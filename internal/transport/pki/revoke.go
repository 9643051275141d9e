package pki

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"
)

// Revocations is the set of revoked certificates, by serial number. It is a value: With returns
// a new one.
type Revocations struct {
	at map[string]time.Time // by serial, lower-case hex
}

// With returns the set with one more serial number (lower-case hex, as in identity.Identity) in it.
func (r Revocations) With(serial string, at time.Time) (Revocations, error) {
	n, ok := new(big.Int).SetString(serial, 16)
	if !ok || n.Sign() <= 0 {
		return r, fmt.Errorf("serial number %q: want hexadecimal digits", serial)
	}
	revocations := Revocations{at: maps.Clone(r.at)}
	if revocations.at == nil {
		revocations.at = make(map[string]time.Time)
	}
	if _, known := revocations.at[n.Text(16)]; !known {
		revocations.at[n.Text(16)] = at.UTC().Truncate(time.Second)
	}
	return revocations, nil
}

// Has reports that a serial number is revoked.
func (r Revocations) Has(serial string) bool {
	_, ok := r.at[serial]
	return ok
}

// Len returns how many are revoked.
func (r Revocations) Len() int { return len(r.at) }

// Serials returns the revoked serial numbers in order.
func (r Revocations) Serials() []string { return slices.Sorted(maps.Keys(r.at)) }

// SignList returns the set as an X.509 revocation list (PEM) that nodes can check without
// asking. number must grow with each list.
func (ca *CA) SignList(revocations Revocations, number int64, now time.Time) ([]byte, error) {
	template := &x509.RevocationList{
		Number:     big.NewInt(number),
		ThisUpdate: now,
		NextUpdate: now.Add(LeafLifetime),
	}
	for _, serial := range revocations.Serials() {
		n, _ := new(big.Int).SetString(serial, 16)
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: n, RevocationTime: revocations.at[serial]})
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, ca.cert, ca.key)
	if err != nil {
		return nil, fmt.Errorf("sign the revocation list: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), nil
}

// ParseList reads a revocation list and checks the authority's signature. number lets the
// reader refuse an older list than the one it has.
func ParseList(
	listPEM []byte,
	authority *x509.Certificate,
) (revocations Revocations, number int64, err error) {
	der, err := decodeBlock(listPEM, "X509 CRL")
	if err != nil {
		return revocations, 0, err
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return revocations, 0, fmt.Errorf("revocation list: %w", err)
	}
	if err := list.CheckSignatureFrom(authority); err != nil {
		return revocations, 0, fmt.Errorf("revocation list: %w", err)
	}
	if list.Number == nil || !list.Number.IsInt64() {
		return revocations, 0, fmt.Errorf("revocation list: it has no usable number")
	}
	revocations.at = make(map[string]time.Time, len(list.RevokedCertificateEntries))
	for _, e := range list.RevokedCertificateEntries {
		revocations.at[e.SerialNumber.Text(16)] = e.RevocationTime
	}
	return revocations, list.Number.Int64(), nil
}
