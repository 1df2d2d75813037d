package dryrun

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
)

// neededData is the data that the packet has used so far and that packets can change.
type neededData struct {
	packet  *Packet
	key     bpf.TcConnectionKey
	entries []conntrack.Entry
	service *bpf.TcService // of the packet; nil: unknown, or none
	pairs   []bpf.TcSnatPair
	known   bool   // whether known clients are needed, and were copied
	now     uint32 // jiffies, when the last run looked for an endpoint
}

// copyConnection finds the entries of the packet's own connection, of the connection that it
// answers, and of connections to which it may be related.
func (d *replica) copyConnection(n *neededData) error {
	reversed := bpf.TcConnectionKey{Saddr: n.key.Daddr, Daddr: n.key.Saddr, Sport: n.key.Dport, Dport: n.key.Sport, Protocol: n.key.Protocol}
	keys := []bpf.TcConnectionKey{n.key, reversed}
	if lb.Protocol(n.key.Protocol) == lb.UDP {
		requests, err := d.requests(n.key)
		if err != nil {
			return err
		}
		keys = append(keys, requests...)
	}
	for _, key := range keys {
		if _, err := d.add(n, key); err != nil {
			return err
		}
	}
	return nil
}

// requests returns the keys of requests that the packet may answer from a new port:
// tftp_find_service() of bpf/helper/tftp.h.
func (d *replica) requests(key bpf.TcConnectionKey) (list []bpf.TcConnectionKey, err error) {
	var ports uint32
	if err := d.live.Variables.TftpPorts.Get(&ports); err != nil {
		return nil, fmt.Errorf("read ports of TFTP servers: %w", err)
	}
	for ; ports != 0; ports >>= 16 {
		key.Sport = uint16(ports)
		list = append(list, key)
	}
	return list, nil
}

// add adds the entry of a key, and that of the other direction. It returns false if there is none,
// or if it was added before.
func (d *replica) add(n *neededData, key bpf.TcConnectionKey) (bool, error) {
	if n.has(key) {
		return false, nil
	}
	c, there, err := d.live.Conntrack.Lookup(key)
	if err != nil || !there {
		return false, err
	}
	n.entries = append(n.entries, conntrack.Entry{Key: key, Row: c})
	if err := d.copyNextHop(c.Way); err != nil {
		return false, err
	}
	_, err = d.add(n, reverseKey(&n.entries[len(n.entries)-1]))
	return true, err
}

func (n *neededData) has(key bpf.TcConnectionKey) bool {
	return slices.ContainsFunc(n.entries, func(e conntrack.Entry) bool { return e.Key == key })
}

// reverseKey returns the key of the other direction's entry: connection_reverse() of
// bpf/conntrack/conntrack.h.
func reverseKey(e *conntrack.Entry) bpf.TcConnectionKey {
	key := bpf.TcConnectionKey{Saddr: e.Row.Daddr, Daddr: e.Row.Saddr, Sport: e.Row.Dport, Dport: e.Row.Sport, Protocol: e.Key.Protocol}
	if e.Row.Hop&hopFamily != 0 {
		key.Protocol = uint8(lb.Protocol(key.Protocol).Translated())
	}
	return key
}

func (d *replica) copyNextHop(i uint16) error {
	var w bpf.TcHop
	if err := d.live.Maps.Ways.Lookup(uint32(i), &w); err != nil {
		return fmt.Errorf("read a next hop: %w", err)
	}
	return d.Maps.Ways.Put(uint32(i), w)
}

// fill fills the replica with the data that the packet needs.
func (d *replica) fill(n *neededData) error {
	if err := d.connections.Set(d.live.Conntrack, n.entries); err != nil {
		return err
	}
	if lb.Protocol(n.key.Protocol) == lb.TCP {
		if err := d.copyExpectations(n.key); err != nil {
			return err
		}
	}
	if n.service == nil {
		return nil
	}
	id := n.service.Id
	var state bpf.TcServiceState
	if err := d.live.Maps.ServiceStates.Lookup(id, &state); err != nil {
		return fmt.Errorf("read the state of a service: %w", err)
	}
	err := errors.Join(d.copyClient(n), d.copyPersist(n), d.copyPairs(n), d.copyLoads(n))
	if err == nil {
		err = d.steer(n, &state)
	}
	return errors.Join(err, d.Maps.ServiceStates.Put(id, state))
}

// copyRow copies the row of a key into a table, if the live one has it.
func copyRow[K, V any](from, to *ebpf.Map, key K) error {
	var v V
	if from == nil {
		return nil
	}
	err := from.Lookup(key, &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return to.Put(key, v)
}

// copyClient copies the client's number of connections to a service with limits.
func (d *replica) copyClient(n *neededData) error {
	table := d.live.ServiceLimits.Table()
	if table == nil || n.service.Flags&uint16(bpf.TcServiceFlagSERVICE_LIMITED) == 0 {
		return nil
	}
	var limits bpf.TcServiceLimits
	if err := table.Lookup(n.service.Id, &limits); err != nil {
		return err
	}
	key := bpf.TcLimitKey{Service: n.service.Id, Generation: limits.Generation, Client: bpf.Prefix(n.key.Saddr, limits.ClientPrefix)}
	return copyRow[bpf.TcLimitKey, bpf.TcLimitRow](d.live.LimitedClients.Table(), d.clients.Table(), key)
}

func (n *neededData) persistKey() bpf.TcPersistKey {
	return bpf.TcPersistKey{Service: n.service.Id, Client: bpf.Prefix(n.key.Saddr, n.service.PersistPrefix)}
}

// copyPersist copies the client's remembered endpoint.
func (d *replica) copyPersist(n *neededData) error {
	if bpf.TcAlgorithm(n.service.Algorithm) != bpf.TcAlgorithmALGORITHM_PERSIST {
		return nil
	}
	return copyRow[bpf.TcPersistKey, bpf.TcPersistEntry](d.live.Persists.Table(), d.persists.Table(), n.persistKey())
}

// copyPairs copies the numbers of used source ports.
func (d *replica) copyPairs(n *neededData) error {
	for _, pair := range n.pairs {
		if err := copyRow[bpf.TcSnatPair, bpf.TcSnatUsage](d.live.SNATUsages.Table(), d.usages.Table(), pair); err != nil {
			return err
		}
	}
	return nil
}

// copyLoads copies the endpoints' numbers of connections, if the service needs them.
func (d *replica) copyLoads(n *neededData) error {
	if bpf.TcAlgorithm(n.service.Algorithm) != bpf.TcAlgorithmALGORITHM_LC {
		return nil
	}
	for i, live := range d.live.EndpointStates.Shared.Segments() {
		if i >= len(d.states.Segments()) {
			break
		}
		var failed error
		err := rows.EachBatch(live, int(live.MaxEntries()), func(keys []uint32, values []bpf.TcEndpointState) {
			if len(keys) > 0 && failed == nil {
				_, failed = d.states.Segments()[i].BatchUpdate(keys, values, nil)
			}
		})
		if err = errors.Join(err, failed); err != nil {
			return fmt.Errorf("copy loads of endpoints: %w", err)
		}
	}
	return nil
}

// steer makes the service's algorithm choose the requested endpoint, if the choice depends on data
// that packets change.
func (d *replica) steer(n *neededData, state *bpf.TcServiceState) error {
	if !n.packet.Prefer.IsValid() {
		return nil
	}
	places, ids, err := d.places(n)
	if err != nil || len(places) == 0 {
		return err
	}
	switch bpf.TcAlgorithm(n.service.Algorithm) {
	case bpf.TcAlgorithmALGORITHM_RR, bpf.TcAlgorithmALGORITHM_PRIORITY:
		state.Next = uint64(places[0])
	case bpf.TcAlgorithmALGORITHM_PERSIST:
		return d.persists.Table().Put(n.persistKey(), bpf.TcPersistEntry{Endpoint: ids[places[0]], Seen: n.now})
	case bpf.TcAlgorithmALGORITHM_LC:
		const busy = 1 << 30
		for _, id := range ids {
			load := bpf.TcEndpointState{Active: busy}
			if id == ids[places[0]] {
				load.Active = 0
			}
			if err := d.states.Put(id, load); err != nil {
				return err
			}
		}
	}
	return nil
}

// places returns the places of the requested endpoint in the service's table; ids are all of the
// table.
func (d *replica) places(n *neededData) (places []int, ids []uint32, err error) {
	const per = uint32(bpf.TcLimitSLOTS_PER_BLOCK)
	segments := d.live.Slots.Segments()
	if int(n.service.SlotSegment) >= len(segments) {
		return nil, nil, nil
	}
	var block bpf.TcSlotBlock
	var row bpf.TcEndpoint
	is := map[uint32]bool{}
	for i := range n.service.SlotCount {
		at := uint32(n.service.SlotOffset) + i
		if i == 0 || at%per == 0 {
			if err := segments[n.service.SlotSegment].Lookup(at/per, &block); err != nil {
				return nil, nil, err
			}
		}
		id := block.Endpoints[at%per]
		if _, asked := is[id]; !asked {
			if err := d.live.Endpoints.Lookup(id, &row); err != nil {
				return nil, nil, err
			}
			is[id] = bpf.AddrPort(row.Addr, row.Port) == n.packet.Prefer
		}
		if ids = append(ids, id); is[id] {
			places = append(places, int(i))
		}
	}
	return places, ids, nil
}
