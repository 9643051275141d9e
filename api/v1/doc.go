// Package apiv1 holds the messages of Muster's API, generated from the .proto
// files beside this one. The services are in package service, so that tools
// can use the messages without linking gRPC.
package apiv1
