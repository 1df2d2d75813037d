package probe

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"loxilb/internal/lb"
)

// serveDNS runs a DNS server. f gets the correct answer to a query, and returns the datagrams that
// the server sends instead.
func serveDNS(t *testing.T, loopback netip.Addr, f func(m *dns.Msg) [][]byte) netip.AddrPort {
	t.Helper()
	return serveDatagrams(t, loopback, func(question []byte) [][]byte {
		q := new(dns.Msg)
		if err := q.Unpack(question); err != nil {
			t.Errorf("no query: %v", err)
			return nil
		}
		m := new(dns.Msg).SetReply(q)
		head := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET, Ttl: 1}
		switch {
		case q.Question[0].Name != "www.example.com.":
			m.Rcode = dns.RcodeNameError
		case head.Rrtype == dns.TypeA:
			m.Answer = []dns.RR{&dns.A{Hdr: head, A: net.IPv4(192, 0, 2, 1)}, &dns.A{Hdr: head, A: net.IPv4(192, 0, 2, 2)}}
		case head.Rrtype == dns.TypeAAAA:
			m.Answer = []dns.RR{&dns.AAAA{Hdr: head, AAAA: net.ParseIP("2001:db8::1")}}
		}
		return f(m)
	})
}

func packed(t *testing.T, m *dns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return b
}

// TestDNS checks queries for names, with and without an expected address of either IP version.
func TestDNS(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		server := serveDNS(t, loopback, func(m *dns.Msg) [][]byte { return [][]byte{packed(t, m)} })
		for _, c := range []struct{ name, response, want string }{
			{"www.example.com", "", ""},
			{"www.example.com.", "192.0.2.2", ""},
			{"www.example.com", "2001:db8::1", ""},
			{"www.example.com", "192.0.2.3", "the answer for www.example.com. does not contain 192.0.2.3"},
			{"www.example.com", "2001:db8::2", "the answer for www.example.com. does not contain 2001:db8::2"},
			{"www.example.net", "", "answered NXDOMAIN for www.example.net."},
		} {
			spec := Spec{To: server, Probe: lb.Probe{Type: lb.ProbeDNS, Request: c.name, Response: c.response}}
			if c.want == "" {
				wantAnswer(t, spec, "answered")
			} else {
				wantError(t, spec, c.want)
			}
		}
		spec := Spec{To: closedPort(loopback), Probe: lb.Probe{Type: lb.ProbeDNS, Request: "www.example.com"}}
		wantError(t, spec, "connection refused")
	})
}

// TestDNSStrangers checks that answers to other queries, and invalid ones, are ignored.
func TestDNSStrangers(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		strange := func(m *dns.Msg) (out [][]byte) {
			for _, change := range []func(*dns.Msg){
				func(m *dns.Msg) { m.Id++ },
				func(m *dns.Msg) { m.Response = false },
				func(m *dns.Msg) { m.Question[0].Name = "other.example.com." },
				func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeMX },
				func(m *dns.Msg) { m.Question = nil },
			} {
				other := m.Copy()
				change(other)
				out = append(out, packed(t, other))
			}
			return append(out, nil, []byte("x"), packed(t, m)[:20])
		}
		spec := Spec{Probe: lb.Probe{Type: lb.ProbeDNS, Request: "www.example.com", Timeout: 500 * time.Millisecond}}
		spec.To = serveDNS(t, loopback, strange)
		wantError(t, spec, "no answer within 500ms")
		spec.To = serveDNS(t, loopback, func(m *dns.Msg) [][]byte { return append(strange(m), packed(t, m)) })
		wantAnswer(t, spec, "answered")
	})
}
