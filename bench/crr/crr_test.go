package crr

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"loxilb/test/await"
)

// freePort finds a port that nobody listens on.
func freePort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// TestExchange: what the client counts, the server answered; connections are kept or not, as asked.
func TestExchange(t *testing.T) {
	for _, keep := range []bool{false, true} {
		address, s := freePort(t), new(Server)
		go func() { _ = s.Serve(address, keep) }()
		await.NoError(t, 10*time.Second, func() error {
			c, err := net.Dial("tcp", address.String())
			if err == nil {
				err = c.Close()
			}
			return err
		})
		_, before := s.Counts()
		r := Load{Address: address, Streams: 3, Duration: 100 * time.Millisecond, Keep: keep}.Run()
		exchanges, connections := s.Counts()
		if r.Errors > 0 || r.Exchanges == 0 || uint64(r.Exchanges) != exchanges {
			t.Errorf("keep %v: %+v, the server answered %d", keep, r, exchanges)
		}
		// The connection that asked whether the server is there may be taken late. On a busy
		// machine, a stream may not begin before the time is over.
		fewest, most := exchanges, exchanges+1
		if keep {
			fewest, most = 1, 3+1
		}
		if n := connections - before; n < fewest || n > most {
			t.Errorf("keep %v: %d connections for %d exchanges", keep, n, exchanges)
		}
		if !(r.Min > 0 && r.Min <= r.P50 && r.P50 <= r.P99 && r.Min <= r.Mean) {
			t.Errorf("times are in no order: %+v", r)
		}
	}
}

// TestNobodyThere: a client that cannot connect ends soon, and says why.
func TestNobodyThere(t *testing.T) {
	start := time.Now()
	r := Load{Address: freePort(t), Streams: 2, Duration: 10 * time.Second}.Run()
	if r.Errors == 0 || r.FirstErr == "" || r.Exchanges > 0 || time.Since(start) > 5*time.Second {
		t.Errorf("%+v after %v", r, time.Since(start))
	}
}
