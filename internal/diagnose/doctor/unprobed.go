package doctor

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// minUnansweredSYNs is after how many unanswered SYNs an endpoint that answers this machine is
// reported.
const minUnansweredSYNs = 3

// unprobed connects to endpoints of which nobody asks how they are.
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

// Connect opens a connection, and ends it by a RST. Errors are short.
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
