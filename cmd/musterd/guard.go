package main

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// mayCall is the first door of the API: which kind of party may call a method
// at all. What a party may do there the services decide. What is not named
// here is closed.
func mayCall(method string, id identity.Identity, self uint32) bool {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/muster.v1."), "/")
	if id.Squashed && !harmless[method] {
		return false
	}
	user := id.Kind == identity.LocalUser || id.Kind == identity.AttestedUser || id.Kind == identity.Admin
	owner := id.Kind == identity.Admin || (id.Kind == identity.LocalUser && (id.UID == 0 || id.UID == self))
	switch service {
	case "Cluster":
		// An accounting on another host, which has a controller's certificate,
		// asks whose ledger it is.
		return user || (name == "Ping" && id.Kind == identity.Controller)
	case "Accounting", "Shell":
		if name == "PutGpuSamples" {
			return id.Kind == identity.Agent || owner
		}
		return user
	case "Agents":
		// Whoever enrols has no certificate yet: the token speaks for it.
		return name == "Enrol" || id.Kind == identity.Agent || (name == "Renew" && id.Kind == identity.Login) || owner
	case "Ledger":
		return owner || id.Kind == identity.Controller
	}
	return false
}

// harmless are the methods that only tell something, as their descriptions say.
var harmless = func() map[string]bool {
	out := map[string]bool{}
	for services, i := service.File_service_proto.Services(), 0; i < services.Len(); i++ {
		for methods, k := services.Get(i).Methods(), 0; k < methods.Len(); k++ {
			m := methods.Get(k)
			if o, ok := m.Options().(*descriptorpb.MethodOptions); ok && o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
				out["/"+string(services.Get(i).FullName())+"/"+string(m.Name())] = true
			}
		}
	}
	return out
}()

// mayPut lets an agent hand in the samples of its own node only.
func mayPut(ctx context.Context, node string) error {
	if id := identity.From(ctx); id.Kind == identity.Agent && id.Node != node {
		return spec.Refuse(spec.CodeAccessDenied, id.String()+" may not speak for node "+node)
	}
	return nil
}

func admitCall(ctx context.Context, method string, self uint32) error {
	id := identity.From(ctx)
	if id.Squashed && !harmless[method] {
		return spec.Refuse(spec.CodeAccessDenied, "root of "+id.Node+" is nobody here: do it as a user, or on the controller's host")
	}
	if !mayCall(method, id, self) {
		return spec.Refuse(spec.CodeAccessDenied, id.String()+" may not call "+method)
	}
	return nil
}

// guardUnary and guardStream put the door in front of every method.
func guardUnary(self uint32) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := admitCall(ctx, info.FullMethod, self); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

func guardStream(self uint32) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if err := admitCall(stream.Context(), info.FullMethod, self); err != nil {
			return err
		}
		return next(srv, stream)
	}
}
