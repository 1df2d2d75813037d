package net_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"loxilb/internal/netnstest/labtest"
)

// eventuallyServe waits until new connections go to these servers, each of them, and to no others.
func (r *rig) eventuallyServe(address string, want ...string) {
	r.t.Helper()
	labtest.Eventually(r.t, patience, func(context.Context) error {
		var got []string
		for range 6 {
			c, who, err := r.greet(address)
			if err != nil {
				return err
			}
			_ = c.Close()
			got = append(got, who)
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			return fmt.Errorf("%v get connections, want %v", got, want)
		}
		return nil
	})
}

// P41 backups get new connections only while too little of what they stand in for is up or not drained; connections stay where they are
// when that changes
func TestBackups(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	servers := r.mortals()
	names := make([]string, len(servers))
	for i, h := range r.Endpoints {
		names[i] = h.Name
	}
	r.loxicmd("create lb %s --tcp=2020:5001 --endpoints=31.31.31.1:1 --backup=32.32.32.1:1 --endpoints=17.17.17.1:1@2 --monitor --probe-interval=200ms", vip4)
	address := join(vip4, 2020)
	r.eventuallyShows("get ep", "31.31.31.1_tcp_5001", " ok ")
	r.eventuallyShows("get lb -o wide", "32.32.32.1", " 1@1 ", " standby ")
	r.eventuallyServe(address, names[0])
	first := r.dial(address)
	servers[0].stop()
	r.eventuallyServe(address, names[1])
	second := r.dial(address)
	servers[1].stop()
	r.eventuallyServe(address, names[2])
	r.eventuallyShows("get lb -o wide", "17.17.17.1", " 1@2 ", " active ")
	third := r.dial(address)
	servers[0].start()
	r.eventuallyServe(address, names[0])
	r.eventuallyShows("get lb -o wide", "17.17.17.1", " 1@2 ", " standby ")
	for i, c := range []interface {
		Write([]byte) (int, error)
		Read([]byte) (int, error)
	}{first, second, third} {
		if _, err := c.Write([]byte("still")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != names[i]+" still" {
			t.Errorf("%q, %v; want an answer of %s", buf[:n], err, names[i])
		}
	}
	servers[1].start()
	r.loxicmd("drain endpoint 31.31.31.1:5001")
	r.eventuallyServe(address, names[1])
	r.loxicmd("undrain endpoint 31.31.31.1:5001")
	r.eventuallyServe(address, names[0])
	r.loxicmd("create lb %s --tcp=2020:5001 --endpoints=31.31.31.1:1,17.17.17.1:1 --backup=32.32.32.1:1 --failover-below=60 --monitor --probe-interval=200ms", vip4)
	r.eventuallyServe(address, names[0], names[2])
	servers[2].stop()
	r.eventuallyServe(address, names[0], names[1])
}
