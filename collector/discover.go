package collector

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// discoveryPath answers Prometheus' and vmagent's HTTP service discovery with
// the agents of every node, so that a scrape configuration never names nodes.
const discoveryPath = "/sd"

// targets is one entry of the answer: the form is Prometheus'.
type targets struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// writeTargets lists the agents that have said where their metrics are. Nodes that
// are down stay in the list: a scrape that fails is how they are noticed.
func writeTargets(writer http.ResponseWriter, s *scrape) {
	list := []targets{}
	if s != nil {
		for i := range s.pic.nodes {
			node := &s.pic.nodes[i]
			if node.Addr == "" {
				continue
			}
			list = append(list, targets{[]string{node.Addr}, map[string]string{
				"__meta_muster_cluster": s.pic.cluster, "__meta_muster_node": validText(node.Name), "__meta_muster_state": node.countedState(),
				"__meta_muster_gpus": strconv.FormatInt(
					node.GPUs,
					10,
				), "__meta_muster_partitions": "," +
					validText(strings.Join(node.Parts, ",")) + ",",
			}})
		}
	}
	writer.Header().Set("Content-Type", "application/json")
	// A client that went away is no error of ours.
	_ = json.NewEncoder(writer).Encode(list)
}
