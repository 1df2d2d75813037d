// Package session has the shared parts of loxicmd's commands: global flags, access to the server,
// tables and other formats of output, and the commands of each registered kind.
package session

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"loxilb/internal/host/build"
	"loxilb/internal/host/machine"
)

// Options are the flags of every command.
type Options struct {
	Env    Env
	Output string // wide, json or yaml; empty: a table
	format format

	timeout   time.Duration
	server    string
	context   string
	protocol  string
	apiserver string
	port      uint16
	token     string
	socket    string
	cacert    string
	insecure  bool

	idle     time.Duration // how long the server may be silent; 0: timeout
	resolved bool          // whether the server was determined
	named    bool          // it was named by --server or a context
	own      string        // why the socket of this network namespace could not be used
	flags    *pflag.FlagSet
	command  *cobra.Command // the one that runs
}

// Register adds the flags to the root command.
func (o *Options) Register(fs *pflag.FlagSet) {
	o.flags = fs
	fs.SortFlags = false
	fs.StringVar(&o.server, "server", "", "server: http://HOST:PORT, https://HOST:PORT, HOST:PORT or unix:PATH; replaces -s, -p, --protocol and --socket")
	fs.StringVar(&o.context, "context", "", "use the server of this context, see loxicmd config (default: the current context)")
	fs.StringVarP(&o.apiserver, "apiserver", "s", "127.0.0.1", "address of the server")
	fs.Uint16VarP(&o.port, "port", "p", 11111, "port of the server")
	fs.StringVar(&o.protocol, "protocol", "http", "http or https")
	fs.StringVar(&o.socket, "socket", "", "UNIX socket of the server (default, without -s, -p and --protocol: the socket of this network namespace in "+machine.SocketDir+", if it exists)")
	fs.StringVar(&o.token, "token", "", "token for the server (default: the content of "+TokenFile+")")
	fs.StringVar(&o.cacert, "cacert", "", "verify an https server with these CA certificates (PEM) instead of the system's")
	fs.BoolVar(&o.insecure, "insecure", false, "do not verify the certificate of an https server")
	DurationVar(fs, &o.timeout, "timeout", "t", 10*time.Second, "give up when the server is silent for this time")
	fs.StringVarP(&o.Output, "output", "o", "",
		"output format: wide, json or yaml; for get also name, jsonpath=TEMPLATE or custom-columns=NAME:PATH,... (or jsonpath-file=FILE, custom-columns-file=FILE)")
}

// Check returns an error for invalid values and combinations of flags.
func (o *Options) Check(cmd *cobra.Command) error {
	o.command = cmd
	var err error
	if o.format, err = parseFormat(o.Output, cmd.HasParent() && cmd.Parent().Name() == string(Get)); err != nil {
		return err
	}
	switch o.protocol {
	case "http", "https":
	default:
		return fmt.Errorf("--protocol %q is unknown (allowed: http, https)", o.protocol)
	}
	if o.server != "" {
		if _, err := parseServer(o.server); err != nil {
			return fmt.Errorf("--server %w", err)
		}
		if o.socket != "" || o.namesServer() {
			return errors.New("--server cannot be combined with another flag that names a server")
		}
	}
	if o.timeout < time.Second || o.timeout > 24*time.Hour {
		return fmt.Errorf("--timeout %s is out of range (allowed: 1s to 24h)", o.timeout)
	}
	if o.port == 0 {
		return fmt.Errorf("--port 0 is out of range (allowed: 1 to 65535)")
	}
	return nil
}

func (o *Options) wait() time.Duration { return o.timeout }

// ExtendTimeout extends the time to wait for an answer to d, unless --timeout is longer.
func (o *Options) ExtendTimeout(d time.Duration) { o.idle = max(o.wait(), d) }

// Compat reports whether tables have all columns of the existing loxilb, for scripts that parse
// them: set by LOXILB_COMPAT, as for the daemon.
func (o *Options) Compat() bool {
	text := o.Env.get("LOXILB_COMPAT")
	on, err := strconv.ParseBool(text)
	return on || err != nil && text != ""
}

// Print writes to standard output. It returns an error for a full disk or a closed pipe.
func (o *Options) Print(s string) error {
	if _, err := io.WriteString(o.Env.Stdout, s); err != nil {
		return Refused("write the output: %w", err)
	}
	return nil
}

// Exit codes of loxicmd.
const (
	ExitOK          = 0
	ExitRefused     = 1 // the server refused, or its answer is invalid
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitNo          = 4 // of explain: the packet does not arrive

	ExitPlanned = 2 // of plan: there are changes
)

// Env is the environment of a run of loxicmd.
type Env struct {
	Build  build.Info // of loxicmd itself
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	Getenv    func(string) string // of its environment
	TokenFile string              // path of the token file; empty: TokenFile
}

func (e *Env) get(name string) string {
	if e.Getenv == nil {
		return ""
	}
	return e.Getenv(name)
}

// Failure is an error with an exit code; any other error is a usage error.
type Failure struct {
	Code int
	err  error
}

func (f *Failure) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

// Exit returns an error that ends a command with an exit code. err is printed unless it is nil.
func Exit(code int, err error) error { return &Failure{code, err} }

func (f *Failure) Unwrap() error { return f.err }

// Refused returns a Failure with ExitRefused.
func Refused(format string, args ...any) error {
	return &Failure{ExitRefused, fmt.Errorf(format, args...)}
}
