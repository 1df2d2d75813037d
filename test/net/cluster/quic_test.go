package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"loxilb/test/await"
	"loxilb/test/quictest"
)

const (
	quicPort  = 4433
	quicCalls = 12
)

// checkQUIC checks that QUIC connections keep their servers when a change of the client's port
// makes the router send packets to another node. To that node, the flow is new: it finds the
// server by the connection ID.
func (e *experiment) checkQUIC() {
	key := "8f95f09245765f80256934e50c66207f"
	list := ""
	for i, h := range e.fleet.endpoints {
		sock, err := h.ListenPacket("udp", net.JoinHostPort(address(false, 9, i+1), fmt.Sprint(quicPort)))
		must(e.t, err)
		end, err := quictest.Serve(sock, &quictest.IDs{Server: []byte{0, byte(i)}, Nonce: 6, Key: quictest.Hex(key)}, fmt.Sprint(i))
		must(e.t, err)
		e.t.Cleanup(func() { _ = end() })
		list += fmt.Sprintf(",%s:1#%04x", address(false, 9, i+1), i)
	}
	for _, m := range e.fleet.nodes {
		m.loxicmd(fmt.Sprintf("create lb %s --mode=fullnat --snat=%s --udp=%d:%d --probetype=none --bgp --select=quic --quic=0:6:%s --endpoints=%s",
			vip(false, "fullnat"), sourceAddress(false, m.number, 2), quicPort, quicPort, key, list[1:]))
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), time.Minute)
	defer cancel()
	to := &net.UDPAddr{IP: net.ParseIP(vip(false, "fullnat")), Port: quicPort}
	listen := func() (net.PacketConn, error) { return e.fleet.client.ListenPacket("udp", "0.0.0.0:0") }
	for range quicCalls {
		e.changePort(ctx, listen, to)
	}
	e.record("nodes that received QUIC flows", float64(e.quicNodes()))
}

// changePort opens a QUIC connection and changes the client's port twice: quic-go's servers follow
// no further changes.
func (e *experiment) changePort(ctx context.Context, listen func() (net.PacketConn, error), to net.Addr) {
	e.t.Helper()
	var c *quictest.Client
	await.NoError(e.t, patience, func() (err error) {
		c, err = quictest.Dial(ctx, listen, to)
		return err
	})
	defer func() { _ = c.Close() }()
	name, err := c.Ask(ctx)
	must(e.t, err)
	for range 2 {
		must(e.t, c.Rebind())
		if got, err := c.Ask(ctx); got != name || err != nil {
			e.t.Errorf("after a change of the client's port, server %q answers (%v), want %s", got, err, name)
		}
	}
}

// quicNodes returns how many nodes have received packets of the QUIC service.
func (e *experiment) quicNodes() (nodes int) {
	for _, m := range e.fleet.nodes {
		if m.gotPackets(quicPort) {
			nodes++
		}
	}
	if nodes < 2 {
		e.t.Errorf("%d of %d nodes received QUIC flows, want at least 2", nodes, fleetSize)
	}
	return nodes
}

// gotPackets reports whether a node has received packets for a port.
func (m *member) gotPackets(port int) bool {
	var list struct {
		LbAttr []struct {
			ServiceArguments struct{ Port int }
			Endpoints        []struct{ Counter string } // packets:bytes
		}
	}
	must(m.fleet.t, json.Unmarshal([]byte(m.loxicmd("get lb -o json")), &list))
	for _, s := range list.LbAttr {
		for _, e := range s.Endpoints {
			if s.ServiceArguments.Port == port && e.Counter != "0:0" {
				return true
			}
		}
	}
	return false
}
