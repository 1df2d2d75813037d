package compile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
)

// TestFold: the first service of each case is folded. What comes out is its endpoints with their weights, and which of
// its own endpoints each is of.
func TestFold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ services, want string }{
		"no service": {
			"10.0.0.1:80/tcp endpoints=192.168.1.1:80",
			"rr 192.168.1.1:80",
		},
		"in turn, the service's share divided among its endpoints": {
			`10.0.0.1:80/tcp endpoints=192.168.1.1:80,10.0.0.2:81
			 10.0.0.2:81/tcp endpoints=192.168.2.1:90,192.168.2.2:90,192.168.2.3:90`,
			"priority 192.168.1.1:80:3=0 192.168.2.1:90=1 192.168.2.2:90=1 192.168.2.3:90=1",
		},
		"only what the packets would find": {
			`10.0.0.1:80/tcp endpoints=10.0.0.2:80,10.0.0.2:82
			 10.0.0.2:80/udp endpoints=192.168.2.1:90
			 10.0.0.2:81/tcp endpoints=192.168.2.1:90`,
			"rr 10.0.0.2:80 10.0.0.2:82",
		},
		"weights of both": {
			`10.0.0.1:80/tcp select=priority endpoints=192.168.1.1:80:2,10.0.0.2:80:6
			 10.0.0.2:80/tcp select=hash endpoints=192.168.2.1:90:1,192.168.2.2:90:3`,
			"priority 192.168.1.1:80:4=0 192.168.2.1:90:3=1 192.168.2.2:90:9=1",
		},
		"an endpoint that takes none, within and without": {
			`10.0.0.1:80/tcp select=lc endpoints=10.0.0.2:80:0,10.0.0.3:80:5
			 10.0.0.2:80/tcp endpoints=192.168.2.1:90
			 10.0.0.3:80/tcp endpoints=192.168.3.1:90:0,192.168.3.2:90`,
			"lc 192.168.2.1:90:0=0 192.168.3.1:90:0=1 192.168.3.2:90=1",
		},
		"through two": {
			`10.0.0.1:80/tcp endpoints=10.0.0.2:80,192.168.1.1:80
			 10.0.0.2:80/tcp endpoints=10.0.0.3:80,192.168.1.2:80
			 10.0.0.3:80/tcp endpoints=192.168.1.3:80,192.168.1.4:80`,
			"priority 192.168.1.3:80=0 192.168.1.4:80=0 192.168.1.2:80:2=0 192.168.1.1:80:4=1",
		},
		"the same endpoint twice": {
			`10.0.0.1:80/tcp endpoints=192.168.1.1:80,10.0.0.2:80
			 10.0.0.2:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80`,
			"priority 192.168.1.1:80:3=0 192.168.1.2:80=1",
		},
		"itself, through another": {
			`10.0.0.1:80/tcp endpoints=10.0.0.2:80,192.168.1.1:80
			 10.0.0.2:80/tcp endpoints=10.0.0.1:80,192.168.1.2:80`,
			"priority 192.168.1.2:80=0 192.168.1.1:80=1",
		},
		"one port of a range": {
			`10.0.0.1:80/tcp endpoints=10.0.0.2:8085
			 10.0.0.2:8080-8090/tcp endpoints=192.168.2.1:9080-9090,192.168.2.2:90`,
			"priority 192.168.2.1:9085=0 192.168.2.2:90=0",
		},
		"a range of a range": {
			`10.0.0.1:80-81/tcp endpoints=10.0.0.2:8085-8086
			 10.0.0.2:8080-8090/tcp endpoints=192.168.2.1:9080-9090`,
			"priority 192.168.2.1:9085-9086=0",
		},
		"what the outer service could not have itself": {
			`10.0.0.1:80/tcp mode=dsr endpoints=10.0.0.2:80
			 10.0.0.2:80/tcp mode=dsr endpoints=10.0.0.3:80,192.168.2.3:80
			 10.0.0.3:80/tcp endpoints=192.168.2.1:90,192.168.2.2:80`,
			"priority 192.168.2.2:80=0 192.168.2.3:80:2=0",
		},
		"pings": {
			`10.0.0.1:0/icmp endpoints=10.0.0.2:0
			 10.0.0.2:0/icmp endpoints=192.168.2.1:0`,
			"priority 192.168.2.1:0=0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var list []lb.Service
			for line := range strings.Lines(c.services) {
				s, err := lb.ParseService(strings.TrimSpace(line))
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, s)
			}
			s, of := Fold(list[0], func(k lb.Key) (lb.Service, bool) {
				for _, s := range list {
					if s.VIP == k.VIP && s.Protocol == k.Protocol && s.Port <= k.Port && max(s.Port, s.PortMax) >= max(k.Port, k.PortMax) {
						return s, true
					}
				}
				return lb.Service{}, false
			})
			got := s.Algorithm.String()
			for i, e := range s.Endpoints {
				got += " " + e.String()
				if of != nil {
					got += fmt.Sprintf("=%d", of[i])
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestFoldShares: sums that have nothing in common still leave everybody a share close to the right one.
func TestFoldShares(t *testing.T) {
	t.Parallel()
	inner := map[string]lb.Service{}
	outer, err := lb.ParseService("10.0.0.1:80/tcp endpoints=10.0.0.2:80,10.0.0.3:80,10.0.0.4:80")
	if err != nil {
		t.Fatal(err)
	}
	counts := []int{997, 1009, 1013}
	for i, n := range counts {
		var text []string
		for j := range n {
			text = append(text, fmt.Sprintf("192.%d.%d.%d:80", i, j/256, j%256))
		}
		vip := fmt.Sprintf("10.0.0.%d", i+2)
		s, err := lb.ParseService(vip + ":80/tcp endpoints=" + strings.Join(text, ","))
		if err != nil {
			t.Fatal(err)
		}
		inner[vip] = s
	}
	s, of := Fold(outer, func(k lb.Key) (lb.Service, bool) {
		s, ok := inner[k.VIP.String()]
		return s, ok
	})
	var shares [3]float64
	var sum float64
	for i, e := range s.Endpoints {
		shares[of[i]] += float64(e.Weight)
		sum += float64(e.Weight)
	}
	for i, share := range shares {
		if d := share/sum - 1.0/3; d < -0.001 || d > 0.001 {
			t.Errorf("service %d has %f of all", i, share/sum)
		}
	}
}
