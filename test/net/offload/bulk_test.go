package offload_test

import (
	"testing"

	"loxilb/test/net/rig"
)

// TestBulkIsMerged checks that a receiver on this machine can merge long segments in its queue, as
// it can when the kernel forwards them: otherwise it wakes up more often, for less data.
func TestBulkIsMerged(t *testing.T) {
	const volume = 256 << 20
	r := rig.New(t, rig.Options{})
	if err := r.Endpoints[0].ServeTCP(":5001", rig.SumServer); err != nil {
		t.Fatal(err)
	}
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1", rig.VIP4)
	if err := rig.SendSummed(r.Dial(rig.Join(rig.VIP4, 80)), volume); err != nil {
		t.Fatal(err)
	}
	counts, err := rig.Counters(r.Endpoints[0], "snmp", "netstat")
	if err != nil {
		t.Fatal(err)
	}
	segments, merged := counts["InSegs"], counts["TCPRcvCoalesce"]
	t.Logf("%d of %d segments merged", merged, segments)
	if merged < segments/3 {
		t.Errorf("%d of %d segments merged, want a third at least", merged, segments)
	}
}
