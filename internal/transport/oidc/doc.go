// Package oidc lets the users of a site's identity provider in, by OpenID Connect: it finds the
// provider's endpoints and keys (discovery), maps a token's claims to a user of this host,
// and takes users through the authorization-code flow with PKCE.
//
// provider.go asks the provider, keys.go keeps its public keys, users.go maps claims to users,
// login.go is the flow. Tokens are verified by package usertoken, with the rules for every
// other issuer. No request is made before it is needed, so that a controller starts while
// the provider is unavailable.
package oidc
