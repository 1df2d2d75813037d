package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func mustParse(t testing.TB, line string) Service {
	t.Helper()
	s, err := ParseService(line)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// V146 in mode dsr, the endpoint's port is the service's
func TestValidate(t *testing.T) {
	t.Parallel()
	const unicast = " (allowed: a unicast address that can be routed)"
	const name = " (allowed: up to 384 printable characters without slashes)"
	const idle = " (allowed: 0s (the default of the protocol) to 86400s, whole seconds)"
	const v4 = "10.0.0.1:80/tcp endpoints=192.168.1.10:8080"
	cases := []struct{ line, err string }{
		{line: v4},
		{line: "[2001:db8::1]:80/udp select=priority endpoints=[2001:db8::2]:8080:5,[2001:db8::2]:8081:0 name=\"a b:c\" idle=86400s"},
		{line: "10.0.0.1:80/tcp endpoints=10.0.0.1:8080,169.254.1.1:80:65535 managed=true"},

		{line: "10.0.0.1:80/sctp endpoints=1.1.1.1:1 secips=10.0.0.2"},
		{
			"10.0.0.1:80/sctp mode=dsr endpoints=1.1.1.1:80 secips=10.0.0.2",
			`secondary VIP "10.0.0.2" is set, but endpoints answer SCTP's clients directly in mode dsr (allowed: none; endpoints list the VIPs that they have)`,
		},
		{line: "10.0.0.1:0/icmp endpoints=1.1.1.1:0"},
		{"10.0.0.1:7/icmp endpoints=1.1.1.1:0", `port "7" is set, but icmp has no ports (allowed: 0)`},
		{"10.0.0.1:0/icmp endpoints=1.1.1.1:7", `endpoint port "7" is set, but icmp has no ports (allowed: 0)`},
		{
			v4 + " mode=fullproxy",
			`mode "fullproxy" is not part of this build: let HAProxy or Envoy listen at the endpoints of a service of mode default (allowed: default, ` +
				`onearm, fullnat, dsr, hostonearm or auto)`,
		},
		{v4 + " mode=dsr", `endpoint port "8080" is not the service's, and mode dsr keeps ports (allowed: 80, or mode auto or onearm for other ports, as node ports)`},
		{
			"10.0.0.1:80/tcp mode=dsr endpoints=[2001:db8::1]:80",
			`endpoint address "2001:db8::1" is IPv6, and the VIP, which it answers as in mode dsr, is IPv4 (allowed: IPv4 addresses, a tunnel, or another mode)`,
		},
		{"10.0.0.1:80/tcp tunnel=ipip endpoints=10.1.0.1:80", `tunnel "ipip" is set, but mode is default (allowed: none, or mode dsr)`},
		{"10.0.0.1:80-90/tcp mode=dsr endpoints=10.1.0.1:80", `last endpoint port "0" is not the service's, and mode dsr keeps ports (allowed: 90)`},
		{
			"10.0.0.1:80/tcp mode=dsr endpoints=10.1.0.1:80 snat=10.1.0.2",
			`snat "10.1.0.2" is set, but mode dsr keeps the source (allowed: none, or mode onearm, fullnat, hostonearm or auto, or egress)`,
		},
		{v4 + " mode=hostonearm proxy-protocol=true", `PROXY protocol "true" is set, but mode is hostonearm (allowed: false, or mode default, onearm or fullnat)`},
		{"10.0.0.1:80/udp endpoints=10.1.0.1:80 proxy-protocol=true", `PROXY protocol "true" needs a stream of data, and udp has none (allowed: false, or protocol tcp)`},
		{line: v4 + " mode=fullnat proxy-protocol=true"},
		{line: "10.0.0.1:69/udp mode=fullnat helper=tftp endpoints=10.1.0.1:69"},
		{line: "10.0.0.1:21/tcp mode=fullnat helper=ftp endpoints=10.1.0.1:21"},
		{"10.0.0.1:21/udp helper=ftp endpoints=10.1.0.1:21", `helper "ftp" is for tcp, and the service is of udp (allowed: none, or protocol tcp)`},
		{
			"10.0.0.1:21/tcp helper=ftp proxy-protocol=true endpoints=10.1.0.1:21",
			`helper "ftp" is given together with the PROXY protocol (allowed: none, or a service without PROXY protocol)`,
		},
		{v4 + " helper=tftp", `helper "tftp" is for udp, and the service is of tcp (allowed: none, or protocol udp)`},
		{"10.0.0.1:69/udp mode=dsr helper=tftp endpoints=10.1.0.1:69", `helper "tftp" is set, but mode is dsr (allowed: none, or mode default, auto, onearm or fullnat)`},
		{"10.0.0.1:69-70/udp helper=tftp endpoints=10.1.0.1:69-70", `helper "tftp" is for services with one port (allowed: none, or a single port)`},
		{
			v4 + " select=n2",
			`select "n2" is not part of this build: loxilb does not read NGAP messages; balance their associations with --sctp --select=persist (allowed: rr, ` +
				`hash, priority, persist, lc, n3, random or quic)`,
		},
		{v4 + " persist-timeout=60s", `persist timeout "60s" is set, but select is rr (allowed: 0s, or select persist)`},
		{v4 + " select=persist persist-timeout=90000s", `persist timeout "90000s" is out of range (allowed: 0s (the default, 10800s) to 86400s, whole seconds)`},
		{line: v4 + " select=persist persist-timeout=86400s persist-prefix=32"},
		{line: v4 + " max-rate=1000000 client-rate=1000000 max-connections=1000000000 client-connections=1000000000 client-prefix=32"},
		{v4 + " select=persist persist-prefix=64", `persist prefix "64" is longer than an address of the VIP's family (allowed: 0 (the whole address) to 32)`},

		{"0.0.0.0:80/tcp endpoints=1.1.1.1:1", `VIP "0.0.0.0" is every local address, which only mode hostonearm, and mode default with egress, support` + unicast},
		{"[::]:80/tcp endpoints=[2001:db8::1]:1", `VIP "::" is every local address, which only mode hostonearm, and mode default with egress, support` + unicast},
		{"127.0.0.2:80/tcp endpoints=1.1.1.1:1", `VIP "127.0.0.2" is a loopback address` + unicast},
		{"[::1]:80/tcp endpoints=[2001:db8::1]:1", `VIP "::1" is a loopback address` + unicast},
		{"224.0.0.1:80/tcp endpoints=1.1.1.1:1", `VIP "224.0.0.1" is a multicast address` + unicast},
		{"255.255.255.255:80/tcp endpoints=1.1.1.1:1", `VIP "255.255.255.255" is the broadcast address` + unicast},
		{"[fe80::1]:80/tcp endpoints=[2001:db8::1]:1", `VIP "fe80::1" is link-local: it is valid on one link only` + unicast},
		{"10.0.0.1:0/tcp endpoints=1.1.1.1:1", `port "0" is zero (allowed: 1 to 65535)`},

		{"10.0.0.1:80/tcp", `endpoints "0" is too few (allowed: 1 to 4096)`},
		{line: "10.0.0.1:80/tcp mode=fullnat endpoints=[2001:db8::1]:1"},
		{line: "10.0.0.1:0/icmp mode=fullnat endpoints=1.1.1.1:0"},
		{line: "0.0.0.0:9999/tcp endpoints=1.1.1.1:9999 egress=true"},
		{
			"[2001:db8::1]:80/tcp mode=onearm endpoints=[2001:db8::2]:1,1.1.1.1:1 snat=2001:db8::3",
			`endpoint address "1.1.1.1" is IPv4, and none of the source addresses is (allowed: endpoints of their IP version, or --snat with an IPv4 address)`,
		},
		{"10.0.0.1:80/tcp endpoints=0.0.0.0:1", `endpoint address "0.0.0.0" is the unspecified address` + unicast},
		{"10.0.0.1:80/tcp endpoints=127.0.0.1:1", `endpoint address "127.0.0.1" is a loopback address` + unicast},
		{"10.0.0.1:80/tcp endpoints=239.0.0.1:1", `endpoint address "239.0.0.1" is a multicast address` + unicast},
		{"10.0.0.1:80/tcp endpoints=1.1.1.1:0", `endpoint port "0" is zero (allowed: 1 to 65535)`},
		{"10.0.0.1:80/tcp endpoints=1.1.1.1:1,1.1.1.2:1,1.1.1.1:1:2", `endpoint "1.1.1.1:1" is given twice (allowed: each address and port once)`},
		{"10.0.0.1:80/tcp endpoints=10.0.0.1:80", `endpoint "10.0.0.1:80" is the service itself (allowed: another address or port)`},

		{line: v4 + " secips=10.0.0.2,10.0.0.3,10.0.0.4"},
		{v4 + " secips=10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5", `secondary VIP "4" is too many (allowed: up to 3 addresses)`},
		{v4 + " secips=10.0.0.1", `secondary VIP "10.0.0.1" is given twice (allowed: each address once, and not the VIP)`},
		{v4 + " secips=2001:db8::1", `secondary VIP "2001:db8::1" is IPv6, and the VIP is IPv4 (allowed: IPv4 addresses)`},
		{v4 + " secips=127.0.0.1", `secondary VIP "127.0.0.1" is a loopback address` + unicast},
		{line: "10.0.0.1:80/tcp owner=kube-1"},
		{line: "10.0.0.1:80/tcp mode=hostonearm endpoints=1.1.1.1:1 secips=10.0.0.2"},
		{"0.0.0.0:80/tcp mode=hostonearm endpoints=1.1.1.1:1 secips=10.0.0.2", `secondary VIP "10.0.0.2" is set, but the service is of every local address (allowed: none)`},
		{"10.0.0.1:80/tcp endpoints=10.0.0.2:80 secips=10.0.0.2", `endpoint "10.0.0.2:80" is the service itself (allowed: another address or port)`},

		{v4 + " idle=-1s", `idle timeout "-1s" is out of range` + idle},
		{v4 + " idle=86401s", `idle timeout "86401s" is out of range` + idle},
		{v4 + " idle=1500ms", `idle timeout "1.5s" is not whole seconds` + idle},
		{v4 + " name=a/b", `name "a/b" has a slash` + name},
		{v4 + ` name="a\\b"`, `name "a\\b" has a slash` + name},
		{v4 + ` name="a\nb"`, `name "a\nb" does not print` + name},
		{v4 + ` name="\xff"`, `name "\xff" does not print` + name},
		{v4 + ` name="a "`, `name "a " begins or ends with a space` + name},
		{v4 + " name=..", `name ".." is a path` + name},
		{v4 + " name=" + strings.Repeat("n", 385), `name "` + strings.Repeat("n", 64) + `..." is too long` + name},
		{line: v4 + " name=" + strings.Repeat("é", 384)},
	}
	for _, c := range cases {
		s := mustParse(t, c.line)
		err := s.Validate()
		if c.err == "" {
			if err != nil {
				t.Errorf("%s: %v", c.line, err)
			}
			continue
		}
		var field *FieldError
		if !errors.As(err, &field) || err.Error() != c.err {
			t.Errorf("%s:\n%v, want\n%s", c.line, err, c.err)
		}
	}
}

// TestValidateBuiltServices checks services that callers can build, but no text can express.
func TestValidateBuiltServices(t *testing.T) {
	t.Parallel()
	good := mustParse(t, "10.0.0.1:80/tcp endpoints=192.168.1.10:8080")
	mapped, zoned := netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("2001:db8::1%eth0")
	for want, change := range map[string]func(*Service){
		`VIP is missing (allowed: an IPv4 or IPv6 address)`:                                                            func(s *Service) { s.VIP = netip.Addr{} },
		`VIP "::ffff:10.0.0.1" is an IPv4 address written as IPv6 (allowed: 10.0.0.1)`:                                 func(s *Service) { s.VIP = mapped },
		`endpoint address "2001:db8::1%eth0" has a zone (allowed: 2001:db8::1)`:                                        func(s *Service) { s.Endpoints[0].Addr = zoned },
		`endpoint address "::ffff:10.0.0.1" is an IPv4 address written as IPv6 (allowed: 10.0.0.1)`:                    func(s *Service) { s.Endpoints[0].Addr = mapped },
		`mode "mode(77)" is not known (allowed: default, onearm, fullnat, dsr, hostonearm or auto)`:                    func(s *Service) { s.Mode = 77 },
		`select "algorithm(77)" is not known (allowed: rr, hash, priority, persist, lc, n3, random or quic)`:           func(s *Service) { s.Algorithm = 77 },
		`protocol "protocol(0)" is not known (allowed: tcp, udp, sctp or icmp)`:                                        func(s *Service) { s.Protocol = 0 },
		`endpoints "4097" is too many (allowed: 1 to 4096)`:                                                            func(s *Service) { s.Endpoints = endpoints(4097) },
		`idle timeout "1ns" is not whole seconds (allowed: 0s (the default of the protocol) to 86400s, whole seconds)`: func(s *Service) { s.IdleTimeout = time.Nanosecond },
	} {
		s := good.Clone()
		change(&s)
		if err := s.Validate(); err == nil || err.Error() != want {
			t.Errorf("Validate returns %v, want %s", err, want)
		}
	}
	good.Endpoints = endpoints(4096)
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func endpoints(n int) []Endpoint {
	all := make([]Endpoint, n)
	for i := range all {
		all[i] = Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Port: 80, Weight: 1}
	}
	return all
}

func TestCloneSharesNothing(t *testing.T) {
	t.Parallel()
	s := mustParse(t, "10.0.0.1:80/tcp endpoints=192.168.1.10:8080")
	c := s.Clone()
	c.Endpoints[0].Port = 1
	if !s.Equal(s.Clone()) || s.Equal(c) || s.Endpoints[0].Port != 8080 {
		t.Errorf("%v and %v", s, c)
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, n := range []int{10, 4096} {
		s := mustParse(b, "10.0.0.1:80/tcp")
		s.Endpoints = endpoints(n)
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			for b.Loop() {
				if err := s.Validate(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
