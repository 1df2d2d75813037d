package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"loxilb/internal/control/servicestate"
	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/lb"
)

// maxPaths bounds the services explained for an endpoint.
const maxPaths = 32

// maxTries is the number of source ports tried until a hash, or chance, chooses the endpoint.
const maxTries = 512

// reach returns the services through which a client reaches an endpoint, and why others do not
// reach it.
func (i *inquiry) reach() (*Answer, error) {
	out := &Answer{Question: fmt.Sprintf("does %s reach the endpoint %s?", i.From.Addr(), text(i.To)), Endpoint: i.To}
	found, reached := 0, 0
	for s := range i.services.All() {
		if i.Reverse && i.Protocol != 0 && s.Protocol != i.Protocol {
			continue
		}
		for _, e := range s.Endpoints {
			if !isAt(&e, i.To) || s.VIP.Is4() != i.From.Addr().Is4() || s.VIP.IsUnspecified() {
				continue
			}
			if found++; found > maxPaths {
				break
			}
			path, err := i.path(s, e)
			if err != nil {
				return nil, err
			}
			if path.arrives() {
				reached++
			}
			out.Paths = append(out.Paths, *path)
		}
	}
	switch {
	case found == 0:
		return nil, lb.NewFieldError("endpoint", text(i.To), "is not an endpoint of a service of this IP version", "an endpoint of loxicmd get lb -o wide")
	case found > maxPaths:
		out.add("service", Warning, "%d services have the endpoint: only the first %d are shown", found, maxPaths)
	}
	if reached == 0 {
		return out.end(Unreached, "%s does not reach %s: by none of %s", i.From.Addr(), text(i.To), plural(found, "service")), nil
	}
	return out.end(Reached, "%s reaches %s by %d of %s, as far as this machine can tell", i.From.Addr(), text(i.To), reached, plural(found, "service")), nil
}

// text returns an address, and the port if there is one.
func text(at netip.AddrPort) string {
	if at.Port() == 0 {
		return at.Addr().String()
	}
	return at.String()
}

// path explains a packet of the client to a service, towards one of its endpoints.
func (i *inquiry) path(s lb.Service, e lb.Endpoint) (*Answer, error) {
	one := &inquiry{Explainer: i.Explainer, ctx: i.ctx, now: i.now, services: i.services, Question: Question{
		From: i.From, To: netip.AddrPortFrom(s.VIP, s.Port), Protocol: s.Protocol, Interface: i.Interface, Mark: s.Mark, Length: i.Length,
	}}
	if done, err := one.findArrival(); done || err != nil {
		return &one.answer, err
	}
	a := &one.answer
	a.Service, a.Endpoint = s.Key.String(), e.AddrPort()
	states, endpoints := i.states(&s)
	for n := range s.Endpoints {
		if s.Endpoints[n] == e && states.State != servicestate.Pending && !endpoints[n].Available {
			why := i.ineligibleReason(&s, n, endpoints[n])
			a.add("service", OK, "%s, mode %s, state %s", s.Key, s.Mode, states.State)
			a.add("endpoint", Failed, "%s is not available: %s", e.AddrPort(), why)
			return a.end(Dropped, "does not arrive: %s is not available: %s", e.AddrPort(), why), nil
		}
	}
	r, tries, err := one.findPort(&s, e)
	if err != nil {
		return nil, err
	}
	if tries > 1 {
		a.add("endpoint", OK, "source port %d is the first that leads to it, after %d tries", one.From.Port(), tries)
	}
	got, err := one.describe(r)
	if err != nil {
		return nil, err
	}
	if r.Entry != nil && r.Entry.Endpoint != e.AddrPort() {
		return got.end(Dropped, "does not arrive: the service's algorithm (%[2]s) sent none of %[1]d tried packets there", tries, s.Algorithm), nil
	}
	return got, nil
}

// findPort tries packets of the client until one reaches the endpoint, or none does. The time is
// bounded.
func (i *inquiry) findPort(s *lb.Service, e lb.Endpoint) (r *dryrun.Result, tries int, err error) {
	first := i.From.Port()
	for tries = 1; ; tries++ {
		if err := i.ctx.Err(); err != nil {
			return nil, tries, fmt.Errorf("no source port that leads there was found in time: %w", err)
		}
		if r, err = i.try(e.AddrPort()); err != nil {
			return nil, tries, err
		}
		if r.Opening == nil || !r.Opening.Chosen || r.Opening.Endpoint == e.AddrPort() || tries == maxTries || !s.Protocol.HasPorts() {
			return r, tries, nil
		}
		if !s.Algorithm.VariesByPort() {
			return r, tries, nil
		}
		i.From = netip.AddrPortFrom(i.From.Addr(), portFrom(first, tries))
	}
}

// portFrom returns a port some places after another one, wrapping around to the ports that clients
// choose first.
func portFrom(first uint16, places int) uint16 {
	const lowest, ports = 1024, 1<<16 - 1024
	if at := int(first) + places; at < 1<<16 {
		return uint16(at)
	}
	return uint16(lowest + (int(first)+places-1<<16)%ports)
}

// ownSockets explains why this machine's own connections have no packets to a VIP.
func (i *inquiry) ownSockets() {
	a := &i.answer
	a.Question = i.line() + " from a socket of this machine"
	a.add("interface", OK, "%s is an address of this machine: no interface receives the packet", i.From.Addr())
	s, ok := i.services.Reach(lb.Key{VIP: i.To.Addr(), Port: i.To.Port(), Protocol: i.Protocol})
	switch {
	case !ok:
		a.add("service", Warning, "no service for %s/%s", i.To, i.Protocol)
		a.end(Kernel, "left to the kernel: there is no service")
		return
	case !i.LocalSockets || !i.Protocol.HasSockets():
		a.add("service", Warning, "%s; local sockets are not redirected to endpoints (--localsockpolicy is off, or the protocol is ICMP)", s.Key)
		a.end(Kernel, "left to the kernel: only a program listening on %s on this machine can answer", i.To)
		return
	}
	a.Service = s.Key.String()
	states, _ := i.states(&s)
	a.add("service", OK, "%s, mode %s, state %s", s.Key, s.Mode, states.State)
	eligible, ineligible := i.eligible(&s)
	for _, why := range ineligible {
		a.add("endpoint", Warning, "%s", why)
	}
	if len(eligible) == 0 {
		a.Reason, a.Hint = "no-endpoint", reasonFor("no-endpoint", &s).Remedy
		a.add("endpoint", Failed, "no endpoint is available")
		a.end(Refused, "refused: connect() fails because no endpoint is available")
		return
	}
	names := make([]string, len(eligible))
	for n, e := range eligible {
		names[n] = e.AddrPort().String()
	}
	a.add("endpoint", OK, "one of %d, chosen by %s when the socket connects or first sends: %s", len(eligible), s.Algorithm, firstOf(names))
	a.end(Sockets, "redirected when the socket connects: it talks directly to the endpoint from its own address, and no packet carries the VIP")
}

func firstOf(names []string) string {
	const shown = 5
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}
