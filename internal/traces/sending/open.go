package sending

import (
	"os"
	"time"

	"github.com/musterhpc/muster/internal/audit/trail"
	"github.com/musterhpc/muster/internal/otlp"
)

// Open makes the Sender that muster.yaml asks for; nil = none.
func Open(options trail.Options, version string) (*Sender, error) {
	config := &options.Config.OTLP
	if !config.SendsTraces() {
		return nil, nil
	}
	at, err := config.Address()
	if err != nil {
		return nil, err
	}
	to, err := otlp.New(otlp.Config{
		At:        at,
		CA:        config.CA,
		Cert:      config.Cert,
		Key:       config.Key,
		TokenFile: config.TokenFile,
		Timeout:   time.Duration(config.Timeout),
	})
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	path, err := trail.PathOf(options.Config, trail.Traces)
	if err != nil {
		return nil, err
	}
	return New(Config{
		Source:   trail.Ledger{Options: options},
		To:       to,
		Resource: Resource{Cluster: options.Cluster, Controller: host, Version: version},
		Position: path,
		Now:      time.Now,
		Log:      options.Log,
	})
}
