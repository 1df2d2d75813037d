package labtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestStandard checks that every endpoint answers the client by both IP versions once the
// balancer's namespace routes.
func TestStandard(t *testing.T) {
	t.Parallel()
	for _, mtu := range []int{1500, 9000} {
		t.Run(fmt.Sprintf("mtu%d", mtu), func(t *testing.T) {
			t.Parallel()
			s := labtest.Standard(t, netnstest.Options{MTU: mtu, Forwarding: true})
			for i, n := range netnstest.StandardNetworks()[1:] {
				if err := s.Endpoints[i].ServeHTTP(":5001"); err != nil {
					t.Fatal(err)
				}
				for _, a := range []netip.Addr{n.V4.Addr(), n.V6.Addr()} {
					labtest.Eventually(t, 5*time.Second, func(ctx context.Context) error {
						who, err := s.Client.Get(ctx, netip.AddrPortFrom(a, 5001).String())
						if err == nil && who != n.Host {
							err = fmt.Errorf("%s answers at %v", who, a)
						}
						return err
					})
				}
			}
			link, err := s.LB.Netlink().LinkByName("ep2")
			if err != nil || link.Attrs().MTU != mtu {
				t.Fatalf("MTU of ep2 is not %d: %+v, %v", mtu, link, err)
			}
		})
	}
}

// TestForwardingOff checks that the balancer's namespace forwards no packets without the option
// Forwarding.
func TestForwardingOff(t *testing.T) {
	t.Parallel()
	s := labtest.Standard(t, netnstest.Options{})
	for _, a := range []string{"100.100.100.254", "31.31.31.254"} {
		if out, err := s.Client.Run("ping", "-c1", "-W2", a); err != nil {
			t.Errorf("the balancer does not answer at %s: %v", a, err)
		} else if !strings.Contains(out, "1 received") {
			t.Errorf("the balancer does not answer at %s: %s", a, out)
		}
	}
	if _, err := s.Client.Run("ping", "-c1", "-W1", "31.31.31.1"); err == nil {
		t.Error("an endpoint answers although forwarding is off")
	}
}

// TestCloseRemovesEverything checks that Close ends processes and removes namespaces.
func TestCloseRemovesEverything(t *testing.T) {
	t.Parallel()
	l, err := netnstest.New()
	if err != nil {
		t.Fatal(err)
	}
	h, err := l.Host("a")
	if err != nil {
		t.Fatal(err)
	}
	p, err := h.Start(netnstest.Command{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) {
		t.Errorf("the process was not ended by a signal: %v", err)
	}
	if _, err := os.Stat(h.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the namespace still exists: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestReaper checks that New removes namespaces of killed processes, and keeps those of running
// ones.
func TestReaper(t *testing.T) {
	t.Parallel()
	living := labtest.New(t)
	kept, err := living.Host("kept")
	if err != nil {
		t.Fatal(err)
	}
	// A process id that was recently in use.
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf("lab%d-1-left", dead.Process.Pid)
	out, err := exec.Command("ip", "netns", "add", left).CombinedOutput()
	for range 5 {
		if !strings.Contains(string(out), "No such file or directory") {
			break // otherwise the lab of another test has already removed it
		}
		out, err = exec.Command("ip", "netns", "add", left).CombinedOutput()
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	labtest.New(t)
	if _, err := os.Stat("/run/netns/" + left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("namespace %s of a dead process still exists: %v", left, err)
	}
	if _, err := os.Stat(kept.Path()); err != nil {
		t.Errorf("the namespace of a running process was removed: %v", err)
	}
}
