package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// claims of a token, and its header.
type claims map[string]any

// attackTokens sends tokens that the controller has not made, or not for this.
func attackTokens(ctx context.Context, l *lab, r *report) error {
	held, err := l.submitJob(ctx, victim, "-H", "-J", secret, "--wrap", "true")
	if err != nil {
		return err
	}
	defer l.runAs(ctx, 0, "scancel", held)
	genuine, err := l.token(ctx, attacker)
	if err != nil {
		return err
	}
	client := restClient()
	defer client.CloseIdleConnections()
	if got := l.rest(ctx, client, question{"X-SLURM-USER-TOKEN", genuine, "/v1/Cluster/Ping", "{}"}); got.status != http.StatusOK {
		return fmt.Errorf("a genuine token is refused: %d %s", got.status, got.body)
	}
	for name, token := range forgeries(genuine) {
		for _, header := range []string{"X-SLURM-USER-TOKEN", "Authorization"} {
			value := token
			if header == "Authorization" {
				value = "Bearer " + token
			}
			got := l.rest(ctx, client, question{header, value, "/v1/Cluster/Ping", "{}"})
			r.countTry(
				got.status == http.StatusOK,
				"a token with %s is accepted (%s)",
				name,
				header,
			)
		}
	}
	// Any change of a character is a change of what was signed, or of the signature.
	changes := 4000
	if l.o.short {
		changes = 400
	}
	random := rand.New(rand.NewPCG(1, 2))
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for range changes {
		altered := []byte(genuine)
		at := random.IntN(len(altered))
		for altered[at] == genuine[at] {
			altered[at] = alphabet[random.IntN(len(alphabet))]
		}
		got := l.rest(
			ctx,
			client,
			question{"X-SLURM-USER-TOKEN", string(altered), "/v1/Cluster/Ping", "{}"},
		)
		r.countTry(
			got.status == http.StatusOK,
			"the token with character %d changed is accepted: %s",
			at,
			altered,
		)
	}
	l.attackWithGenuine(ctx, r, client, genuine)
	return l.attackExpired(ctx, r, client)
}

// attackWithGenuine asks with a token of one's own for more than it gives.
func (l *lab) attackWithGenuine(
	ctx context.Context,
	r *report,
	client *http.Client,
	genuine string,
) {
	for _, other := range []string{"root", "0", strconv.Itoa(victim)} {
		out := l.runAs(ctx, attacker, "scontrol", "token", "username="+other)
		r.countTry(out.code == 0, "a user gets a token of %s", other)
		got := l.rest(
			ctx,
			client,
			question{
				"X-SLURM-USER-TOKEN",
				genuine,
				"/v1/Cluster/CreateUserToken",
				fmt.Sprintf(`{"user":%q}`, other),
			},
		)
		r.countTry(got.status == http.StatusOK, "a token makes a token of %s: %s", other, got.body)
	}
	got := l.rest(
		ctx,
		client,
		question{"X-SLURM-USER-TOKEN", genuine, "/v1/Cluster/CreateUserToken", "{}"},
	)
	r.countTry(got.status == http.StatusOK, "a token makes a token: %s", got.body)
	for _, header := range [][2]string{{"X-SLURM-USER-NAME", "root"}, {"muster-attest", "0:0"}, {"Muster-Attest", fmt.Sprintf("%d:%d", victim, victim)}, {"Grpc-Metadata-muster-attest", "0:0"},
		{"X-Forwarded-User", "root"}, {"X-Forwarded-For", "127.0.0.1"}, {"X-HTTP-Method-Override", "POST"}, {"X-Original-URL", "/v1/Cluster/ListHosts"}} {
		got := l.rest(
			ctx,
			client,
			question{
				"X-SLURM-USER-TOKEN",
				genuine,
				"/v1/Cluster/ListJobs",
				`{"filter":{"all_states":true}}`,
			},
			header,
		)
		r.countTry(
			strings.Contains(got.body, secret),
			"with the header %s: %s a user sees another's jobs",
			header[0],
			header[1],
		)
		alone := l.rest(ctx, client, question{"", "", "/v1/Cluster/ListJobs", "{}"}, header)
		r.countTry(
			alone.status == http.StatusOK,
			"the header %s: %s is taken for a credential",
			header[0],
			header[1],
		)
	}
	for _, path := range []string{"/v1/Cluster/../Cluster/Shutdown", "/v1//Cluster/Shutdown", "/v1/Cluster/Shutdown/", "/v1/Cluster/shutdown", "/v1/Ledger/Follow", "/v1/Agents/Connect", "/v1/Shell/Sbatch",
		"/v1/Cluster/Shutdown%00", "/v1/Cluster%2fShutdown", "/muster.v1.Cluster/Shutdown", "/v1/Cluster/Shutdown?token=" +
			genuine, "//v1/Cluster/Shutdown", "/debug/pprof/", "/metrics", "/../../etc/passwd"} {
		got := l.rest(ctx, client, question{"X-SLURM-USER-TOKEN", genuine, path, "{}"})
		r.countTry(got.status == http.StatusOK, "POST %s: %s", path, got.body)
	}
}

// attackExpired waits for a token to expire and uses it then.
func (l *lab) attackExpired(ctx context.Context, r *report, client *http.Client) error {
	out := l.runAs(ctx, attacker, "scontrol", "token", "lifespan=1")
	if out.code != 0 {
		return fmt.Errorf("scontrol token lifespan=1: %s", out.allText())
	}
	token := strings.TrimPrefix(strings.TrimSpace(out.out), "SLURM_JWT=")
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2500 * time.Millisecond):
	}
	got := l.rest(ctx, client, question{"X-SLURM-USER-TOKEN", token, "/v1/Cluster/Ping", "{}"})
	r.countTry(got.status == http.StatusOK, "a token is accepted after it has expired")
	return nil
}

// token gives a user a token of his own.
func (l *lab) token(ctx context.Context, uid int) (string, error) {
	out := l.runAs(ctx, uid, "scontrol", "token")
	token, ok := strings.CutPrefix(strings.TrimSpace(out.out), "SLURM_JWT=")
	if !ok {
		return "", fmt.Errorf("scontrol token as %d: %s", uid, out.allText())
	}
	return token, nil
}

// forgeries are tokens that must not be accepted, by what is wrong with them.
func forgeries(genuine string) map[string]string {
	parts := strings.Split(genuine, ".")
	header := parts[0]
	body := parts[1]
	signature := parts[2]
	var said claims
	if err := errors.Join(decodeClaims(body, &said)); err != nil {
		panic(err) // the controller's own token
	}
	root := changed(said, claims{"sun": "root", "sub": "root", "uid": 0, "gid": 0})
	other := changed(said, claims{"sun": strconv.Itoa(victim), "sub": strconv.Itoa(victim), "uid": victim, "gid": victim})
	out := map[string]string{
		"no signature":                 header + "." + body + ".",
		"two parts":                    header + "." + body,
		"one part":                     header,
		"four parts":                   genuine + "." + signature,
		"nothing":                      "",
		"dots only":                    strings.Repeat(".", 100_000),
		"a megabyte of header":         strings.Repeat("A", 1<<20) + "." + body + "." + signature,
		"the signature twice":          header + "." + body + "." + signature + signature,
		"a shorter signature":          header + "." + body + "." + signature[:len(signature)-2],
		"padding":                      header + "." + body + "." + signature + "=",
		"root's claims, old signature": header + "." + encode(root) + "." + signature,
		"another's claims, old one":    header + "." + encode(other) + "." + signature,
		"a later end, old signature": header + "." +
			encode(changed(said, claims{"exp": 4_000_000_000})) + "." + signature,
		"a second uid, old signature": header + "." +
			encodeText(strings.Replace(decodeText(body), `"uid"`, `"uid":0,"uid"`, 1)) + "." +
			signature,
		"a blank in the body": header + ". " + body + "." + signature,
		"a newline in the signature": header + "." + body + "." + signature[:4] + "\t" +
			signature[4:],
		"the last bits of the signature": header + "." + body + "." + otherLastBits(signature),
	}
	for _, algorithm := range []string{"none", "None", "NONE", "nOnE", "", "HS256 ", "hs256", "RS256", "ES256", "EdDSA"} {
		out["algorithm "+strconv.Quote(algorithm)] = encode(claims{"alg": algorithm, "typ": "JWT"}) +
			"." + encode(root) + "."
		out["algorithm "+strconv.Quote(algorithm)+" and the old signature"] = encode(claims{"alg": algorithm, "typ": "JWT"}) +
			"." + body + "." + signature
	}
	for name, key := range map[string][]byte{"an empty key": {}, "a key of zeros": make([]byte, 32), "a guessed key": []byte("secret"), "the cluster's name as key": []byte("attacked"),
		"the audience as key": []byte("muster-rest"), "the signature as key": []byte(signature)} {
		out[name] = sign(claims{"alg": "HS256", "typ": "JWT"}, root, sha256.New, key)
		out[name+", SHA-384"] = sign(claims{"alg": "HS384", "typ": "JWT"}, root, sha512.New384, key)
		out[name+", SHA-512"] = sign(claims{"alg": "HS512", "typ": "JWT"}, root, sha512.New, key)
	}
	for name, extra := range map[string]claims{"a key id that is a path": {"kid": "../../../../dev/null"}, "a key id that is a statement": {"kid": "x' UNION SELECT 'k"}, "a key of its own": {"jwk": claims{"kty": "oct", "k": "AA"}},
		"a place to get keys": {"jku": "http://127.0.0.1:1/keys"}, "critical extensions": {"crit": []string{"exp"}}, "compression": {"zip": "DEF"}, "a nested token": {"cty": "JWT"}} {
		out[name] = sign(changed(claims{"alg": "HS256", "typ": "JWT"}, extra), root, sha256.New, nil)
		out[name+" and the old signature"] = encode(changed(claims{"alg": "HS256", "typ": "JWT"}, extra)) +
			"." + body + "." + signature
	}
	return out
}

// otherLastBits changes the bits of the last character that no byte of the
// signature needs: a decoder that is not strict ignores them.
func otherLastBits(signature string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, signature[len(signature)-1])
	return signature[:len(signature)-1] + string(alphabet[last^1])
}

func changed(of, by claims) claims {
	out := claims{}
	for key, value := range of {
		out[key] = value
	}
	for key, value := range by {
		out[key] = value
	}
	return out
}

func encodeText(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func decodeText(part string) string {
	text, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		panic(err) // of the controller's own token
	}
	return string(text)
}

func encode(c claims) string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // maps of texts and numbers
	}
	return encodeText(string(text))
}

func decodeClaims(part string, to *claims) error {
	decoder := json.NewDecoder(strings.NewReader(decodeText(part)))
	decoder.UseNumber()
	return decoder.Decode(to)
}

func sign(header, body claims, newHash func() hash.Hash, key []byte) string {
	text := encode(header) + "." + encode(body)
	mac := hmac.New(newHash, key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// restClient asks the gateway over TLS. The attacks are about the client, not
// about the name of the server.
func restClient() *http.Client {
	return &http.Client{
		Timeout: 20 * time.Second,
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 4,
			TLSClientConfig: &tls.Config{
				MinVersion:         tls.VersionTLS13,
				InsecureSkipVerify: true,
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// answer is what the gateway says; status 0 = it ended the connection.
type answer struct {
	status int
	body   string
}

// question is a request to the gateway, with the header that holds a token.
type question struct{ header, token, path, body string }

// rest asks the gateway over TLS.
func (l *lab) rest(ctx context.Context, client *http.Client, q question, more ...[2]string) answer {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+
		l.portAddress(portREST)+q.path, strings.NewReader(q.body))
	if err != nil {
		return answer{body: err.Error()} // a path or header that cannot be sent at all
	}
	request.Header.Set("Content-Type", "application/json")
	if q.header != "" {
		request.Header.Set(q.header, q.token)
	}
	for _, pair := range more {
		request.Header.Set(pair[0], pair[1])
	}
	resp, err := client.Do(request)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return answer{resp.StatusCode, err.Error()}
	}
	return answer{resp.StatusCode, string(text)}
}
