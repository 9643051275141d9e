package telemetry

import (
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// Endpoint is the catalogue's name of what Handler serves.
const Endpoint = "muster-agent /metrics"

// fieldSource marks the entries that come from device.Fields.
const fieldSource = "GPU provider, one reading a collection"

// Labels of the families, in the order they are printed.
var (
	linkLabels   = [...]string{"domain", "link"}
	deviceLabels = [...]string{
		"gpu",
		"UUID",
		"pci_bus_id",
		"device",
		"modelName",
		"hostname",
		"GPU_I_PROFILE",
		"GPU_I_ID",
	}
	jobLabels  = [...]string{"slurm_job_id", "user", "account", "partition"}
	podLabels  = [...]string{"namespace", "pod", "container"}
	nodeLabels = [...]string{"cluster", "node"}
)

func withLabels(base []string, more ...string) []string {
	return append(append([]string(nil), base...), more...)
}

// Metrics lists every metric that an agent can serve, with its labels under
// JobLabelsAll. Field metrics (DCGM_*) come first, then Muster's own.
func Metrics() []catalogue.Metric {
	var metrics []catalogue.Metric
	for _, info := range device.Fields() {
		metric := catalogue.Metric{
			Name: info.Name, Type: catalogue.Gauge, Dialect: catalogue.DCGM, Endpoint: Endpoint,
			Help:   info.Help,
			Labels: withLabels(deviceLabels[:], jobLabels[:]...), Source: fieldSource,
			Cardinality: "GPUs and MIG instances of the node",
		}
		if info.Kind == device.Counter {
			metric.Type, metric.Labels = catalogue.Counter, withLabels(deviceLabels[:])
		}
		metrics = append(metrics, metric)
	}
	metrics = append(metrics, gpuMetrics()...)
	metrics = append(metrics, jobMetrics()...)
	metrics = append(metrics, nodeMetrics()...)
	metrics = append(metrics, agentMetrics()...)
	return append(metrics, processMetrics()...)
}

// gpuMetrics join with the device series, so they have the device labels and
// dcgm-exporter's spelling of them.
func gpuMetrics() []catalogue.Metric {
	gpu := func(name, help, source string, labels []string, typ catalogue.Type) catalogue.Metric {
		return catalogue.Metric{
			Name:        name,
			Type:        typ,
			Dialect:     catalogue.DCGM,
			Endpoint:    Endpoint,
			Help:        help,
			Labels:      labels,
			Source:      source,
			Cardinality: "GPUs and MIG instances of the node",
		}
	}
	return []catalogue.Metric{
		gpu(
			"muster_gpu_up",
			"1 while the device answers, 0 when it is lost.",
			"GPU provider",
			withLabels(deviceLabels[:]),
			catalogue.Gauge,
		),
		gpu(
			"muster_gpu_link_info",
			"1 for each device, with the NVLink domain it is in (the lowest index of the devices that NVLink joins) and its best link to a peer.",
			"link matrix of the GPU provider",
			withLabels(deviceLabels[:], linkLabels[:]...),
			catalogue.Info,
		),
		gpu(
			"muster_gpu_job_info",
			"1 for each GPU that one job holds alone; joins counters to their job.",
			"allocation of the job",
			withLabels(deviceLabels[:], jobLabels[:]...),
			catalogue.Info,
		),
		gpu(
			"muster_gpu_pod_info",
			"1 for each GPU that a pod of Kubernetes holds; joins counters to their pod. Gauges of such a GPU carry the same labels of the pod beside those of the job.",
			"node program of the DRA driver (muster-kube-dra)",
			withLabels(deviceLabels[:], podLabels[:]...),
			catalogue.Info,
		),
		gpu(
			"muster_gpu_job_share_ratio",
			"Part of a shared GPU that the job was given.",
			"allocation of the job",
			withLabels(deviceLabels[:], jobLabels[:]...),
			catalogue.Gauge,
		),
	}
}

func jobMetrics() []catalogue.Metric {
	labels := withLabels(nodeLabels[:], jobLabels[:]...)
	job := func(name string, typ catalogue.Type, unit catalogue.Unit, help, source string, more ...string) catalogue.Metric {
		card := "jobs running on the node"
		if len(more) > 0 {
			card += " x their GPUs x 4 states"
			switch more[0] {
			case "mode":
				card = "jobs running on the node x 2 modes"
			case "direction":
				card = "jobs running on the node x 4"
			case "filesystem":
				card = "jobs running on the node x 4"
			case "resource":
				card = "jobs running on the node x 3 resources"
			}
		}
		return catalogue.Metric{Name: name, Type: typ, Endpoint: Endpoint, Help: help, Unit: unit,
			Labels: withLabels(labels, more...), Source: source, Cardinality: card}
	}
	kernel, account := "the job's cgroup", "GPU accounts of the agent"
	return []catalogue.Metric{
		job("muster_job_cpus", catalogue.Gauge, catalogue.None, "CPUs the job was given on this node.", "allocation of the job"),
		job("muster_job_cpu_seconds_total", catalogue.Counter, catalogue.Seconds, "CPU time the job has used on this node.", kernel, "mode"),
		job("muster_job_memory_bytes", catalogue.Gauge, catalogue.Bytes, "Memory the job holds now, page cache included.", kernel),
		job("muster_job_memory_peak_bytes", catalogue.Gauge, catalogue.Bytes, "Most memory the job has held.", kernel),
		job("muster_job_memory_limit_bytes", catalogue.Gauge, catalogue.Bytes, "Memory the job was given on this node.", "allocation of the job"),
		job("muster_job_oom_kills_total", catalogue.Counter, catalogue.None, "Processes of the job that were killed for lack of memory.", kernel),
		job("muster_job_io_read_bytes_total", catalogue.Counter, catalogue.Bytes, "Bytes the job has read from block devices.", kernel),
		job("muster_job_io_written_bytes_total", catalogue.Counter, catalogue.Bytes, "Bytes the job has written to block devices.", kernel),
		job("muster_job_processes", catalogue.Gauge, catalogue.None, "Processes of the job.", kernel),
		job("muster_job_network_bytes_total", catalogue.Counter, catalogue.Bytes,
			"Bytes the job has sent and received by IP, by direction (in, out) and family (ipv4, ipv6), without loopback and RDMA.", kernel, "direction", "family"),
		job("muster_job_loopback_bytes_total", catalogue.Counter, catalogue.Bytes, "Bytes the job has sent within the node over loopback.", kernel),
		job("muster_job_fabric_bytes_total", catalogue.Counter, catalogue.Bytes,
			"Bytes of the node's InfiniBand and RoCE ports while the job has had the node alone, by direction; absent for a job that has shared it.", "ports of the node", "direction"),
		job("muster_job_filesystem_bytes_total", catalogue.Counter, catalogue.Bytes,
			"Bytes of the node's clients of Lustre and NFS while the job has had the node alone, by filesystem and direction; absent for a job that has shared it.", "clients of the node", "filesystem", "direction"),
		job("muster_job_stall_seconds_total", catalogue.Counter, catalogue.Seconds,
			"Time in which some task of the job waited for a resource: cpu, memory or io (pressure stall information).", kernel, "resource"),
		job("muster_job_throttled_seconds_total", catalogue.Counter, catalogue.Seconds, "Time for which the job was held back by a limit of CPU time.", kernel),
		job("muster_job_energy_joules_total", catalogue.Counter, catalogue.Joules,
			"Energy of the node's part that the job had, without GPUs: its share of the idle node by its CPUs, and of the rest by its CPU time.", "meter of the node"),
		job("muster_job_gpu_seconds_total", catalogue.Counter, catalogue.Seconds,
			"Time a GPU was allocated to the job, by what was seen on it: no_process, idle, busy or unobserved.", account, "gpu", "gpu_uuid", "state"),
		job("muster_job_gpu_energy_joules_total", catalogue.Counter, catalogue.Joules,
			"Energy the GPU has used for the job, from the device's own counter; of a MIG instance its compute slices' part of seven of the device's.", account, "gpu", "gpu_uuid"),
		job("muster_job_gpu_attributed_seconds_total", catalogue.Counter, catalogue.Seconds,
			"Time a shared GPU was allocated to the job, by what was seen on it, times the job's share: attributed by allocation, since nobody can tell whose work it was.", account, "gpu", "gpu_uuid", "state"),
		job("muster_job_gpu_attributed_energy_joules_total", catalogue.Counter, catalogue.Joules,
			"Energy of a shared GPU while it was allocated to the job, times the job's share: attributed by allocation.", account, "gpu", "gpu_uuid"),
		job("muster_job_gpu_memory_peak_bytes", catalogue.Gauge, catalogue.Bytes, "Most GPU memory in use while the job held the GPU.", account, "gpu", "gpu_uuid"),
	}
}

func nodeMetrics() []catalogue.Metric {
	node := func(name string, typ catalogue.Type, unit catalogue.Unit, help, source string, more ...string) catalogue.Metric {
		card := "1"
		if len(more) > 0 {
			card = "8 modes or 3 windows"
		}
		return catalogue.Metric{Name: name, Type: typ, Endpoint: Endpoint, Help: help, Unit: unit,
			Labels: withLabels(nodeLabels[:], more...), Source: source, Cardinality: card}
	}
	counterOf := func(name, help, source string, labels ...string) catalogue.Metric {
		metric := node(name, catalogue.Counter, catalogue.Bytes, help, source, labels...)
		metric.Cardinality = "2 directions x 2 file systems"
		return metric
	}
	energyOf := func(name string, typ catalogue.Type, unit catalogue.Unit, help string) catalogue.Metric {
		metric := node(name, typ, unit, help, "meter of the node", "source")
		metric.Cardinality = "1: the meter (energy.source of muster.yaml)"
		return metric
	}
	return []catalogue.Metric{
		node(
			"muster_node_cpus",
			catalogue.Gauge,
			catalogue.None,
			"CPUs online.",
			"/sys/devices/system/cpu",
		),
		node(
			"muster_node_cpu_seconds_total",
			catalogue.Counter,
			catalogue.Seconds,
			"CPU time of the node by mode.",
			"/proc/stat",
			"mode",
		),
		node(
			"muster_node_memory_bytes",
			catalogue.Gauge,
			catalogue.Bytes,
			"Memory of the node.",
			"/proc/meminfo",
		),
		node(
			"muster_node_memory_available_bytes",
			catalogue.Gauge,
			catalogue.Bytes,
			"Memory that programs could still get.",
			"/proc/meminfo",
		),
		node(
			"muster_node_load",
			catalogue.Gauge,
			catalogue.None,
			"Load average over so many minutes.",
			"/proc/loadavg",
			"window",
		),
		node(
			"muster_node_boot_time_seconds",
			catalogue.Gauge,
			catalogue.Seconds,
			"When the node was started, in seconds since 1970.",
			"/proc/stat",
		),
		node(
			"muster_node_tmp_disk_bytes",
			catalogue.Gauge,
			catalogue.Bytes,
			"Size of the file system of TmpFS.",
			"statfs",
		),
		node(
			"muster_node_tmp_disk_available_bytes",
			catalogue.Gauge,
			catalogue.Bytes,
			"Space on the file system of TmpFS that users could still get.",
			"statfs",
		),
		counterOf("muster_node_fabric_bytes_total",
			"Bytes of the node's InfiniBand and RoCE ports, and of SysfsInterfaces, by direction (in, out).", "ports of the node", "direction"),
		counterOf("muster_node_filesystem_bytes_total",
			"Bytes of the node's clients of Lustre and NFS, by filesystem and direction (in is read).", "clients of the node", "filesystem", "direction"),
		energyOf("muster_node_energy_joules_total", catalogue.Counter, catalogue.Joules,
			"Energy that the node's meter has counted since the agent knows it, without GPUs. All jobs and muster_node_unallocated_energy_joules_total add up to it."),
		energyOf("muster_node_unallocated_energy_joules_total", catalogue.Counter, catalogue.Joules,
			"Of that energy, what belongs to no job: CPUs that no job had, and the operating system."),
		energyOf("muster_node_power_watts", catalogue.Gauge, catalogue.Watts,
			"Mean power of the node between the last two readings of its meter, without GPUs."),
		energyOf("muster_node_idle_power_watts", catalogue.Gauge, catalogue.Watts,
			"Power that the idle node is taken to use: as configured, or the lowest that was seen."),
		node(
			"muster_node_health_failed",
			catalogue.Gauge,
			catalogue.None,
			"File systems, devices or processes of the node that fail a health rule; docs/node-health.md has the rules.",
			"health rules of the agent",
			"rule",
		),
		node(
			"muster_node_health_rule_info",
			catalogue.Info,
			catalogue.None,
			"Always 1: what follows where a health rule fails (action: drain, warn, off), and when it holds again (back).",
			"health rules of the agent",
			"rule",
			"action",
			"back",
		),
		node(
			"muster_node_health_value",
			catalogue.Gauge,
			catalogue.None,
			"Worst value that a health rule has seen on the node, in the unit of the rule's limit.",
			"health rules of the agent",
			"rule",
		),
	}
}

func agentMetrics() []catalogue.Metric {
	agent := func(name string, typ catalogue.Type, unit catalogue.Unit, help, card string, more ...string) catalogue.Metric {
		return catalogue.Metric{Name: name, Type: typ, Endpoint: Endpoint, Help: help, Unit: unit,
			Labels: withLabels(nodeLabels[:], more...), Source: "the agent itself", Cardinality: card}
	}
	return []catalogue.Metric{
		agent("muster_agent_up", catalogue.Gauge, catalogue.None, "1 while the agent serves metrics.", "1"),
		agent("muster_agent_build_info", catalogue.Info, catalogue.None, "1, with the version of the agent.", "1", "version", "commit", "goversion"),
		agent("muster_agent_gpu_provider_info", catalogue.Info, catalogue.None, "1, with where GPU readings come from.", "1", "provider"),
		agent("muster_agent_jobs", catalogue.Gauge, catalogue.None, "Jobs running on the node.", "1"),
		agent("muster_agent_jobs_without_series", catalogue.Gauge, catalogue.None, "Jobs running on the node beyond the number that gets series of its own.", "1"),
		agent("muster_agent_shepherd_up", catalogue.Gauge, catalogue.None, "1 while the process that owns the jobs answers.", "1"),
		agent("muster_agent_controller_connected", catalogue.Gauge, catalogue.None, "1 while the agent has a stream to the controller.", "1"),
		agent("muster_agent_gpu_samples_stored_total", catalogue.Counter, catalogue.None, "Readings of GPUs and jobs that the accounting store has taken for good.", "1"),
		agent("muster_agent_gpu_samples_lost_total", catalogue.Counter, catalogue.None,
			"Readings of GPUs and jobs that were dropped because the accounting store did not take them for so long that there was no more room.", "1"),
		agent("muster_agent_gpu_samples_pending", catalogue.Gauge, catalogue.None, "Readings of GPUs and jobs that wait to be stored.", "1"),
		agent("muster_agent_reports_total", catalogue.Counter, catalogue.None, "Reports sent to the controller and acknowledged.", "1"),
		agent("muster_agent_report_errors_total", catalogue.Counter, catalogue.None, "Reports that could not be sent and are tried again.", "1"),
		agent("muster_agent_reports_pending", catalogue.Gauge, catalogue.None, "Reports that wait to be acknowledged.", "1"),
		agent("muster_agent_collections_total", catalogue.Counter, catalogue.None, "Collections done, by source.", "4 sources", "source"),
		agent("muster_agent_collection_errors_total", catalogue.Counter, catalogue.None, "Collections that failed, by source.", "4 sources", "source"),
		agent("muster_agent_collection_duration_seconds", catalogue.Histogram, catalogue.Seconds, "Time a collection took, by source.", "4 sources x buckets", "source"),
		agent("muster_agent_last_collection_time_seconds", catalogue.Gauge, catalogue.Seconds,
			"When the last GPU reading was taken, in seconds since 1970; 0 before the first.", "1"),
		agent("muster_agent_gpu_events_total", catalogue.Counter, catalogue.None, "GPU events, by kind.", "6 kinds", "kind"),
		agent("muster_agent_scrapes_total", catalogue.Counter, catalogue.None, "Scrapes served.", "1"),
		agent("muster_agent_pushes_total", catalogue.Counter, catalogue.None, "Pushes tried; 0 where telemetry.push_url is not set.", "1"),
		agent("muster_agent_push_errors_total", catalogue.Counter, catalogue.None, "Pushes that failed.", "1"),
		agent("muster_agent_scrape_duration_seconds", catalogue.Histogram, catalogue.Seconds, "Time it took to print the metrics.", "buckets"),
	}
}

// processMetrics are the few runtime metrics that are passed on, with the help
// texts the Prometheus client library gives them.
func processMetrics() []catalogue.Metric {
	common := func(name string, typ catalogue.Type, unit catalogue.Unit, help string) catalogue.Metric {
		return catalogue.Metric{
			Name:        name,
			Type:        typ,
			Dialect:     catalogue.Common,
			Endpoint:    Endpoint,
			Help:        help,
			Unit:        unit,
			Source:      "the process itself",
			Cardinality: "1",
		}
	}
	return []catalogue.Metric{
		common(
			"go_goroutines",
			catalogue.Gauge,
			catalogue.None,
			"Number of goroutines that currently exist.",
		),
		common(
			"process_cpu_seconds_total",
			catalogue.Counter,
			catalogue.Seconds,
			"Total user and system CPU time spent in seconds.",
		),
		common(
			"process_max_fds",
			catalogue.Gauge,
			catalogue.None,
			"Maximum number of open file descriptors.",
		),
		common(
			"process_open_fds",
			catalogue.Gauge,
			catalogue.None,
			"Number of open file descriptors.",
		),
		common(
			"process_resident_memory_bytes",
			catalogue.Gauge,
			catalogue.Bytes,
			"Resident memory size in bytes.",
		),
		common(
			"process_start_time_seconds",
			catalogue.Gauge,
			catalogue.Seconds,
			"Start time of the process since unix epoch in seconds.",
		),
	}
}
