package scheduler_test

import (
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec/hostlist"
)

// power powers nodes up or down: up, down, asap, force.
//
//	$ power down n1
func power(s *session, args []string) error {
	how := map[string]scheduler.PowerHow{"up": scheduler.PowerUp, "down": scheduler.PowerDown, "asap": scheduler.PowerDownASAP, "force": scheduler.PowerDownForce}
	names, err := hostlist.Expand(args[2])
	if err != nil {
		return err
	}
	_, err = s.decide(scheduler.PowerNodes{Nodes: names, How: how[args[1]]})
	return err
}

// reboot asks for nodes to be rebooted: asap, next=down, reason=…; or cancel.
//
//	$ reboot n1 asap next=resume
func reboot(s *session, args []string) error {
	names, err := hostlist.Expand(args[1])
	if err != nil {
		return err
	}
	c := scheduler.RebootNodes{Nodes: names}
	for _, a := range args[2:] {
		k, v, _ := strings.Cut(a, "=")
		switch k {
		case "asap":
			c.ASAP = true
		case "next":
			c.Next = map[string]event.NodeAdminState{"resume": event.NodeResume, "down": event.NodeDown}[v]
		case "reason":
			c.Reason = v
		case "cancel":
			_, err := s.decide(scheduler.CancelReboots{Nodes: names})
			return err
		}
	}
	_, err = s.decide(c)
	return err
}
