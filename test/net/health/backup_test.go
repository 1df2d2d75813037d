package health_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// awaitServers waits until exactly these servers get new connections.
func awaitServers(r *rig.Rig, address string, want ...string) {
	r.T.Helper()
	labtest.Eventually(r.T, rig.Patience, func(context.Context) error {
		var got []string
		for range 6 {
			c, who, err := dialServer(r, address)
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

// P41 Backups get new connections only while too few endpoints of lower levels are available; open
// connections keep their endpoints when that changes
func TestBackups(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	servers := startServers(r)
	names := make([]string, len(servers))
	for i, h := range r.Endpoints {
		names[i] = h.Name
	}
	r.Loxicmd("create lb %s --tcp=2020:5001 --endpoints=31.31.31.1:1 --backup=32.32.32.1:1 --endpoints=17.17.17.1:1@2 --monitor --probe-interval=200ms", rig.VIP4)
	address := rig.Join(rig.VIP4, 2020)
	r.EventuallyShows("get ep", "31.31.31.1_tcp_5001", " up ")
	r.EventuallyShows("get lb -o wide", "32.32.32.1", " 1@1 ", " standby ")
	awaitServers(r, address, names[0])
	first := r.Dial(address)
	servers[0].stop()
	awaitServers(r, address, names[1])
	second := r.Dial(address)
	servers[1].stop()
	awaitServers(r, address, names[2])
	r.EventuallyShows("get lb -o wide", "17.17.17.1", " 1@2 ", " up ")
	third := r.Dial(address)
	servers[0].start()
	awaitServers(r, address, names[0])
	r.EventuallyShows("get lb -o wide", "17.17.17.1", " 1@2 ", " standby ")
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
	r.Loxicmd("drain endpoint 31.31.31.1:5001")
	awaitServers(r, address, names[1])
	r.Loxicmd("undrain endpoint 31.31.31.1:5001")
	awaitServers(r, address, names[0])
	r.Loxicmd("create lb %s --tcp=2020:5001 --endpoints=31.31.31.1:1,17.17.17.1:1 --backup=32.32.32.1:1 --failover-below=60 --monitor --probe-interval=200ms", rig.VIP4)
	awaitServers(r, address, names[0], names[2])
	servers[2].stop()
	awaitServers(r, address, names[0], names[1])
}
