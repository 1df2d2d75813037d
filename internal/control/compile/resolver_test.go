package compile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
)

// TestResolve resolves the first service of each case, and checks the resulting endpoints with
// their weights, and from which of the service's own endpoints each comes.
func TestResolve(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ services, want string }{
		"no service": {
			"10.0.0.1:80/tcp endpoints=192.168.1.1:80",
			"rr 192.168.1.1:80",
		},
		"round robin: the service's share is divided among its endpoints": {
			`10.0.0.1:80/tcp endpoints=192.168.1.1:80,10.0.0.2:81
			 10.0.0.2:81/tcp endpoints=192.168.2.1:90,192.168.2.2:90,192.168.2.3:90`,
			"priority 192.168.1.1:80:3=0 192.168.2.1:90=1 192.168.2.2:90=1 192.168.2.3:90=1",
		},
		"only a service with the same port and protocol": {
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
		"weight 0, in both services": {
			`10.0.0.1:80/tcp select=lc endpoints=10.0.0.2:80:0,10.0.0.3:80:5
			 10.0.0.2:80/tcp endpoints=192.168.2.1:90
			 10.0.0.3:80/tcp endpoints=192.168.3.1:90:0,192.168.3.2:90`,
			"lc 192.168.2.1:90:0=0 192.168.3.1:90:0=1 192.168.3.2:90=1",
		},
		"through two services": {
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
			`priority 192.168.1.1:80=1; endpoints "10.0.0.1:80/tcp" lead back to the service itself through other services (allowed: endpoints that do not)`,
		},
		"behind two services that lead to each other": {
			`10.0.0.1:80/tcp endpoints=10.0.0.2:80,192.168.1.1:80
			 10.0.0.2:80/tcp endpoints=10.0.0.3:80,192.168.1.2:80
			 10.0.0.3:80/tcp endpoints=10.0.0.2:80,192.168.1.3:80`,
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
		"endpoints that are invalid for the outer service": {
			`10.0.0.1:80/tcp mode=dsr endpoints=10.0.0.2:80
			 10.0.0.2:80/tcp mode=dsr endpoints=10.0.0.3:80,192.168.2.3:80
			 10.0.0.3:80/tcp endpoints=192.168.2.1:90,192.168.2.2:80`,
			"priority 192.168.2.2:80=0 192.168.2.3:80=0",
		},
		"pings": {
			`10.0.0.1:0/icmp endpoints=10.0.0.2:0
			 10.0.0.2:0/icmp endpoints=192.168.2.1:0`,
			"priority 192.168.2.1:0=0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := parsed(t, strings.Split(c.services, "\n")...)
			s, of, err := NewResolver(newState(list...)).Resolve(list[0])
			got := s.Algorithm.String()
			for i, e := range s.Endpoints {
				got += " " + e.String()
				if of != nil {
					got += fmt.Sprintf("=%d", of[i])
				}
			}
			if err != nil {
				got += "; " + err.Error()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestResolveShares checks that sums without a common divisor still give every endpoint a share
// close to the exact one.
func TestResolveShares(t *testing.T) {
	t.Parallel()
	list := parsed(t, "10.0.0.1:80/tcp endpoints=10.0.0.2:80,10.0.0.3:80,10.0.0.4:80")
	for i, n := range []int{997, 1009, 1013} {
		list = append(list, serviceAt(i+2, endpointsAt(i, n)...))
	}
	s, of, err := NewResolver(newState(list...)).Resolve(list[0])
	if err != nil {
		t.Fatal(err)
	}
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

// serviceAt returns service number n, at a VIP of its own.
func serviceAt(n int, endpoints ...lb.Endpoint) lb.Service {
	return lb.Service{Key: lb.Key{VIP: vipAt(n), Port: 80, Protocol: lb.TCP}, Endpoints: endpoints}
}

func vipAt(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// serviceEndpoint returns service number n as an endpoint.
func serviceEndpoint(n int) lb.Endpoint { return lb.Endpoint{Addr: vipAt(n), Port: 80, Weight: 1} }

// endpointsAt returns n endpoints of group i.
func endpointsAt(i, n int) []lb.Endpoint {
	list := make([]lb.Endpoint, n)
	for j := range list {
		list[j] = lb.Endpoint{Addr: netip.AddrFrom4([4]byte{192, byte(i), byte(j >> 8), byte(j)}), Port: 80, Weight: 1}
	}
	return list
}

// TestResolveLinear checks that a service that is reachable by many paths is resolved once.
func TestResolveLinear(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		services  []lb.Service
		endpoints int    // of the first service
		refused   string // part of the error
	}{
		"40 services, two paths from each to the next": {doubled(40), 2, ""},
		"the maximum depth":                            {doubled(MaxDepth), 2, ""},
		"one deeper than the maximum":                  {doubled(MaxDepth + 1), 2, "lead through 65 services in a chain (allowed: at most 64)"},
		"a chain of all services":                      {chain(lb.MaxServices, false), 1, "lead through 65535 services"},
		"a ring of all services":                       {chain(lb.MaxServices, true), 0, "lead back to the service itself"},
		"all lead to one":                              {fan(lb.MaxServices - 1), 3, ""},
		"one leads to 5,000 endpoints":                 {wide(2, 2500), 4096, "lead to too many endpoints"},
		"one leads to 512 services of 512":             {wide(512, 512), 4096, "lead to too many endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counting := countingServices{Services: newState(c.services...)}
			r := NewResolver(&counting)
			first, _, err := r.Resolve(c.services[0])
			for _, s := range c.services[1:] {
				_, _, _ = r.Resolve(s)
			}
			endpoints := 0
			for _, s := range c.services {
				endpoints += len(s.Endpoints)
			}
			if most := 4 * endpoints; counting.n > most { // each call looks up again whether an address is a service
				t.Errorf("%d lookups for %d endpoints, want at most %d", counting.n, endpoints, most)
			}
			if len(first.Endpoints) != c.endpoints {
				t.Errorf("%d endpoints, want %d", len(first.Endpoints), c.endpoints)
			}
			if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("the error is %v, want %q; empty: none", err, c.refused)
			}
		})
	}
}

// countingServices counts lookups of services.
type countingServices struct {
	Services
	n int
}

func (c *countingServices) Reach(k lb.Key) (lb.Service, bool) {
	c.n++
	return c.Services.Reach(k)
}

// doubled returns a chain of services, each with two paths to the next one, by two ports.
func doubled(depth int) (list []lb.Service) {
	for n := range depth {
		second := serviceEndpoint(n + 1)
		second.Port = 81
		s := serviceAt(n, serviceEndpoint(n+1), second)
		s.PortMax = 81
		list = append(list, s)
	}
	s := serviceAt(depth, endpointsAt(0, 2)...)
	s.PortMax = 81
	return append(list, s)
}

func chain(n int, ring bool) (list []lb.Service) {
	for i := range n - 1 {
		list = append(list, serviceAt(i, serviceEndpoint(i+1)))
	}
	if ring {
		return append(list, serviceAt(n-1, serviceEndpoint(0)))
	}
	return append(list, serviceAt(n-1, endpointsAt(0, 1)...))
}

func fan(n int) (list []lb.Service) {
	for i := range n {
		list = append(list, serviceAt(i+1, serviceEndpoint(0)))
	}
	return append(list, serviceAt(0, endpointsAt(0, 3)...))
}

func wide(services, each int) (list []lb.Service) {
	first := serviceAt(0)
	for i := range services {
		first.Endpoints = append(first.Endpoints, serviceEndpoint(i+1))
		list = append(list, serviceAt(i+1, endpointsAt(i%256, each)...))
	}
	return append([]lb.Service{first}, list...)
}
