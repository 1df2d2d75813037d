package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"loxilb/internal/lb"
)

// Cluster configures the exchange of connections with other nodes.
type Cluster struct {
	Peers    []string // HOST:PORT; more may be created
	Listen   string   // ADDRESS:PORT
	Self     int      // number of this node; -1: none
	Node     string   // its name; empty: that of the host
	Key      string   // file with the key of the cluster; empty: certificates are used
	CA, Cert string
	CertKey  string
	Refused  string // why --compat ignores the cluster; empty: it is not ignored
}

// Enabled reports whether this node exchanges connections.
func (c *Cluster) Enabled() bool { return c.Key != "" || c.CA != "" }

// clusterFlags are the flags of a cluster.
type clusterFlags struct {
	nodes, node, listen, key, ca, cert, certKey string

	self int
	fs   *pflag.FlagSet
}

func (f *clusterFlags) register(fs *pflag.FlagSet) {
	f.fs = fs
	fs.StringVar(&f.nodes, "cluster", "none",
		"exchange connections with the nodes at these addresses, so they survive a node: IP, HOST:PORT or DNS name, separated by commas; this node's own address is ignored")
	fs.IntVar(&f.self, "self", 0, "unique number of this node in --cluster; 0 to 7 also reserve source ports for it")
	fs.StringVar(&f.key, "cluster-key", "", "file with a secret that all nodes of --cluster share, such as from openssl rand -hex 32; nodes use it instead of certificates. Additional lines are accepted secrets, for replacing the first; reread every second")
	fs.StringVar(&f.ca, "cluster-ca", "", "file with the CA certificates (PEM) that certify nodes of --cluster, instead of --cluster-key")
	fs.StringVar(&f.cert, "cluster-cert", "", "certificate of this node (PEM) by --cluster-ca, for its host name; reread every second")
	fs.StringVar(&f.certKey, "cluster-cert-key", "", "private key of --cluster-cert (PEM)")
	fs.StringVar(&f.node, "cluster-node", "", "name of this node in --cluster, which no other node has (default: the host name)")
	fs.StringVar(&f.listen, "cluster-listen", ":"+lb.ClusterPort, "address and port where the other nodes of --cluster connect; without an address, all of this machine")
}

// check checks the flags. With compat, a cluster without a secret is ignored, as the existing
// loxilb has none. With a shared store, the node needs a name.
func (f *clusterFlags) check(compat, shared bool) (c Cluster, err error) {
	if f.node != "" && !lb.IsHostName(f.node) {
		return c, &Error{"--cluster-node", f.node, "is not a name (allowed: letters, digits, -, _ and dots)"}
	}
	c = Cluster{Self: -1, Node: f.node, Key: f.key, CA: f.ca, Cert: f.cert, CertKey: f.certKey}
	if f.nodes == "none" || f.nodes == "" {
		if f.key+f.ca+f.cert+f.certKey == "" {
			return Cluster{Node: f.node}, f.checkUnused(shared)
		}
	} else if c.Peers, err = clusterPeers(f.nodes); err != nil {
		return c, err
	}
	if f.fs.Changed("self") {
		if c.Self = f.self; f.self < 0 || f.self >= lb.MaxClusterNodes {
			return c, &Error{"--self", strconv.Itoa(f.self), fmt.Sprintf("is out of range (allowed: 0 to %d)", lb.MaxClusterNodes-1)}
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

// checkUnused refuses flags that have no effect without other nodes. It accepts the existing
// loxilb's flags, which have no effect there either.
func (f *clusterFlags) checkUnused(shared bool) error {
	for _, name := range [...]string{"cluster-node", "cluster-key", "cluster-ca", "cluster-cert", "cluster-cert-key", "cluster-listen"} {
		if f.fs.Changed(name) && !(shared && name == "cluster-node") {
			return &Error{"--" + name, f.fs.Lookup(name).Value.String(), "needs --cluster-key, or --cluster-ca"}
		}
	}
	return nil
}

// checkSecrets checks that nodes can authenticate each other.
func (f *clusterFlags) checkSecrets() error {
	files := [...]flagFile{{"--cluster-key", f.key}, {"--cluster-ca", f.ca}, {"--cluster-cert", f.cert}, {"--cluster-cert-key", f.certKey}}
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
	return checkPEM(files[1], files[2], files[3])
}

// clusterPeers returns HOST:PORT of each node.
func clusterPeers(nodes string) (list []string, err error) {
	for _, name := range strings.Split(nodes, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return nil, &Error{"--cluster", nodes, "has an empty address: two commas, or one at an end"}
		}
		peer, err := lb.ParseClusterNode(name)
		if err != nil {
			return nil, addressError("--cluster", name, err)
		}
		if !slices.Contains(list, peer.Address) {
			list = append(list, peer.Address)
		}
	}
	if len(list) > lb.MaxClusterNodes {
		return nil, &Error{"--cluster", nodes, fmt.Sprintf("has %d nodes (allowed: %d)", len(list), lb.MaxClusterNodes)}
	}
	return list, nil
}

// addressError names the flag in place of the field of an object.
func addressError(flag, address string, err error) error {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return err
	}
	reason := fe.Reason
	if fe.Allowed != "" {
		reason += " (allowed: " + fe.Allowed + ")"
	}
	return &Error{flag, address, reason}
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
