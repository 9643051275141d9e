// Package telemetry serves a node's metrics on /metrics: its GPUs with
// dcgm-exporter's names, the node, the jobs on it and the agent itself.
//
// The agent pushes facts in (SetDevices, SetSample, SetJobs, …); each call
// publishes a new immutable state. A scrape loads the state once and prints
// it: it takes no lock that the agent holds, asks no hardware and starts no
// process, so a slow scraper delays nobody and a scrape costs the same however
// busy the node is.
//
// # Labels
//
// Every GPU series has gpu, UUID, pci_bus_id, device, modelName, hostname,
// GPU_I_PROFILE and GPU_I_ID (the last two empty on a whole device). Gauges
// also carry slurm_job_id, user, account and partition: of the job that holds
// the GPU, or empty. For Prometheus an empty label is an absent one.
//
// A device or MIG instance that answers has exactly one series per field,
// whoever holds it. The number of series depends on the devices and the jobs
// that run now, never on how many have run. The job's labels are on a reading
// exactly when the job runs and was running when the reading was taken: they
// end with the job, and they begin with the first collection after its start,
// so a job is never shown with what another did before it.
//
// Counters never carry job labels, because a counter whose labels change
// breaks rate(). They join instead:
//
//	rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m])
//	  * on (UUID, GPU_I_ID) group_left (slurm_job_id, user, account, partition) muster_gpu_job_info
//
// Gauges of a GPU that a pod of Kubernetes holds carry namespace, pod and container
// beside the labels of a job, by the same rule; where no pod holds it, there are no
// such labels. Counters join through muster_gpu_pod_info.
//
// A GPU that several jobs share has no job labels and no muster_gpu_job_info;
// each job's part is in muster_gpu_job_share_ratio, and what follows from it in
// muster_job_gpu_attributed_*: by allocation, since no driver tells whose work a
// shared device does.
package telemetry
