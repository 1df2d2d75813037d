package cluster_test

import (
	"fmt"
	"os"
	"strings"

	"loxilb/test/await"
)

// clusterKeys are the key that nodes start with, and the one that replaces it. No other node has
// wrongKey.
var (
	clusterKeys = [2]string{strings.Repeat("0123456789abcdef", 4), strings.Repeat("fedcba9876543210", 4)}
	wrongKey    = strings.Repeat("0011223344556677", 4)
)

func (m *member) keyFile() string { return m.fleet.keyPrefix + "-" + m.host.Name }

func (m *member) writeKeys(keys ...string) {
	m.fleet.t.Helper()
	must(m.fleet.t, os.WriteFile(m.keyFile(), []byte(strings.Join(keys, "\n")), 0o600))
}

// replaceKeys writes the keys of a node, and waits until the node uses them.
func (m *member) replaceKeys(keys ...string) {
	m.fleet.t.Helper()
	m.awaitNewCredentials(func() { m.writeKeys(keys...) })
}

// awaitNewCredentials calls write, which replaces the node's keys or certificates, and waits until
// the node uses the new ones.
func (m *member) awaitNewCredentials(write func()) {
	m.fleet.t.Helper()
	replaced := func() int {
		return strings.Count(m.Log(), "the key or certificates of the cluster have been replaced")
	}
	before := replaced()
	write()
	await.NoError(m.fleet.t, patience, func() error {
		if replaced() == before {
			return fmt.Errorf("%s has not read its new keys or certificates", m.host.Name)
		}
		return nil
	})
}

// replaceAllKeys replaces the key of all nodes, as docs/cluster.md describes, and meanwhile gives
// one node a wrong key by mistake. Nodes may run two builds.
func (e *experiment) replaceAllKeys() {
	e.t.Helper()
	if e.fleet.certificates != nil {
		e.replaceAuthority()
		return
	}
	first, second := e.keys[0], e.keys[1]
	defer func() { e.keys = [2]string{second, first} }()
	replace := func(keys ...string) {
		for _, m := range e.fleet.nodes {
			m.replaceKeys(keys...)
			e.fleet.awaitPeers()
			e.clients.awaitAnswers()
		}
	}
	replace(first, second)
	a := e.fleet.nodes[0]
	a.replaceKeys(wrongKey)
	await.NoError(e.t, patience, func() error {
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
	e.clients.awaitAnswers()
	a.replaceKeys(first, second)
	e.fleet.awaitPeers()
	replace(second)
}
