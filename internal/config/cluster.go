package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Cluster is the nodes with which this one exchanges connections.
type Cluster struct {
	Peers    []string // HOST:PORT; none: there is no cluster
	Listen   string   // ADDRESS:PORT
	Self     int      // number of this node; -1: none
	Node     string   // its name; empty: that of the host
	Key      string   // file with the key of the cluster; or the other files:
	CA, Cert string
	CertKey  string
	Refused  string // why --compat ignores the cluster; empty: it does not
}

const (
	clusterPort = "22222" // that of the existing loxilb
	clusterMost = 64      // nodes that may be named, and --self plus one
)

// clusterFlags are the flags of a cluster.
type clusterFlags struct {
	nodes, node, listen, key, ca, cert, certKey string

	self int
	fs   *pflag.FlagSet
}

func (f *clusterFlags) register(fs *pflag.FlagSet) {
	f.fs = fs
	fs.StringVar(&f.nodes, "cluster", "none", "exchange connections with the nodes at these addresses, so that they survive a node: IP, HOST:PORT or DNS name, with commas between; this node's own address is ignored")
	fs.IntVar(&f.self, "self", 0, "number of this node in --cluster, which no other node has")
	fs.StringVar(&f.key, "cluster-key", "", "file with a secret that all nodes of --cluster share, such as from openssl rand -hex 32; nodes use it in place of certificates")
	fs.StringVar(&f.ca, "cluster-ca", "", "file with the CA certificates (PEM) that certify nodes of --cluster, instead of --cluster-key")
	fs.StringVar(&f.cert, "cluster-cert", "", "certificate of this node (PEM) by --cluster-ca, for its host name; reloaded for each connection")
	fs.StringVar(&f.certKey, "cluster-cert-key", "", "private key of --cluster-cert (PEM)")
	fs.StringVar(&f.node, "cluster-node", "", "name of this node in --cluster, which no other node has (default: the host name)")
	fs.StringVar(&f.listen, "cluster-listen", ":"+clusterPort, "address and port where the other nodes of --cluster connect; without an address, all of this machine")
}

// check checks the flags. With compat, a cluster without a secret is ignored, as the existing
// loxilb has none. With a shared store, the node needs a name.
func (f *clusterFlags) check(compat, shared bool) (c Cluster, err error) {
	if f.node != "" && !clusterName.MatchString(f.node) {
		return c, &Error{"--cluster-node", f.node, "is not a name (allowed: letters, digits, -, _ and dots)"}
	}
	if f.nodes == "none" || f.nodes == "" {
		return Cluster{Node: f.node}, f.checkUnused(shared)
	}
	c = Cluster{Self: -1, Node: f.node, Key: f.key, CA: f.ca, Cert: f.cert, CertKey: f.certKey}
	for _, name := range strings.Split(f.nodes, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return c, &Error{"--cluster", f.nodes, "has an empty address: two commas, or one at an end"}
		}
		peer, err := clusterPeer(name)
		if err != nil {
			return c, err
		}
		if !slices.Contains(c.Peers, peer) {
			c.Peers = append(c.Peers, peer)
		}
	}
	if len(c.Peers) > clusterMost {
		return c, &Error{"--cluster", f.nodes, fmt.Sprintf("has %d nodes (allowed: %d)", len(c.Peers), clusterMost)}
	}
	if f.fs.Changed("self") {
		if c.Self = f.self; f.self < 0 || f.self >= clusterMost {
			return c, &Error{"--self", strconv.Itoa(f.self), fmt.Sprintf("is out of range (allowed: 0 to %d)", clusterMost-1)}
		}
	}
	if c.Listen, err = clusterListen(f.listen); err != nil {
		return c, err
	}
	if err := f.checkSecrets(); err != nil {
		if compat && f.key+f.ca+f.cert+f.certKey == "" {
			return Cluster{Refused: "--cluster has no effect: connections are exchanged with encryption only; give all nodes the same --cluster-key"}, nil
		}
		return c, err
	}
	return c, nil
}

// checkUnused refuses what has no effect without nodes. The existing loxilb's flags have none
// there.
func (f *clusterFlags) checkUnused(shared bool) error {
	for _, name := range [...]string{"cluster-node", "cluster-key", "cluster-ca", "cluster-cert", "cluster-cert-key", "cluster-listen"} {
		if f.fs.Changed(name) && !(shared && name == "cluster-node") {
			return &Error{"--" + name, f.fs.Lookup(name).Value.String(), "needs --cluster with the addresses of the other nodes"}
		}
	}
	return nil
}

// checkSecrets checks that nodes can prove who they are.
func (f *clusterFlags) checkSecrets() error {
	files := [...]struct{ flag, path string }{{"--cluster-key", f.key}, {"--cluster-ca", f.ca}, {"--cluster-cert", f.cert}, {"--cluster-cert-key", f.certKey}}
	for _, file := range files {
		if file.path != "" && !filepath.IsAbs(file.path) {
			return &Error{file.flag, file.path, "is not an absolute path"}
		}
	}
	switch {
	case f.key != "" && f.ca+f.cert+f.certKey != "":
		return &Error{"--cluster-key", f.key, "cannot be combined with --cluster-ca, --cluster-cert and --cluster-cert-key"}
	case f.key != "":
		return nil
	case f.ca+f.cert+f.certKey == "":
		return &Error{"--cluster", f.nodes, "needs --cluster-key with a secret that all nodes share, or --cluster-ca, --cluster-cert and --cluster-cert-key"}
	}
	for _, file := range files[1:] {
		if file.path == "" {
			return &Error{file.flag, "", "is missing: --cluster-ca, --cluster-cert and --cluster-cert-key belong together"}
		}
	}
	return nil
}

// clusterName is a DNS name.
var clusterName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9.])?$`)

// clusterPeer returns HOST:PORT of an address or name, with the usual port if it has none.
func clusterPeer(s string) (string, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return net.JoinHostPort(a.String(), clusterPort), clusterAddress(s, a)
	}
	host, port := s, clusterPort
	if strings.Contains(s, ":") {
		var err error
		if host, port, err = net.SplitHostPort(s); err != nil {
			return "", &Error{"--cluster", s, "is not IP, HOST:PORT, [IPv6]:PORT or a DNS name"}
		}
	}
	if err := checkPort("--cluster", s, port); err != nil {
		return "", err
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return net.JoinHostPort(a.String(), port), clusterAddress(s, a)
	}
	if !clusterName.MatchString(host) {
		return "", &Error{"--cluster", s, "is not IP, HOST:PORT, [IPv6]:PORT or a DNS name"}
	}
	return net.JoinHostPort(host, port), nil
}

func clusterAddress(s string, a netip.Addr) error {
	if a.IsUnspecified() || a.IsMulticast() {
		return &Error{"--cluster", s, "is not the address of a node"}
	}
	return nil
}

func clusterListen(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", &Error{"--cluster-listen", s, "is not ADDRESS:PORT or :PORT"}
	}
	if err := checkPort("--cluster-listen", s, port); err != nil {
		return "", err
	}
	if host == "" {
		return s, nil
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return "", &Error{"--cluster-listen", s, "has no IP address before its port"}
	}
	return s, nil
}

// checkPort checks the port of a flag's value.
func checkPort(flag, value, port string) error {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return &Error{flag, value, fmt.Sprintf("has the port %q (allowed: 1 to 65535)", port)}
	}
	return nil
}
