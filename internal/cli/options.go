package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"loxilb/internal/apisocket"
)

// options are the flags of every command.
type options struct {
	env Env

	timeout   int
	protocol  string
	output    string
	apiserver string
	port      uint16
	token     string
	socket    string
	cacert    string
	insecure  bool

	idle  time.Duration // how long the server may be silent; 0: timeout
	own   string        // why the socket of this network namespace was of no use, if it was tried
	flags *pflag.FlagSet
}

func (o *options) register(fs *pflag.FlagSet) {
	o.flags = fs
	fs.SortFlags = false
	fs.StringVarP(&o.apiserver, "apiserver", "s", "127.0.0.1", "address of the server")
	fs.Uint16VarP(&o.port, "port", "p", 11111, "port of the server")
	fs.StringVar(&o.protocol, "protocol", "http", "http or https")
	fs.StringVar(&o.socket, "socket", "", "UNIX socket of the server (default, without -s, -p and --protocol: that of this network namespace in "+apisocket.Dir+", where there is one)")
	fs.StringVar(&o.token, "token", "", "token for the server (default: what "+tokenFile+" holds)")
	fs.StringVar(&o.cacert, "cacert", "", "certificates (PEM) to check an https server by, instead of the system's")
	fs.BoolVar(&o.insecure, "insecure", false, "don't check the certificate of an https server")
	fs.IntVarP(&o.timeout, "timeout", "t", 10, "seconds that the server may be silent")
	fs.StringVarP(&o.output, "output", "o", "", "wide, json or yaml")
}

func (o *options) check() error {
	switch o.output {
	case "", "wide", "json", "yaml":
	default:
		return fmt.Errorf("--output %q is none of wide, json and yaml", o.output)
	}
	switch o.protocol {
	case "http", "https":
	default:
		return fmt.Errorf("--protocol %q is neither http nor https", o.protocol)
	}
	if o.timeout < 1 || o.timeout > 86400 {
		return fmt.Errorf("--timeout %d is out of range: 1 to 86400 seconds", o.timeout)
	}
	if o.port == 0 {
		return fmt.Errorf("--port 0 is out of range: 1 to 65535")
	}
	return nil
}

func (o *options) wait() time.Duration { return time.Duration(o.timeout) * time.Second }

// print writes to standard output; a full disk or a closed pipe is a failure like any other.
func (o *options) print(s string) error {
	if _, err := io.WriteString(o.env.Stdout, s); err != nil {
		return refused("write the output: %w", err)
	}
	return nil
}
