package modes_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// localFamily has the addresses of one IP version for an endpoint on the load balancer's own host.
type localFamily struct{ vip, endpoint, remote, sees, own string }

func localFamilies() []localFamily {
	return []localFamily{
		{rig.VIP4, "31.31.31.254", "32.32.32.1", "100.100.100.1", "31.31.31.254"},
		{rig.VIP6, "[2001:db8:31::fe]", "[2001:db8:32::1]", "2001:db8:100::1", "2001:db8:31::fe"},
	}
}

// serveLocalSources starts the servers of ServeSource on the load balancer's host and on the
// endpoints. The host's UDP server listens at one address: otherwise, the kernel would reply from
// another one.
func serveLocalSources(r *rig.Rig) {
	r.T.Helper()
	rig.ServeSources(r)
	r.ServeSource(r.LB, ":7000", "31.31.31.254:7000", "[2001:db8:31::fe]:7000")
	if err := r.LB.ServeTCP(":7", netnstest.Echo); err != nil {
		r.T.Fatal(err)
	}
}

// TestLocalEndpoint checks that an endpoint on the load balancer's own host, alone or with other
// endpoints, sees the client's address in every mode, and that clients see replies from the VIP.
func TestLocalEndpoint(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"auto", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Options{Args: []string{"--attach=" + hook}})
			serveLocalSources(r)
			for _, f := range localFamilies() {
				for _, network := range []string{"tcp", "udp"} {
					for _, mode := range []string{"default", "onearm", "fullnat"} {
						r.Loxicmd("create lb %s --%s=80:7000 --endpoints=%s:1 --mode=%s", f.vip, network, f.endpoint, mode)
						r.WantSource(r.Client, network, rig.Join(f.vip, 80), f.sees)
						r.WantSource(r.Endpoints[2], network, rig.Join(f.vip, 80), rig.HostAddress(r.Endpoints[2], f.vip == rig.VIP6))
					}
					r.WantSource(r.LB, network, rig.Join(f.vip, 80), f.own)
					r.Loxicmd("create lb %s --%s=81:7000 --endpoints=%s:1,%s:1", f.vip, network, f.endpoint, f.remote)
					for range 4 {
						r.WantSource(r.Client, network, rig.Join(f.vip, 81), f.sees)
					}
				}
				r.Loxicmd("create lb %s --icmp --endpoints=%s:1", f.vip, f.endpoint)
				if out, err := r.Client.Run("ping", "-c3", "-i0.2", "-W2", f.vip); err != nil {
					t.Errorf("echo: %v %s", err, out)
				}
			}
		})
	}
}

// TestLocalEndpointTransfer transfers a megabyte in both directions with segmentation offload, and
// fragmented datagrams. The client is notified of a closed port.
func TestLocalEndpointTransfer(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	serveLocalSources(r)
	for _, f := range localFamilies() {
		r.Loxicmd("create lb %s --tcp=80:7 --endpoints=%s:1", f.vip, f.endpoint)
		r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s:1", f.vip, f.endpoint)
		r.Loxicmd("create lb %s --udp=54:9 --endpoints=%s:1", f.vip, f.endpoint)
		if err := r.LB.ServeUDPEcho(f.endpoint + ":5353"); err != nil {
			t.Fatal(err)
		}
		if err := roundTrip(r.Dial(rig.Join(f.vip, 80)), 1<<20); err != nil {
			t.Errorf("%s: %v", f.vip, err)
		}
		for _, size := range []int{10, 1400, 4000, 20000} {
			text := strings.Repeat("x", size)
			got, err := rig.Datagram(rig.DialUDP(t, r, rig.Join(f.vip, 53)), text)
			if want := r.LB.Name + ": " + text; err != nil || got != want {
				t.Errorf("%s, %d bytes: got %d bytes back, want %d: %v", f.vip, size, len(got), len(want), err)
			}
		}
		if got, err := rig.Datagram(rig.DialUDP(t, r, rig.Join(f.vip, 54)), "nobody"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %q %v, want connection refused", f.vip, got, err)
		}
	}
}

// roundTrip sends bytes to an echo server and checks their echo.
func roundTrip(c *net.TCPConn, size int) error {
	data := make([]byte, size)
	_, _ = rand.Read(data)
	sent := make(chan error, 1)
	if err := c.SetDeadline(time.Now().Add(2 * rig.Patience)); err != nil {
		return err
	}
	go func() {
		_, err := io.Copy(c, bytes.NewReader(data))
		sent <- errors.Join(err, c.CloseWrite())
	}()
	back, err := io.ReadAll(c)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if sha256.Sum256(back) != sha256.Sum256(data) {
		return fmt.Errorf("%d bytes came back, want the %d that were sent", len(back), size)
	}
	return nil
}

// TestLocalEndpointAddedAndRemoved checks that outgoing packets are examined only while an endpoint
// is on the host, whether a new service or a new address makes it local. Connections survive a
// restart.
func TestLocalEndpointAddedAndRemoved(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	serveLocalSources(r)
	examinesOutgoing := func() bool {
		return slices.ContainsFunc(r.Pins(), func(p string) bool { return strings.Contains(p, "/leaving/") })
	}
	r.Loxicmd("create lb %s --tcp=80:7000 --endpoints=32.32.32.1:1", rig.VIP4)
	if examinesOutgoing() {
		t.Error("outgoing packets are examined without an endpoint on the host")
	}
	r.Loxicmd("create lb %s --tcp=81:7000 --endpoints=31.31.31.254:1", rig.VIP4)
	c := r.WantSource(r.Client, "tcp", rig.Join(rig.VIP4, 81), "100.100.100.1")
	if !examinesOutgoing() {
		t.Error("outgoing packets are not examined")
	}
	r.Kill()
	if got, err := rig.AskSource(c); err != nil || got != "100.100.100.1" {
		t.Errorf("without the daemon: %q, %v", got, err)
	}
	r.Restart()
	if got, err := rig.AskSource(c); err != nil || got != "100.100.100.1" {
		t.Errorf("after a restart: %q, %v", got, err)
	}
	r.Loxicmd("delete lb %s --tcp=81", rig.VIP4)
	await.True(t, 30*time.Second, "what leaves is left alone", func() bool { return !examinesOutgoing() })
	r.Loxicmd("create lb %s --tcp=82:7000 --endpoints=31.31.31.99:1", rig.VIP4)
	if err := r.LB.AddAddress("ep1", rig.Prefix("31.31.31.99/24")); err != nil {
		t.Fatal(err)
	}
	await.True(t, rig.Patience, "an endpoint whose address comes to the host is noticed", examinesOutgoing)
	r.WantSource(r.Client, "tcp", rig.Join(rig.VIP4, 82), "100.100.100.1")
}
