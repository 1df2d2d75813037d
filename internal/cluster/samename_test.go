package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// TestSameName checks that a process at the address of a silent node replaces it, as the node has
// restarted, and that another node with its name does not.
func TestSameName(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 1)
	node, _ := all.start(0, newTable(), nil)
	greeting := func(boot string) string {
		return fmt.Sprintf(`{"version":2,"oldest":1,"node":"evil","self":-1,"boot":%q,"seed":%q,"slots":509}`, boot, transport.Fingerprint(0))
	}
	isSilent := func() bool {
		node.mu.Lock()
		s := node.sources["evil"]
		node.mu.Unlock()
		if s == nil {
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.isSuspected()
	}
	first, _ := all.connectAsNodeFrom(t, "127.0.0.1", greeting("first"))
	_, _ = first.Write(ping())
	eventually(t, "the node is not suspected", isSilent)
	if _, answer := all.connectAsNodeFrom(t, "127.0.0.9", greeting("twin")); !strings.Contains(answer, `both named \"evil\"`) {
		t.Errorf("a twin of a busy node gets %q", answer)
	}
	if _, answer := all.connectAsNodeFrom(t, "127.0.0.1", greeting("again")); answer == "" || strings.Contains(answer, "refused") {
		t.Errorf("a node that restarts gets %q", answer)
	}
}

// ping returns the frame of a ping.
func ping() []byte { return []byte{5, 0, 0, 0} }

// TestSecondAddress checks that a node distinguishes a second address of a node from a second node
// with its name.
func TestSecondAddress(t *testing.T) {
	t.Parallel()
	first := &peer{address: "10.0.0.1:1", boot: "one", now: report.ClusterPeer{Node: "a", State: report.PeerUp}}
	second := &peer{address: "10.0.0.2:1"}
	for boot, want := range map[string]string{"one": "it is another address of node", "two": "the nodes at 10.0.0.1 and 10.0.0.2 are both named"} {
		if err := first.conflictsWith(second, &transport.Hello{Node: "a", Boot: boot}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("boot %s: %v, want %q", boot, err, want)
		}
	}
	if err := first.conflictsWith(second, &transport.Hello{Node: "b", Boot: "one"}); err != nil {
		t.Error(err)
	}
}

// TestSelfAborted checks that a node recognizes itself although the attempt was aborted meanwhile:
// it would otherwise wait for itself when it starts.
func TestSelfAborted(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := attemptError(ended, transport.ErrSelf); !errors.Is(err, transport.ErrSelf) || errors.Is(err, context.Canceled) {
		t.Errorf("an aborted attempt to reach itself ends with %v", err)
	}
	if err := attemptError(ended, errors.New("reset")); !errors.Is(err, context.Canceled) {
		t.Errorf("an aborted attempt ends with %v", err)
	}
}
