package transport

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkSend measures how long it takes to write frames to a node over loopback, encrypted: CPU
// time of the writing thread, for the 46 bytes of a connection. A frame holds what
// arrives in a millisecond at 100,000 connections per second.
func BenchmarkSend(b *testing.B) {
	const connections, length = 100, 46
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := dialSink(b)
	frame := make([]byte, connections*length)
	before, n := threadTime(b), 0
	for b.Loop() {
		if err := c.SendPacked(frame); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(threadTime(b)-before)/float64(n*connections), "cpu-ns/connection")
}

// threadTime returns the CPU time of the calling thread.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// dialSink connects to a node that reads what it gets, and does not decrypt it.
func dialSink(b *testing.B) *Conn {
	b.Helper()
	key := filepath.Join(b.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 64)), 0o600); err != nil {
		b.Fatal(err)
	}
	node := func(name string) (*Hello, *Credentials) {
		c, err := KeyFile(key, name)
		if err != nil {
			b.Fatal(err)
		}
		return &Hello{Version: Version, Oldest: Oldest, Node: name, Boot: name, Self: -1, Features: Features()}, c
	}
	own, credentials := node("sink")
	h := &Host{Hello: func() *Hello { return own }, Credentials: credentials, CheckPeer: func(string, *Hello) error { return nil }, HasConnectionsOf: func(string) bool { return false }}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		plain, err := l.Accept()
		if err != nil {
			return
		}
		if _, err := accept(b.Context(), plain, h); err == nil {
			_, _ = io.Copy(io.Discard, plain)
		}
	}()
	hello, theirs := node("sender")
	c, err := Dial(b.Context(), l.Addr().String(), hello, theirs)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Close()
		_ = l.Close()
	})
	return c
}
