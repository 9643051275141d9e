package daemon

import (
	"fmt"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// nodeChanges reads what scontrol update sets of nodes beside their state.
func nodeChanges(
	cluster *state.State, names []string, set []*apiv1.ConfigEntry,
) (scheduler.UpdateNodes, error) {
	cmd := scheduler.UpdateNodes{Nodes: names}
	for _, entry := range set {
		value := entry.GetValue()
		switch key := strings.ToLower(entry.GetKey()); key {
		case "weight":
			n, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				return cmd, spec.Refuse(spec.CodeBadRequest, "weight="+value+
					": a weight is a number below 2147483648")
			}
			w := uint32(n)
			cmd.Weight = &w
		case "features", "availablefeatures", "activefeatures":
			list, err := featureList(value)
			if err != nil {
				return cmd, err
			}
			if key == "activefeatures" {
				cmd.Active = &list
			} else {
				cmd.Available = &list
			}
		case "gres":
			if err := sameGRES(cluster, names, value); err != nil {
				return cmd, err
			}
		case "comment":
			cmd.Comment = &value
		case "extra":
			cmd.Extra = &value
		case "reason":
			cmd.Reason = &value
		case "resumeafter":
			span, err := resumeAfter(value)
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

// sameGRES refuses GRES of nodes that differ from the configured ones. Scripts that set what is
// configured already go on.
func sameGRES(cluster *state.State, names []string, value string) error {
	for _, name := range names {
		configured := wire.GRESText(cluster.Node(name).Spec.GRES)
		if !strings.EqualFold(value, configured) {
			return spec.Refuse(spec.CodeInvalidGRES, fmt.Sprintf(
				"%s has Gres=%s: devices come from gres.conf and slurm.conf; change these and reconfigure",
				name, configured))
		}
	}
	return nil
}

// resumeAfter reads a number of seconds, or a time as --time has it.
func resumeAfter(value string) (spec.Span, error) {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return spec.Seconds(int64(n)), nil
	}
	seconds, err := format.ParseDuration(value)
	if err != nil || seconds == format.Infinite {
		return 0, spec.Refuse(spec.CodeInvalidTime, "resumeafter="+value+
			": expected seconds, or a time such as 2:00:00")
	}
	return spec.Seconds(seconds), nil
}

// featureList reads names of features, each once; empty: none.
func featureList(value string) ([]string, error) {
	var out []string
	for f := range strings.SplitSeq(value, ",") {
		f = strings.TrimSpace(f)
		switch {
		case f == "" && value != "":
			return nil, spec.Refuse(spec.CodeInvalidFeature, value)
		case strings.ContainsAny(f, "&|()[]*!=; \t\n"):
			return nil, spec.Refuse(spec.CodeInvalidFeature, f+" is not a valid feature name")
		case f != "":
			out = append(out, f)
		}
	}
	return out, nil
}
