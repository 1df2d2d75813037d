// Package sctptest runs SCTP servers and clients in hosts of tests, by libusrsctp over raw IP: the
// kernel needs no SCTP.
package sctptest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

//go:embed testdata/peer.c
var source string

// patience limits the time until an answer.
const patience = 20 * time.Second

// Build compiles the peer, once for each process, and returns the program's path.
func Build() (string, error) { return build() }

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sctptest")
	if err != nil {
		return "", err
	}
	bin, file := filepath.Join(dir, "peer"), filepath.Join(dir, "peer.c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		return "", err
	}
	out, err := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-o", bin, file, "-l:libusrsctp.a", "-lpthread").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the SCTP peer (tools/setup test installs what it needs): %w: %s", err, out)
	}
	return bin, nil
})

// Peer is a server, or a client with any number of associations.
type Peer struct {
	t       testing.TB
	process *netnstest.Process
	stdin   *os.File
}

// Serve starts a server that greets clients with the host's name, and echoes.
func Serve(t testing.TB, h *netnstest.Host, port int) *Peer {
	t.Helper()
	p := start(t, h, "serve", h.Name, fmt.Sprint(port))
	p.Expect(0, "listening")
	return p
}

// Connect starts a client.
func Connect(t testing.TB, h *netnstest.Host) *Peer {
	t.Helper()
	return start(t, h, "connect")
}

func start(t testing.TB, h *netnstest.Host, args ...string) *Peer {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &Peer{t: t, stdin: out}
	p.process, err = h.Start(netnstest.Command{Args: append([]string{bin}, args...), Input: in})
	if err := errors.Join(err, in.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		out.Close()
		p.process.Kill()
	})
	return p
}

func (p *Peer) command(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.stdin, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

// Open opens an association and returns the name of its server. from are the local addresses; the
// default is any.
func (p *Peer) Open(id int, address string, port int, from ...string) string {
	p.t.Helper()
	p.command("open %d %s %d %s", id, address, port, strings.Join(from, " "))
	p.Expect(id, "up")
	return strings.TrimPrefix(p.Expect(id, "got"), "got ")
}

// Exchange sends a word and waits for its echo.
func (p *Peer) Exchange(id int, word string) {
	p.t.Helper()
	p.command("send %d %s", id, word)
	p.Expect(id, "got "+word)
}

// Bulk sends the given number of messages of 1,000 bytes. BulkDone waits for the last echo.
func (p *Peer) Bulk(id, messages int) {
	p.t.Helper()
	p.command("bulk %d %d", id, messages)
}

// BulkDone waits until the given number of messages was echoed since the association opened. The
// echoes must be unchanged and in order.
func (p *Peer) BulkDone(id, messages int) {
	p.t.Helper()
	p.Expect(id, fmt.Sprintf("bulk %d", messages))
}

// Close ends an association by SHUTDOWN.
func (p *Peer) Close(id int) {
	p.t.Helper()
	p.command("close %d", id)
	p.Expect(id, "closed")
}

// Expect waits until the peer has printed an event of an association that begins with the given
// words, and returns the event.
func (p *Peer) Expect(id int, words string) (event string) {
	p.t.Helper()
	labtest.Eventually(p.t, patience, func(context.Context) error {
		for _, e := range p.events(id) {
			if e == words || strings.HasPrefix(e, words+" ") {
				event = e
				return nil
			}
		}
		return fmt.Errorf("association %d has no event %q: %q", id, words, p.process.Output())
	})
	return event
}

// Has reports whether an association has had an event.
func (p *Peer) Has(id int, event string) bool {
	for _, e := range p.events(id) {
		if e == event {
			return true
		}
	}
	return false
}

// Count returns how many associations have had the event.
func (p *Peer) Count(event string) (n int) {
	for line := range strings.Lines(p.process.Output()) {
		if _, e, _ := strings.Cut(strings.TrimSpace(line), " "); e == event {
			n++
		}
	}
	return n
}

func (p *Peer) events(id int) (events []string) {
	for line := range strings.Lines(p.process.Output()) {
		if e, ok := strings.CutPrefix(line, fmt.Sprint(id, " ")); ok && strings.HasSuffix(line, "\n") {
			events = append(events, strings.TrimSpace(e))
		}
	}
	return events
}
