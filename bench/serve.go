package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"loxilb/bench/crr"
)

// serve is the program of an endpoint: `bench serve http|crr|rr|echo PORT COUNTSPORT`. It
// tells how much it has answered by HTTP on another port.
func serve(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: bench serve http|crr|rr|echo PORT COUNTSPORT")
	}
	port, err := strconv.ParseUint(args[1], 10, 16)
	if err != nil {
		return fmt.Errorf("port %q is no port", args[1])
	}
	count := new(atomic.Uint64)
	address := netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port))
	failed := make(chan error, 2)
	read := count.Load
	switch args[0] {
	case "http":
		l, err := net.Listen("tcp", address.String())
		if err != nil {
			return err
		}
		s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			count.Add(1) // and an empty response
		})}
		go func() { failed <- s.Serve(l) }()
	case "crr", "rr":
		s := new(crr.Server)
		read = func() uint64 { n, _ := s.Counts(); return n }
		go func() { failed <- s.Serve(address, args[0] == "rr") }()
	case "echo": // any number of connections, of both families
		l, err := net.Listen("tcp", net.JoinHostPort("::", args[1]))
		if err != nil {
			return err
		}
		go func() { failed <- echo(l, count) }()
	default:
		return fmt.Errorf("%q is none of http, crr, rr and echo", args[0])
	}
	counts := &http.Server{Addr: ":" + args[2], ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, read()) })}
	go func() { failed <- counts.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// echo sends back what comes over each connection, and counts how often.
func echo(l net.Listener, count *atomic.Uint64) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			b := make([]byte, 64)
			for {
				n, err := c.Read(b)
				if err != nil {
					return
				}
				if _, err := c.Write(b[:n]); err != nil {
					return
				}
				count.Add(1)
			}
		}()
	}
}
