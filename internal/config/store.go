package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"loxilb/internal/lb"
)

// Store is the location of shared objects; the zero value: this node.
type Store struct {
	Servers        []string // of etcd, HOST:PORT; none: no shared store
	Prefix         string   // of its keys, without a slash at its end
	TLS            bool
	CA, Cert, Key  string // files
	User, Password string // empty: none
	Join           string // JoinStore, JoinLocal, or empty
}

// JoinStore and JoinLocal are the treatments of a joining node's objects that the shared store
// lacks.
const (
	JoinStore = "store" // drops them
	JoinLocal = "local" // puts them there
)

const (
	etcdPort       = "2379"
	maxEtcdServers = 16 // servers that may be named
	storePrefix    = "/loxilb"
	maxLogin       = 4096 // bytes of the file that are read
)

// storeFlags are the flags of the shared store.
type storeFlags struct {
	url, ca, cert, key, login, join string

	fs *pflag.FlagSet
}

func (f *storeFlags) register(fs *pflag.FlagSet) {
	f.fs = fs
	fs.StringVar(&f.url, "store", "", "keep services, endpoints, rules and other objects that all nodes share in etcd: etcd://HOST:PORT[,HOST:PORT][/PREFIX]; routes, addresses, roles and BGP stay on each node")
	fs.StringVar(&f.ca, "store-ca", "", "file with the CA certificates (PEM) that certify the servers of --store, reloaded for each connection; without it, connections are not encrypted")
	fs.StringVar(&f.cert, "store-cert", "", "client certificate (PEM) for --store; reloaded for each connection")
	fs.StringVar(&f.key, "store-cert-key", "", "private key of --store-cert (PEM)")
	fs.StringVar(&f.login, "store-login", "", "file with NAME:PASSWORD of a user of etcd")
	fs.StringVar(&f.join, "store-join", "", "when this node first uses --store and both hold different objects: store drops those of this node, local puts them there (default: keep them, and do not join)")
}

// etcdPrefix is a prefix of keys.
var etcdPrefix = regexp.MustCompile(`^(/[A-Za-z0-9_.-]+)+$`)

// check checks the flags.
func (f *storeFlags) check() (s Store, err error) {
	if f.url == "" {
		for _, name := range [...]string{"store-ca", "store-cert", "store-cert-key", "store-login", "store-join"} {
			if f.fs.Changed(name) {
				return s, &Error{"--" + name, f.fs.Lookup(name).Value.String(), "needs --store"}
			}
		}
		return s, nil
	}
	rest, ok := strings.CutPrefix(f.url, "etcd://")
	if !ok {
		return s, &Error{"--store", f.url, "is not etcd://HOST:PORT[,HOST:PORT][/PREFIX]"}
	}
	hosts, prefix, given := strings.Cut(rest, "/")
	if s.Prefix = storePrefix; given && prefix != "" {
		s.Prefix = "/" + strings.TrimSuffix(prefix, "/")
	}
	if !etcdPrefix.MatchString(s.Prefix) {
		return s, &Error{"--store", f.url, "has a prefix with other characters than letters, digits, -, _, dots and slashes"}
	}
	for _, host := range strings.Split(hosts, ",") {
		if host = strings.TrimSpace(host); host == "" {
			return s, &Error{"--store", f.url, "has an empty address (allowed: etcd://HOST:PORT[,HOST:PORT][/PREFIX])"}
		}
		server, err := lb.ParseHostPort(host, etcdPort)
		if err != nil {
			return s, addressError("--store", host, err)
		}
		if !slices.Contains(s.Servers, server) {
			s.Servers = append(s.Servers, server)
		}
	}
	if len(s.Servers) > maxEtcdServers {
		return s, &Error{"--store", f.url, fmt.Sprintf("has %d servers (allowed: %d)", len(s.Servers), maxEtcdServers)}
	}
	if s.Join = f.join; f.join != "" && f.join != JoinStore && f.join != JoinLocal {
		return s, &Error{"--store-join", f.join, "is unknown (allowed: store, local)"}
	}
	return s, f.checkFiles(&s)
}

// checkFiles checks the files, and reads the user.
func (f *storeFlags) checkFiles(s *Store) error {
	for _, file := range [...]struct{ flag, path string }{{"--store-ca", f.ca}, {"--store-cert", f.cert}, {"--store-cert-key", f.key}, {"--store-login", f.login}} {
		if file.path != "" && !filepath.IsAbs(file.path) {
			return &Error{file.flag, file.path, "is not an absolute path"}
		}
	}
	s.CA, s.Cert, s.Key, s.TLS = f.ca, f.cert, f.key, f.ca != ""
	switch {
	case f.cert != "" && f.key == "":
		return &Error{"--store-cert", f.cert, "has no key: add --store-cert-key"}
	case f.key != "" && f.cert == "":
		return &Error{"--store-cert-key", f.key, "has no certificate: add --store-cert"}
	case f.cert != "" && f.ca == "":
		return &Error{"--store-cert", f.cert, "needs --store-ca: without it, connections are not encrypted"}
	case f.login != "" && f.ca == "":
		return &Error{"--store-login", f.login, "needs --store-ca: without it, the password would be sent unencrypted"}
	}
	if err := checkPEM(flagFile{"--store-ca", f.ca}, flagFile{"--store-cert", f.cert}, flagFile{"--store-cert-key", f.key}); err != nil || f.login == "" {
		return err
	}
	return f.readLogin(s)
}

func (f *storeFlags) readLogin(s *Store) error {
	info, err := os.Stat(f.login)
	if err != nil {
		return &Error{"--store-login", f.login, "cannot be read: " + cause(err)}
	}
	if info.Mode().Perm()&0o077 != 0 {
		return &Error{"--store-login", f.login, fmt.Sprintf("has mode %04o: others can read the password (chmod 600)", info.Mode().Perm())}
	}
	text, err := os.ReadFile(f.login)
	if err != nil {
		return &Error{"--store-login", f.login, "cannot be read: " + cause(err)}
	}
	var ok bool
	s.User, s.Password, ok = strings.Cut(strings.TrimSpace(string(text[:min(len(text), maxLogin)])), ":")
	if !ok || s.User == "" || s.Password == "" {
		return &Error{"--store-login", f.login, "does not hold NAME:PASSWORD"}
	}
	return nil
}
