package net_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"loxilb/internal/netnstest/labtest"
)

// eventually runs a command in the balancer until it prints a text, or does not any more.
func (r *rig) eventually(prints bool, text string, command ...string) {
	r.t.Helper()
	labtest.Eventually(r.t, patience, func(context.Context) error {
		if out := labtest.Run(r.t, r.LB, command...); strings.Contains(out, text) != prints {
			return fmt.Errorf("%s prints %q: %v, want %v:\n%s", strings.Join(command, " "), text, !prints, prints, out)
		}
		return nil
	})
}

// refusal runs the command line and returns the sentence by which it is refused.
func (r *rig) refusal(line string, args ...any) string {
	r.t.Helper()
	line = fmt.Sprintf(line, args...)
	out, err := r.Command(strings.Fields(line)...)
	if err == nil {
		r.t.Fatalf("loxicmd %s is not refused: %s", line, out)
	}
	return err.Error()
}

// TestNetObjects: an address, a route and a neighbour, of both IP versions, come, are shown, come back when somebody takes them away or their
// interface comes back, survive the daemon, and go; what others made stays until it is deleted by name.
func TestNetObjects(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
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
		{"create neighbor 31.31.31.77 " + eth + " --macAddress=02:00:00:00:00:77", "delete neigh 31.31.31.77 " + eth, "ip -4 neigh show", "31.31.31.77 dev " + eth + " lladdr 02:00:00:00:00:77 PERMANENT"},
		{"create nei 2001:db8:31::77 " + eth + " --macAddress=02-00-00-00-00-78", "delete nei 2001:db8:31::77 " + eth, "ip -6 neigh show", "2001:db8:31::77 dev " + eth + " lladdr 02:00:00:00:00:78 PERMANENT"},
	}
	present := func(wanted bool) {
		t.Helper()
		for _, o := range objects {
			r.eventually(wanted, o.text, strings.Fields(o.key)...)
		}
	}
	for _, o := range objects {
		if out := r.loxicmd("%s", o.create); !strings.Contains(out, "success") {
			t.Errorf("%s: %s", o.create, out)
		}
		if out := r.loxicmd("%s", o.create); !strings.Contains(out, "unchanged") {
			t.Errorf("%s again: %s", o.create, out)
		}
	}
	present(true)
	for get, want := range map[string]string{
		"get ip": "2001:db8:9::1/64", "get route -o wide": "10.8.0.0/16", "get neigh": "02:00:00:00:00:77", "get port -o wide": "10.9.0.1/24",
		"get route": "| 31.31.31.0/24", "get status": "10.9.0.1/24 " + eth,
	} {
		if out := r.loxicmd("%s", get); !strings.Contains(out, want) {
			t.Errorf("%s does not show %q:\n%s", get, want, out)
		}
	}

	run(t, r.LB, "ip", "address", "del", "10.9.0.1/24", "dev", eth)
	run(t, r.LB, "ip", "route", "flush", "10.8.0.0/16")
	run(t, r.LB, "ip", "neigh", "del", "31.31.31.77", "dev", eth)
	present(true)
	run(t, r.LB, "ip", "link", "set", eth, "down") // which takes routes and IPv6 addresses away
	run(t, r.LB, "ip", "link", "set", eth, "up")
	run(t, r.LB, "ip", "address", "add", "2001:db8:31::fe/64", "dev", eth, "nodad") // which is not loxilb's, and the gateway's network
	present(true)

	// what others have made
	run(t, r.LB, "ip", "route", "add", "10.7.0.0/16", "via", via)
	if s := r.refusal("create route 10.7.0.0/16 31.31.31.2"); !strings.Contains(s, "10.7.0.0/16 via "+via+", which loxilb has not made") {
		t.Error(s)
	}
	if out := r.loxicmd("create route 10.7.0.0/16 %s", via); !strings.Contains(out, "unchanged") {
		t.Errorf("a route that the kernel has: %s", out)
	}
	for line, want := range map[string]string{
		"create ip 10.9.0.1/24 nowhere":                                      "there is no interface nowhere",
		"create route 10.6.0.0/16 10.250.0.1":                                "gateway 10.250.0.1 of route 10.6.0.0/16 is in no network",
		"create ip 10.9.0.1 " + eth:                                          `ipAddress "10.9.0.1" is not an address with the length of its network`,
		"delete route 10.6.0.0/16":                                           "route 10.6.0.0/16 does not exist",
		"create neighbor 10.0.0.1 " + eth:                                    "--macAddress is missing",
		"delete ip 10.9.0.9/24 " + eth:                                       "does not exist",
		"create route 10.6.0.0/16 2001:db8:31::1":                            "is not of the IP version",
		"create ip 224.0.0.1/24 " + eth:                                      "is not the address of one host",
		"create neigh 31.31.31.3 " + eth + " --macAddress=01:00:5e:00:00:01": "is one of a group",
	} {
		if s := r.refusal("%s", line); !strings.Contains(s, want) {
			t.Errorf("%s is refused by %q, want %q", line, s, want)
		}
	}
	if out := r.loxicmd("get status --failed"); strings.Contains(out, "route") {
		t.Errorf("what was refused is kept:\n%s", out)
	}

	// the daemon dies; what was there stays, what is gone comes back
	r.Kill()
	run(t, r.LB, "ip", "route", "del", "10.8.0.0/16")
	r.restart()
	present(true)
	for _, o := range objects {
		r.loxicmd("%s", o.again)
	}
	present(false)
	r.eventually(true, "10.7.0.0/16 via "+via, "ip", "route")
	r.loxicmd("delete route 10.7.0.0/16")
	r.eventually(false, "10.7.0.0/16", "ip", "route")
	if s := r.refusal("delete ip 10.9.0.1/24 %s", eth); !strings.Contains(s, "does not exist") {
		t.Error(errors.New(s))
	}
}

// TestAddressOfVIP: an address that is asked for while a service has it as its VIP stays when the service goes, and the VIP stays when the
// address is no longer asked for.
func TestAddressOfVIP(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	has := func(wanted bool) {
		t.Helper()
		r.eventually(wanted, "inet 20.20.20.1/32", "ip", "address", "show", "dev", "lo")
	}
	r.loxicmd("create lb 20.20.20.1 --tcp=80:5001 --endpoints=31.31.31.1:1")
	r.loxicmd("create ip 20.20.20.1/32 lo")
	r.loxicmd("delete lb --all")
	r.eventually(true, "20.20.20.1/32", "ip", "address", "show", "dev", "lo")
	r.Stop()
	r.restart()
	has(true)
	r.loxicmd("create lb 20.20.20.1 --tcp=80:5001 --endpoints=31.31.31.1:1")
	r.loxicmd("delete ip 20.20.20.1/32 lo")
	has(true)
	r.loxicmd("delete lb --all")
	has(false)
}
