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

// quic checks that the connections of QUIC clients stay with their servers while each change of a
// client's port leads it to another node: nodes find the server by the connection ID, as the flow
// is new to all of them.
func (p *proof) quic() {
	key := "8f95f09245765f80256934e50c66207f"
	list := ""
	for i, h := range p.f.endpoints {
		sock, err := h.ListenPacket("udp", net.JoinHostPort(address(false, 9, i+1), fmt.Sprint(quicPort)))
		must(p.t, err)
		end, err := quictest.Serve(sock, &quictest.IDs{Server: []byte{0, byte(i)}, Nonce: 6, Key: quictest.Hex(key)}, fmt.Sprint(i))
		must(p.t, err)
		p.t.Cleanup(func() { _ = end() })
		list += fmt.Sprintf(",%s:1#%04x", address(false, 9, i+1), i)
	}
	for _, m := range p.f.nodes {
		m.loxicmd(fmt.Sprintf("create lb %s --mode=fullnat --snat=%s --udp=%d:%d --probetype=none --bgp --select=quic --quic=0:6:%s --endpoints=%s",
			vip(false, "fullnat"), source(false, m.number, 2), quicPort, quicPort, key, list[1:]))
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	to := &net.UDPAddr{IP: net.ParseIP(vip(false, "fullnat")), Port: quicPort}
	listen := func() (net.PacketConn, error) { return p.f.client.ListenPacket("udp", "0.0.0.0:0") }
	for range quicCalls {
		p.call(ctx, listen, to)
	}
	p.note("nodes that got flows of QUIC", float64(p.quicNodes()))
}

// call changes a client's port twice, which is how often quic-go's servers follow a change.
func (p *proof) call(ctx context.Context, listen func() (net.PacketConn, error), to net.Addr) {
	p.t.Helper()
	var c *quictest.Client
	await.NoError(p.t, patience, func() (err error) {
		c, err = quictest.Dial(ctx, listen, to)
		return err
	})
	defer func() { _ = c.Close() }()
	name, err := c.Ask(ctx)
	must(p.t, err)
	for range 2 {
		must(p.t, c.Rebind())
		if got, err := c.Ask(ctx); got != name || err != nil {
			p.t.Errorf("after its port has changed, server %q answers (%v), want %s", got, err, name)
		}
	}
}

// quicNodes returns how many nodes have got packets of the service.
func (p *proof) quicNodes() (nodes int) {
	for _, m := range p.f.nodes {
		if m.gotPackets(quicPort) {
			nodes++
		}
	}
	if nodes < 2 {
		p.t.Errorf("%d of %d nodes got flows of QUIC, want at least 2", nodes, fleetSize)
	}
	return nodes
}

// gotPackets reports whether a node has got packets for a port.
func (m *member) gotPackets(port int) bool {
	var list struct {
		LbAttr []struct {
			ServiceArguments struct{ Port int }
			Endpoints        []struct{ Counter string } // packets:bytes
		}
	}
	must(m.f.t, json.Unmarshal([]byte(m.loxicmd("get lb -o json")), &list))
	for _, s := range list.LbAttr {
		for _, e := range s.Endpoints {
			if s.ServiceArguments.Port == port && e.Counter != "0:0" {
				return true
			}
		}
	}
	return false
}
