package balancer

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"loxilb/internal/api/httpapi"
)

// TestDeparted deletes the pod of the MASTER. Its VIPs stay while its node answers, since the
// daemon is being replaced, and move if the node no longer answers, as one that is shut down.
func TestDeparted(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		node  string
		stays bool
	}{
		"its node refuses connections": {refusingNode(t), true},
		"its node is dead":             {deadNode(t), false},
	} {
		other := newRemote(t, nil, plain)
		f := newFleet(t, Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: 1}}, Access{}, other)
		if err := f.round(t); err != nil {
			t.Fatal(err)
		}
		before := "http://" + tc.node
		elected := newElection()
		elected.masters["llb-inst0"] = before
		for range missedPolls {
			if f.electOnce(t.Context(), elected); elected.masters["llb-inst0"] != before {
				break
			}
		}
		if stays := elected.masters["llb-inst0"] == before; stays != tc.stays {
			t.Errorf("%s: the VIPs stay: %v", what, stays)
		}
	}
}

// TestForgetDeparted checks that elections do not remember departed balancers: they would add up in
// a cluster whose nodes come and go for years.
func TestForgetDeparted(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: 1}}, Access{}, r)
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	elected := newElection()
	gone := "http://" + refusingNode(t)
	elected.masters["llb-inst0"] = gone
	f.electOnce(t.Context(), elected)
	if len(elected.awaySince) != 1 {
		t.Fatalf("a MASTER that may be restarting is not waited for: %v", elected.awaySince)
	}
	elected.awaySince[gone] = time.Now().Add(-restartTime)
	f.electOnce(t.Context(), elected)
	if elected.masters["llb-inst0"] == gone || len(elected.awaySince) > 0 {
		t.Errorf("MASTERs are %v, and %v is remembered", elected.masters, elected.awaySince)
	}
}

// TestStartDuringReplacement starts a controller while the pod of the MASTER is replaced, so only a
// BACKUP is listed. It becomes MASTER only after replacementTime.
func TestStartDuringReplacement(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	r.Call("POST", httpapi.BaseURL+"/config/cistate", `{"instance":"llb-inst0","state":"BACKUP"}`, "Content-Type", "application/json")
	f := newFleet(t, Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: 1}}, Access{}, r)
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	elected := newElection()
	f.electOnce(t.Context(), elected)
	if got := masters(t, f, []*remote{r}); got != "" {
		t.Errorf("while the pod of the MASTER may be replaced, MASTERs are %q", got)
	}
	elected.onlyBackupsSince = time.Now().Add(-replacementTime)
	f.electOnce(t.Context(), elected)
	if got := masters(t, f, []*remote{r}); got != "0:0" {
		t.Errorf("after replacementTime, MASTERs are %q", got)
	}
}

// refusingNode returns an address that refuses connections.
func refusingNode(t *testing.T) string {
	t.Helper()
	ended, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ended.Close(); err != nil {
		t.Fatal(err)
	}
	return ended.Addr().String()
}

// deadNode returns an address that does not answer, like that of a machine without power: the
// kernel drops connections while the queue of a listener is full.
func deadNode(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*syscall.SockaddrInet4).Port)).String()
	for range 4 {
		conn, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("a full queue accepts connections")
	return ""
}
