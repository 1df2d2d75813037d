package packet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// victim is the client whose connections no other client's packets may change.
const victim = "9.9.9.9"

// fuzzWorker runs one job at a time in a lab of its own. Each input of a fuzz target has a
// goroutine of its own, but one thread must use a lab.
type fuzzWorker struct {
	jobs    chan func(*lab.Lab) error
	results chan error
}

// newFuzzWorker starts the worker of a target, with the given services, and waits until it is
// ready: an input may take ten seconds, and loading the programs takes longer on a busy machine.
func newFuzzWorker(f *testing.F, cfg lab.Config, services ...string) fuzzWorker {
	f.Helper()
	lane := fuzzWorker{make(chan func(*lab.Lab) error), make(chan error)}
	f.Cleanup(func() { close(lane.jobs) })
	go lane.run(cfg, services)
	if err := <-lane.results; err != nil {
		f.Fatal(err)
	}
	return lane
}

func (f fuzzWorker) run(cfg lab.Config, services []string) {
	runtime.LockOSThread() // never unlocked: the namespace ends with the thread
	l, err := lab.New(cfg)
	if err == nil {
		defer l.Close()
		for _, text := range services {
			s, parseErr := lb.ParseService(text)
			err = errors.Join(err, parseErr, l.Apply(s))
		}
	}
	f.results <- err
	for job := range f.jobs {
		f.results <- job(l)
	}
}

func (f fuzzWorker) do(job func(*lab.Lab) error) error {
	f.jobs <- job
	return <-f.results
}

// sendText sends the packet of a text.
func sendText(l *lab.Lab, link *lab.Link, format string, args ...any) (lab.Result, error) {
	line := fmt.Sprintf(format, args...)
	p, err := pkt.Parse(line)
	if err != nil {
		return lab.Result{}, err
	}
	res, err := l.Send(link, l.Arriving(link, p).Build())
	if err != nil {
		err = fmt.Errorf("%s: %w", line, err)
	}
	return res, err
}

// wantOut sends the packet of a text, and returns an error unless the packet leaves.
func wantOut(l *lab.Lab, link *lab.Link, format string, args ...any) (*pkt.Packet, error) {
	res, err := sendText(l, link, format, args...)
	if err == nil && res.Verdict != "out" {
		err = fmt.Errorf("%s: %s %s", fmt.Sprintf(format, args...), res.Verdict, res.Reason)
	}
	if err != nil {
		return nil, err
	}
	return pkt.Decode(res.Frame), nil
}

// handshake opens a TCP connection. Data of the client begins at 1001, and of the endpoint at 5001.
func handshake(l *lab.Lab, client, vip, endpoint string) error {
	_, err := wantOut(l, l.Client, "tcp %s > %s S seq 1000", client, vip)
	if err == nil {
		_, err = wantOut(l, l.Server, "tcp %s > %s SA seq 5000 ack 1001", endpoint, client)
	}
	if err == nil {
		_, err = wantOut(l, l.Client, "tcp %s > %s A seq 1001 ack 5001", client, vip)
	}
	return err
}

// victimRows returns the victim's connections, without counters.
func victimRows(l *lab.Lab) ([]string, error) {
	lines, err := l.DumpConnections()
	var list []string
	for _, line := range lines {
		if strings.Contains(line, victim+":") {
			line, _, _ = strings.Cut(line, " packets=")
			list = append(list, line)
		}
	}
	return list, err
}

// checkVictimUnchanged runs a job, and returns an error if it changes or ends a connection of the
// victim.
func checkVictimUnchanged(l *lab.Lab, job func() error) error {
	before, err := victimRows(l)
	if err != nil {
		return err
	}
	if len(before) == 0 {
		return errors.New("the victim has no connections")
	}
	if err := job(); err != nil {
		return err
	}
	after, err := victimRows(l)
	for _, row := range before {
		if !slices.Contains(after, row) {
			err = errors.Join(err, fmt.Errorf("another client's packets changed %q: %q", row, after))
		}
	}
	return err
}

// checkAllExpire lets all connections expire, and returns an error if a row remains.
func checkAllExpire(l *lab.Lab) error {
	if err := errors.Join(l.Programs().Age(48*time.Hour), l.Sweep(), l.Programs().Age(time.Minute), l.Sweep()); err != nil {
		return err
	}
	left, err := l.DumpConnections()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("connections are left: %q", left)
	}
	return err
}

// hexOf returns data in the syntax of a packet's text.
func hexOf(data []byte) string {
	if len(data) == 0 {
		return "len 0"
	}
	return "data " + hex.EncodeToString(data)
}

// dataOf returns the payload of a frame of TCP or UDP without IP options and extension headers.
func dataOf(frame []byte) []byte {
	ip := frame[14:]
	header, total, protocol := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:])), ip[9]
	if ip[0]>>4 == 6 {
		header, total, protocol = 40, 40+int(binary.BigEndian.Uint16(ip[4:])), ip[6]
	}
	upper := ip[header:total]
	if lb.Protocol(protocol) == lb.UDP {
		return upper[8:]
	}
	return upper[int(upper[12]>>4)*4:]
}

// wantSameData returns an error unless a frame has the given payload.
func wantSameData(frame, want []byte) error {
	if got := dataOf(frame); !bytes.Equal(got, want) {
		return fmt.Errorf("the payload %x became %x", want, got)
	}
	return nil
}

// wantSameHeader returns an error if one of the given fields has changed, or if a checksum is
// wrong.
func wantSameHeader(in, out *pkt.Packet, fields ...pkt.Field) error {
	for _, f := range fields {
		if in.Num(f) != out.Num(f) {
			return fmt.Errorf("a field has changed:\n%s", pkt.Diff(in, out, nil))
		}
	}
	for _, f := range []pkt.Field{pkt.Sum, pkt.IPSum} {
		if out.Has(f) {
			return fmt.Errorf("a checksum is wrong: %s", out)
		}
	}
	return nil
}
