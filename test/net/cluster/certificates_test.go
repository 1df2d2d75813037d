package cluster_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"

	"loxilb/test/certtest"
)

// certificates are the certificates of nodes that have no key. Nodes start with those of the first
// authority.
type certificates struct {
	dir         string
	authorities [2]*certtest.Authority
}

func (f *fleet) newCertificates() *certificates {
	f.t.Helper()
	c := &certificates{dir: f.t.TempDir()}
	for i, name := range []string{"first", "second"} {
		c.authorities[i] = certtest.NewAuthority(f.t, name)
	}
	for _, m := range f.nodes {
		c.accept(m, c.authorities[0])
		c.issue(m, c.authorities[0])
	}
	return c
}

// accept writes the authorities that a node accepts.
func (c *certificates) accept(m *member, list ...*certtest.Authority) {
	m.fleet.t.Helper()
	var all [][]byte
	for _, a := range list {
		all = append(all, a.Cert)
	}
	must(m.fleet.t, os.WriteFile(c.path(m, "-ca.pem"), bytes.Join(all, nil), 0o600))
}

// issue writes a certificate for a node.
func (c *certificates) issue(m *member, authority *certtest.Authority) {
	m.fleet.t.Helper()
	authority.Issue(m.fleet.t, m.host.Name).Write(m.fleet.t, c.dir, m.host.Name)
}

func (c *certificates) path(m *member, suffix string) string {
	return filepath.Join(c.dir, m.host.Name+suffix)
}

func (c *certificates) args(m *member) []string {
	return []string{"--cluster-ca=" + c.path(m, "-ca.pem"), "--cluster-cert=" + c.path(m, ".pem"), "--cluster-cert-key=" + c.path(m, ".key")}
}

// replaceAuthority replaces the authority and the certificates of all nodes, as docs/cluster.md
// describes. Nodes may run two builds.
func (e *experiment) replaceAuthority() {
	e.t.Helper()
	c := e.fleet.certificates
	first, second := c.authorities[0], c.authorities[1]
	for _, write := range []func(*member){
		func(m *member) { c.accept(m, first, second) },
		func(m *member) { c.issue(m, second) },
		func(m *member) { c.accept(m, second) },
	} {
		for _, m := range e.fleet.nodes {
			m.awaitNewCredentials(func() { write(m) })
			e.fleet.awaitPeers()
			e.clients.awaitAnswers()
		}
	}
	slices.Reverse(c.authorities[:])
}
