package explain

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/connections"
	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// inquiry is a question that is being answered, with one state of the store.
type inquiry struct {
	*Explainer
	Question
	ctx      context.Context
	now      *store.Snapshot
	services desired.ServicesAt

	in      netdev.Link // link at which it arrives
	layer3  bool        // without a link-layer header
	tracked *connections.Tracked
	answer  Answer
}

// packet explains the packet.
func (i *inquiry) packet() (*Answer, error) {
	if err := i.checkPacket(); err != nil {
		return nil, err
	}
	done, err := i.findArrival()
	if done || err != nil {
		return &i.answer, err
	}
	r, err := i.try(netip.AddrPort{})
	if err != nil {
		return nil, err
	}
	return i.describe(r)
}

// findArrival finds out where the packet arrives, and whether loxilb sees it there.
func (i *inquiry) findArrival() (done bool, err error) {
	if !i.Protocol.HasPorts() && i.From.Port() == 0 {
		i.From = netip.AddrPortFrom(i.From.Addr(), 1)
	} else if i.From.Port() == 0 {
		i.From = netip.AddrPortFrom(i.From.Addr(), anyPort)
	}
	if i.Protocol.HasPorts() && i.To.Port() == 0 {
		return false, lb.NewFieldError("to", i.To.Addr().String(), "has no port", "IP:PORT")
	}
	route, err := i.Network.RouteTo(i.ctx, i.From.Addr())
	if err != nil {
		return false, fmt.Errorf("look up the route to %s: %w", i.From.Addr(), err)
	}
	if i.Interface == "" && route.Local {
		i.ownSockets()
		return true, nil
	}
	i.in = route.Link
	if i.Interface != "" {
		links := i.Network.Links()
		at := slices.IndexFunc(links, func(l netdev.Link) bool { return l.Name == i.Interface })
		if at < 0 {
			return false, lb.NewFieldError("interface", i.Interface, "is not an interface of this machine", nameList(links))
		}
		i.in = links[at]
	} else if route.Missing != nil {
		return false, lb.NewFieldError("from", i.From.Addr().String(), "has no route, so the receiving interface is unknown", "set interface")
	}
	i.answer.Question = fmt.Sprintf("%s by %s", i.line(), i.in.Name)
	return !i.addArrival(&route), nil
}

func nameList(links []netdev.Link) string {
	names := make([]string, 0, len(links))
	for _, l := range links {
		if !l.Loopback() {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	if len(names) > 10 {
		names = append(names[:10], "...")
	}
	return strings.Join(names, ", ")
}

// checkTunnel refuses a packet of a tunnel to a service that does not balance tunnels.
func (i *inquiry) checkTunnel() error {
	if i.TEID == 0 {
		return nil
	}
	s, _ := i.services.Reach(lb.Key{VIP: i.To.Addr(), Port: i.To.Port(), Protocol: i.Protocol, Mark: i.Mark})
	if s.Algorithm != lb.N3 {
		return lb.NewFieldError("to", i.To.String(), "is not a service with --select=n3, which a tunnel needs", "a VIP of such a service")
	}
	return nil
}

// line returns the packet in the words of packet scripts.
func (i *inquiry) line() string {
	if !i.Protocol.HasPorts() {
		return fmt.Sprintf("%s %s > %s echo", i.Protocol, i.From.Addr(), i.To.Addr())
	}
	if len(i.ConnectionID) > 0 {
		return fmt.Sprintf("%s %s > %s, QUIC connection ID %x", i.Protocol, i.From, i.To, i.ConnectionID)
	}
	if i.TEID != 0 {
		return fmt.Sprintf("%s %s > %s, GTP-U TEID %d", i.Protocol, i.From, i.To, i.TEID)
	}
	return fmt.Sprintf("%s %s > %s", i.Protocol, i.From, i.To)
}

// addArrival adds the interface by which the packet arrives. It reports whether loxilb sees it
// there.
func (i *inquiry) addArrival(route *netdev.HostRoute) bool {
	attached := i.DataPath.Interfaces()
	at := slices.IndexFunc(attached, func(a attach.Interface) bool { return a.Index == i.in.Index })
	why := "the interface of the route to " + i.From.Addr().String()
	if i.Interface != "" {
		why = "as asked"
	}
	names, mode := i.DataPath.XDPInterfaces()
	switch {
	case at < 0:
		i.answer.add("interface", Failed, "received on %s, %s; loxilb is not attached there (see --whitelist and --blacklist)", i.in.Name, why)
		i.answer.end(Kernel, "left to the kernel: loxilb is not attached to %s", i.in.Name)
		return false
	case slices.Contains(names, i.in.Name):
		i.answer.add("interface", OK, "received on %s, %s; XDP (%s) runs before tc there and handles established connections and floods", i.in.Name, why, mode)
	default:
		i.answer.add("interface", OK, "received on %s, %s", i.in.Name, why)
	}
	i.layer3 = attached[at].Layer3
	if !i.in.Running() {
		i.answer.add("interface", Failed, "%s is down or has no carrier: it receives nothing", i.in.Name)
	}
	if i.Interface != "" && route.Missing == nil && !route.Local && route.Link.Index != i.in.Index {
		i.answer.add("interface", Warning, "asymmetric path: the route to %s uses %s, so answers leave there", i.From.Addr(), route.Link.Name)
	}
	return true
}

// protocol returns the packet's protocol: ICMP has one for each IP version.
func (i *inquiry) protocol() lb.Protocol {
	return i.Protocol.ForIPVersion(i.From.Addr().Is6())
}

// ends returns the packet's ends in the data path's form: an echo request's identifier is the
// source port, and the destination port is 0.
func (i *inquiry) ends() (from, to netip.AddrPort) {
	if !i.Protocol.HasPorts() {
		return i.From, netip.AddrPortFrom(i.To.Addr(), 0)
	}
	return i.From, i.To
}

// try runs the program on the packet; prefer: the endpoint that the algorithm chooses, if possible.
func (i *inquiry) try(prefer netip.AddrPort) (*dryrun.Result, error) {
	from, to := i.ends()
	var err error
	if i.tracked, err = i.DataPath.Lookup(i.protocol(), from, to); err != nil {
		return nil, err
	}
	return i.DataPath.DryRun().Try(&dryrun.Packet{
		Frame: i.frame(), Ifindex: i.in.Index, Layer3: i.layer3, Mark: i.Mark, Protocol: i.protocol(), From: from, To: to, Prefer: prefer,
	})
}

// frame builds the packet: the next packet of an existing connection, or one that opens a
// connection.
func (i *inquiry) frame() []byte {
	var p *pkt.Packet
	switch i.protocol() {
	case lb.TCP:
		p = pkt.New(pkt.TCP)
		i.segment(p)
	case lb.UDP:
		p = pkt.New(pkt.UDP)
	case lb.SCTP:
		p = pkt.New(pkt.SCTP)
	case lb.ICMPv6:
		p = pkt.New(pkt.ICMP6).SetNum(pkt.Type, 128).SetNum(pkt.EchoID, uint64(i.From.Port()))
	default:
		p = pkt.New(pkt.ICMP).SetNum(pkt.Type, 8).SetNum(pkt.EchoID, uint64(i.From.Port()))
	}
	p.SetSrc(i.From).SetDst(i.To).SetNum(pkt.TTL, 64).Set(pkt.To, pkt.MAC(mac(i.in.MAC)))
	if i.From.Addr().Is4() {
		p.SetNum(pkt.DF, 0)
	}
	if p.Proto == pkt.SCTP {
		i.chunk(p)
	} else if len(i.ConnectionID) > 0 {
		i.shortHeader(p)
	} else if bare := len(p.BuildIP()); i.Length > bare {
		p.SetNum(pkt.Len, uint64(i.Length-bare)+p.Num(pkt.Len))
	}
	return p.Build()
}

func mac(a net.HardwareAddr) net.HardwareAddr {
	if len(a) != 6 {
		return make(net.HardwareAddr, 6)
	}
	return a
}

// segment fills in the next segment of TCP.
func (i *inquiry) segment(p *pkt.Packet) {
	t := i.tracked
	switch {
	case t == nil:
		p.SetNum(pkt.Flags, pkt.FlagSYN).SetNum(pkt.Seq, 1000)
	case t.State == "closed" && !t.Reply:
		p.SetNum(pkt.Flags, pkt.FlagSYN).SetNum(pkt.Seq, uint64(t.Seq+1<<20))
	case t.State == "sync-sent" && !t.Reply:
		p.SetNum(pkt.Flags, pkt.FlagSYN).SetNum(pkt.Seq, uint64(t.Seq-1))
	case t.State == "sync-sent":
		p.SetNum(pkt.Flags, pkt.FlagSYN|pkt.FlagACK).SetNum(pkt.Seq, 1000).SetNum(pkt.Ack, uint64(t.Ack))
	default:
		p.SetNum(pkt.Flags, pkt.FlagACK).SetNum(pkt.Seq, uint64(t.Seq)).SetNum(pkt.Ack, uint64(t.Ack))
	}
}

// shortHeader fills in a packet of QUIC with the connection ID, as it comes from a client's new
// address. Packet number and content follow, encrypted.
func (i *inquiry) shortHeader(p *pkt.Packet) {
	const form, content = 0x40, 20 // the fixed bit (RFC 9000 section 17.3.1); the least that is protected
	data := append([]byte{form}, i.ConnectionID...)
	data = append(data, make([]byte, max(content, i.Length-len(p.BuildIP())-len(data)))...)
	p.Set(pkt.Data, pkt.Value{Text: string(data)})
}

// chunk fills in the next chunk of SCTP: INIT, or a HEARTBEAT with the tag of the association.
func (i *inquiry) chunk(p *pkt.Packet) {
	ended := func(state string) bool { return state == "abort" || state == "shut-complete" }
	if t := i.tracked; t != nil && t.State != "init" && !ended(t.State) {
		const informationOf = 12
		p.SetNum(pkt.Tag, uint64(t.Tag)).Set(pkt.Chunks, pkt.Value{Text: fmt.Sprintf("heartbeat:%d", max(informationOf, i.Length-chunkOverhead(p)))})
		return
	}
	p.Set(pkt.Chunks, pkt.Value{Text: "init=1"})
}

// chunkOverhead returns the length of a packet with an empty chunk.
func chunkOverhead(p *pkt.Packet) int {
	const chunkHeader = 4
	return len(p.BuildIP()) + chunkHeader
}
