package testrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/xdp"
)

// XDP's verdicts.
const (
	xdpPass     = 2
	xdpRedirect = 4
)

// xdpRun is what the XDP program did to a packet and to the table.
type xdpRun struct {
	frame    []byte
	forwards bool
	changed  map[bpf.TcConnectionKey]bpf.TcConnection
}

// RunWithXDP runs the XDP program on a packet to an interface with that MAC address, takes back what it did to its connection,
// and then runs the program at the tc hook as Run does. It is an error if XDP forwards a packet in another way than that, or
// changes what it passes.
func (r *Runner) RunWithXDP(in Input, mac [6]byte) (out Output, forwards bool, err error) {
	x, err := r.tryXDP(in, mac)
	if err != nil {
		return Output{}, false, err
	}
	if out, err = r.Run(in); err != nil || !x.forwards {
		return out, x.forwards, err
	}
	after, err := r.Connections()
	if err != nil {
		return out, true, err
	}
	return out, true, x.sameWay(in, out, after)
}

// XDPForwards runs the XDP program alone, and takes back what it did.
func (r *Runner) XDPForwards(in Input, mac [6]byte) (bool, error) {
	x, err := r.tryXDP(in, mac)
	return x.forwards, err
}

func (r *Runner) tryXDP(in Input, mac [6]byte) (x xdpRun, err error) {
	before, err := r.Connections()
	if err != nil {
		return x, err
	}
	if x.frame, x.forwards, err = r.runXDP(in, mac); err != nil {
		return x, err
	}
	if x.changed, err = r.takeBack(before); err != nil {
		return x, err
	}
	if !x.forwards && (len(x.changed) > 0 || !bytes.Equal(x.frame, in.Frame)) {
		return x, fmt.Errorf("XDP passed a packet and had changed it, or %d entries", len(x.changed))
	}
	return x, nil
}

// sameWay compares what XDP did with what the program at the tc hook did from the same state.
func (x xdpRun) sameWay(in Input, out Output, after map[bpf.TcConnectionKey]bpf.TcConnection) error {
	if out.Verdict != Redirect || !bytes.Equal(x.frame, out.Frame) {
		return fmt.Errorf("XDP makes another packet\nof  %x\nxdp %x\ntc  %x, verdict %d", in.Frame, x.frame, out.Frame, out.Verdict)
	}
	for key, row := range x.changed {
		tc := after[key]
		if tc.Seen-row.Seen < 1000 { // the clock went on meanwhile
			row.Seen = tc.Seen
		}
		if row != tc {
			return fmt.Errorf("XDP notes something else\nof  %x\nxdp %+v\ntc  %+v", in.Frame, row, tc)
		}
	}
	return nil
}

// runXDP stands in for the interface with lo, whose frames the kernel has the program see.
func (r *Runner) runXDP(in Input, mac [6]byte) (frame []byte, forwarded bool, err error) {
	const lo = 1
	if err := r.xdp.SetXDP(xdp.Interface{Index: lo, Name: "lo", MAC: mac}); err != nil {
		return nil, false, err
	}
	program, err := r.xdp.Program()
	if err != nil {
		return nil, false, err
	}
	opts := ebpf.RunOptions{Data: in.Frame, DataOut: make([]byte, len(in.Frame)+256)}
	ret, err := program.Run(&opts)
	if err != nil {
		return nil, false, fmt.Errorf("run XDP: %w", err)
	}
	if ret != xdpPass && ret != xdpRedirect {
		return nil, false, fmt.Errorf("XDP returned %d", ret)
	}
	return opts.DataOut, ret == xdpRedirect, nil
}

// Connections are the rows of the table as they are.
func (r *Runner) Connections() (map[bpf.TcConnectionKey]bpf.TcConnection, error) {
	out := map[bpf.TcConnectionKey]bpf.TcConnection{}
	return out, r.shared.Conntrack.Each(context.Background(), func(key bpf.TcConnectionKey, row bpf.TcConnection) bool {
		out[key] = row
		return true
	})
}

// takeBack makes the entries, and the traffic of their endpoints, what they were, and returns those that it found changed.
func (r *Runner) takeBack(before map[bpf.TcConnectionKey]bpf.TcConnection) (map[bpf.TcConnectionKey]bpf.TcConnection, error) {
	changed, err := r.Connections()
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(changed, func(key bpf.TcConnectionKey, row bpf.TcConnection) bool { return before[key] == row })
	var errs []error
	for key, now := range changed {
		was, ok := before[key]
		if !ok {
			return nil, errors.New("XDP made a connection")
		}
		errs = append(errs, r.takeTrafficBack(was, now))
	}
	errs = append(errs, r.shared.Conntrack.Change(func(key bpf.TcConnectionKey, row *bpf.TcConnection) bool {
		_, ok := changed[key]
		*row = before[key]
		return ok
	}))
	return changed, errors.Join(errs...)
}

func (r *Runner) takeTrafficBack(was, now bpf.TcConnection) error {
	var each []bpf.TcEndpointTraffic
	if err := r.shared.EndpointTraffics.Lookup(was.Endpoint, &each); err != nil {
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
	if err := r.shared.EndpointTraffics.Put(was.Endpoint, each); err != nil {
		return fmt.Errorf("write traffic: %w", err)
	}
	return nil
}
