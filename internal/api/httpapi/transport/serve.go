// Package transport carries requests to the API and answers back: listening sockets, TLS, the user
// at the other end, connection limits, and shutdown.
package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Listen defines where to listen. Invalid or empty members are not served.
type Listen struct {
	Plain             netip.AddrPort // HTTP
	TLS               netip.AddrPort // HTTPS
	CertFile, KeyFile string
	Socket            string // path of a UNIX socket
	SocketGroup       int    // group with access besides root; 0: no group
}

// Parts are the handlers of requests.
type Parts struct {
	Handler  func(Kind) http.Handler
	Shutdown func() // ends the requests that do not end by themselves
	Log      *slog.Logger
}

// Server has the API's open sockets.
type Server struct {
	parts Parts
	ports []port
	peers *peers
}

type port struct {
	listener net.Listener
	server   *http.Server
}

// Open opens all sockets, or none and returns the error.
func Open(ctx context.Context, l Listen, p Parts) (*Server, error) {
	s := &Server{parts: p}
	var err error
	if s.peers, err = newPeers(); err != nil {
		return nil, err
	}
	if err := s.open(ctx, l); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// listenError adds the remedy for a port in use by another process; flag selects the port.
func listenError(at netip.AddrPort, flag string, err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("listen on %s: another process has this port: stop it (ss -ltnp shows which), or choose another one by %s", at, flag)
	}
	return fmt.Errorf("listen on %s: %w", at, err)
}

func (s *Server) open(ctx context.Context, l Listen) error {
	var lc net.ListenConfig
	if l.Plain.IsValid() {
		ln, err := lc.Listen(ctx, "tcp", l.Plain.String())
		if err != nil {
			return listenError(l.Plain, "--port", err)
		}
		s.addTCP(ln, l.Plain, nil)
	}
	if l.TLS.IsValid() {
		cert, err := newCertificate(l.CertFile, l.KeyFile, s.parts.Log)
		if err != nil {
			return err
		}
		ln, err := lc.Listen(ctx, "tcp", l.TLS.String())
		if err != nil {
			return listenError(l.TLS, "--tls-port", err)
		}
		s.addTCP(ln, l.TLS, &tls.Config{
			GetCertificate: cert.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		})
	}
	if l.Socket != "" {
		ln, err := listenUnix(ctx, l.Socket, l.SocketGroup)
		if err != nil {
			return err
		}
		s.add(ln, BySocket)
	}
	return nil
}

func kindOf(at netip.AddrPort) Kind {
	if at.Addr().IsLoopback() {
		return ByLoopback
	}
	return ByNetwork
}

func (s *Server) add(ln net.Listener, w Kind) {
	server := &http.Server{
		Handler:           trackRequests(s.parts.Handler(w)),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(s.parts.Log.Handler(), slog.LevelDebug),
		// No WriteTimeout: a long answer gets more time as it makes progress (stream).
	}
	switch w {
	case ByLoopback, ByNetwork:
		server.ConnContext = s.connContext(w)
	case BySocket:
		server.ConnContext = socketPeer
	}
	server.RegisterOnShutdown(s.parts.Shutdown)
	s.ports = append(s.ports, port{ln, server})
}

// connContext lets requests find their connection and, on loopback, the user at its other end.
func (s *Server) connContext(w Kind) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		ctx, c = withLimitedConn(ctx, c)
		if w == ByLoopback {
			ctx = s.peers.connContext(ctx, c)
		}
		return ctx
	}
}

// addTCP serves a TCP port; secure, if not nil, configures TLS.
func (s *Server) addTCP(ln net.Listener, at netip.AddrPort, secure *tls.Config) {
	ln = newLimitedListener(ln, maxConns, maxSourceConns)
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	s.add(ln, kindOf(at))
}

// Addrs returns the addresses that the sockets got.
func (s *Server) Addrs() []net.Addr {
	var out []net.Addr
	for _, p := range s.ports {
		out = append(out, p.listener.Addr())
	}
	return out
}

// Serve answers until ctx ends, then waits for requests in progress, for at most five seconds.
func (s *Server) Serve(ctx context.Context) error {
	failed := make(chan error, len(s.ports))
	for _, p := range s.ports {
		go func() { failed <- p.server.Serve(p.listener) }()
		s.parts.Log.Info("API listens", "address", p.listener.Addr().String())
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("serve the API: %w", err)
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, p := range s.ports {
		if e := p.server.Shutdown(stop); e != nil {
			_ = p.server.Close() // answers that did not end in time are cut off
		}
	}
	s.peers.close()
	return err
}

func (s *Server) close() {
	for _, p := range s.ports {
		_ = p.listener.Close() // no request was answered yet
	}
	s.peers.close()
}
