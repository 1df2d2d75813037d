package quictest

import (
	"encoding/hex"
	"testing"
)

// TestIDs compares connection IDs with the test vectors of draft-ietf-quic-load-balancers-21.
func TestIDs(t *testing.T) {
	t.Parallel()
	const key = "8f95f09245765f80256934e50c66207f"
	for _, v := range []struct {
		config                 byte
		server, nonce, key, id string
	}{
		{0, "c4605e", "4504cc4f", "", "07c4605e4504cc4f"},
		{0, "31441a", "9c69c275", "fdf726a9893ec05c0632d3956680baf0", "0767947d29be054a"},
		{0, "ed793a", "ee080dbf", key, "0720b1d07b359d3c"},
		{1, "ed793a51d49b8f5fab65", "ee080dbf48", key, "2fcc381bc74cb4fbad2823a3d1f8fed2"},
		{2, "ed793a51d49b8f5f", "ee080dbf48c0d1e5", key, "504dd2d05a7b0de9b2b9907afb5ecf8cc3"},
		{0, "ed793a51d49b8f5fab", "ee080dbf48c0d1e55d", key, "125779c9cc86beb3a3a4a3ca96fce4bfe0cdbc"},
	} {
		g := IDs{Config: v.config, Server: Hex(v.server), Key: Hex(v.key)}
		id, err := g.With(Hex(v.nonce))
		if got := hex.EncodeToString(id); got != v.id || err != nil {
			t.Errorf("server ID %s, nonce %s: %s (%v), want %s", v.server, v.nonce, got, err, v.id)
		}
	}
}
