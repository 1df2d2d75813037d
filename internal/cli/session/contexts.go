package session

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Contexts is the content of the file of contexts.
type Contexts struct {
	Current string    `json:"current-context,omitempty"`
	List    []Context `json:"contexts"`
}

// Context has the settings for reaching a server.
type Context struct {
	Name     string `json:"name"`
	Server   string `json:"server,omitempty"` // a value of --server; "": the daemon of this network namespace
	CACert   string `json:"cacert,omitempty"`
	Insecure bool   `json:"insecure,omitempty"`
	Token    string `json:"token,omitempty"`
}

// contextsPath returns the path of the file; "": unknown.
func (o *Options) contextsPath() string {
	if path := o.Env.get("LOXICMD_CONFIG"); path != "" {
		return path
	}
	dir := o.Env.get("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home := o.Env.get("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "loxilb", "config.yaml")
}

// ReadContexts reads the file; a missing one has no contexts. A file with a token that others may
// read is refused.
func (o *Options) ReadContexts() (c Contexts, err error) {
	c.List = []Context{}
	path := o.contextsPath()
	data, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return c, fmt.Errorf("%s is not a context file: %w", path, err)
	}
	for i := range c.List {
		if err := c.List[i].check(); err != nil {
			return c, fmt.Errorf("%s: %w", path, err)
		}
	}
	if !slices.ContainsFunc(c.List, func(one Context) bool { return one.Token != "" }) {
		return c, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return c, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return Contexts{}, fmt.Errorf("%s contains a token and has mode %04o: others must not read it (chmod 600 %[1]s)", path, mode)
	}
	return c, nil
}

func (c *Context) check() error {
	if c.Name == "" || strings.ContainsAny(c.Name, " \t\n\"'") {
		return fmt.Errorf("%q is not a context name: spaces and quotes are not allowed", c.Name)
	}
	if c.Server == "" {
		return nil
	}
	_, err := parseServer(c.Server)
	if err != nil {
		return fmt.Errorf("server of context %s: %w", c.Name, err)
	}
	return nil
}

// WriteContexts replaces the file as a whole. Only its owner may read it.
func (o *Options) WriteContexts(c Contexts) error {
	path := o.contextsPath()
	if path == "" {
		return errors.New("cannot locate the context file: set LOXICMD_CONFIG or HOME")
	}
	for i := range c.List {
		if err := c.List[i].check(); err != nil {
			return err
		}
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the path may be a symbolic link
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("context file %s is not a regular file", path) // such as LOXICMD_CONFIG=/dev/null
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".config-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Find returns the index of the named context, or -1.
func (c *Contexts) Find(name string) int {
	return slices.IndexFunc(c.List, func(one Context) bool { return one.Name == name })
}

// NoContext returns the error for a missing context.
func (c *Contexts) NoContext(name string) error {
	if len(c.List) == 0 {
		return fmt.Errorf("context %q not found, and there is no other: create one with loxicmd config set-context", name)
	}
	names := make([]string, len(c.List))
	for i := range c.List {
		names[i] = c.List[i].Name
	}
	return fmt.Errorf("context %q not found (available: %s)", name, strings.Join(names, ", "))
}

// serverAddress is the address of a server.
type serverAddress struct {
	protocol, host, socket string
	port                   uint16
}

// parseServer parses http://HOST:PORT, https://HOST:PORT, HOST:PORT, unix:PATH or a path. The
// default is the usual port.
func parseServer(text string) (d serverAddress, err error) {
	wrong := fmt.Errorf("%q is not a server address (allowed: http://HOST:PORT, https://HOST:PORT, HOST:PORT, unix:PATH)", text)
	if path, ok := strings.CutPrefix(text, "unix:"); ok || strings.HasPrefix(text, "/") {
		if ok {
			text = strings.TrimPrefix(path, "//")
		}
		if !filepath.IsAbs(text) {
			return d, wrong
		}
		return serverAddress{protocol: "http", socket: text, host: "127.0.0.1", port: 11111}, nil
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
		return d, wrong
	}
	d = serverAddress{protocol: u.Scheme, host: u.Hostname(), port: map[string]uint16{"http": 11111, "https": 8091}[u.Scheme]}
	if d.port == 0 {
		return d, wrong
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return d, wrong
		}
		d.port = uint16(n)
	}
	return d, nil
}

// ServerOf returns the server that the flags select, in the format of Context.Server; "": none.
func (o *Options) ServerOf() string {
	switch {
	case o.server != "":
		return o.server
	case o.socket != "":
		return "unix:" + o.socket
	case o.namesServer():
		return o.protocol + "://" + net.JoinHostPort(strings.Trim(o.apiserver, "[]"), strconv.Itoa(int(o.port)))
	}
	return ""
}

// Given returns the other flags of a context, and whether each was given.
func (o *Options) Given() (c Context, cacert, insecure, token bool) {
	c = Context{CACert: o.cacert, Insecure: o.insecure, Token: o.token}
	return c, o.flags.Changed("cacert"), o.flags.Changed("insecure"), o.flags.Changed("token")
}

// namesServer reports whether a flag of the contract selects a server.
func (o *Options) namesServer() bool {
	return o.flags.Changed("apiserver") || o.flags.Changed("port") || o.flags.Changed("protocol")
}

// resolve determines the server: from the flags, or else from the context.
func (o *Options) resolve() error {
	if o.resolved {
		return nil
	}
	o.resolved = true
	byFlags := o.server != "" || o.socket != "" || o.namesServer()
	if o.context == "" && byFlags {
		return o.enter(o.server, "--server")
	}
	if byFlags {
		return errors.New("--context cannot be combined with a flag that names a server")
	}
	c, err := o.ReadContexts()
	if err != nil {
		return err
	}
	name := o.context
	if name == "" {
		name = c.Current
	}
	if name == "" {
		return nil
	}
	i := c.Find(name)
	if i < 0 {
		return c.NoContext(name)
	}
	one := c.List[i]
	if !o.flags.Changed("cacert") {
		o.cacert = one.CACert
	}
	o.insecure = o.insecure || one.Insecure
	if o.token == "" {
		o.token = one.Token
	}
	return o.enter(one.Server, "context "+name)
}

// enter sets the server.
func (o *Options) enter(server, said string) error {
	if server == "" {
		return nil
	}
	d, err := parseServer(server)
	if err != nil {
		return fmt.Errorf("%s: %w", said, err)
	}
	o.protocol, o.apiserver, o.port, o.socket, o.named = d.protocol, d.host, d.port, d.socket, true
	return nil
}

// ContextNames returns the names with a prefix, except for some.
func (o *Options) ContextNames(begin string, but ...string) (names []string) {
	c, err := o.ReadContexts()
	if err != nil {
		return nil
	}
	for _, one := range c.List {
		if strings.HasPrefix(one.Name, begin) && !slices.Contains(but, one.Name) {
			names = append(names, one.Name)
		}
	}
	return names
}
