package crr

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Load describes a client's load.
type Load struct {
	Address  netip.AddrPort
	Streams  int // exchanges at once
	Duration time.Duration
	Protocol int          // of the socket; 0: TCP, IPPROTO_SCTP: the kernel's SCTP
	Keep     bool         // one connection for each stream instead of one for each exchange
	Sources  []netip.Addr // source addresses, used in turn; none: the kernel chooses
}

// Report is the client's result. Times are in microseconds.
type Report struct {
	Rate      float64 `json:"rate"` // exchanges a second
	Exchanges int     `json:"exchanges"`
	Errors    int     `json:"errors"`
	FirstErr  string  `json:"first_error,omitempty"`
	Min       float64 `json:"min_us"`
	Mean      float64 `json:"mean_us"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
}

// answerTimeout is the longest time for an answer; a later answer is an error.
const answerTimeout = 3 * time.Second

// stream is one client at work.
type stream struct {
	load Load
	to   unix.Sockaddr
	fd   int // -1: not connected
	next int // source, of the next connection
	took []time.Duration
	errs []error
}

// Run makes exchanges until the time is over. In each stream, an exchange starts when the previous
// one is answered.
func (l Load) Run() Report {
	// A stream blocks in system calls, as netperf does: the runtime's poller would add a thread
	// switch to each. If the runtime has idle processors (Ps), a blocked thread keeps its
	// own, so its return costs nothing.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(l.Streams + 4))
	streams := make([]stream, l.Streams)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range streams {
		streams[i] = stream{load: l, to: sockaddr(l.Address), fd: -1, next: i, took: make([]time.Duration, 0, 1<<16)}
		wg.Go(func() {
			runtime.LockOSThread()
			streams[i].run(start.Add(l.Duration))
		})
	}
	wg.Wait()
	return report(streams, time.Since(start))
}

func (s *stream) run(end time.Time) {
	defer s.close()
	for t := time.Now(); t.Before(end); {
		err := s.exchange()
		now := time.Now()
		if err != nil {
			s.errs = append(s.errs, err)
			s.close()
			if len(s.errs) > 100 {
				return
			}
		} else {
			s.took = append(s.took, now.Sub(t))
		}
		t = now
	}
}

// exchange sends a byte and waits for one. Without Keep it opens a connection first and waits for
// the server to close it: the side that closes first keeps the port for a minute, and the client
// has only 64,000.
func (s *stream) exchange() error {
	if s.fd < 0 {
		if err := s.connect(); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}
	var b [1]byte
	if _, err := retry(func() (int, error) { return unix.Write(s.fd, b[:]) }); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	n, err := retry(func() (int, error) { return unix.Read(s.fd, b[:]) })
	if err == nil && n == 0 {
		err = errors.New("closed without an answer")
	}
	if err != nil || s.load.Keep {
		return err
	}
	n, err = retry(func() (int, error) { return unix.Read(s.fd, b[:]) })
	if err != nil {
		return fmt.Errorf("wait for the server to close: %w", err)
	}
	if n != 0 {
		return errors.New("the answer has more than one byte")
	}
	s.close()
	return nil
}

func (s *stream) connect() error {
	family := unix.AF_INET
	if s.load.Address.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, s.load.Protocol)
	if err != nil {
		return err
	}
	s.fd = fd
	if err := noDelay(fd, s.load.Protocol); err != nil {
		return err
	}
	limit := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	for _, o := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, o, &limit); err != nil {
			return err
		}
	}
	if err := s.bind(); err != nil {
		return err
	}
	// After an interrupt, calling connect again continues it.
	_, err = retry(func() (int, error) { return 0, unix.Connect(fd, s.to) })
	return err
}

// noDelay lets a socket send each byte at once.
func noDelay(fd, protocol int) error {
	const sctpNoDelay = 3 // SCTP_NODELAY of linux/sctp.h
	if protocol == unix.IPPROTO_SCTP {
		return unix.SetsockoptInt(fd, unix.IPPROTO_SCTP, sctpNoDelay, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

// bind selects the stream's next source address. The kernel chooses the port at connect.
func (s *stream) bind() error {
	n := len(s.load.Sources)
	if n == 0 {
		return nil
	}
	from := s.load.Sources[s.next%n]
	s.next += s.load.Streams
	if err := unix.SetsockoptInt(s.fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return err
	}
	return unix.Bind(s.fd, sockaddr(netip.AddrPortFrom(from, 0)))
}

func (s *stream) close() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
		s.fd = -1
	}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// retry repeats a system call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func report(streams []stream, took time.Duration) Report {
	var r Report
	var all []time.Duration
	for _, s := range streams {
		all = append(all, s.took...)
		r.Errors += len(s.errs)
		if r.FirstErr == "" && len(s.errs) > 0 {
			r.FirstErr = s.errs[0].Error()
		}
	}
	r.Exchanges, r.Rate = len(all), float64(len(all))/took.Seconds()
	if len(all) == 0 {
		return r
	}
	slices.Sort(all)
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	r.Min, r.Mean = us(all[0]), us(sum)/float64(len(all))
	r.P50, r.P99 = us(all[len(all)/2]), us(all[len(all)*99/100])
	return r
}
