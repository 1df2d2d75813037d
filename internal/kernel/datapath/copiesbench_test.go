package datapath

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/lb/report"
)

// BenchmarkPutCopies measures the CPU time per copy of another node's connection: inserted,
// inserted in place of an earlier connection of the same client's port, and merged into an existing
// entry. The CPU time is that of the thread: other threads load programs of the new data path.
func BenchmarkPutCopies(b *testing.B) {
	const line, many, room = "10.0.0.1:80/tcp endpoints=192.0.2.1:8080", 20_000, 40_000
	runtime.LockOSThread()
	o := newOpener(b, line)
	var list []report.ConnectionCopy
	results := make([]report.CopyResult, many)
	describe := func(first int) {
		list = copiesOfClients(first, many)
		for i := range list {
			list[i].Idle = 30 * time.Second
		}
	}
	put := func(want report.CopyResult) (cpu time.Duration) {
		before := cpuTime(b)
		if err := o.d.PutCopies(b.Context(), list, results); err != nil {
			b.Fatal(err)
		}
		cpu = cpuTime(b) - before
		for i, r := range results {
			if r != want {
				b.Fatalf("copy %d is %s, not %s", i, r, want)
			}
		}
		return cpu
	}
	fresh := 0
	for _, c := range []struct {
		name    string
		prepare func()
		want    report.CopyResult
	}{
		{"insert", func() {
			if fresh+many > room {
				o, fresh = newOpener(b, line), 0 // with an empty table
			}
			if err := o.d.ExpectCopies(b.Context(), room); err != nil { // as by the greeting of a node
				b.Fatal(err)
			}
			describe(fresh)
			fresh += many
		}, report.CopyInserted},
		{"merge", func() {}, report.CopyMerged},
		{"replace", func() {
			for i := range list {
				list[i].Generation++
				list[i].Idle -= 100 * time.Millisecond // it is the later one
				list[i].Numbers.Sent += 1000
			}
		}, report.CopyInserted},
	} {
		b.Run(c.name, func(b *testing.B) {
			runtime.LockOSThread()
			cpu, n := time.Duration(0), 0
			for b.Loop() {
				b.StopTimer()
				c.prepare()
				b.StartTimer()
				cpu += put(c.want)
				n += many
			}
			b.ReportMetric(float64(cpu.Nanoseconds())/float64(n), "cpu-ns/copy")
		})
	}
}

// cpuTime returns the CPU time that the calling thread has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatalf("got %v, want no error", fmt.Errorf("read the CPU time: %w", err))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkScanCopies measures the thread's CPU time per connection for finding connections,
// reading them from a ring and describing them for other nodes. New connections also arrive by a
// ring.
func BenchmarkScanCopies(b *testing.B) {
	const many = 20_000
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	o := newOpener(b, "10.0.0.1:80/tcp endpoints=192.0.2.1:8080")
	list, results := copiesOfClients(0, many), make([]report.CopyResult, many)
	if err := o.d.PutCopies(b.Context(), list, results); err != nil {
		b.Fatal(err)
	}
	cpu, found := time.Duration(0), 0
	for b.Loop() {
		before := cpuTime(b)
		err := o.d.ScanCopies(b.Context(), report.CopySelection{Copies: true}, func(part []report.ConnectionCopy) error {
			found += len(part)
			return nil
		})
		cpu += cpuTime(b) - before
		if err != nil || found == 0 {
			b.Fatalf("got %v %v, want no error, found != 0", found, err)
		}
	}
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(found), "cpu-ns/copy")
}
