// Package tables writes the maps of services, one service at a time, and tracks their content. It
// adopts the maps of an earlier process.
package tables

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
)

// Sizes.
const (
	MaxServices  = int(bpf.TcLimitMAX_SERVICES)
	MaxEndpoints = int(bpf.TcLimitMAX_ENDPOINTS)
)

const (
	endpointInUse   = uint16(bpf.TcEndpointFlagENDPOINT_IN_USE)
	endpointShift   = uint16(bpf.TcEndpointFlagENDPOINT_SHIFT)
	endpointFailed  = uint16(bpf.TcEndpointFlagENDPOINT_FAILED)
	endpointRemoved = uint16(bpf.TcEndpointFlagENDPOINT_REMOVED)
	endpointSNAT    = uint16(bpf.TcEndpointFlagENDPOINT_SNAT)
	// endpointCompared means that CPUs count active connections in one place.
	endpointCompared = uint16(bpf.TcEndpointFlagENDPOINT_COMPARED)

	serviceSources   = uint16(bpf.TcServiceFlagSERVICE_SOURCES)
	serviceDenies    = uint16(bpf.TcServiceFlagSERVICE_DENIES)
	serviceSecondary = uint16(bpf.TcServiceFlagSERVICE_SECONDARY)
	serviceEgress    = uint16(bpf.TcServiceFlagSERVICE_EGRESS)
	serviceHelpers   = uint16(bpf.TcServiceFlagSERVICE_HELPERS)
	serviceTFTP      = uint16(bpf.TcServiceFlagSERVICE_TFTP)
	serviceFTP       = uint16(bpf.TcServiceFlagSERVICE_FTP)
	serviceLimited   = uint16(bpf.TcServiceFlagSERVICE_LIMITED)
)

// ErrFull reports that a map has no row left. It may be temporary: a removed object releases its
// rows a moment after its last connection.
var ErrFull = rows.ErrFull

// Tables tracks the rows that the process has written. Methods are safe for concurrent use.
type Tables struct {
	settings *loader.Settings
	maps     *bpf.TcMaps
	vars     *bpf.TcVariables
	now      func() time.Time
	opened   time.Time

	mu            sync.RWMutex
	services      map[bpf.TcServiceKey]*service
	secondary     map[bpf.TcServiceKey]*service // by the keys that they have besides their own
	ranges        map[bpf.TcServiceKey][]uint16 // first ports of ranges, by their keys without a port
	endpoints     []*endpoint                   // by id, including ending ones; nil: free
	ending        map[uint32]*endpoint          // removed, some connections left
	deadlines     map[uint32]deadlines          // by id, of endpoints whose connections have a deadline
	drains        drains
	newlyCompared []uint32                     // endpoints whose counts of each CPU must be moved
	endTimes      endTimes                     // of endpoints that are ending
	local         map[bpf.TcIpAddr]uint8       // as in local_addresses
	localCount    uint32                       // endpoints with one of these addresses
	localChanged  chan struct{}                // capacity 1: the first one was added, or the last one removed
	egress        map[bpf.TcEgressKey][]egress // claims of an address; the first one has it
	egressCount   uint32                       // as written
	helperOf      map[*service]uint16          // the helper of each service that has one
	tftpPorts     uint32                       // as written
	ftpServices   uint32                       // as written
	vips          map[bpf.TcIpAddr]bpf.TcVip
	counts        counts
	countSets     []map[string]*ebpf.Variable // variables to which the sums are written
	serviceIDs    rows.IDs
	endpointIDs   rows.IDs
	slots         rows.Slots
	arrays        *loader.Collection // rows by endpoint id; they grow under mu
	removed       removedCounters
	removedTotal  counters // of all removed endpoints
	handshakes    handshakes
	filter        *rows.Filter
	persisting    bool        // a service remembers clients, or did
	hasCopies     atomic.Bool // endpoints may have traffic of connections that other nodes have opened
	attached      attached
}

// counts are the numbers of rare kinds of services: while they are 0, packets skip the checks for
// them.
type counts struct {
	hosts   uint32 // of every local address
	clamped uint32 // that limit segments
	ranged  uint32 // with a range of ports
	marked  uint32 // with a mark
}

// Close releases the process's resources. Pins stay.
func (t *Tables) Close() {
	if t == nil {
		return
	}
	t.mu.Lock() // room may still be made
	defer t.mu.Unlock()
	t.removed.close()
	t.endTimes.close()
}

// service is a row of the services map and the rows that it refers to.
type service struct { // there are many: 128 bytes
	key     bpf.TcServiceKey
	id      uint32
	row     bpf.TcService // as written at the service's own VIP
	idle    uint32        // jiffies, as in idle_timeouts
	persist uint32        // jiffies, as in persist_timeouts
	mss     uint32        // as in mss_limits
	portMax uint16        // of its range, in the trie
	clamped bool          // it counts as limiting segments
	deleted bool
	name    string
	order   []*endpoint // as the user wrote them
	ending  map[netip.AddrPort]*endpoint
	extra   *extras // nil: none; read by extras, written by makeExtras
}

// slots returns the place of the service's table of slots, from its row.
func (s *service) slots() rows.Range {
	return rows.Range{Segment: uint32(s.row.SlotSegment), Offset: uint32(s.row.SlotOffset), Count: s.row.SlotCount}
}

// extras are members that few services use.
type extras struct {
	sources   []netip.Prefix // as the trie has them
	denied    []netip.Prefix // prefixes of denied sources
	snat      []bpf.TcIpAddr // as in snat_sources
	parents   []uint32       // as in the table
	secondary []*service     // copies for secondary VIPs: only their key and portMax count
	claims    map[bpf.TcEgressKey]egress
	removed   counters // of removed endpoints
	quic      quic
	vips      bpf.TcSctpVipList // as sctp_vips has them
	tenths    bool              // endpoints' weights are in tenths
}

// extras returns the service's extras, for reading.
func (s *service) extras() extras {
	if s.extra == nil {
		return extras{}
	}
	return *s.extra
}

// makeExtras returns the service's extras, for writing.
func (s *service) makeExtras() *extras {
	if s.extra == nil {
		s.extra = &extras{}
	}
	return s.extra
}

// endpoint is a row of the endpoints map.
type endpoint struct { // there are many: 64 bytes
	addr          bpf.TcIpAddr
	source        bpf.TcIpAddr // our address towards it; zero: none
	service       *service
	ended         time.Duration // when it was removed from its service, since the tables were opened
	id            uint32
	currentWeight uint32 // for new connections; 0: none
	port          uint16 // as in the row: network byte order
	weight        uint16
	flags         uint16 // as in the row: endpointShift, endpointFailed, endpointSNAT, endpointCompared

	sourceBits, addrBits uint8 // as in bpf.EndpointTable
}

// endpoint returns the endpoint with an id, or nil.
func (t *Tables) endpoint(id uint32) *endpoint {
	if int(id) >= len(t.endpoints) {
		return nil
	}
	return t.endpoints[id]
}

func (t *Tables) enterEndpoint(e *endpoint) {
	for int(e.id) >= len(t.endpoints) {
		t.endpoints = append(t.endpoints, nil)
	}
	t.endpoints[e.id] = e
}

// at returns the address and port of the endpoint.
func (e *endpoint) at() netip.AddrPort { return bpf.AddrPort(e.addr, e.port) }
