package lb

import (
	"strings"
	"testing"
)

// TestQUIC checks which server IDs and configurations of connection IDs are allowed, and the
// sentence for those that are not.
func TestQUIC(t *testing.T) {
	t.Parallel()
	const key = "8f95f09245765f80256934e50c66207f"
	for line, want := range map[string]string{
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a,10.1.0.2:443#0b":                    "",
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443:0#00":                                  "",
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a quic=0,1:4:" + key + ",6:17:" + key: "",
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#" + strings.Repeat("0a", 15):           "",
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a,10.1.0.2:443": `endpoint "10.1.0.2:443" has no server ID, and ` +
			`select is quic (allowed: IP:PORT:WEIGHT#ID, where ID has 2 to 30 hexadecimal digits, two for each byte)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a,10.1.0.2:443#0A": `server ID "0a" is that of 10.1.0.1:443 and of ` +
			`10.1.0.2:443 (allowed: a server ID for each endpoint)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a,10.1.0.2:443#0b0c": `server ID "0b0c" differs in length from that of 10.1.0.1:443 (allowed: 2 digits)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0": `server ID "0" is not a server ID (allowed: 2 to ` +
			`30 hexadecimal digits, two for each byte)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#xy": `server ID "xy" is not a server ID (allowed: 2 ` +
			`to 30 hexadecimal digits, two for each byte)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#":                            `server ID is missing (allowed: 2 to 30 hexadecimal digits, two for each byte)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#" + strings.Repeat("0a", 16): `server ID "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a" is not a server ID (allowed: 2 to 30 hexadecimal digits, two for each byte)`,
		"10.0.0.1:443/tcp select=quic endpoints=10.1.0.1:443#0a": `select "quic" is for UDP, and the service is of ` +
			`tcp (allowed: another algorithm, or --udp)`,
		"10.0.0.1:443/udp select=hash endpoints=10.1.0.1:443#0a":                   `server ID "0a" is set, but select is hash (allowed: none, or select quic)`,
		"10.0.0.1:443/udp endpoints=10.1.0.1:443 quic=2":                           `quic configuration "2" is set, but select is rr (allowed: none, or select quic)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a quic=7":            `quic configuration "7" is not the number of a configuration (allowed: 0 to 6)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a quic=1,1:4:" + key: `quic configuration "1" is given twice (allowed: each number once)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a quic=1:4": `quic configuration "1:4" is not a configuration ` +
			`(allowed: NUMBER (plaintext) or NUMBER:NONCE:KEY, such as 1:8:8f95f09245765f80256934e50c66207f)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a quic=1:3:" + key:                     `quic configuration "3" is not the length of a nonce (allowed: 4 to 18 bytes)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a0b quic=1:18:" + key:                  `quic configuration "1" has a nonce of 18 bytes, and server IDs have 2 (allowed: up to 19 bytes together)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a quic=1:4:8f95":                       `quic configuration "4 characters" are not a key (allowed: 32 hexadecimal digits)`,
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a quic=1:4:" + strings.Repeat("x", 32): `quic configuration "32 characters" are not a key (allowed: 32 hexadecimal digits)`,
	} {
		s, err := ParseService(line)
		if err == nil {
			err = s.Validate()
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want\n%s", line, got, want)
		}
	}
}

// TestQUICRecords checks that older builds refuse services with server IDs, and only those.
func TestQUICRecords(t *testing.T) {
	t.Parallel()
	c := NewSchema()
	for line, want := range map[string]int{
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a": quicFormat,
		"10.0.0.1:443/udp select=hash endpoints=10.1.0.1:443":    firstRecordFormat,
	} {
		if format, _, err := c.MarshalRecord(mustParse(t, line)); format != want || err != nil {
			t.Errorf("%s: format %d (%v), want %d", line, format, err, want)
		}
	}
}
