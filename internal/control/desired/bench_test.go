package desired_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// filled returns a store with n services of 10 endpoints (3 past 10,000, for the limit on their
// sum).
func filled(b *testing.B, dir string, n int) *desired.State {
	b.Helper()
	endpoints := 10
	if n > 10_000 {
		endpoints = 3
	}
	s, err := desired.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	mustCommit(b, s, "rest", func(tx *store.Tx) error {
		for i := range n {
			if err := s.Services.Put(tx, numbered(i, endpoints)); err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 10_000, lb.MaxServices - 1} {
		for _, kind := range []string{"memory", "disk"} {
			b.Run(fmt.Sprintf("%s/services=%d", kind, n), func(b *testing.B) {
				dir := ""
				if kind == "disk" {
					dir = b.TempDir()
				}
				s := filled(b, dir, n)
				i, slowest := 0, time.Duration(0)
				for b.Loop() {
					i++
					began := time.Now()
					mustCommit(b, s, "rest", put(s, numbered(i%n, 1+i%2)))
					slowest = max(slowest, time.Since(began))
				}
				b.ReportMetric(float64(slowest.Microseconds()), "max-us")
			})
		}
	}
}

// BenchmarkCommitParallel measures the effect of sharing an fdatasync.
func BenchmarkCommitParallel(b *testing.B) {
	s := filled(b, b.TempDir(), 10_000)
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, _, err := s.Commit("rest", put(s, numbered(i%10_000, 1+i%10))); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkBulk commits 10,000 services of 10 endpoints in one transaction.
func BenchmarkBulk(b *testing.B) {
	for b.Loop() {
		filled(b, b.TempDir(), 10_000).Close()
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{10_000, lb.MaxServices} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			dir := b.TempDir()
			filled(b, dir, n).Close()
			for b.Loop() {
				s, err := desired.Open(dir, slog.New(slog.DiscardHandler))
				if err != nil {
					b.Fatal(err)
				}
				s.Close()
			}
		})
	}
}
