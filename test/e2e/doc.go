// Package e2e runs the real programs together, as a new user would: the demo
// of the README on a fresh folder, and what must happen when something goes
// wrong. The programs are those of `make build`.
package e2e
