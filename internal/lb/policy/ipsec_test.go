package policy

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"loxilb/internal/lb"
)

// ipsecPolicyOf returns a policy for outgoing packets.
func ipsecPolicyOf(from, to string, action IPsecAction, port uint16) IPsecPolicy {
	p := IPsecPolicy{Source: netip.MustParsePrefix(from), Destination: netip.MustParsePrefix(to), Action: action, Text: from + " " + to}
	if port != 0 {
		p.Protocol, p.DestinationPorts = uint8(lb.TCP), RulePorts{port, port}
	}
	return p
}

// firstRefusal returns the first policy that refuses packets of a flow, in the kernel's order, but
// prefers one that refuses all of them. ok is false if there is none.
func firstRefusal(list []IPsecPolicy, f *IPsecFlow) (found IPsecRefusal, ok bool) {
	all := IPsecRefusals(list, f)
	if len(all) == 0 {
		return found, false
	}
	whole := slices.IndexFunc(all, func(r IPsecRefusal) bool { return r.RefusesAll })
	return all[max(whole, 0)], true
}

// TestIPsecRefusal checks which policies refuse all packets of a flow, some, or none.
func TestIPsecRefusal(t *testing.T) {
	t.Parallel()
	const all, net31, net10 = "0.0.0.0/0", "31.0.0.0/8", "10.0.0.0/8"
	forward := ipsecPolicyOf(all, net31, IPsecRefuse, 0)
	forward.Forward = true
	for name, c := range map[string]struct {
		list  []IPsecPolicy
		some  bool
		whole bool
	}{
		"none":                            {},
		"of others":                       {list: []IPsecPolicy{ipsecPolicyOf(all, net10, IPsecRefuse, 0)}},
		"of the other version":            {list: []IPsecPolicy{ipsecPolicyOf("::/0", "::/0", IPsecRefuse, 0)}},
		"all":                             {[]IPsecPolicy{ipsecPolicyOf(all, net31, IPsecRefuse, 0)}, true, true},
		"forwarded":                       {[]IPsecPolicy{forward}, true, true},
		"its port":                        {[]IPsecPolicy{ipsecPolicyOf(all, net31, IPsecRefuse, 80)}, true, true},
		"another port":                    {list: []IPsecPolicy{ipsecPolicyOf(all, net31, IPsecRefuse, 81)}},
		"some clients":                    {[]IPsecPolicy{ipsecPolicyOf(net10, net31, IPsecRefuse, 0)}, true, false},
		"allowed before":                  {list: []IPsecPolicy{ipsecPolicyOf(all, net31, IPsecAllow, 0), ipsecPolicyOf(all, all, IPsecRefuse, 0)}},
		"allowed before, of some clients": {list: []IPsecPolicy{ipsecPolicyOf(net10, net31, IPsecAllow, 0), ipsecPolicyOf("10.1.0.0/16", net31, IPsecRefuse, 0)}},
		"some allowed before":             {[]IPsecPolicy{ipsecPolicyOf(net10, net31, IPsecAllow, 0), ipsecPolicyOf(all, all, IPsecRefuse, 0)}, true, false},
		"allowed after":                   {[]IPsecPolicy{ipsecPolicyOf(all, net31, IPsecRefuse, 0), ipsecPolicyOf(all, all, IPsecAllow, 0)}, true, true},
		"if it comes decrypted":           {list: []IPsecPolicy{{Forward: true, Source: forward.Source, Destination: forward.Destination, Action: IPsecDecrypt}}},
	} {
		flow := IPsecFlow{
			Source: netip.MustParsePrefix(all), Destination: netip.MustParsePrefix("31.31.31.1/32"), DestinationPorts: RulePorts{80, 80}, Protocol: uint8(lb.TCP),
		}
		r, some := firstRefusal(c.list, &flow)
		if some != c.some || r.RefusesAll != c.whole || some && r.Policy == "" {
			t.Errorf("%s: refused %t, %+v", name, some, r)
		}
	}
}

// TestIPsecFlows checks which packets of each mode are compared with policies.
func TestIPsecFlows(t *testing.T) {
	t.Parallel()
	endpoint, vip := lb.Endpoint{Addr: netip.MustParseAddr("31.31.31.1"), Port: 8080}, netip.MustParseAddr("20.20.20.1")
	from := func(a string) IPsecPolicy { return ipsecPolicyOf(a, "31.31.31.1/32", IPsecRefuse, 0) }
	for name, c := range map[string]struct {
		edit   func(*lb.Service)
		policy IPsecPolicy
		whole  bool
	}{
		"default, our source":      {policy: from("31.31.31.254/32")},
		"onearm, our source":       {func(s *lb.Service) { s.Mode = lb.ModeOneArm }, from("31.31.31.254/32"), true},
		"fullnat, the VIP":         {func(s *lb.Service) { s.Mode = lb.ModeFullNAT }, from("20.20.20.1/32"), true},
		"fullnat, another source":  {func(s *lb.Service) { s.Mode = lb.ModeFullNAT }, from("31.31.31.254/32"), false},
		"dsr, the VIP":             {func(s *lb.Service) { s.Mode = lb.ModeDSR }, ipsecPolicyOf("0.0.0.0/0", "20.20.20.1/32", IPsecRefuse, 0), true},
		"dsr, the endpoint":        {func(s *lb.Service) { s.Mode = lb.ModeDSR }, from("0.0.0.0/0"), true},
		"dsr, answers":             {func(s *lb.Service) { s.Mode = lb.ModeDSR }, ipsecPolicyOf("20.20.20.1/32", "0.0.0.0/0", IPsecRefuse, 0), false},
		"default, answers":         {func(*lb.Service) {}, ipsecPolicyOf("20.20.20.1/32", "0.0.0.0/0", IPsecRefuse, 0), true},
		"default, answers to some": {func(*lb.Service) {}, ipsecPolicyOf("20.20.20.1/32", "10.0.0.0/8", IPsecRefuse, 0), false},
		"tunnel": {func(s *lb.Service) { s.Mode, s.Tunnel = lb.ModeDSR, lb.TunnelGUE }, IPsecPolicy{
			Source: netip.MustParsePrefix("0.0.0.0/0"), Destination: netip.MustParsePrefix("31.31.31.1/32"), Protocol: 17, Action: IPsecRefuse,
		}, true},
	} {
		s := lb.Service{Key: lb.Key{VIP: vip, Port: 80, Protocol: lb.TCP}}
		if c.edit != nil {
			c.edit(&s)
		}
		whole := false
		for _, flow := range IPsecFlows(&s, endpoint, netip.MustParseAddr("31.31.31.254")) {
			r, _ := firstRefusal([]IPsecPolicy{c.policy}, &flow)
			whole = whole || r.RefusesAll
		}
		if whole != c.whole {
			t.Errorf("%s: covered whole: %t", name, whole)
		}
	}
}

// TestIPsecRefusals checks that policies for some clients name them, that all of these policies are
// found, and that each is the same for all services.
func TestIPsecRefusals(t *testing.T) {
	t.Parallel()
	const all = "0.0.0.0/0"
	list := []IPsecPolicy{
		ipsecPolicyOf(all, "9.9.9.0/24", IPsecRefuse, 0), ipsecPolicyOf(all, "9.9.10.0/24", IPsecRefuse, 0),
		ipsecPolicyOf("10.0.0.0/8", "31.31.31.0/24", IPsecRefuse, 0), ipsecPolicyOf(all, "31.31.31.1/32", IPsecAllow, 0),
	}
	want := map[IPsecRefusal]bool{
		{Policy: "0.0.0.0/0 9.9.9.0/24", Clients: netip.MustParsePrefix("9.9.9.0/24"), Answers: true}:   true,
		{Policy: "0.0.0.0/0 9.9.10.0/24", Clients: netip.MustParsePrefix("9.9.10.0/24"), Answers: true}: true,
		{Policy: "10.0.0.0/8 31.31.31.0/24", Clients: netip.MustParsePrefix("10.0.0.0/8")}:              true,
	}
	got := map[IPsecRefusal]bool{}
	for _, vip := range []string{"20.20.20.1", "20.20.20.2"} {
		s := lb.Service{Key: lb.Key{VIP: netip.MustParseAddr(vip), Port: 80, Protocol: lb.TCP}}
		for _, flow := range IPsecFlows(&s, lb.Endpoint{Addr: netip.MustParseAddr("31.31.31.1"), Port: 8080}, netip.Addr{}) {
			for _, r := range IPsecRefusals(list, &flow) {
				got[r] = true
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the services that policies cover are %+v, want %+v", got, want)
	}
}
