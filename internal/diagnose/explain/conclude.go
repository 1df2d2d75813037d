package explain

import (
	"fmt"
	"strings"

	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// conclude returns the outcome of the packet.
func (i *inquiry) conclude(r *dryrun.Result, s *lb.Service) *Answer {
	a := &i.answer
	why := reasonFor(r.Reason, s)
	if r.Entry != nil && isPathReason(r.Reason) {
		why.Remedy = strings.ReplaceAll(why.Remedy, "ADDRESS", recipient(r.Entry).String())
	}
	a.Reason = r.Reason
	if r.Reason != "" {
		a.Hint = why.Remedy
		text := r.Reason
		if r.Outcome != dryrun.Answers && r.Outcome != dryrun.Drops { // the verdicts of answers and drops contain the meaning
			text += ": " + why.Meaning
		}
		a.add("program", Failed, "%s", text)
	}
	switch r.Outcome {
	case dryrun.Forwards:
		return i.forwarded(r)
	case dryrun.Delivers:
		return a.end(Local, "delivered: to a socket of this machine, as %s", r.Entry.Target)
	case dryrun.Answers:
		return a.end(Refused, "refused: %s; the sender gets %s", why.Meaning, answerOf(r.Frame))
	case dryrun.Drops:
		if r.Reason == "" {
			return a.end(Dropped, "consumed: it answers a challenge, so its sender is known now")
		}
		return a.end(Dropped, "dropped silently: %s", why.Meaning)
	case dryrun.Challenges:
		return a.end(Challenged, "challenged: the client gets a SYN+ACK with a special number; once it answers with a RST, it is known and its next SYN opens the connection")
	case dryrun.Redirects:
		return a.end(Redirected, "redirected unchanged by a firewall rule")
	}
	return i.passed(r, s)
}

func (i *inquiry) forwarded(r *dryrun.Result) *Answer {
	a, what := &i.answer, "forwarded: it opens a connection"
	if r.Existing && !r.Ended {
		what = "forwarded: it belongs to a connection"
	}
	for _, s := range a.Steps {
		if s.Stage == "way" && s.State == Failed {
			return a.end(Forwarded, "%s to %s, but does not arrive: %s", what, r.Entry.Target, s.Text)
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
			return a.end(Forwarded, "%s, to %s, where many are not answered (see above)", what, to)
		}
	}
	return a.end(Forwarded, "%s, to %s", what, to)
}

// passed explains why the packet is left to the kernel.
func (i *inquiry) passed(r *dryrun.Result, s *lb.Service) *Answer {
	a := &i.answer
	switch {
	case r.HasRule && s == nil:
		a.end(Kernel, "left to the kernel: by a firewall rule, or because the packet matches no service")
	case s != nil:
		a.end(Kernel, "left to the kernel: the service refuses it with --refuse=pass")
	default:
		a.end(Kernel, "left to the kernel: it matches no service and no connection")
	}
	if filter := i.Network.ReversePathFilter(i.in.Name); filter == 1 && i.From.Addr().Is4() {
		if route, err := i.Network.RouteTo(i.ctx, i.From.Addr()); err == nil && route.Missing == nil && route.Link.Index != i.in.Index {
			a.add("kernel", Warning, "rp_filter of %s is 1, and the route back to %s uses %s: the kernel drops it", i.in.Name, i.From.Addr(), route.Link.Name)
		}
	}
	return a
}

// answerOf describes the answer to the sender.
func answerOf(frame []byte) string {
	p := pkt.Decode(frame)
	switch p.Proto {
	case pkt.TCP:
		return "a RST"
	case pkt.ICMP, pkt.ICMP6:
		text := "an ICMP error"
		if mtu := p.Num(pkt.MTU); mtu > 0 {
			text = fmt.Sprintf("an ICMP error with MTU %d", mtu)
		}
		return text
	}
	return "an answer"
}
