package daemon

import (
	"context"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestAgentsReadTheirConfiguration: a reconfiguration says which agents did not take
// everything over, and why.
func TestAgentsReadTheirConfiguration(t *testing.T) {
	w := start(t)
	able, _ := w.registerAs(&apiv1.Registration{Node: "n1", Rereads: true})
	<-able.out
	older, _ := w.registerAs(&apiv1.Registration{Node: "n2"})
	<-older.out
	const olderText = "n2: the agent is of a release that reads its configuration when it starts only: restart it"
	for _, x := range []struct {
		name   string
		answer *apiv1.ConfigRead // nil: none
		want   string
	}{
		{"all is well", &apiv1.ConfigRead{}, ""},
		{"a bad file", &apiv1.ConfigRead{Failed: "slurm.conf:3: bad"},
			"n1: the agent goes on with its old configuration, as it cannot read the new one: slurm.conf:3: bad\n"},
		{"a key for the start", &apiv1.ConfigRead{Restart: true}, "n1: restart the agent for what else changed for it in slurm.conf, " +
			"gres.conf or cgroup.conf; prologs, epilogs and the HealthCheckProgram are in effect\n"},
		{"silence", nil, "n1: the agent has not said within 5 s that it has read its configuration\n"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan []string, 1)
		go func() { got <- w.c.hub.rereadConfigs(ctx) }()
		able.until(t, func(m *apiv1.ControllerMessage) bool {
			asked := m.GetReadConfig()
			if asked == nil {
				return false
			}
			if x.answer == nil {
				cancel()
				return true
			}
			say := func(stream *agentStream, ask uint64, answer *apiv1.ConfigRead) {
				answer.Ask = ask
				stream.in <- &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_ConfigRead{ConfigRead: answer}}
			}
			// Answers to other questions, and of nodes that were not asked, are nobody's.
			say(able, asked.GetAsk()+1, &apiv1.ConfigRead{Failed: "other"})
			say(older, asked.GetAsk(), &apiv1.ConfigRead{Failed: "not asked"})
			say(able, asked.GetAsk(), x.answer)
			return true
		})
		text := strings.Join(<-got, "\n")
		cancel()
		if x.answer == nil {
			// What is said last comes behind what is known of the others.
			if want := olderText + "\n" + strings.TrimSuffix(x.want, "\n"); text != want {
				t.Errorf("%s: %q, want %q", x.name, text, want)
			}
			continue
		}
		if want := x.want + olderText; text != want {
			t.Errorf("%s: %q, want %q", x.name, text, want)
		}
	}
}
