package cli

import (
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec/hostlist"
)

// showTopology is scontrol show topology [SWITCH or NODE].
func (c *call) showTopology(name string) error {
	var rep apiv1.GetConfigReply
	if err := c.ask(methodGetConfig, &apiv1.GetConfigRequest{}, &rep); err != nil {
		r := explainError(err)
		return fail(1, append(r.before("scontrol"), "slurm_load_topo error: "+r.text)...)
	}
	if len(rep.GetTopology()) == 0 {
		return c.errorf("No topology information available")
	}
	found := false
	for _, s := range rep.GetTopology() {
		if name != "" && s.GetName() != name && !slices.Contains(s.GetNodes(), name) {
			continue
		}
		found = true
		parts := []string{"SwitchName=" + s.GetName(), "Level=" + itoa(s.GetLevel()), "LinkSpeed=1", "Nodes=" + hostlist.Fold(s.GetNodes())}
		if len(s.GetSwitches()) > 0 {
			parts = append(parts, "Switches="+hostlist.Fold(s.GetSwitches()))
		}
		if err := c.write([]byte(strings.Join(parts, " ") + "\n")); err != nil {
			return err
		}
	}
	if !found {
		return c.errorf("Topology information contains no switch or node named %s", name)
	}
	return nil
}
