// Package otlp sends traces and metrics to an OpenTelemetry collector, by gRPC or by
// HTTP with protobuf.
//
// It makes one attempt; the caller decides how to handle an error. Error tells whether
// the receiver could accept the same message later (it is unavailable, busy, or rejects
// the credentials) or never.
package otlp
