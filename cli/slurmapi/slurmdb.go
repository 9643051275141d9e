package slurmapi

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/schema"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

// entityRoute shows what sacctmgr shows. where are conditions by the names of the
// query's parameters.
func entityRoute(what string, where map[string]string) route {
	r := route{show: func(q *request) ([]string, error) {
		args := []string{"sacctmgr", "show", what}
		for _, param := range q.path.Params {
			key, known := where[param.Name]
			if value := q.queryParam(param.Name); known && value != "" {
				args = append(args, key+"="+value)
			}
		}
		return args, nil
	}}
	r.params = slices.Sorted(maps.Keys(where))
	return r
}

func associationRoute() route {
	return entityRoute(
		"association",
		map[string]string{"account": "account", "user": "user", "partition": "partition"},
	)
}

// showPast is GET jobs of slurmdb.
func showPast(q *request) ([]string, error) {
	args := []string{"sacct", "--allusers"}
	for _, p := range pastParams() {
		value := q.queryParam(p[0])
		switch {
		case value == "":
		case strings.HasSuffix(p[1], "time"):
			args = append(args, "--"+p[1]+"="+formatMoment(value))
		default:
			args = append(args, "--"+p[1]+"="+value)
		}
	}
	if q.hasFlag("show_duplicates") {
		args = append(args, "--duplicates")
	}
	if q.hasFlag("skip_steps") {
		args = append(args, "--allocations")
	}
	return args, nil
}

// pastParams are the parameters of GET jobs with the options of sacct that do the
// same.
func pastParams() [][2]string {
	return [][2]string{
		{"account", "accounts"},
		{"association", "associations"},
		{"cluster", "clusters"},
		{"constraints", "constraints"},
		{"groups", "group"},
		{
			"job_name",
			"name",
		},
		{"partition", "partition"},
		{"qos", "qos"},
		{"reason", "reason"},
		{"state", "state"},
		{"step", "jobs"},
		{"end_time", "endtime"},
		{"start_time", "starttime"},
		{"node", "nodelist"},
		{"users", "user"},
		{"wckey", "wckeys"},
	}
}

// formatMoment writes seconds since 1970 as sacct reads a time; anything else stays.
func formatMoment(text string) string {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1_000_000 {
		return text
	}
	return time.Unix(n, 0).Format("2006-01-02T15:04:05")
}

func showPastJob(q *request) ([]string, error) {
	id, err := q.jobID()
	return []string{"sacct", "--jobs=" + id}, err
}

// pingPast is GET ping of slurmdb.
func pingPast(q *request) (tree.Object, error) {
	var reply apiv1.AccountingStatusReply
	began := q.api.host.Now()
	err := q.callRPC(tool.MethodAcctStatus, &apiv1.AccountingStatusRequest{}, &reply)
	up := err == nil && reply.GetUp()
	state := "DOWN"
	if up {
		state = "UP"
	}
	ping := tree.Object{
		{Key: "hostname", Value: reply.GetStore()},
		{Key: "responding", Value: up},
		{Key: "latency", Value: q.api.host.Now().Sub(began).Microseconds()},
		{Key: "primary", Value: true},
		{Key: "status", Value: state},
	}
	return tree.Object{{Key: "pings", Value: tree.List{ping}}}, nil
}

// showConfig is GET conf: the configuration, as far as Slurm has a field for it.
func showConfig(q *request) (tree.Object, error) {
	var reply apiv1.GetConfigReply
	if err := q.callRPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &reply); err != nil {
		return nil, err
	}
	shape := schema.Of(q.version).Type("slurm_conf")
	given := map[string]any{}
	for _, entry := range reply.GetEntries() {
		for i := range shape.Fields {
			if entry.GetRecord() == "" && strings.EqualFold(shape.Fields[i].Name, entry.GetKey()) {
				given[shape.Fields[i].Name] = entry.GetValue()
			}
		}
	}
	// What has another form in Slurm's document than in slurm.conf stays unset.
	values := shape.Read(given).Values
	var conf tree.Object
	for _, field := range shape.Fields {
		if v, there := values[field.Name]; there {
			conf = append(conf, tree.Member{Key: field.Name, Value: toDocument(v)})
		}
	}
	meta := tree.Object{
		{Key: "LastUpdate", Value: cmp.Or(q.api.host.Changed(), reply.GetNow()) / tool.Second},
		{Key: "BOOT_TIME", Value: reply.GetBootTime() / tool.Second},
		{
			Key:   "NEXT_JOB_ID",
			Value: tree.Number{N: int64(reply.GetNextJobId()), Set: true},
		},
		{Key: "SLURM_VERSION", Value: tool.SlurmVersion},
	}
	return tree.Object{{Key: "slurm_conf", Value: conf}, {Key: "slurm_conf_meta", Value: meta}}, nil
}

// toDocument turns a value that was read into one that is written.
func toDocument(value any) any {
	if list, ok := value.([]any); ok {
		return tree.List(list)
	}
	if _, ok := value.(schema.Values); ok {
		return nil
	}
	return value
}

// readPolicy reads accounts, users, QOS and associations.
func (q *request) readPolicy() (*apiv1.PolicyReply, error) {
	var reply apiv1.PolicyReply
	return &reply, q.callRPC(tool.MethodGetPolicy, &apiv1.PolicyRequest{}, &reply)
}

// makeChange makes one change, as sacctmgr does.
func (q *request) makeChange(req *apiv1.PolicyChangeRequest) ([]string, error) {
	var reply apiv1.PolicyChangeReply
	if err := q.callRPC(tool.MethodChangePolicy, req, &reply); err != nil {
		return nil, err
	}
	return reply.GetChanged(), nil
}

// settings are what a change sets.
type settings []*apiv1.ConfigEntry

func (s *settings) add(key, value string) {
	*s = append(*s, &apiv1.ConfigEntry{Key: key, Value: value})
}

// text adds a field of the body that is a text and was given.
func (s *settings) text(values schema.Values, field, key string) {
	if text := values.Text(field); text != "" {
		s.add(key, text)
	}
}

// valueAt finds a value by its path.
func valueAt(values schema.Values, path string) any {
	key, rest, deeper := strings.Cut(path, "/")
	if !deeper {
		return values[key]
	}
	return valueAt(values.Record(key), rest)
}

// tresText writes a list of counted resources as sacctmgr takes it.
func tresText(value any) string {
	list, _ := value.([]any)
	var parts []string
	for _, x := range list {
		values, ok := x.(schema.Values)
		if !ok {
			continue
		}
		name := values.Text("type")
		if values.Text("name") != "" {
			name += "/" + values.Text("name")
		}
		count, _ := values["count"].(int64)
		parts = append(parts, name+"="+tool.Itoa(count))
	}
	return strings.Join(parts, ",")
}

// addLimits adds the limits that were given.
func addLimits[T any](s *settings, values schema.Values, table []render.PolicyLimit[T]) {
	for _, limit := range table {
		switch v := valueAt(values, limit.Path).(type) {
		case tree.Number:
			if v.Infinite {
				s.add(limit.Key, "-1")
			} else {
				s.add(limit.Key, tool.Itoa(v.N))
			}
		case []any:
			if text := tresText(v); text != "" {
				s.add(limit.Key, text)
			}
		}
	}
}

// upsertEntity adds an entity, or changes one that exists.
func (q *request) upsertEntity(what, name string, exists bool, set settings) error {
	req := &apiv1.PolicyChangeRequest{
		Verb:   apiv1.PolicyChangeRequest_ADD,
		Entity: what,
		Names:  []string{name},
		Set:    set,
	}
	if exists {
		if len(set) == 0 {
			return nil
		}
		req.Verb = apiv1.PolicyChangeRequest_MODIFY
	}
	_, err := q.makeChange(req)
	return err
}

// setAccounts is POST accounts.
func setAccounts(q *request) (tree.Object, error) {
	have, err := q.readPolicy()
	if err != nil {
		return nil, err
	}
	for i, values := range q.body.Records("accounts") {
		name := values.Text("name")
		var set settings
		set.text(values, "description", "description")
		set.text(values, "organization", "organization")
		exists := slices.ContainsFunc(
			have.GetAccounts(),
			func(a *apiv1.Account) bool { return a.GetName() == name },
		)
		if err := q.upsertEntity("account", name, exists, set); err != nil {
			return nil, err
		}
		for _, c := range values.Records("coordinators") {
			req := &apiv1.PolicyChangeRequest{
				Verb:   apiv1.PolicyChangeRequest_ADD,
				Entity: "coordinator",
				Names:  []string{c.Text("name")},
				Set:    settings{{Key: "account", Value: name}},
			}
			if _, err := q.makeChange(req); err != nil {
				return nil, err
			}
		}
		if len(values.Records("associations")) > 0 {
			q.addWarning(
				"#/accounts/"+tool.Itoa(i)+"/associations",
				"they are set with POST associations; ignored",
			)
		}
	}
	return nil, nil
}

// setUsers is POST users. A user is of at least one account, so that a new one
// needs a default account or an association.
func setUsers(q *request) (tree.Object, error) {
	have, err := q.readPolicy()
	if err != nil {
		return nil, err
	}
	for i, values := range q.body.Records("users") {
		name := values.Text("name")
		exists := slices.ContainsFunc(
			have.GetUsers(),
			func(u *apiv1.AccountingUser) bool { return u.GetName() == name },
		)
		accounts := []string{}
		for _, a := range values.Records("associations") {
			accounts = append(accounts, a.Text("account"))
		}
		usual := values.Record("default")
		if usual.Text("account") != "" && len(accounts) == 0 {
			accounts = append(accounts, usual.Text("account"))
		}
		var set settings
		switch {
		case exists && len(values.Records("associations")) > 0:
			q.addWarning(
				"#/users/"+tool.Itoa(i)+"/associations",
				"those of a user who exists are set with POST associations; ignored",
			)
		case !exists && len(accounts) == 0:
			return nil, problems{
				{
					Path: "#/users/" + tool.Itoa(i) + "/default/account",
					Text: "a new user needs an account, here or in associations",
				},
			}
		case !exists:
			set.add("account", strings.Join(accounts, ","))
		}
		set.text(usual, "account", "defaultaccount")
		set.text(usual, "wckey", "defaultwckey")
		if level := values.Texts("administrator_level"); len(level) == 1 && level[0] != "Not Set" {
			set.add("adminlevel", level[0])
		}
		if err := q.upsertEntity("user", name, exists, set); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// setQOS is POST qos.
func setQOS(q *request) (tree.Object, error) {
	have, err := q.readPolicy()
	if err != nil {
		return nil, err
	}
	for _, values := range q.body.Records("qos") {
		name := values.Text("name")
		var set settings
		set.text(values, "description", "description")
		var flags []string
		for _, word := range values.Texts("flags") {
			if own := render.QOSFlag(word); own != "" {
				flags = append(flags, own)
			} else if word != "NOT_SET" {
				q.addWarning("#/qos/flags", word+": Muster has no such flag; ignored")
			}
		}
		if flags != nil {
			set.add("flags", strings.Join(flags, ","))
		}
		if number, ok := values["priority"].(tree.Number); ok && !number.Infinite {
			set.add("priority", tool.Itoa(number.N))
		}
		preempt := values.Record("preempt")
		if list := preempt.Texts("list"); len(list) > 0 {
			set.add("preempt", strings.Join(list, ","))
		}
		if mode := preempt.Texts("mode"); len(mode) == 1 && mode[0] != "DISABLED" {
			set.add("preemptmode", strings.ToLower(mode[0]))
		}
		if grace, ok := valueAt(values, "limits/grace_time").(int64); ok {
			set.add("gracetime", tool.Itoa(grace))
		}
		if number, ok := values["usage_factor"].(tree.Number); ok && !number.Infinite {
			set.add("usagefactor", tool.Itoa(number.N))
		}
		addLimits(&set, values, render.QOSLimits())
		exists := slices.ContainsFunc(
			have.GetQos(),
			func(o *apiv1.Qos) bool { return o.GetName() == name },
		)
		if err := q.upsertEntity("qos", name, exists, set); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// setAssociations is POST associations: of an account, or of a user in one.
func setAssociations(q *request) (tree.Object, error) {
	for i, values := range q.body.Records("associations") {
		have, err := q.readPolicy()
		if err != nil {
			return nil, err
		}
		account := values.Text("account")
		user := values.Text("user")
		partition := values.Text("partition")
		if account == "" {
			return nil, problems{
				{
					Path: "#/associations/" + tool.Itoa(i) + "/account",
					Text: "the field is required",
				},
			}
		}
		var set settings
		set.text(values, "comment", "comment")
		set.text(values.Record("default"), "qos", "defaultqos")
		if list := values.Texts("qos"); len(list) > 0 {
			set.add("qoslevel", strings.Join(list, ","))
		}
		if n, ok := values["shares_raw"].(int64); ok && n > 0 {
			set.add("fairshare", tool.Itoa(n))
		}
		if number, ok := values["priority"].(tree.Number); ok && !number.Infinite {
			set.add("priority", tool.Itoa(number.N))
		}
		addLimits(&set, values, render.AssociationLimits())
		exists := slices.ContainsFunc(have.GetAssociations(),
			func(association *apiv1.Association) bool {
				return association.GetAccount() == account && association.GetUser() == user &&
					association.GetPartition() == partition
			})
		if user == "" {
			set.text(values, "parent_account", "parent")
			if err := q.upsertEntity("account", account, exists, set); err != nil {
				return nil, err
			}
			continue
		}
		place := settings{{Key: "account", Value: account}}
		place.text(values, "partition", "partition")
		req := &apiv1.PolicyChangeRequest{
			Verb:   apiv1.PolicyChangeRequest_ADD,
			Entity: "user",
			Names:  []string{user},
			Set:    append(place, set...),
		}
		if exists {
			req = &apiv1.PolicyChangeRequest{
				Verb:   apiv1.PolicyChangeRequest_MODIFY,
				Entity: "user",
				Names:  []string{user},
				Where:  place,
				Set:    set,
			}
		}
		if exists && len(set) == 0 {
			continue
		}
		if _, err := q.makeChange(req); err != nil {
			return nil, err
		}
		if values["is_default"] == true {
			if err := q.upsertEntity("user", user, true, settings{{Key: "defaultaccount", Value: account}}); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// recordSettings are what an association's record of a condition sets; its fields
// have the names of sacctmgr's keys.
func recordSettings(shape *schema.Type, values schema.Values) settings {
	var set settings
	for _, field := range shape.Fields {
		switch v := values[field.Name].(type) {
		case string:
			if v != "" {
				set.add(field.Name, v)
			}
		case int64:
			if v != 0 {
				set.add(field.Name, tool.Itoa(v))
			}
		case tree.Number:
			if v.Infinite {
				set.add(field.Name, "-1")
			} else {
				set.add(field.Name, tool.Itoa(v.N))
			}
		case []any:
			text := tresText(v)
			if field.Name == "qoslevel" {
				text = plainValue(v)
			}
			if text != "" {
				set.add(field.Name, text)
			}
		}
	}
	return set
}

// addAccounts is POST accounts_association.
func addAccounts(q *request) (tree.Object, error) {
	condition := q.body.Record("association_condition")
	set := recordSettings(
		schema.Of(q.version).Type("assoc_rec_set"),
		condition.Record("association"),
	)
	set.text(q.body.Record("account"), "description", "description")
	set.text(q.body.Record("account"), "organization", "organization")
	added, err := q.makeChange(
		&apiv1.PolicyChangeRequest{
			Verb:   apiv1.PolicyChangeRequest_ADD,
			Entity: "account",
			Names:  condition.Texts("accounts"),
			Set:    set,
		},
	)
	return tree.Object{{Key: "added_accounts", Value: strings.Join(added, "\n")}}, err
}

// addUsers is POST users_association.
func addUsers(q *request) (tree.Object, error) {
	condition, user := q.body.Record("association_condition"), q.body.Record("user")
	set := recordSettings(
		schema.Of(q.version).Type("assoc_rec_set"),
		condition.Record("association"),
	)
	accounts := condition.Texts("accounts")
	if len(accounts) == 0 && user.Text("defaultaccount") != "" {
		accounts = []string{user.Text("defaultaccount")}
	}
	if len(accounts) == 0 {
		return nil, problems{
			{
				Path: "#/association_condition/accounts",
				Text: "the field is required: the accounts of the users",
			},
		}
	}
	set.add("account", strings.Join(accounts, ","))
	if list := condition.Texts("partitions"); len(list) > 0 {
		set.add("partition", strings.Join(list, ","))
	}
	if list := condition.Texts("wckeys"); len(list) > 0 {
		set.add("wckeys", strings.Join(list, ","))
	}
	set.text(user, "defaultaccount", "defaultaccount")
	set.text(user, "defaultwckey", "defaultwckey")
	if level := user.Texts("adminlevel"); len(level) == 1 && level[0] != "Not Set" {
		set.add("adminlevel", level[0])
	}
	added, err := q.makeChange(
		&apiv1.PolicyChangeRequest{
			Verb:   apiv1.PolicyChangeRequest_ADD,
			Entity: "user",
			Names:  condition.Texts("users"),
			Set:    set,
		},
	)
	return tree.Object{{Key: "added_users", Value: strings.Join(added, "\n")}}, err
}

// setWCKeys is POST wckeys.
func setWCKeys(q *request) (tree.Object, error) {
	for _, values := range q.body.Records("wckeys") {
		req := &apiv1.PolicyChangeRequest{
			Verb:   apiv1.PolicyChangeRequest_ADD,
			Entity: "wckey",
			Names:  []string{values.Text("name")},
			Set:    settings{{Key: "user", Value: values.Text("user")}},
		}
		if _, err := q.makeChange(req); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// removeEntity deletes an entity by the name in the path.
func removeEntity(what, param, list string) func(q *request) (tree.Object, error) {
	return func(q *request) (tree.Object, error) {
		removed, err := q.makeChange(
			&apiv1.PolicyChangeRequest{
				Verb:   apiv1.PolicyChangeRequest_DELETE,
				Entity: what,
				Names:  []string{q.given[param]},
			},
		)
		if err != nil {
			return nil, err
		}
		if len(removed) == 0 {
			return nil, spec.Refuse(spec.CodeNothingFound, what+" "+q.given[param]+
				" does not exist")
		}
		return tree.Object{{Key: list, Value: tree.Strings(removed)}}, nil
	}
}

// removeWCKey is DELETE wckey/{id}.
func removeWCKey(q *request) (tree.Object, error) {
	have, err := q.readPolicy()
	if err != nil {
		return nil, err
	}
	for _, key := range have.GetWckeys() {
		if id := q.given["id"]; tool.Itoa(key.GetId()) == id || key.GetName() == id {
			req := &apiv1.PolicyChangeRequest{
				Verb:   apiv1.PolicyChangeRequest_DELETE,
				Entity: "wckey",
				Names:  []string{key.GetName()},
				Where:  settings{{Key: "user", Value: key.GetUser()}},
			}
			removed, err := q.makeChange(req)
			return tree.Object{{Key: "deleted_wckeys", Value: tree.Strings(removed)}}, err
		}
	}
	return nil, spec.Refuse(spec.CodeInvalidWCKey, "there is no wckey "+q.given["id"])
}

// removeAssociations is DELETE association and DELETE associations: of a user in
// an account, or of an account.
func removeAssociations(q *request) (tree.Object, error) {
	user, account := q.queryParam("user"), q.queryParam("account")
	if user == "" && account == "" {
		return nil, problems{
			{
				Path: "?account",
				Text: "name a user, an account, or both: everything at once is not deleted",
			},
		}
	}
	req := &apiv1.PolicyChangeRequest{
		Verb:   apiv1.PolicyChangeRequest_DELETE,
		Entity: "account",
		Names:  tool.SplitList(account),
	}
	if user != "" {
		req.Entity = "user"
		req.Names = tool.SplitList(user)
		for _, key := range [...]string{"account", "partition"} {
			if value := q.queryParam(key); value != "" {
				req.Where = append(req.Where, &apiv1.ConfigEntry{Key: key, Value: value})
			}
		}
	}
	removed, err := q.makeChange(req)
	if err == nil && len(removed) == 0 {
		err = spec.Refuse(spec.CodeNothingFound, "there is no such association")
	}
	return tree.Object{{Key: "removed_associations", Value: tree.Strings(removed)}}, err
}
