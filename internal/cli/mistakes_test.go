package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb/bgp"
	"loxilb/test/apitest"
	"loxilb/test/clitest"
)

// mistake is a command line, or a path with a body, and the sentence that answers it.
type mistake struct{ given, answer string }

const (
	notAddress = " is not an IP address (allowed: an IPv4 or IPv6 address)"
	notRouter  = " is not the address of a router (allowed: the unicast address of a router)"
	notASN     = " is not an AS number (allowed: 1 to 4294967295)"
	unicast    = " (allowed: a unicast address that can be routed)"
	micros     = " is out of range (allowed: 100000 to 60000000 microseconds)"
	byteRange  = " is out of range (allowed: 1 to 255)"
	holdRange  = " is out of range (allowed: 3s to 65535s, whole seconds, or 0s for 90s)"
	notPort    = " is not a port (allowed: 1 to 65535, or 0 for 179)"
)

var commandMistakes = []mistake{
	{"create bfd", "missing argument: its name, as in: loxicmd create bfd 10.0.0.2"},
	{"create bfd 10.0.0.300", `REMOTE "10.0.0.300"` + notAddress},
	{"create bfd 10.0.0.2/24", `REMOTE "10.0.0.2/24"` + notAddress},
	{"create bfd node.example", `REMOTE "node.example"` + notAddress},
	{"create bfd 10.0.0.9 extra", `unexpected argument "extra"`},
	{"create bfd 0.0.0.0", `REMOTE "0.0.0.0" is the unspecified address` + unicast},
	{"create bfd 224.0.0.1", `REMOTE "224.0.0.1" is a multicast address` + unicast},
	{"create bfd 127.0.0.1", `REMOTE "127.0.0.1" is a loopback address` + unicast},
	{"create bfd fe80::1", `REMOTE "fe80::1" is link-local, but has no zone (allowed: fe80::1%INTERFACE)`},
	{"create bfd 10.0.0.1", `REMOTE "10.0.0.1" is an address of this node (allowed: the address of another node)`},
	{"create bfd 10.0.0.9", `--instance "default" already has BFD session 10.0.0.2 (allowed: one for each instance)`},
	{"create bfd 10.0.0.2 --interval=abc", `--interval "abc" is not a whole number`},
	{"create bfd 10.0.0.2 --interval=200ms", `--interval "200ms" is not a whole number`},
	{"create bfd 10.0.0.2 --interval=99999999999999999999", `--interval "99999999999999999999" is out of range`},
	{"create bfd 10.0.0.2 --interval=-1", `--interval "-1"` + micros},
	{"create bfd 10.0.0.2 --interval=99999", `--interval "99999"` + micros},
	{"create bfd 10.0.0.2 --retryCount=-1", `--retryCount "-1"` + byteRange},
	{"create bfd 10.0.0.2 --retryCount=256", `--retryCount "256"` + byteRange},
	{"create bfd 10.0.0.2 --priority=300", `--priority "300"` + byteRange},
	{"create bfd 10.0.0.2 --preempt=maybe", `--preempt "maybe" is not true or false`},
	{"create bfd 10.0.0.2 --sourceIP=10.0.0.2", `--sourceIP "10.0.0.2" is the remote address (allowed: an address of this node)`},
	{"create bfd 10.0.0.2 --sourceIP=x", `--sourceIP "x"` + notAddress},
	{"create bfd 10.0.0.2 --sourceIP=2001:db8::1", `--sourceIP "2001:db8::1" is of another IP version than 10.0.0.2`},
	{"create bfd 10.0.0.2 --instance=a@b", `--instance "a@b" has an @`},
	{"create bfd 10.0.0.2 --instance=a/b", `--instance "a/b" has a slash`},
	{"create bfd 10.0.0.2 --preemp", "unknown flag --preemp of loxicmd create bfd; did you mean --preempt?"},
	{"set bfd", "missing argument: the address of the other node, as in: loxicmd set bfd 10.0.0.2"},
	{"set bfd 10.0.0.9 --interval=200000", "no BFD session with 10.0.0.9 in instance default"},
	{"set bfd 10.0.0.2 --interval=300000 --instance=blue", "no BFD session with 10.0.0.2 in instance blue"},
	{"set bfd 10.0.0.2 --interval=x", `--interval "x" is not a whole number`},
	{"set bfd 10.0.0.2 --interval=1", `--interval "1"` + micros},
	{"delete bfd", "missing argument: the address of the other node, as in: loxicmd delete bfd 10.0.0.2"},
	{"delete bfd x", `REMOTE "x"` + notAddress},
	{"delete bfd 10.0.0.2 10.0.0.3", `unexpected argument "10.0.0.3"`},
	{"get bfd 10.0.0.9", `bfd "10.0.0.9" not found`},
	{"describe bfd 10.0.0.9", `bfd "10.0.0.9" not found`},

	{"create bgpneighbor", "missing argument PEER: loxicmd create bgpneighbor PEER ASN"},
	{"create bgpneighbor 10.0.0.2", "missing argument ASN: loxicmd create bgpneighbor PEER ASN"},
	{"create bgpneighbor 10.0.0.2 1 extra", `unexpected argument "extra": loxicmd create bgpneighbor PEER ASN`},
	{"create bgpneighbor 10.0.0.2 0", `ASN "0"` + notASN},
	{"create bgpneighbor 10.0.0.2 4294967296", `ASN "4294967296"` + notASN},
	{"create bgpneighbor 10.0.0.2 -1", "-1 is not an argument of loxicmd create bgpneighbor: numbers must not be negative"},
	{"create bgpneighbor 10.0.0.2 AS1", `ASN "AS1"` + notASN},
	{"create bgpneighbor 10.0.0.2 23456", `ASN "23456" is reserved (RFC 6793)`},
	{"create bgpneighbor 10.0.0.300 1", `PEER "10.0.0.300"` + notAddress},
	{"create bgpneighbor a/b 1", `PEER "a/b"` + notAddress},
	{"create bgpneighbor 0.0.0.0 1", `PEER "0.0.0.0"` + notRouter},
	{"create bgpneighbor 224.0.0.1 1", `PEER "224.0.0.1"` + notRouter},
	{"create bgpneighbor 10.0.0.1 1", `PEER "10.0.0.1" is an address of this node (allowed: the address of another node)`},
	{"create bgpneighbor fe80::1 1", `PEER "fe80::1" is link-local, but has no interface (allowed: fe80::1%INTERFACE)`},
	{"create bgpneighbor ::ffff:10.0.0.7 1", `PEER "::ffff:10.0.0.7" is an IPv4 address written as IPv6 (allowed: 10.0.0.7)`},
	{"create bgpneighbor 10.0.0.2 1 --remotePort=70000", `--remotePort "70000"` + notPort},
	{"create bgpneighbor 10.0.0.2 1 --remotePort=-1", `--remotePort "-1"` + notPort},
	{"create bgpneighbor 10.0.0.2 1 --multihop-ttl=256", `--multihop-ttl "256"` + byteRange},
	{"create bgpneighbor 10.0.0.2 1 --hold-time=-1s", `--hold-time "-1s"` + holdRange},
	{"create bgpneighbor 10.0.0.2 1 --hold-time=1s", `--hold-time "1s"` + holdRange},
	{"create bgpneighbor 10.0.0.2 1 --hold-time=abc", `--hold-time "abc" is not a duration such as 60s or 1m`},
	{"create bgpneighbor 10.0.0.2 1 --keepalive-time=90s", `--keepalive-time "1m30s" is not less than holdTime 1m30s (allowed: a third of holdTime)`},
	{"create bgpneighbor 10.0.0.2 1 --bfd=-1ms", `--bfd "-1ms" is out of range (allowed: 10ms to 1m, whole milliseconds)`},
	{"create bgpneighbor 10.0.0.2 1 --bfd-multiplier=3", `--bfd is missing (allowed: 10ms to 1m, or no bfd)`},
	{"create bgpneighbor 10.0.0.2 1 --bfd=100ms --bfd-multiplier=300", `--bfd-multiplier "300"` + byteRange},
	{"create bgpneighbor 10.0.0.2 1 --bfd=100ms --setMultiHtop", `--bfd "100ms" cannot be combined with multihop`},
	{"create bgpneighbor 10.0.0.2 1 --source=2001:db8::1", `--source "2001:db8::1" is of another IP version than 10.0.0.2`},
	{"create bgpneighbor 10.0.0.2 1 --source=10.0.0.2", `--source "10.0.0.2" is the address of the neighbor (allowed: an address of this node)`},
	{"create bgpneighbor eth0 1 --source=10.0.0.1", `--source "10.0.0.1" cannot be combined with interface eth0`},
	{"create bgpneighbor 10.0.0.2 1 --password-file=/nosuch", `--password-file "/nosuch" cannot be read: no such file or directory`},
	{"create bgpneighbor 10.0.0.2 1 --password-file=/dev/null", `--password-file "/dev/null" cannot be read: its first line is empty`},
	{"create bgpneighbor 10.0.0.2 1 --password-file=x --no-password", "--no-password cannot be combined with --password-file"},
	{"delete bgpneighbor", "missing argument PEER: loxicmd delete bgpneighbor PEER [ASN]"},
	{"delete bgpneighbor 10.0.0.300", `PEER "10.0.0.300"` + notAddress},
	{"delete bgpneighbor 10.0.0.2 x", `ASN "x"` + notASN},
	{"delete bgpneighbor 10.0.0.2 1 2", `unexpected argument "2": loxicmd delete bgpneighbor PEER [ASN]`},
	{"get bgpneighbor 10.0.0.9", `bgpneighbor "10.0.0.9" not found`},
	{"set bgpneighbor 10.0.0.2", `loxicmd set: unknown object "bgpneighbor" (allowed: bfd,`},
	{"set bgp --asn=4294967296", `--asn "4294967296"` + notASN},
}

var bodyMistakes = []mistake{
	{`bfd null`, `the body is null: a JSON object is expected`},
	{`bfd []`, `body "array" is of the wrong type (line 1, column 1) (allowed: an object)`},
	{`bfd {`, "the body is not JSON (line 1, column 1): it ends too early"},
	{`bfd {"remoteIp":1}`, `remoteIp "number" is of the wrong type`},
	{`bfd {"remoteIp":"10.0.0.2","interval":"x"}`, `interval "string" is of the wrong type`},
	{`bfd {"remoteIp":"10.0.0.2","interval":99999999999999999999}`, `interval "number 99999999999999999999" is of the wrong type`},
	{`bfd {"remoteIp":"10.0.0.2","interval":1.5}`, `interval "number 1.5" is of the wrong type`},
	{`bfd {"remoteIp":"10.0.0.2","intervall":300000}`, `unknown property "intervall"`},
	{`bfd {"remoteIp":"10.0.0.2"} {}`, "there is text after the end of the object"},
	{`bgp/neigh null`, `the body is null: a JSON object is expected`},
	{`bgp/neigh []`, `body "array" is of the wrong type`},
	{`bgp/neigh {"ipAddress":"10.0.0.7","remoteAs":null}`, `remoteAs "0"` + notASN},
	{`bgp/neigh {"ipAddress":"10.0.0.7","remoteAs":-1}`, `remoteAs "-1"` + notASN},
	{`bgp/neigh {"ipAddress":"10.0.0.7","remoteAs":4294967296}`, `remoteAs "4294967296"` + notASN},
	{`bgp/neigh {"ipAddress":"10.0.0.7","remoteAs":"1"}`, `remoteAs "string" is of the wrong type`},
	{`bgp/neigh {"ipAddress":"10.0.0.7","remoteAs":1,"bfd":[]}`, `bfd "array" is of the wrong type`},
	{`bgp/neigh {"ipAddress":"10.0.0.7","remoteAs":1,"bfd":{}}`, `bfd.interval is missing`},
	{`bgp/neigh {"ipAddress":"10.0.0.7","remoteAs":1,"password":["a"]}`, `password "array" is of the wrong type`},
	{`bgp/neigh {"ipAddress":"10.0.0.7","remoteAs":1,"passwort":"a"}`, `unknown property "passwort"`},
	{`bgp/neigh {"ipAddress":"10.0.0.7","interface":"eth0","remoteAs":1}`, `interface "eth0" cannot be combined with ipAddress 10.0.0.7`},
	{`bgp/neigh {"ipAddress":"10.0.0.7","remoteAs":1,"holdTime":-1}`, `holdTime "-1" is not a time`},
}

// TestMistakes checks that each mistake about a peer is answered by one sentence with the wrong
// value, the reason and the allowed values, and that it changes nothing.
func TestMistakes(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, func(o *httpapi.Options) {
		o.BGP = func() []bgp.Session { return nil }
		o.Own = func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.1") }
	})
	// passes requests on, since the API asks the kernel who is at the other end of a connection
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer := b.Call(r.Method, r.URL.RequestURI(), string(body), "Content-Type", r.Header.Get("Content-Type"))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	t.Cleanup(s.Close)
	host, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	run := func(line string) clitest.Result {
		return clitest.Run(t, "", append(strings.Fields(line), "-s", host, "-p", port)...)
	}
	for _, line := range []string{"create bfd 10.0.0.2", "create bgpneighbor 10.0.0.2 1"} {
		if r := run(line); r.Code != 0 {
			t.Fatalf("got %v, want code 0", r)
		}
	}
	revision, stored := b.Store.Snapshot().Revision(), b.Stored()
	for _, m := range commandMistakes {
		r := run(m.given)
		if r.Code == 0 || r.Stdout != "" || !strings.HasPrefix(r.Stderr, "Error: "+m.answer) || strings.Count(r.Stderr, "\n") > 1 {
			t.Errorf("%s: %d %q\nwant %q", m.given, r.Code, r.Stdout+r.Stderr, m.answer)
		}
	}
	for _, m := range bodyMistakes {
		path, body, _ := strings.Cut(m.given, " ")
		w := b.Call("POST", httpapi.BaseURL+"/config/"+path, body, "Content-Type", "application/json")
		if p := apitest.ProblemOf(t, w); w.Code != http.StatusBadRequest || !strings.Contains(p.Message, m.answer) {
			t.Errorf("%s: %d %q\nwant %q", m.given, w.Code, p.Message, m.answer)
		}
	}
	if w := b.Call("POST", httpapi.BaseURL+"/config/bfd", `{"remoteIp":"10.0.0.2","interval":300000}`, "Content-Type", "text/xml"); w.Code < 400 || w.Code >= 500 {
		t.Errorf("XML: %d %s", w.Code, w.Body)
	}
	if now := b.Store.Snapshot().Revision(); now != revision || !slices.Equal(b.Stored(), stored) {
		t.Errorf("a mistake changed something: %v, before %v", b.Stored(), stored)
	}
}
