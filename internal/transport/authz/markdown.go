package authz

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/musterhpc/muster/api/v1/service"
)

// Transport is a way to the API.
type Transport string

// The transports.
const (
	GRPC   Transport = "gRPC"
	Framed Transport = "framed"
	REST   Transport = "REST"
)

// Method is one method of the API with what the table says of it.
type Method struct {
	Service, Name string
	Transports    []Transport
	SideEffects   bool // false = it only reads
	Note          string
	grants        grants
}

// FullName is the method's name in calls.
func (m Method) FullName() string { return servicePrefix + m.Service + "/" + m.Name }

// Grant is what a role gets.
func (m Method) Grant(role Role) Grant { return m.grants[role] }

// Methods lists the methods that the services define, in their order. A method
// without a row grants nothing.
func Methods() []Method {
	var out []Method
	services := service.File_service_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for k := range methods.Len() {
			out = append(out, describe(services.Get(i), methods.Get(k)))
		}
	}
	return out
}

func describe(of protoreflect.ServiceDescriptor, m protoreflect.MethodDescriptor) Method {
	out := Method{
		Service:     string(of.Name()),
		Name:        string(m.Name()),
		SideEffects: true,
		Transports:  []Transport{GRPC},
	}
	if options, ok := m.Options().(*descriptorpb.MethodOptions); ok {
		out.SideEffects = options.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS
	}
	// Neither frames nor HTTP/1 have a form for a stream of requests.
	if !m.IsStreamingClient() {
		out.Transports = append(out.Transports, Framed)
		if out.Service == "Cluster" || out.Service == "Accounting" {
			out.Transports = append(out.Transports, REST)
		}
	}
	if entry := rows[out.FullName()]; entry != nil {
		out.Note, out.grants = entry.note, entry.grants
	}
	return out
}

// Markdown is docs/authorization.md.
func Markdown() string {
	var text strings.Builder
	text.WriteString(`# Authorization

<!-- Written by go run ./docs/gen from internal/transport/authz. -->

Who may call which method of the API. The server asks this table before a request reaches a service, whatever the transport;
a test calls every method as every role over every transport and compares. What is not listed is closed.

The identity of a caller comes from the channel: the kernel's word on a local socket, a certificate over TLS, a token over REST, or
the word of a login host or node for its user. Nothing in a message is believed.

| role | who |
|---|---|
| anonymous | a TLS client without a certificate |
| remote root | root of another machine, who is nobody here and may only look |
| user | any user; also whoever calls from inside a job on a compute node, whatever his level |
| coordinator | a coordinator of an account |
| operator | a user with AdminLevel=Operator: accounts, limits, reservations, the jobs of others, what PrivateData hides |
| administrator | a user with AdminLevel=Administrator: the cluster itself, machines, tokens and levels of other users |
| root | root and the cluster's own user on the controller's host, root's token, and an administrator's certificate |
| node, login host, controller | a machine with a certificate of that role |
| connector | muster-kube, with a token that has scope=pods: what keeps Kubernetes and the ledger in step |

**yes** grants the whole method, **limited** only what the last column says, **here** everything on the controller's own host,
**–** nothing.

`)
	last := ""
	for _, method := range Methods() {
		if method.Service != last {
			last = method.Service
			fmt.Fprintf(&text, "\n## %s\n\n| method | transports |", method.Service)
			for _, role := range Roles() {
				fmt.Fprintf(&text, " %s |", role)
			}
			text.WriteString(
				" limits |\n|---|---|" + strings.Repeat("---|", int(numRoles)) + "---|\n",
			)
		}
		var names []string
		for _, t := range method.Transports {
			names = append(names, string(t))
		}
		fmt.Fprintf(&text, "| `%s` | %s |", method.Name, strings.Join(names, ", "))
		for _, role := range Roles() {
			fmt.Fprintf(&text, " %s |", method.Grant(role))
		}
		fmt.Fprintf(&text, " %s |\n", method.Note)
	}
	return text.String()
}
