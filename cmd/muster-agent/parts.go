package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/push"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/controllers"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/enrolment"
	"github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/podserver"
	"github.com/musterhpc/muster/nodeagent/podserver/podapi"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/spec"
)

// gateHere opens the gate of a compute node, unless the controller itself, or
// the agent of a login host, serves this host's commands.
func (a *assembled) gateHere(addresses []string, source *pki.Source) *controllers.Gate {
	far := controllers.RemoteAddresses(addresses)
	if source == nil || len(far) < len(addresses) || slices.ContainsFunc(far, controllers.OnThisHost) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(settings.LoginDir(a.s.Config.StateDir), "tls")); err == nil {
		a.log.Info(
			"this is a login host too: its agent (muster-agent --login) serves the commands here",
		)
		return nil
	}
	g, err := controllers.OpenGate(a.s.Config.Socket, addresses, source, enrolment.EnrolCommand(source), a.log)
	switch {
	case errors.Is(err, listen.ErrBusy):
		a.log.Info(
			"the commands on this host are served by somebody else",
			"socket",
			a.s.Config.Socket,
			"who",
			err,
		)
		return nil
	case err != nil:
		a.noteWeakness(fmt.Errorf("commands on this host do not reach the controller: %w", err))
		return nil
	}
	return g
}

// openHealth makes the rules that muster.yaml asks for; nil where it asks for none.
func (a *assembled) openHealth(sys clock.Clock) (*machine.HealthRules, error) {
	if a.s.Config.Health.Interval == spec.Infinite {
		return nil, nil
	}
	rules, err := a.s.Config.Health.HealthRules()
	if err != nil {
		return nil, err
	}
	paths := append([]string{a.s.StateDir, "/tmp"}, a.s.Config.Health.Paths...)
	if base := a.s.SpaceBase(); base != "" {
		paths = append(paths, base)
	}
	return machine.NewHealthRules(rules, paths, a.metrics, sys, a.log), nil
}

// openShipping opens the ways on which figures leave the node other than by a
// scrape.
func (a *assembled) openShipping() (err error) {
	t := &a.s.Config.Telemetry
	if t.PushHeadersFile != "" && t.PushURL == "" {
		return errors.New("telemetry.push_headers_file is of no use without telemetry.push_url")
	}
	a.headers, err = push.ReadHeaders(t.PushHeadersFile)
	if err != nil {
		return err
	}
	if t.JobMappingDir == "" {
		return nil
	}
	a.jobs, err = machine.OpenJobFiles(a.metrics, t.JobMappingDir, a.log)
	if err != nil {
		a.noteWeakness(fmt.Errorf("telemetry.job_mapping_dir: %w", err))
	}
	return nil
}

// startShipping starts them.
func (a *assembled) startShipping(ctx context.Context, wg *sync.WaitGroup) {
	if a.jobs != nil {
		wg.Go(func() { a.jobs.Run(ctx) })
	}
	t := &a.s.Config.Telemetry
	if !t.PushesFromAgents() {
		return
	}
	first := rand.Int64N(int64(t.PushInterval))
	changed := func(err error) {
		if err != nil {
			a.log.Warn("the metrics cannot be pushed", "url", t.PushURL, "error", err)
			return
		}
		a.log.Info("the metrics are pushed again", "url", t.PushURL)
	}
	if t.PushFormat == "import" {
		wg.Go(func() {
			a.metrics.PushUntil(ctx, telemetry.Push{
				URL:      t.PushURL,
				Headers:  a.headers,
				Interval: t.PushInterval,
				First:    spec.Span(first),
				Changed:  changed,
			})
		})
		return
	}
	to, err := a.openReceiver()
	if err != nil {
		a.noteWeakness(fmt.Errorf("the metrics are not pushed: %w", err))
		return
	}
	pusher := push.New(push.Config{
		Gather:   push.FromText(func(w io.Writer) error { _, err := a.metrics.WriteTo(w); return err }),
		To:       to,
		Interval: time.Duration(t.PushInterval),
		First:    time.Duration(first),
		Now:      time.Now,
		Tried:    a.metrics.CountPush,
		Changed:  changed,
	})
	wg.Go(func() { _ = pusher.Run(ctx) }) // it ends with the context
}

// openReceiver makes what takes the metrics of this node.
func (a *assembled) openReceiver() (push.Receiver, error) {
	t := &a.s.Config.Telemetry
	at, err := t.PushAddress()
	if err != nil {
		return nil, err
	}
	return push.Open(push.Settings{
		Format:  t.PushFormat,
		At:      at,
		CA:      t.PushCA,
		Headers: a.headers,
		// The names that deploy/prometheus gives to what it scrapes.
		Target: push.Target{
			Job:      "dcgm",
			Instance: a.s.Node.Name,
			Labels:   map[string]string{"cluster": a.s.Cluster.Config.ClusterName},
		},
		Began:   time.Now(),
		Timeout: time.Duration(t.PushInterval),
	})
}

// openPods opens the socket for what another scheduler runs on this node; nil, with the
// reason in the log, where it cannot be. Jobs need none of it.
func (a *assembled) openPods(ctl *controllers.Controllers) *podserver.Server {
	server, err := podserver.Open(podserver.Options{
		Node:    a.s.Node.Name,
		Socket:  filepath.Join(a.s.StateDir, podapi.Socket),
		Devices: a.metrics.Devices,
		Holds:   ctl.FetchHolds,
		SetPods: a.metrics.SetPods,
		Log:     a.log,
	})
	if err != nil {
		a.log.Warn("the socket for pods is not open", "error", err)
	}
	return server
}

// openImages opens the cache of images.
func (a *assembled) openImages() (daemon.Images, error) {
	dir := filepath.Join(a.s.StateDir, "images")
	images, err := machine.OpenImages(dir, &a.s.Config.Containers, a.log)
	if err != nil {
		return nil, err
	}
	if err := images.CheckLogins(); err != nil {
		a.log.Warn("the site's logins at registries are not used", "error", err)
		a.troubles = append(a.troubles, err.Error())
	}
	return images, nil
}

// rereader reads the configuration again while the agent runs. The site's programs are
// taken over; anything else needs a restart, which is said.
func (a *assembled) rereader(
	source *pki.Source,
	scripts *machine.NodeScripts,
) func(context.Context) (daemon.Reread, error) {
	var one sync.Mutex // the files that the controller sends replace each other
	return func(ctx context.Context) (daemon.Reread, error) {
		one.Lock()
		defer one.Unlock()
		s, err := a.s.Reread(ctx, source, a.log)
		if err != nil {
			return daemon.Reread{}, err
		}
		conf := &s.Cluster.File.Agent
		out := daemon.Reread{
			Programs: s.AgentConfig(0, version).Programs,
			Restart:  s.NeedsRestart(a.s),
			Apply:    func() { scripts.Use(conf) },
		}
		if conf.Check.Program != "" {
			out.Check = scripts
		}
		return out, nil
	}
}
