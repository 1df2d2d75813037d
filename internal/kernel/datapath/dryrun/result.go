package dryrun

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/testrun"
)

// Outcome is the packet path's treatment of a packet.
type Outcome string

// The outcomes of a packet.
const (
	Forwards   Outcome = "forwards"   // it leaves towards an endpoint, or a client
	Delivers   Outcome = "delivers"   // translated and delivered to a socket of this machine
	Passes     Outcome = "passes"     // left to the kernel, unchanged
	Answers    Outcome = "answers"    // dropped, and its sender answered: Frame is the answer
	Drops      Outcome = "drops"      // without an answer
	Challenges Outcome = "challenges" // its client is challenged
	Redirects  Outcome = "redirects"  // a firewall rule redirects it unchanged
)

// Result is the predicted outcome of a packet, and the reasons.
type Result struct {
	Outcome  Outcome
	Frame    []byte // as it leaves
	Reason   string // of a drop, one of report.DropReasons
	Rule     uint64 // the firewall rule that has decided; valid iff HasRule
	HasRule  bool
	Existing bool          // its connection existed before
	Ended    bool          // ... and ended with this packet, or before it, so this one opens another
	Silent   time.Duration // time since the last packet of its direction; valid iff Existing
	Entry    *Entry
	Opening  *Opening // nil: no service was looked up, or none found
	NextHop  *NextHop // nil: it has none, or the kernel finds it
}

// Entry is the connection's entry for the packet's direction, after the packet.
type Entry struct {
	Reply           bool // it is for packets of the endpoint
	Source, Target  netip.AddrPort
	Endpoint        netip.AddrPort // as configured in its service
	Service         bpf.TcServiceKey
	OfService       bool // Service is valid
	SourceIsOurs    bool // an address and port of this machine's
	Direct, Tunnels bool // the endpoint answers the client itself; packets have an outer header
	Family          bool // they leave as packets of the other IP version
	Attached        bool // policers or mirrors are consulted
}

// Opening describes the connection that the packet would open.
type Opening struct {
	Service   bpf.TcServiceKey
	Found     bool // Service is valid
	Slots     uint32
	Place     uint32 // the first slot that was tried; valid iff Chosen
	Chosen    bool
	Held      bool           // the client had this endpoint before; of QUIC, its connection ID names it
	Endpoint  netip.AddrPort // valid iff Chosen
	Outwards  bool           // it is an outward connection of an endpoint, or of a rule that gives a source
	Algorithm bpf.TcAlgorithm
}

// NextHop is the next hop of a packet.
type NextHop struct {
	Ifindex int
	Gateway netip.Addr // or the target itself; invalid: there is no link layer
	MAC     net.HardwareAddr
	MTU     int
	Local   bool
	Peer    bool   // directly into the other end of a veth
	Rule    uint64 // the firewall rule of the connection, if it has attachments; valid iff HasRule
	HasRule bool
}

// result describes the outcome of the last run.
func (r *Runner) result(n *neededData, effects *effects) (*Result, error) {
	d := r.replica
	out := &Result{Frame: effects.frame, Reason: effects.reason(d)}
	if counter, counted := first(effects.counted.rules); counted {
		out.Rule, out.HasRule = r.rules.RuleOf(counter)
	}
	if err := r.setOpening(effects, out); err != nil {
		return nil, err
	}
	entries, err := d.connections.Entries()
	if err != nil {
		return nil, err
	}
	out.Existing = n.has(n.key)
	for i := range entries {
		if entries[i].Key == n.key {
			out.Silent = r.idleBefore(n, &entries[i])
			if err := r.setEntry(&entries[i], out); err != nil {
				return nil, err
			}
		}
	}
	out.Ended = out.Existing && (out.Opening != nil || out.Entry == nil)
	out.Outcome = outcomeOf(n, effects, out)
	d.known.stale = d.known.stale || out.Existing || n.packet.Protocol.HasHandshake() && out.Outcome == Drops // a handshake, or the answer to a challenge, makes the client known
	return out, nil
}

// idleBefore returns how long an entry had seen no packet before this one.
func (r *Runner) idleBefore(n *neededData, e *conntrack.Entry) time.Duration {
	for i := range n.entries {
		if n.entries[i].Key == e.Key {
			return time.Duration(e.Row.Seen-n.entries[i].Row.Seen) * r.live.Jiffy()
		}
	}
	return 0
}

// outcomeOf returns the packet's outcome.
func outcomeOf(n *neededData, effects *effects, out *Result) Outcome {
	switch {
	case effects.counted.challenges > 0:
		return Challenges
	case effects.verdict == testrun.Shot:
		return Drops
	case effects.verdict == testrun.Redirect && out.Reason != "":
		return Answers
	case effects.verdict == testrun.Redirect && out.Entry == nil && bytes.Equal(ip(effects.frame), ip(n.packet.Frame)):
		return Redirects
	case out.NextHop != nil && out.NextHop.Local && out.Entry != nil:
		return Delivers
	case effects.verdict == testrun.Redirect:
		return Forwards
	}
	return Passes
}

// ip returns a frame without its link-layer header, which a redirect leaves unchanged.
func ip(frame []byte) []byte { return frame[min(len(frame), 14):] }

// setOpening records how an endpoint was chosen.
func (r *Runner) setOpening(effects *effects, out *Result) error {
	o := effects.opening
	if o == nil {
		return nil
	}
	out.Opening = &Opening{Slots: o.Service.SlotCount, Held: o.Choice.IsHeld, Outwards: o.Outward.Is, Algorithm: bpf.TcAlgorithm(o.Service.Algorithm)}
	out.Opening.Service, out.Opening.Found = r.services.ServiceOf(o.Service.Id)
	if o.Choice.Endpoint == none || o.Outward.Is {
		return nil
	}
	out.Opening.Chosen = true
	if o.Service.SlotCount > 0 {
		out.Opening.Place = uint32(o.Choice.Place % uint64(o.Service.SlotCount))
	}
	row, err := r.endpoint(o.Choice.Endpoint)
	out.Opening.Endpoint = bpf.AddrPort(row.Addr, row.Port)
	return err
}

func (r *Runner) endpoint(id uint32) (row bpf.TcEndpoint, err error) {
	err = r.services.WithRowsLocked(func() error { return r.live.Endpoints.Lookup(id, &row) })
	if err != nil {
		err = fmt.Errorf("read an endpoint: %w", err)
	}
	return row, err
}

// setEntry records the packet's connection.
func (r *Runner) setEntry(e *conntrack.Entry, out *Result) error {
	row := &e.Row
	has := func(t bpf.TcConnectionTrait) bool { return row.Traits&uint8(t) != 0 }
	out.Entry = &Entry{
		Reply:  row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) != 0,
		Source: bpf.AddrPort(row.Saddr, row.Sport), Target: bpf.AddrPort(row.Daddr, row.Dport),
		SourceIsOurs: has(bpf.TcConnectionTraitCONN_SNAT), Direct: has(bpf.TcConnectionTraitCONN_ONE_WAY),
		Tunnels: row.Hop&hopTunnels != 0, Family: row.Hop&hopFamily != 0, Attached: row.Hop&hopAttached != 0,
	}
	endpoint, err := r.endpoint(row.Endpoint)
	if err != nil {
		return err
	}
	out.Entry.Endpoint = bpf.AddrPort(endpoint.Addr, endpoint.Port)
	out.Entry.Service, out.Entry.OfService = r.services.ServiceOf(endpoint.Service)
	return r.replica.setNextHop(row, out)
}

// Of enum hop_flag.
const (
	hopAttached = 0x08
	hopFamily   = 0x20
	hopTunnels  = 0xc0
)

// epochShift is HOP_EPOCH_SHIFT of bpf/table/epoch.h.
const epochShift = 13

// setNextHop records the next hop of an entry, if it is of the current epoch.
func (d *replica) setNextHop(row *bpf.TcConnection, out *Result) error {
	var generation uint32
	if err := d.Variables.HopGeneration.Get(&generation); err != nil {
		return err
	}
	if uint16(generation+row.Seen>>epochShift) != row.WayEpoch {
		return nil
	}
	var w bpf.TcHop
	if err := d.Maps.Ways.Lookup(uint32(row.Way), &w); err != nil {
		return fmt.Errorf("read a next hop: %w", err)
	}
	out.NextHop = &NextHop{
		Ifindex: int(w.Key.Ifindex), MTU: int(w.Key.Mtu), Local: bpf.TcHopKind(w.Key.Kind) == bpf.TcHopKindHOP_LOCAL, Peer: bpf.TcHopKind(w.Key.Kind) == bpf.TcHopKindHOP_PEER,
	}
	if counter := w.Key.Rule; counter > 0 {
		out.NextHop.Rule, out.NextHop.HasRule = d.rules.RuleOf(uint32(counter) - 1)
	}
	if gateway := w.Key.Gateway; gateway != (bpf.TcIpAddr{}) {
		out.NextHop.Gateway = gateway.Netip()
		for i := range 6 {
			out.NextHop.MAC = append(out.NextHop.MAC, byte(w.Macs>>(8*i)))
		}
	}
	return nil
}
