package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// addKey gives a user a key; false if the user has it.
func (p *planner) addKey(name, user string) (bool, error) {
	if err := validName(name); err != nil {
		return false, err
	}
	if p.currentPolicy().FindWCKey(name, user) != nil {
		return false, nil
	}
	return true, p.emitEvent(
		&event.WCKeyPut{Key: spec.WCKey{ID: p.currentPolicy().NextWCKey + 1, Name: name, User: user}},
	)
}

// planWCKey adds or deletes keys of users: names are keys, user= says whose.
func (p *planner) planWCKey() error {
	users, ok := listValue(p.allPairs(), "user", "users")
	names := p.c.Names
	if by, given := listValue(p.allPairs(), "name", "names", "wckey", "wckeys"); given {
		names = append(slices.Clone(names), by...)
	}
	switch {
	case p.c.Verb == Modify:
		return badOption("wckeys are added and deleted, not modified")
	case len(names) == 0, p.c.Verb == Add && !ok:
		return badOption("name the keys and user=: add wckey prod user=alice")
	}
	for _, name := range names {
		if p.c.Verb == Add {
			for _, user := range users {
				if p.currentPolicy().FindUser(user) == nil {
					return badOption("user %q does not exist", user)
				}
				added, err := p.addKey(name, user)
				if err != nil {
					return err
				}
				if added {
					p.names = append(p.names, name+" of "+user)
				}
			}
			continue
		}
		for _, key := range slices.Clone(p.currentPolicy().WCKeys) {
			if key.Name != name || (ok && !slices.Contains(users, key.User)) {
				continue
			}
			if err := p.emitEvent(&event.WCKeyRemoved{ID: key.ID}); err != nil {
				return err
			}
			p.names = append(p.names, key.Name+" of "+key.User)
		}
	}
	return nil
}

// planResource changes what jobs hold beside nodes: name@server.
func (p *planner) planResource() error {
	servers, byServer := listValue(p.allPairs(), "server")
	names := p.c.Names
	if by, ok := listValue(p.allPairs(), "name", "names", "resource", "resources"); ok {
		names = append(slices.Clone(names), by...)
	}
	if p.c.Verb == Add {
		if len(names) == 0 || len(servers) != 1 {
			return badOption("a resource needs a name and server=")
		}
		for _, name := range names {
			if err := p.addResource(name, servers[0]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(names) == 0 && !byServer {
		return badOption("name the resource, or say where server=")
	}
	for _, resource := range slices.Clone(p.currentPolicy().Resources) {
		if (len(names) > 0 && !slices.Contains(names, resource.Name)) ||
			(byServer && !slices.Contains(servers, resource.Server)) {
			continue
		}
		var err error
		if p.c.Verb == Delete {
			err = p.emitEvent(&event.ResourceRemoved{Name: resource.Name, Server: resource.Server})
		} else if err = setResource(&resource, p.c.Set); err == nil {
			err = p.emitEvent(&event.ResourcePut{Resource: resource})
		}
		if err != nil {
			return err
		}
		p.names = append(p.names, resource.Name+"@"+resource.Server)
	}
	return nil
}

func (p *planner) addResource(name, server string) error {
	if err := validName(name); err != nil {
		return err
	}
	if p.currentPolicy().FindResource(name, server) != nil {
		return nil
	}
	resource := spec.Resource{
		Name:        name,
		Server:      server,
		Type:        "License",
		Description: name,
		Manager:     "",
	}
	if err := setResource(&resource, p.allPairs()); err != nil {
		return err
	}
	if resource.Count == 0 {
		return badOption("resource %q needs count=", name)
	}
	p.names = append(p.names, name+"@"+server)
	return p.emitEvent(&event.ResourcePut{Resource: resource})
}

func setResource(resource *spec.Resource, set []spec.KeyValue) error {
	options := []option{
		{
			"count",
			setWhole(&resource.Count),
		}, {"lastconsumed", setWhole(&resource.LastConsumed)}, {"description", setText(&resource.Description)},
		{
			"servertype",
			setText(&resource.ServerType),
		}, {"allowed percentallowed", setWhole(&resource.Allowed)},
		{"type", func(v string, _ byte) error {
			if !strings.EqualFold(v, "license") {
				return errText("only licenses are counted")
			}
			resource.Type = "License"
			return nil
		}},
		{"flags", func(v string, mode byte) error {
			for _, f := range strings.Split(v, ",") {
				if !strings.EqualFold(f, "absolute") && f != "" && f != "-1" {
					return errText("unknown flag " + strconv.Quote(f) + " (absolute is one)")
				}
				resource.Absolute = strings.EqualFold(f, "absolute") && mode != '-'
			}
			return nil
		}},
	}
	if err := applyOptions("resource", options, []string{"server", "cluster", "clusters", "name", "names", "resource", "resources"}, set); err != nil {
		return err
	}
	if !resource.Absolute && resource.Allowed > 100 {
		return badOption(
			"allowed=%d: the part of the cluster is at most 100 per cent (flags=absolute makes it an amount)",
			resource.Allowed,
		)
	}
	return nil
}
