package lb

import "testing"

func TestValidateModes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"10.0.0.1:80/tcp mode=onearm endpoints=192.168.1.10:8080":                         "",
		"10.0.0.1:80/udp mode=fullnat endpoints=192.168.1.10:8080 snat=10.1.0.1,10.1.0.2": "",
		"[2001:db8::1]:80/tcp mode=2 endpoints=[2001:db8::2]:8080 snat=2001:db8::3":       "",
		"0.0.0.0:80/tcp mode=hostonearm endpoints=192.168.1.10:8080":                      "",
		"[::]:80/udp mode=5 endpoints=[2001:db8::2]:8080":                                 "",
		"10.0.0.1:80/tcp endpoints=[2001:db8::2]:8080,192.168.1.10:8080":                  "",
		"[2001:db8::1]:0/icmp endpoints=192.168.1.10:0":                                   "",
		"10.0.0.1:80/tcp mode=fullnat endpoints=[2001:db8::2]:8080 snat=2001:db8::3":      "",
		"0.0.0.0:80/tcp mode=onearm endpoints=192.168.1.10:8080": `VIP "0.0.0.0" is every local address, ` +
			`which only mode hostonearm, and mode default with egress, support (allowed: a unicast address that can be routed)`,
		"10.0.0.1:80/tcp mode=hostonearm endpoints=192.168.1.10:8080": "",
		"[::]:80/tcp mode=hostonearm endpoints=192.168.1.10:8080":     "",
		"10.0.0.1:80/tcp endpoints=192.168.1.10:8080 snat=10.1.0.1": `snat "10.1.0.1" is set, but mode ` +
			`default keeps the source (allowed: none, or mode onearm, fullnat, hostonearm or auto, or egress)`,
		"10.0.0.1:80/tcp mode=fullnat endpoints=192.168.1.10:8080 snat=2001:db8::1": `snat "2001:db8::1" is IPv6, and no ` +
			`endpoint is (allowed: addresses of the endpoints' IP version)`,
		"10.0.0.1:80/tcp mode=fullnat endpoints=192.168.1.10:8080 snat=10.1.0.1,10.1.0.1": `snat "10.1.0.1" is given twice (allowed: each address once)`,
		"10.0.0.1:80/tcp mode=fullnat endpoints=192.168.1.10:8080 snat=127.0.0.1": `snat "127.0.0.1" is a loopback address ` +
			`(allowed: a unicast address that can be routed)`,
		"10.0.0.1:80/tcp endpoints=192.168.1.10:8080 snat=10.1.0.1,10.1.0.2 egress=true":                     "",
		"10.0.0.1:80/udp mode=onearm endpoints=192.168.1.10:8080 egress=true":                                "",
		"0.0.0.0:80/tcp mode=hostonearm endpoints=192.168.1.10:8080 snat=10.1.0.1 egress=true":               "",
		"10.0.0.1:80/tcp endpoints=192.168.1.10:8080,[2001:db8::2]:80 snat=10.1.0.1,2001:db8::9 egress=true": "",
		"10.0.0.1:80/tcp endpoints=192.168.1.10:8080,[2001:db8::2]:80 egress=true": `egress "true" has no address for ` +
			`endpoint 2001:db8::2, which is IPv6 (allowed: false, or an address of that IP version in snat)`,
		"0.0.0.0:80/tcp mode=hostonearm endpoints=192.168.1.10:8080 egress=true": `egress "true" has no address for ` +
			`endpoint 192.168.1.10, which is IPv4 (allowed: false, or an address of that IP version in snat)`,
		"10.0.0.1:0/icmp endpoints=192.168.1.10:0 egress=true": `egress "true" gives out source ports, and icmp has none (allowed: false)`,
	} {
		s, err := ParseService(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		again, err := ParseService(s.String())
		if err != nil || !again.Equal(s) {
			t.Errorf("%s came back as %s, %v", s, again, err)
		}
		err = s.Validate()
		if got := ""; err != nil || want != "" {
			if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%s:\n%s, want\n%s", line, got, want)
			}
		}
	}
}
