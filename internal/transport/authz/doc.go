// Package authz decides who may call which method of the API.
//
// One table says it for every method, role and transport. The server asks it
// before a request reaches a service, docs/authorization.md is generated from
// it, and a test in cmd/musterd calls every method as every role over every
// transport and compares. A method without a row is closed to everybody.
//
// The table decides what depends on the role alone. Where it says "limited", the
// service decides by what the request is about: whose job it is, which account
// the caller coordinates, what PrivateData hides.
package authz
