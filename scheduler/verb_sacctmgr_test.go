package scheduler_test

import (
	"strings"

	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/spec"
)

// sacctmgr changes accounts, users and QOS, in sacctmgr's words.
//
//	$ sacctmgr add qos gpucap MaxTRESPerUser=gres/gpu=4
//	$ sacctmgr modify user alice set qos+=gpucap
func sacctmgr(s *session, args []string) error {
	c := policy.Change{Verb: map[string]policy.Verb{"add": policy.Add, "modify": policy.Modify, "delete": policy.Delete}[args[1]], Entity: args[2]}
	to := &c.Where
	if c.Verb == policy.Add {
		to = &c.Set
	}
	for _, a := range args[3:] {
		k, v, pair := strings.Cut(a, "=")
		switch {
		case a == "set":
			to = &c.Set
		case a == "where":
			to = &c.Where
		case !pair:
			c.Names = append(c.Names, strings.Split(a, ",")...)
		default:
			*to = append(*to, spec.KeyValue{Key: k, Value: v})
		}
	}
	events, _, err := policy.Plan(s.head.Freeze(), c)
	if err != nil {
		return err
	}
	_, err = s.decide(scheduler.Policy{Events: events})
	return err
}
