package flowlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"loxilb/internal/lb/report"
)

// Information elements of IANA's registry that RFC 8158 uses for NAT events.
const (
	ieOctets          = 1
	iePackets         = 2
	ieProtocol        = 4
	ieSourcePort      = 7
	ieSourceIPv4      = 8
	ieDestinationPort = 11
	ieDestinationIPv4 = 12
	ieSourceIPv6      = 27
	ieDestinationIPv6 = 28
	ieFlowEndReason   = 136
	ieFlowStart       = 152 // milliseconds
	ieFlowEnd         = 153
	ieExportingID     = 144
	ieNotSentFlows    = 166
	iePostSourceIPv4  = 225
	iePostDestIPv4    = 226
	iePostSourcePort  = 227
	iePostDestPort    = 228
	ieNATEvent        = 230
	iePostSourceIPv6  = 281
	iePostDestIPv6    = 282
	ieObservationTime = 323 // milliseconds
)

// Values of natEvent (RFC 8158 section 8.1) and flowEndReason (RFC 5102).
const (
	natCreate, natDelete     = 1, 2 // for families without own values
	nat44Create, nat44Delete = 4, 5
	nat64Create, nat64Delete = 6, 7

	endIdle, endSeen, endForced = 1, 3, 4
)

const (
	ipfixVersion      = 10
	headerSize        = 16
	setHeader         = 4
	templateSet       = 2
	optionsSet        = 3
	firstTemplate     = 256 // template ids from here on: bits encode their content
	bitEnded          = 1
	bitClientIPv6     = 2
	bitEndpointIPv6   = 4
	templates         = 8
	lossTemplate      = firstTemplate + templates
	messageMax        = 1400 // fits any path
	templatesEvery    = time.Minute
	lossEvery         = time.Second
	ipfixWriteTimeout = 100 * time.Millisecond
)

// reversePEN is the enterprise number of elements about answers (RFC 5103). Elements with an
// enterprise number have enterpriseBit.
const (
	reversePEN    = 29305
	enterpriseBit = 0x8000
)

// element is a field of a template. With enterpriseBit in its id, it is about the answers.
type element struct{ id, length uint16 }

// elements returns the elements of a template, in the order of its records.
func elements(template int) []element {
	address := func(six bool, four, other uint16) element {
		if six {
			return element{other, 16}
		}
		return element{four, 4}
	}
	client, endpoint := template&bitClientIPv6 != 0, template&bitEndpointIPv6 != 0
	list := []element{
		{ieObservationTime, 8}, {ieNATEvent, 1}, {ieProtocol, 1},
		address(client, ieSourceIPv4, ieSourceIPv6), address(client, ieDestinationIPv4, ieDestinationIPv6), {ieSourcePort, 2}, {ieDestinationPort, 2},
		address(endpoint, iePostSourceIPv4, iePostSourceIPv6), address(endpoint, iePostDestIPv4, iePostDestIPv6), {iePostSourcePort, 2}, {iePostDestPort, 2},
	}
	if template&bitEnded == 0 {
		return append(list, element{ieFlowStart, 8})
	}
	return append(list, element{ieFlowEnd, 8}, element{ieOctets, 8}, element{iePackets, 8},
		element{ieOctets | enterpriseBit, 8}, element{iePackets | enterpriseBit, 8}, element{ieFlowEndReason, 1})
}

// IPFIX sends opened and ended connections to a collector by UDP (RFC 7011).
type IPFIX struct {
	collector      collector
	domain         uint32
	sequence       uint32 // data records sent so far
	described      time.Time
	lossReportedAt time.Time // when a loss was last reported
	reportedLoss   uint64

	message []byte
	set     int // where the last set begins; 0: there is none
	kind    uint16
	records uint32 // in message
}

// NewIPFIX returns a sink that sends to a collector, HOST:PORT, under the number of an observation
// domain. It connects with the first event.
func NewIPFIX(address string, domain uint32) *IPFIX {
	return &IPFIX{collector: newCollector(address), domain: domain}
}

// Name returns the address of the collector.
func (x *IPFIX) Name() string { return "ipfix://" + x.collector.address }

// Close closes the socket.
func (x *IPFIX) Close() error { return x.collector.close() }

// Write sends events.
func (x *IPFIX) Write(now time.Time, events []report.ConnectionEvent, lost uint64) error {
	isNew, err := x.collector.connect(now)
	if err != nil {
		return fmt.Errorf("connect to the collector: %w", err)
	}
	if isNew { // sequence numbers and templates belong to a socket
		x.described, x.sequence = time.Time{}, 0
	}
	x.begin()
	if now.Sub(x.described) >= templatesEvery {
		x.describe()
		x.described = now
	}
	if lost != x.reportedLoss && now.Sub(x.lossReportedAt) >= lossEvery {
		x.appendLost(lost)
		x.reportedLoss, x.lossReportedAt = lost, now
	}
	var errs []error
	for i := range events {
		errs = append(errs, x.event(now, &events[i]))
	}
	return errors.Join(append(errs, x.flush(now))...)
}

// begin begins a message.
func (x *IPFIX) begin() {
	x.message = append(x.message[:0], make([]byte, headerSize)...)
	x.set, x.records = 0, 0
}

// flush sends the message, if there is something in it.
func (x *IPFIX) flush(now time.Time) error {
	defer x.begin()
	if len(x.message) == headerSize {
		return nil
	}
	x.endSet()
	h := x.message
	binary.BigEndian.PutUint16(h[0:], ipfixVersion)
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
	binary.BigEndian.PutUint32(h[4:], uint32(now.Unix()))
	binary.BigEndian.PutUint32(h[8:], x.sequence)
	binary.BigEndian.PutUint32(h[12:], x.domain)
	x.sequence += x.records // including lost ones, by which the collector notices the loss
	if err := x.collector.conn.SetWriteDeadline(time.Now().Add(ipfixWriteTimeout)); err != nil {
		return err
	}
	if _, err := x.collector.conn.Write(h); err != nil {
		x.described = time.Time{} // a restarted collector may have lost the templates
		x.collector.failed(now)
		return fmt.Errorf("send to the collector: %w", err)
	}
	return nil
}

// beginSet begins a set, unless the last one is the same kind.
func (x *IPFIX) beginSet(kind uint16) {
	if x.set > 0 && x.kind == kind {
		return
	}
	x.endSet()
	x.set, x.kind = len(x.message), kind
	x.message = binary.BigEndian.AppendUint16(x.message, kind)
	x.message = binary.BigEndian.AppendUint16(x.message, 0)
}

func (x *IPFIX) endSet() {
	if x.set > 0 {
		binary.BigEndian.PutUint16(x.message[x.set+2:], uint16(len(x.message)-x.set))
	}
}

// describe appends all templates.
func (x *IPFIX) describe() {
	put := func(numbers ...uint16) {
		for _, n := range numbers {
			x.message = binary.BigEndian.AppendUint16(x.message, n)
		}
	}
	x.beginSet(templateSet)
	for t := range templates {
		list := elements(t)
		put(firstTemplate+uint16(t), uint16(len(list)))
		for _, e := range list {
			put(e.id, e.length)
			if e.id&enterpriseBit != 0 {
				x.message = binary.BigEndian.AppendUint32(x.message, reversePEN)
			}
		}
	}
	x.beginSet(optionsSet)
	put(lossTemplate, 2, 1, ieExportingID, 4, ieNotSentFlows, 8)
}

// appendLost appends the number of events that were not sent.
func (x *IPFIX) appendLost(lost uint64) {
	x.beginSet(lossTemplate)
	x.message = binary.BigEndian.AppendUint32(x.message, 0)
	x.message = binary.BigEndian.AppendUint64(x.message, lost)
	x.records++
}

// event appends an event about a translation, and sends the previous message if it is full.
func (x *IPFIX) event(now time.Time, e *report.ConnectionEvent) (err error) {
	template := 0
	switch {
	case e.Act == "ended":
		template |= bitEnded
	case e.Act != "opened":
		return nil
	}
	client, endpoint := e.Client.Addr().Unmap(), e.Endpoint.Addr().Unmap()
	if client.Is6() {
		template |= bitClientIPv6
	}
	if endpoint.Is6() {
		template |= bitEndpointIPv6
	}
	size := setHeader
	for _, f := range elements(template) {
		size += int(f.length)
	}
	if len(x.message)+size > messageMax {
		err = x.flush(now)
	}
	x.beginSet(uint16(firstTemplate + template))
	x.record(template, e)
	x.records++
	return err
}

func (x *IPFIX) record(template int, e *report.ConnectionEvent) {
	address := func(a netip.Addr) { x.message = append(x.message, a.Unmap().AsSlice()...) }
	port := func(p uint16) { x.message = binary.BigEndian.AppendUint16(x.message, p) }
	x.message = binary.BigEndian.AppendUint64(x.message, uint64(e.Time.UnixMilli()))
	x.message = append(x.message, natEvent(template), byte(e.Protocol))
	address(e.Client.Addr())
	address(e.VIP.Addr())
	port(e.Client.Port())
	port(e.VIP.Port())
	address(e.Source.Addr())
	address(e.Endpoint.Addr())
	port(e.Source.Port())
	port(e.Endpoint.Port())
	x.message = binary.BigEndian.AppendUint64(x.message, uint64(e.Time.UnixMilli()))
	if template&bitEnded == 0 {
		return
	}
	for _, n := range []uint64{e.In.Bytes, e.In.Packets, e.Out.Bytes, e.Out.Packets} {
		x.message = binary.BigEndian.AppendUint64(x.message, n)
	}
	x.message = append(x.message, endReason(e.Reason))
}

func natEvent(template int) byte {
	create, end := byte(natCreate), byte(natDelete)
	switch template &^ bitEnded {
	case 0:
		create, end = nat44Create, nat44Delete
	case bitClientIPv6:
		create, end = nat64Create, nat64Delete
	}
	if template&bitEnded != 0 {
		return end
	}
	return create
}

func endReason(reason string) byte {
	switch reason {
	case "closed", "reset":
		return endSeen
	case "silent":
		return endIdle
	}
	return endForced
}
