package netdev

import "testing"

// TestPortRange checks which masks of ports form a range.
func TestPortRange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		port        IPsecPort
		first, last uint16
		ok          bool
	}{
		{IPsecPort{}, 0, 65535, true},
		{IPsecPort{80, 0xffff}, 80, 80, true},
		{IPsecPort{0x1234, 0xff00}, 0x1200, 0x12ff, true},
		{IPsecPort{1, 0x0001}, 1, 65535, false},
	} {
		first, last, ok := c.port.Range()
		if first != c.first || last != c.last || ok != c.ok {
			t.Errorf("%+v: %d to %d, %t", c.port, first, last, ok)
		}
	}
}
