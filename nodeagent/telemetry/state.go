package telemetry

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// state is everything a scrape prints. It does not change once published.
type state struct {
	devices  []device.Device
	sample   *device.Sample
	jobs     []JobOnNode // by slurm_job_id; at most one attempt of each
	omitted  int
	pods     map[string]PodOnNode // by UUID
	usage    map[jobKey]JobUsage
	accounts []attrib.Account
	node     *NodeStats
	energy   *Energy
	counters spec.CounterValues // of the node

	entities []entity // one per device and MIG instance, in order
	jobText  []string // labels of each of jobs
}

type jobKey struct {
	uid     spec.JobUID
	attempt uint32
}

// entity is a device or MIG instance as it is printed.
type entity struct {
	uuid     string
	gpu      string // index of the device
	labels   string // device labels
	owner    string // job labels on gauges, or empty values
	link     string // labels of the NVLink domain; empty for an instance
	info     string // job labels of the job that holds it alone now; empty when there is none
	job      uint64 // its number
	pod      string // labels of the pod that holds it now; empty when there is none
	instance int    // GPU instance of a MIG device, else -1
	shares   []share
	reading  *device.Reading // nil before the first collection
	lost     bool            // the inventory says so
}

// share is one job's part of a shared entity.
type share struct {
	labels string
	part   int
}

// claim is one job's hold on an entity.
type claim struct {
	job   int // index in state.jobs
	share int
}

// deriveOwners fills what follows from the facts: who is printed on which entity.
func (s *state) deriveOwners(describe describer, owner []string) {
	s.jobText = make([]string, len(s.jobs))
	claims := map[string][]claim{}
	for i := range s.jobs {
		job := &s.jobs[i]
		id := strconv.FormatUint(uint64(job.ID), 10)
		s.jobText[i] = labelPairs(owner, id, job.User, job.Account, job.Partition, id)
		for _, gpu := range job.GPUs {
			part := gpu.Share
			if part <= 0 || part > 1000 {
				part = 1000
			}
			claims[gpu.UUID] = append(claims[gpu.UUID], claim{i, part})
		}
	}
	s.entities = s.entities[:0:0]
	nobody := labelPairs(owner, "", "", "", "", "")
	domains := domainsOf(s.devices)
	for i := range s.devices {
		gpu := &s.devices[i]
		e := s.makeEntity(gpu, nil, claims[gpu.UUID], describe, nobody)
		e.link = labelPairs(linkLabels[:], strconv.Itoa(domains[i]), bestLink(gpu))
		s.entities = append(s.entities, e)
		for m := range gpu.MIG {
			held := claims[gpu.MIG[m].UUID]
			if len(held) == 0 {
				held = claims[gpu.UUID] // the job holds the whole device
			}
			s.entities = append(s.entities, s.makeEntity(gpu, &gpu.MIG[m], held, describe, nobody))
		}
	}
}

// describer gives the device labels of a device, or of one of its instances.
type describer func(*device.Device, *device.MIG) string

// describeDevice is the describer of a telemetry. An instance keeps its device's
// UUID, as dcgm-exporter has it; GPU_I_ID tells instances apart, and compute
// instances that share a GPU instance by "GPU instance.compute instance".
func (t *Telemetry) describeDevice(gpu *device.Device, mig *device.MIG) string {
	profile, instance := "", ""
	if mig != nil {
		profile, instance = mig.Profile, strconv.Itoa(mig.GPUInstance)
		for i := range gpu.MIG {
			if gpu.MIG[i].GPUInstance == mig.GPUInstance && gpu.MIG[i].UUID != mig.UUID {
				instance = strconv.Itoa(mig.GPUInstance) + "." + strconv.Itoa(mig.ComputeInstance)
			}
		}
	}
	minor := gpu.Minor
	if minor < 0 {
		minor = gpu.Index
	}
	values := []string{
		strconv.Itoa(gpu.Index),
		gpu.UUID,
		gpu.PCIBusID,
		"nvidia" + strconv.Itoa(minor),
		gpu.Model,
		t.options.Node,
		profile,
		instance,
	}
	if t.options.ClusterLabel != "" {
		values = append(values, t.options.Cluster)
	}
	return labelPairs(t.labels, append(values, gpu.Driver)...)
}

// makeEntity makes the printed form of a device or of one of its instances.
func (s *state) makeEntity(
	gpu *device.Device,
	mig *device.MIG,
	claims []claim,
	describe describer,
	nobody string,
) entity {
	e := entity{
		lost: gpu.Lost, uuid: gpu.UUID, gpu: strconv.Itoa(gpu.Index), instance: -1, owner: nobody,
	}
	if mig != nil {
		e.uuid, e.instance = mig.UUID, mig.GPUInstance
	}
	e.labels = describe(gpu, mig)
	if s.sample != nil {
		e.reading = s.sample.Find(e.uuid)
	}
	switch {
	case len(claims) == 1 && claims[0].share == 1000:
		i := claims[0].job
		e.info, e.job = s.jobText[i], uint64(s.jobs[i].ID)
		if s.sample != nil && s.jobs[i].From <= s.sample.At {
			e.owner = e.info
		}
	default:
		for _, c := range claims {
			e.shares = append(e.shares, share{labels: s.jobText[c.job], part: c.share})
		}
	}
	if pod, held := s.podOn(gpu, mig); held {
		e.pod = labelPairs(podLabels[:], pod.Namespace, pod.Pod, pod.Container)
		if s.sample != nil && pod.From <= s.sample.At {
			e.owner += "," + e.pod
		}
	}
	return e
}

// podOn finds the pod that holds a device or instance. Who holds a whole device
// holds its instances.
func (s *state) podOn(gpu *device.Device, mig *device.MIG) (PodOnNode, bool) {
	if mig != nil {
		if pod, held := s.pods[mig.UUID]; held {
			return pod, true
		}
	}
	pod, held := s.pods[gpu.UUID]
	return pod, held
}

// admitJobs orders the jobs, keeps the newest attempt of each and cuts the list at
// most; the rest is counted.
func admitJobs(jobs []JobOnNode, most int) (kept []JobOnNode, omitted int) {
	kept = slices.Clone(jobs)
	slices.SortStableFunc(kept, func(a, b JobOnNode) int {
		return cmp.Or(
			cmp.Compare(a.ID, b.ID),
			cmp.Compare(b.From, a.From),
			cmp.Compare(b.Attempt, a.Attempt),
		)
	})
	kept = slices.CompactFunc(kept, func(a, b JobOnNode) bool { return a.ID == b.ID })
	for i := range kept {
		kept[i].GPUs = slices.Clone(kept[i].GPUs)
	}
	if len(kept) > most {
		omitted = len(kept) - most
		kept = kept[:most]
	}
	return kept, omitted
}

// findJob gives the index of a running job, or -1.
func (s *state) findJob(key jobKey) int {
	return slices.IndexFunc(
		s.jobs,
		func(j JobOnNode) bool { return j.UID == key.uid && j.Attempt == key.attempt },
	)
}

// deviceIndex gives the device index of a device or instance, as text.
func (s *state) deviceIndex(uuid string) string {
	i := slices.IndexFunc(s.entities, func(e entity) bool { return e.uuid == uuid })
	if i < 0 {
		return ""
	}
	return s.entities[i].gpu
}
