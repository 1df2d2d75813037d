package services_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestCounters checks that the counts of connections, packets and bytes of services and endpoints
// are exact, in both directions.
//
// V195 a service counts the sum of its endpoints
// P14 Connections, packets and bytes are counted exactly, by endpoint and by service
func TestCounters(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeUDPEcho()
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP6, rig.Endpoints6())
	const flows, size = 5, 100
	datagrams := []int{3, 1, 4, 1, 5} // of flow 0 to 4: ep1 has 3+1, ep2 1+5, ep3 4
	for vip, header := range map[string]int{rig.VIP4: 28, rig.VIP6: 48} {
		for i := range flows {
			c := rig.DialUDP(t, r, rig.Join(vip, 53))
			for range datagrams[i] {
				if _, err := rig.Datagram(c, strings.Repeat("x", size)); err != nil {
					t.Fatal(err)
				}
			}
		}
		in, out := float64(size+header), float64(size+header+len("ep1: "))
		service := "service=" + rig.Join(vip, 53) + "/udp"
		for _, c := range []struct {
			name, label string
			want        float64
		}{
			{"service_connections_total", "", flows},
			{"service_connections_active", "", flows},
			{"service_packets_total", "dir=in", 14},
			{"service_packets_total", "dir=out", 14},
			{"service_bytes_total", "dir=in", 14 * in},
			{"service_bytes_total", "dir=out", 14 * out},
			{"service_refused_packets_total", "reason=no-endpoint", 0},
		} {
			if got := r.Metric(c.name, c.label, service); got != c.want {
				t.Errorf("%s %s %s is %v, want %v", c.name, c.label, service, got, c.want)
			}
		}
		for i, n := range netnstest.StandardNetworks()[1:] {
			address := n.V4.Addr()
			if vip == rig.VIP6 {
				address = n.V6.Addr()
			}
			endpoint := "endpoint=" + rig.Join(address.String(), 5353)
			connections, packets := []float64{2, 2, 1}[i], []float64{4, 6, 4}[i]
			for _, c := range []struct {
				name, label string
				want        float64
			}{
				{"endpoint_connections_total", "", connections},
				{"endpoint_packets_total", "dir=in", packets},
				{"endpoint_bytes_total", "dir=out", packets * out},
			} {
				if got := r.Metric(c.name, c.label, endpoint, service); got != c.want {
					t.Errorf("%s %s %s is %v, want %v", c.name, c.label, endpoint, got, c.want)
				}
			}
		}
	}
}

// TestNoEndpoint checks that a service whose endpoints all have weight 0 refuses connections, and
// counts them.
func TestNoEndpoint(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4(0, 0, 0))
	r.WantNoAnswer(rig.Join(rig.VIP4, 80))
	if n := r.Metric("service_refused_packets_total", "reason=no-endpoint", "service=20.20.20.1:80/tcp"); n < 1 {
		t.Errorf("%v packets refused", n)
	}
}

// TestNoRoute checks that the log reports an endpoint without a route, and that the endpoint gets
// connections after a route was added.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=9.9.9.9:1", rig.VIP4)
	r.WantNoAnswer(rig.Join(rig.VIP4, 80))
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if log := r.Log(); !strings.Contains(log, "no-route") {
			return fmt.Errorf("the log does not report the missing route")
		}
		return nil
	})
	nets := netnstest.StandardNetworks()
	nine := rig.Prefix("9.9.9.9/32")
	if err := r.Endpoints[0].AddAddress("lo", nine); err != nil {
		t.Fatal(err)
	}
	r.ServeNames()
	if err := r.LB.AddRoute(nine, nets[1].V4.Addr()); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, 5*time.Second, func(context.Context) error {
		_, err := r.Ask(rig.Join(rig.VIP4, 80))
		return err
	})
}
