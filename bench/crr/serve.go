// Package crr measures exchanges like netperf's TCP_CRR and TCP_RR: one byte in each direction,
// over a new or an existing connection. In each stream, an exchange starts when the previous one is
// answered.
package crr

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// workersKept is the number of kept connections that a server serves at once; further ones wait to
// be accepted. Short connections share a few threads: of many, the kernel would always wake the
// thread that has slept longest.
const workersKept = 128

func workersFor(keep bool) int {
	if keep {
		return workersKept
	}
	return 4 * runtime.NumCPU()
}

// Server answers exchanges.
type Server struct {
	Protocol int // of its sockets; 0: TCP

	exchanges, connections atomic.Uint64
}

// Counts returns the numbers of answered exchanges and accepted connections.
func (s *Server) Counts() (exchanges, connections uint64) {
	return s.exchanges.Load(), s.connections.Load()
}

// Serve answers on an address until it fails. Unless keep, it closes a connection after one
// exchange.
func (s *Server) Serve(address netip.AddrPort, keep bool) error {
	workers := workersFor(keep)
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), workers+8)) // see Load.Run
	family := unix.AF_INET
	if address.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, s.Protocol)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(address))
	}
	if err == nil {
		err = unix.Listen(fd, 4096)
	}
	if err != nil {
		return fmt.Errorf("listen on %v: %w", address, err)
	}
	failed := make(chan error, workers)
	for range workers {
		go func() {
			runtime.LockOSThread()
			failed <- s.work(fd, keep)
		}()
	}
	return <-failed
}

func (s *Server) work(listener int, keep bool) error {
	for {
		fd, err := retry(func() (int, error) {
			fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
			return fd, err
		})
		if errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		s.connections.Add(1)
		s.answer(fd, keep)
		_ = unix.Close(fd)
	}
}

func (s *Server) answer(fd int, keep bool) {
	if noDelay(fd, s.Protocol) != nil {
		return
	}
	var b [1]byte
	for {
		n, err := retry(func() (int, error) { return unix.Read(fd, b[:]) })
		if n <= 0 || err != nil {
			return
		}
		if _, err := retry(func() (int, error) { return unix.Write(fd, b[:]) }); err != nil {
			return
		}
		s.exchanges.Add(1)
		if !keep {
			return
		}
	}
}
