package catalogue_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/internal/catalogue"
)

func good() catalogue.Metric {
	return catalogue.Metric{
		Name: "muster_jobs", Type: catalogue.Gauge, Endpoint: "musterd /metrics",
		Help: "Jobs by state.", Labels: []string{"cluster", "state"},
		Source: "ledger state", Cardinality: "12 states",
	}
}

func with(change func(*catalogue.Metric)) catalogue.Metric {
	m := good()
	change(&m)
	return m
}

// TestRules breaks one rule at a time and expects exactly that complaint.
func TestRules(t *testing.T) {
	for _, tc := range []struct {
		want   string
		change func(*catalogue.Metric)
	}{
		{"is not a metric name: use letters, digits and underscores", func(m *catalogue.Metric) { m.Name = "muster-jobs" }},
		{"must start with muster_ and be in lower_snake_case", func(m *catalogue.Metric) { m.Name = "slurm_jobs" }},
		{"must start with muster_ and be in lower_snake_case", func(m *catalogue.Metric) { m.Name = "muster__jobs" }},
		{"must start with muster_ and be in lower_snake_case", func(m *catalogue.Metric) { m.Name = "muster_Jobs" }},
		{"has no type", func(m *catalogue.Metric) { m.Type = 0 }},
		{`endpoint "/metrics" must name a process and a path, as in "musterd /metrics"`, func(m *catalogue.Metric) { m.Endpoint = "/metrics" }},
		{"has no source: say which record the figure is read from", func(m *catalogue.Metric) { m.Source = "" }},
		{"has no cardinality: say how many series it can make", func(m *catalogue.Metric) { m.Cardinality = "" }},
		{"has no help text", func(m *catalogue.Metric) { m.Help = "" }},
		{"help text must be one line", func(m *catalogue.Metric) { m.Help = "Jobs.\nBy state." }},
		{"help text must be a sentence that ends with a full stop", func(m *catalogue.Metric) { m.Help = "Jobs" }},
		{`label "jobState" is not in lower_snake_case`, func(m *catalogue.Metric) { m.Labels = append(m.Labels, "jobState") }},
		{`label "instance" is reserved by Prometheus`, func(m *catalogue.Metric) { m.Labels = append(m.Labels, "instance") }},
		{`label "state" stands twice`, func(m *catalogue.Metric) { m.Labels = append(m.Labels, "state") }},
		{`lacks the label "cluster", which every series carries`, func(m *catalogue.Metric) { m.Labels = []string{"state"} }},
		{"is a counter, so its name must end with _total", func(m *catalogue.Metric) { m.Type = catalogue.Counter }},
		{"is not a counter, so its name must not end with _total", func(m *catalogue.Metric) { m.Name = "muster_jobs_total" }},
		{"must not end with _count, which Prometheus appends to histograms", func(m *catalogue.Metric) { m.Name = "muster_job_count" }},
		{"an info metric, and nothing else, must end with _info", func(m *catalogue.Metric) { m.Name = "muster_build_info" }},
		{"an info metric, and nothing else, must end with _info", func(m *catalogue.Metric) { m.Type = catalogue.Info }},
		{`unit "hours" is not a base unit`, func(m *catalogue.Metric) { m.Unit = "hours" }},
		{"is in seconds, so its name must end with _seconds", func(m *catalogue.Metric) { m.Unit = catalogue.Seconds }},
		{"is in seconds, so its name must end with _seconds_total", func(m *catalogue.Metric) {
			m.Name, m.Type, m.Unit = "muster_cpu_total", catalogue.Counter, catalogue.Seconds
		}},
		{"ends with _bytes but declares no unit", func(m *catalogue.Metric) { m.Name = "muster_ledger_bytes" }},
		{`contains "ms": metrics are in base units (seconds, bytes, ratio, joules, ...)`, func(m *catalogue.Metric) { m.Name = "muster_pass_ms" }},
	} {
		m := with(tc.change)
		_, err := catalogue.New([]catalogue.Metric{m})
		want := m.Name + " (" + m.Endpoint + "): " + tc.want
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		var p catalogue.Problem
		if !errors.As(err, &p) || p.Text != tc.want {
			t.Errorf("errors.As finds %+v in %v", p, err)
		}
	}
}

func TestForeignDialectsKeepTheirNames(t *testing.T) {
	m := catalogue.Metric{
		Name: "DCGM_FI_DEV_GPU_UTIL", Type: catalogue.Gauge, Dialect: catalogue.DCGM, Endpoint: "muster-agent /metrics",
		Help: "GPU utilization (in %).", Labels: []string{"gpu", "UUID", "modelName"}, Source: "provider", Cardinality: "GPUs",
	}
	if _, err := catalogue.New([]catalogue.Metric{m}); err != nil {
		t.Fatal(err)
	}
	m.Labels = append(m.Labels, "job")
	if _, err := catalogue.New([]catalogue.Metric{m}); err == nil {
		t.Error("a reserved label passed in a foreign dialect")
	}
}

func TestClashes(t *testing.T) {
	elsewhere := func(change func(*catalogue.Metric)) catalogue.Metric {
		return with(func(m *catalogue.Metric) { m.Endpoint = "musterd /metrics/vpenso"; change(m) })
	}
	wait := with(func(m *catalogue.Metric) {
		m.Name, m.Type, m.Unit, m.Dialect = "wait_seconds", catalogue.Histogram, catalogue.Seconds, catalogue.Guide
	})
	for _, tc := range []struct {
		name string
		list []catalogue.Metric
		want string // empty: no clash
	}{
		{"the same metric at two endpoints", []catalogue.Metric{good(), elsewhere(func(*catalogue.Metric) {})}, ""},
		{"the same labels in another order", []catalogue.Metric{good(), elsewhere(func(m *catalogue.Metric) { m.Labels = []string{"state", "cluster"} })}, ""},
		{"twice at one endpoint", []catalogue.Metric{good(), good()}, "is listed twice"},
		{"another type", []catalogue.Metric{good(), elsewhere(func(m *catalogue.Metric) { m.Type = catalogue.Histogram })}, "one name has one type"},
		{"other labels", []catalogue.Metric{good(), elsewhere(func(m *catalogue.Metric) { m.Labels = []string{"cluster"} })}, "one name has one set of labels"},
		{"another meaning", []catalogue.Metric{good(), elsewhere(func(m *catalogue.Metric) { m.Help = "Jobs that run." })}, "one help text"},
		{"the series of a histogram", []catalogue.Metric{wait, with(func(m *catalogue.Metric) {
			m.Name, m.Dialect = "wait_seconds_sum", catalogue.Guide
		})}, "already a series of the histogram wait_seconds"},
	} {
		_, err := catalogue.New(tc.list)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := catalogue.New([]catalogue.Metric{{Name: "muster_a", Type: catalogue.Counter}, {Name: "9"}})
	var ps catalogue.Problems
	if !errors.As(err, &ps) || len(ps) != 7 {
		t.Errorf("%d problems: %v", len(ps), err)
	}
}

func sample(t testing.TB) *catalogue.Catalogue {
	t.Helper()
	c, err := catalogue.New(
		[]catalogue.Metric{good(), {
			Name: "muster_pass_duration_seconds", Type: catalogue.Histogram, Endpoint: "musterd /metrics", Unit: catalogue.Seconds,
			Help: "Time a scheduling pass took, by kind (full | incremental).", Labels: []string{"cluster", "kind"},
			Source: "scheduler pass", Cardinality: "2 kinds x 14 buckets",
		}},
		[]catalogue.Metric{{
			Name: "DCGM_FI_DEV_GPU_TEMP", Type: catalogue.Gauge, Dialect: catalogue.DCGM, Endpoint: "muster-agent /metrics",
			Help: "GPU temperature (in C).", Labels: []string{"gpu"}, Source: "provider", Cardinality: "GPUs",
		}, {
			Name: "muster_build_info", Type: catalogue.Info, Endpoint: "muster-agent /metrics",
			Help: "Version of the running program.", Labels: []string{"cluster", "version"}, Source: "build", Cardinality: "1",
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestResolve(t *testing.T) {
	c := sample(t)
	for series, want := range map[string]string{
		"muster_jobs":                         "muster_jobs",
		"muster_pass_duration_seconds":        "muster_pass_duration_seconds",
		"muster_pass_duration_seconds_bucket": "muster_pass_duration_seconds",
		"muster_pass_duration_seconds_count":  "muster_pass_duration_seconds",
		"DCGM_FI_DEV_GPU_TEMP":                "DCGM_FI_DEV_GPU_TEMP",
		"muster_jobs_sum":                     "",
		"muster_job":                          "",
		"":                                    "",
	} {
		m, ok := c.Resolve(series)
		if m.Name != want || ok != (want != "") {
			t.Errorf("%q resolves to %q (%v), want %q", series, m.Name, ok, want)
		}
	}
}

func TestConform(t *testing.T) {
	c := sample(t)
	jobs := catalogue.Seen{Name: "muster_jobs", Type: "gauge", Help: "Jobs by state.", Labels: []string{"state", "cluster"}}
	if err := c.Conform("musterd /metrics", []catalogue.Seen{jobs}, false); err != nil {
		t.Errorf("a faithful endpoint: %v", err)
	}
	broken := jobs
	broken.Type, broken.Help, broken.Labels = "counter", "Jobs.", []string{"state"}
	err := c.Conform("musterd /metrics", []catalogue.Seen{broken, {Name: "muster_secret"}}, true)
	want := `muster_jobs (musterd /metrics): is served as counter, the catalogue says gauge
muster_jobs (musterd /metrics): is served with another help text than the catalogue's
muster_jobs (musterd /metrics): is served with labels state, the catalogue says cluster,state
muster_secret (musterd /metrics): is served but not in the catalogue
muster_pass_duration_seconds (musterd /metrics): is in the catalogue but was not served`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestMarkdownGolden(t *testing.T) {
	const file = "testdata/metrics.md.golden"
	got := sample(t).Markdown()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (UPDATE_GOLDEN=1 rewrites it):\n%s", file, got)
	}
}

// TestOrderOfListsDoesNotMatter: the catalogue is a set.
func TestOrderOfListsDoesNotMatter(t *testing.T) {
	all := sample(t).All()
	want := sample(t).Markdown()
	rapid.Check(t, func(t *rapid.T) {
		shuffled := rapid.Permutation(all).Draw(t, "order")
		cut := rapid.IntRange(0, len(all)).Draw(t, "cut")
		c, err := catalogue.New(shuffled[:cut], shuffled[cut:])
		if err != nil {
			t.Fatal(err)
		}
		if c.Markdown() != want {
			t.Fatal("another order gives another catalogue")
		}
	})
}
