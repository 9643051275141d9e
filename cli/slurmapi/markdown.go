package slurmapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/cli/schema"
	"github.com/musterhpc/muster/cli/submit"
)

// introduction is how docs/rest.md begins.
const introduction = `# REST

<!-- Written by go run ./docs/gen from cli/slurmapi. -->

musterd speaks Slurm's REST API, versions v0.0.43, v0.0.44 and v0.0.45, over TLS on port 6820 (listen.rest) and without TLS on the
socket of its own host (rest_socket). Muster's own API is beside it under /v1. There is no slurmrestd to run.

	export $(scontrol token lifespan=3600)
	curl --cacert /etc/muster/tls/ca.crt -H "X-SLURM-USER-TOKEN: $SLURM_JWT" https://controller:6820/slurm/v0.0.44/jobs
	curl --unix-socket /run/muster/rest.sock http://localhost/slurm/v0.0.44/nodes

Behind a proxy that ends TLS, let the proxy speak to port 6820 with the cluster's ca.crt.

**Who asks** is known from X-SLURM-USER-TOKEN or "Authorization: Bearer", each with a token of scontrol token; from an administrator's
certificate; on the socket from the kernel. X-SLURM-USER-NAME may repeat the name. Whoever has the rights of root acts with it as
another user, except root. What a caller may do is the table of [authorization](authorization.md), as for every other way in.

Tokens of the site's identity provider are accepted where oidc.issuer and oidc.audience of [muster.yaml](muster.yaml.md) name it, or
tokens.jwks its keys ([the console](console.md#sign-in) shows the settings); tokens.max_lifespan
and tokens.disable_creation bound the tokens of scontrol token. A command that finds a token in SLURM_JWT shows it instead of the user
who runs it, also from a login host; one that is not good is refused, and a token makes no further tokens. muster tokens lists the
tokens that hold, with who asked for them and when they were last used, and muster tokens revoke ends one, or all of a user, at once.

**Answers** are the documents of the commands: GET /slurm/v0.0.44/jobs is the output of squeue --json=v0.0.44, on one line. A field
that Muster does not have is unset, empty, 0 or false. last_update is when the cluster changed last: update_time is accepted and the whole answer is sent.
Answers of 1 KiB and more are compressed for clients that send Accept-Encoding: gzip (curl --compressed).

**Asking again.** An answer to GET has a strong ETag, a hash of its body. A client that sends it in If-None-Match gets 304 without a
body while the answer is the same. The controller makes the answer all the same: what is saved is the transfer and the client's work.
Answers of more than 2 MiB, as they are sent, have no ETag: let the client accept gzip, which makes 10,000 jobs a fraction of that.

**Errors** have an HTTP status of their class (400, 401, 403, 404, 405, 409, 422, 429, 503, 504) and, in errors, Slurm's number and
text, what is wrong in description, and in source the path or the field: #/job/time_limit. A request that fails has changed nothing,
except where it names several entities of slurmdb: those before the one that is refused are changed.

**Requests.** A field that is not known, or that changes nothing, is named in warnings. A value of the wrong type is an error. Numbers
may be written as 5, "5" or {"set": true, "number": 5}; null is what is not given. A body has 16 MiB and 30 s.

**The description**, OpenAPI 3, is at /openapi/v3, /openapi and /openapi.json, without a token. It is made from the same table.

`

// Markdown is docs/rest.md: which paths are answered and how, and what the fields of
// a job's description mean.
func Markdown() string {
	var text strings.Builder
	text.WriteString(introduction)
	text.WriteString(
		"## Paths\n\n`*` stands for v0.0.43, v0.0.44 or v0.0.45; a path that not all of them have names its versions.\n\n",
	)
	text.WriteString("| method and path | answered by |\n|---|---|\n")
	var refused strings.Builder
	all := routeTable()
	for _, row := range rowsOfPaths() {
		r := all[row.key]
		name := "`" + row.key + "`" + row.versions
		if r.refused != "" {
			fmt.Fprintf(&refused, "| %s | %s |\n", name, r.refused)
			continue
		}
		var how []string
		if r.show != nil {
			how = append(how, "`"+r.command()+"`")
		}
		if r.note != "" {
			how = append(how, r.note)
		}
		if len(r.params) > 0 {
			how = append(how, "parameters: "+strings.Join(r.params, ", "))
		}
		fmt.Fprintf(&text, "| %s | %s |\n", name, strings.Join(how, "; "))
	}
	text.WriteString(
		"\n## Paths that are refused\n\nThey answer with status 404 and the reason in `errors`.\n\n| method and path | why |\n|---|---|\n" +
			refused.String(),
	)
	text.WriteString(
		"\n## Description of a job\n\nThe fields of `job_desc_msg`, for `job/submit`, `job/allocate` and an update. A field that is refused makes the request fail;\n" +
			"a field that changes nothing is named in `warnings`. Values that ask for nothing (empty, 0, false) are accepted.\n\n| field | means | update |\n|---|---|---|\n",
	)
	table := descriptionAspects()
	for _, f := range fieldsOfJobs() {
		a := table[f]
		means := "yes"
		switch {
		case a.option != "":
			means = "`sbatch --" + a.option + "`"
			if reason := refusedOption(a.option); reason != "" {
				means = "refused: " + reason
			}
		case a.refused != "":
			means = "refused: " + a.refused
		case a.ignored != "":
			means = "changes nothing: " + a.ignored
		}
		update := ""
		if a.update != "" {
			update = "`" + a.update + "`"
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", f, means, update)
	}
	text.WriteString(
		"\n## Fields of Muster's own\n\nAnswers have these fields beside Slurm's.\n\n| schema | fields |\n|---|---|\n",
	)
	contract := schema.Of(schema.Default)
	for _, name := range contract.Names() {
		var own []string
		for _, field := range contract.Type(name).Fields {
			if field.Own {
				own = append(own, "`"+field.Name+"`")
			}
		}
		if own != nil {
			fmt.Fprintf(&text, "| `%s` | %s |\n", name, strings.Join(own, ", "))
		}
	}
	return text.String()
}

// pathRow is a path with the versions that have it.
type pathRow struct {
	key      string
	versions string
}

func rowsOfPaths() []pathRow {
	var keys []string
	having := map[string][]string{}
	for _, version := range schema.Versions() {
		for _, p := range schema.Of(version).Paths {
			key := p.Method + " " + p.Plain
			if having[key] == nil {
				keys = append(keys, key)
			}
			having[key] = append(having[key], version.String())
		}
	}
	path := func(key string) string {
		_, rest, _ := strings.Cut(key, " ")
		return rest
	}
	slices.SortStableFunc(keys, func(a, b string) int { return strings.Compare(path(a), path(b)) })
	rows := make([]pathRow, len(keys))
	for i, key := range keys {
		rows[i].key = key
		if len(having[key]) < len(schema.Versions()) {
			rows[i].versions = " (" + strings.Join(having[key], ", ") + ")"
		}
	}
	return rows
}

func fieldsOfJobs() []string {
	var out []string
	for _, version := range schema.Versions() {
		for _, field := range schema.Of(version).Type("job_desc_msg").Fields {
			if !slices.Contains(out, field.Name) {
				out = append(out, field.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// command is what a path that shows something runs, with what stands in the path.
func (r route) command() string {
	q := &request{path: &schema.Path{}, given: map[string]string{}}
	for _, name := range []string{"job_id", "node_name", "partition_name", "reservation_name", "account_name", "cluster_name", "qos", "name", "id"} {
		q.given[name] = strings.ToUpper(name)
	}
	q.given["job_id"] = "1"
	args, err := r.show(q)
	if err != nil {
		return ""
	}
	return strings.Join(args, " ")
}

// refusedOption is why sbatch refuses an option, empty where it does not.
func refusedOption(long string) string {
	for _, o := range submit.Sbatch().Options {
		if o.Long == long {
			return o.Refused
		}
	}
	return ""
}
