// Package service holds the generated gRPC services of Muster's API.
package service
