package metrics

import (
	"bufio"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"loxilb/internal/desired"
	"loxilb/internal/lb"
)

// row is a service with what it counted, read once for all families.
type row struct {
	labels    string // of the service, without braces
	protocol  lb.Protocol
	endpoints []lb.Endpoint
	stats     lb.ServiceStats
	known     bool // to the data path
}

// family is one metric of all services. Its rows are appended as text.
type family struct {
	name, kind, help string
	lines            func(b []byte, name string, r *row) []byte
}

func families(jiffy time.Duration) []family {
	list := []family{
		{"loxilb_service_refused_packets_total", "counter", "Packets of the service refused: no endpoint takes new connections, or the connection table is full.", refusedLines},
		{"loxilb_endpoint_weight", "gauge", "Weight of the endpoint; 0 takes no new connection.", weightLines},
	}
	for _, thing := range [...]struct {
		name  string
		lines func(valueOf) func([]byte, string, *row) []byte
	}{{"service", serviceLines}, {"endpoint", endpointLines}} {
		list = append(list,
			family{"loxilb_" + thing.name + "_connections_active", "gauge", "Connections of the " + thing.name + " that are tracked now.", thing.lines(active)},
			family{"loxilb_" + thing.name + "_connections_total", "counter", "Connections made to the " + thing.name + ".", thing.lines(connections)},
			family{"loxilb_" + thing.name + "_traffic_packets_total", "counter", "Packets of the " + thing.name + ", in (from clients) and out (to clients).", thing.lines(packets)},
			family{"loxilb_" + thing.name + "_traffic_bytes_total", "counter", "Bytes of IP packets of the " + thing.name + ", in (from clients) and out (to clients).", thing.lines(bytes)},
		)
	}
	return append(list, handshakeFamilies(jiffy)...)
}

// writeServices writes the series of services and endpoints in the text format.
func writeServices(w *bufio.Writer, st *desired.State, src Source) error {
	snap := st.Snapshot()
	rows := make([]row, 0, st.Services.Len(snap))
	for s := range st.Services.All(snap) {
		// The key is what tells series apart, for services may share a name.
		r := row{labels: `service="` + s.Key.String() + `",name="` + escape(s.Name) + `"`, protocol: s.Protocol, endpoints: s.Endpoints}
		r.stats, r.known = src.ServiceStats(s.Key)
		rows = append(rows, r)
	}
	var b []byte
	for _, f := range families(src.Jiffy()) {
		b = append(b[:0], "# HELP "+f.name+" "+f.help+"\n# TYPE "+f.name+" "+f.kind+"\n"...)
		for i := range rows {
			b = f.lines(b, f.name, &rows[i])
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	if _, err := w.Write(b); err != nil { // the header of a family without rows
		return err
	}
	return writeTotals(w, rows, src)
}

// escape makes the value of a label of a text.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s)
}

// valueOf is what a metric shows of a service or an endpoint. directed says that out counts too.
type valueOf func(s *lb.EndpointStats) (in, out uint64, directed bool)

func active(s *lb.EndpointStats) (in, out uint64, directed bool) { return s.Active, 0, false }
func connections(s *lb.EndpointStats) (in, out uint64, directed bool) {
	return s.Connections, 0, false
}
func packets(s *lb.EndpointStats) (in, out uint64, directed bool) {
	return s.In.Packets, s.Out.Packets, true
}
func bytes(s *lb.EndpointStats) (in, out uint64, directed bool) { return s.In.Bytes, s.Out.Bytes, true }

func serviceLines(value valueOf) func([]byte, string, *row) []byte {
	return func(b []byte, name string, r *row) []byte {
		if !r.known {
			return b
		}
		return values(b, name, r.labels, netip.AddrPort{}, value, &r.stats.EndpointStats)
	}
}

func endpointLines(value valueOf) func([]byte, string, *row) []byte {
	return func(b []byte, name string, r *row) []byte {
		for i := range min(len(r.endpoints), len(r.stats.Endpoints)) {
			b = values(b, name, r.labels, r.endpoints[i].AddrPort(), value, &r.stats.Endpoints[i])
		}
		return b
	}
}

func values(b []byte, name, labels string, at netip.AddrPort, value valueOf, s *lb.EndpointStats) []byte {
	in, out, directed := value(s)
	if !directed {
		return line(b, name, labels, at, "", in)
	}
	b = line(b, name, labels, at, `,direction="in"`, in)
	return line(b, name, labels, at, `,direction="out"`, out)
}

func weightLines(b []byte, name string, r *row) []byte {
	for _, e := range r.endpoints {
		b = line(b, name, r.labels, e.AddrPort(), "", uint64(e.Weight))
	}
	return b
}

func refusedLines(b []byte, name string, r *row) []byte {
	if !r.known {
		return b
	}
	b = line(b, name, r.labels, netip.AddrPort{}, `,reason="no-endpoint"`, r.stats.NoEndpoint)
	return line(b, name, r.labels, netip.AddrPort{}, `,reason="table-full"`, r.stats.Refused)
}

// line is one series. at is the endpoint, invalid for a service; more is a label with a comma before it.
func line(b []byte, name, labels string, at netip.AddrPort, more string, v uint64) []byte {
	b = append(b, name...)
	b = append(b, '{')
	b = append(b, labels...)
	if at.IsValid() {
		b = append(b, `,endpoint="`...)
		b = at.AppendTo(b)
		b = append(b, '"')
	}
	b = append(b, more...)
	b = append(b, "} "...)
	b = strconv.AppendUint(b, v, 10)
	return append(b, '\n')
}
