package cluster_test

import (
	"fmt"
	"os"
	"strings"

	"loxilb/test/await"
)

// clusterKeys are the key with which nodes start, and the one that takes its place. wrongKey is one
// that no other node has.
var (
	clusterKeys = [2]string{strings.Repeat("0123456789abcdef", 4), strings.Repeat("fedcba9876543210", 4)}
	wrongKey    = strings.Repeat("0011223344556677", 4)
)

func (m *member) keyFile() string { return m.f.key + "-" + m.host.Name }

func (m *member) writeKeys(keys ...string) {
	m.f.t.Helper()
	must(m.f.t, os.WriteFile(m.keyFile(), []byte(strings.Join(keys, "\n")), 0o600))
}

// replaceKeys writes the keys of a node, and waits until it uses them.
func (m *member) replaceKeys(keys ...string) {
	m.f.t.Helper()
	m.awaitNewCredentials(func() { m.writeKeys(keys...) })
}

// awaitNewCredentials writes other keys or certificates, and waits until the node uses them.
func (m *member) awaitNewCredentials(write func()) {
	m.f.t.Helper()
	replaced := func() int {
		return strings.Count(m.Log(), "the key or certificates of the cluster have been replaced")
	}
	before := replaced()
	write()
	await.NoError(m.f.t, patience, func() error {
		if replaced() == before {
			return fmt.Errorf("%s does not read its new keys or certificates", m.host.Name)
		}
		return nil
	})
}

// keysReplaced replaces the key of all nodes, as docs/cluster.md says, and meanwhile makes the
// mistake of giving one node a key that no other one has. Nodes may be of two builds.
func (p *proof) keysReplaced() {
	p.t.Helper()
	if p.f.certificates != nil {
		p.authorityReplaced()
		return
	}
	first, second := p.keys[0], p.keys[1]
	defer func() { p.keys = [2]string{second, first} }()
	round := func(keys ...string) {
		for _, m := range p.f.nodes {
			m.replaceKeys(keys...)
			p.f.awaitPeers()
			p.c.awaitAnswers()
		}
	}
	round(first, second)
	a := p.f.nodes[0]
	a.replaceKeys(wrongKey)
	await.NoError(p.t, patience, func() error {
		s, err := a.status()
		if err != nil {
			return err
		}
		for _, peer := range s.Peers {
			if peer.State != "refused" || !strings.Contains(peer.Reason, "--cluster-key") {
				return fmt.Errorf("with another key: %+v", peer)
			}
		}
		return nil
	})
	p.c.awaitAnswers()
	a.replaceKeys(first, second)
	p.f.awaitPeers()
	round(second)
}
