package lb

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestProbeOf checks which probe a service has, by its fields and its protocol.
func TestProbeOf(t *testing.T) {
	t.Parallel()
	const rest = " endpoints=10.1.0.1:8080"
	for _, tc := range []struct {
		service   string
		monitored bool
		name      string
		want      Probe
	}{
		{"10.0.0.1:80/tcp" + rest, false, "10.1.0.1_tcp_8080", Probe{Type: ProbeTCP, Port: 8080}},
		{"10.0.0.1:80/tcp monitor=true" + rest, true, "10.1.0.1_tcp_8080", Probe{Type: ProbeTCP, Port: 8080}},
		{"10.0.0.1:80/udp monitor=true" + rest, true, "10.1.0.1_udp_8080", Probe{Type: ProbeUDP, Port: 8080}},
		{"10.0.0.1:0/icmp monitor=true endpoints=10.1.0.1:0", true, "10.1.0.1_ping_0", Probe{Type: ProbePing}},
		{"10.0.0.1:80/tcp mode=fullnat" + rest, true, "10.1.0.1_tcp_8080", Probe{Type: ProbeTCP, Port: 8080}},
		{"10.0.0.1:80/tcp mode=onearm" + rest, true, "10.1.0.1_tcp_8080", Probe{Type: ProbeTCP, Port: 8080}},
		{"0.0.0.0:80/udp mode=hostonearm" + rest, true, "10.1.0.1_udp_8080", Probe{Type: ProbeUDP, Port: 8080}},
		{"10.0.0.1:80/tcp mode=dsr endpoints=10.1.0.1:80", false, "10.1.0.1_tcp_80", Probe{Type: ProbeTCP, Port: 80}},
		{"10.0.0.1:80/tcp mode=fullnat probetype=none" + rest, false, "10.1.0.1_none_0", Probe{Type: ProbeNone}},
		{"10.0.0.1:1-65535/tcp mode=fullnat" + rest, false, "10.1.0.1_tcp_8080", Probe{Type: ProbeTCP, Port: 8080}},
		{"10.0.0.1:1-65535/tcp mode=fullnat probeport=80" + rest, true, "10.1.0.1_tcp_80", Probe{Type: ProbeTCP, Port: 80}},
		{"10.0.0.1:80/tcp probetype=ping" + rest, true, "10.1.0.1_ping_0", Probe{Type: ProbePing}},
		{"10.0.0.1:80/tcp probetype=none" + rest, false, "10.1.0.1_none_0", Probe{Type: ProbeNone}},
		{"10.0.0.1:80/tcp monitor=true probetype=none" + rest, true, "10.1.0.1_none_0", Probe{Type: ProbeNone}},
		{"10.0.0.1:80/tcp probetype=http probereq=health probeport=81" + rest, true, "10.1.0.1_http_81", Probe{Type: ProbeHTTP, Port: 81, Request: "/health"}},
		{
			"10.0.0.1:80/tcp probetype=https probe-statuses=200-299,404 probe-interval=500ms probe-retries=1 probe-rise=1" + rest, true, "10.1.0.1_https_8080",
			Probe{Type: ProbeHTTPS, Port: 8080, Request: "/", Statuses: []StatusRange{{200, 299}, {404, 404}}, Interval: 500 * time.Millisecond, Fall: 1, Rise: 1},
		},
		{
			"10.0.0.1:80/tcp probetype=grpc probereq=a.B probe-host=a.example probe-ca=/ca" + rest, true, "10.1.0.1_grpc_8080",
			Probe{Type: ProbeGRPC, Port: 8080, Request: "a.B", Host: "a.example", CA: "/ca"},
		},
		{
			"10.0.0.1:80/tcp monitor=true probe-interval=1m probe-wait=30s" + rest, true, "10.1.0.1_tcp_8080",
			Probe{Type: ProbeTCP, Port: 8080, Interval: time.Minute, Timeout: 30 * time.Second},
		},
	} {
		s := mustParse(t, tc.service)
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", tc.service, err)
		}
		if s.Monitored() != tc.monitored {
			t.Errorf("%s: monitored %t", tc.service, s.Monitored())
		}
		got := s.ProbeOf(s.Endpoints[0])
		if diff := cmp.Diff(tc.want.complete(), got); diff != "" {
			t.Errorf("%s: %s", tc.service, diff)
		}
		if got.Interval == 0 || got.Timeout == 0 || got.Timeout > got.Interval || got.Fall == 0 || got.Rise == 0 {
			t.Errorf("%s: %+v is not complete", tc.service, got)
		}
		if name := NameOfProbe(s.Endpoints[0].Addr, &got); name != tc.name {
			t.Errorf("%s: the name is %s, want %s", tc.service, name, tc.name)
		}
	}
}

// TestProbeRefused checks that each member is refused by its name, in one sentence with the allowed
// values.
func TestProbeRefused(t *testing.T) {
	t.Parallel()
	long, most := strings.Repeat("x", 3<<20), strings.Repeat("x", 1024)
	for _, tc := range []struct{ fields, want string }{
		{"probetype=telnet", `probe type "telnet" is not known (allowed: auto, tcp, udp, sctp, ping, http, https, grpc, dns or none)`},
		{"probetype=sctp probereq=x", `probe request "x" is set, but probe type sctp sends no such text (allowed: nothing)`},
		{"probetype=sctp proberesp=x", `probe response "x" is set, but probe type sctp does not look for a response (allowed: nothing)`},
		{"probetype=ping probeport=80", `probe port "80" is set, but probe type ping has no port (allowed: 0)`},
		{"probeport=65536", `probe port "65536" is out of range (allowed: 0 (the endpoint's own) to 65535)`},
		{"probeport=-1", `probe port "-1" is out of range (allowed: 0 (the endpoint's own) to 65535)`},
		{"probe-retries=1000000000", `probe retries "1000000000" is out of range (allowed: 0 (the default) to 100)`},
		{"probe-retries=-1", `probe retries "-1" is out of range (allowed: 0 (the default) to 100)`},
		{"probe-rise=101", `probe rise "101" is out of range (allowed: 0 (the default) to 100)`},
		{"probe-interval=5x", `probe interval "5x" is not a duration (allowed: 500ms, 2s, 1m, or a number of seconds)`},
		{"probe-interval=99ms", `probe interval "99ms" is out of range (allowed: 100ms to 24h; 0 is the default)`},
		{"probe-interval=-2s", `probe interval "-2s" is out of range (allowed: 100ms to 24h; 0 is the default)`},
		{"probe-interval=25h", `probe interval "25h0m0s" is out of range (allowed: 100ms to 24h; 0 is the default)`},
		{"probe-wait=3s", `probe wait "3s" is out of range (allowed: 10ms to the probe interval, 2s; 0 is the default)`},
		{"probe-wait=1ms", `probe wait "1ms" is out of range (allowed: 10ms to the probe interval, 2s; 0 is the default)`},
		{"probereq=" + long, `probe request "` + long[:64] + `..." is too long, or not UTF-8 (allowed: up to 1024 bytes of UTF-8)`},
		{"proberesp=" + long, `probe response "` + long[:64] + `..." is too long, or not UTF-8 (allowed: up to 1024 bytes of UTF-8)`},
		{`probereq="\xff"`, `probe request "\xff" is too long, or not UTF-8 (allowed: up to 1024 bytes of UTF-8)`},
		{"probetype=ping probereq=x", `probe request "x" is set, but probe type ping sends no such text (allowed: nothing)`},
		{`probetype=http probereq="/a b"`, `probe request "/a b" is not the path of a URL (allowed: a path, as in /health?full=1, without spaces)`},
		{"probetype=http probereq=http://10.0.0.1/", `probe request "http://10.0.0.1/" is not the path of a URL (allowed: a path, as in /health?full=1, without spaces)`},
		{`probetype=http probereq="/a\r\nX: y"`, `probe request "/a\r\nX: y" is not the path of a URL (allowed: a path, as in /health?full=1, without spaces)`},
		{"probetype=http proberesp=a probe-host=a/b", `probe host "a/b" is not a host (allowed: a name or an address, optionally with :PORT)`},
		{"probetype=http probereq=/50%", `probe request "/50%" is not the path of a URL (allowed: a path, as in /health?full=1, without spaces)`},
		{"probetype=http probereq=/a#b", `probe request "/a#b" is not the path of a URL (allowed: a path, as in /health?full=1, without spaces)`},
		{"probetype=http probe-host=a#b", `probe host "a#b" is not a host (allowed: a name or an address, optionally with :PORT)`},
		{"probetype=https probe-host=a?b", `probe host "a?b" is not a host (allowed: a name or an address, optionally with :PORT)`},
		{"probetype=grpc probe-host=a@b", `probe host "a@b" is not a host (allowed: a name or an address, optionally with :PORT)`},
		{"probe-host=a", `probe host "a" is set, but probe type tcp has no host (allowed: nothing)`},
		{"probe-statuses=200", `probe status "200" is set, but probe type tcp has no status (allowed: nothing)`},
		{"probetype=http probe-statuses=abc", `probe status "abc" is not a status or a range of them (allowed: 100 to 599, alone or as in 200-299, at most 16 of them)`},
		{"probetype=http probe-statuses=299-200", `probe status "299-200" is neither a status nor a range of statuses (allowed: 100 to 599, alone or as in 200-299, at most 16 of them)`},
		{"probetype=http probe-statuses=600", `probe status "600" is neither a status nor a range of statuses (allowed: 100 to 599, alone or as in 200-299, at most 16 of them)`},
		{
			"probetype=http probe-statuses=" + strings.TrimSuffix(strings.Repeat("200,", 17), ","),
			`probe statuses "17" is too many (allowed: 100 to 599, alone or as in 200-299, at most 16 of them)`,
		},
		{"probetype=grpc proberesp=x", `probe response "x" is set, but probe type grpc does not look for a response (allowed: nothing)`},
		{"probetype=grpc probe-host=a probe-statuses=200", `probe status "200" is set, but probe type grpc has no status (allowed: nothing)`},
		{"probetype=dns", `probe request "" is not a valid DNS name (allowed: a domain name, as in www.example.com)`},
		{"probetype=dns probereq=a..b", `probe request "a..b" is not a valid DNS name (allowed: a domain name, as in www.example.com)`},
		{"probetype=dns probereq=a.b proberesp=x", `probe response "x" is not an IP address (allowed: an IPv4 or IPv6 address that the name has)`},
		{"probetype=http probe-ca=/a", `probe CA "/a" is set, but probe type http has no TLS (allowed: nothing)`},
		{"probetype=https probe-ca=a.pem", `probe CA "a.pem" is not an absolute path (allowed: such as /etc/loxilb/probes/ca.pem, on the load balancer)`},
		{"probetype=https probe-cert=/a", `probe key is missing, but a probe certificate is set (allowed: both or neither)`},
		{"probetype=https probe-key=/a", `probe certificate is missing, but a probe key is set (allowed: both or neither)`},
		{"all-down=explode", `all down "explode" is not known (allowed: refuse or panic)`},
	} {
		s, err := ParseService("10.0.0.1:80/tcp endpoints=10.1.0.1:8080 monitor=true " + tc.fields)
		if err == nil {
			err = s.Validate()
		}
		if err == nil || err.Error() != tc.want {
			t.Errorf("%.80s: %v\nwant %s", tc.fields, err, tc.want)
		}
	}
	for line, want := range map[string]string{
		"10.0.0.1:1-65535/tcp endpoints=10.1.0.1:1-65535 monitor=true":       `probe port "0" is zero, and the service has all ports (allowed: 1 to 65535)`,
		"10.0.0.1:0/icmp endpoints=10.1.0.1:0 probetype=tcp":                 `probe port "0" is zero, and icmp has no ports (allowed: 1 to 65535)`,
		"10.0.0.1:0/icmp endpoints=10.1.0.1:0 probetype=tcp probeport=80":    "",
		"10.0.0.1:1-65535/tcp endpoints=10.1.0.1:1-65535 probetype=ping":     "",
		"10.0.0.1:1-65535/tcp endpoints=10.1.0.1:1-65535":                    "",
		"10.0.0.1:80/tcp endpoints=10.1.0.1:80 probereq=" + most:             "",
		"10.0.0.1:80/tcp endpoints=10.1.0.1:80 proberesp=" + most:            "",
		"10.0.0.1:80-90/tcp endpoints=10.1.0.1:80-90 monitor=true probeport": `service "probeport" is not FIELD=VALUE`,
	} {
		s, err := ParseService(line)
		if err == nil {
			err = s.Validate()
		}
		if got := errorText(err); got != want {
			t.Errorf("%s: %s\nwant %s", line, got, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestProbeEqual checks that a change of any one member makes two probes differ.
func TestProbeEqual(t *testing.T) {
	t.Parallel()
	for _, m := range membersOf(reflect.TypeFor[Probe]()) {
		var a, b Probe
		fill(t, reflect.ValueOf(&b).Elem().FieldByIndex(m.Index))
		if a.Equal(&b) || b.Equal(&a) || !b.Equal(&b) {
			t.Errorf("%s is not seen", m.Name)
		}
	}
}

// TestEndpointProbe checks that a user's endpoint object is restored from its record, and reports
// what is wrong with it.
func TestEndpointProbe(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("2001:db8::1")
	e := EndpointProbe{Addr: addr, Probe: Probe{Type: ProbeHTTP, Port: 80, Request: "/x", Statuses: []StatusRange{{200, 204}}, Interval: time.Second, Fall: 5}}
	data, err := e.MarshalRecord()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"host":"2001:db8::1","probeType":"http","probePort":80,"probeRequest":"/x","probeInterval":"1s","probeRetries":5,"probeStatuses":["200-204"]}`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("the JSON differs (-want +got):\n%s", diff)
	}
	if again, err := UnmarshalEndpointProbe(data); err != nil || !cmp.Equal(again, e, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
		t.Errorf("%+v came back as %+v, %v", e, again, err)
	}
	if key := e.Key(); key != "2001:db8::1_http_80" {
		t.Errorf("its name is %s", key)
	}
	named := e
	named.Name = e.Key()
	if n := named.Normal(); n.Name != "" || n.Key() != e.Key() {
		t.Errorf("a name that equals the default one is kept: %+v", n)
	}
	if n := (EndpointProbe{Addr: addr}).Normal(); n.Probe.Type != ProbePing || n.Validate() != nil {
		t.Errorf("an address alone: %+v, %v", n, n.Validate())
	}
	wrong := map[string]string{
		`{"host":"10.0.0.1","probeType":"tcp"}`:                  `probe port "0" is zero, and probe type tcp needs one (allowed: 1 to 65535)`,
		`{"host":"127.0.0.1","probeType":"ping"}`:                `endpoint address "127.0.0.1" is a loopback address (allowed: a unicast address that can be routed)`,
		`{"host":"fe80::1%eth0","probeType":"ping"}`:             `endpoint address "fe80::1%eth0" has a zone (allowed: fe80::1)`,
		`{"probeType":"ping"}`:                                   `endpoint address is missing (allowed: an IPv4 or IPv6 address)`,
		`{"host":"10.0.0.1","name":"a/b","probeType":"ping"}`:    `name "a/b" has a slash (allowed: up to 384 printable characters without slashes)`,
		`{"host":"10.0.0.1","probeType":"ping","novelty":1}`:     `unknown member "novelty"`,
		`{"host":"10.0.0.1","probeType":"ping","probePort":"x"}`: `probePort is of the wrong type`,
		`[]`: `json: cannot unmarshal array into Go value of type map[string]interface {}`,
	}
	for _, host := range metadataAddresses() {
		wrong[`{"host":"`+host+`","probeType":"ping"}`] = `endpoint address "` + host +
			`" must not be probed: it is the metadata service of a cloud, which gives out secrets (allowed: any other address)`
	}
	for data, want := range wrong {
		if _, err := UnmarshalEndpointProbe([]byte(data)); errorText(err) != want {
			t.Errorf("%s: %v\nwant %s", data, err, want)
		}
	}
	for word, out := range map[string]bool{"green": false, "yellow": false, "RED": true} {
		if got, err := ParseHostState(word); err != nil || got != out {
			t.Errorf("%s: out %t, %v", word, got, err)
		}
	}
	if _, err := ParseHostState("blue"); err == nil {
		t.Error("blue is a state")
	}
}

// TestProbeTypeWords checks that each type is parsed from its word, and that auto is not a type.
func TestProbeTypeWords(t *testing.T) {
	t.Parallel()
	for _, c := range probeTypes() {
		if got, err := ParseProbeType(c.value.String()); err != nil || got != c.value {
			t.Errorf("%s came back as %s, %v", c.value, got, err)
		}
	}
	if got, err := ParseProbeType(""); err != nil || got != ProbeAuto {
		t.Errorf("nothing is %s, %v", got, err)
	}
	if _, err := ParseProbeType("telnet"); err == nil {
		t.Error("telnet is a type")
	}
	if one, more := (StatusRange{200, 200}).String(), (StatusRange{200, 299}).String(); one != "200" || more != "200-299" {
		t.Errorf("statuses are %s and %s", one, more)
	}
}

// TestProbesOfMetadata checks that a service without probes can have a cloud's metadata service as
// its endpoint, which is then not probed by default either: the expected response of a probe could
// be used to read it.
func TestProbesOfMetadata(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"10.0.0.1": true, "169.254.169.254": false, "100.100.100.200": false, "fd00:ec2::254": false, "64:ff9b::a9fe:a9fe": false,
		"64:ff9b::a00:1": true,
	} {
		e := Endpoint{Addr: netip.MustParseAddr(address), Port: 80}
		s := Service{Mode: ModeOneArm, Endpoints: []Endpoint{e}, Probe: Probe{Port: 80, Request: "GET /", Response: "secret"}}
		s.Protocol = TCP
		if s.IsProbed(e) != want {
			t.Errorf("%s is probed: %v, want %v", address, !want, want)
		}
	}
}

// metadataAddresses returns addresses of the metadata services of clouds, also as translated
// addresses.
func metadataAddresses() []string {
	return []string{
		"169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "168.63.129.16",
		"100.100.100.200", "192.0.0.192", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe",
		"::a9fe:a9fe", "::ffff:0:a9fe:a9fe", "2002:a9fe:a9fe::1", "64:ff9b::6464:64c8",
		"fd00:c1::a9fe:a9fe",
	}
}
