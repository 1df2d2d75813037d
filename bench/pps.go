package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ppsFlows is the number of flows for packet rates.
const ppsFlows = 256

// packetsTCP measures the smallest packets of established connections. They are real connections:
// the kernel reports their sequence numbers, so balancers that check them accept the packets.
func packetsTCP(ctx context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
	flows := make([]flow, ppsFlows)
	for i := range flows {
		c, err := r.source.DialContext(ctx, "tcp", to.String())
		if err != nil {
			return nil, fmt.Errorf("connection %d: %w", i+1, err)
		}
		defer c.Close()
		if flows[i], err = established(c.(*net.TCPConn)); err != nil {
			return nil, err
		}
	}
	return r.packets(s, flows)
}

// packetsUDP measures the smallest packets of UDP.
func packetsUDP(_ context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
	flows := make([]flow, ppsFlows)
	for i := range flows {
		flows[i] = flow{from: netip.AddrPortFrom(endpointAddr(r.source), uint16(20000+i)), to: to}
	}
	return r.packets(s, flows)
}

func (r *rig) packets(s setting, flows []flow) ([]sample, error) {
	g, err := r.generate(flows)
	if err != nil {
		return nil, err
	}
	defer g.close()
	sinks, err := newSinks(r.serving, false)
	if err != nil {
		return nil, err
	}
	defer sinks.close()
	out, err := g.rate(sinks, duration(s.Seconds))
	return []sample{out}, err
}

// established reads the TCP sequence numbers of a connection from the kernel.
func established(c *net.TCPConn) (flow, error) {
	f := flow{
		tcp:  true,
		from: c.LocalAddr().(*net.TCPAddr).AddrPort(),
		to:   c.RemoteAddr().(*net.TCPAddr).AddrPort(),
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return f, err
	}
	const sendQueue, receiveQueue, offNoProbe = 2, 1, -1
	var failed error
	err = raw.Control(func(fd uintptr) {
		set := func(name, value int) {
			failed = errors.Join(failed, unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, name, value))
		}
		sequence := func(queue int) uint32 {
			set(unix.TCP_REPAIR_QUEUE, queue)
			n, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
			failed = errors.Join(failed, err)
			return uint32(n)
		}
		set(unix.TCP_REPAIR, 1)
		f.seq, f.ack = sequence(sendQueue), sequence(receiveQueue)
		set(unix.TCP_REPAIR, offNoProbe)
	})
	if err = errors.Join(err, failed); err != nil {
		return f, fmt.Errorf("read the sequence numbers of a connection: %w", err)
	}
	return f, nil
}

// generate returns a generator that sends a packet of each flow from the client to the balancer.
func (r *rig) generate(flows []flow) (*generator, error) {
	src, err := r.Client.MAC("eth0")
	if err != nil {
		return nil, err
	}
	dst, err := r.LB.MAC("client")
	if err != nil {
		return nil, err
	}
	frames := make([][frameSize]byte, len(flows))
	for i, f := range flows {
		if frames[i], err = f.frame(src, dst); err != nil {
			return nil, err
		}
	}
	if _, err := r.LB.Run("ethtool", "-K", "client", "gro", "on"); err != nil {
		return nil, err
	}
	return newGenerator(r.Client, "eth0", r.cpus.generator(), frames)
}

// generator returns the measured CPU, which the balancer uses.
func (l layout) generator() int {
	if len(l.lb) > 0 {
		return l.lb[0]
	}
	return 0
}

// rate sends frames for a duration, after a warm-up that determines their number, and returns the
// rate of arriving packets.
func (g *generator) rate(sinks sinks, d time.Duration) (sample, error) {
	const warm = 30_000
	took, err := g.send(warm)
	if err != nil {
		return sample{}, err
	}
	n := max(warm, int(warm*d.Seconds()/took.Seconds()))
	return g.sendCounted(sinks, n)
}

// sendCounted sends frames and returns the rate of arriving packets.
func (g *generator) sendCounted(sinks sinks, frames int) (s sample, err error) {
	before, err := sinks.counted()
	if err != nil {
		return s, err
	}
	took, err := g.send(frames)
	if err != nil {
		return s, err
	}
	after, err := sinks.counted()
	if err != nil {
		return s, err
	}
	sum := uint64(0)
	for i := range after {
		s.Endpoints = append(s.Endpoints, after[i]-before[i])
		sum += after[i] - before[i]
	}
	s.Value = float64(sum) / took.Seconds()
	s.Details = map[string]float64{"lost_percent": 100 * (1 - float64(sum)/float64(frames))}
	s.Invalid = imbalance(s.Endpoints, evenBalance)
	return s, nil
}
