package query

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/cli/tool"
)

// gpuFigure is a figure that is read of a GPU: its metric and its keys here.
type gpuFigure struct{ metric, short, key string }

func gpuFigures() []gpuFigure {
	return []gpuFigure{
		{
			"DCGM_FI_DEV_GPU_UTIL",
			"util",
			"utilization_percent",
		}, {"DCGM_FI_PROF_SM_ACTIVE", "sm", "sm_active_ratio"},
		{
			"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
			"tensor",
			"tensor_active_ratio",
		}, {"DCGM_FI_DEV_FB_USED", "used", "memory_used_mib"},
		{
			"DCGM_FI_DEV_FB_FREE",
			"free",
			"memory_free_mib",
		}, {"DCGM_FI_DEV_FB_RESERVED", "reserved", "memory_reserved_mib"},
		{
			"DCGM_FI_DEV_POWER_USAGE",
			"power",
			"power_watts",
		}, {"DCGM_FI_DEV_GPU_TEMP", "temp", "temperature_celsius"},
		{"muster_job_gpu_energy_joules_total", "energy", "energy_joules"},
	}
}

var errMetrics = errors.New("its metrics cannot be read")

// metricsToken is the token that the agents ask for, where they ask for one.
func metricsToken(env *tool.Env) (string, error) {
	file := ""
	for _, kv := range env.Environ {
		if v, ok := strings.CutPrefix(kv, "MUSTER_METRICS_TOKEN_FILE="); ok {
			file = v
		}
	}
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("MUSTER_METRICS_TOKEN_FILE: %w", err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line), nil
}

// fetchMetrics reads an agent's /metrics. It speaks just as much HTTP as that
// takes: a client that can do more would make every command start slower.
func fetchMetrics(ctx context.Context, addr, token string, patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errMetrics, err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	request := "GET /metrics HTTP/1.0\r\nHost: " + addr + "\r\nAccept: text/plain\r\n"
	if token != "" {
		request += "Authorization: Bearer " + token + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return "", fmt.Errorf("%w: %w", errMetrics, err)
	}
	const most = 32 << 20
	data, err := io.ReadAll(io.LimitReader(conn, most))
	if err != nil {
		return "", fmt.Errorf("%w: %w", errMetrics, err)
	}
	head, body, ok := strings.Cut(string(data), "\r\n\r\n")
	status, _, _ := strings.Cut(head, "\r\n")
	switch {
	case !ok || !strings.HasPrefix(status, "HTTP/1."):
		return "", fmt.Errorf("%w: %s does not speak HTTP", errMetrics, addr)
	case strings.Contains(status, " 400 ") && strings.Contains(body, "HTTPS"):
		return "", fmt.Errorf(
			"%w: it speaks TLS (tls.agent_web_config), and this command does not: ask Prometheus, or muster gpu job ID",
			errMetrics,
		)
	case strings.Contains(status, " 401 "):
		return "", fmt.Errorf(
			"%w: it asks for a token: name its file in MUSTER_METRICS_TOKEN_FILE",
			errMetrics,
		)
	case !strings.Contains(status, " 200 "):
		return "", fmt.Errorf("%w: %s", errMetrics, status)
	}
	return body, nil
}

// metricLine is one line of an exposition.
type metricLine struct {
	name   string
	labels map[string]string
	value  float64
}

// parseMetricLine reads a line; false for a comment and for what is no sample.
func parseMetricLine(line string) (metricLine, bool) {
	s := metricLine{labels: map[string]string{}}
	if line == "" || line[0] == '#' {
		return s, false
	}
	rest := line
	if i := strings.IndexAny(line, "{ "); i >= 0 {
		s.name, rest = line[:i], line[i:]
	}
	if strings.HasPrefix(rest, "{") {
		var ok bool
		rest, ok = parseLabels(rest[1:], s.labels)
		if !ok {
			return s, false
		}
	}
	text, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	v, err := strconv.ParseFloat(text, 64)
	s.value = v
	return s, err == nil && s.name != ""
}

// parseLabels reads name="value",… up to the closing brace and gives what
// follows it.
func parseLabels(text string, into map[string]string) (rest string, ok bool) {
	for text != "" && text[0] != '}' {
		name, after, found := strings.Cut(text, `="`)
		if !found {
			return "", false
		}
		var value strings.Builder
		i := 0
		for ; i < len(after) && after[i] != '"'; i++ {
			if after[i] == '\\' && i+1 < len(after) {
				i++
				if after[i] == 'n' {
					value.WriteByte('\n')
					continue
				}
			}
			value.WriteByte(after[i])
		}
		if i == len(after) {
			return "", false
		}
		into[strings.TrimSpace(name)] = value.String()
		text = strings.TrimPrefix(after[i+1:], ",")
	}
	if text == "" {
		return "", false
	}
	return text[1:], true
}

// gpusOf makes the rows of one node's exposition: by device, and what jobs
// that hold one did with it.
func gpusOf(node, text string) []*gpuNow {
	devices := map[string]*gpuNow{}
	var order []string
	var accounts []metricLine
	short := map[string]string{}
	for _, figure := range gpuFigures() {
		short[figure.metric] = figure.short
	}
	scanner := bufio.NewScanner(strings.NewReader(text))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line, ok := parseMetricLine(scanner.Text())
		if !ok {
			continue
		}
		if strings.HasPrefix(line.name, "muster_job_gpu_") {
			accounts = append(accounts, line)
			continue
		}
		name, wanted := short[line.name]
		if !wanted && line.name != "muster_gpu_up" && line.name != "muster_gpu_job_info" {
			continue
		}
		key := line.labels["UUID"] + "/" + line.labels["GPU_I_ID"]
		gpu := devices[key]
		if gpu == nil {
			gpu = &gpuNow{
				node:    node,
				index:   line.labels["gpu"],
				uuid:    line.labels["UUID"],
				model:   line.labels["modelName"],
				profile: line.labels["GPU_I_PROFILE"],
				figure:  map[string]float64{},
			}
			devices[key] = gpu
			order = append(order, key)
		}
		switch {
		case line.name == "muster_gpu_up":
			gpu.lost = line.value == 0
		case line.name == "muster_gpu_job_info":
			gpu.job = line.labels["slurm_job_id"]
			gpu.user = line.labels["user"]
			gpu.account = line.labels["account"]
			gpu.partition = line.labels["partition"]
		default:
			gpu.figure[name] = line.value
		}
	}
	gpus := make([]*gpuNow, 0, len(order))
	for _, key := range order {
		gpus = append(gpus, devices[key])
	}
	slices.SortStableFunc(
		gpus,
		func(a, b *gpuNow) int { return gpuIndex(a.index) - gpuIndex(b.index) },
	)
	for _, line := range accounts {
		gpus = addToGPU(gpus, node, &line)
	}
	return gpus
}

func gpuIndex(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// addToGPU adds what a job did with a GPU to that GPU's row, or to one of its
// own where several share the device.
func addToGPU(gpus []*gpuNow, node string, line *metricLine) []*gpuNow {
	l := line.labels
	i := slices.IndexFunc(
		gpus,
		func(g *gpuNow) bool { return g.uuid == l["gpu_uuid"] && g.job == l["slurm_job_id"] },
	)
	if i < 0 {
		i = slices.IndexFunc(
			gpus,
			func(g *gpuNow) bool { return g.job == l["slurm_job_id"] && g.profile != "" && g.index == l["gpu"] },
		)
	}
	if i < 0 {
		i = len(gpus)
		gpus = append(
			gpus,
			&gpuNow{
				node:      node,
				index:     l["gpu"],
				uuid:      l["gpu_uuid"],
				job:       l["slurm_job_id"],
				user:      l["user"],
				account:   l["account"],
				partition: l["partition"],
				figure:    map[string]float64{},
			},
		)
	}
	gpu := gpus[i]
	gpu.shared = gpu.shared || strings.HasPrefix(line.name, "muster_job_gpu_attributed_")
	switch line.name {
	case "muster_job_gpu_energy_joules_total", "muster_job_gpu_attributed_energy_joules_total":
		gpu.figure["energy"] = line.value
	case "muster_job_gpu_seconds_total", "muster_job_gpu_attributed_seconds_total":
		switch l["state"] {
		case "no_process":
			gpu.noProcess = line.value
		case "idle":
			gpu.idle = line.value
		case "busy":
			gpu.busy = line.value
		default:
			gpu.unseen += line.value
		}
	}
	return gpus
}
