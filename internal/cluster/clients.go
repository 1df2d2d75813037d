package cluster

import (
	"context"
	"time"

	"loxilb/internal/cluster/record"
	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// Clients of --select=persist keep their endpoints on all nodes. A connection that is inserted
// brings its client along, so only what is older is sent: after all connections, to a node that
// connects.

// scanClients encodes the clients that this node knows, and passes them on.
func (n *Node) scanClients(ctx context.Context, yield func(chunk) error) error {
	return n.Table.ScanClients(ctx, func(list []report.ClientCopy) error {
		for len(list) > 0 {
			c := chunk{clients: true, data: make([]byte, 0, min(len(list)*record.MaxClientLength, transport.FrameMost))}
			for len(list) > 0 && len(c.data) <= transport.FrameMost-record.MaxClientLength {
				c.data = record.AppendClient(c.data, &list[0])
				list = list[1:]
			}
			if err := yield(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// applyClients remembers the clients of a frame.
func (n *Node) applyClients(ctx context.Context, s *source, payload []byte) error {
	list, err := decode(nil, payload, record.DecodeClient)
	if err != nil {
		return err
	}
	unknown, err := n.Table.PutClients(ctx, list)
	for _, c := range unknown {
		n.clients.add(s, c) // without room, the client is a new one
	}
	return err
}

// tryClientsAgain tries parked clients again.
func (n *Node) tryClientsAgain(ctx context.Context, list []waiting[report.ClientCopy]) {
	for _, w := range list {
		since := time.Since(w.came)
		c := w.record
		c.Idle += since
		unknown, err := n.Table.PutClients(ctx, []report.ClientCopy{c})
		if (len(unknown) > 0 || err != nil) && since < parkedTime {
			n.clients.putBack([]waiting[report.ClientCopy]{w})
		}
	}
}
