package traffic

import (
	"cmp"
	"net/netip"
	"slices"

	"loxilb/internal/lb/report"
)

// clientUse is what the connections of a client amount to.
type clientUse struct {
	Client      netip.Prefix
	Connections uint64
	In, Out     report.Traffic // from and to the client
}

// clientOrder is what clients are ordered by.
type clientOrder string

// The orders.
const (
	byConnections clientOrder = "connections"
	byBytes       clientOrder = "bytes"
	byPackets     clientOrder = "packets"
)

// clientOrders are all of them.
func clientOrders() []clientOrder { return []clientOrder{byConnections, byBytes, byPackets} }

// of returns what a client has of it.
func (o clientOrder) of(u *clientUse) uint64 {
	switch o {
	case byBytes:
		return u.In.Bytes + u.Out.Bytes
	case byPackets:
		return u.In.Packets + u.Out.Packets
	}
	return u.Connections
}

// mostClients is how many clients are counted at a time: 4 MB.
const mostClients = 1 << 15

// clientCounter adds up connections by client. With more clients than it may hold, it drops the
// half that has less, and remembers by how much what is left may be too small (Anderson et al., "A
// High-Performance Algorithm for Identifying Frequent Items in Data Streams", 2017). A list of all
// clients would take 100 MB for a million of them.
type clientCounter struct {
	order    clientOrder
	most     int
	bits4    int // leading bits that make a client
	bits6    int
	clients  map[netip.Prefix]*clientEntry
	error    uint64
	all      clientUse
	discount []uint64 // reused
}

// clientEntry is a counted client.
type clientEntry struct {
	use   clientUse
	share uint64 // of the order, less the discount of each drop
}

// newClientCounter makes a counter of at most so many clients; so many leading bits of an address
// make one.
func newClientCounter(order clientOrder, most, bits4, bits6 int) *clientCounter {
	return &clientCounter{order: order, most: most, bits4: bits4, bits6: bits6, clients: map[netip.Prefix]*clientEntry{}}
}

// Add counts a direction of a connection of a client.
func (c *clientCounter) Add(client netip.Addr, one *report.Connection) {
	u := clientUse{In: one.Traffic, Connections: 1}
	if one.Reply {
		u = clientUse{Out: one.Traffic}
	}
	c.all.add(&u)
	bits := c.bits6
	if client.Is4() {
		bits = c.bits4
	}
	p, err := client.Prefix(bits)
	if err != nil {
		return // no address
	}
	e := c.clients[p]
	if e == nil {
		if len(c.clients) >= c.most {
			c.drop()
		}
		e = &clientEntry{use: clientUse{Client: p}}
		c.clients[p] = e
	}
	e.use.add(&u)
	e.share += c.order.of(&u)
}

func (u *clientUse) add(o *clientUse) {
	u.Connections += o.Connections
	u.In.Packets, u.In.Bytes = u.In.Packets+o.In.Packets, u.In.Bytes+o.In.Bytes
	u.Out.Packets, u.Out.Bytes = u.Out.Packets+o.Out.Packets, u.Out.Bytes+o.Out.Bytes
}

// drop makes room: each client loses what the one in the middle has.
func (c *clientCounter) drop() {
	c.discount = c.discount[:0]
	for _, e := range c.clients {
		c.discount = append(c.discount, e.share)
	}
	slices.Sort(c.discount)
	middle := c.discount[len(c.discount)/2]
	for p, e := range c.clients {
		if e.share <= middle {
			delete(c.clients, p)
			continue
		}
		e.share -= middle
	}
	c.error += middle
}

// All is the sum over all clients.
func (c *clientCounter) All() clientUse { return c.all }

// Error is the bound of the error: the numbers by which clients are ordered may be too small by so
// much, and a dropped client has at most so much. 0: no client was dropped, and all numbers are
// exact.
func (c *clientCounter) Error() uint64 { return c.error }

// Clients returns how many are counted.
func (c *clientCounter) Clients() int { return len(c.clients) }

// Top returns the clients with the most, at most so many of them.
func (c *clientCounter) Top(n int) []clientUse {
	list := make([]clientUse, 0, len(c.clients))
	for _, e := range c.clients {
		list = append(list, e.use)
	}
	slices.SortFunc(list, func(a, b clientUse) int {
		return cmp.Or(cmp.Compare(c.order.of(&b), c.order.of(&a)), a.Client.Addr().Compare(b.Client.Addr()))
	})
	return slices.Clip(list[:min(n, len(list))])
}
