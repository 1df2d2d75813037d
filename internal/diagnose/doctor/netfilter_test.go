package doctor

import (
	"strings"
	"testing"
)

// TestIPsecIgnored checks that with --ipsec=ignore packets leave in clear text, and that the flag
// is named as the reason.
func TestIPsecIgnored(t *testing.T) {
	t.Parallel()
	_, m := healthy()
	m.Facts.IPsec = []IPsecRefusal{{About: "31.31.31.1", Packets: "packets", RefusesAll: true, Ignored: true}}
	list, err := ipsec(m)
	if err != nil || len(list) != 1 || !strings.Contains(list[0].What, "in clear text") || !strings.Contains(list[0].Why, "--ipsec=ignore") {
		t.Errorf(`got %+v, %v, want no error, 1 element, "in clear text" in list[0].What, "--ipsec=ignore" in list[0].Why`,
			list, err)
	}
}
