package packet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

const sharedFile = "testdata/shared-writes"

// sharedCase is a service whose connections sharedFile describes. If first is set, it describes a
// client's first connection, to an endpoint without recent answers. Otherwise, the client has just
// had a connection, and the endpoint answers others.
type sharedCase struct {
	service string
	first   bool
}

func sharedCases() (list []sharedCase) {
	const tcp, udp, two = "10.0.0.1:80/tcp", "10.0.0.1:53/udp", " endpoints=192.168.1.10:8080,192.168.1.11:8080"
	for _, service := range []string{
		tcp + two,
		tcp + " select=hash" + two,
		tcp + " select=priority" + two,
		tcp + " select=persist" + two,
		tcp + " select=lc" + two,
		tcp + " select=random" + two,
		tcp + " mode=onearm" + two,
		tcp + " mode=fullnat" + two,
		tcp + " mode=dsr endpoints=192.168.1.10:80,192.168.1.11:80",
		udp + two,
		udp + " select=hash" + two,
		udp + " mode=fullnat" + two,
	} {
		list = append(list, sharedCase{service: service})
	}
	for _, service := range []string{tcp + two, tcp + " select=persist" + two, udp + two} {
		list = append(list, sharedCase{service, true})
	}
	// From here on, the data path has a table of limits.
	for _, service := range []string{
		tcp + " max-rate=1000 max-connections=1000" + two,
		tcp + " client-rate=1000 client-connections=1000" + two,
		udp + two,
	} {
		list = append(list, sharedCase{service: service})
	}
	return list
}

// TestSharedWrites checks that sharedFile lists, for each step, the memory shared by CPUs that a
// connection's packets write. The test compares values, so it cannot detect a word that gets its
// old value again; no counter does. Tables have the sizes of a real machine: the size of batches
// that CPUs add up depends on them.
func TestSharedWrites(t *testing.T) { // not parallel: some words are written at intervals
	want, err := os.ReadFile(sharedFile)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	for range sharedAttempts {
		if got, err = sharedWrites(); err != nil {
			t.Fatal(err)
		}
		if got == string(want) {
			return
		}
		if updating() {
			if err := os.WriteFile(sharedFile, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Errorf("packets write other shared words than %s lists (-file, +packets; -update writes the file):\n%s", sharedFile,
		cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")))
}

// sharedAttempts is the number of comparisons. A client's row is written once a second, and a busy
// machine may pause longer than that between two packets. A word that a packet always writes
// differs each time.
const sharedAttempts = 4

// sharedWrites describes the writes of all cases.
func sharedWrites() (string, error) {
	var out strings.Builder
	plain := map[lb.Protocol]*measuredConn{}
	err := inLab(lab.Config{Connections: 262144, HalfOpen: 25}, func(l *lab.Lab) error {
		for range 2 { // sweeps after the first one write other words
			if err := l.Datapath.Sweep(context.Background()); err != nil {
				return err
			}
		}
		for _, one := range sharedCases() {
			if err := describeWrites(&out, l, one, plain); err != nil {
				return fmt.Errorf("%s: %w", one.service, err)
			}
		}
		return nil
	})
	return out.String(), err
}

// describeWrites appends the writes of a connection. Its service also has a connection to each
// endpoint, so permanent rows exist. The first connection of a protocol has all steps, and is added
// to plain. Others only have the steps that differ from it.
func describeWrites(out *strings.Builder, l *lab.Lab, one sharedCase, plain map[lb.Protocol]*measuredConn) error {
	s, err := lb.ParseService(one.service)
	if err == nil {
		err = l.Apply(s)
	}
	if err != nil {
		return err
	}
	others := []*measuredConn{newMeasuredConn(l, s, 1, 1), newMeasuredConn(l, s, 2, 1)}
	if one.first {
		err = errors.Join(beginAll(others), makeEndpointsQuiet(l))
	} else {
		others = append(others, newMeasuredConn(l, s, 3, 1), newMeasuredConn(l, s, 1, 2))
		err = beginAll(others)
	}
	if err != nil {
		return err
	}
	measured, err := measureBeginning(l, s, one.first, &others)
	if err == nil {
		err = measured.end(others)
	}
	if err != nil {
		return err
	}
	if out.Len() > 0 {
		out.WriteString("\n")
	}
	what := withoutEndpoints(one.service)
	if one.first {
		what += ", a client's first, of a quiet endpoint"
	}
	fmt.Fprintf(out, "%s: %d\n", what, measured.writes())
	for _, step := range measured.steps {
		if first := plain[s.Protocol]; first != nil && slices.ContainsFunc(first.steps, step.equals) {
			continue
		}
		fmt.Fprintf(out, "%s\n", strings.TrimRight(fmt.Sprintf("  %-9s %d  %s", step.name, len(step.written), strings.Join(step.written, ", ")), " "))
	}
	if plain[s.Protocol] == nil {
		plain[s.Protocol] = measured
	}
	return l.Reset()
}

// measureBeginning begins a connection and lists its writes. Unless it is a client's first one, the
// function retries up to thirty times if the connection has written words that are written at
// intervals: the test has waited for a CPU, or the algorithm has chosen an endpoint without recent
// answers. Earlier connections are added to others.
func measureBeginning(l *lab.Lab, s lb.Service, first bool, others *[]*measuredConn) (*measuredConn, error) {
	for n := uint16(3); ; n++ {
		measured := newMeasuredConn(l, s, 3, n)
		measured.measures, measured.busy = true, !first
		if err := measured.begin(); err != nil || first || n == 32 || !slices.ContainsFunc(measured.steps, connStep.isOccasional) {
			return measured, err
		}
		measured.measures = false
		*others = append(*others, measured)
	}
}

// isOccasional reports whether a step has written words that are not written for each connection,
// but at intervals or in batches.
func (s connStep) isOccasional() bool {
	return slices.ContainsFunc(s.written, func(word string) bool {
		table, _, _ := strings.Cut(word, ".")
		return slices.Contains([]string{"outcomes", "samples", "known_clients", "persists", "handshakes", "table_states"}, table)
	})
}

func beginAll(list []*measuredConn) error {
	for _, one := range list {
		if err := one.begin(); err != nil {
			return err
		}
	}
	return nil
}

// makeEndpointsQuiet makes endpoints appear to have not answered for a while.
func makeEndpointsQuiet(l *lab.Lab) error {
	variables := &l.Datapath.TestRun().Collection.Variables
	return errors.Join(
		variables.Samples.Set([bpf.TcSampleLayoutSAMPLES]bpf.TcConnectionSample{}),
		variables.Outcomes.Set([bpf.TcSampleLayoutOUTCOME_ROWS]bpf.TcEndpointOutcomes{}),
	)
}

func (s connStep) equals(other connStep) bool {
	return s.name == other.name && slices.Equal(s.written, other.written)
}

// withoutEndpoints returns the text of a service without its endpoints.
func withoutEndpoints(service string) string {
	before, _, _ := strings.Cut(service, " endpoints=")
	_, key, _ := strings.Cut(before, "/")
	return key
}

// measuredConn is a connection, with the shared words that it writes from its first packet until it
// is swept.
type measuredConn struct {
	lab      *lab.Lab
	service  lb.Service
	client   netip.AddrPort
	reply    netip.AddrPort // of the endpoint
	source   netip.AddrPort // source that the endpoint sees
	measures bool
	busy     bool         // the endpoint answers others meanwhile
	memory   sharedMemory // after the last step, if no packet was sent since
	steps    []connStep
}

// connStep is a packet or a sweep, and the shared words that it has written.
type connStep struct {
	name    string
	written []string
}

// newMeasuredConn returns the n-th connection of a client.
func newMeasuredConn(l *lab.Lab, s lb.Service, client byte, n uint16) *measuredConn {
	addr := netip.AddrFrom4([4]byte{1, 1, client, 1})
	return &measuredConn{lab: l, service: s, client: netip.AddrPortFrom(addr, 40_000+10*n+uint16(client))} // the endpoint sees the same port
}

func (c *measuredConn) writes() (sum int) {
	for _, step := range c.steps {
		sum += len(step.written)
	}
	return sum
}

// begin opens the connection and carries data.
func (c *measuredConn) begin() error {
	if c.service.Protocol == lb.UDP {
		return c.send("udp", []connPacket{{"first", false, "len 30"}, {"answer", true, "len 30"}, {"second", false, "len 30"}, {"third", false, "len 30"}, {"answer", true, "len 30"}})
	}
	return c.send("tcp", []connPacket{
		{"SYN", false, "S seq 1000"}, {"SYN+ACK", true, "SA seq 5000 ack 1001"}, {"ACK", false, "A seq 1001 ack 5001"},
		{"data", false, "PA seq 1001 ack 5001 len 100"}, {"answer", true, "PA seq 5001 ack 1101 len 100"},
	})
}

// end closes the connection, lets it expire, and sweeps it, while others continue.
func (c *measuredConn) end(others []*measuredConn) error {
	if c.service.Protocol == lb.TCP {
		if err := c.send("tcp", []connPacket{
			{"FIN", false, "FA seq 1101 ack 5101"}, {"FIN+ACK", true, "FA seq 5101 ack 1102"}, {"last ACK", false, "A seq 1102 ack 5102"},
		}); err != nil {
			return err
		}
	}
	c.memory = nil
	const half = 200 * time.Second // half of the longest timeout
	if err := c.lab.Advance(half); err != nil {
		return err
	}
	for _, other := range others {
		if err := other.sendAgain(); err != nil {
			return err
		}
	}
	if err := c.lab.Advance(half); err != nil {
		return err
	}
	return c.step("sweep", func() error { return c.lab.Datapath.Sweep(context.Background()) })
}

func (c *measuredConn) sendAgain() error {
	if c.service.Protocol == lb.UDP {
		return c.send("udp", []connPacket{{"again", false, "len 30"}})
	}
	return c.send("tcp", []connPacket{{"again", false, "PA seq 1101 ack 5101 len 100"}})
}

// connPacket is a packet of a client, or of the endpoint.
type connPacket struct {
	name     string
	endpoint bool
	rest     string
}

func (c *measuredConn) send(protocol string, list []connPacket) error {
	vip := netip.AddrPortFrom(c.service.VIP, c.service.Port)
	for _, p := range list {
		from, to, link := c.client, vip, c.lab.Client
		if p.endpoint {
			if c.service.Mode == lb.ModeDSR {
				continue
			}
			from, to, link = c.reply, c.source, c.lab.Server
		}
		packet, err := pkt.Parse(fmt.Sprintf("%s %s > %s %s", protocol, from, to, p.rest))
		if err != nil {
			return err
		}
		if err := c.step(p.name, func() error { return c.forward(link, packet, p.endpoint) }); err != nil {
			return err
		}
	}
	return nil
}

// forward sends a packet, and records the addresses that the endpoint sees.
func (c *measuredConn) forward(link *lab.Link, p *pkt.Packet, endpoint bool) error {
	res, err := c.lab.Send(link, c.lab.Arriving(link, p).Build())
	if err != nil || res.Verdict != "out" {
		return fmt.Errorf("%s: %s %s %w", p, res.Verdict, res.Reason, err)
	}
	if !endpoint {
		left := pkt.Decode(res.Frame)
		c.source, c.reply = left.SrcAddr(), left.DstAddr()
	}
	return nil
}

// step calls do, and appends the shared words that it has written.
func (c *measuredConn) step(name string, do func() error) error {
	if !c.measures {
		return do()
	}
	collection := c.lab.Datapath.TestRun().Collection
	before, err := c.memory, error(nil)
	if before == nil {
		before, err = readShared(collection)
	}
	if err == nil && c.busy {
		err = refreshAnswers(collection, before)
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		return err
	}
	c.memory, err = readShared(collection)
	c.steps = append(c.steps, connStep{name, c.memory.writtenSince(before)})
	return err
}

// refreshAnswers makes endpoints that have answered appear to have answered right now: reading the
// memory has taken too long for the answers to count as recent.
func refreshAnswers(c *loader.Collection, before sharedMemory) error {
	now, err := lab.Jiffies()
	var rows [bpf.TcSampleLayoutOUTCOME_ROWS]bpf.TcEndpointOutcomes
	if err == nil {
		err = c.Variables.Outcomes.Get(&rows)
	}
	if err != nil {
		return err
	}
	for i := range rows {
		if rows[i].AnsweredAt != 0 {
			rows[i].AnsweredAt = now
		}
	}
	if err := c.Variables.Outcomes.Set(rows); err != nil {
		return err
	}
	return addVariable[[bpf.TcSampleLayoutOUTCOME_ROWS]bpf.TcEndpointOutcomes](before, "outcomes", c.Variables.Outcomes)
}

// inLab runs f in a lab of its own.
func inLab(cfg lab.Config, f func(*lab.Lab) error) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		failed <- func() error {
			l, err := lab.New(cfg)
			if err != nil {
				return err
			}
			return errors.Join(f(l), l.Close())
		}()
	}()
	return <-failed
}
