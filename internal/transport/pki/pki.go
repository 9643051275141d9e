// Package pki is the certificate authority of a cluster: made by `muster init`, it signs the
// controllers' certificates, enrols nodes with single-use tokens, renews their certificates and
// lists the revoked ones.
//
// Every certificate names its holder by one URI, muster://CLUSTER/ROLE/NAME (see
// identity.Name), and lives at most 90 days; the authority lives ten years. Keys are ECDSA
// P-256, which every TLS stack and browser reads. A private key never travels: a node makes its
// own and sends a signing request, of which only the public key is used.
//
// The authority's functions work on bytes and take the time as an argument. What has to be
// remembered (tokens) goes through TokenStore, which the controller implements on its ledger. Source
// (tls.go) makes TLS configurations of what is on disk.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
)

// Lifetimes. Certificates begin an hour before they are made, for clocks that differ.
const (
	CALifetime   = 10 * 365 * 24 * time.Hour
	LeafLifetime = 90 * 24 * time.Hour
	backdate     = time.Hour
)

// RenewAfter is the part of a certificate's life after which its holder asks for the next one:
// two thirds.
func RenewAfter(notBefore, notAfter time.Time) time.Time {
	return notBefore.Add(notAfter.Sub(notBefore) / 3 * 2)
}

// ErrBadPEM is wrapped when a file does not hold what it should.
var ErrBadPEM = errors.New("not the PEM block expected")

// CA is a cluster's authority. Its methods may be called from several goroutines.
type CA struct {
	cluster string
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
}

// Pair is a certificate with its private key, both PEM. Cert holds the leaf, then the authority.
type Pair struct{ Cert, Key []byte }

// NewCA makes the authority of a new cluster.
func NewCA(cluster string, now time.Time) (*CA, error) {
	if _, err := (identity.Name{Cluster: cluster, Role: identity.Controller, Name: "x"}).URI(); err != nil {
		return nil, fmt.Errorf("cluster name: %w", err)
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject: pkix.Name{
			CommonName:   "Muster CA of " + cluster,
			Organization: []string{cluster},
		},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(CALifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the authority: %w", err)
	}
	return &CA{cluster: cluster, cert: cert, key: key}, nil
}

// ParseCA reads an authority from its PEM files.
func ParseCA(pair Pair) (*CA, error) {
	cert, err := ParseCertificate(pair.Cert)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(pair.Key)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA || len(cert.Subject.Organization) != 1 {
		return nil, errors.New("certificate is not that of a Muster authority")
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New(
			"certificate and private key of the authority do not belong together",
		)
	}
	return &CA{cluster: cert.Subject.Organization[0], cert: cert, key: key}, nil
}

// Pair returns the authority as PEM.
func (ca *CA) Pair() (Pair, error) {
	key, err := encodeKey(ca.key)
	return Pair{Cert: ca.CertPEM(), Key: key}, err
}

// CertPEM returns the authority's certificate, which is public.
func (ca *CA) CertPEM() []byte { return encodeCert(ca.cert.Raw) }

// Certificate returns the authority's certificate.
func (ca *CA) Certificate() *x509.Certificate { return ca.cert }

// Cluster returns the name of the cluster.
func (ca *CA) Cluster() string { return ca.cluster }

// Pin returns the SHA-256 of the authority's certificate, by which a node that has nothing but
// a token recognises its cluster.
func (ca *CA) Pin() [sha256.Size]byte { return sha256.Sum256(ca.cert.Raw) }

// Holder is whom a certificate is for.
type Holder struct {
	Role  identity.Kind // Agent, Login, Controller or Admin
	Name  string        // node, host or person
	Hosts []string      // names and addresses under which it is dialled; for nodes Name is added
}

// Issue makes a key and a certificate for a holder on this machine: `muster init` does so for
// the controller.
func (ca *CA) Issue(holder Holder, now time.Time) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	cert, err := ca.sign(holder, key.Public(), now)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: append(encodeCert(cert.Raw), ca.CertPEM()...), Key: keyPEM}, nil
}

// SignRequest makes a certificate for the public key in a PEM signing request. The request
// proves possession of its private key; nothing else in it is used. The result is leaf then
// authority, PEM.
func (ca *CA) SignRequest(
	holder Holder,
	csrPEM []byte,
	now time.Time,
) ([]byte, *x509.Certificate, error) {
	csr, err := ParseRequest(csrPEM)
	if err != nil {
		return nil, nil, err
	}
	cert, err := ca.sign(holder, csr.PublicKey, now)
	if err != nil {
		return nil, nil, err
	}
	return append(encodeCert(cert.Raw), ca.CertPEM()...), cert, nil
}

func (ca *CA) sign(holder Holder, public any, now time.Time) (*x509.Certificate, error) {
	uri, err := identity.Name{Cluster: ca.cluster, Role: holder.Role, Name: holder.Name}.URI()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject: pkix.Name{
			CommonName:         holder.Name,
			Organization:       []string{ca.cluster},
			OrganizationalUnit: []string{holder.Role.String()},
		},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(LeafLifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{uri},
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}
	if !now.Before(template.NotAfter) {
		return nil, fmt.Errorf(
			"the authority of cluster %s expired at %s: run muster init for a new one",
			ca.cluster,
			ca.cert.NotAfter.UTC().Format(time.RFC3339),
		)
	}
	if holder.Role != identity.Admin { // administrators are people: they dial, nobody dials them
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		addHosts(template, holder)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, public, ca.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %s: %w", holder.Name, err)
	}
	return x509.ParseCertificate(der)
}

func addHosts(template *x509.Certificate, holder Holder) {
	hosts := holder.Hosts
	if holder.Role != identity.Controller {
		hosts = append([]string{holder.Name}, hosts...)
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
}

// NewRequest makes a private key and a signing request for a node: what an agent does before it
// enrols or renews.
func NewRequest(node string) (csrPEM, keyPEM []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificateRequest(
		rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: node}},
		key,
	)
	if err != nil {
		return nil, nil, fmt.Errorf("make a signing request: %w", err)
	}
	keyPEM, err = encodeKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), keyPEM, nil
}

// ParseRequest reads a PEM signing request and checks that its sender holds the key. Only ECDSA
// P-256 keys are taken.
func ParseRequest(csrPEM []byte) (*x509.CertificateRequest, error) {
	block, err := decodeBlock(csrPEM, "CERTIFICATE REQUEST")
	if err != nil {
		return nil, err
	}
	csr, err := x509.ParseCertificateRequest(block)
	if err != nil {
		return nil, fmt.Errorf("signing request: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("signing request: %w", err)
	}
	if key, ok := csr.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("signing request: the key must be ECDSA P-256")
	}
	return csr, nil
}

// ParseCertificate reads the first certificate of a PEM file.
func ParseCertificate(certPEM []byte) (*x509.Certificate, error) {
	der, err := decodeBlock(certPEM, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// newSerial returns 127 random bits with the top one set, so that every serial number has the
// same length.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return n.SetBit(n, 126, 1), nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func parseKey(keyPEM []byte) (*ecdsa.PrivateKey, error) {
	der, err := decodeBlock(keyPEM, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("private key: %T, want ECDSA P-256", key)
	}
	return ec, nil
}

// decodeBlock returns the first block of a kind; others before it are skipped.
func decodeBlock(text []byte, kind string) ([]byte, error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, fmt.Errorf("%w: want %s", ErrBadPEM, kind)
		}
		if block.Type == kind {
			return block.Bytes, nil
		}
		text = rest
	}
}
