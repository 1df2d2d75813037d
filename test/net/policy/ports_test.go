package policy_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/pkt"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// slowFloodRate is a number of SYNs per second that does not fill the connection table.
const slowFloodRate = 2000

// TestPortFlood checks that SYNs from forged addresses do not use up the pool of source ports,
// although there are more SYNs than ports, and that the ports are free again within seconds. The
// pool has 8,022 ports.
func TestPortFlood(t *testing.T) {
	t.Parallel()
	r := portFlood(t, "9558 65535", 8800, 10*time.Second)
	labtest.Eventually(t, 15*time.Second, func(context.Context) error {
		out, err := r.Metrics()
		if err == nil && strings.Contains(out, "loxilb_snat_ports_used{") {
			err = errors.New("1,000 or more ports are in use")
		}
		return err
	})
}

// TestPortFloodDefault is TestPortFlood with the 35,768 ports of the kernel's default, while the
// flood continues.
func TestPortFloodDefault(t *testing.T) {
	rig.Long(t)
	portFlood(t, "32768 60999", 120_000, 70*time.Second)
}

// portFlood sends the given number of SYNs to a service of mode onearm. All other clients must
// connect until d has passed.
func portFlood(t *testing.T, hostPorts string, syns int, d time.Duration) *rig.Rig {
	t.Helper()
	var attacker *netnstest.Host
	r := rig.New(t, rig.Options{Before: func(t testing.TB, s *netnstest.Standard) {
		attacker = addAttacker(t, s)
		if err := s.LB.Sysctl("net/ipv4/ip_local_port_range", hostPorts); err != nil {
			t.Fatal(err)
		}
	}})
	serveOneArm(t, r)
	flood := make(chan error, 1)
	go func() { flood <- slowFlood(r, attacker, syns) }()

	took := connectDuring(t, r, d)
	if err := <-flood; err != nil {
		t.Fatal(err)
	}
	slices.Sort(took)
	challenged := r.Metric("syn_challenges_total")
	t.Logf("%d clients tried, half of them took %v, the slowest %v; %v SYNs were challenged",
		len(took), took[len(took)/2], took[len(took)-1], challenged)
	if challenged == 0 {
		t.Error("no SYN was challenged")
	}
	if n := r.Metric("drops_total", "reason=snat-ports-exhausted"); n > 0 {
		t.Errorf("%v SYNs found no port", n)
	}
	if out := r.Loxicmd("get events --kind=pressure"); !strings.Contains(out, "source ports are short") {
		t.Errorf("no event reports that source ports are nearly used up:\n%s", out)
	}
	return r
}

// serveOneArm starts a server on one endpoint, which sees one address of the load balancer.
func serveOneArm(t *testing.T, r *rig.Rig) {
	t.Helper()
	if err := r.Endpoints[0].ServeTCP(":5001", netnstest.Echo); err != nil {
		t.Fatal(err)
	}
	r.Loxicmd("create lb %s --tcp=7:5001 --mode=onearm --endpoints=31.31.31.1:1", rig.VIP4)
}

// connectDuring connects a client with a new address every 50 ms, and returns how long each took.
func connectDuring(t *testing.T, r *rig.Rig, d time.Duration) (took []time.Duration) {
	t.Helper()
	var running sync.WaitGroup
	var mu sync.Mutex
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for i := 0; time.Since(began) < d; i++ {
		<-tick.C
		at := time.Since(began)
		running.Go(func() {
			one, err := connectFrom(r, i)
			mu.Lock()
			defer mu.Unlock()
			if took = append(took, one); err != nil {
				t.Errorf("client %d, %v after the flood began: %v", i, at, err)
			}
		})
	}
	running.Wait()
	return took
}

// slowFlood sends the given number of SYNs to the VIP, each from another address.
func slowFlood(r *rig.Rig, attacker *netnstest.Host, syns int) error {
	from, err1 := attacker.MAC("eth0")
	to, err2 := r.LB.MAC("attacker")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return attacker.Do(func() error {
		link, err := attacker.Netlink().LinkByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}); err != nil {
			return err
		}
		for i, began := 0, time.Now(); i < syns; time.Sleep(5 * time.Millisecond) {
			for due := int(time.Since(began).Seconds() * slowFloodRate); i < min(due, syns); i++ {
				if _, err := unix.Write(fd, floodSYN(i).Set(pkt.From, pkt.MAC(from)).Set(pkt.To, pkt.MAC(to)).Build()); err != nil && !errors.Is(err, syscall.ENOBUFS) {
					return err
				}
			}
		}
		return nil
	})
}

// floodSYN returns SYN number i of a flood.
func floodSYN(i int) *pkt.Packet {
	var src [4]byte
	binary.BigEndian.PutUint32(src[:], 128<<24|uint32(i)<<8|1)
	return pkt.New(pkt.TCP).SetSrc(netip.AddrPortFrom(netip.AddrFrom4(src), uint16(1024+i%60000))).SetDst(netip.MustParseAddrPort(rig.Join(rig.VIP4, 7))).
		SetNum(pkt.Flags, pkt.FlagSYN).SetNum(pkt.Seq, uint64(i)*7919)
}
