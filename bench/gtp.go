package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/pkt"
)

// gtpPath is a packet of the GTP-U program, which runs in front of the packet path.
type gtpPath struct{ name, outer, inner string }

// gtpPaths returns the paths of mobile users' packets and of other GTP packets.
func gtpPaths() []gtpPath {
	const (
		session = "udp 10.10.10.56:2152 > 10.10.10.59:2152"
		user    = "tcp 88.88.88.88:4000 > 20.20.20.1:80 PA seq 1001 ack 5001 len 33"
	)
	return []gtpPath{
		{"GTP-U: taken out of its tunnel", session, user},
		{"GTP-U: stays in its tunnel", session, "tcp 88.88.88.88:4000 > 20.20.20.2:80 PA seq 1001 ack 5001 len 33"},
		{"GTP-U: balanced by tunnel (n3)", "udp 10.10.10.56:2152 > 20.20.20.9:2152", user},
		{"another packet", "tcp 1.1.1.1:4000 > 10.0.0.1:80 A seq 1 ack 1", ""},
	}
}

// frame builds the packet: in tunnel 9, with a QoS flow.
func (p gtpPath) frame() ([]byte, error) {
	line := p.outer
	if p.inner != "" {
		inner, err := pkt.Parse(p.inner)
		if err != nil {
			return nil, err
		}
		const ethernet = 14
		line += " data 34ff000000000009" + "00000085" + "01101000" + hex.EncodeToString(inner.Build()[ethernet:])
	}
	outer, err := pkt.Parse(line)
	if err != nil {
		return nil, err
	}
	frame := outer.Build()
	clear(frame[:2*6]) // lo's MAC address
	return frame, nil
}

// gtpCosts returns the cost of each of gtpPaths in the GTP-U program.
func gtpCosts() (costs []profiled, err error) {
	spec, err := bpf.LoadGtp()
	if err != nil {
		return nil, err
	}
	const name = "loxilb_gtp_ether"
	b := &blockCounts{}
	spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	var program asm.Instructions
	if program, err = b.count(spec.Programs[name].Instructions); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.counts.Close()) }()
	spec.Programs[name].Instructions = program
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load a copy of the GTP-U program: %w", err)
	}
	defer c.Close()
	addr := func(text string) bpf.GtpIpAddr { return bpf.GtpIpAddr(bpf.Addr(netip.MustParseAddr(text))) }
	user := addr("88.88.88.88")
	err = errors.Join(
		c.Maps["gtp_users"].Put(bpf.GtpGtpTunnel{Core: addr("10.10.10.59"), Teid: 9}, user),
		c.Maps["gtp_classes"].Put(bpf.GtpGtpClass{User: user, Peer: addr("20.20.20.1")}, bpf.GtpGtpDownlink{}),
		c.Maps["gtp_vips"].Put(addr("20.20.20.9"), uint32(0)),
	)
	for _, path := range gtpPaths() {
		frame, failed := path.frame()
		if err = errors.Join(err, failed, b.reset()); err != nil {
			return nil, err
		}
		if err := runOnce(c.Programs[name], frame, 1); err != nil {
			return nil, fmt.Errorf("%s: %w", path.name, err)
		}
		one, err := b.read()
		if err != nil {
			return nil, err
		}
		costs = append(costs, one)
	}
	return costs, err
}
