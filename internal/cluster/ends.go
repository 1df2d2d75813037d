package cluster

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"time"

	"loxilb/internal/cluster/record"
	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

const (
	// maxEnds bounds the memory of ends: about 280,000 of IPv4. The oldest ones go first.
	maxEnds = 8 << 20
	// keepEnds is how long ends are kept while no node is away: longer than it takes to notice
	// that one is, which has missed the ends since.
	keepEnds = 15 * time.Second
	// endsPartTime bounds the time between the ends of a part, which share the age of the first.
	endsPartTime = time.Second
	// endsAtOnce is the number of ends that are applied at once, or a few more.
	endsAtOnce = 2000
	// departedEnds is how long ends are kept for nodes that have gone and are not configured:
	// longer than connections are silent by default.
	departedEnds = 125 * time.Minute
	// ageLength is the length of the age in front of a part that is sent, in milliseconds.
	ageLength = 4
)

// ends are the connections that have ended recently, or while another node was away. That node
// still has them as open connections. It gets the ends once it returns (beginBulk), and they are
// applied to the connections that it sends (applyOwnEnds). Otherwise these would remain until they
// time out.
type ends struct {
	mu    sync.Mutex
	parts []endsPart // by age
	bytes int
	frame record.Packer // of the last part
}

// endsPart holds packed records for at most one frame.
type endsPart struct {
	began time.Time
	data  []byte
	count int
}

func (p *endsPart) cost() int { return cap(p.data) + chunkCost }

// keepEnds adds the connections of list that have ended, and forgets ends that no node needs.
func (n *Node) keepEnds(list []report.ConnectionCopy) {
	if n.ends.add(list) > keepEnds && !n.isAnyAway() {
		n.ends.forget(keepEnds)
	}
}

// isAnyAway reports whether a node may need ends that are older than keepEnds: a configured node
// reads slowly or does not have all connections yet, or a known node has not sent all of its own or
// gets none.
func (n *Node) isAnyAway() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, since := range n.departed {
		if time.Since(since) < departedEnds {
			return true
		}
	}
	gets := make(map[string]bool, len(n.peers))
	for _, p := range n.peers {
		if p.isHidden() {
			continue
		}
		now := p.status()
		if now.State != report.PeerUp || time.Since(now.Since) < keepEnds || p.isLate() || n.sources[now.Node] == nil {
			return true
		}
		gets[now.Node] = true
	}
	for name, s := range n.sources {
		if !gets[name] || !s.isComplete() {
			return true
		}
	}
	return false
}

// add adds the connections of list that have ended, and returns the age of the oldest one.
func (e *ends) add(list []report.ConnectionCopy) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range list {
		if list[i].HasEnded() && !list[i].Late {
			e.append(&list[i])
		}
	}
	for e.bytes > maxEnds {
		e.drop()
	}
	if len(e.parts) == 0 {
		return 0
	}
	return time.Since(e.parts[0].began)
}

// forget drops ends that are older than age.
func (e *ends) forget(age time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.parts) > 0 && time.Since(e.parts[0].began) > age {
		e.drop()
	}
}

func (e *ends) drop() {
	e.bytes -= e.parts[0].cost()
	e.parts[0] = endsPart{}
	e.parts = e.parts[1:]
}

func (e *ends) append(c *report.ConnectionCopy) {
	const room = transport.MaxFrame - ageLength - record.MaxPackedLength
	last := len(e.parts) - 1
	if last < 0 || len(e.parts[last].data) > room || time.Since(e.parts[last].began) > endsPartTime {
		e.parts, e.frame = append(e.parts, endsPart{began: time.Now()}), record.Packer{}
		last++
		e.bytes += chunkCost
	}
	p := &e.parts[last]
	e.bytes -= p.cost()
	p.data = e.frame.Append(p.data, c)
	p.count++
	e.bytes += p.cost()
}

// each calls yield with the ends in frames: those since a time, and perhaps some earlier ones. Ages
// are those when yield is called, which may wait for a slow peer.
func (e *ends) each(since time.Time, yield func(chunk) error) error {
	e.mu.Lock()
	parts := slices.Clone(e.parts)
	e.mu.Unlock()
	for i := range parts {
		if since.Sub(parts[i].began) > endsPartTime {
			continue
		}
		if err := yield(parts[i].chunk()); err != nil {
			return err
		}
	}
	return nil
}

func (p *endsPart) chunk() chunk {
	age := binary.BigEndian.AppendUint32(make([]byte, 0, ageLength+len(p.data)), uint32(min(time.Since(p.began).Milliseconds(), math.MaxUint32)))
	return chunk{data: append(age, p.data...), count: p.count, needs: transport.FeatureEnds}
}

// decodeEnds appends the ends of a frame to list.
func decodeEnds(list []report.ConnectionCopy, frame []byte) ([]report.ConnectionCopy, error) {
	if len(frame) < ageLength {
		return list, record.ErrShort
	}
	age := time.Duration(binary.BigEndian.Uint32(frame)) * time.Millisecond
	first := len(list)
	list, err := decodePacked(list, frame[ageLength:])
	for i := first; i < len(list); i++ {
		list[i].Idle += age
		list[i].Late = true
	}
	return list, err
}

// applyOwnEnds ends connections that a node has sent as open, although they ended while it was
// away: those in opened, or all if it is nil. It calls answer in between, so the node does not time
// out.
func (n *Node) applyOwnEnds(ctx context.Context, s *source, opened map[connectionID]bool, answer func() error) error {
	var list []report.ConnectionCopy
	put := func() error {
		results := make([]report.CopyResult, len(list))
		if err := n.Table.PutCopies(ctx, list, results); err != nil {
			return err
		}
		s.mu.Lock()
		for i, r := range results {
			if mayApplyLater(&list[i], r) && n.parked.add(s, list[i]) {
				s.parked++
			}
		}
		s.mu.Unlock()
		list = list[:0]
		return answer()
	}
	err := n.ends.each(time.Time{}, func(part chunk) (err error) {
		first := len(list)
		if list, err = decodeEnds(list, part.data); opened != nil {
			rest := slices.DeleteFunc(list[first:], func(c report.ConnectionCopy) bool { return !opened[connectionIDOf(&c)] })
			list = list[:first+len(rest)]
		}
		if err != nil || len(list) < endsAtOnce {
			return err
		}
		return put()
	})
	if err != nil || len(list) == 0 {
		return err
	}
	return put()
}
