// Package observer is the exporter beside an existing Slurm: it reads no slurm.conf, keeps no
// ledger and changes nothing. It runs the reader of Slurm and serves what was read as metrics.
package observer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/collector/slurm"
	"github.com/musterhpc/muster/collector/web"
	"github.com/musterhpc/muster/controller/doors"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/listen"
)

// Options say which Slurm is observed.
type Options struct {
	Config  *conffile.Config
	Version string
	// Accounting starts the parts that keep the Slurm's history and returns what closes them; nil =
	// only metrics.
	Accounting func(group *parts.Group) (stop func(), err error)
	Log        *slog.Logger
}

// Run observes until the context ends or a part fails.
func Run(ctx context.Context, options Options) error {
	config := options.Config
	readers := web.Options{ConfigFile: config.TLS.WebConfig, TokenFile: config.TLS.WebTokenFile}
	if err := readers.Check(); err != nil {
		return err
	}
	listener, err := listen.TCP(ctx, string(config.Listen.Metrics))
	if err != nil {
		return err
	}
	source, err := openSource(config, options.Log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	group := parts.New(ctx)
	if options.Accounting != nil {
		stop, err := options.Accounting(group)
		if err != nil {
			group.Stop()
			return errors.Join(err, listener.Close())
		}
		defer stop() // after the parts that use its store have ended
	}
	defer group.Stop()
	group.Spawn("reader of Slurm", source.Run)
	door := doors.Metrics{Pages: newPages(source, options.Version), Readers: readers, Log: options.Log}
	door.ServeOn(group, listener)
	options.Log.Info(
		"observing a Slurm",
		"metrics",
		listener.Addr().String(),
		"interval",
		time.Duration(config.Observe.Interval),
	)
	select {
	case err := <-group.Failed():
		return err
	case <-ctx.Done():
		return nil
	}
}

func openSource(config *conffile.Config, logger *slog.Logger) (*slurm.Source, error) {
	rest, err := restOf(&config.Observe)
	if err != nil {
		return nil, err
	}
	return slurm.New(slurm.Options{
		Interval: time.Duration(config.Observe.Interval),
		Timeout:  time.Duration(config.Observe.Timeout),
		Bin:      config.Observe.Bin,
		REST:     rest,
		Log:      logger,
	}), nil
}

// newPages are the metrics with the two questions of a supervisor: whether the process lives, and
// whether it has something to show.
func newPages(source *slurm.Source, version string) *http.ServeMux {
	mux := http.NewServeMux()
	collector.MountObserver(
		mux,
		collector.Observed{Latest: source.Latest, Now: clock.NewSystem().Now, Version: version},
	)
	mux.HandleFunc("GET /livez", func(writer http.ResponseWriter, _ *http.Request) {
		_, _ = writer.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(writer http.ResponseWriter, _ *http.Request) {
		writeReady(writer, source.Latest())
	})
	return mux
}

// writeReady answers that metrics can be shown once jobs and nodes were read.
func writeReady(writer http.ResponseWriter, snapshot *slurm.Snapshot) {
	if snapshot == nil || snapshot.Sections[0].At.IsZero() || snapshot.Sections[1].At.IsZero() {
		http.Error(
			writer, "Slurm was not read yet: the log says why", http.StatusServiceUnavailable,
		)
		return
	}
	_, _ = writer.Write([]byte("ok\n"))
}

// restOf is the slurmrestd that is asked instead of running commands; nil for
// none.
func restOf(observe *conffile.Observe) (*slurm.REST, error) {
	switch {
	case observe.REST == "" && observe.RESTUser+observe.RESTTokenFile != "":
		return nil, errors.New(
			"observe.rest_user and observe.rest_token_file are of no use without observe.rest, the address of the slurmrestd",
		)
	case observe.REST == "":
		return nil, nil
	case observe.Cluster == "":
		return nil, errors.New(
			"observe.rest needs observe.cluster: slurmrestd does not say what the cluster is called",
		)
	case observe.RESTTokenFile != "" && observe.RESTUser == "":
		return nil, errors.New(
			"observe.rest_token_file needs observe.rest_user: a token is a user's",
		)
	}
	return &slurm.REST{
		URL:       observe.REST,
		User:      observe.RESTUser,
		TokenFile: observe.RESTTokenFile,
		Cluster:   observe.Cluster,
	}, nil
}
