package connections_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"loxilb/test/net/rig"
)

// runKill runs kill ct with the given flags, and returns the printed numbers of ended connections,
// and of those that were reset.
func runKill(r *rig.Rig, flags string) (ended, reset int) {
	r.T.Helper()
	out := r.Loxicmd("kill ct %s", flags)
	m := regexp.MustCompile(`^(\d+) connections ended, (\d+) of them with a RST or ABORT`).FindStringSubmatch(out)
	if m == nil {
		r.T.Fatalf("kill ct %s: %s", flags, out)
	}
	ended, _ = strconv.Atoi(m[1])
	reset, _ = strconv.Atoi(m[2])
	return ended, reset
}

// TestKill checks, for each kind of translation, that the selected connections are reset at the
// requested rate, and that others continue.
func TestKill(t *testing.T) {
	t.Parallel()
	const each, rate = 20, 100
	r := rig.SharedAfter(t, enableStrictRPF)
	ended := serveCountedEcho(r)
	addresses := createTranslations(r, "")
	var chosen, others []*net.TCPConn
	for _, address := range addresses {
		chosen = append(chosen, openConnections(r, address, each)...)
	}
	r.Loxicmd("create lb 20.20.20.2 --tcp=80:7 --endpoints=%s", rig.Endpoints4())
	others = openConnections(r, rig.Join("20.20.20.2", 80), 3)
	stop := keepUsing(t, others)
	start := time.Now()
	sum, reset := 0, 0
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		n, m := runKill(r, fmt.Sprintf("--vip=%s --rate=%d", vip, rate))
		sum, reset = sum+n, reset+m
	}
	took := time.Since(start)
	if sum != len(chosen) || reset != sum {
		t.Errorf("%d connections ended, %d of them reset; want all %d", sum, reset, len(chosen))
	}
	if least := time.Duration(len(chosen)-2) * time.Second / rate; took < least-time.Second/10 {
		t.Errorf("%d connections ended within %v, want %d a second", sum, took, rate)
	}
	awaitResets(t, chosen, rig.Patience)
	stop()
	ended.wantResets(t, len(chosen))
	if n, _ := runKill(r, "--vip="+rig.VIP4); n != 0 {
		t.Errorf("%d connections were ended again", n)
	}
	if _, err := r.Command("kill", "ct"); err == nil {
		t.Error("kill ct without a filter is not refused")
	}
}

// TestKillTransfers checks that kill ct also ends transfers at full speed, in both directions.
func TestKillTransfers(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	for port, serve := range map[string]func(*net.TCPConn){
		":7000": func(c *net.TCPConn) { _, _ = io.Copy(c, zeros{}) },
		":7001": func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) },
	} {
		for _, h := range r.Endpoints {
			if err := h.ServeTCP(port, serve); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Loxicmd("create lb %s --tcp=7000:7000,7001:7001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	down, up := r.Dial(rig.Join(rig.VIP4, 7000)), r.Dial(rig.Join(rig.VIP4, 7001))
	done := make(chan error, 2)
	for _, c := range []*net.TCPConn{down, up} {
		if err := c.SetDeadline(time.Now().Add(2 * rig.Patience)); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _, err := io.Copy(io.Discard, down); done <- err }()
	go func() { _, err := io.Copy(up, zeros{}); done <- err }()
	for n := 0; n < 2; {
		m, _ := runKill(r, "--vip="+rig.VIP4+" --state=est")
		n += m
	}
	for range 2 {
		if err := <-done; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a transfer ended with %v, want a RST", err)
		}
	}
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestKillUDP checks that the next packet of a killed flow starts a new one.
func TestKillUDP(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeUDPEcho()
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	c, err := r.Client.DialContext(t.Context(), "udp", rig.Join(rig.VIP4, 53))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func() string {
		t.Helper()
		if err := c.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	first := ask()
	if again := ask(); again != first {
		t.Fatalf("%q, then %q", first, again)
	}
	if n, reset := runKill(r, "--proto=udp --source=100.100.100.0/24"); n != 1 || reset != 0 {
		t.Errorf("%d flows ended, %d reset; want 1, silently", n, reset)
	}
	if second := ask(); second == first {
		t.Errorf("the killed flow continues to %q", second)
	}
}
