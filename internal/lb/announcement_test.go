package lb

import (
	"fmt"
	"strings"
	"testing"
)

// TestAnnouncement checks which BGP options are refused, and which prefixes the others announce.
func TestAnnouncement(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                      "[]",
		"bgp=true secips=20.20.21.1,20.20.20.2": "[20.20.20.1/32 20.20.21.1/32 20.20.20.2/32]",
		"bgp=true secips=20.20.21.1,20.20.20.2 bgp-aggregate=20.20.20.0/24": "[20.20.20.0/24 20.20.21.1/32]",
		"bgp=true bgp-communities=no-export,65535:0,1:2":                    "[20.20.20.1/32]",
		"bgp=true bgp-aggregate=20.20.20.1/32":                              "[20.20.20.1/32]",
		"bgp=true bgp-aggregate=20.20.21.0/24":                              "does not contain the VIP 20.20.20.1",
		"bgp=true bgp-aggregate=20.20.20.0/8":                               `has bits after its length (allowed: 20.0.0.0/8)`,
		"bgp=true bgp-aggregate=0.0.0.0/0":                                  "is the default route",
		"bgp=true bgp-aggregate=20.20.20.0":                                 `bgp aggregate "20.20.20.0" is not a prefix (allowed: a prefix that contains`,
		"bgp=true bgp-communities=no-exprt":                                 `is not a community; did you mean no-export`,
		"bgp=true bgp-communities=65536:1":                                  `bgp community "65536:1" is not a community (allowed: AS:VALUE`,
		"bgp=true bgp-communities=65535:65281,no-export":                    `bgp community "no-export" is given twice`,
		"bgp=true bgp-prepend=17":                                           "is out of range (allowed: 0 to 16)",
		"bgp=true bgp-announce=never":                                       "(allowed: serving or always)",
	} {
		s, err := ParseService("20.20.20.1:80/tcp endpoints=10.0.0.1:80 " + text)
		if err == nil {
			err = s.Validate()
		}
		got := fmt.Sprint(s.AnnouncedPrefixes())
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestCommunityNames checks that each well-known community is written by its name and read back.
func TestCommunityNames(t *testing.T) {
	t.Parallel()
	for _, w := range wellKnown {
		if c, err := ParseCommunity(FieldCommunity, w.community.String()); err != nil || c != w.community || w.community.String() != w.name {
			t.Errorf("%s: got %d, %v, want %d, and the same word for it", w.name, c, err, w.community)
		}
	}
}
