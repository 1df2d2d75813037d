package cluster_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/test/await"
)

// proof runs cases while a crowd talks.
type proof struct {
	t       *testing.T
	f       *fleet
	c       *crowd
	cases   []*caseResult
	current *round
	keys    [2]string // of the nodes: the present one, and the next one
}

// caseResult is what several rounds of a case have shown.
type caseResult struct {
	Name   string   `json:"name"`
	Rounds []*round `json:"rounds"`
}

// round is one run of a case.
type round struct {
	observation
	Seconds float64            `json:"seconds"`
	Numbers map[string]float64 `json:"numbers,omitempty"` // what else was measured, units in the names
}

// newProof starts a fleet, and a crowd that talks through it.
func newProof(t *testing.T, o options, l load) *proof {
	t.Helper()
	p := &proof{t: t, f: newFleet(t, o), keys: clusterKeys}
	p.f.awaitPeers()
	p.c = newCrowd(p.f, l)
	p.c.awaitAnswers()
	return p
}

// run runs a case, and reports connections that it has broken.
func (p *proof) run(name string, do func()) {
	p.t.Helper()
	if !chosen.MatchString(name) {
		return
	}
	p.current = &round{Numbers: map[string]float64{}}
	began, lost, down := time.Now(), backlogDrops(p.t), p.f.sessionsLost()
	p.c.begin()
	do()
	p.c.awaitAnswers()
	p.f.awaitPeers()
	p.f.awaitSessions(fleetSize)
	p.f.awaitBFD()
	r := p.current
	r.observation, r.Seconds = p.c.observe(), time.Since(began).Seconds()
	p.note("packets that the machine has dropped", float64(backlogDrops(p.t)-lost))
	p.note("BFD sessions that the router has lost, of 6", float64(p.f.sessionsLost()-down))
	p.c.fill()
	if r.Broken > 0 {
		for _, m := range p.f.nodes { // a node that starts again has another log
			p.t.Logf("log of %s so far:\n%s", m.host.Name, m.Log())
		}
		p.t.Errorf("%s: %d of %d connections are broken", name, r.Broken, p.c.load.TCP+p.c.load.UDP+int(r.Opened))
	}
	p.t.Logf("%s: %.1f s; %d connections opened, %d broken, %d more broken at an age below 10 ms, %d not opened; longest silence %.3f s, of flows "+
		"%.3f s (%s); %v\n%s",
		name, r.Seconds,
		r.Opened, r.Broken, r.Young, r.Refused, r.Silence, r.Flows, r.Slowest, r.Numbers, strings.Join(r.Losses, "\n"))
	for _, c := range p.cases {
		if c.Name == name {
			c.Rounds = append(c.Rounds, r)
			return
		}
	}
	p.cases = append(p.cases, &caseResult{name, []*round{r}})
}

// backlogDrops returns how many packets of all namespaces found the backlog of a CPU full. Other
// work of the machine, floods for example, drops packets of the rig there.
func backlogDrops(t *testing.T) (sum uint64) {
	t.Helper()
	b, err := os.ReadFile("/proc/net/softnet_stat")
	must(t, err)
	for line := range strings.Lines(string(b)) {
		n, err := strconv.ParseUint(strings.Fields(line)[1], 16, 64) // a line for each CPU
		must(t, err)
		sum += n
	}
	return sum
}

// note notes a number of the current round.
func (p *proof) note(name string, v float64) { p.current.Numbers[name] = v }

// silence silences a node, and waits until the router no longer sends it packets.
func (p *proof) silence(do func()) {
	p.t.Helper()
	ended, began := p.c.expectSilence(), time.Now()
	do()
	p.f.awaitSessions(fleetSize - 1)
	ended()
	p.note("router leaves the node after, s", time.Since(began).Seconds())
}

// stopped stops a node's process: its kernel continues, but BFD no longer answers.
func (p *proof) stopped(node int) {
	m := p.f.nodes[node]
	p.silence(m.pause)
	p.c.awaitAnswers()
	m.unpause()
	p.f.awaitSessions(fleetSize)
}

// cable cuts a node off, and meanwhile calls do.
func (p *proof) cable(node int, do func()) {
	m := p.f.nodes[node]
	p.silence(func() { m.cut(true) })
	do()
	p.c.awaitAnswers()
	m.cut(false)
	p.f.awaitSessions(fleetSize)
}

// removed cuts a node off while an endpoint is removed from all services of all nodes.
func (p *proof) removed(node, endpoint int) {
	p.c.removed.Store(uint32(endpoint + 1))
	p.cable(node, func() { p.setEndpoint(endpoint, "--detachEP") })
	p.setEndpoint(endpoint, "--attachEP")
}

// setEndpoint removes an endpoint from all services of all nodes, or adds it again.
func (p *proof) setEndpoint(endpoint int, flag string) {
	p.t.Helper()
	var all sync.WaitGroup
	for _, m := range p.f.nodes {
		all.Go(func() {
			for _, is6 := range []bool{false, true} {
				for _, mode := range []string{"onearm", "fullnat", "default", "dsr"} {
					line := fmt.Sprintf("create lb %s --tcp=80:80 --udp=53:53 --endpoints=%s %s", vip(is6, mode), net.JoinHostPort(address(is6, 9, endpoint+1), "1"), flag)
					if out, err := m.Command(strings.Fields(line)...); err != nil {
						p.t.Errorf("%s: %v\n%s", line, err, out)
					}
				}
			}
		})
	}
	all.Wait()
}

// killed kills a node, and starts it again.
func (p *proof) killed(node int) {
	m := p.f.nodes[node]
	p.silence(func() { m.Kill() })
	p.c.awaitAnswers()
	m.restart()
	p.f.awaitSessions(fleetSize)
}

// took is how long a node has waited for the connections of the others.
var took = regexp.MustCompile(`the connections of the other nodes are here" took=([0-9.a-zµ]+)`)

// joins has a node lose its table, and return while others have many connections.
func (p *proof) joins(node, connections int) {
	p.t.Helper()
	p.crowdOfFlows(connections)
	m := p.f.nodes[node]
	must(p.t, m.DetachAll())
	p.f.awaitSessions(fleetSize - 1)
	p.c.awaitAnswers()
	m.restart()
	p.f.awaitSessions(fleetSize)
	var match []string
	await.NoError(p.t, patience, func() error { // what it has logged arrives through a pipe
		if match = took.FindStringSubmatch(m.Log()); match == nil {
			return fmt.Errorf("%s has not joined: %s", m.host.Name, m.Log())
		}
		return nil
	})
	d, err := time.ParseDuration(match[1])
	must(p.t, err)
	s, err := m.status()
	must(p.t, err)
	copies := uint64(0)
	for _, peer := range s.Peers {
		copies += peer.result("inserted")
	}
	p.note("joined, s", d.Seconds())
	p.note("copies", float64(copies))
	if int(copies) < connections {
		p.t.Errorf("%s has got %d copies of more than %d: %+v", m.host.Name, copies, connections, s)
	}
}

// partitioned keeps nodes from sending connections to each other for a while. Afterwards each has
// those that the others have opened meanwhile, and none as open that have ended meanwhile.
func (p *proof) partitioned(d time.Duration, connections int) {
	p.t.Helper()
	p.f.partition(true)
	until := time.Now().Add(d)
	var opened []*talk
	for n := range connections {
		all := targets([]string{"tcp", "udp"}[n%2])
		opened = append(opened, p.c.hold(all[n/2%len(all)]))
	}
	p.c.held[0] = append(p.c.held[0], opened...)
	await.True(p.t, d+patience, "the end of the partition", func() bool { return time.Now().After(until) })
	p.f.partition(false)
	began := time.Now()
	p.f.awaitPeers()
	p.note("everything exchanged after, s", time.Since(began).Seconds())
	await.NoError(p.t, patience, func() error { return p.f.haveAll(opened) }) // listing them takes seconds
	p.note("tables seen to be equal after, s", time.Since(began).Seconds())
	for _, m := range p.f.nodes {
		p.awaitEnds(m)
	}
}

// awaitEnds waits until all connections of TCP that a node has as open now have ended, unless they
// are held.
func (p *proof) awaitEnds(m *member) {
	p.t.Helper()
	held, vips := map[row]bool{}, map[netip.Addr]bool{}
	for _, k := range p.c.held[0] {
		held[k.row()], vips[k.row().vip] = true, true
	}
	now, err := m.connections()
	must(p.t, err)
	maps.DeleteFunc(now, func(r row, established bool) bool { return !established || held[r] || !vips[r.vip] })
	await.NoError(p.t, patience, func() error {
		later, err := m.connections()
		maps.DeleteFunc(now, func(r row, _ bool) bool { return err == nil && !later[r] })
		if err == nil && len(now) > 0 {
			err = fmt.Errorf("%s has %d connections as open that clients have closed, such as %v", m.host.Name, len(now), slices.Collect(maps.Keys(now))[0])
		}
		return err
	})
}

// haveAll reports connections that a node does not have.
func (f *fleet) haveAll(list []*talk) error {
	for _, m := range f.nodes {
		rows, err := m.connections()
		if err != nil {
			return err
		}
		for _, k := range list {
			if _, ok := rows[k.row()]; !ok && !k.broken.Load() {
				return fmt.Errorf("%s lacks %s from %s", m.host.Name, k.target, k.local)
			}
		}
	}
	return nil
}

// row identifies a connection in a table: the client and the VIP.
type row struct {
	client netip.AddrPort
	vip    netip.Addr
}

func (k *talk) row() row { return row{k.local, netip.MustParseAddr(vip(k.target.is6, k.target.mode))} }

// connections returns what the node's table has, and whether it is an established connection of
// TCP. Reading JSON costs less than a table of words.
func (m *member) connections() (map[row]bool, error) {
	out, err := m.Command("get", "ct", "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var list struct {
		CtAttr []struct {
			SourceIP       netip.Addr
			SourcePort     uint16
			DestinationIP  netip.Addr
			Protocol       string
			ConntrackState string
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	rows := map[row]bool{}
	for _, c := range list.CtAttr {
		rows[row{netip.AddrPortFrom(c.SourceIP, c.SourcePort), c.DestinationIP}] = c.Protocol == "tcp" && c.ConntrackState == "est"
	}
	return rows, nil
}

// peerStopped stops a node for a while, while the others use no additional memory for it.
func (p *proof) peerStopped(node int, d time.Duration) {
	p.t.Helper()
	other := p.f.nodes[(node+1)%fleetSize]
	before := rss(p.t, other.Pid())
	most := before
	m := p.f.nodes[node]
	p.silence(m.pause)
	until := time.Now().Add(d)
	await.True(p.t, d+patience, "the end of the pause", func() bool {
		most = max(most, rss(p.t, other.Pid()))
		return time.Now().After(until)
	})
	m.unpause()
	p.f.awaitSessions(fleetSize)
	began := time.Now()
	p.f.awaitPeers()
	p.note("caught up after, s", time.Since(began).Seconds())
	p.note("memory of a peer, MiB more", float64(most-before)/(1<<20))
}

// rss returns the resident memory of a process.
func rss(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	must(t, err)
	var size, resident int
	_, err = fmt.Sscan(string(b), &size, &resident)
	must(t, err)
	return resident * os.Getpagesize()
}

// upgraded replaces the programs of each node in turn. When two builds run, it replaces their key.
func (p *proof) upgraded(bin string) {
	for i, m := range p.f.nodes {
		if i == 1 {
			p.keysReplaced()
		}
		m.Stop()
		m.SetBin(bin)
		m.restart()
		p.f.awaitSessions(fleetSize)
		p.c.awaitAnswers()
		p.f.awaitPeers()
	}
}

// refused starts a node with settings that do not fit, which its peers refuse with a sentence. It
// gets no packets, so it breaks no connection.
func (p *proof) refused(node int) {
	p.t.Helper()
	other := p.t.TempDir() + "/other"
	must(p.t, os.WriteFile(other, []byte(wrongKey), 0o600))
	m, twin := p.f.nodes[node], p.f.nodes[(node+1)%fleetSize]
	kept := m.opts
	for _, one := range []struct{ args, want string }{
		{fmt.Sprintf("--self=%d", twin.number), fmt.Sprintf("both have --self=%d: give each its own number", twin.number)},
		{"--cluster-node=" + twin.host.Name, fmt.Sprintf("named %q", twin.host.Name)},
		{"--hash-seed=7", "have different values of --hash-seed"},
		{"--cluster-key=" + other, "the peer has another --cluster-key"},
	} {
		m.Stop()
		m.opts = append(kept[:len(kept):len(kept)], one.args)
		m.SetArgs(m.args()...)
		must(p.t, m.Launch())
		await.NoError(p.t, patience, func() error {
			s, err := m.status()
			if err != nil {
				return err
			}
			for _, peer := range s.Peers {
				if peer.State == "refused" && strings.Contains(peer.Reason, one.want) && strings.Contains(s.Held, one.want) {
					return nil
				}
			}
			return fmt.Errorf("%s: %+v, want %q", one.args, s.Peers, one.want)
		})
		p.f.awaitSessions(fleetSize - 1)
	}
	m.Stop()
	m.opts = kept
	m.restart()
	p.f.awaitSessions(fleetSize)
}
