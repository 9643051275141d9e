// Command gen writes the pages and files of this repository that are generated
// from Go definitions. Run it from the top of the repository:
//
//	go run ./docs/gen          writes what differs and says so
//	go run ./docs/gen -check   writes nothing, and fails if anything differs
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/alerts"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/cli"
	"github.com/musterhpc/muster/cli/slurmapi"
	"github.com/musterhpc/muster/cli/submit"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/dashboards"
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/internal/conffile/confdoc"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/nodeagent/health"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/spec"
)

// page is one generated file.
type page struct {
	path string
	make func() (string, error)
}

// reasons lists why jobs wait, or ended.
func reasons() (string, error) {
	var b, never strings.Builder
	b.WriteString("# Reasons\n\n<!-- Written by go run ./docs/gen from spec.ReasonDocs. -->\n\n" +
		"The reasons that squeue shows in parentheses: why a job is pending or why it ended. The names are Slurm's;\n" +
		"`muster why JOB` adds the numbers. A test shows each of these in a job.\n\n| reason | given when |\n|---|---|\n")
	for _, doc := range spec.ReasonDocs() {
		to := &never
		if doc.Given {
			to = &b
		}
		fmt.Fprintf(to, "| `%s` | %s |\n", doc.Code, doc.Text)
	}
	b.WriteString(
		"\n## Never given\n\nClients may know these names of Slurm; no job has them here.\n\n| reason | why not |\n|---|---|\n" +
			never.String(),
	)
	return b.String(), nil
}

// pages lists every generated file, in the order they are made.
func pages() []page {
	conf := func(render func(confdoc.Comments) (string, error)) func() (string, error) {
		return func() (string, error) {
			source, err := os.ReadFile("internal/conffile/config.go")
			if err != nil {
				return "", err
			}
			comments, err := confdoc.Read(source)
			if err != nil {
				return "", err
			}
			return render(comments)
		}
	}
	return append([]page{
		{"internal/conffile/default.yaml", conf(confdoc.Annotated)},
		{"docs/muster.yaml.md", conf(confdoc.Markdown)},
		{"docs/kpis.md", func() (string, error) { return kpi.Markdown(), nil }},
		{"docs/dashboards.md", func() (string, error) { return dashboards.Markdown(), nil }},
		{"docs/views.md", func() (string, error) { return query.ViewsMarkdown(), nil }},
		{"docs/metrics.md", metrics},
		{"docs/authorization.md", func() (string, error) { return authz.Markdown(), nil }},
		{"docs/alerts.md", func() (string, error) { return alerts.Markdown(), nil }},
		{"docs/reasons.md", reasons},
		{"docs/node-health.md", func() (string, error) { return health.Markdown(), nil }},
		{"api/openapi.json", openAPI},
		{
			"cmd/muster-sbatch/options.h",
			func() (string, error) { return submit.OptionsHeader(), nil },
		},
		{"docs/rest.md", func() (string, error) { return slurmapi.Markdown(), nil }},
		{"docs/cli.md", func() (string, error) { return cli.Markdown(), nil }},
		{"docs/compatibility.md", compatibility},
	}, append(grafana(), alerting()...)...)
}

// alerting is a page for each file that the example of alerts/ makes.
func alerting() []page {
	const from, into = "alerts/example.yaml", "alerts/generated/"
	fail := func(err error) []page {
		return []page{{into, func() (string, error) { return "", err }}}
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return fail(err)
	}
	settings, err := alerts.Parse(from, data, "/etc/muster")
	if err != nil {
		return fail(err)
	}
	files, err := settings.Files()
	if err != nil {
		return fail(err)
	}
	var out []page
	for _, file := range files {
		out = append(
			out,
			page{into + file.Name, func() (string, error) { return string(file.Data), nil }},
		)
	}
	return out
}

// chartDashboards is where Helm looks for the dashboards of the chart: it reads no files
// outside of a chart, and a link would be lost on the way into an archive.
const chartDashboards = "deploy/helm/muster/dashboards/"

// grafana is a page for each dashboard, and one for its copy in the chart, without
// indentation because a release of Helm is stored in one Secret.
func grafana() []page {
	files, err := dashboards.Files()
	if err != nil {
		return []page{{"dashboards/generated", func() (string, error) { return "", err }}}
	}
	var out []page
	for _, file := range files {
		out = append(
			out,
			page{
				"dashboards/generated/" + file.Name,
				func() (string, error) { return string(file.Data), nil },
			},
			page{
				chartDashboards + file.Name,
				func() (string, error) {
					var short bytes.Buffer
					err := json.Compact(&short, file.Data)
					return short.String() + "\n", err
				},
			},
		)
	}
	return out
}

// openAPI describes the REST interface.
func openAPI() (string, error) {
	gateway := rest.New(rest.Config{Version: "v1"})
	service.RegisterClusterServer(gateway, service.UnimplementedClusterServer{})
	service.RegisterAccountingServer(gateway, service.UnimplementedAccountingServer{})
	return string(gateway.OpenAPI()), nil
}

// metrics is the catalogue of every metric that Muster serves.
func metrics() (string, error) {
	c, err := catalogue.New(collector.Metrics(), telemetry.Metrics(), catalogue.Kubernetes())
	if err != nil {
		return "", err
	}
	return c.Markdown(), nil
}

func main() {
	check := flag.Bool("check", false, "write nothing; fail if a file differs")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

var errStale = errors.New("generated files are stale: run `make generate` and commit the result")

func run(check bool) error {
	stale := false
	for _, p := range pages() {
		text, err := p.make()
		if err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}
		have, err := os.ReadFile(p.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if bytes.Equal(have, []byte(text)) {
			continue
		}
		stale = true
		fmt.Println("differs:", p.path)
		if check {
			continue
		}
		if err := os.WriteFile(p.path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if check && stale {
		return errStale
	}
	return nil
}
