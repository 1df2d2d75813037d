package netdev

import (
	"regexp"
	"strings"

	"loxilb/internal/kernel/netdev/mirror"
	"loxilb/internal/kernel/netdev/objects"
)

// Link is a network interface as the data path needs to see it.
type Link = mirror.Link

// Tap is a tunnel for copies of packets to a collector.
type Tap = objects.Tap

// Hop is a next hop: an interface, and a gateway or no valid address.
type Hop = mirror.Hop

// Select returns the links to attach to: those whose name whitelist matches if there is one, else
// all that blacklist (if there is one) does not match; never loopback.
func Select(links []Link, whitelist, blacklist *regexp.Regexp) []Link {
	var out []Link
	for _, l := range links {
		switch {
		case l.Loopback():
		case strings.HasPrefix(l.Name, objects.TapPrefix): // copies leave there, and nothing arrives
		case whitelist != nil && !whitelist.MatchString(l.Name):
		case whitelist == nil && blacklist != nil && blacklist.MatchString(l.Name):
		default:
			out = append(out, l)
		}
	}
	return out
}
