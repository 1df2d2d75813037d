package lb

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Fingerprint returns a hash of the settings that all nodes of a cluster must share, so connections
// of the service can continue through any of them: mode, algorithm, tunnel, secondary VIPs, PROXY
// protocol, QUIC configurations and endpoints, in any order. Source addresses and announcements may
// differ between nodes.
func (s *Service) Fingerprint() string {
	parts := make([]string, 0, len(s.Endpoints)+1)
	for _, e := range s.Endpoints {
		parts = append(parts, fmt.Sprint(e))
	}
	slices.Sort(parts)
	parts = append(parts, fmt.Sprint(s.Mode, s.Algorithm, s.Tunnel, s.Secondary))
	if s.ProxyProtocol || s.Algorithm == QUIC {
		var configs []string
		for _, c := range s.QUICConfigs() {
			configs = append(configs, c.String())
		}
		slices.Sort(configs)
		parts = append(parts, fmt.Sprint(s.ProxyProtocol, configs))
	}
	sum := sha256.Sum256(fmt.Append(nil, parts))
	return hex.EncodeToString(sum[:6])
}
