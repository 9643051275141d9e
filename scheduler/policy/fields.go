package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// setter changes one field from its text; -1 clears a limit.
type setter func(v string, mode byte) error

// setQOS applies option=value pairs to a QOS.
//
//muster:table one entry for each option, with its long and short names
func setQOS(pol *state.Policy, q *spec.QOS, set []spec.KeyValue) error {
	fields := map[string]setter{
		"description": text(&q.Description), "priority": number32(&q.Priority),
		"maxwall": span(&q.MaxWall), "maxwalldurationperjob": span(&q.MaxWall), "grpwall": span(&q.GrpWall), "gracetime": seconds(&q.GraceTime),
		"preempt": preempts(pol, q), "preemptmode": preemptMode(&q.PreemptMode), "preemptexempttime": span(&q.PreemptExempt),
		"maxtres": tres(&q.MaxTRESPerJob), "maxtresperjob": tres(&q.MaxTRESPerJob), "maxtrespj": tres(&q.MaxTRESPerJob),
		"maxtrespernode": tres(&q.MaxTRESPerNode), "maxtrespn": tres(&q.MaxTRESPerNode),
		"maxtresperuser": tres(&q.MaxTRESPerUser), "maxtrespu": tres(&q.MaxTRESPerUser),
		"maxtresperaccount": tres(&q.MaxTRESPerAcct), "maxtrespa": tres(&q.MaxTRESPerAcct),
		"mintres": tres(&q.MinTRESPerJob), "mintresperjob": tres(&q.MinTRESPerJob),
		"grptres": tres(&q.GrpTRES), "grpjobs": count(&q.GrpJobs), "grpsubmitjobs": count(&q.GrpSubmitJobs), "grpsubmit": count(&q.GrpSubmitJobs),
		"maxjobsperuser": count(&q.MaxJobsPerUser), "maxjobspu": count(&q.MaxJobsPerUser), "maxjobs": count(&q.MaxJobsPerUser),
		"maxsubmitjobsperuser": count(&q.MaxSubmitPerUser), "maxsubmitjobspu": count(&q.MaxSubmitPerUser), "maxsubmitpu": count(&q.MaxSubmitPerUser), "maxsubmitjobs": count(&q.MaxSubmitPerUser),
		"maxjobsperaccount": count(&q.MaxJobsPerAcct), "maxjobspa": count(&q.MaxJobsPerAcct),
		"maxsubmitjobsperaccount": count(&q.MaxSubmitPerAcct), "maxsubmitjobspa": count(&q.MaxSubmitPerAcct), "maxsubmitpa": count(&q.MaxSubmitPerAcct),
		"flags": flags(&q.Flags),
		"name":  func(string, byte) error { return nil },
	}
	later := map[string]string{
		"grptresmins": "", "grptresrunmins": "", "usagefactor": "", "usagethreshold": "",
		"maxtresmins": "", "maxtresminsperjob": "", "limitfactor": "", "minpriothreshold": "", "grpjobsaccrue": "", "maxjobsaccrueperuser": "",
	}
	return apply("qos", fields, later, nil, set)
}

// setAssoc applies option=value pairs to an association; keys of other
// entities in the same command are skipped.
//
//muster:table one entry for each option, with its long and short names
func setAssoc(pol *state.Policy, a *spec.Association, set []spec.KeyValue, skip []string) error {
	fields := map[string]setter{
		"fairshare": func(v string, mode byte) error {
			if a.SharesParent = strings.EqualFold(v, "parent"); a.SharesParent {
				return nil
			}
			return int64Of(&a.Shares)(v, mode)
		},
		"priority": number32(&a.Priority), "defaultqos": text(&a.DefaultQOS), "comment": text(&a.Comment),
		"maxjobs": count(&a.MaxJobs), "maxsubmitjobs": count(&a.MaxSubmitJobs), "maxsubmit": count(&a.MaxSubmitJobs),
		"maxwall": span(&a.MaxWall), "maxwalldurationperjob": span(&a.MaxWall),
		"maxtres": tres(&a.MaxTRESPerJob), "maxtresperjob": tres(&a.MaxTRESPerJob), "maxtrespj": tres(&a.MaxTRESPerJob),
		"maxtrespernode": tres(&a.MaxTRESPerNode), "maxtrespn": tres(&a.MaxTRESPerNode),
		"grptres": tres(&a.GrpTRES), "grpjobs": count(&a.GrpJobs), "grpsubmitjobs": count(&a.GrpSubmitJobs), "grpsubmit": count(&a.GrpSubmitJobs),
		"qos":      func(v string, mode byte) error { return setQOSList(pol, a, v, mode) },
		"qoslevel": func(v string, mode byte) error { return setQOSList(pol, a, v, mode) },
	}
	fields["shares"] = fields["fairshare"]
	later := map[string]string{"grptresmins": "", "grptresrunmins": "", "grpwall": "", "maxtresmins": "", "maxtresminsperjob": ""}
	return apply("association", fields, later, skip, set)
}

// setQOSList changes the allowed QOS; += and -= work on what is inherited
// when the association has no list of its own.
func setQOSList(pol *state.Policy, a *spec.Association, v string, mode byte) error {
	var names []string
	for _, n := range strings.Split(v, ",") {
		if n = strings.TrimSpace(n); n == "" {
			continue
		}
		if n[0] == '+' || n[0] == '-' {
			mode, n = n[0], n[1:]
		}
		if pol.FindQOS(n) == nil {
			return fmt.Errorf("unknown QOS %q", n)
		}
		names = append(names, n)
	}
	base := a.QOS
	if len(base) == 0 && mode != 0 {
		for _, up := range pol.Chain(a.Parent) {
			if len(up.QOS) > 0 {
				base = up.QOS
				break
			}
		}
		if len(base) == 0 {
			base = []string{"normal"} // what is allowed where there is no list
		}
	}
	switch mode {
	case '+':
		out := slices.Clone(base)
		for _, n := range names {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
		a.QOS = out
	case '-':
		out := slices.Clone(base)
		a.QOS = slices.DeleteFunc(out, func(n string) bool { return slices.Contains(names, n) })
	default:
		a.QOS = names
	}
	return nil
}

// apply runs the setters of the given pairs and reports every fault at once.
func apply(what string, fields map[string]setter, later map[string]string, skip []string, set []spec.KeyValue) error {
	var faults []string
	for _, kv := range set {
		key, mode := strings.ToLower(kv.Key), byte(0)
		if n := len(key); n > 0 && (key[n-1] == '+' || key[n-1] == '-') {
			key, mode = key[:n-1], key[n-1]
		}
		if slices.Contains(skip, key) {
			continue
		}
		f, ok := fields[key]
		if _, known := later[key]; known {
			faults = append(faults, fmt.Sprintf("%s of a %s is not implemented in this release", kv.Key, what))
			continue
		}
		if !ok {
			faults = append(faults, fmt.Sprintf("unknown option %s of a %s", kv.Key, what))
			continue
		}
		if err := f(kv.Value, mode); err != nil {
			faults = append(faults, fmt.Sprintf("%s=%s: %v", kv.Key, kv.Value, err))
		}
	}
	if faults != nil {
		return bad("%s", strings.Join(faults, "; "))
	}
	return nil
}

func text(to *string) setter {
	return func(v string, _ byte) error { *to = v; return nil }
}

func number32(to *uint32) setter {
	return func(v string, _ byte) error {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return fmt.Errorf("not a whole number")
		}
		*to = uint32(n)
		return nil
	}
}

func int64Of(to *int64) setter {
	return func(v string, _ byte) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("not a whole number")
		}
		*to = n
		return nil
	}
}

func count(to **int64) setter {
	return func(v string, _ byte) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < -1 {
			return fmt.Errorf("not a whole number")
		}
		*to = &n
		if n == -1 {
			*to = nil
		}
		return nil
	}
}

// span reads a wall time; a plain number is minutes, as in Slurm.
func span(to *spec.Span) setter {
	return func(v string, _ byte) error {
		if v == "-1" {
			*to = 0
			return nil
		}
		sec, err := format.ParseDuration(v)
		if err != nil {
			return err
		}
		*to = spec.Seconds(sec)
		if sec == format.Infinite {
			*to = 0
		}
		return nil
	}
}

func seconds(to *spec.Span) setter {
	return func(v string, _ byte) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("not a number of seconds")
		}
		*to = spec.Seconds(n)
		return nil
	}
}

// tres changes only the named entries of a limit; -1 clears one.
func tres(to *spec.Limits) setter {
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

// flags replaces, adds (+=) or removes (-=) QOS flags.
func flags(to *[]string) setter {
	known := []string{"DenyOnLimit", "NoReserve", "OverPartQOS"}
	return func(v string, mode byte) error {
		var names []string
		for _, n := range strings.Split(v, ",") {
			if n == "" || n == "-1" {
				continue
			}
			i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, n) })
			if i < 0 {
				return fmt.Errorf("flag %q is not implemented in this release (%s are)", n, strings.Join(known, ", "))
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
			*to = slices.DeleteFunc(slices.Clone(*to), func(f string) bool { return slices.Contains(names, f) })
		default:
			*to = names
		}
		return nil
	}
}
