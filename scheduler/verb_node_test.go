package scheduler_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// register presents the inventory of nodes, by default what is configured.
// boot= is another life of the machine; cpus=, mem= and gpus= differ from the
// configuration; describe=KEYS is an agent that describes its node itself;
// links=4 puts GPUs into groups of four that are linked.
//
//	$ register n[1-2] boot=2
func register(s *session, args []string) error {
	opt := map[string]string{"boot": "1"}
	for _, a := range args[2:] {
		k, v, _ := strings.Cut(a, "=")
		opt[k] = v
	}
	names, err := hostlist.Expand(args[1])
	if err != nil {
		return err
	}
	for _, name := range names {
		cmd := scheduler.RegisterNode{Node: name, Inventory: s.inventory(name, opt)}
		if keys, ok := opt["describe"]; ok {
			list, err := slurmconf.ReadNode("NodeName="+name+" "+keys, s.head.Config)
			if err != nil {
				return spec.Refuse(spec.CodeBadRequest, err.Error())
			}
			cmd.Dynamic = &list[0]
			cmd.Inventory.CPUs, cmd.Inventory.Mem = list[0].CPUs, list[0].Mem
		}
		if _, err := s.decide(cmd); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) inventory(name string, opt map[string]string) spec.Inventory {
	inv := spec.Inventory{BootID: opt["boot"]}
	n := s.head.Node(name)
	if n == nil {
		return inv
	}
	inv.CPUs, inv.Mem, inv.ThreadsPerCore = n.Spec.CPUs, n.Spec.Mem, n.Spec.ThreadsPerCore
	for _, g := range n.Spec.GRES {
		if g.Name != "gpu" {
			inv.GRES = append(inv.GRES, spec.Count{Name: g.Name, Type: g.Type, N: g.N})
			continue
		}
		for range g.N {
			i := len(inv.GPUs)
			inv.GPUs = append(inv.GPUs, spec.GPU{Index: uint32(i), UUID: fmt.Sprintf("GPU-%s-%s-%d", name, opt["boot"], i), Type: g.Type})
		}
	}
	number := func(key string, to func(n int)) {
		if v, ok := opt[key]; ok {
			n, err := strconv.Atoi(v)
			if err != nil {
				s.t.Fatal(err)
			}
			to(n)
		}
	}
	number("cpus", func(n int) { inv.CPUs = int64(n) })
	number("mem", func(n int) { inv.Mem = int64(n) })
	number("gpus", func(n int) { inv.GPUs = inv.GPUs[:n] })
	number("links", func(n int) {
		for i := range inv.GPUs {
			inv.GPUs[i].Links = make([]int32, len(inv.GPUs))
			for k := range inv.GPUs {
				if i/n == k/n && i != k {
					inv.GPUs[i].Links[k] = 1
				}
			}
		}
	})
	return inv
}

// changeNodes adds nodes or takes such nodes away.
//
//	$ node create NodeName=d[1-2] CPUs=4 Feature=spot
//	$ node delete d1
//	$ node change n1 weight=5 features=a,b active=a reason=look
func changeNodes(s *session, args []string) error {
	if args[1] == "change" {
		names, err := hostlist.Expand(args[2])
		if err != nil {
			return err
		}
		cmd := scheduler.UpdateNodes{Nodes: names}
		for _, a := range args[3:] {
			k, v, _ := strings.Cut(a, "=")
			list := strings.FieldsFunc(v, func(c rune) bool { return c == ',' })
			switch k {
			case "weight":
				n, _ := strconv.Atoi(v)
				w := uint32(n)
				cmd.Weight = &w
			case "features":
				cmd.Available = &list
			case "active":
				cmd.Active = &list
			case "reason":
				cmd.Reason = &v
			}
		}
		_, err = s.decide(cmd)
		return err
	}
	if args[1] == "delete" {
		names, err := hostlist.Expand(args[2])
		if err != nil {
			return err
		}
		_, err = s.decide(scheduler.DeleteNodes{Nodes: names})
		return err
	}
	list, err := slurmconf.ReadNode(strings.Join(args[2:], " "), s.head.Config)
	if err != nil {
		return spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	_, err = s.decide(scheduler.CreateNodes{Nodes: list})
	return err
}

// changePartition sets keys of a partition anew, as scontrol update does.
//
//	$ partition gpu State=DOWN MaxTime=30
//	$ partition new create Nodes=n1 Default=YES
//	$ partition new delete
func changePartition(s *session, args []string) error {
	var set []spec.KeyValue
	if len(args) == 3 && args[2] == "delete" {
		_, err := s.decide(scheduler.DeletePartition{Name: args[1]})
		return err
	}
	create := len(args) > 2 && args[2] == "create"
	if create {
		args = args[1:]
	}
	for _, a := range args[2:] {
		k, v, _ := strings.Cut(a, "=")
		set = append(set, spec.KeyValue{Key: k, Value: v})
	}
	if create {
		next, said, err := slurmconf.NewPartition(args[0], set, s.head.Config)
		for _, line := range said {
			s.printf("warning: %s\n", line)
		}
		if err != nil {
			return spec.Refuse(spec.CodeBadRequest, err.Error())
		}
		_, err = s.decide(scheduler.CreatePartition{New: next})
		return err
	}
	was := spec.PartitionSpec{Name: args[1]}
	if p := s.head.Parts.Find(args[1]); p != nil {
		was = *p.Spec
	}
	next, said, err := slurmconf.ChangePartition(was, set, s.head.Config)
	for _, line := range said {
		s.printf("warning: %s\n", line)
	}
	if err != nil {
		return spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	_, err = s.decide(scheduler.UpdatePartition{Old: was, New: next, Nodes: slurmconf.ChangesNodes(set)})
	return err
}

// setNode is drain, resume and down: nodes, then the reason.
//
//	$ drain n1 'gpu xid 79'
func setNode(s *session, args []string) error {
	to := map[string]event.NodeAdminState{"drain": event.NodeDrain, "resume": event.NodeResume, "down": event.NodeDown}[args[0]]
	return s.eachNode(args[1], func(name string) scheduler.Command {
		return scheduler.UpdateNodes{Nodes: []string{name}, State: to, Reason: new(strings.Join(args[2:], " "))}
	})
}

// lost tells that nodes have gone silent.
//
//	$ lost n1
func lost(s *session, args []string) error {
	return s.eachNode(args[1], func(name string) scheduler.Command { return scheduler.NodeSilent{Node: name, LastSeen: s.now} })
}

// unready tells that the agents of nodes answer and can start nothing.
//
//	$ unready n1 the shepherd does not answer
func unready(s *session, args []string) error {
	why := strings.Join(args[2:], " ")
	return s.eachNode(args[1], func(name string) scheduler.Command {
		return scheduler.NodeUnready{Node: name, Why: why, LastSeen: s.now}
	})
}

// fenced is scontrol update nodename=X state=fenced.
//
//	$ fenced n1
func fenced(s *session, args []string) error {
	names, err := hostlist.Expand(args[1])
	if err != nil {
		return err
	}
	_, err = s.decide(scheduler.UpdateNodes{Nodes: names, Power: scheduler.DeclareFenced{Nodes: names}})
	return err
}

// returned tells that nodes answer again.
//
//	$ return n1
func returned(s *session, args []string) error {
	return s.eachNode(args[1], func(name string) scheduler.Command { return scheduler.NodeHeard{Node: name} })
}

func (s *session) eachNode(expr string, cmd func(name string) scheduler.Command) error {
	names, err := hostlist.Expand(expr)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := s.decide(cmd(name)); err != nil {
			return err
		}
	}
	return nil
}
