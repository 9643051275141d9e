package sending

import (
	"os"
	"time"

	"github.com/musterhpc/muster/internal/audit/trail"
	"github.com/musterhpc/muster/internal/otlp"
)

// Open makes the Sender that muster.yaml asks for; nil = none.
func Open(o trail.Options, version string) (*Sender, error) {
	cfg := &o.Config.OTLP
	if !cfg.SendsTraces() {
		return nil, nil
	}
	at, err := cfg.Address()
	if err != nil {
		return nil, err
	}
	to, err := otlp.New(otlp.Config{
		At:        at,
		CA:        cfg.CA,
		Cert:      cfg.Cert,
		Key:       cfg.Key,
		TokenFile: cfg.TokenFile,
		Timeout:   time.Duration(cfg.Timeout),
	})
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	path, err := trail.PathOf(o.Config, trail.Traces)
	if err != nil {
		return nil, err
	}
	return New(Config{
		Source:   trail.Ledger{Options: o},
		To:       to,
		Resource: Resource{Cluster: o.Cluster, Controller: host, Version: version},
		Position: path,
		Now:      time.Now,
		Log:      o.Log,
	})
}
