package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// name asks a DNS server by UDP for the address of a name: an IPv6 address if the expected answer
// is one.
type name struct{ q Question }

func (n name) Probe(ctx context.Context) (Answer, error) {
	want, _ := netip.ParseAddr(n.q.Probe.Response)
	kind := dns.TypeA
	if want.Is6() {
		kind = dns.TypeAAAA
	}
	query := new(dns.Msg)
	query.SetQuestion(dns.Fqdn(n.q.Probe.Request), kind)
	start := time.Now()
	c, err := dial(ctx, "udp", n.q)
	if err != nil {
		return Answer{}, shorten(n.q, err)
	}
	defer c.Close()
	defer interrupt(ctx, c)()
	answer, err := exchange(&dns.Conn{Conn: c, UDPSize: chunk}, query)
	if err != nil {
		return Answer{}, shorten(n.q, err)
	}
	a := Answer{What: "answered", Delay: time.Since(start)}
	switch {
	case answer.Rcode != dns.RcodeSuccess:
		return Answer{}, fmt.Errorf("answered %s for %s", dns.RcodeToString[answer.Rcode], query.Question[0].Name)
	case n.q.Probe.Response != "" && !addressIn(answer.Answer, want):
		return Answer{}, fmt.Errorf("the answer for %s has no %s in it", query.Question[0].Name, n.q.Probe.Response)
	}
	return a, nil
}

// exchange sends the query, and waits for its answer. It ignores invalid answers, and answers to
// other queries.
func exchange(c *dns.Conn, query *dns.Msg) (*dns.Msg, error) {
	if err := c.WriteMsg(query); err != nil {
		return nil, err
	}
	for {
		m, err := c.ReadMsg()
		var network net.Error
		switch {
		case errors.As(err, &network):
			return nil, err
		case err == nil && m.Id == query.Id && m.Response && sameQuestion(m, query):
			return m, nil
		}
	}
}

// sameQuestion reports whether a message repeats the query's. A server that refuses a query need
// not.
func sameQuestion(m, query *dns.Msg) bool {
	if len(m.Question) == 0 {
		return m.Rcode != dns.RcodeSuccess
	}
	a, b := m.Question[0], query.Question[0]
	return len(m.Question) == 1 && strings.EqualFold(a.Name, b.Name) && a.Qtype == b.Qtype && a.Qclass == b.Qclass
}

func addressIn(records []dns.RR, want netip.Addr) bool {
	for _, r := range records {
		var ip net.IP
		switch r := r.(type) {
		case *dns.A:
			ip = r.A
		case *dns.AAAA:
			ip = r.AAAA
		}
		if a, ok := netip.AddrFromSlice(ip); ok && a.Unmap() == want.Unmap() {
			return true
		}
	}
	return false
}
