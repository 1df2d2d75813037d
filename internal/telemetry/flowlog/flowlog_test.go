package flowlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// events returns the opening and the end of one connection of each pair of IP versions.
func events() (list []report.ConnectionEvent) {
	four, six := "192.0.2.1:4000", "[2001:db8::1]:4000"
	for i, families := range [][2]string{{four, "192.168.1.10:8080"}, {six, "[2001:db8:2::10]:8080"}, {six, "192.168.1.10:8080"}, {four, "[2001:db8:2::10]:8080"}} {
		client, endpoint := netip.MustParseAddrPort(families[0]), netip.MustParseAddrPort(families[1])
		vip, source := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.168.1.1:50000")
		if client.Addr().Is6() {
			vip = netip.MustParseAddrPort("[2001:db8::80]:80")
		}
		if endpoint.Addr().Is6() {
			source = netip.MustParseAddrPort("[2001:db8:2::1]:50000")
		}
		opened := report.ConnectionEvent{
			Time: time.Date(2030, 1, 2, 3, 4, 5, 6e6, time.UTC), Act: "opened", Protocol: lb.TCP, Client: client, VIP: vip, Source: source, Endpoint: endpoint, Service: "web", OneOf: 1,
		}
		ended := opened
		ended.Time, ended.Act, ended.Reason, ended.By = opened.Time.Add(time.Second), "ended", []string{"closed", "silent", "removed", "reset"}[i], "both"
		ended.In, ended.Out = report.Traffic{Packets: 3, Bytes: 300}, report.Traffic{Packets: 5, Bytes: 5000}
		list = append(list, opened, ended)
	}
	return list
}

// TestJSON checks that there is a line for each event, and one with the number of lost events.
func TestJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	j := NewJSON(Stream{Writer: &out, Title: "test"})
	now := time.Date(2030, 1, 2, 3, 4, 6, 0, time.UTC)
	for range 2 {
		if err := j.Write(now, events()[:2], 7); err != nil {
			t.Fatal(err)
		}
	}
	const line = `"protocol":"tcp","client":"192.0.2.1:4000","vip":"10.0.0.1:80","source":"192.168.1.1:50000","endpoint":"192.168.1.10:8080","servName":"web"`
	two := `{"time":"2030-01-02T03:04:05.006Z","act":"opened",` + line + "}\n" +
		`{"time":"2030-01-02T03:04:06.006Z","act":"ended",` + line + `,"reason":"closed","closedBy":"both","packetsIn":3,"bytesIn":300,"packetsOut":5,"bytesOut":5000}` + "\n"
	if want := `{"time":"2030-01-02T03:04:06Z","act":"untold","lost":7}` + "\n" + two + two; out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// TestFile checks that the file never exceeds its size, that the right number of old files is kept,
// that lines are complete, that a start continues the file, and that a file that another program
// has moved is created again.
func TestFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "flows")
	f := NewFile(name, 100, 2)
	line := func(i int) []byte { return fmt.Appendf(nil, "line %02d of 20 bytes\n", i) }
	for i := range 27 {
		if i == 13 {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			f = NewFile(name, 100, 2)
		}
		if _, err := f.Write(line(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"25 26", "20 21 22 23 24", "15 16 17 18 19"} {
		text, err := os.ReadFile(f.numbered(i))
		var got []string
		for l := range strings.Lines(string(text)) {
			got = append(got, l[5:7])
		}
		if err != nil || strings.Join(got, " ") != want || len(text) > 100 {
			t.Errorf("file %d has %q, %v; want %s", i, text, err, want)
		}
	}
	if _, err := os.Stat(f.numbered(3)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("more is kept than should be: %v", err)
	}
	if err := os.Rename(name, name+".theirs"); err != nil {
		t.Fatal(err)
	}
	f.looked = time.Time{} // a second has passed
	if _, err := f.Write(line(99)); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != string(line(99)) {
		t.Errorf("got %q, %v, want no error, text == string(line(99))", text, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	if _, err := NewFile(link, 100, 2).Write(line(0)); err == nil {
		t.Error("a link was followed")
	}
}

// TestNoFile checks that a device or a pipe is refused.
func TestNoFile(t *testing.T) {
	t.Parallel()
	if _, err := NewFile(os.DevNull, 100, 2).Write([]byte("line\n")); err == nil {
		t.Errorf("%s is accepted as a file of logs", os.DevNull)
	}
}

// broken fails for a while.
type broken struct {
	until int
	lost  []uint64
}

func (b *broken) Write(_ time.Time, _ []report.ConnectionEvent, lost uint64) error {
	if b.until--; b.until >= 0 {
		return errors.New("no space")
	}
	b.lost = append(b.lost, lost)
	return nil
}
func (*broken) Name() string { return "broken" }
func (*broken) Close() error { return nil }

// lossySource is a source that ends a watch after three batches, with some events lost.
type lossySource struct{ watches int }

func (u *lossySource) WatchConnections(ctx context.Context, _ int, yield func([]report.ConnectionEvent, report.Omitted) bool) error {
	if u.watches++; u.watches > 2 {
		<-ctx.Done()
		return nil
	}
	for i := range uint64(3) {
		yield(events(), report.Omitted{Sampled: i, Lost: 10 * i})
	}
	return errors.New("it was broken off")
}

// TestLost checks that events that a source lost, and those that a sink did not write, are counted
// over all watches, separately for each sink.
func TestLost(t *testing.T) {
	t.Parallel()
	bad, good, source := &broken{until: 2}, &broken{}, &lossySource{}
	l := New(source, 1, slog.New(slog.DiscardHandler), bad, good)
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	l.Run(ctx)
	if got := fmt.Sprint(good.lost); got != "[0 11 22 22 33 44]" {
		t.Errorf("lost %s", got)
	}
	if got := fmt.Sprint(bad.lost); got != "[38 38 49 60]" {
		t.Errorf("the one that fails has lost %s", got)
	}
}

// wantElements has the numbers of IANA's registry for each template (RFC 8158), and those of
// RFC 5103 for the other direction's counters.
var wantElements = map[uint16][]uint16{
	256: {323, 230, 4, 8, 12, 7, 11, 225, 226, 227, 228, 152},
	257: {323, 230, 4, 8, 12, 7, 11, 225, 226, 227, 228, 153, 1, 2, 0x8001, 0x8002, 136},
	258: {323, 230, 4, 27, 28, 7, 11, 225, 226, 227, 228, 152},
	259: {323, 230, 4, 27, 28, 7, 11, 225, 226, 227, 228, 153, 1, 2, 0x8001, 0x8002, 136},
	260: {323, 230, 4, 8, 12, 7, 11, 281, 282, 227, 228, 152},
	261: {323, 230, 4, 8, 12, 7, 11, 281, 282, 227, 228, 153, 1, 2, 0x8001, 0x8002, 136},
	262: {323, 230, 4, 27, 28, 7, 11, 281, 282, 227, 228, 152},
	263: {323, 230, 4, 27, 28, 7, 11, 281, 282, 227, 228, 153, 1, 2, 0x8001, 0x8002, 136},
	264: {144, 166},
}

// TestIPFIX checks messages against RFC 7011: lengths of sets, templates before data, sequence
// numbers without a gap, and messages that fit the path MTU.
func TestIPFIX(t *testing.T) {
	t.Parallel()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	x := NewIPFIX(server.LocalAddr().String(), 5)
	defer x.Close()
	now := time.Now()
	var many []report.ConnectionEvent
	for range 20 {
		many = append(many, events()...)
	}
	if err := x.Write(now, many, 9); err != nil {
		t.Fatal(err)
	}
	known, records, bytes := map[uint16][]element{}, uint32(0), make([]byte, 65536)
	for records < uint32(len(many))+1 {
		_ = server.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, _, err := server.ReadFrom(bytes)
		if err != nil {
			t.Fatalf("after %d records: %v", records, err)
		}
		m := bytes[:n]
		if n > messageMax || binary.BigEndian.Uint16(m) != 10 || int(binary.BigEndian.Uint16(m[2:])) != n ||
			binary.BigEndian.Uint32(m[8:]) != records || binary.BigEndian.Uint32(m[12:]) != 5 {
			t.Fatalf("a message of %d bytes after %d records begins %x", n, records, m[:headerSize])
		}
		records += readSets(t, m[headerSize:], known)
	}
	got := map[uint16][]uint16{}
	for template, elements := range known {
		for _, e := range elements {
			got[template] = append(got[template], e.id)
		}
	}
	if diff := cmp.Diff(wantElements, got); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
}

// readSets counts the data records, which all must have known templates.
func readSets(t *testing.T, m []byte, known map[uint16][]element) (records uint32) {
	t.Helper()
	for len(m) > 0 {
		kind, length := binary.BigEndian.Uint16(m), int(binary.BigEndian.Uint16(m[2:]))
		set := m[setHeader:length]
		m = m[length:]
		switch {
		case kind == templateSet || kind == optionsSet:
			for len(set) > 0 {
				id, fields := binary.BigEndian.Uint16(set), int(binary.BigEndian.Uint16(set[2:]))
				if set = set[4:]; kind == optionsSet {
					set = set[2:]
				}
				known[id] = nil
				for range fields {
					known[id] = append(known[id], element{binary.BigEndian.Uint16(set), binary.BigEndian.Uint16(set[2:])})
					if set[0]&(enterpriseBit>>8) != 0 {
						set = set[4:]
					}
					set = set[4:]
				}
			}
		default:
			size := 0
			for _, e := range known[kind] {
				size += int(e.length)
			}
			if size == 0 || len(set)%size != 0 {
				t.Fatalf("a set of template %d has %d bytes, and a record %d", kind, len(set), size)
			}
			records += uint32(len(set) / size)
		}
	}
	return records
}

// TestCollector checks that nfcapd accepts the messages, and that nfdump shows addresses, ports,
// counters and NAT events.
func TestCollector(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	collector := exec.Command("nfcapd", "-w", dir, "-b", "127.0.0.1", "-p", port, "-t", "3600")
	var said bytes.Buffer
	collector.Stdout, collector.Stderr = &said, &said
	if err := collector.Start(); err != nil {
		t.Fatalf("nfcapd (tools/setup test installs it): %v", err)
	}
	defer func() { _ = collector.Process.Kill() }()
	x := NewIPFIX("127.0.0.1:"+port, 1)
	defer x.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline, taken := time.Now().Add(10*time.Second), 0; taken < 3; <-tick.C { // until it listens, every other message is refused
		taken++
		if err := x.Write(time.Now(), events(), 3); err != nil {
			taken = 0
			if time.Now().After(deadline) {
				t.Fatalf("the collector does not listen: %v\n%s", err, &said)
			}
		}
	}
	shown := ended(t, collector, dir)
	for _, want := range []string{`"src4_addr" : "192.0.2.1"`, `"dst4_addr" : "10.0.0.1"`, `"src6_addr" : "2001:db8::1"`, `"192.168.1.1"`, `"192.168.1.10"`,
		`"dst_xlt_port" : "8080"`, `"src_xlt_port" : "50000"`, `NAT44 session create`, `NAT44 session delete`, `NAT64 session create`, `"in_bytes" : 300,`, `"out_bytes" : 5000,`} {
		if !strings.Contains(shown, want) {
			t.Errorf("nfdump does not show %s", want)
		}
	}
}

func freePort() (string, error) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, port, err := net.SplitHostPort(c.LocalAddr().String())
	return port, err
}

// ended makes the collector write its file, and returns its contents.
func ended(t *testing.T, collector *exec.Cmd, dir string) string {
	t.Helper()
	if err := errors.Join(collector.Process.Signal(os.Interrupt), collector.Wait()); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nfdump", "-R", dir, "-o", "json").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var list []map[string]any
	if err := json.Unmarshal(out, &list); err != nil || len(list) < 8 {
		t.Fatalf("nfdump shows %d flows, %v\n%s", len(list), err, out)
	}
	return string(out)
}
