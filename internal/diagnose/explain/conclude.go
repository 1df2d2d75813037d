package explain

import (
	"fmt"

	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// conclude says what becomes of the packet.
func (i *inquiry) conclude(r *dryrun.Result, s *lb.Service) *Answer {
	a := &i.answer
	why := reasonFor(r.Reason, s)
	a.Reason = r.Reason
	if r.Reason != "" {
		a.Hint = why.Remedy
		text := r.Reason
		if r.Does != dryrun.Answers && r.Does != dryrun.Drops { // the verdict of these has the meaning
			text += ": " + why.Meaning
		}
		a.add("program", Failed, "%s", text)
	}
	switch r.Does {
	case dryrun.Forwards:
		return i.forwarded(r)
	case dryrun.Delivers:
		return a.end(Local, "delivered: to a socket of this machine, as %s", r.Entry.Target)
	case dryrun.Answers:
		return a.end(Refused, "refused: %s; the sender gets %s", why.Meaning, answerOf(r.Frame))
	case dryrun.Drops:
		if r.Reason == "" {
			return a.end(Dropped, "taken: it answers a challenge, and its sender is known now")
		}
		return a.end(Dropped, "dropped in silence: %s", why.Meaning)
	case dryrun.Challenges:
		return a.end(Challenged, "challenged: the client gets a SYN+ACK with a number of its own, and is known once it answers that by a RST; then its next SYN opens the connection")
	case dryrun.Redirects:
		return a.end(Redirected, "sent elsewhere, as it is, by a firewall rule")
	}
	return i.passed(r, s)
}

func (i *inquiry) forwarded(r *dryrun.Result) *Answer {
	a, what := &i.answer, "forwarded: it opens a connection"
	if r.Existing && !r.Ended {
		what = "forwarded: it is of a connection"
	}
	for _, s := range a.Steps {
		if s.Stage == "way" && s.State == Failed {
			return a.end(Forwarded, "%s to %s, but does not get there: %s", what, r.Entry.Target, s.Text)
		}
	}
	if r.Entry.Reply {
		return a.end(Forwarded, "forwarded: to the client %s", r.Entry.Target)
	}
	to := r.Entry.Target
	if r.Entry.Direct {
		to = r.Entry.Endpoint
	}
	for _, s := range a.Steps {
		if s.Stage == "answers" && s.State == Warning {
			return a.end(Forwarded, "%s, to %s, where many are not answered, as said above", what, to)
		}
	}
	return a.end(Forwarded, "%s, to %s", what, to)
}

// passed says why the kernel gets the packet.
func (i *inquiry) passed(r *dryrun.Result, s *lb.Service) *Answer {
	a := &i.answer
	switch {
	case r.HasRule && s == nil:
		a.end(Kernel, "left to the kernel: a firewall rule says so, or the packet is of no service")
	case s != nil:
		a.end(Kernel, "left to the kernel: the service does not take it, and leaves what it refuses to the kernel (--refuse=pass)")
	default:
		a.end(Kernel, "left to the kernel: it is of no service and of no connection")
	}
	if filter := i.Network.ReversePathFilter(i.in.Name); filter == 1 && i.From.Addr().Is4() {
		if lead, err := i.Network.Lead(i.ctx, i.From.Addr()); err == nil && lead.Missing == nil && lead.Link.Index != i.in.Index {
			a.add("kernel", Warning, "rp_filter of %s is 1, and the route back to %s leads by %s: the kernel drops it", i.in.Name, i.From.Addr(), lead.Link.Name)
		}
	}
	return a
}

// answerOf names what the sender is told.
func answerOf(frame []byte) string {
	p := pkt.Decode(frame)
	switch p.Proto {
	case pkt.TCP:
		return "a RST"
	case pkt.ICMP, pkt.ICMP6:
		text := "an ICMP error"
		if mtu := p.Num(pkt.MTU); mtu > 0 {
			text = fmt.Sprintf("an ICMP error that names the MTU %d", mtu)
		}
		return text
	}
	return "an answer"
}
