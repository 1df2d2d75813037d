package network_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// eventuallyPrints runs a command on the balancer until it prints a text (prints is true), or no
// longer prints it.
func eventuallyPrints(r *rig.Rig, prints bool, text string, command ...string) {
	r.T.Helper()
	labtest.Eventually(r.T, rig.Patience, func(context.Context) error {
		if out := labtest.Run(r.T, r.LB, command...); strings.Contains(out, text) != prints {
			return fmt.Errorf("%s prints %q: %v, want %v:\n%s", strings.Join(command, " "), text, !prints, prints, out)
		}
		return nil
	})
}

// runRefused runs a loxicmd command that must fail, and returns its error.
func runRefused(r *rig.Rig, line string, args ...any) string {
	r.T.Helper()
	line = fmt.Sprintf(line, args...)
	out, err := r.Command(strings.Fields(line)...)
	if err == nil {
		r.T.Fatalf("loxicmd %s is not refused: %s", line, out)
	}
	return err.Error()
}

// TestNetObjects checks that addresses, routes and neighbors of both IP versions can be created,
// shown and deleted. The daemon restores them after someone else removes them, or their interface
// returns. They stay while no daemon runs. loxilb does not remove objects of others unless they are
// deleted by name.
func TestNetObjects(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	via, eth := "31.31.31.1", "eth1"
	for line := range strings.Lines(labtest.Run(t, r.LB, "ip", "-o", "-4", "address", "show")) {
		if strings.Contains(line, "31.31.31.254/") {
			eth = strings.Fields(line)[1]
		}
	}
	objects := []struct{ create, again, key, text string }{
		{"create ip 10.9.0.1/24 " + eth, "delete ip 10.9.0.1/24 " + eth, "ip -4 address show", "10.9.0.1/24"},
		{"create ipv4address 2001:db8:9::1/64 " + eth, "delete ipv4 2001:db8:9::1/64 " + eth, "ip -6 address show", "2001:db8:9::1/64"},
		{"create route 10.8.0.0/16 " + via + " --proto=static", "delete route 10.8.0.0/16", "ip -4 route show", "10.8.0.0/16 via " + via},
		{"create route 2001:db8:8::/48 2001:db8:31::1", "delete route 2001:db8:8::/48", "ip -6 route show", "2001:db8:8::/48 via 2001:db8:31::1"},
		{
			"create neighbor 31.31.31.77 " + eth + " --macAddress=02:00:00:00:00:77", "delete neigh 31.31.31.77 " + eth,
			"ip -4 neigh show", "31.31.31.77 dev " + eth + " lladdr 02:00:00:00:00:77 PERMANENT",
		},
		{
			"create nei 2001:db8:31::77 " + eth + " --macAddress=02-00-00-00-00-78", "delete nei 2001:db8:31::77 " + eth,
			"ip -6 neigh show", "2001:db8:31::77 dev " + eth + " lladdr 02:00:00:00:00:78 PERMANENT",
		},
	}
	present := func(wanted bool) {
		t.Helper()
		for _, o := range objects {
			eventuallyPrints(r, wanted, o.text, strings.Fields(o.key)...)
		}
	}
	for _, o := range objects {
		if out := r.Loxicmd("%s", o.create); !strings.Contains(out, "success") {
			t.Errorf(`%s: got %s, want "success" in out`, o.create, out)
		}
		if out := r.Loxicmd("%s", o.create); !strings.Contains(out, "unchanged") {
			t.Errorf("%s again: %s", o.create, out)
		}
	}
	present(true)
	for get, want := range map[string]string{
		"get ip": "2001:db8:9::1/64", "get route -o wide": "10.8.0.0/16", "get neigh": "02:00:00:00:00:77", "get port -o wide": "10.9.0.1/24",
		"get route": "| 31.31.31.0/24", "get status": "10.9.0.1/24 " + eth,
	} {
		if out := r.Loxicmd("%s", get); !strings.Contains(out, want) {
			t.Errorf("%s does not show %q:\n%s", get, want, out)
		}
	}

	rig.MustRun(t, r.LB, "ip", "address", "del", "10.9.0.1/24", "dev", eth)
	rig.MustRun(t, r.LB, "ip", "route", "flush", "10.8.0.0/16")
	rig.MustRun(t, r.LB, "ip", "neigh", "del", "31.31.31.77", "dev", eth)
	present(true)
	rig.MustRun(t, r.LB, "ip", "link", "set", eth, "down") // removes routes and IPv6 addresses
	rig.MustRun(t, r.LB, "ip", "link", "set", eth, "up")
	rig.MustRun(t, r.LB, "ip", "address", "add", "2001:db8:31::fe/64", "dev", eth, "nodad") // the gateway's network, not an object of loxilb
	present(true)

	// Objects of others.
	rig.MustRun(t, r.LB, "ip", "route", "add", "10.7.0.0/16", "via", via)
	if s := runRefused(r, "create route 10.7.0.0/16 31.31.31.2"); !strings.Contains(s, "10.7.0.0/16 via "+via+" in its place, which loxilb has not made") {
		t.Errorf(`got %v, want "10.7.0.0/16 via "+via+" in its place, which loxilb has not made" in s`, s)
	}
	if out := r.Loxicmd("create route 10.7.0.0/16 %s", via); !strings.Contains(out, "unchanged") {
		t.Errorf("a route that the kernel has: %s", out)
	}
	for line, want := range map[string]string{
		"create ip 10.9.0.1/24 nowhere":                                      "there is no interface nowhere",
		"create route 10.6.0.0/16 10.250.0.1":                                "gateway 10.250.0.1 of route 10.6.0.0/16 is not in the network of any interface",
		"create ip 10.9.0.1 " + eth:                                          `IP/LENGTH "10.9.0.1" is not an address with the length of its network`,
		"create neighbor 10.0.0.1 " + eth:                                    "--macAddress is missing",
		"create route 10.6.0.0/16 2001:db8:31::1":                            "is of another IP version",
		"create ip 224.0.0.1/24 " + eth:                                      "is not the address of one host",
		"create neigh 31.31.31.3 " + eth + " --macAddress=01:00:5e:00:00:01": "is a multicast address",
	} {
		if s := runRefused(r, "%s", line); !strings.Contains(s, want) {
			t.Errorf("%s is refused by %q, want %q", line, s, want)
		}
	}
	if out := r.Loxicmd("get status --failed"); strings.Contains(out, "route") {
		t.Errorf("a refused object is kept:\n%s", out)
	}

	// After a kill of the daemon, existing objects stay and missing ones are restored.
	r.Kill()
	rig.MustRun(t, r.LB, "ip", "route", "del", "10.8.0.0/16")
	r.Restart()
	present(true)
	for _, o := range objects {
		r.Loxicmd("%s", o.again)
	}
	present(false)
	eventuallyPrints(r, true, "10.7.0.0/16 via "+via, "ip", "route")
	r.Loxicmd("delete route 10.7.0.0/16")
	eventuallyPrints(r, false, "10.7.0.0/16", "ip", "route")
	// Deleting a missing object succeeds.
	r.Loxicmd("delete ip 10.9.0.1/24 %s", eth)
	r.Loxicmd("delete route 10.6.0.0/16")
}

// TestAddressOfVIP checks that a configured address that is also a VIP stays when the service is
// deleted, and that the VIP stays when the configured address is deleted.
func TestAddressOfVIP(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	has := func(wanted bool) {
		t.Helper()
		eventuallyPrints(r, wanted, "inet 20.20.20.1/32", "ip", "address", "show", "dev", "lo")
	}
	r.Loxicmd("create lb 20.20.20.1 --tcp=80:5001 --endpoints=31.31.31.1:1")
	r.Loxicmd("create ip 20.20.20.1/32 lo")
	r.Loxicmd("delete lb --all")
	eventuallyPrints(r, true, "20.20.20.1/32", "ip", "address", "show", "dev", "lo")
	r.Stop()
	r.Restart()
	has(true)
	r.Loxicmd("create lb 20.20.20.1 --tcp=80:5001 --endpoints=31.31.31.1:1")
	r.Loxicmd("delete ip 20.20.20.1/32 lo")
	has(true)
	r.Loxicmd("delete lb --all")
	has(false)
}

// TestNetObjectsLockout checks that the daemon refuses to remove the address, network or route of a
// connection to this machine, whoever created it, and to create a service with its port. The error
// names the connection. With --force, the daemon does it.
//
// P55 Without --force, the daemon does not remove an address, network or route that carries an ssh
// session or another connection of the machine, and creates no service with its port; the error
// names the affected client
func TestNetObjectsLockout(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeSource(r.LB, ":7100", ":7100")
	// A configured route leads to the client's address.
	labtest.Run(t, r.Client, "ip", "address", "add", "10.77.0.1/32", "dev", "lo")
	labtest.Run(t, r.Client, "ip", "route", "replace", "100.100.100.254/32", "dev", linkOf(t, r.Client, "100.100.100.1"), "src", "10.77.0.1")
	r.Loxicmd("create route 10.77.0.0/24 100.100.100.1")
	c := r.WantSource(r.Client, "tcp", "100.100.100.254:7100", "10.77.0.1")
	who := fmt.Sprintf("would end the connection from %s to 100.100.100.254:7100", c.LocalAddr())
	address := "100.100.100.254/24 " + linkOf(t, r.LB, "100.100.100.254")
	for _, line := range []string{"delete route 10.77.0.0/24", "create route 10.77.0.0/24 31.31.31.1", "delete ip " + address,
		"create lb 100.100.100.254 --tcp=7100:8080 --endpoints=31.31.31.1:1", "create lb 100.100.100.254 --tcp=7000-7200:8080 --endpoints=31.31.31.1:1",
		"create lb 20.20.20.1 --secips=100.100.100.254 --tcp=7100:8080 --endpoints=31.31.31.1:1", "create lb 0.0.0.0 --tcp=7100:8080 --endpoints=31.31.31.1:1 --mode=hostonearm"} {
		if why := runRefused(r, "%s", line); !strings.Contains(why, who) {
			t.Errorf("%s: %s, want %s", line, why, who)
		}
	}
	r.Loxicmd("create route 10.78.0.0/24 100.100.100.1")
	r.Loxicmd("delete route 10.78.0.0/24")
	if err := checkAnswered(c); err != nil {
		t.Errorf("the connection was disturbed: %v", err)
	}
	r.Loxicmd("create lb 100.100.100.254 --tcp=7101:8080 --udp=7100:8080 --endpoints=31.31.31.1:1")
	r.Loxicmd("create lb 20.20.20.1 --tcp=7100:8080 --endpoints=31.31.31.1:1")
	r.Loxicmd("create lb 100.100.100.254 --tcp=7100:8080 --endpoints=31.31.31.1:1 --force")
	r.Loxicmd("delete lb --all")
	r.Loxicmd("delete route 10.77.0.0/24 --force")
	r.Loxicmd("delete ip %s --force", address)
	if checkAnswered(c) == nil {
		t.Error("the connection continues although its address was deleted")
	}
}

// checkAnswered returns an error unless a message over the connection is answered within a second.
func checkAnswered(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("who am I?\n")); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 64))
	return err
}

// linkOf returns the interface of a host that has an address.
func linkOf(t *testing.T, h *netnstest.Host, address string) string {
	t.Helper()
	words := strings.Fields(labtest.Run(t, h, "ip", "-o", "address", "show", "to", address))
	if len(words) < 2 {
		t.Fatalf("no interface has %s", address)
	}
	return words[1]
}
