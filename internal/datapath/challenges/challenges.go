// Package challenges reads what the packet path does about clients that it does not know: how many it has challenged, and
// how many it knows (docs/adr/0026-pressure.md).
package challenges

import (
	"fmt"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/loader"
	"loxilb/internal/datapath/rows"
)

// Clients are those that the packet path knows, and those that it asks.
type Clients struct{ shared *loader.Collection }

// New reads those of a collection.
func New(c *loader.Collection) *Clients { return &Clients{c} }

// Challenges are how many SYNs were challenged so far, and how many challenges were answered.
func (c *Clients) Challenges() (sent, answered uint64, err error) {
	var each []bpf.TcChallengeCounts
	if err := c.shared.Maps.Challenges.Lookup(uint32(0), &each); err != nil {
		return 0, 0, fmt.Errorf("read challenges: %w", err)
	}
	for _, n := range each {
		sent += n.Sent
		answered += n.Answered
	}
	return sent, answered, nil
}

// KnownClients is how many clients are known: addresses, of IPv6 networks of 64 bits.
func (c *Clients) KnownClients() (n int, err error) {
	now, err := jiffies()
	if err != nil {
		return 0, err
	}
	longest := c.shared.Jiffies(loader.KnownTime)
	err = rows.EachBatch(c.shared.Maps.KnownClients, rows.All, func(_ []uint32, sets []bpf.TcKnownSet) {
		for _, set := range sets {
			for _, row := range set.Rows {
				if left := uint32(row) - now; row != 0 && left != 0 && left <= longest {
					n++
				}
			}
		}
	})
	if err != nil {
		return 0, fmt.Errorf("read known clients: %w", err)
	}
	return n, nil
}
