package doctor

import "testing"

// TestSysctl checks that the printed command sets what the fix writes. The interface of a VLAN has
// a dot in its name, which sysctl would take for a slash.
func TestSysctl(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"net/ipv4/conf/eth0/rp_filter":     "sysctl -w net.ipv4.conf.eth0.rp_filter=2",
		"net/ipv4/conf/eth0.100/rp_filter": "sysctl -w net/ipv4/conf/eth0.100/rp_filter=2",
	} {
		if got, fix := sysctl(name, "2"); got != want || fix != (write{path: "proc/sys/" + name, value: "2"}) {
			t.Errorf("%s: got %s, %v, want %q, and a fix that writes 2", name, got, fix, want)
		}
	}
}

// TestQueueMask checks that the packets of a card with one queue are spread over at most the first
// 32 CPUs: the kernel accepts masks of 32 bits without a comma.
func TestQueueMask(t *testing.T) {
	t.Parallel()
	for online, want := range map[string]string{"0-1": "3", "0-3": "f", "0-31": "ffffffff", "0-63": "ffffffff"} {
		files, m := healthy()
		delete(files, "sys/class/net/eth0/queues/rx-1/rps_cpus")
		files["sys/devices/system/cpu/online"] = online
		m.at(t, files)
		list, err := queues(m)
		if err != nil || len(list) != 1 || list[0].Fix != (write{"sys/class/net/eth0/queues/rx-0/rps_cpus", want}) {
			t.Errorf("%s: got %+v, %v, want no error, 1 element, "+
				`list[0].Fix == write{"sys/class/net/eth0/queues/rx-0/rps_cpus", want}`,
				online, list, err)
		}
	}
}
