package net_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wantRefused fails the test unless sending to the address is refused at once.
func (r *rig) wantRefused(network, address string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	start := time.Now()
	c, err := r.Client.DialContext(ctx, network, address)
	if err == nil {
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			r.t.Fatal(err)
		}
		if _, err = c.Write([]byte("hello")); err == nil {
			_, err = c.Read(make([]byte, 100))
		}
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		r.t.Errorf("%s %s: %v after %v, want connection refused", network, address, err, time.Since(start))
	}
}

// TestRefused: who sends to a service without endpoints, or to a port of an endpoint that nobody listens at, learns of
// it at once.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	for _, v := range []struct{ vip, none, all string }{
		{vip4, endpoints4(0, 0, 0), endpoints4()}, {vip6, endpoints6(0, 0, 0), endpoints6()},
	} {
		r.loxicmd("create lb %s --tcp=80:5001 --udp=80:5001 --endpoints=%s", v.vip, v.none)
		r.loxicmd("create lb %s --tcp=81:5999 --udp=81:5999 --endpoints=%s", v.vip, v.all)
		for _, port := range []int{80, 81} {
			r.wantRefused("tcp", join(v.vip, port))
			r.wantRefused("udp", join(v.vip, port))
		}
	}
	r.loxicmd("create lb %s --tcp=82:5001 --refuse=drop --endpoints=%s", vip4, endpoints4(0, 0, 0))
	r.wantNoAnswer(join(vip4, 82))
}

// TestTimeExceeded: a packet whose TTL ends at the balancer is answered by it.
func TestTimeExceeded(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip4, endpoints4())
	r.loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip6, endpoints6())
	for _, vip := range []string{vip4, vip6} {
		c := dialUDP(t, r, join(vip, 53)).(*net.UDPConn)
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var failed error
		err = raw.Control(func(fd uintptr) {
			if vip == vip4 {
				failed = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, 1),
					unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1))
				return
			}
			failed = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1))
		})
		if err := errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 100)); !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("%s: %v, want no route to host", vip, err)
		}
	}
}

// TestFragments: datagrams larger than a link go through in both directions.
func TestFragments(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	for _, h := range r.Endpoints {
		if err := h.ServeUDPEcho(":5353"); err != nil {
			t.Fatal(err)
		}
	}
	r.loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip4, endpoints4())
	r.loxicmd("create lb %s --udp=53:5353 --endpoints=%s", vip6, endpoints6())
	for _, vip := range []string{vip4, vip6} {
		for i, size := range []int{1473, 8000, 60000, 2959} {
			c := dialUDP(t, r, join(vip, 53))
			want := r.Endpoints[i%3].Name + ": " + strings.Repeat("x", size)
			if got, err := datagram(c, strings.Repeat("x", size)); err != nil || got != want {
				t.Errorf("%s size %d: got %d bytes, want %d: %v", vip, size, len(got), len(want), err)
			}
		}
	}
}

// TestPathMTU: a way that is narrower behind the balancer is found, and takes large transfers; so is one where the
// segments are limited beforehand.
func TestPathMTU(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	for i, h := range r.Endpoints {
		if err := h.ServeTCP(":5001", sumServer); err != nil {
			t.Fatal(err)
		}
		if _, err := r.LB.Run("ip", "link", "set", []string{"ep1", "ep2", "ep3"}[i], "mtu", "1400"); err != nil {
			t.Fatal(err)
		}
	}
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip4, endpoints4())
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip6, endpoints6())
	r.loxicmd("create lb %s --tcp=81:5001 --mss=1340 --endpoints=%s", vip4, endpoints4())
	for _, address := range []string{join(vip4, 80), join(vip6, 80), join(vip4, 81)} {
		if err := sendSummed(r.dial(address), 64<<20); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// sumServer reads to the end and answers with the sum of what it read.
func sumServer(c *net.TCPConn) {
	defer c.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, c); err == nil {
		_, _ = c.Write(sum.Sum(nil))
	}
}

// sendSummed sends that many bytes and wants their sum back.
func sendSummed(c *net.TCPConn, bytes int64) error {
	if err := c.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
		return err
	}
	sum := sha256.New()
	random := rand.NewChaCha8([32]byte{1})
	if _, err := io.Copy(io.MultiWriter(c, sum), io.LimitReader(random, bytes)); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && string(got) != string(sum.Sum(nil)) {
		err = errors.New("the endpoint received something else")
	}
	return err
}
