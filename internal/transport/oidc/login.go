package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"

	"github.com/musterhpc/muster/internal/transport/usertoken"
)

// Attempt is what a browser keeps between the two halves of a login, and nobody else may know.
type Attempt struct {
	State    string `json:"s"` // comes back with the answer: it is this browser's
	Nonce    string `json:"n"` // comes back in the token: it was made for this attempt
	Verifier string `json:"v"` // proves to the provider that the code is asked for by who began
}

// User is who came back from a login.
type User struct {
	Name string
	// Issuer is the provider that vouches for the name.
	Issuer string
}

// Begin starts a login, and gives the address at the provider to which the browser goes.
func (p *Provider) Begin(ctx context.Context) (string, Attempt, error) {
	found, err := p.discoverEndpoints(ctx)
	if err != nil {
		return "", Attempt{}, err
	}
	attempt := Attempt{State: random(), Nonce: random(), Verifier: oauth2.GenerateVerifier()}
	address := p.oauth(found).AuthCodeURL(
		attempt.State,
		oauth2.S256ChallengeOption(attempt.Verifier),
		oauth2.SetAuthURLParam("nonce", attempt.Nonce),
	)
	return address, attempt, nil
}

// Finish takes the provider's answer, which the browser brought back, and tells who logged in.
func (p *Provider) Finish(ctx context.Context, attempt Attempt, answer url.Values) (User, error) {
	if attempt.State == "" ||
		subtle.ConstantTimeCompare([]byte(attempt.State), []byte(answer.Get("state"))) != 1 {
		return User{}, fmt.Errorf("the answer is not of a login that began in this browser: sign in again")
	}
	if code := answer.Get("error"); code != "" {
		return User{}, fmt.Errorf("%w refused: %s %s", ErrProvider, code, answer.Get("error_description"))
	}
	found, err := p.discoverEndpoints(ctx)
	if err != nil {
		return User{}, err
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, p.client)
	token, err := p.oauth(found).Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(attempt.Verifier))
	if err != nil {
		return User{}, fmt.Errorf("%w gave no token: %w", ErrProvider, err)
	}
	text, _ := token.Extra("id_token").(string)
	if text == "" {
		return User{}, fmt.Errorf("%w sent no id_token: does this client have the scope openid?", ErrProvider)
	}
	claims, err := p.judgeIDToken(text, attempt.Nonce)
	if err != nil {
		return User{}, err
	}
	if claims[p.cfg.Users.userClaim()] == nil && found.UserInfo != "" {
		if err := p.addUserInfo(ctx, found.UserInfo, token.AccessToken, claims); err != nil {
			return User{}, err
		}
	}
	name, err := p.cfg.Users.Name(claims)
	return User{Name: name, Issuer: p.cfg.Issuer}, err
}

// judgeIDToken verifies the token that tells who logged in: the provider's, for this cluster, and
// made for this attempt.
func (p *Provider) judgeIDToken(text, nonce string) (jwt.MapClaims, error) {
	claims, err := usertoken.ForeignClaims(text, p.Issuer(p.cfg.ClientID, nil), p.cfg.Now)
	if err != nil {
		return nil, fmt.Errorf("the id_token: %w", err)
	}
	said, _ := claims["nonce"].(string)
	if subtle.ConstantTimeCompare([]byte(said), []byte(nonce)) != 1 {
		return nil, fmt.Errorf("the id_token was made for another login: sign in again")
	}
	// Of several audiences one must be the party that asked (OpenID Connect Core, 3.1.3.7).
	if azp, given := claims["azp"]; given && azp != p.cfg.ClientID {
		return nil, fmt.Errorf("the id_token is for %v, and oidc.client_id is %s", azp, p.cfg.ClientID)
	}
	return claims, nil
}

// addUserInfo adds what the provider says of somebody only when it is asked.
func (p *Provider) addUserInfo(ctx context.Context, address, bearer string, claims jwt.MapClaims) error {
	more := map[string]any{}
	if err := p.getJSON(ctx, address, bearer, &more); err != nil {
		return err
	}
	if more["sub"] != claims["sub"] || more["sub"] == nil {
		return fmt.Errorf("%w: userinfo is about %v and the id_token about %v", ErrProvider, more["sub"], claims["sub"])
	}
	maps.Copy(more, claims) // what was signed wins
	maps.Copy(claims, more)
	return nil
}

// Issuer are the provider's tokens for an audience; find gives a user's numbers on this host.
func (p *Provider) Issuer(audience string, find func(string) (uint32, uint32, bool)) *usertoken.Issuer {
	return &usertoken.Issuer{
		Name:     p.cfg.Issuer,
		Remote:   p,
		Audience: audience,
		UserName: p.cfg.Users.Name,
		User:     find,
	}
}

func (p *Provider) oauth(found endpoints) *oauth2.Config {
	return &oauth2.Config{
		ClientID:     p.cfg.ClientID,
		ClientSecret: p.cfg.ClientSecret,
		Endpoint:     oauth2.Endpoint{AuthURL: found.Authorize, TokenURL: found.Token},
		RedirectURL:  p.cfg.RedirectURL,
		Scopes:       append([]string{"openid"}, p.cfg.Scopes...),
	}
}

// random is a word that nobody guesses.
func random() string {
	word := make([]byte, 32)
	rand.Read(word) // it does not fail: it ends the program
	return base64.RawURLEncoding.EncodeToString(word)
}
