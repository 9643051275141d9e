package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
)

// cookieName is the cookie that holds the visitor's token. The token is that of
// scontrol token: it names its user, is signed, expires, and is checked with
// every request, so that the console keeps no sessions.
const cookieName = "muster_token"

// userName is how the visitor is called.
func userName(id identity.Identity) string { return authz.UserName(id) }

// identifyVisitor finds out who asks.
func (c *Console) identifyVisitor(request *http.Request) (*visit, error) {
	cookie, err := request.Cookie(cookieName)
	if err != nil {
		return nil, err
	}
	id, err := c.cfg.Verify(cookie.Value)
	if err != nil {
		return nil, err
	}
	return &visit{
		Request: request,
		console: c,
		id:      id,
		secret:  c.formSecret(cookie.Value),
		fresh:   request.URL.Query().Has("did"),
	}, nil
}

// formSecret is what the forms of a visitor carry. Another site can neither
// read it from a page nor compute it, so a form that carries it is ours.
func (c *Console) formSecret(token string) string {
	mac := hmac.New(sha256.New, c.secret)
	mac.Write([]byte(token))
	return hex.EncodeToString(mac.Sum(nil))
}

// maxForm bounds what a form may send.
const maxForm = 64 << 10

// formIsOurs tells whether a form was made by a page of this console for this
// visitor.
func (v *visit) formIsOurs(writer http.ResponseWriter) bool {
	v.Body = http.MaxBytesReader(writer, v.Body, maxForm)
	return hmac.Equal([]byte(v.PostFormValue("secret")), []byte(v.secret))
}

// signInPage is what the page for signing in shows.
type signInPage struct {
	Next     string
	Wrong    string
	Provider string // name of the identity provider; empty = there is none
	Begin    string // path at which a login there begins
}

// sendToSignIn sends a reader to the sign-in page, and tells a script no more
// than that it has to.
func (c *Console) sendToSignIn(writer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet || request.Header.Get("X-Console") != "" {
		http.Error(writer, "sign in first", http.StatusUnauthorized)
		return
	}
	http.Redirect(
		writer,
		request,
		"/sign-in?"+url.Values{"next": {request.URL.RequestURI()}}.Encode(),
		http.StatusSeeOther,
	)
}

func (c *Console) showSignIn(writer http.ResponseWriter, request *http.Request) {
	c.writeSignIn(
		writer, request, signInPage{Next: ownPath(request.URL.Query().Get("next"))}, http.StatusOK,
	)
}

func (c *Console) writeSignIn(
	writer http.ResponseWriter, request *http.Request, data signInPage, code int,
) {
	if c.cfg.Login != nil {
		data.Provider = c.cfg.Login.Name()
		data.Begin = loginPath + "?" + url.Values{"next": {data.Next}}.Encode()
	}
	c.writeAnswer(
		writer,
		&visit{Request: request, id: identity.Nameless()},
		answer{page: "sign-in", title: "Sign in", data: data, status: code},
	)
}

// signIn checks a token and keeps it in the browser.
func (c *Console) signIn(writer http.ResponseWriter, request *http.Request) {
	request.Body = http.MaxBytesReader(writer, request.Body, maxForm)
	token := strings.TrimSpace(request.PostFormValue("token"))
	token = strings.TrimPrefix(token, "SLURM_JWT=") // as scontrol token prints it
	next := ownPath(request.PostFormValue("next"))
	if _, err := c.cfg.Verify(token); err != nil {
		c.writeSignIn(
			writer, request, signInPage{Next: next, Wrong: err.Error()}, http.StatusForbidden,
		)
		return
	}
	http.SetCookie(writer, c.cookie(request, token, 0))
	http.Redirect(writer, request, next, http.StatusSeeOther)
}

// signOut ends the token, because the browser's cookie may have been copied, and removes the
// cookie. Where the token cannot be ended the visitor is told how long it holds.
func (c *Console) signOut(writer http.ResponseWriter, request *http.Request) {
	http.SetCookie(writer, c.cookie(request, "", -1))
	v, err := c.identifyVisitor(request)
	if err != nil { // the token has ended before
		http.Redirect(writer, request, "/sign-in", http.StatusSeeOther)
		return
	}
	if err := v.endToken(); err != nil {
		c.cfg.Log.Warn("the token of a sign-out was not revoked", "user", userName(v.id), "err", err)
		wrong := fmt.Sprintf(
			"You are signed out here, but the token is valid until %s: %v",
			v.id.Paper.Expires.Format(time.DateTime),
			err,
		)
		c.writeSignIn(writer, request, signInPage{Next: "/", Wrong: wrong}, http.StatusOK)
		return
	}
	http.Redirect(writer, request, "/sign-in", http.StatusSeeOther)
}

// errNoTokenID is of tokens that others made, and of those of old releases.
var errNoTokenID = errors.New("the ledger does not list it; muster tokens revoke --user NAME ends all tokens of a user")

// endToken revokes the visitor's token.
func (v *visit) endToken() error {
	if v.id.Paper.ID == "" {
		return errNoTokenID
	}
	request := &apiv1.RevokeUserTokensRequest{
		Ids:    []string{v.id.Paper.ID},
		Reason: "signed out of the console",
	}
	_, err := v.console.cfg.API.Call(v.Context(), v.id, tool.MethodRevokeTokens, request)
	return err
}

// cookie is out of reach of scripts, and of requests that other sites make,
// except for following a link.
func (c *Console) cookie(request *http.Request, token string, age int) *http.Cookie {
	return &http.Cookie{
		Name:     cookieName,
		Value:    token,
		Path:     "/",
		HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
		MaxAge:   age,
		Secure:   request.TLS != nil || request.Header.Get("X-Forwarded-Proto") == "https",
	}
}

// ownPath is a path of this console, so that a link to the sign-in page cannot
// lead elsewhere.
func ownPath(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") ||
		strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	return path
}
