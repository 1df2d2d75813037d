package policy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
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

// The duration of a flood, and its number of forged addresses of each IP version.
const (
	floodTime    = 3 * time.Second
	floodSources = 16384
)

// TestFlood checks that, during a flood of SYNs from more addresses than the connection table can
// hold, established connections continue, new clients connect, and the table does not fill up. Soon
// after the flood, half-open connections are gone and new clients get no challenge.
//
// P13 During a flood of SYNs established connections continue, and new clients connect
func TestFlood(t *testing.T) {
	t.Parallel()
	const size, established = 16384, 50
	var attacker *netnstest.Host
	r := rig.New(t, rig.Options{Args: []string{fmt.Sprint("--ct-max=", size)}, Before: func(t testing.TB, s *netnstest.Standard) {
		attacker = addAttacker(t, s)
	}})
	r.ServeEchoes()
	var held []*net.TCPConn
	for i := range established {
		held = append(held, r.Dial(rig.Join([]string{rig.VIP4, rig.VIP6}[i%2], 7)))
	}
	events := make(chan error, 1)
	ctx, endFlood := context.WithTimeout(t.Context(), 4*rig.Patience) // at most, on a busy machine
	defer endFlood()
	go func() { events <- floodVIPs(ctx, r, attacker) }()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if n := r.Metric("half_open_connections", "protocol=tcp"); n < size/8 {
			return fmt.Errorf("%v connections are half-open", n)
		}
		return nil
	})

	var running sync.WaitGroup
	for _, c := range held {
		running.Go(func() {
			for i := range 20 {
				if err := rig.Exchange(c, fmt.Sprint("still here ", i)); err != nil {
					t.Errorf("an established connection: %v", err)
					return
				}
			}
		})
	}
	took := make([]time.Duration, 40)
	for i := range took {
		running.Go(func() {
			var err error
			if took[i], err = connectFrom(r, i); err != nil {
				t.Errorf("a new client: %v", err)
			}
		})
	}
	running.Wait()
	slices.Sort(took)
	t.Logf("new clients connect within %v; half of them within %v", took[len(took)-1], took[len(took)/2])
	if at := took[len(took)*95/100]; at > rig.Patience/2 {
		t.Errorf("a twentieth of new clients take %v or more to connect", at)
	}
	if used := r.Metric("connections"); used > size/2 {
		t.Errorf("%v of %d connections are in the table", used, size)
	}
	if n := r.Metric("drops_total", "reason=conntrack-full"); n > 0 {
		t.Errorf("%v packets found the table full", n)
	}
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if out := r.Loxicmd("get status --failed"); !strings.Contains(out, "pressure") {
			return fmt.Errorf("the status does not report the pressure:\n%s", out)
		}
		return nil
	})
	endFlood()
	if err := <-events; err != nil {
		t.Fatal(err)
	}

	ended := time.Now()
	labtest.Eventually(t, 5*time.Second, func(context.Context) error {
		if n := r.Metric("half_open_connections", "protocol=tcp"); n > size/8 {
			return fmt.Errorf("%v connections are still half-open", n)
		}
		return nil
	})
	t.Logf("half-open connections are gone %v after the flood", time.Since(ended))
	challenged := r.Metric("syn_challenges_total")
	if _, err := connectFrom(r, len(took)); err != nil {
		t.Error(err)
	}
	if r.Metric("syn_challenges_total") != challenged {
		t.Error("a new client was challenged after the flood")
	}
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		out := r.Loxicmd("get events --kind=pressure")
		if strings.Count(out, "began") != 1 || strings.Count(out, "ended") != 1 {
			return fmt.Errorf("want one event of the beginning and one of the end:\n%s", out)
		}
		return nil
	})
}

// TestFloodTraced checks a trace of every packet of a flood. The trace loses packets that exceed
// its buffer, and counts them. The daemon reads only as many as its CPU share allows. Challenges,
// the connection table, connections and new clients are not affected.
func TestFloodTraced(t *testing.T) {
	t.Parallel()
	const size = 16384
	var attacker *netnstest.Host
	r := rig.New(t, rig.Options{Args: []string{fmt.Sprint("--ct-max=", size)}, Before: func(t testing.TB, s *netnstest.Standard) {
		attacker = addAttacker(t, s)
	}})
	r.ServeEchoes()
	held := r.Dial(rig.Join(rig.VIP4, 7))
	trace, err := r.LB.Start(netnstest.Command{Args: []string{rig.Program("loxicmd"), "trace", "--count=1000000", "-w", "/dev/null"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trace.Stop)
	awaitOutput := func(word string) {
		t.Helper()
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			if out := trace.Output(); !strings.Contains(out, word) {
				return fmt.Errorf("trace does not print %q: %s", word, out)
			}
			return nil
		})
	}
	awaitOutput("tracing")
	before, began := cpuTime(t, r.Pid()), time.Now()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	flood := make(chan error, 1)
	go func() { flood <- floodVIPs(ctx, r, attacker) }()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if n := r.Metric("syn_challenges_total"); n == 0 {
			return errors.New("no SYN was challenged")
		}
		return nil
	})
	for i := range 10 {
		if err := rig.Exchange(held, fmt.Sprint("still here ", i)); err != nil {
			t.Fatalf("an established connection: %v", err)
		}
		if _, err := connectFrom(r, i); err != nil {
			t.Errorf("a new client: %v", err)
		}
	}
	if used := r.Metric("connections"); used > size/2 {
		t.Errorf("%v of %d connections are in the table", used, size)
	}
	awaitOutput("events lost") // on a busy machine, after more than floodTime
	<-time.After(time.Until(began.Add(floodTime)))
	end()
	if err := <-flood; err != nil {
		t.Fatal(err)
	}
	took, lasted := cpuTime(t, r.Pid())-before, time.Since(began)
	t.Logf("the daemon took %v of a CPU in %v", took, lasted)
	if took > lasted*3/4 {
		t.Errorf("the daemon took %v of a CPU in %v", took, lasted)
	}
}

// cpuTime returns the CPU time that a process has used.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	const user, ticks = 11, 100 // index after the process name; USER_HZ
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var sum int
	for _, field := range fields[user : user+2] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks
}

// addAttacker connects a host to the balancer that routes to the rest of the world.
func addAttacker(t testing.TB, s *netnstest.Standard) *netnstest.Host {
	t.Helper()
	h, err := s.Host("attacker")
	if err != nil {
		t.Fatal(err)
	}
	err = s.Link(
		netnstest.End{Host: h, Interface: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("66.66.66.1/24"), netip.MustParsePrefix("2001:db8:66::1/64")}},
		netnstest.End{Host: s.LB, Interface: "attacker", Addresses: []netip.Prefix{netip.MustParsePrefix("66.66.66.254/24"), netip.MustParsePrefix("2001:db8:66::fe/64")}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	many := netip.MustParsePrefix("10.98.0.0/16")
	for to, via := range map[string]string{"0.0.0.0/0": "66.66.66.1", "::/0": "2001:db8:66::1", many.String(): netnstest.StandardNetworks()[0].V4.Addr().String()} {
		if err := s.LB.AddRoute(netip.MustParsePrefix(to), netip.MustParseAddr(via)); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Run(t, s.Client, "ip", "route", "add", "local", many.String(), "dev", "lo")
	return h
}

// connectFrom connects from client address number i, exchanges a line, and returns how long that
// took.
func connectFrom(r *rig.Rig, i int) (time.Duration, error) {
	began := time.Now()
	var c net.Conn
	err := r.Client.Do(func() (err error) {
		d := net.Dialer{Timeout: rig.Patience, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 98, byte(i >> 8), byte(i)}), 0))}
		c, err = d.Dial("tcp4", rig.Join(rig.VIP4, 7))
		return err
	})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return time.Since(began), rig.Exchange(c, "hello")
}

// floodVIPs sends SYNs to both VIPs, as fast as one thread can, until ctx ends.
func floodVIPs(ctx context.Context, r *rig.Rig, attacker *netnstest.Host) error {
	frames, err := floodFrames(r, attacker)
	if err != nil {
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
		sent, began := 0, time.Now()
		for ctx.Err() == nil {
			if _, err := unix.Write(fd, frames[sent%len(frames)]); err != nil && !errors.Is(err, syscall.ENOBUFS) {
				return err
			}
			sent++
		}
		r.T.Logf("%d SYNs in %v", sent, time.Since(began))
		return nil
	})
}

// floodFrames returns SYNs, alternately of each IP version, all from different addresses.
func floodFrames(r *rig.Rig, attacker *netnstest.Host) (frames [][]byte, err error) {
	from, err := attacker.MAC("eth0")
	if err != nil {
		return nil, err
	}
	to, err := r.LB.MAC("attacker")
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range uint32(floodSources) {
		v4, v6 := [4]byte{}, [16]byte{0x2a}
		binary.BigEndian.PutUint32(v4[:], 128<<24|i<<8|1)
		binary.BigEndian.PutUint32(v6[4:], i)
		for _, src := range []netip.Addr{netip.AddrFrom4(v4), netip.AddrFrom16(v6)} {
			vip := map[bool]string{true: rig.VIP4, false: rig.VIP6}[src.Is4()]
			p := pkt.New(pkt.TCP).SetSrc(netip.AddrPortFrom(src, uint16(1024+random.IntN(60000)))).SetDst(netip.MustParseAddrPort(rig.Join(vip, 7))).
				SetNum(pkt.Flags, pkt.FlagSYN).SetNum(pkt.Seq, uint64(random.Uint32())).Set(pkt.From, pkt.MAC(from)).Set(pkt.To, pkt.MAC(to))
			frames = append(frames, p.Build())
		}
	}
	return frames, nil
}
