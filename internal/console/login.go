package console

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Login is the way in by the site's identity provider.
type Login interface {
	// Name is what people call the provider.
	Name() string
	// Begin gives the address at the provider to which somebody is sent, and what his browser
	// keeps meanwhile.
	Begin(ctx context.Context) (address string, attempt any, err error)
	// Finish takes what the browser kept and what the provider answered, and gives a token for
	// who logged in.
	Finish(ctx context.Context, attempt []byte, answer url.Values) (token string, err error)
}

const (
	// loginPath is where a login begins, and under which its cookie is sent.
	loginPath = "/sign-in/provider"
	// loginCookie holds a login under way.
	loginCookie = "muster_login"
	// loginPatience is how long somebody may take at the provider.
	loginPatience = 15 * time.Minute
)

// kept is what a browser keeps of a login under way.
type kept struct {
	Attempt json.RawMessage `json:"a"`
	Next    string          `json:"n"`
	Until   int64           `json:"u"` // Unix seconds
}

// beginLogin sends somebody to the identity provider.
func (c *Console) beginLogin(writer http.ResponseWriter, request *http.Request) {
	next := ownPath(request.URL.Query().Get("next"))
	if c.cfg.Login == nil {
		http.NotFound(writer, request)
		return
	}
	address, attempt, err := c.cfg.Login.Begin(request.Context())
	if err != nil {
		c.refuseLogin(writer, request, next, err)
		return
	}
	text, err := json.Marshal(attempt)
	if err == nil {
		text, err = json.Marshal(kept{
			Attempt: text,
			Next:    next,
			Until:   time.Now().Add(loginPatience).Unix(),
		})
	}
	if err != nil {
		c.refuseLogin(writer, request, next, err)
		return
	}
	http.SetCookie(writer, c.attemptCookie(request, c.seal(text), int(loginPatience/time.Second)))
	http.Redirect(writer, request, address, http.StatusSeeOther)
}

// finishLogin takes who comes back from the provider.
func (c *Console) finishLogin(writer http.ResponseWriter, request *http.Request) {
	if c.cfg.Login == nil {
		http.NotFound(writer, request)
		return
	}
	// An attempt serves once.
	http.SetCookie(writer, c.attemptCookie(request, "", -1))
	began, err := c.readAttempt(request)
	if err != nil {
		c.refuseLogin(writer, request, "/", err)
		return
	}
	token, err := c.cfg.Login.Finish(request.Context(), began.Attempt, request.URL.Query())
	if err == nil {
		_, err = c.cfg.Verify(token)
	}
	if err != nil {
		c.refuseLogin(writer, request, began.Next, err)
		return
	}
	http.SetCookie(writer, c.cookie(request, token, 0))
	http.Redirect(writer, request, began.Next, http.StatusSeeOther)
}

// errNoAttempt tells somebody who came back to another browser, too late, or after the console
// was started anew.
var errNoAttempt = errors.New("no login is under way in this browser, or it took too long: sign in again")

// readAttempt is the login that is under way in a browser.
func (c *Console) readAttempt(request *http.Request) (kept, error) {
	cookie, err := request.Cookie(loginCookie)
	if err != nil {
		return kept{}, errNoAttempt
	}
	text, ok := c.unseal(cookie.Value)
	var began kept
	if !ok || json.Unmarshal(text, &began) != nil || time.Now().Unix() > began.Until {
		return kept{}, errNoAttempt
	}
	return began, nil
}

func (c *Console) refuseLogin(
	writer http.ResponseWriter, request *http.Request, next string, err error,
) {
	c.cfg.Log.Info(
		"a login by the identity provider failed", "error", err, "from", request.RemoteAddr,
	)
	c.writeSignIn(writer, request, signInPage{Next: next, Wrong: err.Error()}, http.StatusForbidden)
}

// attemptCookie is out of reach of scripts. The provider's answer is a link that is followed, with
// which browsers send it.
func (c *Console) attemptCookie(request *http.Request, value string, age int) *http.Cookie {
	cookie := c.cookie(request, value, age)
	cookie.Name = loginCookie
	cookie.Path = "/sign-in"
	return cookie
}

// seal makes a text that only this console can have made.
func (c *Console) seal(text []byte) string {
	body := base64.RawURLEncoding.EncodeToString(text)
	return body + "." + base64.RawURLEncoding.EncodeToString(c.loginSum(body))
}

func (c *Console) unseal(value string) ([]byte, bool) {
	body, sum, _ := strings.Cut(value, ".")
	given, err := base64.RawURLEncoding.DecodeString(sum)
	if err != nil || !hmac.Equal(given, c.loginSum(body)) {
		return nil, false
	}
	text, err := base64.RawURLEncoding.DecodeString(body)
	return text, err == nil
}

func (c *Console) loginSum(body string) []byte {
	mac := hmac.New(sha256.New, c.secret)
	mac.Write([]byte("login\x00" + body))
	return mac.Sum(nil)
}
