package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"loxilb/test/dptest"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/testrun"
)

// XDP's verdicts.
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpRedirect = 4
)

// XDPEffect is the XDP program's effect on a packet.
type XDPEffect string

// Effects of the XDP program.
const (
	XDPPasses     XDPEffect = "passes"
	XDPForwards   XDPEffect = "forwards"
	XDPChallenges XDPEffect = "challenges"
	XDPDrops      XDPEffect = "drops"
)

// xdpRun is the XDP program's effect on a packet, the table and counters.
type xdpRun struct {
	does    XDPEffect
	frame   []byte
	changed map[bpf.TcConnectionKey]bpf.TcConnection
	before  counts
	counted countIncrease
}

// RunWithXDP runs the XDP program on a packet to an interface with the given MAC address, restores
// the packet's connection and the counters, and then runs the program at the tc hook like Run. It
// returns an error if XDP changes a packet that it passes, or has another effect than the program
// at the tc hook.
func (r *Runner) RunWithXDP(in testrun.Input, mac [6]byte) (out testrun.Output, does XDPEffect, err error) {
	x, err := r.tryXDP(in, mac)
	if err != nil {
		return testrun.Output{}, "", err
	}
	if out, err = r.Run(in); err != nil || x.does == XDPPasses {
		return out, x.does, err
	}
	after, err := r.counts()
	if err != nil {
		return out, x.does, err
	}
	if tc := after.since(x.before); !tc.equal(x.counted) {
		return out, x.does, fmt.Errorf("XDP %s the packet and counts %s; tc counts %s", x.does, r.describe(x.counted), r.describe(tc))
	}
	if x.does == XDPChallenges && !bytes.Equal(x.frame, out.Frame) { // the SYN cookie's period may have ended meanwhile
		if x, err = r.tryXDP(in, mac); err != nil {
			return out, x.does, err
		}
	}
	table, err := r.Connections()
	if err != nil {
		return out, x.does, err
	}
	return out, x.does, x.compareEffects(in, out, table)
}

// FindXDPEffect runs only the XDP program, as if all connections had just been used, and undoes its
// effects. On an emulated machine, reading the table takes seconds: longer than the idle time after
// which XDP passes packets, and an epoch of next hops may end meanwhile.
func (r *Runner) FindXDPEffect(in testrun.Input, mac [6]byte) (XDPEffect, error) {
	does, err := r.findXDPEffectWithin(in, mac, 0)
	if err == nil && does == XDPPasses {
		does, err = r.findXDPEffectWithin(in, mac, 1)
	}
	return does, err
}

// findXDPEffectWithin is FindXDPEffect with next hops that stay valid for the given number of
// further epochs.
func (r *Runner) findXDPEffectWithin(in testrun.Input, mac [6]byte, epochs uint16) (XDPEffect, error) {
	ahead := r.Collection.Jiffies(time.Minute)
	if err := r.shiftTimes(ahead, epochs); err != nil {
		return "", err
	}
	x, err := r.tryXDP(in, mac)
	return x.does, errors.Join(err, r.shiftTimes(-ahead, -epochs))
}

// shiftTimes adds to the time of each connection's last packet, and to the epoch of its next hop.
// ticks: jiffies, modulo 2^32; epochs: modulo 2^16.
func (r *Runner) shiftTimes(ticks uint32, epochs uint16) error {
	return dptest.ChangeConnections(r.Collection.Conntrack, func(_ bpf.TcConnectionKey, row *bpf.TcConnection) bool {
		row.Seen += ticks
		row.WayEpoch += epochs
		return true
	})
}

func (r *Runner) tryXDP(in testrun.Input, mac [6]byte) (x xdpRun, err error) {
	table, err := r.Connections()
	if err != nil {
		return x, err
	}
	if x.before, err = r.counts(); err != nil {
		return x, err
	}
	frame, verdict, err := r.runXDP(in, mac)
	if err != nil {
		return x, err
	}
	after, err := r.counts()
	if err != nil {
		return x, err
	}
	x.frame, x.counted = frame, after.since(x.before)
	if x.changed, err = r.restore(table); err != nil {
		return x, err
	}
	if !x.counted.none() {
		if err := r.restoreCounts(x.before, after); err != nil {
			return x, err
		}
	}
	x.does, err = x.effect(verdict, in.Frame)
	return x, err
}

// effect returns the effect of the program, and an error if it has other effects.
func (x xdpRun) effect(verdict uint32, frame []byte) (XDPEffect, error) {
	unchanged := len(x.changed) == 0 && bytes.Equal(x.frame, frame)
	switch {
	case verdict == xdpPass && unchanged && x.counted.none():
		return XDPPasses, nil
	case verdict == xdpDrop && unchanged && len(x.counted.drops) == 1 && x.counted.challenges == 0:
		return XDPDrops, nil
	case verdict == xdpRedirect && x.counted.challenges == 1 && len(x.changed) == 0 && len(x.counted.drops) == 0:
		return XDPChallenges, nil
	case verdict == xdpRedirect && x.counted.none():
		return XDPForwards, nil
	}
	return "", fmt.Errorf("XDP returned %d, and had changed %d entries, counted %+v and made\n%x of\n%x", verdict, len(x.changed), x.counted, x.frame, frame)
}

// compareEffects compares the effects of the XDP program and of the program at the tc hook.
func (x xdpRun) compareEffects(in testrun.Input, out testrun.Output, after map[bpf.TcConnectionKey]bpf.TcConnection) error {
	if x.does == XDPDrops {
		if out.Verdict != testrun.Shot {
			return fmt.Errorf("XDP drops a packet that tc does not drop\nof %x\ntc %x, verdict %d", in.Frame, out.Frame, out.Verdict)
		}
		return nil
	}
	if out.Verdict != testrun.Redirect || !bytes.Equal(x.frame, out.Frame) {
		return fmt.Errorf("XDP sends another packet than tc\nof  %x\nxdp %x\ntc  %x, verdict %d", in.Frame, x.frame, out.Frame, out.Verdict)
	}
	for key, row := range x.changed {
		tc := after[key]
		if tc.Seen-row.Seen < 1000 { // the clock continued meanwhile
			row.Seen = tc.Seen
		}
		if tc.WayEpoch-row.WayEpoch == 1 { // and an epoch has ended
			row.WayEpoch = tc.WayEpoch
		}
		if row != tc {
			return fmt.Errorf("XDP writes another entry than tc\nof  %x\nxdp %+v\ntc  %+v", in.Frame, row, tc)
		}
	}
	return nil
}

// runXDP replaces the interface by lo, whose frames the kernel passes to the program.
func (r *Runner) runXDP(in testrun.Input, mac [6]byte) (frame []byte, verdict uint32, err error) {
	const lo = 1
	if err := r.xdp.SetXDP(attach.XDPInterface{Index: lo, Name: "lo", MAC: mac, Target: true}); err != nil {
		return nil, 0, err
	}
	program, err := r.xdp.Program()
	if err != nil {
		return nil, 0, err
	}
	opts := ebpf.RunOptions{Data: in.Frame, DataOut: make([]byte, len(in.Frame)+256)}
	ret, err := program.Run(&opts)
	if err != nil {
		return nil, 0, fmt.Errorf("run XDP: %w", err)
	}
	return opts.DataOut, ret, nil
}

// Connections returns the current rows of the table.
func (r *Runner) Connections() (map[bpf.TcConnectionKey]bpf.TcConnection, error) {
	out := map[bpf.TcConnectionKey]bpf.TcConnection{}
	return out, r.Collection.Conntrack.Each(context.Background(), func(key bpf.TcConnectionKey, row bpf.TcConnection) bool {
		out[key] = row
		return true
	})
}

// restore restores the entries and the traffic of their endpoints, and returns the entries that
// had changed.
func (r *Runner) restore(before map[bpf.TcConnectionKey]bpf.TcConnection) (map[bpf.TcConnectionKey]bpf.TcConnection, error) {
	changed, err := r.Connections()
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(changed, func(key bpf.TcConnectionKey, row bpf.TcConnection) bool { return before[key] == row })
	if len(changed) == 0 { // ChangeConnections reads each bucket of the table
		return nil, nil
	}
	var errs []error
	for key, now := range changed {
		was, ok := before[key]
		if !ok {
			return nil, errors.New("XDP has created a connection")
		}
		errs = append(errs, r.restoreTraffic(was, now))
	}
	errs = append(errs, dptest.ChangeConnections(r.Collection.Conntrack, func(key bpf.TcConnectionKey, row *bpf.TcConnection) bool {
		_, ok := changed[key]
		*row = before[key]
		return ok
	}))
	return changed, errors.Join(errs...)
}

func (r *Runner) restoreTraffic(was, now bpf.TcConnection) error {
	var each []bpf.TcEndpointTraffic
	if err := r.Collection.EndpointTraffics.Lookup(was.Endpoint, &each); err != nil {
		return fmt.Errorf("read traffic: %w", err)
	}
	packets, size := now.Packets-was.Packets, now.Bytes-was.Bytes
	for i := range each { // the CPU that ran the program
		t := &each[i]
		if was.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) == 0 && t.PacketsIn >= packets && t.BytesIn >= size {
			t.PacketsIn, t.BytesIn = t.PacketsIn-packets, t.BytesIn-size
			break
		}
		if was.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) != 0 && t.PacketsOut >= packets && t.BytesOut >= size {
			t.PacketsOut, t.BytesOut = t.PacketsOut-packets, t.BytesOut-size
			break
		}
	}
	if err := r.Collection.EndpointTraffics.Put(was.Endpoint, each); err != nil {
		return fmt.Errorf("write traffic: %w", err)
	}
	return nil
}
