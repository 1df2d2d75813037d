package traffic

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// traceQuery is a request to trace packets.
type traceQuery struct {
	filter  report.TraceFilter
	count   int
	lasts   time.Duration
	payload bool
}

func (a *API) newTraceQuery(params *v1.TracePacketsParams) (*traceQuery, *rest.Problem) {
	q := &traceQuery{payload: params.Payload}
	for _, take := range []func(*v1.TracePacketsParams) *rest.Problem{q.setHost, q.setVIP, q.setProtocol, q.setOutcome, q.setBounds} {
		if no := take(params); no != nil {
			return nil, no
		}
	}
	if no := a.setService(q, params.Service); no != nil {
		return nil, no
	}
	if no := a.setInterface(q, params.Interface); no != nil {
		return nil, no
	}
	return q, nil
}

func (q *traceQuery) setHost(params *v1.TracePacketsParams) *rest.Problem {
	if params.Host != "" {
		p, err := netip.ParsePrefix(params.Host)
		if err != nil {
			var host netip.Addr
			host, err = netip.ParseAddr(params.Host)
			p = netip.PrefixFrom(host.WithZone(""), host.BitLen())
		}
		if err != nil || !p.IsValid() || p.Addr().Is4In6() {
			return rest.Invalid("host", params.Host, "is neither an address nor a prefix", "IP or IP/LENGTH")
		}
		q.filter.Host = p
	}
	if params.Port < 0 || params.Port > math.MaxUint16 {
		return rest.Invalid("port", strconv.Itoa(params.Port), "is out of range", "1 to 65535")
	}
	q.filter.Port = uint16(params.Port)
	return nil
}

// setVIP takes IP or IP:PORT.
func (q *traceQuery) setVIP(params *v1.TracePacketsParams) *rest.Problem {
	if params.Vip == "" {
		return nil
	}
	vip, err := netip.ParseAddr(params.Vip)
	if err != nil {
		var at netip.AddrPort
		if at, err = netip.ParseAddrPort(params.Vip); err == nil {
			vip, q.filter.VIPPorts = at.Addr(), [2]uint16{at.Port(), at.Port()}
		}
	}
	if err != nil || vip.Zone() != "" || vip.Is4In6() {
		return rest.Invalid("vip", params.Vip, "is neither an address nor an address with a port", "IP or IP:PORT, with IPv6 in brackets, as in [2001:db8::1]:80")
	}
	q.filter.VIP = vip
	return nil
}

func (q *traceQuery) setProtocol(params *v1.TracePacketsParams) *rest.Problem {
	if params.Protocol == "" {
		return nil
	}
	p, err := lb.ParseProtocol(params.Protocol)
	if n, number := strconv.ParseUint(params.Protocol, 10, 8); number == nil {
		p, err = lb.Protocol(n), nil
	}
	if err != nil {
		return rest.Invalid("protocol", params.Protocol, "is not known", "tcp, udp, sctp, icmp, or a number of IANA's")
	}
	q.filter.Protocol = p
	return nil
}

func (q *traceQuery) setOutcome(params *v1.TracePacketsParams) *rest.Problem {
	q.filter.Verdict, q.filter.Reason = report.TraceVerdict(params.Verdict), params.Reason
	if params.Verdict == "" || q.filter.Verdict.Known() {
		return nil
	}
	var words []string
	for _, v := range report.TraceVerdicts() {
		words = append(words, string(v))
	}
	return rest.Invalid("verdict", params.Verdict, "is not known", strings.Join(words, ", "))
}

func (q *traceQuery) setBounds(params *v1.TracePacketsParams) *rest.Problem {
	percent := float64(cmp.Or(params.Sample, 100))
	if !(percent >= 1e-5 && percent <= 100) { // NaN, too
		return rest.Invalid("sample", strconv.FormatFloat(float64(params.Sample), 'g', -1, 32), "is out of range", "0.00001 to 100 percent of the packets")
	}
	q.filter.Sample = percent / 100
	q.count = cmp.Or(params.Count, traceCount)
	if q.count < 1 || q.count > traceCountMax {
		return rest.Invalid("count", strconv.Itoa(params.Count), "is out of range", "1 to "+strconv.Itoa(traceCountMax)+" packets")
	}
	seconds := cmp.Or(params.Seconds, traceSeconds)
	if seconds < 1 || seconds > traceSecondsMax {
		return rest.Invalid("seconds", strconv.Itoa(params.Seconds), "is out of range", "1 to "+strconv.Itoa(traceSecondsMax))
	}
	q.lasts = time.Duration(seconds) * time.Second
	return nil
}

// setService takes the key of a service, or its name.
func (a *API) setService(q *traceQuery, word string) *rest.Problem {
	if word == "" {
		return nil
	}
	now := a.Store.Snapshot()
	for s := range a.Store.Services.All(now) {
		if s.Name != word && s.Key.String() != word {
			continue
		}
		if q.filter.VIP.IsValid() || q.filter.Protocol != 0 {
			return rest.Invalid("service", word, "contains a VIP and a protocol, and so does the rest of the request", "either")
		}
		q.filter.Protocol = s.Protocol
		if !s.VIP.IsUnspecified() {
			q.filter.VIP = s.VIP
		}
		if s.Protocol.HasPorts() {
			q.filter.VIPPorts = [2]uint16{s.Port, max(s.Port, s.PortMax)}
		}
		return nil
	}
	return rest.Missing("service", word, "the name or the key of a service, as loxicmd get lb lists them")
}

func (a *API) setInterface(q *traceQuery, name string) *rest.Problem {
	if name == "" {
		return nil
	}
	names := a.Interfaces()
	for index, have := range names {
		if have == name {
			q.filter.Interface = index
			return nil
		}
	}
	return rest.Missing("interface", name, strings.Join(slices.Sorted(maps.Values(names)), ", "))
}

// name returns the name of an interface, or the number of a new one.
func (t *packetStream) name(index int) string {
	return cmp.Or(t.names[index], "if"+strconv.Itoa(index))
}
