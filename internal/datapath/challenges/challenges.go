// Package challenges reads what the packet path does about clients that it does not know: how many it has challenged, and
// how many it knows (docs/adr/0026-pressure.md).
package challenges

import (
	"fmt"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/loader"
	"loxilb/internal/datapath/rows"
	"loxilb/internal/lb"
)

// Clients are those that the packet path knows, and those that it asks.
type Clients struct{ shared *loader.Collection }

// New reads those of a collection.
func New(c *loader.Collection) *Clients { return &Clients{c} }

// Pressure is how many SYNs were challenged so far, how many challenges were answered, and how many clients are known.
func (c *Clients) Pressure() (p lb.Pressure, err error) {
	var each []bpf.TcChallengeCounts
	if err := c.shared.Maps.Challenges.Lookup(uint32(0), &each); err != nil {
		return p, fmt.Errorf("read challenges: %w", err)
	}
	for _, n := range each {
		p.Challenged += n.Sent
		p.Answered += n.Answered
	}
	p.KnownClients, err = c.known()
	return p, err
}

// known counts the rows that still hold.
func (c *Clients) known() (n uint64, err error) {
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
