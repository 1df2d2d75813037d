package cluster

import (
	"context"
	"time"

	"loxilb/internal/cluster/record"
	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// Clients of --select=persist keep their endpoints on all nodes. An inserted connection includes
// its client, so only clients without a connection are sent: to a node that connects, after all
// connections.

// scanClients encodes the clients that this node knows, and passes them to yield.
func (n *Node) scanClients(ctx context.Context, yield func(chunk) error) error {
	return n.Table.ScanClients(ctx, func(list []report.ClientCopy) error {
		for len(list) > 0 {
			c := chunk{clients: true, data: make([]byte, 0, min(len(list)*record.MaxClientLength, transport.MaxFrame))}
			for len(list) > 0 && len(c.data) <= transport.MaxFrame-record.MaxClientLength {
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

// applyClients remembers the clients of a frame of this age.
func (n *Node) applyClients(ctx context.Context, s *source, payload []byte, age time.Duration) error {
	list, err := decode(nil, payload, record.DecodeClient)
	if err != nil {
		return err
	}
	for i := range list {
		list[i].Idle += age
	}
	unknown := make([]bool, len(list))
	err = n.Table.PutClients(ctx, list, unknown)
	for i := range list {
		if unknown[i] {
			n.clients.add(s, list[i]) // without room, the client is a new one
		}
	}
	return err
}

// retryClients tries parked clients again.
func (n *Node) retryClients(ctx context.Context, list []waiting[report.ClientCopy]) {
	clients, unknown := make([]report.ClientCopy, len(list)), make([]bool, len(list))
	for i := range list {
		clients[i] = list[i].record
		clients[i].Idle += time.Since(list[i].arrived)
	}
	if err := n.Table.PutClients(ctx, clients, unknown); err != nil {
		if ctx.Err() == nil {
			n.Log.Error("connections of other nodes cannot be inserted", "error", err)
		}
		n.clients.putBack(list)
		return
	}
	kept := list[:0]
	for i, w := range list {
		if unknown[i] && time.Since(w.arrived) < parkedTime {
			kept = append(kept, w)
		}
	}
	n.clients.putBack(kept)
}
