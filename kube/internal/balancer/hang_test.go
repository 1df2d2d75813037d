package balancer

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestHang checks that the VIPs of a MASTER whose daemon hangs move only after its lease has ended:
// its kernel still balances, and two nodes must never own them.
func TestHang(t *testing.T) {
	t.Parallel()
	remotes := []*remote{newRemote(t, nil, plain), newRemote(t, nil, plain)}
	slices.SortFunc(remotes, func(a, b *remote) int { return strings.Compare(a.URL, b.URL) })
	f := newFleet(t, Options{Roles: Roles{VIP: netip.IPv4Unspecified(), Instances: 1}}, Access{}, remotes...)
	if err := f.round(t); err != nil {
		t.Fatal(err)
	}
	elected := newElection()
	f.electOnce(t.Context(), elected)
	first := f.members[remotes[0].URL]
	if elected.masters["llb-inst0"] != first.URL {
		t.Fatalf("the elected MASTERs are %v, want %s", elected.masters, first.URL)
	}

	remotes[0].dead.Store(true)
	first.mu.Lock()
	first.answered = time.Now().Add(-10 * time.Second) // the next poll of a starved controller is late
	first.mu.Unlock()
	began := time.Now()
	_, err := first.sync(t.Context())
	if !errors.Is(err, errHangs) {
		t.Fatalf("a poll of the hanging node fails with %v, want %v", err, errHangs)
	}
	first.recordSync(t.Context(), err)
	f.electOnce(t.Context(), elected)
	if got := elected.masters["llb-inst0"]; got != first.URL {
		t.Error("the VIPs have moved although the kernel of the MASTER answers for them")
	}
	if away := elected.awaySince[first.URL]; away.Before(began) {
		t.Errorf("the MASTER counts as away %v before the poll that it did not answer", began.Sub(away))
	}
	elected.awaySince[first.URL] = time.Now().Add(-restartTime)
	f.electOnce(t.Context(), elected)
	if got := elected.masters["llb-inst0"]; got != remotes[1].URL {
		t.Error("the VIPs have not moved after the lease")
	}
}

// TestDeadNode checks that a poll takes only a node for dead that does not answer at all, not one
// that refuses connections, nor one that accepts them for a daemon that hangs.
func TestDeadNode(t *testing.T) {
	t.Parallel()
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hangs.Close() })
	for what, tc := range map[string]struct {
		address        string
		alive, hanging bool
	}{
		"accepts connections": {hangs.Addr().String(), true, true},
		"refuses connections": {refusingNode(t), true, false},
		"answers nothing":     {deadNode(t), false, false},
	} {
		c, err := NewClient(&url.URL{Scheme: "http", Host: tc.address}, Access{})
		if err != nil {
			t.Fatal(err)
		}
		m := newMember(nil, Target{URL: "http://" + tc.address, Client: c})
		began := time.Now()
		_, err = m.poll(t.Context())
		if got := isAliveError(err); got != tc.alive {
			t.Errorf("a node that %s counts as alive: %v (%v)", what, got, err)
		}
		if got := errors.Is(err, errHangs); got != tc.hanging {
			t.Errorf("a node that %s counts as one whose daemon hangs: %v (%v)", what, got, err)
		}
		if took := time.Since(began); took > 2*pollTimeout {
			t.Errorf("a node that %s: the poll took %v", what, took)
		}
	}
}
