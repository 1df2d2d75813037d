// Package balancer configures loxilb balancers over their REST API, and elects the balancers that
// own the VIPs.
package balancer

import (
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
	"slices"
	"strings"
	"time"

	v1 "loxilb/api/v1"
)

const (
	basePath       = "/netlox/v1"
	requestTimeout = 30 * time.Second
	maxAnswer      = 64 << 20
)

// Access has the settings for connections to balancers.
type Access struct {
	CAFile     string // CA certificates, read for each connection; empty: the system's CAs
	TokenFile  string // read for each request, since the token may change
	ServerName string // name in the balancers' certificates; empty: their address
}

// Client is a client of one balancer's API.
type Client struct {
	base      string
	address   string // HOST:PORT
	http      *http.Client
	tokenFile string
	token     string
}

// StatusError is an answer of a balancer with an error status.
type StatusError struct {
	Status int
	Body   v1.Error
}

func (r *StatusError) Error() string { return r.Body.Message }

// ParseURL parses the URL of a balancer, such as https://192.0.2.11:8091, and adds the default
// port.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("balancer %q is not a URL such as http://192.0.2.11:11111 or https://192.0.2.11:8091", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return nil, fmt.Errorf("balancer %q has more than scheme, host and port", text)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "11111", "https": "8091"}[u.Scheme]
	}
	return &url.URL{Scheme: u.Scheme, Host: net.JoinHostPort(u.Hostname(), port)}, nil
}

// NewClient returns a client of the balancer with a URL as ParseURL returns it.
func NewClient(u *url.URL, access Access) (*Client, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: access.ServerName}
	if access.CAFile != "" {
		if err := access.verifyByFile(conf, u.Hostname()); err != nil {
			return nil, err
		}
	}
	transport := &http.Transport{
		TLSClientConfig: conf, MaxConnsPerHost: 3, IdleConnTimeout: time.Minute,
		DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
		TLSHandshakeTimeout: 2 * time.Second,
	}
	c := &Client{base: u.String() + basePath, address: u.Host, http: &http.Client{Transport: transport, Timeout: requestTimeout}, tokenFile: access.TokenFile}
	// The existing controller's variable, such as ACCESS_TOKEN_192_0_2_11_8091.
	c.token = os.Getenv("ACCESS_TOKEN_" + strings.NewReplacer(".", "_", ":", "_").Replace(u.Hostname()+"_"+u.Port()))
	return c, nil
}

// verifyByFile makes each connection verify certificates by the present content of CAFile: CA
// certificates are replaced while the controller runs.
func (a *Access) verifyByFile(conf *tls.Config, host string) error {
	if _, err := a.authorities(); err != nil {
		return err
	}
	conf.InsecureSkipVerify = true // VerifyConnection does it
	conf.VerifyConnection = func(s tls.ConnectionState) error {
		roots, err := a.authorities()
		if err != nil {
			return err
		}
		name, intermediates := cmp.Or(a.ServerName, host), x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			intermediates.AddCert(c)
		}
		_, err = s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: intermediates})
		return err
	}
	return nil
}

// authorities reads CAFile.
func (a *Access) authorities() (*x509.CertPool, error) {
	pem, err := os.ReadFile(a.CAFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--ca-file %q contains no certificate", a.CAFile)
	}
	return pool, nil
}

// Apply creates, replaces or deletes services in one transaction.
func (c *Client) Apply(ctx context.Context, specs []json.RawMessage, remove bool) (*v1.ApplyResult, error) {
	body := make(pieces, 0, 2*len(specs)+1)
	separator := fmt.Sprintf(`{"doing":"kube-loxilb","remove":%v,"objects":[`, remove)
	for _, spec := range specs {
		body = append(body, []byte(separator+`{"kind":"Loadbalancer","spec":`), spec)
		separator = "},"
	}
	body = append(body, []byte("}]}"))
	var out v1.ApplyResult
	return &out, c.do(ctx, http.MethodPost, "/config/apply", body, &out)
}

// pieces are parts of a request's body, which are sent without joining them: copies for hundreds of
// balancers would take gigabytes.
type pieces [][]byte

// attach makes the pieces the body of a request.
func (p pieces) attach(req *http.Request) {
	for _, piece := range p {
		req.ContentLength += int64(len(piece))
	}
	req.GetBody = func() (io.ReadCloser, error) {
		buffers := net.Buffers(slices.Clone(p))
		return io.NopCloser(&buffers), nil
	}
	req.Body, _ = req.GetBody()
}

// bodyOf returns a value as JSON. Pieces are JSON already.
func bodyOf(body any) (pieces, error) {
	if p, ok := body.(pieces); ok {
		return p, nil
	}
	data, err := json.Marshal(body)
	return pieces{data}, err
}

// Services returns all services of the balancer, also those of users and other controllers.
func (c *Client) Services(ctx context.Context) ([]v1.ServiceArguments, error) {
	var out []v1.ServiceArguments
	err := c.do(ctx, http.MethodGet, "/config/objects?kind=Loadbalancer&managed=true", nil, streamReader(func(r io.Reader) (err error) {
		out, err = readServices(r)
		return err
	}))
	return out, err
}

// streamReader reads an answer that is too large to be kept in memory.
type streamReader func(io.Reader) error

// readServices reads a list of objects without their endpoints: with hundreds of nodes, each of all
// services has hundreds.
func readServices(r io.Reader) (out []v1.ServiceArguments, err error) {
	d := json.NewDecoder(r)
	if err := expect(d, json.Delim('{')); err != nil {
		return nil, err
	}
	for { // other versions may have more members
		name, err := d.Token()
		if err != nil || name == json.Delim('}') {
			return nil, fmt.Errorf("no list of objects: %w", cmp.Or(err, io.ErrUnexpectedEOF))
		}
		if name == "objects" {
			break
		}
		if err := d.Decode(new(json.RawMessage)); err != nil {
			return nil, err
		}
	}
	if err := expect(d, json.Delim('[')); err != nil {
		return nil, err
	}
	for d.More() {
		var object struct {
			Spec struct{ ServiceArguments v1.ServiceArguments }
		}
		if err := d.Decode(&object); err != nil {
			return nil, err
		}
		out = append(out, object.Spec.ServiceArguments)
	}
	return out, expect(d, json.Delim(']')) // an error if the list is cut off
}

// expect reads a token, which must be a delimiter.
func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = fmt.Errorf("got %v instead of %v", got, want)
	}
	return err
}

// Revision returns the number of the last change of the balancer's configuration.
func (c *Client) Revision(ctx context.Context) (uint64, error) {
	var list v1.RevisionList
	if err := c.do(ctx, http.MethodGet, "/config/revisions", nil, &list); err != nil {
		return 0, err
	}
	if len(list.RevisionAttr) == 0 {
		return 0, nil
	}
	return list.RevisionAttr[0].Revision, nil
}

// Post sends one object. It succeeds if the object exists already.
func (c *Client) Post(ctx context.Context, path string, body any) error {
	err := c.do(ctx, http.MethodPost, path, body, nil)
	if r := (*StatusError)(nil); errors.As(err, &r) && r.Status == http.StatusConflict {
		return nil
	}
	return err
}

// Instances returns the balancer's role in each instance.
func (c *Client) Instances(ctx context.Context) ([]v1.InstanceState, error) {
	var list v1.InstanceStateList
	return list.Attr, c.do(ctx, http.MethodGet, "/config/cistate/all", nil, &list)
}

// accepts reports whether the balancer's node accepts a connection. Its kernel does so even if the
// daemon hangs.
func (c *Client) accepts(ctx context.Context) bool {
	return connect(ctx, c.address) == nil
}

// connect opens and closes a TCP connection.
func connect(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// do makes a request with body as JSON, and decodes the answer into out, unless that is nil.
func (c *Client) do(ctx context.Context, method, path string, body, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return err
	}
	if body != nil {
		data, err := bodyOf(body)
		if err != nil {
			return err
		}
		data.attach(req)
		req.Header.Set("Content-Type", "application/json")
	}
	if err := c.authorize(req); err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // the body was read
	if read, ok := out.(streamReader); ok && resp.StatusCode/100 == 2 {
		if err := read(resp.Body); err != nil {
			return fmt.Errorf("%s %s: the answer is not loxilb's: %w", method, path, err)
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // so the connection can be used again
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return statusError(resp.StatusCode, data)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not loxilb's: %w", method, path, err)
	}
	return nil
}

// authorize adds the token.
func (c *Client) authorize(req *http.Request) error {
	token := c.token
	if c.tokenFile != "" {
		data, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(data))
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	return nil
}

// statusError returns the StatusError of an answer.
func statusError(status int, data []byte) error {
	r := &StatusError{Status: status}
	if json.Unmarshal(data, &r.Body) != nil || r.Body.Message == "" {
		r.Body.Message = fmt.Sprintf("HTTP status %d", status)
	}
	return r
}
