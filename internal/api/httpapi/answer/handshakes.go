package answer

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/diagnose/rates"
)

// Handshakes is how long handshakes took; nil: there were none.
func Handshakes(t rates.Times) *v1.HandshakeTimes {
	if t.Count == 0 {
		return nil
	}
	return &v1.HandshakeTimes{Count: t.Count, Median: t.Median.Seconds(), P99: t.P99.Seconds()}
}
