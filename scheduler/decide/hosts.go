package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// hostCommands decides which machines get credentials.
type hostCommands struct{ *decision }

// spendToken binds a token to a key. Of several keys, one wins.
func (d hostCommands) spendToken(command SpendToken) error {
	for _, tok := range d.t.Access.Tokens {
		if tok.Hash != command.Hash {
			continue
		}
		if tok.Node != command.Node || tok.Expires <= d.t.Now {
			return spec.Refuse(
				spec.CodeBadCredential,
				"the token is for another node or has expired: make a new one with `muster token NODE`",
			)
		}
		switch {
		case tok.Key.IsZero():
			return d.Emit(
				&event.TokenSpent{Hash: command.Hash, Node: command.Node, Key: command.Key},
			)
		case tok.Key != command.Key:
			return spec.Refuse(
				spec.CodeBadCredential,
				"the token was used before, with another key: make a new one with `muster token NODE`, and find out who used it if you did not",
			)
		}
		return nil // the node asks again: its answer was lost
	}
	return spec.Refuse(
		spec.CodeBadCredential,
		"the token is unknown: make a new one with `muster token NODE`",
	)
}

// issueCertificate is decided in line with revocations: a machine that is asking
// for its next certificate while it is sent away does not get one that lasts.
func (d hostCommands) issueCertificate(certificate IssueCertificate) error {
	if certificate.By != "" {
		if by := d.t.Access.Cert(certificate.By); by != nil && by.Revoked {
			return spec.Refuse(
				spec.CodeBadCredential,
				fmt.Sprintf("the certificate with serial %s is revoked", certificate.By),
			)
		}
		if n := d.goodOnes(certificate.Issued.Role, certificate.Issued.Name); n >= maxGoodCertificates {
			return spec.Refuse(
				spec.CodeBadCredential,
				fmt.Sprintf(
					"%s has %d certificates that hold: it asks for one after the other, and gets no more; `muster hosts revoke` takes them back",
					certificate.Issued.Name,
					n,
				),
			)
		}
	} else if !slices.ContainsFunc(d.t.Access.Tokens, func(t state.Token) bool { return t.Hash == certificate.Token && t.Expires > d.t.Now }) {
		return spec.Refuse(spec.CodeBadCredential, "the token is no longer valid; create a new one with `muster token NODE`")
	}
	if old := d.expiredSerials(); old != nil {
		if err := d.Emit(&event.CertificatesDropped{Serials: old}); err != nil {
			return err
		}
	}
	return d.Emit(&certificate.Issued)
}

// maxDropped bounds how many certificates one event forgets: the next one goes on.
const maxDropped = 1000

// expiredSerials are certificates that hold no more, whoever had them.
func (d hostCommands) expiredSerials() (serials []string) {
	for _, cert := range d.t.Access.Certs {
		if cert.Expires <= d.t.Now && len(serials) < maxDropped {
			serials = append(serials, cert.Serial)
		}
	}
	return serials
}

// maxGoodCertificates bounds how many certificates a machine gets with those that
// it has: each stays in the ledger. A machine asks once in two thirds of a
// certificate's life.
const maxGoodCertificates = 32

// goodOnes counts a machine's certificates that hold.
func (d hostCommands) goodOnes(role, name string) (n int) {
	for _, cert := range d.t.Access.Certs {
		if cert.Name == name && cert.Role == role && !cert.Revoked && cert.Expires > d.t.Now {
			n++
		}
	}
	return n
}

// revokeHost ends a machine's certificates. Its tokens end with them: with one
// that was used, who has its key would get another certificate.
func (d hostCommands) revokeHost(command RevokeHost) error {
	var events []event.Event
	for _, cert := range d.t.Access.Certs {
		if cert.Name == command.Name && (command.Role == "" || cert.Role == command.Role) &&
			!cert.Revoked {
			events = append(
				events, &event.CertificateRevoked{Serial: cert.Serial, Reason: command.Reason},
			)
		}
	}
	if len(events) == 0 {
		return spec.Refuse(
			spec.CodeInvalidNodeName,
			fmt.Sprintf(
				"%q has no certificate that could be revoked (muster hosts lists them)",
				command.Name,
			),
		)
	}
	for _, token := range d.t.Access.Tokens {
		if token.Node == command.Name &&
			(command.Role == "" || cmp.Or(token.Role, "agent") == command.Role) &&
			token.Expires > d.t.Now {
			events = append(
				events,
				&event.TokenIssued{
					Hash: token.Hash, Node: token.Node, Role: token.Role, Expires: d.t.Now,
				},
			)
		}
	}
	return d.adoptPolicy(Policy{Events: events})
}

// maxUserTokens bounds how many tokens of one user hold at a time: each is in the ledger.
const maxUserTokens = 1000

// issueUserToken records a token of a user before anybody gets it.
func (d hostCommands) issueUserToken(command IssueUserToken) error {
	live := 0
	for i := range d.t.Access.Users {
		token := &d.t.Access.Users[i]
		if token.User == command.Token.User && token.Expires > d.t.Now {
			live++
		}
	}
	if live >= maxUserTokens {
		return spec.Refuse(
			spec.CodeDisabled,
			fmt.Sprintf(
				"user %s has %d tokens that have not expired: use one of them, ask for shorter lives, "+
					"or revoke them with `muster tokens revoke --user %s`",
				command.Token.User,
				live,
				command.Token.User,
			),
		)
	}
	return d.Emit(&command.Token)
}

// endUserTokens revokes tokens; those that are named must all hold.
func (d hostCommands) endUserTokens(command EndUserTokens) error {
	if len(command.IDs) == 0 {
		return d.Emit(&event.UserTokensEnded{User: command.User, Reason: command.Reason})
	}
	var unknown []string
	byUser := map[string][]string{}
	var users []string
	for _, id := range command.IDs {
		token := d.t.Access.UserToken(id)
		switch {
		case !isLive(token, d.t.Now) || (command.Whose != "" && token.User != command.Whose):
			unknown = append(unknown, id)
		case slices.Contains(byUser[token.User], id):
		default:
			if byUser[token.User] == nil {
				users = append(users, token.User)
			}
			byUser[token.User] = append(byUser[token.User], id)
		}
	}
	if unknown != nil {
		return spec.Refuse(
			spec.CodeBadCredential,
			fmt.Sprintf(
				"no such token: %s (muster tokens lists the valid ones)",
				strings.Join(unknown, ", "),
			),
		)
	}
	for _, user := range users {
		ev := &event.UserTokensEnded{User: user, IDs: byUser[user], Reason: command.Reason}
		if err := d.Emit(ev); err != nil {
			return err
		}
	}
	return nil
}

// isLive tells whether a token still opens something.
func isLive(token *state.UserToken, now spec.Instant) bool {
	return token != nil && !token.Revoked && token.Expires > now
}
