package metrics

import (
	"net/netip"
	"strconv"
	"time"

	"loxilb/internal/lb"
)

// handshakeFamilies are of endpoints that had handshakes: eighteen series for each.
func handshakeFamilies(jiffy time.Duration) []family {
	return []family{
		{"loxilb_endpoint_handshakes_total", "counter", "TCP handshakes with the endpoint: SYNs of new connections (opened), what came back (answered, refused by a RST, " +
			"unreachable by ICMP), SYNs that came again before an answer (repeated), connections that the endpoint reset before it sent data (reset).", handshakeLines},
		{"loxilb_endpoint_handshake_seconds", "histogram", "Time from the first SYN of a connection to the endpoint's SYN+ACK, to one tick of the kernel's clock. There is no sum.",
			func(b []byte, name string, r *row) []byte { return histogramLines(b, name, r, jiffy) }},
	}
}

// shaken calls f for each endpoint that had handshakes.
func (r *row) shaken(f func(at netip.AddrPort, h *lb.Handshakes)) {
	for i := range min(len(r.endpoints), len(r.stats.Endpoints)) {
		if h := &r.stats.Endpoints[i].Handshakes; h.Opened > 0 {
			f(r.endpoints[i].AddrPort(), h)
		}
	}
}

func handshakeLines(b []byte, name string, r *row) []byte {
	r.shaken(func(at netip.AddrPort, h *lb.Handshakes) {
		for _, event := range [...]struct {
			label string
			n     uint64
		}{
			{`,event="opened"`, h.Opened},
			{`,event="answered"`, h.AllAnswered()},
			{`,event="refused"`, h.Refused},
			{`,event="unreachable"`, h.Unreachable},
			{`,event="repeated"`, h.Repeated},
			{`,event="reset"`, h.Reset},
		} {
			b = line(b, name, r.labels, at, event.label, event.n)
		}
	})
	return b
}

func histogramLines(b []byte, name string, r *row, jiffy time.Duration) []byte {
	r.shaken(func(at netip.AddrPort, h *lb.Handshakes) {
		var sum uint64
		for i, n := range h.Answered {
			sum += n
			bound := "+Inf"
			if i < len(h.Answered)-1 {
				bound = strconv.FormatFloat(lb.HandshakeBound(i, jiffy).Seconds(), 'g', -1, 64)
			}
			b = line(b, name+"_bucket", r.labels, at, `,le="`+bound+`"`, sum)
		}
		b = line(b, name+"_count", r.labels, at, "", sum)
	})
	return b
}
