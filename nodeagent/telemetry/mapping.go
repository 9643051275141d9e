package telemetry

import "strconv"

// Mapping tells a stock dcgm-exporter who holds a GPU: Name is the GPU's index
// or, for a MIG instance, "index.GPU instance", as the files of its
// --hpc-job-mapping-dir are named; Job is 0 while nobody holds it alone.
//
// A GPU that several jobs share is mapped to none of them: the exporter would
// print the whole device's value once for each.
type Mapping struct {
	Name string
	Job  uint64
}

// Mappings lists the devices and MIG instances of the node in order.
func (t *Telemetry) Mappings() []Mapping {
	s := t.state.Load()
	mappings := make([]Mapping, 0, len(s.entities))
	for i := range s.entities {
		e := &s.entities[i]
		mapping := Mapping{Name: e.gpu}
		if e.instance >= 0 {
			mapping.Name += "." + strconv.Itoa(e.instance)
		}
		if e.info != "" {
			mapping.Job = e.job
		}
		// Compute instances of one GPU instance share its file: who holds the
		// first of them is named, unless another holds the second.
		if n := len(mappings); n > 0 && mappings[n-1].Name == mapping.Name {
			if mappings[n-1].Job != mapping.Job {
				mappings[n-1].Job = 0
			}
			continue
		}
		mappings = append(mappings, mapping)
	}
	return mappings
}
