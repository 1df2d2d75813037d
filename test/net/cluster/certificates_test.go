package cluster_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"

	"loxilb/test/certtest"
)

// certificates of nodes, which use them instead of a key: of the first authority at first.
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
	m.f.t.Helper()
	var all [][]byte
	for _, a := range list {
		all = append(all, a.Cert)
	}
	must(m.f.t, os.WriteFile(c.path(m, "-ca.pem"), bytes.Join(all, nil), 0o600))
}

// issue gives a node a certificate.
func (c *certificates) issue(m *member, by *certtest.Authority) {
	m.f.t.Helper()
	by.Issue(m.f.t, m.host.Name).Write(m.f.t, c.dir, m.host.Name)
}

func (c *certificates) path(m *member, suffix string) string {
	return filepath.Join(c.dir, m.host.Name+suffix)
}

func (c *certificates) args(m *member) []string {
	return []string{"--cluster-ca=" + c.path(m, "-ca.pem"), "--cluster-cert=" + c.path(m, ".pem"), "--cluster-cert-key=" + c.path(m, ".key")}
}

// authorityReplaced replaces the authority and the certificates of all nodes, as docs/cluster.md
// says. Nodes may be of two builds.
func (p *proof) authorityReplaced() {
	p.t.Helper()
	c := p.f.certificates
	first, second := c.authorities[0], c.authorities[1]
	for _, write := range []func(*member){
		func(m *member) { c.accept(m, first, second) },
		func(m *member) { c.issue(m, second) },
		func(m *member) { c.accept(m, second) },
	} {
		for _, m := range p.f.nodes {
			m.awaitNewCredentials(func() { write(m) })
			p.f.awaitPeers()
			p.c.awaitAnswers()
		}
	}
	slices.Reverse(c.authorities[:])
}
