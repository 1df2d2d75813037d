package dryrun

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb"
)

// maxRuns bounds how often the program runs until it finds all rows that it needs. Each run of a
// search for a source port may need one more.
const maxRuns = 24

// try runs the program until it finds all rows that it needs.
func (r *Runner) try(p *Packet) (*Result, error) {
	d := r.replica
	n := &neededData{packet: p, key: bpf.TcConnectionKey{
		Saddr: bpf.Addr(p.From.Addr()), Daddr: bpf.Addr(p.To.Addr()), Sport: bpf.Port(p.From.Port()), Dport: bpf.Port(p.To.Port()), Protocol: uint8(p.Protocol),
	}}
	if p.isEcho() {
		n.key.Dport = 0
	}
	if err := d.copyConnection(n); err != nil {
		return nil, err
	}
	if d.known.stale {
		if err := d.known.copy(); err != nil {
			return nil, err
		}
	}
	if _, err := d.Program(p.Layer3); err != nil { // before the tables wait
		return nil, err
	}
	if p.Protocol == lb.SCTP && r.live.HandlesSCTP() {
		if err := d.HandleSCTP(p.Layer3); err != nil {
			return nil, err
		}
	}
	if p.Protocol == lb.TCP && r.live.HandlesProxy() {
		if err := d.HandleProxy(p.Layer3); err != nil {
			return nil, err
		}
	}
	if p.Protocol == lb.UDP && r.live.HandlesQUIC() {
		if err := d.HandleQUIC(p.Layer3); err != nil {
			return nil, err
		}
	}
	for range maxRuns {
		var effects *effects
		missing := false
		err := r.services.WithRowsLocked(func() (err error) {
			if effects, err = d.run(n); err == nil {
				missing, err = d.missing(n, effects)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if !missing {
			return r.result(n, effects)
		}
	}
	return nil, errors.New("the packet's connections change constantly: try again")
}

// isEcho reports whether the packet is an ICMP echo, which has an identifier as its source port,
// and no other port.
func (p *Packet) isEcho() bool { return !p.Protocol.HasPorts() }

// effects is the result of a run.
type effects struct {
	verdict testrun.Verdict
	frame   []byte
	counted counts
	opening *bpf.TcOpening // nil: no connection was being opened
}

// run runs the program once.
func (d *replica) run(n *neededData) (*effects, error) {
	if err := errors.Join(d.clear(), d.fill(n)); err != nil {
		return nil, err
	}
	program, err := d.Program(n.packet.Layer3)
	if err != nil {
		return nil, err
	}
	before, err := d.counts()
	if err != nil {
		return nil, err
	}
	opts := ebpf.RunOptions{
		Data: n.packet.Frame, DataOut: make([]byte, len(n.packet.Frame)+256), Context: testrun.SKB{Ifindex: uint32(n.packet.Ifindex), Mark: n.packet.Mark},
	}
	verdict, err := program.Run(&opts)
	if err != nil {
		return nil, fmt.Errorf("run the program: %w", err)
	}
	after, err := d.counts()
	if err != nil {
		return nil, err
	}
	out := &effects{verdict: testrun.Verdict(int32(verdict)), frame: opts.DataOut, counted: after.since(before)}
	out.opening, err = d.opening()
	return out, err
}

// opening returns the program's data about opening a connection; nil: it did not try.
func (d *replica) opening() (*bpf.TcOpening, error) {
	var all []bpf.TcPacketScratch
	if err := d.Maps.PacketScratches.Lookup(uint32(bpf.TcPacketScratchUseSCRATCH_OPENING), &all); err != nil {
		return nil, fmt.Errorf("read the program's notes: %w", err)
	}
	for i := range all {
		if o := openingIn(&all[i]); o.Service.Id != none {
			return o, nil
		}
	}
	return nil, nil
}

// openingIn returns the opening in a CPU's memory.
func openingIn(s *bpf.TcPacketScratch) *bpf.TcOpening { return (*bpf.TcOpening)(unsafe.Pointer(s)) }

// missing adds the data that the run lacked, and reports whether there is any.
func (d *replica) missing(n *neededData, effects *effects) (missing bool, err error) {
	if !n.known && (effects.counted.challenges > 0 || slices.ContainsFunc([]string{"unknown-source", "half-open-full"}, func(why string) bool { return effects.reason(d) == why })) {
		n.known, missing = true, true
		if err := d.known.copy(); err != nil {
			return false, err
		}
	}
	if o := effects.opening; o != nil {
		if n.service == nil || *n.service != o.Service {
			n.service, missing = &o.Service, true
		}
		if o.Choice.Endpoint != none {
			n.now = o.Entries.Entry.Seen
		}
		if pair := o.Search.Pair; pair != (bpf.TcSnatPair{}) && !slices.Contains(n.pairs, pair) {
			n.pairs, missing = append(n.pairs, pair), true
		}
	}
	entries, err := d.connections.Entries()
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		added, err := d.add(n, e.Key)
		if err != nil {
			return false, err
		}
		missing = missing || added
	}
	return missing, nil
}
