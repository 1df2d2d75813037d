package crr

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"loxilb/test/await"
)

// freePort finds a TCP port that is not in use.
func freePort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// TestExchange checks that the client's counts equal those of the server, and that connections are
// kept or closed as requested.
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
		// The connection that tests whether the server is up may be accepted late. On a busy
		// machine, a stream may begin only after the end of the measurement.
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

// TestLongAnswer checks that an answer of more than one byte is an error that says so.
func TestLongAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 2)
			_, _ = c.Read(b[:1])
			_, _ = c.Write(b)
			_ = c.Close()
		}
	}()
	r := Load{Address: l.Addr().(*net.TCPAddr).AddrPort(), Streams: 1, Duration: 10 * time.Second}.Run()
	if r.Exchanges > 0 || r.FirstErr != "the answer has more than one byte" {
		t.Errorf("%+v, want only errors about more than one byte", r)
	}
}

// TestNobodyThere checks that a client that cannot connect ends soon with an error.
func TestNobodyThere(t *testing.T) {
	start := time.Now()
	r := Load{Address: freePort(t), Streams: 2, Duration: 10 * time.Second}.Run()
	if r.Errors == 0 || r.FirstErr == "" || r.Exchanges > 0 || time.Since(start) > 5*time.Second {
		t.Errorf("%+v after %v", r, time.Since(start))
	}
}
