package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"loxilb/internal/announce/election"
)

// TestRestartJob checks what the service manager's jobs say about the daemon.
func TestRestartJob(t *testing.T) {
	t.Parallel()
	for jobs, want := range map[string]bool{
		"123 loxilb.service restart running\n": true, "123 loxilb.service stop running\n": false, "": false,
		"1 a.service restart waiting\n2 loxilb.service stop running\n": false,
	} {
		if got := restartJob(jobs); got != want {
			t.Errorf("%q: got %t, want %t", jobs, got, want)
		}
	}
}

// TestLease checks that a lease outlives its process, with its kind, and that the file of an older
// version is read.
func TestLease(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lease")
	if err := os.WriteFile(path, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := openLeaseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if lease := first.Recorded(); lease != (election.Lease{}) {
		t.Errorf("got %+v, want election.Lease{}", lease)
	}
	second, err := openLeaseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(time.Minute)
	for _, alone := range []bool{true, false} {
		first.Record(election.Lease{Until: end, Alone: alone})
		if lease := second.Recorded(); lease.Alone != alone || lease.Until.Sub(end).Abs() > time.Second {
			t.Errorf("%+v, want %t, %s", lease, alone, end)
		}
	}
	second.Record(election.Lease{})
	if lease := first.Recorded(); lease != (election.Lease{}) {
		t.Errorf("got %+v, want election.Lease{}", lease)
	}
}
