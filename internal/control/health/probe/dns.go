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

// dnsProber probes by DNS: it queries a server by UDP for the address of a name. It queries for an
// IPv6 address if the expected response is one.
type dnsProber struct{ spec Spec }

func (n dnsProber) Probe(ctx context.Context) (Answer, error) {
	want, _ := netip.ParseAddr(n.spec.Probe.Response)
	kind := dns.TypeA
	if want.Is6() {
		kind = dns.TypeAAAA
	}
	query := new(dns.Msg)
	query.SetQuestion(dns.Fqdn(n.spec.Probe.Request), kind)
	start := time.Now()
	c, err := dial(ctx, "udp", n.spec)
	if err != nil {
		return Answer{}, shorten(n.spec, err)
	}
	defer c.Close()
	defer interrupt(ctx, c)()
	answer, err := exchange(&dns.Conn{Conn: c, UDPSize: chunk}, query)
	if err != nil {
		return Answer{}, shorten(n.spec, err)
	}
	a := Answer{What: "answered", Delay: time.Since(start)}
	switch {
	case answer.Rcode != dns.RcodeSuccess:
		return Answer{}, fmt.Errorf("answered %s for %s", dns.RcodeToString[answer.Rcode], query.Question[0].Name)
	case n.spec.Probe.Response != "" && !addressIn(answer.Answer, want):
		return Answer{}, fmt.Errorf("the answer for %s does not contain %s", query.Question[0].Name, n.spec.Probe.Response)
	}
	return a, nil
}

// exchange sends a query, and waits for the answer. It ignores invalid answers, and answers to
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

// sameQuestion reports whether a message repeats the question of the query. A server that refuses a
// query may omit it.
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
