package authz

import (
	"context"
	"strings"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// servicePrefix begins the full names of the methods of the API.
const servicePrefix = "/muster.v1."

// Door refuses calls that the table does not grant.
type Door struct {
	// Self is the uid of this process: its owner has the rights of root.
	Self uint32
	// Standing says what accounting makes of a user: User, Coordinator, Operator
	// or Administrator. A process that does not know says User, and its services
	// find out for themselves.
	Standing func(user string) Role
}

// rows finds a row by the method's full name.
var rows = func() map[string]*row {
	byName := make(map[string]*row, len(table))
	for i := range table {
		byName[servicePrefix+table[i].method] = &table[i]
	}
	return byName
}()

// Role is what a caller is to the cluster.
func (d Door) Role(id identity.Identity) Role { return roleOf(id, d.Self, d.Standing) }

// Admit refuses a call that the table does not grant to the caller. method is the
// full name, /muster.v1.Service/Method.
func (d Door) Admit(id identity.Identity, method string) error {
	role := d.Role(id)
	entry := rows[method]
	if entry == nil {
		return spec.Refuse(spec.CodeAccessDenied, "there is no method "+method)
	}
	switch grant := entry.grants[role]; {
	case grant == None && role == RemoteRoot:
		return spec.Refuse(spec.CodeAccessDenied, "root on "+id.Node+
			" has no privileges here: run as a regular user, or on the controller's host")
	case grant == None:
		return spec.Refuse(spec.CodeAccessDenied, entry.refusal(id, role))
	case grant == Here && id.Kind == identity.AttestedUser:
		return spec.Refuse(spec.CodeAccessDenied,
			"this is for the controller's own host: run the command there, or use an administrator's certificate")
	}
	return nil
}

// refusal says who may do what a caller may not. People read of levels that sacctmgr gives.
// A program of a host reads the method, because its version or certificate is wrong.
func (r *row) refusal(id identity.Identity, role Role) string {
	if !isPerson(role) {
		return id.String() + " (" + role.String() + ") may not call " + r.method
	}
	var allowed []string
	for _, level := range []Role{Coordinator, Operator, Administrator} {
		if r.grants[level] != None {
			allowed = append(allowed, level.String()+"s")
		}
	}
	if len(allowed) == 0 {
		return "only programs of the cluster may do this, not " + id.String()
	}
	last := len(allowed) - 1
	text := allowed[last]
	if last > 0 {
		text = strings.Join(allowed[:last], ", ") + " and " + text
	}
	return "only " + text + " may do this, not " + id.String()
}

// isPerson tells the roles of people from those of hosts and programs.
func isPerson(role Role) bool {
	switch role {
	case User, Coordinator, Operator, Administrator, Root:
		return true
	}
	return false
}

// Unary is the door in front of methods with one answer.
func (d Door) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := d.Admit(identity.From(ctx), info.FullMethod); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// Stream is the door in front of methods with several messages.
func (d Door) Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if err := d.Admit(identity.From(stream.Context()), info.FullMethod); err != nil {
			return err
		}
		return next(srv, stream)
	}
}

// SpeaksForNode refuses an agent that hands in what is of another node.
func SpeaksForNode(ctx context.Context, node string) error {
	id := identity.From(ctx)
	if id.Kind == identity.Agent && id.Node != node {
		return spec.Refuse(spec.CodeAccessDenied, id.String()+" may not speak for node "+node)
	}
	return nil
}
