package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"

	v1 "loxilb/api/v1"
	"loxilb/internal/host/machine"
)

// TokenFile is the contract's path of the token. Any user can create it, so it is used only if it
// belongs to loxicmd's user.
const TokenFile = "/tmp/loxilbtoken"

// Client returns a client of the server that the flags select.
func (o *Options) Client() (*v1.Client, error) {
	if err := o.resolve(); err != nil {
		return nil, err
	}
	transport := &http.Transport{DialContext: o.dial, ForceAttemptHTTP2: false}
	if o.protocol == "https" {
		conf, err := o.tls()
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = conf
	}
	host := strings.TrimSuffix(strings.TrimPrefix(o.apiserver, "["), "]")
	base := url.URL{Scheme: o.protocol, Host: net.JoinHostPort(host, strconv.Itoa(int(o.port))), Path: "/netlox/v1"}
	return v1.NewClient(base.String(),
		v1.WithHTTPClient(&http.Client{Transport: transport}),
		v1.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			dropEmpty(r.URL)
			if token := o.readToken(); token != "" {
				r.Header.Set("Authorization", token)
			}
			return nil
		}))
}

// dropEmpty removes empty parameters.
func dropEmpty(u *url.URL) {
	q := u.Query()
	for name := range q {
		if q.Get(name) == "" {
			q.Del(name)
		}
	}
	u.RawQuery = q.Encode()
}

func (o *Options) tls() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.insecure} //nolint:gosec // requested by --insecure
	if o.cacert == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(o.cacert)
	if err != nil {
		return nil, fmt.Errorf("--cacert: %w", err)
	}
	conf.RootCAs = x509.NewCertPool()
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--cacert %q contains no certificate", o.cacert)
	}
	return conf, nil
}

// dial connects to the requested server. By default it is the daemon of this network namespace: by
// its socket, or, if that is missing or inaccessible, by the port.
func (o *Options) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: o.wait()}
	conn, err := o.connect(ctx, &d, network, addr)
	if err != nil {
		return nil, err
	}
	return &idleConn{conn, cmp.Or(o.idle, o.wait())}, nil
}

// IsRemote reports whether flags or a context select another server than this network namespace's.
func (o *Options) IsRemote() bool {
	return o.named || o.socket != "" || o.namesServer() || o.protocol != "http"
}

func (o *Options) connect(ctx context.Context, d *net.Dialer, network, addr string) (net.Conn, error) {
	if o.socket != "" {
		return d.DialContext(ctx, "unix", o.socket)
	}
	if path, err := machine.SocketPath(); !o.IsRemote() && err == nil {
		conn, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		o.own = fmt.Sprintf("; nor the socket of this network namespace, %s: %v", path, withoutAddress(err))
	}
	return d.DialContext(ctx, network, addr)
}

// TokenPath returns the path of the token file.
func (o *Options) TokenPath() string { return cmp.Or(o.Env.TokenFile, TokenFile) }

// Token returns the token of requests; empty: none.
func (o *Options) Token() string { return o.readToken() }

func (o *Options) readToken() string {
	if o.token != "" {
		return o.token
	}
	info, err := os.Lstat(o.TokenPath())
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return ""
	}
	if info.Mode().Perm()&0o077 != 0 {
		_ = os.Chmod(o.TokenPath(), 0o600) // the existing loxicmd makes it world-readable; a failure does not matter
	}
	data, err := os.ReadFile(o.TokenPath())
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// Answer returns the body of an answer, and an error when the server refused or did not answer.
func (o *Options) Answer(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, o.unreachable(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read to its end, or is no longer needed
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, &Failure{ExitUnreachable, fmt.Errorf("the server's answer ended early: %w", err)}
	}
	o.warn(resp)
	if resp.StatusCode/100 == 2 {
		return body, errorInside(body)
	}
	return body, Refused("%s", o.sentence(resp, body))
}

// warn prints the server's warnings: header lines as 299 loxilb "text".
func (o *Options) warn(resp *http.Response) {
	for _, line := range resp.Header.Values("Warning") {
		if _, quoted, ok := strings.Cut(line, ` "`); ok {
			if text, err := strconv.Unquote(`"` + quoted); err == nil {
				fmt.Fprintln(o.Env.Stderr, "Warning: "+o.asTyped(text))
			}
		}
	}
}

// unreachable returns the Failure for a request without an answer.
func (o *Options) unreachable(err error) error {
	return &Failure{ExitUnreachable, o.noAnswer(err)}
}

func (o *Options) noAnswer(err error) error {
	var ue *url.Error
	if !errors.As(err, &ue) {
		return err
	}
	at := o.socket
	if at == "" {
		at = net.JoinHostPort(o.apiserver, strconv.Itoa(int(o.port)))
	}
	var ne net.Error
	if errors.As(ue.Err, &ne) && ne.Timeout() {
		if ue.Op != "Get" {
			return fmt.Errorf("the server at %s did not answer within %s, and a change that it has received may still be made: "+
				"look at the objects, or try again with a longer --timeout", at, o.timeout)
		}
		return fmt.Errorf("the server at %s did not answer within %s", at, o.timeout)
	}
	return fmt.Errorf("cannot reach the server at %s: %w%s", at, withoutAddress(ue.Err), o.own)
}

// withoutAddress removes the part of an error that the surrounding sentence repeats.
func withoutAddress(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// sentence returns the server's error message. The existing loxilb has it in result. A
// failed login has no property: its first word only looks like the flag --user.
func (o *Options) sentence(resp *http.Response, body []byte) string {
	var e v1.Error
	if json.Unmarshal(body, &e) != nil || e.Message+e.Result == "" {
		return "the server answered " + resp.Status
	}
	if e.Message == "" {
		return e.Result
	}
	if e.Reason == "" && e.Result != "" && !strings.Contains(e.Message, e.Result) {
		return e.Message + ": " + e.Result
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return e.Message
	}
	return o.asTyped(e.Message)
}

// errorInside returns the error in an answer of the existing loxilb with a status of success.
func errorInside(body []byte) error {
	var r v1.Result
	if len(body) < 1<<12 && json.Unmarshal(body, &r) == nil && strings.HasPrefix(r.Result, "Error") {
		return Refused("%s", r.Result)
	}
	return nil
}

// Done prints the message of the answer to a change, if it has one.
func (o *Options) Done(body []byte) error {
	word := "success"
	var r v1.Result
	if json.Unmarshal(body, &r) == nil && r.Message != "" {
		word = OneLine(r.Message)
	}
	return o.printResult(body, word)
}

// Deleted is Done with the number of deleted objects. A negative number is unknown.
func (o *Options) Deleted(body []byte, count int, what string) error {
	if count < 0 {
		return o.Done(body)
	}
	return o.printResult(body, "success: "+Count(count, what)+" deleted")
}

// printResult prints a word or, with -o json or yaml, the answer.
func (o *Options) printResult(body []byte, word string) error {
	if o.IsRaw() {
		return o.PrintRaw(body)
	}
	return o.Print(word + "\n")
}

// IsRaw reports whether answers are printed unchanged.
func (o *Options) IsRaw() bool { return o.Output == "json" || o.Output == "yaml" }

// PrintRaw prints a JSON answer unchanged, indented, or as YAML.
func (o *Options) PrintRaw(body []byte) error {
	if len(body) == 0 {
		body = []byte("{}")
	}
	if o.Output == "yaml" {
		out, err := yaml.JSONToYAML(body)
		if err != nil {
			return Refused("the server's answer is not JSON: %w", err)
		}
		return o.Print(string(out))
	}
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(body), "", "    "); err != nil {
		return Refused("the server's answer is not JSON: %w", err)
	}
	return o.Print(out.String() + "\n")
}

// Decode reads an answer.
func Decode(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return Refused("unexpected answer from the server: %w", err)
	}
	return nil
}

// DecodeAs decodes the result of Answer.
func DecodeAs[T any](body []byte, err error) (answer T, _ error) {
	if err == nil {
		err = Decode(body, &answer)
	}
	return answer, err
}

// Raw returns a value as JSON.
func Raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // types of the API can be marshalled
	}
	return b
}
