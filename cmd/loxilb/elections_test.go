package main

import (
	"path/filepath"
	"testing"
	"time"
)

// TestRestartJob checks what the service manager's jobs say about the daemon.
func TestRestartJob(t *testing.T) {
	t.Parallel()
	for jobs, want := range map[string]bool{
		"123 loxilb.service restart running\n": true, "123 loxilb.service stop running\n": false, "": false,
		"1 a.service restart waiting\n2 loxilb.service stop running\n": false,
	} {
		if got := restartJob(jobs); got != want {
			t.Errorf("%q: %t", jobs, got)
		}
	}
}

// TestLease checks that a lease outlives its process.
func TestLease(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lease")
	first, err := openLease(path)
	if err != nil {
		t.Fatal(err)
	}
	if !first.Lease().IsZero() {
		t.Error("a new lease has an end")
	}
	end := time.Now().Add(time.Minute)
	first.Renew(end)
	second, err := openLease(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := second.Lease().Sub(end).Abs(); d > time.Second {
		t.Errorf("it differs by %s", d)
	}
	second.Renew(time.Time{})
	if !first.Lease().IsZero() {
		t.Error("the lease has an end")
	}
}
