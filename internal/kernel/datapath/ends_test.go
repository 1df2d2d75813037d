package datapath

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/connections"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb"
	"loxilb/test/dptest"
	"loxilb/test/dptest/programs"
)

var long = flag.Bool("long", false, "stress tests take a minute each")

const (
	tcpFIN, tcpSYN, tcpRST, tcpACK = 0x01, 0x02, 0x04, 0x10
	// isn is the first sequence number of both sides. Frames have 100 bytes of payload.
	isn = 1000
)

func segment(src, dst netip.AddrPort, flags byte, seq, ack uint32) []byte {
	return dptest.Segment(src, dst, flags, seq, ack)
}

// TestEntryWithoutReply checks that an entry without the entry of its other direction does not
// block the client's tuple.
func TestEntryWithoutReply(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:80")
	syn := segment(netip.MustParseAddrPort("198.51.100.1:2000"), netip.MustParseAddrPort("10.0.0.1:80"), tcpSYN, isn, 0)
	run := func() {
		t.Helper()
		if _, err := program(t, o.d).Run(&ebpf.RunOptions{Data: syn}); err != nil {
			t.Fatal(err)
		}
	}
	run()
	table := o.d.collection.Conntrack
	var client []bpf.TcConnectionKey
	err := dptest.ChangeConnections(table, func(key bpf.TcConnectionKey, row *bpf.TcConnection) bool {
		if row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) == 0 {
			client = append(client, key)
		}
		row.Flags |= uint8(bpf.TcConnectionFlagCONN_REPLIED | bpf.TcConnectionFlagCONN_ASSURED)
		row.Seen = dptest.Jiffies(t) - o.d.collection.Jiffies(5*time.Second)
		return true
	})
	if err == nil {
		err = table.Remove(client...)
	}
	if err != nil {
		t.Fatal(err)
	}
	run()
	entries := dptest.Connections(t, o.d.collection)
	for key, row := range entries {
		if row.Flags&^uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) != 0 {
			t.Errorf("%v: flags %#x, want those of a SYN", key, row.Flags)
		}
	}
	if len(entries) != 2 {
		t.Errorf("%d entries, want those of one connection", len(entries))
	}
}

// TestEndsOnce opens and closes connections on one CPU, while another one removes endpoints and
// sweeps, late packets of ended connections arrive, and the table grows. In the end every counted
// connection is in the table with both entries, and so is each source port; after all have ended
// nothing is left.
func TestEndsOnce(t *testing.T) {
	t.Parallel()
	s := newStress(t)
	length := 3 * time.Second
	if *long {
		length = time.Minute
	}
	var all sync.WaitGroup
	end := time.Now().Add(length)
	var rounds [4]int
	pace := time.NewTicker(length / (stressGroups - stressFirstGroups))
	defer pace.Stop()
	grow := func() error {
		<-pace.C
		return s.grow()
	}
	for i, step := range []func() error{s.openAndClose, s.sendLate, s.sweep, grow} {
		all.Go(func() {
			for time.Now().Before(end) {
				if err := step(); err != nil {
					t.Error(err)
					return
				}
				rounds[i]++
			}
		})
	}
	all.Wait()
	t.Logf("%d rounds of connections, %d of late packets, %d sweeps; the table grew %d times", rounds[0], rounds[1], rounds[2], s.groups-stressFirstGroups)
	s.check()
	for _, svc := range s.services {
		if err := s.d.Apply([]Change{{Key: compile.Key(svc.Key)}})[0]; err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // a walk may miss an entry of a changing table, which the next one finds
		if err := s.d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := programs.New(s.d.collection, nil).Age(time.Minute); err != nil { // source ports are reserved for a while
		t.Fatal(err)
	}
	for range 3 {
		if err := s.d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.check()
	if left := dptest.Connections(t, s.d.collection); len(left) > 0 {
		t.Errorf("%d entries are left", len(left))
	}
}

// stress is a data path whose endpoints change constantly.
type stress struct {
	t        *testing.T
	d        *Datapath
	program  *ebpf.Program
	slow     *ebpf.Program // a slower copy, for late packets
	walk     *connections.Programs
	services []lb.Service
	round    int
	groups   uint32 // number of the table's groups
}

func newStress(t *testing.T) *stress {
	d, err := Load(Config{Connections: 16384}) // a size with more groups than the test uses
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	shrinkTable(t, d)
	walk, err := connections.LoadSweep(d.collection)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { walk.Close() })
	s := &stress{t: t, d: d, program: program(t, d), slow: slowProgram(t, d, "state_change", 4), walk: walk, groups: stressFirstGroups}
	for _, line := range []string{
		"10.0.0.1:80/tcp endpoints=192.0.2.1:80,192.0.2.2:80,192.0.2.3:80",
		"10.0.0.2:80/tcp mode=fullnat endpoints=192.0.2.1:80,192.0.2.2:80,192.0.2.3:80",
		"10.0.0.1:80/udp endpoints=192.0.2.1:80,192.0.2.2:80,192.0.2.3:80",
		"10.0.0.2:80/udp mode=fullnat endpoints=192.0.2.1:80,192.0.2.2:80,192.0.2.3:80",
		"10.0.0.3:80/tcp mode=dsr endpoints=192.0.2.1:80,192.0.2.2:80,192.0.2.3:80",
	} {
		svc, err := lb.ParseService(line)
		if err == nil {
			err = svc.Validate()
		}
		if err != nil {
			t.Fatal(err)
		}
		s.services = append(s.services, svc)
	}
	s.apply(3, bpf.Deadline{At: time.Now()})
	return s
}

// apply sets the services, with this number of endpoints each. Connections of the endpoints end as
// doom says; the endpoints still get new ones.
func (s *stress) apply(endpoints int, doom bpf.Deadline) {
	for _, svc := range s.services {
		svc.Endpoints = svc.Endpoints[:endpoints]
		table := compile.Service(svc, nil, 0, nil)
		for i := range table.Endpoints {
			table.Endpoints[i].Deadline = doom
		}
		if err := s.d.Apply([]Change{{Key: table.Key, Table: &table}})[0]; err != nil {
			s.t.Error(err)
		}
	}
}

const (
	stressPorts     = 24
	stressEndpoints = 64 // upper bound at any time
	stressEntries   = 300
	// The table grows from the first number of groups to the second.
	stressFirstGroups, stressGroups = 1, 132
)

func (s *stress) client(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), uint16(2000+i%stressPorts))
}

func (s *stress) send(frame []byte) error { return s.sendBy(s.program, frame) }

func (s *stress) sendBy(program *ebpf.Program, frame []byte) error {
	if _, err := program.Run(&ebpf.RunOptions{Data: frame}); err != nil {
		return fmt.Errorf("run the program: %w", err)
	}
	return nil
}

// openAndClose opens a connection of each client to each service, and ends those of TCP.
func (s *stress) openAndClose() error {
	for i := range stressPorts {
		for _, svc := range s.services {
			vip := netip.AddrPortFrom(svc.VIP, svc.Port)
			var frames [][]byte
			if svc.Protocol == lb.UDP {
				frames = [][]byte{dptest.UDPFrame(s.client(i).Addr(), vip.Addr(), s.client(i).Port(), vip.Port())}
			} else {
				frames = [][]byte{segment(s.client(i), vip, tcpSYN, isn, 0), segment(s.client(i), vip, tcpRST, isn+101, 0)}
			}
			for _, f := range frames {
				if err := s.send(f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sendLate sends packets that belong to connections of any time, in either direction.
func (s *stress) sendLate() error {
	for range 100 {
		svc := s.services[rand.N(len(s.services))]
		from, to := s.client(rand.N(stressPorts)), netip.AddrPortFrom(svc.VIP, svc.Port)
		if rand.N(2) == 0 { // from the endpoint
			if svc.Mode != lb.ModeDefault {
				from = netip.AddrPortFrom(svc.VIP, from.Port())
			}
			from, to = netip.AddrPortFrom(svc.Endpoints[rand.N(3)].Addr, 80), from
		}
		frame := segment(from, to, []byte{tcpSYN, tcpSYN | tcpACK, tcpACK, tcpFIN | tcpACK, tcpRST}[rand.N(5)], isn+101*uint32(rand.N(3)), isn+101*uint32(rand.N(3)))
		if svc.Protocol == lb.UDP {
			frame = dptest.UDPFrame(from.Addr(), to.Addr(), from.Port(), to.Port())
		}
		if err := s.sendBy([]*ebpf.Program{s.program, s.slow}[rand.N(2)], frame); err != nil {
			return err
		}
	}
	return nil
}

// sweep occasionally changes the endpoints or deletes a service, and sweeps otherwise: without
// pauses, and all entries while endpoints are doomed.
func (s *stress) sweep() error {
	s.round++
	switch s.round % 64 {
	case 0:
		s.apply(3, bpf.Deadline{At: time.Now()})
	case 32:
		s.apply(1+s.round/64%2, bpf.Deadline{})
		return s.d.Sweep(s.t.Context())
	case 48:
		key := s.services[s.round/64%len(s.services)].Key
		if err := s.d.Apply([]Change{{Key: compile.Key(key)}})[0]; err != nil {
			return err
		}
		return s.d.Sweep(s.t.Context())
	}
	return s.walkTable()
}

// walkTable sweeps the connections, without the other tasks of a sweep.
func (s *stress) walkTable() error {
	buckets, err := s.d.collection.Conntrack.Buckets()
	if err != nil {
		return err
	}
	for next := uint32(0); next < buckets; {
		if next, err = s.runMarked("loxilb_sweep", next); err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
	}
	return s.d.EndDue(s.t.Context())
}

func (s *stress) runMarked(name string, mark uint32) (uint32, error) {
	p, err := s.walk.Program(name)
	if err != nil {
		return 0, err
	}
	return p.Run(&ebpf.RunOptions{Data: testrun.EmptyFrame(), Context: testrun.SKB{Mark: mark}})
}

// shrinkTable reduces the groups of an empty table until some connections are refused.
func shrinkTable(t *testing.T, d *Datapath) {
	t.Helper()
	const bits = bpf.TcTableLayoutSIZE_BITS
	const packed = stressFirstGroups | stressFirstGroups<<bits | stressFirstGroups<<(2*bits)
	states := d.collection.Maps.TableStates
	var row bpf.TcTableState
	err := states.Lookup(uint32(0), &row)
	if row.Size, row.EntriesMax = packed, stressEntries; err == nil {
		err = states.Put(uint32(0), row)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// grow grows the table by one group, unless it has all of its groups.
func (s *stress) grow() error {
	if s.groups == stressGroups {
		return nil
	}
	s.groups++
	for {
		if _, err := s.runMarked("loxilb_grow", s.groups); err != nil {
			return fmt.Errorf("let the table grow: %w", err)
		}
		if _, growing, err := s.d.collection.Conntrack.GroupsFor(0); err != nil || !growing {
			return err
		}
	}
}

// check compares the counts with the table, which is at rest.
func (s *stress) check() {
	s.t.Helper()
	const both = bpf.TcConnectionFlagCONN_REPLY_DIRECTION
	all := dptest.Connections(s.t, s.d.collection)
	tracked, active, ports := map[uint32]uint64{}, map[uint32]int64{}, map[netip.AddrPort]map[netip.AddrPort]uint32{}
	var halfOpen [2]int64
	for key, row := range all {
		trait := func(tr bpf.TcConnectionTrait) bool { return row.Traits&uint8(tr) != 0 }
		reply := row.Flags&uint8(both) != 0
		if trait(bpf.TcConnectionTraitCONN_ENDED) && !trait(bpf.TcConnectionTraitCONN_RESTING) { // both: it was left to the sweep, as a lock was not available
			s.t.Errorf("%v has ended, and is still there", key)
		}
		if !reply {
			tracked[row.Endpoint]++
			if isActive(&row) {
				active[row.Endpoint]++
			}
			if row.Flags&uint8(bpf.TcConnectionFlagCONN_ASSURED) == 0 {
				halfOpen[halfOpenClass(key.Protocol)]++
			}
		}
		if reply && trait(bpf.TcConnectionTraitCONN_SNAT) {
			from, to := bpf.AddrPort(key.Saddr, key.Sport), netip.AddrPortFrom(bpf.AddrPort(key.Daddr, 0).Addr(), uint16(key.Protocol))
			if ports[from] == nil {
				ports[from] = map[netip.AddrPort]uint32{}
			}
			ports[from][to]++
		}
		if trait(bpf.TcConnectionTraitCONN_ONE_WAY) || trait(bpf.TcConnectionTraitCONN_RESTING) {
			continue
		}
		other, ok := all[bpf.TcConnectionKey{Saddr: row.Daddr, Daddr: row.Saddr, Sport: row.Dport, Dport: row.Sport, Protocol: key.Protocol}]
		if !ok || other.Generation != row.Generation {
			s.t.Errorf("%v (flags %#x) is alone", key, row.Flags)
		}
	}
	if n, err := s.d.collection.Conntrack.Len(); err != nil || n != uint64(len(all)) {
		s.t.Errorf("%d entries are counted, and %d in the table (%v)", n, len(all), err)
	}
	if n := halfOpens(s.t, s.d); n != halfOpen {
		s.t.Errorf("%d are counted as half-open, of TCP and of others; %d are", n, halfOpen)
	}
	for id := range uint32(stressEndpoints) {
		var state bpf.TcEndpointState
		if err := s.d.collection.EndpointStates.Lookup(id, &state); err != nil {
			s.t.Fatal(err)
		}
		if state.Active != active[id] || state.Tracked != tracked[id] {
			s.t.Errorf("endpoint %d: %d of %d are active by its counters, %d of %d by the table", id, state.Active, int64(state.Tracked), active[id], tracked[id])
		}
	}
	for _, svc := range s.services {
		if svc.Mode != lb.ModeFullNAT {
			continue
		}
		for _, e := range svc.Endpoints {
			at := netip.AddrPortFrom(e.Addr, e.Port)
			n, err := s.d.SourcePorts(svc.VIP, at, uint8(svc.Protocol))
			if want := ports[at][netip.AddrPortFrom(svc.VIP, uint16(svc.Protocol))]; err != nil || n != want {
				s.t.Errorf("%s towards %s: %d source ports, %d in the table (%v)", svc.VIP, at, n, want, err)
			}
		}
	}
}

func halfOpenClass(protocol uint8) int {
	if protocol == uint8(lb.TCP) {
		return int(bpf.TcHalfOpenClassHALF_OPEN_TCP)
	}
	return int(bpf.TcHalfOpenClassHALF_OPEN_OTHERS)
}

// halfOpens returns the counts of half-open connections, by class.
func halfOpens(t *testing.T, d *Datapath) [2]int64 {
	t.Helper()
	var all bpf.TcHalfOpen
	var kept []bpf.TcHalfOpenKept
	err := d.collection.Maps.HalfOpens.Lookup(uint32(0), &all)
	if err == nil {
		err = d.collection.Maps.HalfOpensKept.Lookup(uint32(0), &kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kept {
		for class := range all.Of {
			all.Of[class] += k.Of[class]
		}
	}
	return all.Of
}

// isActive reports whether the row of a client's packets is of an open connection: neither reset,
// nor closed by both sides, or, where the endpoint replies directly, by the client.
func isActive(row *bpf.TcConnection) bool {
	const acked = uint8(bpf.TcConnectionFlagCONN_FIN_CLIENT_ACKED | bpf.TcConnectionFlagCONN_FIN_ENDPOINT_ACKED)
	oneWay := row.Traits&uint8(bpf.TcConnectionTraitCONN_ONE_WAY) != 0
	return row.Flags&uint8(bpf.TcConnectionFlagCONN_RESET) == 0 && row.Flags&acked != acked && !(oneWay && row.Flags&uint8(bpf.TcConnectionFlagCONN_FIN_CLIENT) != 0)
}
