package scheduler_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

func asError(err error, to **spec.Error) bool { return errors.As(err, to) }

// sbatch submits a job. Options are sbatch's own; -q, -J and the like may
// stand together with their value (-N2). --test-only prints the prediction.
//
//	$ sbatch -J train -N2 --gres=gpu:8 -t 1:00:00
//	Submitted batch job 7
func sbatch(s *session, args []string) error {
	args = args[1:]
	var rest []*spec.JobSpec
	for i := len(args) - 1; i >= 0; i-- {
		if args[i] == ":" {
			js, _, err := s.jobSpec(args[i+1:])
			if err != nil {
				return err
			}
			if js.Name == "wrap" { // none was given
				js.Name = ""
			}
			rest, args = append([]*spec.JobSpec{js}, rest...), args[:i]
		}
	}
	js, testOnly, err := s.jobSpec(args)
	if err != nil {
		return err
	}
	if testOnly {
		a, err := scheduler.TestOnly(s.head.Freeze(), scheduler.Submit{Spec: js, Rest: rest}, s.now, s.actor())
		if errors.Is(err, scheduler.ErrNoStart) {
			s.printf("no start can be predicted (%s)\n", a.Reason)
			return nil
		}
		if err != nil {
			return err
		}
		s.printf("Job to start at %s using %d processors on nodes %s in partition %s\n", when(a.Start), a.CPUs, s.nodeNames(a.Nodes), a.Partition)
		return nil
	}
	res, err := s.decide(scheduler.Submit{Spec: js, Rest: rest})
	if err != nil {
		return err
	}
	s.printf("Submitted batch job %d\n", res.ID)
	return nil
}

func (s *session) nodeNames(ids []spec.NodeID) string {
	var names []string
	for _, id := range ids {
		names = append(names, s.head.NodeByID(id).Spec.Name)
	}
	return hostlist.Fold(names)
}

// option is one sbatch option with its value.
type option struct{ name, value string }

func options(args []string) []option {
	short := map[byte]string{'J': "job-name", 'N': "nodes", 'n': "ntasks", 'c': "cpus-per-task", 't': "time", 'p': "partition", 'q': "qos",
		'A': "account", 'd': "dependency", 'a': "array", 'w': "nodelist", 'x': "exclude", 'C': "constraint", 'b': "begin", 'H': "hold", 'G': "gpus", 'L': "licenses"}
	var out []option
	for i := 0; i < len(args); i++ {
		a := args[i]
		if long, ok := strings.CutPrefix(a, "--"); ok {
			name, value, _ := strings.Cut(long, "=")
			out = append(out, option{name, value})
			continue
		}
		name := short[a[1]]
		switch {
		case name == "hold":
			out = append(out, option{name, ""})
		case len(a) > 2:
			out = append(out, option{name, a[2:]})
		default:
			i++
			out = append(out, option{name, args[i]})
		}
	}
	return out
}

func (s *session) jobSpec(args []string) (js *spec.JobSpec, testOnly bool, err error) {
	js = &spec.JobSpec{Name: "wrap", UID: uidOf(s.user), GID: 100, User: s.user, Group: "users"}
	for _, o := range options(args) {
		if o.name == "test-only" {
			testOnly = true
			continue
		}
		if err := s.option(js, o); err != nil {
			return nil, false, err
		}
	}
	return js, testOnly, nil
}

func (s *session) option(js *spec.JobSpec, o option) error {
	v := o.value
	switch o.name {
	case "job-name":
		js.Name = v
	case "partition":
		js.Partitions = strings.Split(v, ",")
	case "qos":
		js.QOS = v
	case "wckey":
		js.WCKey = v
	case "account":
		js.Account = v
	case "nodes":
		lo, hi, ranged := strings.Cut(v, "-")
		js.Size.MinNodes, js.Size.MaxNodes = num(lo), num(lo)
		if ranged {
			js.Size.MaxNodes = num(hi)
		}
	case "ntasks":
		js.Size.Tasks = num(v)
	case "ntasks-per-node":
		js.Size.TasksPerNode = num(v)
	case "ntasks-per-gpu":
		js.Size.TasksPerGPU = num(v)
	case "cpus-per-task":
		js.Size.CPUsPerTask = num(v)
	case "cpus-per-gpu":
		js.Size.CPUsPerGPU = num(v)
	case "mincpus":
		js.Size.MinCPUsPerNode = num(v)
	case "tmp":
		js.Size.TmpDisk = mem(v)
	case "mem":
		js.Size.MemPerNode, js.Size.AllMem = mem(v), v == "0"
	case "mem-per-cpu":
		js.Size.MemPerCPU = mem(v)
	case "mem-per-gpu":
		js.Size.MemPerGPU = mem(v)
	case "gres":
		js.Size.PerNode = counts(v, "")
	case "gpus-per-node":
		js.Size.PerNode = append(js.Size.PerNode, counts(v, "gpu")...)
	case "gpus-per-task":
		js.Size.PerTask = counts(v, "gpu")
	case "gpus":
		js.Size.PerJob = counts(v, "gpu")
	case "licenses":
		js.AnyLicense = strings.Contains(v, "|")
		js.Licenses = counts(strings.ReplaceAll(v, "|", ","), "")
	default:
		return s.queueOption(js, o)
	}
	return nil
}

func (s *session) queueOption(js *spec.JobSpec, o option) error {
	v := o.value
	switch o.name {
	case "time":
		js.Time.Limit = span(v)
	case "begin":
		js.Time.Begin = s.now.Add(span(strings.TrimPrefix(v, "now+")))
	case "deadline":
		js.Time.Deadline = s.now.Add(span(strings.TrimPrefix(v, "now+")))
	case "signal":
		e, err := format.ParseEarlySignal(v)
		if err != nil {
			return err
		}
		js.Time.Signal, js.Time.SignalBefore = int32(e.Number), spec.Seconds(e.Before)
		js.Time.SignalBatch, js.Time.SignalResv = e.Batch, e.Overlap
	case "nodelist":
		js.Place.Nodes = v
	case "reservation":
		js.Place.Reservation = v
	case "exclude":
		js.Place.Exclude = v
	case "switches":
		n, wait, _ := strings.Cut(v, "@")
		js.Place.Switches = num(n)
		if wait != "" {
			js.Place.SwitchWait = span(wait)
		}
	case "prefer":
		js.Place.Prefer = v
	case "time-min":
		js.Time.Min = span(v)
	case "threads-per-core":
		js.Size.ThreadsPerCore = num(v)
	case "ntasks-per-core":
		js.Size.TasksPerCore = num(v)
	case "constraint":
		js.Place.Constraint = v
	case "exclusive":
		js.Place.Sharing = map[string]spec.Sharing{"": spec.Exclusive, "user": spec.ExclusiveUser, "mcs": spec.ExclusiveMCS, "topo": spec.ExclusiveTopo}[v]
	case "oversubscribe":
		js.Place.Sharing = spec.Oversubscribe
	case "ntasks-per-socket":
		js.Size.TasksPerSocket = num(v)
	case "sockets-per-node":
		js.Size.SocketsPerNode = num(v)
	case "cores-per-socket":
		js.Size.CoresPerSocket = num(v)
	case "gpus-per-socket":
		js.Size.PerSocket = counts(v, "gpu")
	case "core-spec":
		js.Size.CoreSpec = num(v)
	case "group": // as which it is submitted
		js.Group = v
	case "reboot":
		js.Queue.Reboot = true
	case "thread-spec":
		js.Size.ThreadSpec = num(v)
	case "overcommit":
		js.Size.Overcommit = true
	case "use-min-nodes":
		js.Size.FewestNodes = true
	case "segment":
		js.Place.Segment = num(v)
	case "spread-segments":
		js.Place.ApartSegments = true
	case "spread-job":
		js.Place.Spread = true
	case "contiguous":
		js.Place.Contiguous = true
	case "hold":
		js.Queue.Hold = spec.HeldByUser
	case "nice":
		n, _ := strconv.Atoi(v)
		js.Queue.Nice = int32(n)
	case "priority":
		js.Queue.Priority = num(v)
	case "requeue":
		js.Queue.Requeue = spec.Yes
	case "no-requeue":
		js.Queue.Requeue = spec.No
	case "no-kill":
		js.Queue.NoKill = true
	case "kill-on-invalid-dep":
		js.Queue.KillInvalid = map[string]spec.Tri{"yes": spec.Yes, "no": spec.No}[v]
	case "dependency":
		d, err := spec.ParseDependency(v)
		if err != nil {
			return spec.Refuse(spec.CodeDependencyProblem, err.Error())
		}
		js.Queue.Dependency = d
	case "array":
		ask, throttle, _ := strings.Cut(v, "%")
		a, err := format.ParseArray(ask)
		if err != nil {
			return spec.Refuse(spec.CodeInvalidArray, "")
		}
		var set spec.TaskSet
		for _, r := range a.Ranges {
			set = append(set, spec.TaskRange{First: int64(r.First), Last: int64(r.Last), Step: int64(r.Step)})
		}
		js.Queue.Array = spec.NewArrayAsk(set, num(throttle))
	default:
		return fmt.Errorf("unrecognized option '--%s'", o.name)
	}
	return nil
}

func num(v string) uint32 {
	n, _ := strconv.ParseUint(v, 10, 32)
	return uint32(n)
}

func mem(v string) int64 {
	n, err := format.ParseMemory(v)
	if err != nil {
		panic(err)
	}
	return n
}

// span reads 10s, 5m, 2h and Slurm's own forms.
func span(v string) spec.Span {
	units := map[byte]spec.Span{'s': spec.Second, 'm': spec.Minute, 'h': spec.Hour, 'd': spec.Day}
	if u, ok := units[v[len(v)-1]]; ok {
		n, err := strconv.Atoi(v[:len(v)-1])
		if err != nil {
			panic(err)
		}
		return spec.Span(n) * u
	}
	sec, err := format.ParseDuration(v)
	if err != nil {
		panic(err)
	}
	return spec.Seconds(sec)
}

// counts reads gpu:2, gpu:a100:2,nic:1, and 2 or a100:2 where only the amount
// of one thing is meant.
func counts(v, name string) []spec.Count {
	var out []spec.Count
	for _, item := range strings.Split(v, ",") {
		c := spec.Count{Name: name, N: 1}
		for _, f := range strings.Split(item, ":") {
			n, err := strconv.ParseInt(f, 10, 64)
			switch {
			case err == nil:
				c.N = n
			case c.Name == "":
				c.Name = f
			default:
				c.Type = f
			}
		}
		out = append(out, c)
	}
	return out
}
