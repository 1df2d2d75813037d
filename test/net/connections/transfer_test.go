package connections_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"loxilb/test/net/rig"
)

// TestTransfer transfers data in both directions over one connection, the second time after a
// half-close. With -long, it is a gibibyte.
func TestTransfer(t *testing.T) {
	t.Parallel()
	volume := rig.TransferSize()
	r := rig.Shared(t)
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":5001", rig.ServeTransfer(volume)); err != nil {
			t.Fatal(err)
		}
	}
	r.Loxicmd("create lb %s --tcp=9:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --tcp=9:5001 --endpoints=%s", rig.VIP6, rig.Endpoints6())
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		start := time.Now()
		if err := rig.Transfer(r.Dial(rig.Join(vip, 9)), volume); err != nil {
			t.Errorf("%s: %v", vip, err)
		}
		t.Logf("%s: %d MiB in %v", vip, 2*volume>>20, time.Since(start).Round(time.Millisecond))
	}
}

// TestHalfClose checks that one end can send without a limit after the other one has finished
// sending, for both ends.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	proceed := make(chan struct{})
	serverFirst := func(c *net.TCPConn) { // closes its sending side first, and still reads
		if c.CloseWrite() != nil {
			return
		}
		line, err := io.ReadAll(c)
		if err == nil && string(line) == "after your end" {
			proceed <- struct{}{}
		}
	}
	clientFirst := func(c *net.TCPConn) { // replies after the client has finished
		text, err := io.ReadAll(c)
		if err == nil {
			<-proceed
			_, _ = c.Write(append([]byte("got "), text...))
		}
	}
	if err := errors.Join(r.Endpoints[0].ServeTCP(":1", serverFirst), r.Endpoints[0].ServeTCP(":2", clientFirst)); err != nil {
		t.Fatal(err)
	}
	r.Loxicmd("create lb %s --tcp=1:1,2:2 --endpoints=31.31.31.1:1", rig.VIP4)

	slow := r.Dial(rig.Join(rig.VIP4, 2))
	_, err := slow.Write([]byte("all"))
	if err = errors.Join(err, slow.CloseWrite(), slow.SetDeadline(time.Now().Add(rig.Patience))); err != nil {
		t.Fatal(err)
	}

	c := r.Dial(rig.Join(rig.VIP4, 1))
	if err := c.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Fatalf("after the endpoint's half-close: got %q, %v", rest, err)
	}
	if _, err := c.Write([]byte("after your end")); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	// serverFirst has read the line and lets clientFirst reply.
	if text, err := io.ReadAll(slow); err != nil || string(text) != "got all" {
		t.Errorf("after the client's half-close: got %q, %v", text, err)
	}
}
