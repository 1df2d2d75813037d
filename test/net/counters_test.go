package net_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

// metrics fetches the Prometheus page.
func (r *rig) metrics() (string, error) {
	resp, err := r.LB.HTTPClient(patience).Get("http://127.0.0.1:11111/netlox/v1/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// metric is the value of a series, found by its name after "loxilb_" and by labels, written as k=v.
func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	page, err := r.metrics()
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		at := strings.LastIndexByte(line, ' ')
		series, value := line[:max(at, 0)], strings.TrimSpace(line[at+1:])
		if series != "loxilb_"+name && !strings.HasPrefix(series, "loxilb_"+name+"{") {
			continue
		}
		missing := slices.ContainsFunc(labels, func(l string) bool {
			k, v, _ := strings.Cut(l, "=")
			return l != "" && !strings.Contains(series, fmt.Sprintf("%s=%q", k, v))
		})
		if !missing {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				r.t.Fatal(err)
			}
			return v
		}
	}
	r.t.Fatalf("no %s of %v in the metrics:\n%s", name, labels, page)
	return 0
}

// TestCounters: connections, packets and bytes are exact, per service and per endpoint, in and out.
//
// V195 a service counts what its endpoints count together
// P14 connections, packets and bytes are counted exactly, by endpoint and by service
func TestCounters(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveUDPEcho()
	r.loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip4, endpoints4())
	r.loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip6, endpoints6())
	const flows, size = 5, 100
	datagrams := []int{3, 1, 4, 1, 5} // of flow 0 to 4: ep1 has 3+1, ep2 1+5, ep3 4
	for vip, header := range map[string]int{vip4: 28, vip6: 48} {
		for i := range flows {
			c := dialUDP(t, r, join(vip, 53))
			for range datagrams[i] {
				if _, err := datagram(c, strings.Repeat("x", size)); err != nil {
					t.Fatal(err)
				}
			}
		}
		in, out := float64(size+header), float64(size+header+len("ep1: "))
		service := "service=" + join(vip, 53) + "/udp"
		for _, c := range []struct {
			name, label string
			want        float64
		}{
			{"service_connections_total", "", flows},
			{"service_connections_active", "", flows},
			{"service_traffic_packets_total", "direction=in", 14},
			{"service_traffic_packets_total", "direction=out", 14},
			{"service_traffic_bytes_total", "direction=in", 14 * in},
			{"service_traffic_bytes_total", "direction=out", 14 * out},
			{"service_refused_packets_total", "reason=no-endpoint", 0},
		} {
			if got := r.metric(c.name, c.label, service); got != c.want {
				t.Errorf("%s %s %s is %v, want %v", c.name, c.label, service, got, c.want)
			}
		}
		for i, n := range netnstest.StandardNetworks()[1:] {
			address := n.V4.Addr()
			if vip == vip6 {
				address = n.V6.Addr()
			}
			endpoint := "endpoint=" + join(address.String(), 5353)
			connections, packets := []float64{2, 2, 1}[i], []float64{4, 6, 4}[i]
			for _, c := range []struct {
				name, label string
				want        float64
			}{
				{"endpoint_connections_total", "", connections},
				{"endpoint_traffic_packets_total", "direction=in", packets},
				{"endpoint_traffic_bytes_total", "direction=out", packets * out},
			} {
				if got := r.metric(c.name, c.label, endpoint, service); got != c.want {
					t.Errorf("%s %s %s is %v, want %v", c.name, c.label, endpoint, got, c.want)
				}
			}
		}
	}
}

// TestNoEndpoint: a service all of whose endpoints have weight 0 refuses, and counts that.
func TestNoEndpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip4, endpoints4(0, 0, 0))
	r.wantNoAnswer(join(vip4, 80))
	if n := r.metric("service_refused_packets_total", "reason=no-endpoint", "service=20.20.20.1:80/tcp"); n < 1 {
		t.Errorf("%v packets refused", n)
	}
}

// TestNoRoute: an endpoint that nothing leads to is told of in the log, and heals when a route appears.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=9.9.9.9:1", vip4)
	r.wantNoAnswer(join(vip4, 80))
	labtest.Eventually(t, patience, func(context.Context) error {
		if log := r.Log(); !strings.Contains(log, "no-route") {
			return fmt.Errorf("no word about the missing route in the log")
		}
		return nil
	})
	nets := netnstest.StandardNetworks()
	nine := prefix("9.9.9.9/32")
	if err := r.Endpoints[0].AddAddress("lo", nine); err != nil {
		t.Fatal(err)
	}
	r.serveNames()
	if err := r.LB.AddRoute(nine, nets[1].V4.Addr()); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, 5*time.Second, func(context.Context) error {
		_, err := r.ask(join(vip4, 80))
		return err
	})
}
