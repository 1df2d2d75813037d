package doctor

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// maxListed bounds the endpoints listed individually.
const maxListed = 8

// lookThere is the remedy of findings whose cause can only be found on the endpoint.
const lookThere = "check on the endpoint: ss -lntuS; nft list ruleset; ip route get CLIENT; tcpdump, whether packets come in and answers leave"

// endpoints reports endpoints that are down, with the result of a ping.
func endpoints(m *Machine) ([]Finding, error) {
	down := slices.Clone(m.Facts.Down)
	slices.SortStableFunc(down, func(a, b Down) int { return a.At.Compare(b.At) })
	down = slices.CompactFunc(down, func(a, b Down) bool { return a.At == b.At }) // the endpoint has two probes
	out, err := eachOf(down[:min(len(down), maxListed)], func(d Down) (f *Finding, err error) {
		at := d.At.String()
		if d.At.Port() == 0 {
			at = d.At.Addr().String()
		}
		f = &Finding{About: at, Sure: Certain, What: fmt.Sprintf("endpoint %s is down: %s", at, d.Evidence)}
		if m.hasNoRoute(d.At.Addr()) {
			f.Why, f.Command = "this machine has no usable route to it", "ip route get "+d.At.Addr().String()
			return f, nil
		}
		f.Command = lookThere
		f.Why, err = m.whyNot(d.At.Addr(), d.Evidence)
		return f, err
	})
	if n := len(down) - maxListed; n > 0 {
		out = append(out, Finding{
			About: "others", Sure: Certain, What: fmt.Sprintf("%d more endpoints are down", n), Why: "they receive no new connections", Command: "loxicmd get endpoint",
		})
	}
	return out, err
}

// eachOf calls look for many elements concurrently, and returns the findings in order.
func eachOf[T any](list []T, look func(T) (*Finding, error)) (out []Finding, err error) {
	type result struct {
		f   *Finding
		err error
	}
	results, places := make([]result, len(list)), make([]int, len(list))
	for i := range places {
		places[i] = i
	}
	pingEach(places, func(i int) { results[i].f, results[i].err = look(list[i]) })
	for _, r := range results {
		if err = errors.Join(err, r.err); r.f != nil {
			out = append(out, *r.f)
		}
	}
	return out, err
}

// whyNot returns the possible causes of a probe's result. It pings the endpoint to distinguish
// them.
func (m *Machine) whyNot(a netip.Addr, seen string) (string, error) {
	if strings.Contains(seen, syscall.ECONNREFUSED.Error()) {
		return "its machine refuses connections: nothing listens on that port, or a firewall rejects them", nil
	}
	if strings.Contains(seen, "has no SCTP") { // as the probe reports it
		return "its kernel lacks SCTP, or a server for it: load the module there (modprobe sctp)", nil
	}
	answered, err := m.Network.Ping(a, smallPing, smallPing)
	switch {
	case err != nil:
		return "it receives no new connections", err
	case slices.Contains(answered, true):
		return "it answers ping, so its machine and the routes are up: a firewall drops that port, or its server hangs or fails", nil
	}
	text := "it does not answer ping either: its machine is off, its route back to this machine is wrong (check its gateway), or a firewall on the path drops everything"
	if m.isAwake(a) {
		text = "it answers ARP or neighbour discovery, but not ping: its machine is on, so a firewall there drops everything, or its address or netmask is wrong"
	}
	return text, nil
}

// hasNoRoute reports whether the kernel has no route to an address, or one that refuses packets.
func (m *Machine) hasNoRoute(a netip.Addr) bool {
	_, err := m.Network.Route(a)
	var no syscall.Errno
	return errors.As(err, &no)
}

// isAwake reports whether an address on the same link has a known MAC address.
func (m *Machine) isAwake(a netip.Addr) bool {
	if route, err := m.Network.Route(a); err != nil || route.Via.IsValid() {
		return false
	}
	list, _ := m.Network.Neighbours()
	return slices.ContainsFunc(list, func(n Neighbour) bool { return n.Addr == a && n.Valid && !n.Failed })
}

// minUnansweredSYNs is the number of unanswered SYNs after which an endpoint that answers this
// machine is reported.
const minUnansweredSYNs = 3

// unprobed connects to endpoints without a probe.
func unprobed(m *Machine) ([]Finding, error) {
	of := map[netip.AddrPort]Unprobed{} // of all services together
	for _, u := range m.Facts.Unprobed {
		of[u.At] = Unprobed{u.At, of[u.At].SYNs + u.SYNs, of[u.At].Answered + u.Answered}
	}
	list := slices.SortedFunc(maps.Values(of), func(a, b Unprobed) int { return a.At.Compare(b.At) })
	out, err := eachOf(list, m.checkUnprobed)
	if n := len(out) - maxListed; n > 0 {
		out = append(out[:maxListed:maxListed], Finding{
			About: "others", Sure: Likely, What: fmt.Sprintf("%d more endpoints have the same problem", n), Why: "connections to them fail", Command: "run loxicmd doctor again after fixing those",
		})
	}
	return out, err
}

func (m *Machine) checkUnprobed(u Unprobed) (*Finding, error) {
	f := &Finding{About: u.At.String(), Sure: Likely}
	refusal := m.Network.Connect(u.At)
	switch {
	case refusal != nil:
		why, err := m.whyNot(u.At.Addr(), refusal.Error())
		f.What, f.Why, f.Command = fmt.Sprintf("endpoint %s does not accept connections of this machine: %v", u.At, refusal), why, lookThere
		return f, err
	case u.SYNs >= minUnansweredSYNs && u.Answered == 0:
		f.What = fmt.Sprintf("endpoint %s answers this machine, but none of %d SYNs of clients", u.At, u.SYNs)
		f.Why = "its answers to clients bypass this machine, or its firewall refuses clients"
		f.Command = fmt.Sprintf("check its route on %s: ip route get CLIENT; it must lead through this machine, or set --mode=onearm or fullnat", u.At.Addr())
		return f, nil
	}
	return nil, nil
}

// Connect opens a connection, and ends it by a RST.
func (kernelNetwork) Connect(at netip.AddrPort) error {
	c, err := net.DialTimeout("tcp", at.String(), patience)
	var (
		errno   syscall.Errno
		timeout net.Error
	)
	switch {
	case err == nil:
		return errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close())
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer within %v", patience)
	}
	return err
}

// Unserved is a service without an endpoint that gets new connections and is not known to be down.
type Unserved struct {
	Service   string
	State     string
	Endpoints string // numbers by state: "1 down, 2 drained"
	Receiving bool   // clients are sent to endpoints that are down
	Drained   bool   // an endpoint is drained, by a drain or by weight 0
}

// objects lists objects that could not be applied.
func objects(m *Machine) (out []Finding, _ error) {
	list := m.Facts.Failed
	for _, o := range list[:min(len(list), maxListed)] {
		out = append(out, Finding{
			About: o.About, Sure: Certain, What: fmt.Sprintf("%s is not applied: %s", o.About, o.What), Why: "the previous version stays in effect, if there is one", Command: o.Hint,
		})
	}
	if n := len(list) - maxListed; n > 0 {
		out = append(out, Finding{
			About: "others", Sure: Certain, What: fmt.Sprintf("%d more objects are not applied", n), Why: "they have no effect, or their previous one", Command: "loxicmd get status --failed",
		})
	}
	return out, nil
}

// services lists services that serve no clients.
func services(m *Machine) (out []Finding, _ error) {
	list := m.Facts.Unserved
	for _, u := range list[:min(len(list), maxListed)] {
		f := Finding{
			About: u.Service, Sure: Certain, What: fmt.Sprintf("service %s is %s: %s", u.Service, u.State, u.Endpoints),
			Why:     "no endpoint is available, so the service refuses all new clients",
			Command: "loxicmd describe lb " + u.Service + " shows why; repair an endpoint, or add one",
		}
		if u.Receiving {
			f.Why = "all endpoints that receive new connections are down, so most clients fail"
		}
		if u.Drained {
			f.Command = "loxicmd undrain endpoint IP:PORT (see: loxicmd get drain), raise a weight 0, or add an endpoint"
		}
		out = append(out, f)
	}
	if n := len(list) - maxListed; n > 0 {
		out = append(out, Finding{
			About: "others", Sure: Certain, What: fmt.Sprintf("%d more services serve no clients", n), Why: "their new clients are refused",
			Command: "loxicmd get lb",
		})
	}
	return out, nil
}
