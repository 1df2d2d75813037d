package ha_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// clusterPair is two nodes of a cluster. The first one has the second one's name in --cluster.
type clusterPair struct {
	t     *testing.T
	lab   *netnstest.Lab
	nodes [2]*member
	keys  [2]string // paths of key files
	hosts string    // path of the first node's /etc/hosts
}

const (
	pairName = "b.cluster.test"
	firstKey = "0123456789abcdef0123456789abcdef"
	nextKey  = "fedcba9876543210fedcba9876543210"
)

func newClusterPair(t *testing.T) *clusterPair {
	t.Helper()
	lab, dir := labtest.New(t), t.TempDir()
	p := &clusterPair{t: t, lab: lab, hosts: filepath.Join(dir, "hosts")}
	p.resolveTo("10.4.0.2")
	must(t, os.WriteFile(filepath.Join(dir, "resolv.conf"), nil, 0o600))
	var ends [2]netnstest.End
	for i, name := range []string{"a", "b"} {
		h, err := lab.Host(name)
		must(t, err)
		p.nodes[i] = &member{host: h, number: i}
		p.keys[i] = filepath.Join(dir, "key"+name)
		ends[i] = netnstest.End{Host: h, Interface: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.4.0.%d/24", i+1))}}
		p.write(i, firstKey)
	}
	must(t, lab.Link(ends[0], ends[1], 0))
	for i, peer := range []string{pairName, "10.4.0.1"} {
		m := p.nodes[i]
		ctx, cancel := context.WithTimeout(t.Context(), rig.StartPatience)
		defer cancel()
		var err error
		m.Daemon, err = m.host.StartDaemon(ctx,
			netnstest.DaemonOptions{Bin: rig.Bin(), Args: []string{"--cluster=" + peer, "--cluster-node=" + m.host.Name, "--cluster-key=" + p.keys[i]}})
		must(t, err)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("log of %s:\n%s", m.host.Name, m.Log())
			}
		})
		if i == 0 { // with another /etc/hosts
			m.Stop()
			m.Wrap("unshare", "-m", "sh", "-c", fmt.Sprintf(`mount --bind %s /etc/hosts && mount --bind %s/resolv.conf /etc/resolv.conf && exec "$@"`, p.hosts, dir), "sh")
			must(t, m.Start(ctx))
		}
	}
	p.awaitUp("10.4.0.2")
	return p
}

func (p *clusterPair) resolveTo(addresses ...string) {
	p.t.Helper()
	text := "127.0.0.1 localhost\n"
	for _, a := range addresses {
		text += a + " " + pairName + "\n"
	}
	must(p.t, os.WriteFile(p.hosts, []byte(text), 0o600))
}

func (p *clusterPair) write(i int, keys ...string) {
	p.t.Helper()
	must(p.t, os.WriteFile(p.keys[i], []byte(strings.Join(keys, "\n")+"\n"), 0o600))
}

// clusterPeer is the other node in the answer to GET /status/cluster.
type clusterPeer struct {
	Node, Address, State, Reason string
	BulkCopies                   int
}

func (p *clusterPair) peers(i int) (list []clusterPeer, problems []string, err error) {
	_, answer, _, err := p.nodes[i].request("GET", "/status/cluster", "")
	var out struct {
		Peers    []clusterPeer
		Problems []string
	}
	if err == nil {
		err = json.Unmarshal([]byte(answer), &out)
	}
	return out.Peers, out.Problems, err
}

// awaitUp waits until both nodes are connected, and the first one uses the given address of the
// second one.
func (p *clusterPair) awaitUp(address string) {
	p.t.Helper()
	for i := range p.nodes {
		await.NoError(p.t, patience, func() error {
			list, problems, err := p.peers(i)
			if err == nil && (len(list) != 1 || list[0].State != "up" || i == 0 && list[0].Address != address+":22222") {
				err = fmt.Errorf("node %d shows %+v, %q", i, list, problems)
			}
			return err
		})
	}
}

// awaitOutput waits until the output of commands on a node contains a text.
func (p *clusterPair) awaitOutput(i int, want string, commands ...string) {
	p.t.Helper()
	for _, command := range commands {
		await.NoError(p.t, patience, func() error {
			out, _ := p.nodes[i].Command(strings.Fields(command)...) // doctor exits with 1 if it reports a problem
			if !strings.Contains(out, want) {
				return fmt.Errorf("%s of node %d shows %s, want %q", command, i, out, want)
			}
			return nil
		})
	}
}

// TestClusterKeyReplaced checks that nodes replace their key while they run. If they accept both
// keys in between, they are connected after each step. Otherwise, they report the reason.
func TestClusterKeyReplaced(t *testing.T) {
	t.Parallel()
	p := newClusterPair(t)
	for n, keys := range [][]string{{firstKey, nextKey}, {nextKey}} {
		for i, m := range p.nodes {
			p.write(i, keys...)
			await.True(t, patience, "the message about the keys", func() bool {
				return strings.Count(m.Log(), "the key or certificates of the cluster have been replaced") == n+1
			})
			p.awaitUp("10.4.0.2")
		}
	}
	for i, m := range p.nodes {
		for _, bad := range []string{"is lost", "refused a node", "cannot be used", "no longer sends connections"} {
			if strings.Contains(m.Log(), bad) {
				t.Errorf("the log of node %d has %q", i, bad)
			}
		}
	}
	p.write(1, "damaged")
	p.awaitOutput(1, "has a key of 7 characters in line 1", "get cluster", "doctor")
	p.awaitUp("10.4.0.2")
	p.write(1, firstKey)
	p.awaitOutput(0, "the peer has another --cluster-key", "get cluster", "get node -o wide", "doctor")
	p.awaitOutput(1, "the peer has another --cluster-key", "get cluster", "get node -o wide", "doctor")
	p.write(1, nextKey)
	p.awaitUp("10.4.0.2")
}

// TestClusterNameMoves checks that nodes connect again after the name of one has another address,
// and stay connected when it has several addresses, or cannot be resolved.
func TestClusterNameMoves(t *testing.T) {
	t.Parallel()
	p := newClusterPair(t)
	b := p.nodes[1].host
	rig.MustRun(t, b, "ip", "address", "del", "10.4.0.2/24", "dev", "eth0")
	rig.MustRun(t, b, "ip", "address", "add", "10.4.0.3/24", "dev", "eth0")
	began := time.Now()
	p.resolveTo("10.4.0.3")
	p.awaitUp("10.4.0.3")
	t.Logf("connected again after %v", time.Since(began).Round(time.Millisecond))
	await.NoError(t, patience, func() error {
		ss, err := p.nodes[0].host.Start(netnstest.Command{Args: []string{"ss", "-Htn", "state", "established", "dst", "10.4.0.2:22222"}})
		if err == nil {
			err = ss.Wait()
		}
		if out := ss.Output(); err == nil && out != "" {
			err = fmt.Errorf("the connection to the former address still exists: %s", out)
		}
		return err
	})
	rig.MustRun(t, b, "ip", "address", "add", "10.4.0.4/24", "dev", "eth0")
	list, _, err := p.peers(0)
	must(t, err)
	p.resolveTo("10.4.0.3", "10.4.0.4")
	await.True(t, patience, "the message about addresses", func() bool {
		return strings.Contains(p.nodes[0].Log(), "10.4.0.4")
	})
	p.resolveTo()
	p.awaitOutput(0, "the name b.cluster.test:22222 cannot be resolved", "doctor")
	p.awaitOutput(0, "10.4.0.3:22222, 10.4.0.4:22222 stays in use", "get cluster", "doctor")
	p.awaitUp("10.4.0.3")
	if now, _, err := p.peers(0); err != nil || len(now) != 1 || now[0].BulkCopies != list[0].BulkCopies {
		t.Errorf("after a second address, and then none, the peers are %+v, before %+v: %v", now, list, err)
	}
}
