package lab

import (
	"bytes"
	"fmt"
	"net/netip"

	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// dryResult is the result of a packet's dry run; nil: there was none.
type dryResult struct{ *dryrun.Result }

// dryRun makes a dry run of a packet, except for fragments and ICMP other than echo requests: users
// cannot request dry runs of these.
func (l *Lab) dryRun(link *Link, frame []byte) (dryResult, error) {
	packet, ok := dryPacketOf(pkt.Decode(frame))
	// A dry run of SCTP knows only the first path of an association.
	if !l.dry || !ok || packet.Protocol == lb.SCTP && l.Programs().HasPaths() {
		return dryResult{}, nil
	}
	packet.Frame, packet.Ifindex, packet.Mark = frame, link.Index, l.mark
	r, err := l.Datapath.DryRun().Try(packet)
	return dryResult{r}, err
}

// dryPacketOf returns the input of a packet's dry run, and whether users can request this dry run.
func dryPacketOf(p *pkt.Packet) (*dryrun.Packet, bool) {
	const echo, echo6 = 8, 128
	d := &dryrun.Packet{From: p.SrcAddr(), To: p.DstAddr()}
	switch p.Proto {
	case pkt.TCP:
		d.Protocol = lb.TCP
	case pkt.UDP:
		d.Protocol = lb.UDP
	case pkt.SCTP:
		d.Protocol = lb.SCTP
	case pkt.ICMP, pkt.ICMP6:
		d.Protocol = lb.ICMP
		if p.Proto == pkt.ICMP6 {
			d.Protocol = lb.ICMPv6
		}
		d.From = netip.AddrPortFrom(d.From.Addr(), uint16(p.Num(pkt.EchoID)))
		if kind := p.Num(pkt.Type); kind != echo && kind != echo6 {
			return nil, false
		}
	default:
		return nil, false
	}
	return d, !p.Has(pkt.Frag) && !p.Has(pkt.MF) && !p.Has(pkt.Ext) && !p.Has(pkt.GSO) && !p.Has(pkt.VLAN) && d.From.IsValid() && d.To.IsValid()
}

// check returns an error unless the dry run has predicted the result of the packet.
func (f dryResult) check(out testrun.Output) error {
	if f.Result == nil {
		return nil
	}
	want := map[dryrun.Outcome]testrun.Verdict{
		dryrun.Forwards: testrun.Redirect, dryrun.Delivers: testrun.Next, dryrun.Passes: testrun.Next, dryrun.Answers: testrun.Redirect,
		dryrun.Drops: testrun.Shot, dryrun.Challenges: testrun.Redirect, dryrun.Redirects: testrun.Redirect,
	}[f.Outcome]
	if want != out.Verdict || out.Verdict != testrun.Shot && !bytes.Equal(f.Frame, out.Frame) && !f.withoutRandom(f.Frame).Equal(f.withoutRandom(out.Frame)) {
		return fmt.Errorf("the dry run predicts that the program %s the packet, reason %q: %s\nit returned %d: %s", f.Outcome,
			f.Reason, pkt.Decode(f.Frame), out.Verdict, pkt.Decode(out.Frame))
	}
	return nil
}

// checkReason returns an error unless the dry run has predicted the reason of a drop or an answer.
func (f dryResult) checkReason(res Result) error {
	if f.Result == nil || res.Verdict == "pass" || res.Verdict == "out" && res.Reason == "" {
		return nil
	}
	want := f.Reason
	switch {
	case f.Outcome == dryrun.Challenges:
		want = "challenged"
	case f.Outcome == dryrun.Drops && want == "":
		want = "challenge-answered"
	}
	if want != res.Reason {
		return fmt.Errorf("the dry run predicts that the program %s the packet, reason %q, but the reason is %q", f.Outcome, want, res.Reason)
	}
	return nil
}

// withoutRandom returns a packet without random values of the program: a source port, the
// identification of a rewritten packet, and checksums of these.
func (f dryResult) withoutRandom(frame []byte) *pkt.Packet {
	p := pkt.Decode(frame)
	if f.Entry == nil {
		return p
	}
	if f.Entry.SourceIsOurs {
		p.Unset(pkt.SrcPort).Unset(pkt.EchoID).Unset(pkt.Sum).Unset(pkt.CRC)
	}
	if f.Entry.Family {
		p.Unset(pkt.IPID).Unset(pkt.IPSum)
	}
	return p
}
