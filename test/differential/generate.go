package differential

import (
	"math/rand/v2"
	"net/netip"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// generator generates a sequence. It tracks each TCP connection, so most segments fit, but it does
// not know how the load balancers treat them.
type generator struct {
	*rand.Rand
	*sequence
	v6     bool
	states []flowState // of each flow
}

// flowState is the TCP state of both sides of a flow, the client's first.
type flowState struct {
	sent   [2]bool   // whether a SYN was sent
	next   [2]uint32 // next sequence number
	fin    [2]bool
	reset  bool
	served bool // the flow is of a service
	past   []step
}

// generate returns a sequence of n steps. The same seed gives the same sequence.
func generate(seed uint64, n int) *sequence {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), sequence: &sequence{seed: seed}}
	g.v6 = g.IntN(2) == 0
	g.makeServices()
	for range 1 + g.IntN(4) {
		g.makeFlow()
	}
	for len(g.steps) < n {
		i := g.IntN(len(g.flows))
		if g.flows[i].proto == pkt.TCP {
			g.segment(i)
		} else {
			g.datagram(i)
		}
	}
	return g.sequence
}

// answers reports whether the flow's endpoint may send a packet: the client has sent one, or no
// other flow has its address and port.
func (g *generator) answers(i int) bool {
	if !g.states[i].served {
		return false
	}
	alone := true
	for j, f := range g.flows {
		alone = alone && (j == i || f.client != g.flows[i].client)
	}
	return alone || g.states[i].sent[0]
}

// chance is true n times of a hundred.
func (g *generator) chance(n int) bool { return g.IntN(100) < n }

func (g *generator) endpoint(host int, port uint16) lb.Endpoint {
	addr := netip.AddrFrom4([4]byte{192, 168, 1, byte(10 + host)})
	if g.v6 {
		addr = netip.MustParseAddr([]string{"2001:db8:2::10", "2001:db8:2::11"}[host])
	}
	return lb.Endpoint{Addr: addr, Port: port, Weight: 1}
}

// makeServices adds three services of one mode: two at the first VIP, and one at the second VIP
// with a common endpoint.
func (g *generator) makeServices() {
	vips := vips(g.v6)
	mode := []lb.Mode{lb.ModeDefault, lb.ModeDefault, lb.ModeFullNAT, lb.ModeOneArm}[g.IntN(4)]
	add := func(vip int, port uint16, proto lb.Protocol, endpoints ...lb.Endpoint) {
		g.services = append(g.services, lb.Service{
			Key: lb.Key{VIP: vips[vip], Port: port, Protocol: proto}, Mode: mode, Endpoints: endpoints,
		})
	}
	add(0, 80, lb.TCP, g.endpoint(0, 8080), g.endpoint(1, 8080))
	add(0, 53, lb.UDP, g.endpoint(0, 5353), g.endpoint(1, 5353))
	add(1, 80, lb.TCP, g.endpoint(0, 8080))
}

func (g *generator) makeFlow() {
	f := flow{proto: pkt.TCP}
	f.client = netip.AddrPortFrom(netip.AddrFrom4([4]byte{1, 1, 1, byte(1 + g.IntN(2))}), uint16(4000+g.IntN(2)))
	if g.v6 {
		f.client = netip.AddrPortFrom(netip.MustParseAddr([]string{"2001:db8:100::1", "2001:db8:100::2"}[g.IntN(2)]), f.client.Port())
	}
	vips := vips(g.v6)
	served := true
	switch r := g.IntN(20); {
	case r < 10:
		f.vip = netip.AddrPortFrom(vips[0], 80)
	case r < 13:
		f.vip = netip.AddrPortFrom(vips[1], 80)
	case r < 18:
		f.proto, f.vip = pkt.UDP, netip.AddrPortFrom(vips[0], 53)
	case r < 19: // of no service
		f.vip, served = netip.AddrPortFrom([]netip.Addr{vips[0], g.endpoint(1, 0).Addr}[g.IntN(2)], 81), false
	default:
		f.proto, f.vip, served = pkt.UDP, netip.AddrPortFrom(vips[1], 53), false
	}
	for _, other := range g.flows {
		if f == other {
			return
		}
	}
	g.flows = append(g.flows, f)
	g.states = append(g.states, flowState{served: served})
}

// segment adds a segment of a TCP flow, or an ICMP error about one.
func (g *generator) segment(i int) {
	t := &g.states[i]
	switch r := g.IntN(100); {
	case r < 62:
		g.addNext(i)
	case r < 72 && len(t.past) > 0: // repeat a segment
		g.add(t.past[g.IntN(len(t.past))])
	case r < 80:
		g.icmpError(i)
	case r < 84:
		g.fragments(i)
	default:
		g.addInvalid(i)
	}
}

func (g *generator) tcp(i, side int, flags, length int) step {
	t := &g.states[i]
	p := pkt.New(pkt.TCP).SetNum(pkt.Flags, uint64(flags)).SetNum(pkt.Seq, uint64(t.next[side])).SetNum(pkt.Ack, 0)
	if flags&pkt.FlagACK != 0 {
		p.SetNum(pkt.Ack, uint64(t.next[1-side]))
	}
	if length > 0 {
		p.SetNum(pkt.Len, uint64(length))
	}
	if flags&pkt.FlagSYN != 0 && g.chance(30) {
		p.Set(pkt.TCPOptions, pkt.Value{Text: "mss:1460,sackok,nop,ws:7"})
	}
	return step{flow: i, server: side == 1, packet: p}
}

// addNext adds a packet that one of the sides could send next.
func (g *generator) addNext(i int) {
	t := &g.states[i]
	over := t.reset || t.fin[0] && t.fin[1]
	side := g.IntN(2)
	switch {
	case !t.sent[0], over && g.chance(50):
		past := t.past
		*t = flowState{served: t.served, past: past}
		t.sent[0], t.next[0] = true, g.Uint32()
		g.advance(g.tcp(i, 0, pkt.FlagSYN, 0), 1)
	case !t.served:
		g.advance(g.tcp(i, 0, pkt.FlagACK, g.IntN(40)), 0)
	case !t.sent[1]:
		t.sent[1], t.next[1] = true, g.Uint32()
		g.advance(g.tcp(i, 1, pkt.FlagSYN|pkt.FlagACK, 0), 1)
		if g.chance(80) {
			g.advance(g.tcp(i, 0, pkt.FlagACK, 0), 0)
		}
	case g.chance(6):
		t.reset = true
		g.advance(g.tcp(i, side, pkt.FlagRST|pkt.FlagACK*g.IntN(2), 0), 0)
	case g.chance(25) && !t.fin[side]:
		t.fin[side] = true
		g.advance(g.tcp(i, side, pkt.FlagFIN|pkt.FlagACK, g.IntN(2)*20), 1)
	default:
		length := 0
		if !t.fin[side] {
			length = g.IntN(60)
		}
		g.advance(g.tcp(i, side, pkt.FlagACK|pkt.FlagPSH*g.IntN(2), length), 0)
	}
}

// advance adds the step and counts its bytes; extra for SYN and FIN.
func (g *generator) advance(s step, extra uint32) {
	t := &g.states[s.flow]
	side := 0
	if s.server {
		side = 1
	}
	t.next[side] += uint32(s.packet.Num(pkt.Len)) + extra
	t.past = append(t.past, s)
	g.add(s)
}

// addInvalid adds a segment that does not fit the connection.
func (g *generator) addInvalid(i int) {
	t := &g.states[i]
	side := 0
	if g.answers(i) {
		side = g.IntN(2)
	}
	flags := []int{
		pkt.FlagACK, pkt.FlagSYN, pkt.FlagSYN | pkt.FlagACK, pkt.FlagRST, pkt.FlagRST | pkt.FlagACK, pkt.FlagFIN | pkt.FlagACK,
		g.IntN(64),
	}[g.IntN(7)]
	s := g.tcp(i, side, flags, g.IntN(2)*g.IntN(40))
	switch g.IntN(6) {
	case 0:
		s.packet.SetNum(pkt.Seq, uint64(g.Uint32()))
	case 1:
		s.packet.SetNum(pkt.Seq, uint64(t.next[side]+uint32(g.IntN(200))-100))
	case 2:
		s.packet.SetNum(pkt.Ack, uint64(g.Uint32()))
	case 3:
		s.packet.SetNum(pkt.Seq, 0)
	}
	g.add(s)
}

// datagram adds a packet of a UDP flow, or an ICMP error about one.
func (g *generator) datagram(i int) {
	t := &g.states[i]
	switch r := g.IntN(100); {
	case r < 12:
		g.icmpError(i)
	case r < 24:
		g.fragments(i)
	default:
		s := step{flow: i, server: g.answers(i) && (t.sent[0] && g.chance(50) || g.chance(2)), packet: pkt.New(pkt.UDP).SetNum(pkt.Len, uint64(g.IntN(100)))}
		t.sent[0] = t.sent[0] || !s.server
		if g.chance(5) && (!g.v6 || g.chance(20)) {
			s.packet.Set(pkt.Sum, pkt.Value{Text: "zero"})
		}
		t.past = append(t.past, s)
		g.add(s)
	}
}

// icmpError adds an error about a packet of the flow, usually a packet that was sent.
func (g *generator) icmpError(i int) {
	s := step{flow: i, server: g.answers(i) && g.chance(50)}
	quoted := g.quoted(i, s.server)
	s.packet = g.icmp()
	s.packet.Inner = quoted
	if g.chance(40) {
		s.router = netip.AddrFrom4([4]byte{203, 0, 113, byte(1 + g.IntN(3))})
		if g.v6 {
			s.router = netip.MustParseAddr("2001:db8:300::1")
		}
	}
	g.add(s)
}

// quoted returns the packet that an error quotes: a packet to the error's sender, its IP header and
// at least 8 bytes.
func (g *generator) quoted(i int, server bool) *pkt.Packet {
	t := &g.states[i]
	q := pkt.New(g.flows[i].proto).SetNum(pkt.Len, uint64(g.IntN(30)))
	if q.Proto == pkt.TCP {
		q.SetNum(pkt.Seq, uint64(g.Uint32()))
	}
	for range 4 {
		if len(t.past) == 0 {
			break
		}
		if s := t.past[g.IntN(len(t.past))]; s.server != server && len(s.cuts) == 0 && s.packet.Inner == nil {
			q = s.packet.Clone()
			break
		}
	}
	q.SetNum(pkt.TTL, uint64(1+g.IntN(60)))
	header := 20
	if g.v6 {
		header = 40
	}
	q.Unset(pkt.IPOptions).Unset(pkt.Ext)
	if g.chance(60) {
		q.SetNum(pkt.Trunc, uint64(header+8+g.IntN(30)))
	}
	if g.chance(3) {
		q.SetNum(pkt.Trunc, uint64(header+g.IntN(8)))
	}
	return q
}

func (g *generator) icmp() *pkt.Packet {
	proto, kinds := pkt.ICMP, [][2]uint64{{3, 3}, {3, 1}, {3, 4}, {11, 0}, {12, 0}, {3, 13}}
	mtu := uint64(1000 + g.IntN(500))
	if g.v6 {
		proto, kinds = pkt.ICMP6, [][2]uint64{{1, 4}, {1, 3}, {2, 0}, {3, 0}, {4, 0}, {1, 1}}
		mtu += 280
	}
	kind := kinds[g.IntN(len(kinds))]
	p := pkt.New(proto).SetNum(pkt.Type, kind[0]).SetNum(pkt.Code, kind[1])
	if kind == [2]uint64{3, 4} && !g.v6 || kind[0] == 2 {
		p.SetNum(pkt.MTU, mtu)
	}
	return p
}

// fragments adds a packet in two or three fragments: mostly in order and complete.
func (g *generator) fragments(i int) {
	s := step{flow: i, server: g.answers(i) && g.chance(50)}
	length := 200 + g.IntN(2800)
	side := 0
	if s.server {
		side = 1
	}
	if g.flows[i].proto == pkt.TCP {
		s = g.tcp(i, side, pkt.FlagACK, length)
	} else {
		s.packet = pkt.New(pkt.UDP).SetNum(pkt.Len, uint64(length))
	}
	body := length + 20
	if s.packet.Proto == pkt.UDP {
		body = length + 8
	}
	for n, at := 1+g.IntN(2), 0; n > 0; n-- {
		if at += (40 + g.IntN(length/2)) / 8 * 8; at < body {
			s.cuts = append(s.cuts, at)
		}
	}
	s.cuts = append(s.cuts, body)
	for i := range s.cuts {
		s.order = append(s.order, i)
	}
	switch g.IntN(30) {
	case 0, 1, 2:
		g.Shuffle(len(s.order), func(a, b int) { s.order[a], s.order[b] = s.order[b], s.order[a] })
	case 3:
		s.order = s.order[:len(s.order)-1]
	}
	g.add(s)
}

// add adds a step. A few packets have unusual fields.
func (g *generator) add(s step) {
	s.packet = s.packet.Clone()
	switch whole := len(s.cuts) == 0; g.IntN(60) {
	case 0:
		s.packet.SetNum(pkt.TTL, uint64(g.IntN(3)))
	case 1, 2:
		s.packet.SetNum(pkt.TOS, uint64(g.IntN(256)))
	case 3, 4:
		s.packet.Set(pkt.Sum, pkt.Value{Text: "bad"})
	case 5:
		if whole {
			g.options(s.packet)
		}
	case 6:
		if whole && !g.v6 {
			s.packet.SetNum(pkt.IPID, uint64(g.IntN(65536))).Set(pkt.DF, pkt.Value{})
		}
	case 7:
		if whole && !s.server && s.packet.Inner == nil {
			s.router = g.martian(s.flow)
		}
	case 8:
		if whole {
			g.malformed(s.packet)
		}
	}
	g.steps = append(g.steps, s)
}

func (g *generator) options(p *pkt.Packet) {
	if g.v6 {
		p.Set(pkt.Ext, pkt.Value{Text: []string{"dst", "hbh", "hbh,dst:16"}[g.IntN(3)]})
		return
	}
	p.Set(pkt.IPOptions, pkt.Value{Text: []string{
		"\x94\x04\x00\x00", // router alert
		"\x01\x01\x01\x00", // nothing
		"\x07\x0b\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00", // record route
	}[g.IntN(3)]})
}

// martian returns an invalid source address.
func (g *generator) martian(flow int) netip.Addr {
	if g.v6 {
		return []netip.Addr{netip.IPv6Loopback(), netip.IPv6LinkLocalAllNodes(), g.flows[flow].vip.Addr()}[g.IntN(3)]
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.AddrFrom4([4]byte{224, 0, 0, 1}), g.flows[flow].vip.Addr()}[g.IntN(3)]
}

// malformed makes the transport header contradict the packet's length.
func (g *generator) malformed(p *pkt.Packet) {
	switch p.Proto {
	case pkt.TCP:
		p.SetNum(pkt.DataOffset, uint64([]int{3, 15}[g.IntN(2)]))
	case pkt.UDP:
		p.SetNum(pkt.UDPLen, uint64([]int{7, 1000}[g.IntN(2)]))
	}
}
