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

// sharedCase is a service whose connections the file describes. first: it describes the first one
// of a client, to an endpoint that was quiet; otherwise, the client had one just before, and the
// endpoint answers others.
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
	// from here on there is a table of limits
	for _, service := range []string{
		tcp + " max-rate=1000 max-connections=1000" + two,
		tcp + " client-rate=1000 client-connections=1000" + two,
		udp + two,
	} {
		list = append(list, sharedCase{service: service})
	}
	return list
}

// TestSharedWrites checks that sharedFile lists each word that CPUs share and a connection's
// packets write, step by step. Words are compared, so a word that two packets' work leaves as it
// was would not show; no counter is such a word. The sizes of the tables are those of a machine, as
// what CPUs add up in batches depends on them.
func TestSharedWrites(t *testing.T) { // not parallel: what is written once in a while depends on the time
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

// sharedAttempts is how often the words are compared: a busy machine may pause between two packets
// for longer than the second in which a client's row is not written again. A word that a packet
// always writes differs each time.
const sharedAttempts = 4

// sharedWrites describes the writes of all cases.
func sharedWrites() (string, error) {
	var out strings.Builder
	plain := map[lb.Protocol]*life{}
	err := inLab(lab.Config{Connections: 262144, HalfOpen: 25}, func(l *lab.Lab) error {
		for range 2 { // later passes find that a pass has ended before
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

// describeWrites appends the writes of a connection of a service that has others, one for each
// endpoint: they have made the rows that stay. Only the first connection of a protocol, which
// becomes plain, has all steps; others have the steps that differ from it.
func describeWrites(out *strings.Builder, l *lab.Lab, one sharedCase, plain map[lb.Protocol]*life) error {
	s, err := lb.ParseService(one.service)
	if err == nil {
		err = l.Apply(s)
	}
	if err != nil {
		return err
	}
	others := []*life{newLife(l, s, 1, 1), newLife(l, s, 2, 1)}
	if one.first {
		err = errors.Join(beginAll(others), quieten(l))
	} else {
		others = append(others, newLife(l, s, 3, 1), newLife(l, s, 1, 2))
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
	what := shortened(one.service)
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

// measureBeginning begins a connection and lists its writes. Unless it is a client's first one, it
// tries again, up to thirty times, if it has written what is written once in a while: when this
// test has waited for a CPU, or the algorithm has chosen an endpoint that was quiet. The former
// ones join the others.
func measureBeginning(l *lab.Lab, s lb.Service, first bool, others *[]*life) (*life, error) {
	for n := uint16(3); ; n++ {
		measured := newLife(l, s, 3, n)
		measured.measures, measured.busy = true, !first
		if err := measured.begin(); err != nil || first || n == 32 || !slices.ContainsFunc(measured.steps, lifeStep.isPaced) {
			return measured, err
		}
		measured.measures = false
		*others = append(*others, measured)
	}
}

// isPaced reports whether a step has written words that are not written for each connection, as
// CPUs share them once in a while, or add up in batches.
func (s lifeStep) isPaced() bool {
	return slices.ContainsFunc(s.written, func(word string) bool {
		table, _, _ := strings.Cut(word, ".")
		return slices.Contains([]string{"outcomes", "samples", "known_clients", "persists", "handshakes", "table_states"}, table)
	})
}

func beginAll(list []*life) error {
	for _, one := range list {
		if err := one.begin(); err != nil {
			return err
		}
	}
	return nil
}

// quieten makes endpoints look as if they had not answered for a while.
func quieten(l *lab.Lab) error {
	variables := &l.Datapath.TestRun().Collection.Variables
	return errors.Join(
		variables.Samples.Set([bpf.TcSampleLayoutSAMPLES]bpf.TcConnectionSample{}),
		variables.Outcomes.Set([bpf.TcSampleLayoutOUTCOME_ROWS]bpf.TcEndpointOutcomes{}),
	)
}

func (s lifeStep) equals(other lifeStep) bool {
	return s.name == other.name && slices.Equal(s.written, other.written)
}

// shortened leaves out the endpoints of a service.
func shortened(service string) string {
	before, _, _ := strings.Cut(service, " endpoints=")
	_, key, _ := strings.Cut(before, "/")
	return key
}

// life is a connection from its first packet until it is swept.
type life struct {
	lab      *lab.Lab
	service  lb.Service
	client   netip.AddrPort
	reply    netip.AddrPort // of the endpoint
	source   netip.AddrPort // as the endpoint sees the client
	measures bool
	busy     bool         // its endpoint answers others meanwhile
	memory   sharedMemory // after the last step, if nothing has happened since
	steps    []lifeStep
}

// lifeStep is a packet or a sweep, and the shared words that it has written.
type lifeStep struct {
	name    string
	written []string
}

// newLife returns the n-th connection of a client.
func newLife(l *lab.Lab, s lb.Service, client byte, n uint16) *life {
	addr := netip.AddrFrom4([4]byte{1, 1, client, 1})
	return &life{lab: l, service: s, client: netip.AddrPortFrom(addr, 40_000+10*n+uint16(client))} // the endpoint sees the same port
}

func (l *life) writes() (sum int) {
	for _, step := range l.steps {
		sum += len(step.written)
	}
	return sum
}

// begin opens the connection and carries data.
func (l *life) begin() error {
	if l.service.Protocol == lb.UDP {
		return l.send("udp", []lifePacket{{"first", false, "len 30"}, {"answer", true, "len 30"}, {"second", false, "len 30"}, {"third", false, "len 30"}, {"answer", true, "len 30"}})
	}
	return l.send("tcp", []lifePacket{
		{"SYN", false, "S seq 1000"}, {"SYN+ACK", true, "SA seq 5000 ack 1001"}, {"ACK", false, "A seq 1001 ack 5001"},
		{"data", false, "PA seq 1001 ack 5001 len 100"}, {"answer", true, "PA seq 5001 ack 1101 len 100"},
	})
}

// end closes the connection, and sweeps it when it is over, while others continue.
func (l *life) end(others []*life) error {
	if l.service.Protocol == lb.TCP {
		if err := l.send("tcp", []lifePacket{
			{"FIN", false, "FA seq 1101 ack 5101"}, {"FIN+ACK", true, "FA seq 5101 ack 1102"}, {"last ACK", false, "A seq 1102 ack 5102"},
		}); err != nil {
			return err
		}
	}
	l.memory = nil
	const half = 200 * time.Second // of the time after which the quietest connection is over
	if err := l.lab.Advance(half); err != nil {
		return err
	}
	for _, other := range others {
		if err := other.continues(); err != nil {
			return err
		}
	}
	if err := l.lab.Advance(half); err != nil {
		return err
	}
	return l.step("sweep", func() error { return l.lab.Datapath.Sweep(context.Background()) })
}

func (l *life) continues() error {
	if l.service.Protocol == lb.UDP {
		return l.send("udp", []lifePacket{{"again", false, "len 30"}})
	}
	return l.send("tcp", []lifePacket{{"again", false, "PA seq 1101 ack 5101 len 100"}})
}

// lifePacket is a packet of a client, or of the endpoint.
type lifePacket struct {
	name     string
	endpoint bool
	rest     string
}

func (l *life) send(protocol string, list []lifePacket) error {
	vip := netip.AddrPortFrom(l.service.VIP, l.service.Port)
	for _, p := range list {
		from, to, link := l.client, vip, l.lab.Client
		if p.endpoint {
			if l.service.Mode == lb.ModeDSR {
				continue
			}
			from, to, link = l.reply, l.source, l.lab.Server
		}
		packet, err := pkt.Parse(fmt.Sprintf("%s %s > %s %s", protocol, from, to, p.rest))
		if err != nil {
			return err
		}
		if err := l.step(p.name, func() error { return l.forward(link, packet, p.endpoint) }); err != nil {
			return err
		}
	}
	return nil
}

// forward sends a packet, and notes how the endpoint sees the client.
func (l *life) forward(link *lab.Link, p *pkt.Packet, endpoint bool) error {
	res, err := l.lab.Send(link, l.lab.Arriving(link, p).Build())
	if err != nil || res.Verdict != "out" {
		return fmt.Errorf("%s: %s %s %w", p, res.Verdict, res.Reason, err)
	}
	if !endpoint {
		left := pkt.Decode(res.Frame)
		l.source, l.reply = left.SrcAddr(), left.DstAddr()
	}
	return nil
}

// step does something and appends the shared words that it has written.
func (l *life) step(name string, do func() error) error {
	if !l.measures {
		return do()
	}
	c := l.lab.Datapath.TestRun().Collection
	before, err := l.memory, error(nil)
	if before == nil {
		before, err = readShared(c)
	}
	if err == nil && l.busy {
		err = answerLately(c, before)
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		return err
	}
	l.memory, err = readShared(c)
	l.steps = append(l.steps, lifeStep{name, l.memory.writtenSince(before)})
	return err
}

// answerLately makes endpoints that have answered seem to have done so right now: reading the
// memory before took longer than what counts as lately.
func answerLately(c *loader.Collection, before sharedMemory) error {
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
