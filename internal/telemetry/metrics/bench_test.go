package metrics

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// BenchmarkScrape measures a scrape of 10,000 services with 10 endpoints that all have traffic,
// without the data path.
func BenchmarkScrape(b *testing.B) {
	for name, o := range map[string]Options{"services": {}, "endpoints": {Endpoints: true}, "compat": {Endpoints: true, Compat: true}} {
		b.Run(name, func(b *testing.B) { benchmarkScrape(b, o) })
	}
}

func benchmarkScrape(b *testing.B, o Options) {
	log := slog.New(slog.DiscardHandler)
	st, err := desired.Open("", log)
	if err != nil {
		b.Fatal(err)
	}
	_, _, err = st.Commit("test", func(tx *store.Tx) error {
		for i := range 10000 {
			s := lb.Service{Key: lb.Key{VIP: netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 1}), Port: 80, Protocol: lb.TCP}}
			for j := range 10 {
				s.Endpoints = append(s.Endpoints, lb.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j + 1)}), Port: 80, Weight: 1})
			}
			if err := st.Services.Put(tx, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	m, err := New(st, manyEndpoints{}, o, log)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		w := &counted{ResponseWriter: httptest.NewRecorder()}
		m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		b.ReportMetric(float64(w.n), "bytes")
	}
}

type manyEndpoints struct{ fake }

func (manyEndpoints) AllStats(keys []lb.Key, yield func(int, *report.ServiceStats)) report.EndpointStats {
	one := report.EndpointStats{
		Connections: 1234, Active: 56, In: report.Traffic{Packets: 1234567, Bytes: 123456789},
		Out: report.Traffic{Packets: 1234567, Bytes: 1234567890}, Available: true,
	}
	one.Handshakes.Opened = 1234
	for i := range keys {
		s := report.ServiceStats{EndpointStats: one}
		for range 10 {
			s.Endpoints = append(s.Endpoints, one)
		}
		yield(i, &s)
	}
	return one
}

type counted struct {
	http.ResponseWriter
	n int
}

func (c *counted) Write(p []byte) (int, error) { c.n += len(p); return len(p), nil }

func (manyEndpoints) EndpointVerdict(*lb.Service, lb.Endpoint) report.Verdict {
	return report.Verdict{}
}
