package network_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/pkt"
	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// clearText counts the TCP and UDP packets that a host's eth0 receives from or for a set of ports.
// It does not count ESP.
type clearText struct {
	file   *os.File
	frames atomic.Int64
	last   atomic.Pointer[string]
	lastAt atomic.Int64 // Unix time in nanoseconds
}

func watchClearText(t *testing.T, h *netnstest.Host, counts func(p *pkt.Packet) bool) *clearText {
	t.Helper()
	w := &clearText{}
	err := h.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		w.file = os.NewFile(uintptr(fd), "capture")
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.file.Close() })
	go w.read(counts)
	return w
}

func (w *clearText) read(counts func(p *pkt.Packet) bool) {
	buf := make([]byte, 1<<17)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		p := pkt.Decode(buf[:n])
		if (p.Proto == pkt.TCP || p.Proto == pkt.UDP || p.Proto == pkt.ICMP) && counts(p) {
			text := p.String()
			w.last.Store(&text)
			w.lastAt.Store(time.Now().UnixNano())
			w.frames.Add(1)
		}
	}
}

// dialer is constant traffic of a client: new connections, a flow and an open connection, which
// continue after errors.
type dialer struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startDialer(t *testing.T, r *rig.Rig, vip string) *dialer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d := &dialer{cancel: cancel}
	each := func(f func()) {
		d.done.Go(func() {
			for ctx.Err() == nil {
				f()
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	tcp, udp := r.Dial(rig.Join(vip, 80)), rig.DialUDP(t, r, rig.Join(vip, 53))
	each(func() {
		_ = tcp.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, _ = tcp.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	})
	each(func() { _, _ = udp.Write([]byte("of a flow")) })
	each(func() {
		short, done := context.WithTimeout(ctx, 20*time.Millisecond)
		defer done()
		if c, err := r.Client.DialContext(short, "tcp", rig.Join(vip, 80)); err == nil {
			_ = c.Close()
		}
		if c, err := r.Client.DialContext(short, "udp", rig.Join(vip, 53)); err == nil {
			_, _ = c.Write([]byte("of a new flow"))
			_ = c.Close()
		}
	})
	t.Cleanup(d.stop)
	return d
}

func (d *dialer) stop() {
	d.cancel()
	d.done.Wait()
}

// ipsecCase is an IPsec policy that covers the only endpoint of a service, or its replies.
type ipsecCase struct {
	name    string
	do      string // %[1]s: endpoint, %[2]s: VIP, %[3]s: network of the client, %[4]s: all addresses
	undo    string
	answers bool   // the policy covers replies to clients, not packets to the endpoint
	partial bool   // the policy covers some clients only: the endpoint is not down
	text    string // of the finding; %s: network of the client, if partial
}

func ipsecCases() []ipsecCase {
	const flush = "ip xfrm policy flush"
	return []ipsecCase{
		{name: "block", do: "ip xfrm policy add dir out dst %[1]s action block", undo: flush, text: "action block"},
		{name: "ESP transport", do: "ip xfrm policy add dir out src %[4]s dst %[1]s tmpl proto esp mode transport", undo: flush, text: "tmpl"},
		{name: "ESP tunnel", do: "ip xfrm policy add dir out src %[4]s dst %[1]s tmpl src %[2]s dst %[1]s proto esp mode tunnel", undo: flush, text: "tmpl"},
		{name: "AH", do: "ip xfrm policy add dir out src %[4]s dst %[1]s tmpl proto ah mode transport", undo: flush, text: "tmpl"},
		{name: "default block", do: "ip xfrm policy setdefault out block", undo: "ip xfrm policy setdefault out accept", answers: true, text: "default out block"},
		{name: "forward block", do: "ip xfrm policy add dir fwd dst %[1]s action block", undo: flush, text: "dir fwd action block"},
		{name: "forward default block", do: "ip xfrm policy setdefault fwd block", undo: "ip xfrm policy setdefault fwd accept", text: "default fwd block"},
		{name: "answers", do: "ip xfrm policy add dir out src %[2]s tmpl proto esp mode transport", undo: flush, answers: true, text: "tmpl"},
		{
			name: "answers to some", do: "ip xfrm policy add dir out src %[2]s dst %[3]s tmpl proto esp mode transport",
			undo: flush, answers: true, partial: true, text: "answers to clients in %s are refused",
		},
		{
			name: "site to site", do: "ip xfrm policy add dir out src %[4]s dst %[3]s tmpl proto esp mode transport",
			undo: flush, answers: true, partial: true, text: "answers to clients in %s are refused",
		},
		{name: "some clients", do: "ip xfrm policy add dir out src %[3]s dst %[1]s action block", undo: flush, partial: true, text: "packets from clients in %s, such as"},
	}
}

// TestIPsec checks that, one second after an IPsec policy was added for packets to an endpoint or
// its replies, no packet of its connections leaves in clear text. The status names the policy, and
// the service works again after the policy was deleted.
func TestIPsec(t *testing.T) {
	t.Parallel()
	for _, six := range []bool{false, true} {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[six], func(t *testing.T) {
			t.Parallel()
			checkIPsec(t, six)
		})
	}
}

func checkIPsec(t *testing.T, is6 bool) {
	t.Helper()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	r.ServeUDPEcho()
	vip, everything, clients := rig.VIP4, "0.0.0.0/0", "100.100.100.0/24"
	if is6 {
		vip, everything, clients = rig.VIP6, "::/0", "2001:db8:100::/64"
	}
	endpoint := rig.HostAddress(r.Endpoints[0], is6)
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s:1", vip, rig.Bracket(endpoint))
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s:1", vip, rig.Bracket(endpoint))
	ours := watchClearText(t, r.Endpoints[0], func(p *pkt.Packet) bool {
		port := p.DstAddr().Port()
		return port == 5001 || port == 5353
	})
	theirs := watchClearText(t, r.Client, func(p *pkt.Packet) bool { return p.SrcAddr().Addr().String() == vip })
	for _, c := range ipsecCases() {
		c.check(t, r, vip, []any{endpoint, vip, clients, everything}, ours, theirs)
	}
	if is6 {
		return
	}
	r.Loxicmd("create lb 20.20.20.9 --tcp=80:5001 --mode=fullnat --endpoints=%s:1", endpoint)
	vip9 := rig.Join("20.20.20.9", 80)
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error { return served(ctx, r, vip9) })
	rig.MustRun(t, r.LB, "ip", "xfrm", "policy", "add", "dir", "out", "src", "20.20.20.9", "dst", endpoint, "action", "block")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		out, _ := r.Command("explain", "--from", "100.100.100.1", "--to", vip9)
		if !strings.Contains(out, "an IPsec policy covers packets to it") {
			return fmt.Errorf("explain does not name the policy: %s", out)
		}
		return nil
	})
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error { return served(ctx, r, rig.Join(vip, 80)) })
}

func (c *ipsecCase) check(t *testing.T, r *rig.Rig, vip string, args []any, ours, theirs *clearText) {
	t.Helper()
	address := rig.Join(vip, 80)
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error { return served(ctx, r, address) })
	d := startDialer(t, r, vip)
	before := ours.frames.Load()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if ours.frames.Load() < before+20 {
			return fmt.Errorf("%s: the capture does not see the traffic", c.name)
		}
		return nil
	})
	dropped := r.Metric("drops_total", "reason=ipsec-policy")
	rig.MustRun(t, r.LB, strings.Fields(c.command(args))...)
	added := time.Now().UnixNano()
	// The promised time is a second. On a busy machine, packets that left before are counted later.
	await.Quiet(t, rig.Patience/2, time.Second, func() (n int64) {
		if c.forbidsPackets() {
			n += ours.frames.Load()
		}
		if c.answers {
			n += theirs.frames.Load()
		}
		return n
	})
	leaked, told := ours.frames.Load(), theirs.frames.Load()
	await.Steady(t, 1500*time.Millisecond, func() error {
		if n := ours.frames.Load() - leaked; n != 0 && c.forbidsPackets() {
			return fmt.Errorf("%s: %d packets to the endpoint left in clear text, such as %s", c.name, n, *ours.last.Load())
		}
		if n := theirs.frames.Load() - told; n != 0 && c.answers {
			return fmt.Errorf("%s: %d packets to the client left in clear text, such as %s", c.name, n, *theirs.last.Load())
		}
		return nil
	})
	t.Logf("%s: the last packets to the endpoint and the client %v and %v after the policy was added", c.name,
		time.Duration(ours.lastAt.Load()-added), time.Duration(theirs.lastAt.Load()-added))
	if c.partial || strings.Contains(c.name, "answers") {
		if n := r.Metric("drops_total", "reason=ipsec-policy"); n == dropped {
			t.Errorf("%s: nothing was dropped as ipsec-policy", c.name)
		}
	}
	text := c.text
	if c.partial {
		text = fmt.Sprintf(c.text, args[2])
	} else {
		r.EventuallyShows("get lb -o wide", "down")
		r.EventuallyShows("get status --failed -o json", "IPsec policy", text)
	}
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if out, _ := r.Command("doctor"); strings.Count(out, "are refused") != 1 || !strings.Contains(out, text) {
			return fmt.Errorf("doctor does not name the policy exactly once: %s", out)
		}
		out, _ := r.Command("get", "status", "--failed", "-o", "json") // the same texts as in the log
		if c.partial && (strings.Count(out, "are refused") != 1 || !strings.Contains(out, text)) {
			return fmt.Errorf("the problem is not listed exactly once: %s", out)
		}
		return nil
	})
	if _, err := r.LB.Run("sh", "-c", c.undo); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error { return served(ctx, r, address) })
	d.stop()
}

// forbidsPackets reports whether the policy forbids all packets to the endpoint.
func (c *ipsecCase) forbidsPackets() bool { return !c.answers || strings.HasPrefix(c.name, "default") }

// command returns the commands that add the policy.
func (c *ipsecCase) command(args []any) string {
	if !strings.Contains(c.do, "%") {
		return c.do
	}
	all := c.do + "%[1]s%[2]s%[3]s%[4]s" // uses each argument, as vet wants
	out := fmt.Sprintf(all, args...)
	return strings.TrimSuffix(out, fmt.Sprint(args[0])+fmt.Sprint(args[1])+fmt.Sprint(args[2])+fmt.Sprint(args[3]))
}
