package daemon

import (
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// nodeChanges reads what scontrol update sets of nodes beside their state.
func nodeChanges(names []string, set []*apiv1.ConfigEntry) (scheduler.UpdateNodes, error) {
	cmd := scheduler.UpdateNodes{Nodes: names}
	for _, entry := range set {
		v := entry.GetValue()
		switch key := strings.ToLower(entry.GetKey()); key {
		case "weight":
			n, err := strconv.ParseUint(v, 10, 31)
			if err != nil {
				return cmd, spec.Refuse(spec.CodeBadRequest, "weight="+v+
					": a weight is a number below 2147483648")
			}
			w := uint32(n)
			cmd.Weight = &w
		case "features", "availablefeatures", "activefeatures":
			list, err := featureList(v)
			if err != nil {
				return cmd, err
			}
			if key == "activefeatures" {
				cmd.Active = &list
			} else {
				cmd.Available = &list
			}
		case "comment":
			cmd.Comment = &v
		case "extra":
			cmd.Extra = &v
		case "reason":
			cmd.Reason = &v
		case "resumeafter":
			span, err := resumeAfter(v)
			if err != nil {
				return cmd, err
			}
			cmd.ResumeAfter = span
		default:
			return cmd, spec.Refuse(spec.CodeBadRequest, entry.GetKey()+
				" of a node cannot be updated")
		}
	}
	return cmd, nil
}

// resumeAfter reads a number of seconds, or a time as --time has it.
func resumeAfter(v string) (spec.Span, error) {
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return spec.Seconds(int64(n)), nil
	}
	seconds, err := format.ParseDuration(v)
	if err != nil || seconds == format.Infinite {
		return 0, spec.Refuse(spec.CodeInvalidTime, "resumeafter="+v+
			": expected seconds, or a time such as 2:00:00")
	}
	return spec.Seconds(seconds), nil
}

// featureList reads names of features, each once; empty: none.
func featureList(v string) ([]string, error) {
	var out []string
	for f := range strings.SplitSeq(v, ",") {
		f = strings.TrimSpace(f)
		switch {
		case f == "" && v != "":
			return nil, spec.Refuse(spec.CodeInvalidFeature, v)
		case strings.ContainsAny(f, "&|()[]*!=; \t\n"):
			return nil, spec.Refuse(spec.CodeInvalidFeature, f+" is not a valid feature name")
		case f != "":
			out = append(out, f)
		}
	}
	return out, nil
}
