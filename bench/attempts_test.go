package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func at(ms int) time.Time             { return time.UnixMilli(1_000_000 + int64(ms)) }
func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// TestAttempts checks that the output of clients is parsed, without an incomplete last line.
func TestAttempts(t *testing.T) {
	want := []attempt{
		{attemptHeld, at(0), millis(0.25), attemptOK},
		{attemptFirst, at(10), millis(1500), "timeout"},
		{attemptKnown, at(20), millis(1001), attemptOK},
	}
	text := ""
	for _, a := range want {
		text += fmt.Sprintln(a)
	}
	got, err := parseAttempts(text + "held 10000")
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("got error %v; the result differs (-want +got):\n%s", err, d)
	}
	for _, bad := range []string{"bench: no route\n", "held x 1 ok\n", "held 1 x ok\n"} {
		if _, err := parseAttempts(text + bad); err == nil {
			t.Errorf("%q passes for an attempt", bad)
		}
	}
}

// TestSinceFirst checks that held connections do not count: lost SYNs may delay their opening.
func TestSinceFirst(t *testing.T) {
	held := attempt{attemptHeld, at(0), millis(1), attemptOK}
	if got := sinceFirst([]attempt{held}, at(5000)); got != 0 {
		t.Errorf("held connections alone: %v", got)
	}
	later := attempt{attemptKnown, at(4100), millis(1), attemptOK}
	if got := sinceFirst([]attempt{held, later, {attemptFirst, at(4000), millis(1500), "timeout"}}, at(5000)); got != time.Second {
		t.Errorf("the first began a second ago: %v", got)
	}
}

func TestConnectsOf(t *testing.T) {
	var all []attempt
	for i := range 100 {
		all = append(all, attempt{attemptFirst, at(i), millis(float64(100 - i)), attemptOK})
	}
	all = append(all, attempt{attemptFirst, at(100), millis(1500), "timeout"}, attempt{attemptFirst, at(101), millis(3), attemptCut},
		attempt{attemptKnown, at(50), millis(1), attemptOK}, attempt{attemptFirst, at(200), millis(1), attemptOK})
	got := countConnects(attemptsBetween(all, attemptFirst, at(0), at(200)))
	want := connects{Tried: 101, OK: 100, Min: millis(1), P50: millis(51), P99: millis(100), Failed: map[string]int{"timeout": 1}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the result differs (-want +got):\n%s", d)
	}
	if got := countConnects(nil).percent(); got != 0 {
		t.Errorf("without attempts: got %v %%, want 0", got)
	}
}

func TestExchangesOf(t *testing.T) {
	late, broken := countExchanges([]attempt{
		{attemptHeld, at(0), millis(0.1), attemptOK},
		{attemptHeld, at(1), millis(210), attemptOK},
		{attemptHeld, at(2), millis(3), "reset"},
		{attemptHeld, at(3), millis(3), attemptCut},   // the end of the program
		{attemptHeld, at(4), millis(900), attemptCut}, // still without an answer at that time
	})
	if late != 2 || broken != 1 {
		t.Errorf("%d late, %d broken", late, broken)
	}
}

// TestRecoveryAfter checks that one failure among many connections is ignored, and that many
// failures in half a second count, as do retransmitted SYNs.
func TestRecoveryAfter(t *testing.T) {
	end := at(1000)
	attempts := func(bad func(ms int) bool, took float64, result string) (all []attempt) {
		for ms := 0; ms < 6000; ms += 10 {
			a := attempt{attemptFirst, at(ms), millis(1), attemptOK}
			if bad(ms) {
				a.Took, a.Result = millis(took), result
			}
			all = append(all, a)
		}
		return all
	}
	for _, c := range []struct {
		name   string
		bad    func(ms int) bool
		took   float64
		result string
		want   time.Duration
	}{
		{"all well", func(int) bool { return false }, 0, "", 0},
		{"only during the flood", func(ms int) bool { return ms < 1000 }, 1500, "timeout", 0},
		{"one in a hundred", func(ms int) bool { return ms%1000 == 0 }, 1500, "timeout", 0},
		{"for two seconds", func(ms int) bool { return ms < 2900 }, 1500, "timeout", 2 * time.Second},
		{"repeated", func(ms int) bool { return ms < 1700 }, 1002, attemptOK, time.Second},
	} {
		if got := recoveryAfter(attempts(c.bad, c.took, c.result), end); got != c.want {
			t.Errorf("%s: after %v, want %v", c.name, got, c.want)
		}
	}
}

func TestResultOf(t *testing.T) {
	wrapped := func(err error) error { return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)} }
	for want, err := range map[string]error{
		attemptOK: nil, "refused": wrapped(syscall.ECONNREFUSED), "reset": wrapped(syscall.ECONNRESET), "closed": io.EOF,
		"timeout": &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "unreachable": wrapped(syscall.EHOSTUNREACH), "other": errors.New("?"),
	} {
		if got := resultOf(err); got != want {
			t.Errorf("%v is called %q, not %q", err, got, want)
		}
	}
}
