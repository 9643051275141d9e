// Package rest serves gRPC services as JSON over HTTP, for programs that speak
// neither gRPC nor protobuf: every method is POST /v1/SERVICE/METHOD with the
// request as a JSON object (protobuf's JSON mapping, field names as in the
// .proto files), and a method without side effects is GET with the request's
// fields as query parameters too. A method that answers with several messages
// answers with one JSON object a line (application/x-ndjson).
//
// It dispatches to the same implementations, through the same interceptors, as
// gRPC and the framed protocol do. GET /v1/openapi.json describes it; the
// description is made from the same descriptors.
//
// An error is {"error": {"code", "number", "message", "slurm", "details"}}
// with the HTTP status of its class; in a stream it is the last line.
package rest
