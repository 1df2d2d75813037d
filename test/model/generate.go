package model

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// Op is one line of a packet script without its expectation.
type Op struct {
	Service *lb.Service   // service
	Delete  *lb.Key       // delete
	Advance time.Duration // advance
	Sweep   bool          // sweep
	Mark    *uint32       // mark
	Link    string        // in
	Packet  *pkt.Packet
	Of      *tuple // the packet goes to the source that the endpoint sees for this client's connection
	Answers bool   // the packet is the RST with which a client answers its challenge
}

// String writes the op as a line of a script.
func (o Op) String() string {
	switch {
	case o.Service != nil:
		return "service " + o.Service.String()
	case o.Delete != nil:
		return "delete " + o.Delete.String()
	case o.Advance != 0:
		return "advance " + o.Advance.String()
	case o.Sweep:
		return "sweep"
	case o.Mark != nil:
		return fmt.Sprintf("mark %d", *o.Mark)
	}
	return "in " + o.Link + " " + o.Packet.String()
}

// Do applies the op to the model, and returns the verdict on its packet.
func (o Op) Do(m *Model) Verdict {
	switch {
	case o.Service != nil:
		m.Apply(*o.Service)
	case o.Delete != nil:
		m.Delete(*o.Delete)
	case o.Advance != 0:
		m.Advance(o.Advance)
	case o.Sweep:
		m.Sweep()
	case o.Mark != nil:
		m.mark = *o.Mark
	default:
		return m.Packet(o.Packet, len(o.Packet.BuildIP()))
	}
	return Verdict{}
}

// Resolve replaces the random source port and the random number of a challenge by the model's own.
func (o Op) Resolve(m *Model) Op {
	if o.Answers {
		o.Packet = o.Packet.Clone().SetNum(pkt.Seq, uint64(m.numbers[tupleOf(o.Packet)]))
	}
	if o.Of == nil {
		return o
	}
	if e, ok := m.table[*o.Of]; ok && e.dir == fromClient {
		o.Packet = o.Packet.Clone()
		setPort(o.Packet, e.conn.source.Port())
	}
	return o
}

// setPort states the destination port of a packet of an endpoint: of an echo, the identifier.
func setPort(p *pkt.Packet, port uint16) {
	if p.Has(pkt.Type) {
		p.SetNum(pkt.EchoID, uint64(port))
	} else {
		p.SetNum(pkt.DstPort, uint64(port))
	}
}

// generator generates ops that fit the state of a model: random packets would hardly ever open a
// connection.
type generator struct {
	*rand.Rand
	m   *Model
	v6  bool
	ops []Op
}

// Generate returns a sequence of about n ops. The same seed gives the same sequence.
func Generate(seed uint64, n int) []Op {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), m: New()}
	g.v6 = g.IntN(2) == 0
	for range 1 + g.IntN(3) {
		g.service()
	}
	for len(g.ops) < n {
		switch r := g.IntN(100); {
		case r < 3:
			g.service()
		case r < 3:
			g.delete()
		case r < 7:
			g.do(Op{Sweep: true})
		case r < 9:
			mark := uint32(7 * g.IntN(2))
			g.do(Op{Mark: &mark})
		case r < 15:
			times := []time.Duration{1, 8, 20, 28, 40, 55, 70, 110, 130, 290, 320, 1000, 7400, 7500}
			g.do(Op{Advance: times[g.IntN(len(times))] * time.Second})
		case r < 70:
			g.fromClient()
		default:
			g.fromEndpoint()
		}
	}
	return g.ops
}

// do adds an op. It omits a sweep whose result depends on the order of connections, and advances
// the clock if a connection is about to expire.
func (g *generator) do(o Op) {
	if o.Sweep && g.m.SweepsInOrder() {
		return
	}
	o.Do(g.m)
	g.ops = append(g.ops, o)
	for g.m.NearTimeout() {
		o := Op{Advance: 7 * time.Second}
		o.Do(g.m)
		g.ops = append(g.ops, o)
	}
}

func (g *generator) addr(v4, v6 string, host int) netip.Addr {
	if g.v6 {
		return netip.MustParseAddr(fmt.Sprintf("%s%d", v6, host))
	}
	return netip.MustParseAddr(fmt.Sprintf("%s%d", v4, host))
}

func (g *generator) vip() netip.AddrPort {
	return netip.AddrPortFrom(g.addr("10.0.0.", "2001:db8::", 1+g.IntN(2)), uint16(80+g.IntN(2)))
}

// key returns a random key of a service. There are only two port ranges, since ranges must not
// overlap.
func (g *generator) key() lb.Key {
	vip := g.vip()
	k := lb.Key{VIP: vip.Addr(), Port: vip.Port(), Protocol: lb.TCP}
	switch g.IntN(8) {
	case 0, 1:
		k.Protocol = lb.UDP
	case 2:
		k.Protocol, k.Port = lb.ICMP, 0
	}
	if k.Protocol != lb.ICMP && g.IntN(4) == 0 {
		k.Port, k.PortMax = 80, 83
		if g.IntN(3) == 0 {
			k.Port, k.PortMax = 1, 65535
		}
	}
	if g.IntN(4) == 0 {
		k.Mark = 7
	}
	return k
}

// anyKey sometimes returns the key of an existing service, so its mode changes under its
// connections; else a new one.
func (g *generator) anyKey() lb.Key {
	if keys := g.m.keys(); len(keys) > 0 && g.IntN(3) == 0 {
		return keys[g.IntN(len(keys))]
	}
	return g.key()
}

// target returns where a packet for a service of that key goes.
func (g *generator) target(k lb.Key) netip.AddrPort {
	port := k.Port
	if k.PortMax != 0 {
		port = uint16(80 + g.IntN(5))
	}
	if k.VIP.IsUnspecified() {
		all := slices.DeleteFunc(ownAddresses(), func(a netip.Addr) bool { return a.Is6() != g.v6 })
		return netip.AddrPortFrom(all[g.IntN(len(all))], port)
	}
	return netip.AddrPortFrom(k.VIP, port)
}

func (g *generator) client() netip.AddrPort {
	if g.IntN(8) == 0 { // an endpoint
		return netip.AddrPortFrom(g.addr("192.168.1.", "2001:db8:2::", 10+g.IntN(2)), uint16(4000+g.IntN(3)))
	}
	return netip.AddrPortFrom(g.addr("1.1.1.", "2001:db8:100::", 1+g.IntN(2)), uint16(4000+g.IntN(3)))
}

// service creates or updates a service. It adds a sweep, as the daemon does.
func (g *generator) service() {
	s := lb.Service{Key: g.anyKey(), Refuse: lb.Refusal(g.IntN(3))}
	g.mode(&s)
	s.ConnectionLimits = limitsOf(s.Key) // of the key that the mode has left
	if s.Protocol == lb.TCP {
		s.SynProtect = lb.SynProtect(g.IntN(3))
	}
	if g.IntN(5) == 0 {
		a := g.client().Addr()
		s.Sources = []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
	}
	if g.IntN(6) == 0 {
		a := g.client().Addr()
		s.Denied = []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
	}
	algorithms := []lb.Algorithm{lb.RoundRobin, lb.Priority, lb.Hash, lb.Persist, lb.LeastConnections, lb.Random}
	s.Algorithm = algorithms[g.IntN(len(algorithms))]
	if s.Mode == lb.ModeDSR && g.IntN(3) == 0 {
		s.Algorithm = lb.Hash
	}
	if s.Algorithm == lb.Persist && g.IntN(2) == 0 {
		s.PersistTimeout = time.Duration(20+g.IntN(600)) * time.Second
	}
	if s.Algorithm == lb.Persist && g.IntN(3) == 0 {
		s.PersistPrefix = 24
	}
	if g.IntN(4) == 0 {
		s.IdleTimeout = time.Duration(20+g.IntN(600)) * time.Second
	}
	g.endpoints(&s)
	g.do(Op{Service: &s})
	g.do(Op{Sweep: true})
}

func (g *generator) endpoints(s *lb.Service) {
	hosts := g.Perm(5)
	for _, host := range hosts[:1+g.IntN(4)] {
		e := lb.Endpoint{
			Addr: g.addr("192.168.1.", "2001:db8:2::", 10+host), Port: uint16(8080 + g.IntN(2)), Weight: uint16(g.IntN(5)),
		}
		switch {
		case s.Mode == lb.ModeDSR || s.Protocol == lb.ICMP || g.IntN(4) == 0: // so that one stays when the mode becomes dsr
			e.Port, e.PortMax = s.Port, s.PortMax
		case s.AllPorts() && g.IntN(2) == 0:
			e.Port, e.PortMax = 1, 65535
		case s.PortMax != 0 && !s.AllPorts() && g.IntN(2) == 0:
			e.PortMax = e.Port + s.PortMax - s.Port
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	if s.Algorithm == lb.Random { // a random choice is predictable only if there is one candidate
		for i := range s.Endpoints[1:] {
			s.Endpoints[i+1].Weight = 0
		}
	}
}

func (g *generator) mode(s *lb.Service) {
	r := g.IntN(10)
	switch {
	case s.VIP.IsUnspecified():
		s.Mode = lb.ModeHostOneArm
	case r < 1:
		s.Mode = lb.ModeDSR
	case s.Protocol == lb.ICMP:
	case r < 3:
		s.Mode = lb.ModeOneArm
	case r < 5:
		s.Mode = lb.ModeFullNAT
	case r < 7:
		s.Mode, s.VIP = lb.ModeHostOneArm, anyAddr(s.VIP)
	}
	if s.Mode.TranslatesSource() && g.IntN(4) == 0 {
		s.SNAT = []netip.Addr{g.addr("203.0.113.", "2001:db8:3::", 1), g.addr("203.0.113.", "2001:db8:3::", 2), g.vip().Addr()}
	}
}

func (g *generator) delete() {
	keys := g.m.keys()
	if len(keys) == 0 {
		return
	}
	g.do(Op{Delete: &keys[g.IntN(len(keys))]})
	g.do(Op{Sweep: true})
}

// keys lists the services in a fixed order, so a seed always generates the same sequence.
func (m *Model) keys() []lb.Key {
	var keys []lb.Key
	for key := range m.services {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, lb.Key.Compare)
	return keys
}

// conns lists the connections in a fixed order.
func (m *Model) conns() []*connection {
	var all []*connection
	for _, e := range m.table {
		if e.dir == fromClient {
			all = append(all, e.conn)
		}
	}
	slices.SortFunc(all, func(a, b *connection) int {
		if c := a.client.Compare(b.client); c != 0 {
			return c
		}
		if c := a.vip.Compare(b.vip); c != 0 {
			return c
		}
		return int(a.proto) - int(b.proto)
	})
	return all
}

func (g *generator) fromClient() {
	proto, src, dst := lb.TCP, g.client(), g.vip()
	if keys := g.m.keys(); len(keys) > 0 && g.IntN(10) > 0 {
		key := keys[g.IntN(len(keys))]
		dst, proto = g.target(key), key.Protocol
	}
	if conns := g.m.conns(); len(conns) > 0 && g.IntN(3) > 0 {
		c := conns[g.IntN(len(conns))]
		src, dst, proto = c.client, c.vip, c.proto
	}
	p := g.packet(proto, src, dst, 8, 128)
	if e, ok := g.m.table[tuple{lb.TCP, src, dst}]; ok && proto == lb.TCP {
		g.segment(p, e.conn, fromClient)
	} else if key := (tuple{lb.TCP, src, dst}); proto == lb.TCP && g.m.numbers[key] != 0 && g.IntN(3) > 0 {
		g.do(Op{Link: linkOf(src.Addr()), Packet: p.SetNum(pkt.Flags, pkt.FlagRST), Answers: true}.Resolve(g.m))
		return
	} else if proto == lb.TCP {
		p.SetNum(pkt.Flags, pkt.FlagSYN).SetNum(pkt.Seq, uint64(g.Uint32()))
		if g.IntN(6) == 0 {
			p.SetNum(pkt.Flags, []uint64{uint64(g.IntN(64)), pkt.FlagACK}[g.IntN(2)])
		}
	} else if p.Has(pkt.Type) {
		p.SetNum(pkt.EchoID, uint64(src.Port()))
	}
	g.send(linkOf(src.Addr()), p, nil)
}

// packet returns a packet of the protocol. echo has the types of an ICMP echo, for IPv4 and IPv6.
func (g *generator) packet(proto lb.Protocol, src, dst netip.AddrPort, echo4, echo6 uint64) *pkt.Packet {
	var p *pkt.Packet
	switch {
	case proto == lb.TCP:
		p = pkt.New(pkt.TCP)
	case proto == lb.UDP:
		p = pkt.New(pkt.UDP)
	case g.v6:
		p = pkt.New(pkt.ICMP6).SetNum(pkt.Type, echo6)
	default:
		p = pkt.New(pkt.ICMP).SetNum(pkt.Type, echo4)
	}
	return p.SetSrc(src).SetDst(dst)
}

func (g *generator) fromEndpoint() {
	conns := g.m.conns()
	if len(conns) == 0 {
		return
	}
	c := conns[g.IntN(len(conns))]
	link := linkOf(c.endpoint.addr.Addr())
	p := g.packet(c.proto, c.to, c.source, 0, 129)
	if c.proto == lb.TCP {
		g.segment(p, c, fromEndpoint)
	}
	if g.IntN(20) == 0 { // of no connection
		setPort(p, 5000)
		g.send(link, p, nil)
		return
	}
	setPort(p, c.source.Port())
	g.send(link, p, &tuple{c.proto, c.client, c.vip})
}

// segment generates a segment that fits the connection, or nearly.
func (g *generator) segment(p *pkt.Packet, c *connection, dir direction) {
	own, other := c.sides[dir], c.sides[1-dir]
	flags, seq, ack := uint64(pkt.FlagACK), own.end, other.end
	switch r := g.IntN(20); {
	case !c.replied && dir == fromEndpoint && r < 14:
		flags, seq = pkt.FlagSYN|pkt.FlagACK, g.Uint32()
	case !c.replied && dir == fromClient && r < 8, r == 0:
		flags, seq, ack = pkt.FlagSYN, own.end-1, 0
	case r < 5:
		flags |= pkt.FlagFIN
	case r < 7:
		flags = pkt.FlagRST | pkt.FlagACK*uint64(g.IntN(2))
	case r == 7:
		flags = uint64(g.IntN(64))
	default:
		p.SetNum(pkt.Len, uint64(g.IntN(40)))
	}
	if dir == fromEndpoint && flags&pkt.FlagRST != 0 && !c.replied && g.IntN(2) == 0 {
		flags |= pkt.FlagACK
	}
	if dir == fromEndpoint && c.redialled && g.IntN(3) == 0 {
		flags, seq, ack = pkt.FlagSYN|pkt.FlagACK, g.Uint32(), c.redial
	}
	switch g.IntN(16) {
	case 0:
		seq += uint32(g.IntN(200)) - 100
	case 1:
		seq = g.Uint32()
	case 2:
		ack += uint32(g.IntN(20)) - 10
	case 3:
		ack = own.acked
	case 4, 5:
		if c.oneWay { // near the numbers at which a RST or a SYN counts
			seq = own.end + uint32(g.IntN(4)) - 2
		}
	case 6: // near the numbers that continue the connection
		seq = own.end + window + uint32(g.IntN(80)) - 40
	case 7:
		ack = own.acked + window + uint32(g.IntN(3)) - 1
	case 8:
		seq, ack = own.end+window/2, own.acked+window/2
	case 9: // in flight
		seq = other.acked + uint32(g.IntN(50))
	}
	p.SetNum(pkt.Flags, flags).SetNum(pkt.Seq, uint64(seq)).SetNum(pkt.Ack, uint64(ack))
}

// send adds a packet that arrives at a link. A few packets have unusual fields.
func (g *generator) send(link string, p *pkt.Packet, of *tuple) {
	if p.Proto != pkt.TCP {
		p.SetNum(pkt.Len, uint64(g.IntN(60)))
	}
	switch g.IntN(30) {
	case 0:
		if link == "client" {
			p.SetNum(pkt.TTL, uint64(g.IntN(3)))
		}
	case 1:
		p.SetNum(pkt.TOS, uint64(g.IntN(256)))
	case 2:
		p.Set(pkt.Sum, pkt.Value{Text: "bad"})
	case 3:
		if p.Is6() {
			p.Set(pkt.Ext, pkt.Value{Text: "dst"})
		} else {
			p.Set(pkt.IPOptions, pkt.Value{Text: "\x94\x04\x00\x00"})
		}
	case 4: // a priority tag, which changes nothing
		p.Set(pkt.VLAN, pkt.Value{Text: []string{"0.3", "ad:0"}[g.IntN(2)]})
	}
	g.do(Op{Link: link, Packet: p, Of: of})
}

// linkOf returns the interface that leads to an address.
func linkOf(a netip.Addr) string {
	for _, net := range []string{"192.168.1.0/24", "2001:db8:2::/64"} {
		if netip.MustParsePrefix(net).Contains(a) {
			return "server"
		}
	}
	return "client"
}
