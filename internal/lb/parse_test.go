package lb

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parseCase is a text to parse, and the text that String returns, or the error.
type parseCase struct{ in, want, err string }

func runParse[T any](t *testing.T, parse func(string) (T, error), write func(T) string, cases []parseCase) {
	t.Helper()
	for _, c := range cases {
		got, err := parse(c.in)
		switch {
		case c.err != "" && (err == nil || err.Error() != c.err):
			t.Errorf("%q: error\n%v, want\n%s", c.in, err, c.err)
		case c.err == "" && err != nil:
			t.Errorf("%q: got %v, want no error", c.in, err)
		case c.err == "" && write(got) != c.want:
			t.Errorf("%q: %s, want %s", c.in, write(got), c.want)
		}
	}
}

// TestParseHostPort checks that mistyped addresses are not taken for DNS names.
func TestParseHostPort(t *testing.T) {
	t.Parallel()
	refused := func(s string) string {
		return `address "` + s + `" is not IP, HOST:PORT, [IPv6]:PORT or a DNS name`
	}
	runParse(t, func(s string) (string, error) { return ParseHostPort(s, "22222") }, strings.Clone, []parseCase{
		{in: "10.0.0.2", want: "10.0.0.2:22222"}, {in: "[2001:db8::2]:7", want: "[2001:db8::2]:7"},
		{in: "node2", want: "node2:22222"}, {in: "node2.example.:7", want: "node2.example.:7"},
		{in: "999.1.1.1", err: refused("999.1.1.1")}, {in: "01.2.3.4:80", err: refused("01.2.3.4:80")},
		{in: "10.0.0", err: refused("10.0.0")}, {in: "7", err: refused("7")},
		{in: "2001:db8::2", want: "[2001:db8::2]:22222"}, {in: "[2001:db8::2]", want: "[2001:db8::2]:22222"},
		{in: "[2001:db8::2", err: refused("[2001:db8::2")}, {in: "2001:db8::2]", err: refused("2001:db8::2]")},
		{in: "fe80::1%eth0", want: "[fe80::1%eth0]:22222"},
		{in: "[fe80::1]:7", err: `address "[fe80::1]:7" is a link-local address without interface (allowed: fe80::1%INTERFACE)`},
	})
}

// TestParseDrain checks that errors are one short line, whatever the text is.
func TestParseDrain(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\n", strings.Repeat("a", 1<<20)} {
		if _, err := ParseDrain(text); err == nil || len(err.Error()) > 300 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.20q: got %.300v, want an error of one line, at most 300 bytes", text, err)
		}
	}
}

func TestParseWords(t *testing.T) {
	t.Parallel()
	const modes = "(allowed: default, onearm, fullnat, dsr, hostonearm or auto)"
	runParse(t, ParseMode, Mode.String, []parseCase{
		{in: "default", want: "default"}, {in: "0", want: "default"},
		{in: "onearm", want: "onearm"}, {in: "1", want: "onearm"},
		{in: "fullnat", want: "fullnat"}, {in: "2", want: "fullnat"},
		{in: "dsr", want: "dsr"}, {in: "3", want: "dsr"},
		{in: "fullproxy", want: "fullproxy"}, {in: "4", want: "fullproxy"},
		{in: "hostonearm", want: "hostonearm"}, {in: "5", want: "hostonearm"},
		{in: "auto", want: "auto"}, {in: "6", want: "auto"},
		{in: "7", err: `mode "7" is not known ` + modes},
		{in: "DSR", err: `mode "DSR" is not known; did you mean dsr? ` + modes},
		{in: "03", err: `mode "03" is not known ` + modes},
		{in: "", want: "default"},
	})
	const algorithms = "(allowed: rr, hash, priority, persist, lc, n3, random or quic)"
	runParse(t, ParseAlgorithm, Algorithm.String, []parseCase{
		{in: "rr", want: "rr"}, {in: "0", want: "rr"}, {in: "1", want: "hash"}, {in: "priority", want: "priority"},
		{in: "2", want: "priority"}, {in: "3", want: "persist"}, {in: "lc", want: "lc"}, {in: "4", want: "lc"},
		{in: "random", want: "random"}, {in: "100", want: "random"}, {in: "n2", want: "n2"}, {in: "5", want: "n2"}, {in: "n3", want: "n3"}, {in: "7", want: "n3"}, {in: "6", want: "n2det"},
		{in: "wrr", err: `select "wrr" is not known; did you mean rr? ` + algorithms},
		{in: "-1", err: `select "-1" is not known ` + algorithms},
	})
	runParse(t, ParseProtocol, Protocol.String, []parseCase{
		{in: "tcp", want: "tcp"}, {in: "6", want: "tcp"}, {in: "udp", want: "udp"}, {in: "17", want: "udp"},
		{in: "sctp", want: "sctp"}, {in: "132", want: "sctp"}, {in: "icmp", want: "icmp"}, {in: "1", want: "icmp"},
		{in: "quic\x1b[2J", err: `protocol "quic\x1b[2J" is not known (allowed: tcp, udp, sctp or icmp)`},
	})
	for got, want := range map[string]string{
		Mode(9).String(): "mode(9)", Algorithm(8).String(): "algorithm(8)", Protocol(2).String(): "protocol(2)",
	} {
		if got != want {
			t.Errorf("an unknown value reads %s, want %s", got, want)
		}
	}
}

func TestParseKey(t *testing.T) {
	t.Parallel()
	const form = "(allowed: IP:PORT/PROTOCOL or IP:FIRST-LAST/PROTOCOL with IPv6 in brackets, as in 10.0.0.1:80/tcp)"
	runParse(t, ParseKey, Key.String, []parseCase{
		{in: "10.0.0.1:80/tcp", want: "10.0.0.1:80/tcp"},
		{in: "[2001:DB8:0::1]:80/17", want: "[2001:db8::1]:80/udp"},
		{in: "10.0.0.1:0/icmp", want: "10.0.0.1:0/icmp"},
		{in: "10.0.0.1:80", err: `service "10.0.0.1:80" has no protocol ` + form},
		{in: "10.0.0.1/tcp", err: `service "10.0.0.1/tcp" is not an address and a port ` + form},
		{in: "[2001:db8::1/tcp", err: `service "[2001:db8::1/tcp" is not an address and a port ` + form},
		{in: "[10.0.0.1]:80/tcp", err: `service "[10.0.0.1]:80/tcp" is not an address and a port ` + form},
		{in: "[::1]80/tcp", err: `service "[::1]80/tcp" is not an address and a port ` + form},
		{in: "example:80/tcp", err: `VIP "example" is not an IP address (allowed: an IPv4 or IPv6 address)`},
		{in: "10.0.0.1:65536/tcp", err: `port "65536" is out of range (allowed: 0 to 65535)`},
		{in: "10.0.0.1:+80/tcp", err: `port "+80" is not a plain number (allowed: 0 to 65535)`},
		{in: "10.0.0.1:-1/tcp", err: `port "-1" is out of range (allowed: 0 to 65535)`},
		{in: "10.0.0.1:080/tcp", err: `port "080" is not a plain number (allowed: 0 to 65535)`},
		{in: "[::ffff:10.0.0.1]:80/tcp", err: `VIP "::ffff:10.0.0.1" is an IPv4 address written as IPv6 (allowed: 10.0.0.1)`},
		{in: "[fe80::1%eth0]:80/tcp", err: `VIP "fe80::1%eth0" has a zone (allowed: fe80::1)`},
	})
}

func TestParseSource(t *testing.T) {
	t.Parallel()
	const form = "(allowed: IP/LENGTH or IP)"
	runParse(t, func(s string) (netip.Prefix, error) { return parseSource("source", s) }, netip.Prefix.String, []parseCase{
		{in: "10.1.2.3/8", want: "10.1.2.3/8"}, // NormalSources clears the host bits
		{in: "10.1.2.3", want: "10.1.2.3/32"},
		{in: "2001:DB8::", want: "2001:db8::/128"},
		{in: "::/0", want: "::/0"},
		{in: "10.0.0.0/33", err: `source "10.0.0.0/33" is not a prefix ` + form},
		{in: "10.0.0.0/08", err: `source "10.0.0.0/08" is not a prefix ` + form},
		{in: "", err: `source "" is not a prefix ` + form},
		{in: "::ffff:10.0.0.0/104", err: `source "::ffff:10.0.0.0" is an IPv4 address written as IPv6 (allowed: 10.0.0.0)`},
		{in: "fe80::1%eth0", err: `source "fe80::1%eth0" has a zone (allowed: fe80::1)`},
		{in: "fe80::%eth0/64", err: `source "fe80::%eth0/64" has a zone (allowed: fe80::)`},
	})
}

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	const form = "(allowed: IP:PORT or IP:PORT:WEIGHT, IPv6 in brackets)"
	runParse(t, ParseEndpoint, Endpoint.String, []parseCase{
		{in: "192.168.1.10:8080", want: "192.168.1.10:8080"},
		{in: "192.168.1.10:8080:1", want: "192.168.1.10:8080"},
		{in: "192.168.1.10:8080:0", want: "192.168.1.10:8080:0"},
		{in: "[2001:db8::1]:8080:65535", want: "[2001:db8::1]:8080:65535"},
		{in: "192.168.1.10", err: `endpoint "192.168.1.10" is not an address and a port ` + form},
		{in: "", err: `endpoint "" is not an address and a port ` + form},
		{in: "[2001:db8::1]", err: `endpoint "[2001:db8::1]" is not an address and a port ` + form},
		{in: "2001:db8::1:80", err: `endpoint address "2001" is not an IP address (allowed: an IPv4 or IPv6 address)`},
		{in: "192.168.1.10:8080:65536", err: `weight "65536" is out of range (allowed: 0 to 65535)`},
		{in: "192.168.1.10:8080:1:2", err: `weight "1:2" is not a plain number (allowed: 0 to 65535)`},
		{in: "192.168.1.10:http", err: `endpoint port "http" is not a plain number (allowed: 0 to 65535)`},
	})
}

func TestParseEndpointFlag(t *testing.T) {
	t.Parallel()
	const form = "(allowed: IP:WEIGHT or IP:PORT:WEIGHT, IPv6 in brackets when it has a port)"
	addr := netip.MustParseAddr
	cases := []struct {
		in   string
		want Endpoint
		err  string
	}{
		{in: "31.31.31.1:1", want: Endpoint{Addr: addr("31.31.31.1"), Weight: 1}},
		{in: "31.31.31.1:8080:5", want: Endpoint{Addr: addr("31.31.31.1"), Port: 8080, Weight: 5}},
		{in: "31.31.31.1:0", want: Endpoint{Addr: addr("31.31.31.1")}},
		{in: "[2001:db8::1]:7", want: Endpoint{Addr: addr("2001:db8::1"), Weight: 7}},
		{in: "[2001:db8::1]:80:7", want: Endpoint{Addr: addr("2001:db8::1"), Port: 80, Weight: 7}},
		{in: "2001:db8::1:7", want: Endpoint{Addr: addr("2001:db8::1"), Weight: 7}},
		{in: "2001:db8:0:0:0:0:0:1:65535", want: Endpoint{Addr: addr("2001:db8::1"), Weight: 65535}},
		{in: "2001:db8::8080:7", want: Endpoint{Addr: addr("2001:db8::8080"), Weight: 7}},
		{in: ":::1", want: Endpoint{Addr: addr("::"), Weight: 1}},
		{in: "31.31.31.1", err: `endpoint "31.31.31.1" has no weight ` + form},
		{in: "[2001:db8::1]", err: `endpoint "[2001:db8::1]" has no weight ` + form},
		{in: "", err: `endpoint "" is not an address and a weight ` + form},
		{in: ":1", err: `endpoint ":1" is not an address and a weight ` + form},
		{in: "2001:db8::a", err: `endpoint address "2001:db8:" is not an IP address (allowed: an IPv4 or IPv6 address)`},
		{in: "2001:db8::1:a", err: `weight "a" is not a plain number (allowed: 0 to 65535)`},
		{in: "31.31.31.1:0:1", err: `endpoint port "0" is zero (allowed: 1 to 65535)`},
		{in: "31.31.31.1:256000", err: `weight "256000" is out of range (allowed: 0 to 65535)`},
	}
	for _, c := range cases {
		got, err := ParseEndpointFlag(c.in)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%q: error\n%v, want\n%s", c.in, err, c.err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%q: %v %v, want %v", c.in, got, err, c.want)
		}
	}
}

func TestParsePortPairs(t *testing.T) {
	t.Parallel()
	write := func(pairs []PortPair) string {
		var w []string
		for _, p := range pairs {
			w = append(w, p.String())
		}
		return strings.Join(w, " ")
	}
	const form = "(allowed: PORT:ENDPOINTPORT, as in 80:8080, or FIRST-LAST for either)"
	runParse(t, ParsePortPairs, write, []parseCase{
		{in: "2020:5001", want: "2020:5001"},
		{in: "80:8080,443:8443", want: "80:8080 443:8443"},
		{in: "80:8080,81:8080", want: "80:8080 81:8080"},
		{in: "80", err: `ports "80" is not a pair of ports ` + form},
		{in: "", err: `ports "" is not a pair of ports ` + form},
		{in: "80:8080,", err: `ports "" is not a pair of ports ` + form},
		{in: "80-90:8080,80:80,any:any", want: "80-90:8080 80:80 1-65535:1-65535"},
		{in: "80-90:8080-8090,443:1-3", want: "80-90:8080-8090 443:1-3"},
		{in: "80-90:8080-8091", err: `ports "80-90:8080-8091" has two ranges of different lengths (allowed: as many endpoint ports as service ports, or one endpoint port for all)`},
		{in: "90-80:80", err: `port "90-80" is a range whose last port is not above its first (allowed: FIRST-LAST, as in 8080-8090)`},
		{in: "0-80:80", err: `port "0" is zero (allowed: 1 to 65535)`},
		{in: "80-90-100:80", err: `port "90-100" is not a plain number (allowed: 1 to 65535)`},
		{in: "0:8080", err: `port "0" is zero (allowed: 1 to 65535)`},
		{in: "80:0", err: `endpoint port "0" is zero (allowed: 1 to 65535)`},
		{in: "80:70000", err: `endpoint port "70000" is out of range (allowed: 1 to 65535)`},
		{in: "80:8080,80:8081", err: `ports "80:8081" repeats a service port (allowed: each service port once)`},
	})
}

// TestEndpointsOfPortPairs checks the ports of endpoints at one address.
func TestEndpointsOfPortPairs(t *testing.T) {
	t.Parallel()
	for pair, want := range map[string][]PortRange{
		"80:8080":           {{8080, 8080}},
		"80:8080-8082":      {{8080, 8080}, {8081, 8081}, {8082, 8082}},
		"80:65534-65535":    {{65534, 65534}, {65535, 65535}},
		"80-82:8080-8082":   {{8080, 8082}},
		"80-82:65533-65535": {{65533, 65535}},
	} {
		p, err := ParsePortPair(pair)
		if err != nil {
			t.Fatal(err)
		}
		var got []PortRange
		for _, e := range p.Endpoints(Endpoint{}) {
			got = append(got, PortRange{e.Port, max(e.Port, e.PortMax)})
		}
		if !slices.Equal(got, want) {
			t.Errorf("the endpoints of %s have ports %v, want %v", pair, got, want)
		}
	}
}

func TestParseService(t *testing.T) {
	t.Parallel()
	fields := "(allowed: " + list(textNames()) + ")"
	runParse(t, ParseService, Service.String, []parseCase{
		{in: "10.0.0.1:80/tcp", want: "10.0.0.1:80/tcp mode=default select=rr"},
		{
			in:   "  10.0.0.1:80/tcp\tname=x idle=5m endpoints=192.168.1.10:8080,192.168.1.11:8080:5 select=2 managed=true ",
			want: "10.0.0.1:80/tcp mode=default select=priority endpoints=192.168.1.10:8080,192.168.1.11:8080:5 idle=300s managed=true name=x",
		},
		{
			in:   "[2001:db8::1]:53/udp weights=5,0 endpoints=[2001:db8::2]:53,[2001:db8::3]:53 mode=fullnat",
			want: "[2001:db8::1]:53/udp mode=fullnat select=rr endpoints=[2001:db8::2]:53:5,[2001:db8::3]:53:0",
		},
		{in: `10.0.0.1:80/tcp name="a \"b\""`, want: `10.0.0.1:80/tcp mode=default select=rr name="a \"b\""`},
		{in: `10.0.0.1:80/tcp name="plain"`, want: `10.0.0.1:80/tcp mode=default select=rr name=plain`},
		{in: "", err: `service "" is empty (allowed: IP:PORT/PROTOCOL FIELD=VALUE ...)`},
		{in: "10.0.0.1:80/tcp snet=10.1.0.1", err: `service "snet=10.1.0.1" names no field of a service ` + fields},
		{in: "10.0.0.1:80/tcp mode", err: `service "mode" is not FIELD=VALUE`},
		{in: "10.0.0.1:80/tcp mode=dsr mode=dsr", err: `service "mode=dsr" repeats a field`},
		{in: "10.0.0.1:80/tcp idle=x", err: `idle timeout "x" is not a duration (allowed: 0s to 86400s, as in 300s)`},
		{in: "10.0.0.1:80/tcp managed=1", err: `managed "1" is not known (allowed: true or false)`},
		{in: `10.0.0.1:80/tcp name="a`, err: `service "name=\"a" has an open quote`},
		{in: `10.0.0.1:80/tcp name="a"b`, err: `service "name=\"a\"b" continues after a closing quote`},
		{in: "10.0.0.1:80/tcp endpoints=", err: `endpoint "" is not an address and a port (allowed: IP:PORT or IP:PORT:WEIGHT, IPv6 in brackets)`},
		{in: "10.0.0.1:80/tcp endpoints=1.1.1.1:1 weights=1,2", err: `weights "1,2" is not one for each endpoint (allowed: 1 weights)`},
		{in: "10.0.0.1:80/tcp endpoints=1.1.1.1:1:1 weights=1", err: `weights "1" is given twice (allowed: in endpoints= or in weights=)`},
	})
}

func TestFieldErrorShowsBoundedPrintableValues(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		strings.Repeat("a", 100):      strings.Repeat("a", 64) + "...",
		strings.Repeat("é", 100):      strings.Repeat("é", 32) + "...",
		"a" + strings.Repeat("é", 50): "a" + strings.Repeat("é", 31) + "...",
		"\x00\xff\n\"":                `\x00\xff\n\"`,
		"\u202eabc":                   `\u202eabc`,
	} {
		if diff := cmp.Diff(want, NewFieldError("f", in, "r", "a").Value); diff != "" {
			t.Errorf("%q: -want +got\n%s", in, diff)
		}
	}
}

func TestKeyCompare(t *testing.T) {
	t.Parallel()
	order := []string{"9.0.0.1:80/udp", "10.0.0.1:80/tcp", "10.0.0.1:80/udp", "10.0.0.1:81/tcp", "[::1]:1/tcp"}
	for i := range order[1:] {
		a, _ := ParseKey(order[i])
		b, _ := ParseKey(order[i+1])
		if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
			t.Errorf("%s and %s are out of order", a, b)
		}
	}
}
