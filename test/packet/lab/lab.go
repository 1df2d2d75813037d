package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest/programs"
)

// Config is the configuration of a lab. The zero value is the default of scripts.
type Config struct {
	Connections int // size of the table; 0: 1024
	HalfOpen    int // percent of it that half-open connections may have; 0: any
	// ForeignFirst makes each packet go through the address filter before its connection is looked
	// up (bpf/filter/foreign.h).
	ForeignFirst bool
	// ChallengeFirst makes the program challenge SYNs before it looks up their connection
	// (bpf/protect/syn_flood.h).
	ChallengeFirst bool
	OldKernel      bool // the program as kernels before 6.2 load it (no kfuncs) and attach it (clsact)
	PortStripe     int  // datapath.Config
	ResetRate      int  // RSTs to segments without connection, per second and CPU; 0: the default
	XDP            bool // Send also runs the XDP program, and fails if its result differs from that of the program at the tc hook
	Dry            bool // Send first runs a dry run, and fails if the packet is handled differently
}

// HashSeed is the seed of hashes in a lab.
const HashSeed = 42

// Lab is the data path in its network. Its methods must be called on the thread that has created
// it.
type Lab struct {
	*Network
	Datapath       *datapath.Datapath
	services       map[lb.Key]lb.Service
	rules          map[string]policy.Rule
	drops          map[string]uint64
	startLifetimes []report.Lifetimes // the counts when the script began; nil: zero
	policers       map[string]policy.Policer
	mirrors        map[string]policy.Mirror
	failed         map[netip.AddrPort]bool // true: the endpoint is down
	mark           uint32
	cpus           unix.CPUSet // where the thread ran before KeepNextHops; empty: it runs there

	dry       bool
	xdp       bool
	xdpEffect programs.XDPEffect                 // effect of the XDP program on the last packet
	repeatXDP func() (programs.XDPEffect, error) // finds its effect on a repetition of that packet
}

// New creates a network and loads the data path into it. The calling goroutine must have locked its
// thread, and must never unlock it.
func New(cfg Config) (*Lab, error) {
	network, err := NewNetwork()
	if err != nil {
		return nil, err
	}
	l := &Lab{Network: network, services: map[lb.Key]lb.Service{}, policers: map[string]policy.Policer{},
		mirrors: map[string]policy.Mirror{}, rules: map[string]policy.Rule{}, failed: map[netip.AddrPort]bool{}, xdp: cfg.XDP,
		dry: cfg.Dry}
	dp := datapath.Config{Connections: cmp.Or(cfg.Connections, 1024), HalfOpen: cfg.HalfOpen, HashSeed: HashSeed,
		Hook: datapath.HookAuto, PortStripe: cfg.PortStripe, ResetRate: cfg.ResetRate, ForeignFirst: cfg.ForeignFirst,
		ChallengeFirst: cfg.ChallengeFirst}
	if cfg.OldKernel {
		dp.NoKfuncs, dp.Hook = true, datapath.HookClsact
	}
	l.Datapath, err = datapath.Load(dp)
	if err == nil {
		l.drops, err = l.counters()
	}
	if err == nil {
		err = l.readNetwork()
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// readNetwork writes the network's addresses to the data path.
func (l *Lab) readNetwork() error {
	if err := l.readLocalAddresses(); err != nil {
		return err
	}
	if err := errors.Join(l.ShareNextHops(true), l.Datapath.SetDefaultRoutes(l.defaultRoutes())); err != nil {
		return err
	}
	if !l.xdp {
		return nil
	}
	return l.setXDP()
}

// RenewNetwork moves the lab to a new network. A new lab would take ten times as long, nearly all
// of it in the verifier.
func (l *Lab) RenewNetwork() error {
	old := l.Network
	if err := l.detach(); err != nil {
		return err
	}
	network, err := NewNetwork()
	if err != nil {
		return err
	}
	l.Network = network
	return errors.Join(old.Close(), l.readNetwork(), l.BumpNextHops(), l.BumpNeighbours())
}

// Close unloads the data path and removes the network.
func (l *Lab) Close() error {
	var err error
	if l.Datapath != nil {
		err = l.Datapath.Close()
	}
	return errors.Join(err, l.Network.Close())
}

// Programs returns a Runner, which runs the programs and changes their state.
func (l *Lab) Programs() *programs.Runner {
	return programs.New(l.Datapath.TestRun().Collection, l.Datapath.XDP)
}

// Apply creates a service, or updates it.
func (l *Lab) Apply(s lb.Service) error {
	if err := s.Validate(); err != nil {
		return err
	}
	table := compile.Service(s, func(e lb.Endpoint) bool { return !l.failed[netip.AddrPortFrom(e.Addr, e.Port)] }, HashSeed, l.path)
	for i, e := range s.Endpoints {
		table.Endpoints[i].Failed = l.failed[netip.AddrPortFrom(e.Addr, e.Port)]
	}
	l.services[s.Key] = s
	return l.Datapath.Apply([]datapath.Change{{Key: table.Key, Table: &table}})[0]
}

// SetDown marks an endpoint as down in all services, or as up.
func (l *Lab) SetDown(endpoint netip.AddrPort, down bool) error {
	l.failed[endpoint] = down
	for _, s := range l.services {
		if err := l.Apply(s); err != nil {
			return err
		}
	}
	return nil
}

// Delete deletes a service.
func (l *Lab) Delete(key lb.Key) error {
	if _, ok := l.services[key]; !ok {
		return fmt.Errorf("unknown service %s", key)
	}
	delete(l.services, key)
	return l.Datapath.Apply([]datapath.Change{{Key: compile.Key(key)}})[0]
}

// Reset restores the state of a new lab, except for changes of the network. A new lab would take
// half a second, most of it in the verifier.
func (l *Lab) Reset() error {
	l.Mark(0)
	if err := l.unpinThread(); err != nil {
		return err
	}
	for key := range l.services {
		if err := l.Delete(key); err != nil {
			return err
		}
	}
	clear(l.failed)
	clear(l.policers)
	clear(l.mirrors)
	if err := l.attach(); err != nil {
		return err
	}
	if len(l.rules) > 0 {
		clear(l.rules)
		if err := l.setRules(); err != nil {
			return err
		}
	}
	// Source ports stay reserved for a while after the end of their connections.
	if err := errors.Join(l.Sweep(), l.age(time.Minute), l.Sweep(), l.Programs().ForgetKnownClients(), l.Programs().ClearSweepDue(),
		l.Programs().ForgetPortPressure(), l.BumpNextHops()); err != nil {
		return err
	}
	left, err := l.Connections()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("the table has %d entries without services", len(left))
	}
	if err == nil {
		l.drops, err = l.counters()
	}
	if err == nil {
		l.startLifetimes, err = l.Datapath.Lifetimes()
	}
	return err
}

// Advance lets time pass for all connections and records of clients.
func (l *Lab) Advance(d time.Duration) error {
	return errors.Join(l.age(d), l.Programs().AgeKnownClients(d))
}

// age is Advance without known clients, whose table is large.
func (l *Lab) age(d time.Duration) error {
	return errors.Join(l.Programs().Age(d), l.Programs().AgePersists(d), l.Programs().AgePaths(d))
}

// Mark sets the mark of all following packets of Send, but not of SendLive.
func (l *Lab) Mark(mark uint32) { l.mark = mark }

// Sweep removes expired connections.
func (l *Lab) Sweep() error { return l.Datapath.Sweep(context.Background()) }

// StopSweeping simulates a daemon that no longer sweeps.
func (l *Lab) StopSweeping() error { return l.Programs().SetSweepOverdue(1) }

// LimitPorts gives each pool of source ports n ports. 0: the usual number.
func (l *Lab) LimitPorts(n int) error { return l.Programs().LimitPorts(n) }

// BumpNextHops makes every connection look up its next hop again.
func (l *Lab) BumpNextHops() error { return l.Datapath.BumpNextHops() }

// BumpNeighbours makes every next hop look up its MAC address again.
func (l *Lab) BumpNeighbours() error { return l.Datapath.BumpNeighbours() }

// ShareNextHops lets connections share next hops, as in networks without source routing and
// multipath routes. This is the default of a lab.
func (l *Lab) ShareNextHops(shared bool) error { return l.Datapath.ShareNextHops(shared) }

// Result describes what happened to a packet.
type Result struct {
	Verdict string // out, pass or drop
	Reason  string // drop: the only counter that has increased
	Frame   []byte // the packet that left or was passed
}

// Send runs the program on a frame that arrives at the link.
func (l *Lab) Send(link *Link, frame []byte) (Result, error) {
	expected, err := l.dryRun(link, frame)
	if err != nil {
		return Result{}, err
	}
	out, err := l.run(link, testrun.Input{Frame: frame, Ifindex: link.Index, Mark: l.mark})
	if err == nil {
		err = expected.check(out)
	}
	if err != nil {
		return Result{}, err
	}
	res, err := l.result(link, out)
	if err == nil {
		err = expected.checkReason(res)
	}
	return res, err
}

// result returns the program's effects in the terms of scripts.
func (l *Lab) result(link *Link, out testrun.Output) (res Result, err error) {
	res = Result{Frame: out.Frame}
	switch out.Verdict {
	case testrun.Next:
		res.Verdict = "pass"
	case testrun.Redirect:
		res.Verdict = "out"
	case testrun.Shot:
		res.Verdict = "drop"
	default:
		return res, fmt.Errorf("the program returned %d", out.Verdict)
	}
	if res.Verdict == "out" && l.LinkOf(res.Frame) == link { // an answer to the sender
		res.Reason, err = l.Counted()
		return res, err
	}
	if res.Verdict != "drop" {
		return res, nil // Counted detects an unexpected reason at the next drop, or at the end
	}
	res.Reason, err = l.Counted()
	if err == nil && res.Reason == "" {
		err = errors.New("dropped, but no reason was counted")
	}
	return res, err
}

func (l *Lab) run(link *Link, in testrun.Input) (testrun.Output, error) {
	if !l.xdp {
		return l.Programs().Run(in)
	}
	mac := [6]byte(link.MAC)
	out, does, err := l.Programs().RunWithXDP(in, mac)
	l.xdpEffect, l.repeatXDP = does, func() (programs.XDPEffect, error) { return l.Programs().FindXDPEffect(in, mac) }
	return out, err
}

// CheckXDP returns an error unless the XDP program has had the given effect on the last packet: it
// "challenges", "drops", "passes" or "forwards" it. For "forwards", the effect on a repetition of
// the packet is enough: XDP passes packets after a second of silence and at the beginning of an
// epoch. CheckXDP does nothing in a lab without XDP.
func (l *Lab) CheckXDP(want string) error {
	if !l.xdp {
		return nil
	}
	did, err := l.xdpEffect, error(nil)
	if want == string(programs.XDPForwards) && did == programs.XDPPasses {
		did, err = l.repeatXDP()
	}
	if err == nil && string(did) != want {
		err = fmt.Errorf("XDP %s the packet, want %s", did, want)
	}
	return err
}

// setXDP lets both links accept packets that the XDP program redirects to them. The program is not
// attached: Send runs it.
func (l *Lab) setXDP() error {
	for _, link := range []*Link{l.Client, l.Server} {
		x := datapath.XDPInterface{Index: link.Index, Name: link.Name, MAC: [6]byte(link.MAC), Target: true}
		if err := l.Datapath.SetXDP(x); err != nil {
			return err
		}
	}
	return nil
}

// Counted returns the drop reasons whose counters have increased since the last call or drop, ""
// for none.
func (l *Lab) Counted() (string, error) {
	now, err := l.counters()
	if err != nil {
		return "", err
	}
	var reasons []string
	for name, n := range now {
		if by := n - l.drops[name]; by == 1 {
			reasons = append(reasons, name)
		} else if by != 0 {
			reasons = append(reasons, fmt.Sprintf("%s(%d)", name, by))
		}
	}
	l.drops = now
	slices.Sort(reasons)
	return strings.Join(reasons, ","), nil
}

// counters returns the numbers of dropped packets by reason, and those of challenged SYNs and of
// answers to challenges.
func (l *Lab) counters() (map[string]uint64, error) {
	all, err := l.Datapath.Drops()
	if err != nil {
		return nil, err
	}
	all["challenged"], all["challenge-answered"], err = l.Datapath.Challenges()
	return all, err
}

// DumpPressure returns a line with the number of entries, and of half-open connections.
func (l *Lab) DumpPressure() ([]string, error) {
	p, err := l.Datapath.Fullness()
	return []string{fmt.Sprintf("entries=%d half-open: tcp=%d others=%d", p.Entries, p.HalfOpenTCP, p.HalfOpenOthers)}, err
}

// Connections returns both directions of every connection in the table.
func (l *Lab) Connections() ([]report.Connection, error) {
	var all []report.Connection
	err := l.Datapath.Connections(context.Background(), func(c report.Connection) bool {
		all = append(all, c)
		return true
	})
	return all, err
}

// DumpConnections returns the table as sorted lines: one for each direction of a connection.
func (l *Lab) DumpConnections() ([]string, error) {
	all, err := l.Connections()
	var lines []string
	for _, c := range all {
		lines = append(lines, FormatConnection(c))
	}
	slices.Sort(lines)
	return lines, err
}

// FormatConnection returns one direction of a connection as a line.
func FormatConnection(c report.Connection) string {
	return fmt.Sprintf("%s %s > %s becomes %s > %s %s packets=%d bytes=%d",
		c.Protocol, c.Src, c.Dst, c.NewSrc, c.NewDst, c.State, c.Traffic.Packets, c.Traffic.Bytes)
}

// Stats reads the counters of a service.
func (l *Lab) Stats(key lb.Key) (report.ServiceStats, bool) {
	return l.Datapath.ServiceStats(compile.Key(key))
}

// keys returns the keys of all services in order.
func (l *Lab) keys() []lb.Key {
	return slices.SortedFunc(maps.Keys(l.services), lb.Key.Compare)
}
