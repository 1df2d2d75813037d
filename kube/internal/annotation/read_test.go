package annotation

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestValues reads good and bad values of each annotation.
func TestValues(t *testing.T) {
	t.Parallel()
	good := map[string][]string{
		"staticIP": {"192.0.2.1", "192.0.2.1, 2001:db8::1"}, "poolSelect": {"gold"}, "sharingKey": {"a b"}, "secondaryIPs": {"192.0.2.2,192.0.2.3"},
		"poolSelectSecondary": {"a,b,c"}, "ipam": {"ipv4", "ipv6", "ipv6to4", "nat64", "nat66"}, "zoneselect": {"east"}, "zoneinstance": {"3", "llb-inst2"},
		"usepodnetwork": {"yes", "no", "true"}, "useExternalEndpoint": {"yes"}, "prefLocalPod": {"yes"}, "nodelabel": {"edge", "role=edge"}, "multus-nets": {"net1,ns/net2"},
		"lbmode": {"default", "onearm", "fullnat", "dsr", "hostonearm", "auto"}, "epselect": {"rr", "roundrobin", "hash", "persist", "lc", "n3", "quic"}, "timeout": {"0", "1800"},
		"useproxyprotov2": {"yes"}, "egress": {"no"}, "liveness": {"yes"}, "probetype": {"udp", "tcp", "https", "http", "sctp", "ping", "none"}, "probeport": {"8080"},
		"probereq": {"/healthz", ""}, "proberesp": {"ok"}, "probetimeout": {"10"}, "proberetries": {"3"},
	}
	good["poolSelect"] = append(good["poolSelect"], strings.Repeat("a", 253))
	bad := map[string][]string{
		"staticIP": {"", "web", "192.0.2.1,192.0.2.2", "192.0.2.1/24"}, "poolSelect": {"", strings.Repeat("a", 254)}, "secondaryIPs": {"a", "1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4"},
		"poolSelectSecondary": {"", "a,b,c,d"}, "ipam": {"v4"}, "zoneinstance": {"x", "99"}, "usepodnetwork": {"maybe", ""}, "useExternalEndpoint": {"1"},
		"prefLocalPod": {"x"}, "nodelabel": {"", "a=b=c"}, "multus-nets": {""}, "lbmode": {"fullproxy", "two", "9"}, "epselect": {"n2", "n2det", "best"},
		"timeout":         {"-1", "1h", "90000"},
		"useproxyprotov2": {"2"}, "egress": {"x"}, "liveness": {"on"}, "probetype": {"smtp"}, "probeport": {"70000"}, "probetimeout": {"1m"}, "proberetries": {"0", "500"},
		"mtls-frontend-mode": {"require"},
	}
	r := NewReader()
	for _, a := range All() {
		short := strings.TrimPrefix(a.Name, Prefix)
		if len(good[short])+len(bad[short]) == 0 && strings.HasPrefix(a.Name, Prefix) && a.Unavailable == "" {
			t.Errorf("no values of %s are tested", a.Name)
		}
		for _, name := range append([]string{a.Name}, a.Also...) {
			for _, v := range good[short] {
				if _, err := r.Read(map[string]string{name: v}, "ns", Settings{}); err != nil {
					t.Errorf("%s: %q: %v", name, v, err)
				}
			}
			for _, v := range bad[short] {
				if _, err := r.Read(map[string]string{name: v}, "ns", Settings{}); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: got %q: %v, want an error with the name", name, v, err)
				}
			}
		}
	}
}

// TestSettings checks that our own name of an annotation wins, and that defaults stay without one.
func TestSettings(t *testing.T) {
	t.Parallel()
	r := NewReader()
	s, err := r.Read(map[string]string{
		"metallb.io/loadBalancerIPs": "192.0.2.9", "loxilb.io/staticIP": "192.0.2.1", "loxilb.io/multus-nets": "fast, other/slow", "loxilb.io/timeout": "60",
		"loxilb.io/liveness": "no", "service.beta.kubernetes.io/load-balancer-source-ranges": "10.1.2.3/8",
	}, "shop", Settings{Mode: "onearm", Monitor: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintln(s.Addresses, s.Networks, s.IdleTimeout == time.Minute, s.Mode, s.Monitor, s.PodNetwork,
		s.SourceRanges); got != "[192.0.2.1] [shop/fast other/slow] true onearm false true [10.0.0.0/8]\n" {
		t.Errorf("settings are %s", got)
	}
	if got := r.Unknown(map[string]string{"loxilb.io/livness": "yes", "loxilb.io/liveness": "yes", "other/x": ""}); len(got) != 1 || got[0] != "loxilb.io/livness" {
		t.Errorf("unknown annotations are %q", got)
	}
}
