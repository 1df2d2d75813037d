package sctp_test

import (
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/sctptest"
)

// TestModes checks data in both directions in each mode, over both IP versions and between them. A
// kill and restart of the daemon, and changes of the services, end no association.
func TestModes(t *testing.T) {
	t.Parallel()
	const messages = 300
	r := rig.Shared(t)
	serve(t, r)
	client := sctptest.Connect(t, r.Client)
	createTranslations(r)
	all := translations()
	for i, s := range all {
		client.Open(i, s.vip, 2020+i)
		client.Bulk(i, messages)
	}
	r.Kill()
	r.Restart()
	for i, s := range all {
		client.BulkDone(i, messages)
		r.Loxicmd("create lb %s --sctp=%d:%d --endpoints=%s %s --select=hash --inatimeout=3000", s.vip, 2020+i, port, s.endpoints, s.flags)
		client.Bulk(i, messages)
		client.BulkDone(i, 2*messages)
		client.Close(i)
	}
}

// TestPaths checks that an association of a client with two addresses continues over the service's
// second VIP and the client's second address when the first path fails, and over the first path
// when the second one fails. libusrsctp proves the second address by its answer to loxilb's
// HEARTBEAT.
func TestPaths(t *testing.T) {
	t.Parallel()
	const messages, second = 200, "100.100.100.2"
	r := rig.New(t, rig.Options{Before: func(t testing.TB, s *netnstest.Standard) {
		t.Helper()
		if err := s.Client.AddAddress("eth0", rig.Prefix(second+"/24")); err != nil {
			t.Fatal(err)
		}
	}})
	serve(t, r)
	client := sctptest.Connect(t, r.Client)
	r.Loxicmd("create lb %s --sctp=2020:%d --secips=20.20.21.1 --mode=fullnat --endpoints=%s", rig.VIP4, port, rig.Endpoints4())
	// libusrsctp sends all packets from one of its addresses.
	rig.MustRun(t, r.Client, "nft", "add table ip other; add chain ip other out { type filter hook output priority 0; };"+
		"add rule ip other out ip protocol sctp ip daddr 20.20.21.1 ip saddr set 100.100.100.1;"+
		"add rule ip other out ip protocol sctp ip daddr 20.20.20.1 ip saddr set "+second)
	client.Open(0, rig.VIP4, 2020, "100.100.100.1", second)
	client.Bulk(0, messages)
	client.BulkDone(0, messages)
	rig.MustRun(t, r.Client, "nft", "add table ip broken; add chain ip broken out { type filter hook output priority 0; }")
	for i, vip := range []string{rig.VIP4, "20.20.21.1"} {
		rig.MustRun(t, r.Client, "nft", "flush chain ip broken out; add rule ip broken out ip daddr "+vip+" drop")
		client.Bulk(0, messages)
		client.BulkDone(0, (i+2)*messages)
	}
	if out := r.Loxicmd("get drops"); !strings.Contains(out, "unproven-address") {
		t.Errorf("no address was proven:\n%s", out)
	}
	if client.Has(0, "aborted") {
		t.Error("the association has ended by ABORT")
	}
	client.Close(0)
}
