package report

import (
	"cmp"
	"net/netip"
	"slices"
)

// ClientUse is the sum of a client's connections.
type ClientUse struct {
	Client      netip.Prefix
	Connections uint64
	In, Out     Traffic // from and to the client
}

// ClientOrder is the sort order of clients.
type ClientOrder string

// The orders.
const (
	ByConnections ClientOrder = "connections"
	ByBytes       ClientOrder = "bytes"
	ByPackets     ClientOrder = "packets"
)

// ClientOrders are all orders of clients.
func ClientOrders() []ClientOrder { return []ClientOrder{ByConnections, ByBytes, ByPackets} }

// of returns a client's value in this order.
func (o ClientOrder) of(u *ClientUse) uint64 {
	switch o {
	case ByBytes:
		return u.In.Bytes + u.Out.Bytes
	case ByPackets:
		return u.In.Packets + u.Out.Packets
	}
	return u.Connections
}

// ClientCounter sums connections by client. If there are too many clients, it drops the half with
// lower values and remembers the resulting error (Anderson et al., "A High-Performance Algorithm
// for Identifying Frequent Items in Data Streams", 2017). A list of all clients would take 100 MB
// for a million.
type ClientCounter struct {
	order    ClientOrder
	most     int
	bits4    int // leading bits that make a client
	bits6    int
	clients  map[netip.Prefix]*clientEntry
	error    uint64
	all      ClientUse
	discount []uint64 // reused
}

// clientEntry is a counted client.
type clientEntry struct {
	use   ClientUse
	share uint64 // of the order, less the discount of each drop
}

// NewClientCounter makes a counter of up to most clients. A client is the first bits of an address.
func NewClientCounter(order ClientOrder, most, bits4, bits6 int) *ClientCounter {
	return &ClientCounter{order: order, most: most, bits4: bits4, bits6: bits6, clients: map[netip.Prefix]*clientEntry{}}
}

// Add counts a direction of a connection of a client.
func (c *ClientCounter) Add(client netip.Addr, one *Connection) {
	u := ClientUse{In: one.Traffic, Connections: 1}
	if one.Reply {
		u = ClientUse{Out: one.Traffic}
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
		e = &clientEntry{use: ClientUse{Client: p}}
		c.clients[p] = e
	}
	e.use.add(&u)
	e.share += c.order.of(&u)
}

func (u *ClientUse) add(o *ClientUse) {
	u.Connections += o.Connections
	u.In.Packets, u.In.Bytes = u.In.Packets+o.In.Packets, u.In.Bytes+o.In.Bytes
	u.Out.Packets, u.Out.Bytes = u.Out.Packets+o.Out.Packets, u.Out.Bytes+o.Out.Bytes
}

// drop makes room: it subtracts the median from each client.
func (c *ClientCounter) drop() {
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
func (c *ClientCounter) All() ClientUse { return c.all }

// Error is the bound of the error: sort values may be too low by this much, and a dropped client
// has at most this much. 0: no client was dropped, and all values are exact.
func (c *ClientCounter) Error() uint64 { return c.error }

// Clients returns the number of counted clients.
func (c *ClientCounter) Clients() int { return len(c.clients) }

// Top returns the n clients with the highest values.
func (c *ClientCounter) Top(n int) []ClientUse {
	list := make([]ClientUse, 0, len(c.clients))
	for _, e := range c.clients {
		list = append(list, e.use)
	}
	slices.SortFunc(list, func(a, b ClientUse) int {
		return cmp.Or(cmp.Compare(c.order.of(&b), c.order.of(&a)), a.Client.Addr().Compare(b.Client.Addr()))
	})
	return slices.Clip(list[:min(n, len(list))])
}
