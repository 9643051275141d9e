package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// setter changes one field from its text; -1 clears a limit.
type setter func(v string, mode byte) error

// option is a field under all its names, the long one first; the beginning of
// a name does where it means one option only.
type option struct {
	names string
	set   setter
}

func errText(text string) error { return errors.New(text) }

// setQOS applies option=value pairs to a QOS; clear says that its use shall
// be forgotten.
//
//muster:table one entry for each option, with its long and short names
func setQOS(policy *state.Policy, qos *spec.QOS, set []spec.KeyValue) (clear bool, err error) {
	err = applyOptions("qos", []option{
		{"description", setText(&qos.Description)},
		{"flags", setFlags(&qos.Flags)},
		{"gracetime", seconds(&qos.GraceTime)},
		{"grpjobs", count(&qos.GrpJobs)},
		{"grpjobsaccrue", count(&qos.GrpJobsAccrue)},
		{"grpsubmitjobs grpsubmit", count(&qos.GrpSubmitJobs)},
		{"grptres", setTRES(&qos.GrpTRES)},
		{"grptresmins", setTRES(&qos.GrpTRESMins)},
		{"grptresrunmins", setTRES(&qos.GrpTRESRunMins)},
		{"grpwall", parseSpan(&qos.GrpWall)},
		{"limitfactor", micros(&qos.LimitFactor)},
		{"maxjobsaccrueperaccount maxjobsaccruepa maxjobsaccrueperacct", count(&qos.MaxAccruePerAcct)},
		{"maxjobsaccrueperuser maxjobsaccruepu", count(&qos.MaxAccruePerUser)},
		{"maxjobsperaccount maxjobspa maxjobsperacct", count(&qos.MaxJobsPerAcct)},
		{"maxjobsperuser maxjobspu maxjobs", count(&qos.MaxJobsPerUser)},
		{"maxsubmitjobsperaccount maxsubmitjobspa maxsubmitpa maxsubmitjobsperacct maxsubmitperaccount", count(&qos.MaxSubmitPerAcct)},
		{"maxsubmitjobsperuser maxsubmitjobspu maxsubmitpu maxsubmitjobs maxsubmit maxsubmitperuser", count(&qos.MaxSubmitPerUser)},
		{"maxtresperjob maxtres maxtrespj", setTRES(&qos.MaxTRESPerJob)},
		{"maxtresminsperjob maxtresmins maxtresminspj", setTRES(&qos.MaxTRESMins)},
		{"maxtresperaccount maxtrespa maxtresperacct", setTRES(&qos.MaxTRESPerAcct)},
		{"maxtrespernode maxtrespn", setTRES(&qos.MaxTRESPerNode)},
		{"maxtresperuser maxtrespu", setTRES(&qos.MaxTRESPerUser)},
		{"maxtresrunminsperaccount maxtresrunminspa maxtresrunminsperacct", setTRES(&qos.MaxRunMinsAcct)},
		{"maxtresrunminsperuser maxtresrunminspu maxtresrunmins", setTRES(&qos.MaxRunMinsUser)},
		{"maxwalldurationperjob maxwall maxwallpj", parseSpan(&qos.MaxWall)},
		{"minpriothreshold minprio minpriothresh", count(&qos.MinPrio)},
		{"mintresperjob mintres mintrespj", setTRES(&qos.MinTRESPerJob)},
		{"preempt", setPreempts(policy, qos)},
		{"preemptexempttime", parseSpan(&qos.PreemptExempt)},
		{"preemptmode", preemptMode(&qos.PreemptMode)},
		{"priority", number32(&qos.Priority)},
		{"rawusage", rawUsage(&clear)},
		{"usagefactor", usageFactor(&qos.UsageFactor)},
		{"usagethreshold", threshold(&qos.UsageThreshold)},
		// Names of the time before TRES.
		{"grpcpus grpcpu", tresOf(&qos.GrpTRES, "cpu")}, {"grpmemory grpmem", tresOf(&qos.GrpTRES, "mem")}, {"grpnodes grpnode", tresOf(&qos.GrpTRES, "node")},
		{"grpcpumins", tresOf(&qos.GrpTRESMins, "cpu")}, {"grpcpurunmins", tresOf(&qos.GrpTRESRunMins, "cpu")},
		{"maxcpusperjob maxcpus", tresOf(&qos.MaxTRESPerJob, "cpu")}, {"maxnodesperjob maxnodes", tresOf(&qos.MaxTRESPerJob, "node")},
		{"maxcpuminsperjob maxcpumins", tresOf(&qos.MaxTRESMins, "cpu")}, {"mincpusperjob mincpus", tresOf(&qos.MinTRESPerJob, "cpu")},
		{"maxcpusperuser maxcpuspu", tresOf(&qos.MaxTRESPerUser, "cpu")}, {"maxnodesperuser maxnodespu", tresOf(&qos.MaxTRESPerUser, "node")},
	}, []string{"name", "names", "cluster", "clusters"}, set)
	return clear, err
}

// setAssoc applies option=value pairs to an association; keys of other
// entities in the same command are skipped.
//
//muster:table one entry for each option, with its long and short names
func setAssoc(
	policy *state.Policy, assoc *spec.Association, set []spec.KeyValue, skip []string,
) (clear bool, err error) {
	err = applyOptions("association", []option{
		{"comment", setText(&assoc.Comment)},
		{"defaultqos defqos", defaultQOS(policy, &assoc.DefaultQOS)},
		{"fairshare shares share", func(value string, mode byte) error {
			assoc.SharesParent = strings.EqualFold(value, "parent")
			if assoc.SharesParent {
				return nil
			}
			if value == "-1" {
				value = "1"
			}
			return shares(&assoc.Shares)(value, mode)
		}},
		{"grpjobs", count(&assoc.GrpJobs)},
		{"grpjobsaccrue", count(&assoc.GrpJobsAccrue)},
		{"grpsubmitjobs grpsubmit", count(&assoc.GrpSubmitJobs)},
		{"grptres", setTRES(&assoc.GrpTRES)},
		{"grptresmins", setTRES(&assoc.GrpTRESMins)},
		{"grptresrunmins", setTRES(&assoc.GrpTRESRunMins)},
		{"grpwall", parseSpan(&assoc.GrpWall)},
		{"guaranteedtres guaranteed", setGuaranteed(assoc)},
		{"maxjobs", count(&assoc.MaxJobs)},
		{"maxjobsaccrue", count(&assoc.MaxJobsAccrue)},
		{"maxsubmitjobs maxsubmit", count(&assoc.MaxSubmitJobs)},
		{"maxtresperjob maxtres maxtrespj", setTRES(&assoc.MaxTRESPerJob)},
		{"maxtresminsperjob maxtresmins maxtresminspj", setTRES(&assoc.MaxTRESMins)},
		{"maxtrespernode maxtrespn", setTRES(&assoc.MaxTRESPerNode)},
		{"maxwalldurationperjob maxwall maxwallpj", parseSpan(&assoc.MaxWall)},
		{"minpriothreshold minprio minpriothresh", count(&assoc.MinPrio)},
		{"overquotaweight overquota", overQuota(assoc)},
		{"priority", number32(&assoc.Priority)},
		{"qoslevel qos", func(v string, mode byte) error {
			return setQOSList(policy, assoc, v, mode)
		}},
		{"rawusage", rawUsage(&clear)},
		{"grpcpus grpcpu", tresOf(&assoc.GrpTRES, "cpu")}, {"grpmemory grpmem", tresOf(&assoc.GrpTRES, "mem")}, {"grpnodes grpnode", tresOf(&assoc.GrpTRES, "node")},
		{"grpcpumins", tresOf(&assoc.GrpTRESMins, "cpu")}, {"grpcpurunmins", tresOf(&assoc.GrpTRESRunMins, "cpu")},
		{"maxcpusperjob maxcpus", tresOf(&assoc.MaxTRESPerJob, "cpu")}, {"maxnodesperjob maxnodes", tresOf(&assoc.MaxTRESPerJob, "node")},
		{"maxcpuminsperjob maxcpumins", tresOf(&assoc.MaxTRESMins, "cpu")},
	}, skip, set)
	return clear, err
}

// setGuaranteed sets what an account can always have.
func setGuaranteed(assoc *spec.Association) setter {
	set := setTRES(&assoc.Guaranteed)
	return func(value string, mode byte) error {
		if assoc.User != "" {
			return errors.New("what is guaranteed is the account's, not a user's")
		}
		return set(value, mode)
	}
}

// overQuota sets with what weight an account keeps what is not guaranteed to it.
func overQuota(assoc *spec.Association) setter {
	set := count(&assoc.OverQuota)
	return func(value string, mode byte) error {
		if assoc.User != "" {
			return errors.New("the weight is the account's, not a user's")
		}
		return set(value, mode)
	}
}

// badQOS says that a QOS does not exist, in Slurm's words.
func badQOS(policy *state.Policy, name string) error {
	list := slices.Clone(policy.QOS)
	slices.SortFunc(list, func(a, b spec.QOS) int { return int(a.ID) - int(b.ID) })
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return &unknownQOS{name, names}
}

// unknownQOS is the error of a QOS that does not exist, in Slurm's words.
type unknownQOS struct {
	name  string
	known []string
}

func (e *unknownQOS) Error() string {
	return fmt.Sprintf(
		"You gave a bad qos '%s'. Valid QOS's are %s",
		e.name,
		strings.Join(e.known, ","),
	)
}

// setQOSList changes the allowed QOS; += and -= work on what is inherited
// when the association has no list of its own.
func setQOSList(policy *state.Policy, assoc *spec.Association, value string, mode byte) error {
	if value == "-1" || strings.TrimSpace(value) == "" {
		assoc.QOS = nil
		return nil
	}
	var add, remove, exact []string
	for _, name := range strings.Split(value, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		sign := mode
		if name[0] == '+' || name[0] == '-' {
			sign, name = name[0], name[1:]
		}
		if policy.FindQOS(name) == nil {
			return badQOS(policy, name)
		}
		switch sign {
		case '+':
			add = append(add, name)
		case '-':
			remove = append(remove, name)
		default:
			exact = append(exact, name)
		}
	}
	base := exact
	if len(exact) == 0 {
		base = slices.Clone(inheritedQOS(policy, assoc))
	}
	for _, n := range add {
		if !slices.Contains(base, n) {
			base = append(base, n)
		}
	}
	assoc.QOS = slices.DeleteFunc(base, func(n string) bool { return slices.Contains(remove, n) })
	return nil
}

// inheritedQOS are the QOS in force for an association.
func inheritedQOS(policy *state.Policy, assoc *spec.Association) []string {
	if len(assoc.QOS) > 0 {
		return assoc.QOS
	}
	for _, up := range policy.Chain(assoc.Parent) {
		if len(up.QOS) > 0 {
			return up.QOS
		}
	}
	return []string{"normal"} // what is allowed where there is no list
}

// unknownOption is a key that an entity does not have, and the key that is nearest to it;
// empty = none is near.
func unknownOption(entity, key, nearest string) spec.Unknown {
	return spec.Unknown{Kind: "option", Word: key, Of: withArticle(entity), Nearest: nearest}
}

func nearestOption(options []option, key string) string {
	var names []string
	for i := range options {
		names = append(names, strings.Fields(options[i].names)...)
	}
	return spec.Nearest(key, names)
}

// findOption resolves the name of an option: exactly, or by a beginning of at least three
// letters. Where names of several options begin so, the shortest is meant if it is
// itself the beginning of all others: maxjob is maxjobs, not maxjobsaccrue.
func findOption(options []option, key string) *option {
	var out *option
	shortest := ""
	var matches []string
	for i := range options {
		for _, name := range strings.Fields(options[i].names) {
			switch {
			case name == key:
				return &options[i]
			case len(key) < 3 || !strings.HasPrefix(name, key):
				continue
			case out == nil || len(name) < len(shortest):
				out, shortest = &options[i], name
			}
			matches = append(matches, name)
		}
	}
	several := slices.ContainsFunc(matches, func(name string) bool {
		return !strings.HasPrefix(name, shortest) &&
			!slices.Contains(strings.Fields(out.names), name)
	})
	if several {
		return nil
	}
	return out
}

// applyOptions runs the setters of the given pairs and reports every fault at once.
func applyOptions(what string, options []option, skip []string, set []spec.KeyValue) error {
	var faults []string
	var unknown *spec.Unknown // the first one
	for _, kv := range set {
		key, mode := strings.ToLower(kv.Key), byte(0)
		if n := len(key); n > 0 && (key[n-1] == '+' || key[n-1] == '-') {
			key, mode = key[:n-1], key[n-1]
		}
		if slices.Contains(skip, key) {
			continue
		}
		o := findOption(options, key)
		if o == nil {
			word := unknownOption(what, kv.Key, nearestOption(options, key))
			faults = append(faults, word.String())
			if unknown == nil {
				unknown = &word
			}
			continue
		}
		if err := o.set(kv.Value, mode); err != nil {
			if bad := (*unknownQOS)(nil); errors.As(err, &bad) {
				faults = append(faults, bad.Error())
				continue
			}
			faults = append(faults, fmt.Sprintf("%s=%s: %v", kv.Key, kv.Value, err))
		}
	}
	if faults != nil {
		refusal := spec.Refuse(spec.CodeBadRequest, strings.Join(faults, "; "))
		refusal.Unknown = unknown
		return refusal
	}
	return nil
}

func setText(to *string) setter {
	return func(v string, _ byte) error { *to = v; return nil }
}

func number32(to *uint32) setter {
	return func(value string, _ byte) error {
		if value == "-1" {
			value = "0"
		}
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return errText("not a whole number")
		}
		*to = uint32(n)
		return nil
	}
}

func setWhole(to *int64) setter {
	return func(v string, _ byte) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt32 {
			return errText("not a whole number")
		}
		*to = n
		return nil
	}
}

func shares(to *int64) setter {
	return func(v string, mode byte) error {
		if err := setWhole(to)(v, mode); err != nil {
			return err
		}
		if *to == 0 {
			*to = spec.NoShares
		}
		return nil
	}
}

func count(to **int64) setter {
	return func(v string, _ byte) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < -1 {
			return errText("not a whole number")
		}
		*to = &n
		if n == -1 {
			*to = nil
		}
		return nil
	}
}

// parseSpan reads a wall time; a plain number is minutes, as in Slurm.
func parseSpan(to *spec.Span) setter {
	return func(value string, _ byte) error {
		if value == "-1" {
			*to = 0
			return nil
		}
		sec, err := format.ParseDuration(value)
		switch {
		case err != nil:
			return err
		case sec == format.Infinite:
			*to = 0
		case sec == 0:
			return errText("no time at all would let nothing run; -1 removes the limit")
		default:
			*to = spec.Seconds(sec)
		}
		return nil
	}
}

func seconds(to *spec.Span) setter {
	return func(v string, _ byte) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return errText("not a number of seconds")
		}
		*to = spec.Seconds(n)
		return nil
	}
}

// parseDecimal reads 0.5 as 500000 millionths.
func parseDecimal(value string) (int64, error) {
	head, frac, _ := strings.Cut(value, ".")
	if head == "" {
		head = "0"
	}
	if len(frac) > 6 {
		frac = frac[:6]
	}
	n, err := strconv.ParseInt(head+frac+strings.Repeat("0", 6-len(frac)), 10, 64)
	if err != nil || n < 0 || n > 1e15 {
		return 0, errText("not a number of at least 0")
	}
	return n, nil
}

func micros(to *int64) setter {
	return func(value string, _ byte) error {
		if value == "-1" {
			*to = 0
			return nil
		}
		n, err := parseDecimal(value)
		*to = n
		return err
	}
}

// usageFactor keeps a factor of 0 as negative, since 0 stands for 1.
func usageFactor(to *int64) setter {
	return func(value string, _ byte) error {
		if value == "-1" {
			*to = 0
			return nil
		}
		n, err := parseDecimal(value)
		*to = n
		if n == 0 {
			*to = -1
		}
		return err
	}
}

func threshold(to **int64) setter {
	return func(value string, _ byte) error {
		if value == "-1" {
			*to = nil
			return nil
		}
		n, err := parseDecimal(value)
		*to = &n
		return err
	}
}

func rawUsage(clear *bool) setter {
	return func(v string, _ byte) error {
		if n, err := parseDecimal(v); err != nil || n != 0 {
			return errText("use can only be set to 0")
		}
		*clear = true
		return nil
	}
}

func defaultQOS(policy *state.Policy, to *string) setter {
	return func(value string, _ byte) error {
		if value == "-1" {
			value = ""
		}
		if value != "" && policy.FindQOS(value) == nil {
			return badQOS(policy, value)
		}
		*to = value
		return nil
	}
}

// setTRES changes only the named entries of a limit; -1 clears one.
func setTRES(to *spec.Limits) setter {
	return func(v string, _ byte) error {
		given, err := spec.ParseLimits(v)
		if err != nil {
			return err
		}
		out := slices.Clone(*to)
		for _, g := range given {
			out = slices.DeleteFunc(out, func(c spec.TRESCount) bool { return c.Name == g.Name })
			if g.N >= 0 {
				out = append(out, g)
			}
		}
		*to = out
		return nil
	}
}

func tresOf(to *spec.Limits, name string) setter {
	return func(v string, mode byte) error { return setTRES(to)(name+"="+v, mode) }
}

// QOSFlags are the flags of QOS that mean something here.
func QOSFlags() []string {
	return []string{
		"DenyOnLimit",
		"EnforceUsageThreshold",
		"NoDecay",
		"NoReserve",
		"OverPartQOS",
		"PartitionMaxNodes",
		"PartitionMinNodes",
		"PartitionTimeLimit",
		limits.Relative,
		"RequiresReservation",
		"UsageFactorSafe",
	}
}

// setFlags replaces, adds (+=) or removes (-=) QOS flags.
func setFlags(to *[]string) setter {
	return func(v string, mode byte) error {
		known := QOSFlags()
		var names []string
		for _, name := range strings.Split(v, ",") {
			if name == "" || name == "-1" {
				continue
			}
			i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
			if i < 0 {
				return fmt.Errorf("flag %q is not known (%s are)", name, strings.Join(known, ", "))
			}
			names = append(names, known[i])
		}
		switch mode {
		case '+':
			for _, n := range names {
				if !slices.Contains(*to, n) {
					*to = append(slices.Clone(*to), n)
				}
			}
		case '-':
			*to = slices.DeleteFunc(
				slices.Clone(*to),
				func(f string) bool { return slices.Contains(names, f) },
			)
		default:
			*to = names
		}
		return nil
	}
}
