package lb

import (
	"net/netip"
	"testing"
)

// TestFingerprint checks that services of two nodes have the same fingerprint exactly if
// connections can continue through both: source addresses and the order of endpoints do not matter,
// but endpoints, mode, algorithm and PROXY protocol do.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	one, two := Endpoint{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80, Weight: 1}, Endpoint{Addr: netip.MustParseAddr("10.0.0.2"), Port: 80, Weight: 1}
	service := Service{Endpoints: []Endpoint{one, two}}
	want := service.Fingerprint()
	for what, c := range map[string]struct {
		edit func(*Service)
		same bool
	}{
		"order":     {func(s *Service) { s.Endpoints = []Endpoint{two, one} }, true},
		"SNAT":      {func(s *Service) { s.SNAT = []netip.Addr{one.Addr} }, true},
		"BGP":       {func(s *Service) { s.BGP = true }, true},
		"endpoint":  {func(s *Service) { s.Endpoints = s.Endpoints[:1] }, false},
		"port":      {func(s *Service) { s.Endpoints[1].Port = 81 }, false},
		"mode":      {func(s *Service) { s.Mode = ModeDSR }, false},
		"algorithm": {func(s *Service) { s.Algorithm = Hash }, false},
		"PROXY":     {func(s *Service) { s.ProxyProtocol = true }, false},
	} {
		other := Service{Endpoints: []Endpoint{one, two}}
		c.edit(&other)
		if got := other.Fingerprint(); (got == want) != c.same {
			t.Errorf("with another %s: %s and %s", what, got, want)
		}
	}
}

// TestFingerprintQUIC checks that configurations of connection IDs count, in any order, and that
// the default one counts as none.
func TestFingerprintQUIC(t *testing.T) {
	t.Parallel()
	of := func(configs ...QUICConfig) string {
		s := Service{Algorithm: QUIC, QUIC: configs}
		return s.Fingerprint()
	}
	one, two := QUICConfig{Number: 1, Nonce: 8, Key: "aa"}, QUICConfig{Number: 1, Nonce: 8, Key: "bb"}
	if of() != of(QUICConfig{}) || of(one, QUICConfig{}) != of(QUICConfig{}, one) {
		t.Error("equal configurations have different fingerprints")
	}
	if of(one) == of(two) || of() == of(one) {
		t.Error("different configurations have the same fingerprint")
	}
}
