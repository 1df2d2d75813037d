package offload_test

import (
	"errors"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// bigSegment is the size limit of packets between devices of this machine. It exceeds the range of
// IP's length field.
const bigSegment = 185_000

// TestBigTCP checks that the balancer forwards packets of more than 64 KiB.
func TestBigTCP(t *testing.T) {
	r := rig.New(t, rig.Options{})
	for h, links := range map[*netnstest.Host][]string{
		r.Client: {"eth0"}, r.LB: {"client", "ep1"}, r.Endpoints[0]: {"eth0"},
	} {
		for _, name := range links {
			if err := allowBig(h, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.Endpoints[0].ServeTCP(":5001", rig.SumServer); err != nil {
		t.Fatal(err)
	}
	for vip, endpoint := range map[string]string{rig.VIP4: "31.31.31.1", rig.VIP6: "[2001:db8:31::1]"} {
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s:1", vip, endpoint)
		if err := rig.SendSummed(r.Dial(rig.Join(vip, 80)), 1<<28); err != nil {
			t.Errorf("%s: %v", vip, err)
		}
		service := "service=" + rig.Join(vip, 80) + "/tcp"
		bytes := r.Metric("service_bytes_total", "dir=in", service)
		packets := r.Metric("service_packets_total", "dir=in", service)
		t.Logf("%s: %.0f packets of %.0f bytes", vip, packets, bytes/packets)
		if bytes/packets < 65536 {
			t.Errorf("%s: packets have %.0f bytes on average, want more than 64 KiB", vip, bytes/packets)
		}
	}
	if n := r.Metric("drops_total"); n > 0 {
		t.Errorf("%.0f packets dropped", n)
	}
}

func allowBig(h *netnstest.Host, name string) error {
	nl := h.Netlink()
	link, err := nl.LinkByName(name)
	if err != nil {
		return err
	}
	return errors.Join(
		nl.LinkSetGSOMaxSize(link, bigSegment), nl.LinkSetGROMaxSize(link, bigSegment),
		nl.LinkSetGSOIPv4MaxSize(link, bigSegment), nl.LinkSetGROIPv4MaxSize(link, bigSegment),
	)
}
