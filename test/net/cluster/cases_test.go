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

// experiment runs cases while clients exchange messages through a fleet.
type experiment struct {
	t       *testing.T
	fleet   *fleet
	clients *clients
	cases   []*caseResult
	current *round
	keys    [2]string // the nodes' present key, and the next one
}

// caseResult has the results of all rounds of a case.
type caseResult struct {
	Name   string   `json:"name"`
	Rounds []*round `json:"rounds"`
}

// round is one run of a case.
type round struct {
	observation
	Seconds float64            `json:"seconds"`
	Numbers map[string]float64 `json:"numbers,omitempty"` // further measurements; names include units
}

// newExperiment starts a fleet and its clients.
func newExperiment(t *testing.T, o options, l load) *experiment {
	t.Helper()
	e := &experiment{t: t, fleet: newFleet(t, o), keys: clusterKeys}
	e.fleet.awaitPeers()
	e.clients = startClients(e.fleet, l)
	e.clients.awaitAnswers()
	return e
}

// run runs a case, and fails the test if a connection breaks.
func (e *experiment) run(name string, do func()) {
	e.t.Helper()
	if !caseFilter.MatchString(name) {
		return
	}
	e.current = &round{Numbers: map[string]float64{}}
	began, lost, down := time.Now(), backlogDrops(e.t), e.fleet.bfdSessionsLost()
	e.clients.reset()
	do()
	e.clients.awaitAnswers()
	e.fleet.awaitPeers()
	e.fleet.awaitNextHops(fleetSize)
	e.fleet.awaitBFD()
	r := e.current
	r.observation, r.Seconds = e.clients.observe(), time.Since(began).Seconds()
	e.record("packets that the machine has dropped", float64(backlogDrops(e.t)-lost))
	e.record("BFD sessions that the router has lost, of 6", float64(e.fleet.bfdSessionsLost()-down))
	e.clients.replaceBroken()
	if r.Broken > 0 {
		for _, m := range e.fleet.nodes { // a node that starts again has another log
			e.t.Logf("log of %s so far:\n%s", m.host.Name, m.Log())
		}
		e.t.Errorf("%s: %d of %d connections are broken", name, r.Broken, e.clients.load.TCP+e.clients.load.UDP+int(r.Opened))
	}
	e.t.Logf("%s: %.1f s; %d connections opened, %d broken, %d opened through a silent node and broken, %d not opened; longest silence %.3f s, of UDP "+
		"%.3f s (%s); %v\n%s",
		name, r.Seconds,
		r.Opened, r.Broken, r.Late, r.NotOpened, r.LongestTCP, r.LongestUDP, r.Slowest, r.Numbers, strings.Join(r.Losses, "\n"))
	for _, c := range e.cases {
		if c.Name == name {
			c.Rounds = append(c.Rounds, r)
			return
		}
	}
	e.cases = append(e.cases, &caseResult{name, []*round{r}})
}

// backlogDrops returns how many packets of all namespaces the kernel has dropped because a CPU's
// backlog was full. Other work of the machine, such as a flood, makes it drop the fleet's packets.
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

// record adds a measurement to the current round.
func (e *experiment) record(name string, v float64) { e.current.Numbers[name] = v }

// failNode calls fail, which silences a node, and waits until the router no longer sends packets
// to that node.
func (e *experiment) failNode(fail func()) {
	e.t.Helper()
	ended, began := e.clients.expectSilence(), time.Now()
	fail()
	e.fleet.awaitNextHops(fleetSize - 1)
	ended()
	e.record("router leaves the node after, s", time.Since(began).Seconds())
}

// pauseNode stops a node's process for a while: its kernel continues, but BFD no longer answers.
func (e *experiment) pauseNode(node int) {
	m := e.fleet.nodes[node]
	e.failNode(m.pause)
	e.clients.awaitAnswers()
	m.unpause()
	e.fleet.awaitNextHops(fleetSize)
}

// cutNode disconnects a node, calls meanwhile, and connects the node again.
func (e *experiment) cutNode(node int, meanwhile func()) {
	m := e.fleet.nodes[node]
	e.failNode(func() { m.setCut(true) })
	meanwhile()
	e.clients.awaitAnswers()
	m.setCut(false)
	e.fleet.awaitNextHops(fleetSize)
}

// cutNodeAndRemoveEndpoint disconnects a node while an endpoint is removed from all services of
// all nodes.
func (e *experiment) cutNodeAndRemoveEndpoint(node, endpoint int) {
	e.clients.removed.Store(uint32(endpoint + 1))
	e.cutNode(node, func() { e.setEndpoint(endpoint, "--detachEP") })
	e.setEndpoint(endpoint, "--attachEP")
}

// setEndpoint removes an endpoint from all services of all nodes, or adds it again.
func (e *experiment) setEndpoint(endpoint int, flag string) {
	e.t.Helper()
	var all sync.WaitGroup
	for _, m := range e.fleet.nodes {
		all.Go(func() {
			for _, is6 := range []bool{false, true} {
				for _, mode := range []string{"onearm", "fullnat", "default", "dsr"} {
					line := fmt.Sprintf("create lb %s --tcp=80:80 --udp=53:53 --endpoints=%s %s", vip(is6, mode), net.JoinHostPort(address(is6, 9, endpoint+1), "1"), flag)
					if out, err := m.Command(strings.Fields(line)...); err != nil {
						e.t.Errorf("%s: %v\n%s", line, err, out)
					}
				}
			}
		})
	}
	all.Wait()
}

// killNode kills a node's process, and starts it again.
func (e *experiment) killNode(node int) {
	m := e.fleet.nodes[node]
	e.failNode(func() { m.Kill() })
	e.clients.awaitAnswers()
	m.restart()
	e.fleet.awaitNextHops(fleetSize)
}

// joinTime matches the log message of a node that has received the connections of all others.
var joinTime = regexp.MustCompile(`received the connections of the other nodes" took=([0-9.a-zµ]+)`)

// rejoin removes a node's connection table, and restarts the node while others have many
// connections.
func (e *experiment) rejoin(node, connections int) {
	e.t.Helper()
	e.openFlows(connections)
	m := e.fleet.nodes[node]
	must(e.t, m.DetachAll())
	e.fleet.awaitNextHops(fleetSize - 1)
	e.clients.awaitAnswers()
	m.restart()
	e.fleet.awaitNextHops(fleetSize)
	var match []string
	await.NoError(e.t, patience, func() error { // the log arrives through a pipe
		if match = joinTime.FindStringSubmatch(m.Log()); match == nil {
			return fmt.Errorf("%s has not joined: %s", m.host.Name, m.Log())
		}
		return nil
	})
	d, err := time.ParseDuration(match[1])
	must(e.t, err)
	s, err := m.status()
	must(e.t, err)
	copies := uint64(0)
	for _, peer := range s.Peers {
		copies += peer.result("inserted")
	}
	e.record("joined after, s", d.Seconds())
	e.record("copies", float64(copies))
	if int(copies) < connections {
		e.t.Errorf("%s has received %d copies, want at least %d: %+v", m.host.Name, copies, connections, s)
	}
}

// partition keeps nodes from sending connections to each other for a while. Afterwards, each node
// must have the connections opened at others meanwhile, and must not list ended ones as open.
func (e *experiment) partition(d time.Duration, connections int) {
	e.t.Helper()
	e.fleet.setPartition(true)
	until := time.Now().Add(d)
	var opened []*heldConn
	for n := range connections {
		all := targets([]string{"tcp", "udp"}[n%2])
		opened = append(opened, e.clients.hold(all[n/2%len(all)]))
	}
	e.clients.held[0] = append(e.clients.held[0], opened...)
	await.True(e.t, d+patience, "the end of the partition", func() bool { return time.Now().After(until) })
	e.fleet.setPartition(false)
	began := time.Now()
	e.fleet.awaitPeers()
	e.record("all records exchanged after, s", time.Since(began).Seconds())
	await.NoError(e.t, patience, func() error { return e.fleet.checkReplicated(opened) }) // listing them takes seconds
	e.record("tables found equal after, s", time.Since(began).Seconds())
	for _, m := range e.fleet.nodes {
		e.awaitEnds(m)
	}
}

// awaitEnds waits until a node no longer lists the TCP connections that it lists as open now,
// except for held ones.
func (e *experiment) awaitEnds(m *member) {
	e.t.Helper()
	held, vips := map[row]bool{}, map[netip.Addr]bool{}
	for _, h := range e.clients.held[0] {
		held[h.row()], vips[h.row().vip] = true, true
	}
	now, err := m.connections()
	must(e.t, err)
	maps.DeleteFunc(now, func(r row, established bool) bool { return !established || held[r] || !vips[r.vip] })
	await.NoError(e.t, patience, func() error {
		later, err := m.connections()
		maps.DeleteFunc(now, func(r row, _ bool) bool { return err == nil && !later[r] })
		if err == nil && len(now) > 0 {
			err = fmt.Errorf("%s lists %d connections as open that clients have closed, such as %v", m.host.Name, len(now), slices.Collect(maps.Keys(now))[0])
		}
		return err
	})
}

// checkReplicated returns an error if a node lacks one of the connections.
func (f *fleet) checkReplicated(list []*heldConn) error {
	for _, m := range f.nodes {
		rows, err := m.connections()
		if err != nil {
			return err
		}
		for _, h := range list {
			if _, ok := rows[h.row()]; !ok && !h.broken.Load() {
				return fmt.Errorf("%s lacks %s from %s", m.host.Name, h.target, h.local)
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

func (h *heldConn) row() row {
	return row{h.local, netip.MustParseAddr(vip(h.target.is6, h.target.mode))}
}

// connections returns the rows of the node's table, each with whether it is an established TCP
// connection. Reading JSON costs less than reading the text table.
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

// pausePeer stops a node's process for a while, and measures how much more memory a peer uses
// meanwhile.
func (e *experiment) pausePeer(node int, d time.Duration) {
	e.t.Helper()
	other := e.fleet.nodes[(node+1)%fleetSize]
	before := rss(e.t, other.Pid())
	most := before
	m := e.fleet.nodes[node]
	e.failNode(m.pause)
	until := time.Now().Add(d)
	await.True(e.t, d+patience, "the end of the pause", func() bool {
		most = max(most, rss(e.t, other.Pid()))
		return time.Now().After(until)
	})
	m.unpause()
	e.fleet.awaitNextHops(fleetSize)
	began := time.Now()
	e.fleet.awaitPeers()
	e.record("caught up after, s", time.Since(began).Seconds())
	e.record("additional memory of a peer, MiB", float64(most-before)/(1<<20))
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

// upgradeNodes replaces the programs of each node in turn. It replaces the key while nodes of both
// builds run.
func (e *experiment) upgradeNodes(bin string) {
	for i, m := range e.fleet.nodes {
		if i == 1 {
			e.replaceAllKeys()
		}
		m.Stop()
		m.SetBin(bin)
		m.restart()
		e.fleet.awaitNextHops(fleetSize)
		e.clients.awaitAnswers()
		e.fleet.awaitPeers()
	}
}

// startMisconfigured starts a node with settings that its peers refuse, and checks their reason.
// The node gets no packets, so it breaks no connection.
func (e *experiment) startMisconfigured(node int) {
	e.t.Helper()
	other := e.t.TempDir() + "/other"
	must(e.t, os.WriteFile(other, []byte(wrongKey), 0o600))
	m, twin := e.fleet.nodes[node], e.fleet.nodes[(node+1)%fleetSize]
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
		must(e.t, m.Launch())
		await.NoError(e.t, patience, func() error {
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
		e.fleet.awaitNextHops(fleetSize - 1)
	}
	m.Stop()
	m.opts = kept
	m.restart()
	e.fleet.awaitNextHops(fleetSize)
}
