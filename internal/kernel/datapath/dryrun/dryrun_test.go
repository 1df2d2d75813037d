package dryrun_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/pkt"
	"loxilb/test/dptest"
	"loxilb/test/packet/lab"
)

// TestChangesNothing checks that a dry run changes no row of any map of the data path and sends no
// packet, not even by a mirror. It covers packets that open connections with each algorithm and
// mode, that belong to one, and that are challenged, refused, recorded, policed or limited.
//
// P64 Explaining a packet changes no connection, counter or other row of the data path, and sends
// nothing
func TestChangesNothing(t *testing.T) {
	t.Parallel()
	onThread(t, func(l *lab.Lab) error {
		packets, err := prepare(l)
		if err != nil {
			return err
		}
		before := dump(t, l)
		left(t, l)
		for range 3 {
			for _, p := range packets {
				if _, err := try(l, p); err != nil {
					return fmt.Errorf("%s: %w", p, err)
				}
			}
		}
		if diff := cmp.Diff(before, dump(t, l)); diff != "" {
			t.Errorf("maps have changed:\n%s", diff)
		}
		if n := left(t, l); n != 0 {
			t.Errorf("%d packets have left", n)
		}
		l.Datapath.DryRun().Unload()
		if diff := cmp.Diff(before, dump(t, l)); diff != "" {
			t.Errorf("maps have changed when the program was unloaded:\n%s", diff)
		}
		if _, err := l.Send(l.Client, frame("tcp 1.1.1.3:4000 > 10.0.0.1:80 S")); err != nil {
			return err
		}
		if same, n := cmp.Equal(before, dump(t, l)), left(t, l); same || n != 1 {
			t.Errorf("a sent packet changes nothing: %v; %d copies of it have left", same, n)
		}
		return nil
	})
}

// prepare creates services of all kinds, and some connections; it returns packets to explain.
func prepare(l *lab.Lab) ([]string, error) {
	services := []string{
		"10.0.0.1:80/tcp endpoints=192.168.1.10:8080,192.168.1.11:8080",
		"10.0.0.2:80/tcp mode=fullnat max-rate=10 client-connections=3 endpoints=192.168.1.10:8080,192.168.1.11:8080",
		"10.0.0.3:80/tcp select=persist endpoints=192.168.1.10:8080,192.168.1.11:8080",
		"10.0.0.4:53/udp select=lc endpoints=192.168.1.10:53,192.168.1.11:53",
		"10.0.0.5:80/tcp select=hash mode=dsr endpoints=192.168.1.10:80,192.168.1.11:80",
		"10.0.0.6:80/tcp syn-protect=always endpoints=192.168.1.10:8080",
		"10.0.0.7:80/tcp endpoints=192.168.1.10:8080:0",
		"[2001:db8::1]:80/tcp endpoints=192.168.1.10:8080",
	}
	for _, text := range services {
		s, err := lb.ParseService(text)
		if err == nil {
			err = l.Apply(s)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, text := range []string{"sourceIP:1.9.0.0/16 drop record", "sourceIP:1.8.0.0/16 allow record"} {
		r, err := policy.ParseRule(text)
		if err == nil {
			err = l.PutRule(r)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := errors.Join(l.SetPolicer("slow 1000 to service 10.0.0.1:80/tcp"), l.SetMirror("copy server to service 10.0.0.1:80/tcp")); err != nil {
		return nil, err
	}
	var packets []string
	for i := range 7 {
		packets = append(packets, fmt.Sprintf("tcp 1.1.1.1:4000 > 10.0.0.%d:80 S seq 1", i+1), fmt.Sprintf("tcp 1.1.1.1:4000 > 10.0.0.%d:80 A seq 7 ack 7", i+1))
	}
	packets = append(packets, "udp 1.1.1.1:4000 > 10.0.0.4:53 len 8", "tcp 1.9.1.1:4000 > 10.0.0.1:80 S",
		"tcp 1.8.1.1:4000 > 10.0.0.1:80 S", "tcp [2001:db8:100::1]:4000 > [2001:db8::1]:80 S")
	for _, text := range []string{packets[0], packets[2], "tcp 192.168.1.10:8080 > 1.1.1.1:4000 SA seq 5 ack 2", packets[4], packets[14]} {
		if _, err := l.Send(l.Client, frame(text)); err != nil {
			return nil, err
		}
	}
	return append(packets, "tcp 1.1.1.1:4000 > 10.0.0.1:80 A seq 2 ack 6", "tcp 1.1.1.1:4000 > 10.0.0.1:80 R seq 2", "tcp 1.1.1.2:4000 > 10.0.0.9:80 S"), nil
}

func frame(text string) []byte {
	p, err := pkt.Parse(text)
	if err != nil {
		panic(err) // the test's text is wrong
	}
	return p.Set(pkt.To, pkt.MAC([]byte{2, 0, 0, 0, 1, 1})).Build()
}

func try(l *lab.Lab, text string) (*dryrun.Result, error) {
	f := frame(text)
	p := pkt.Decode(f)
	protocol := lb.TCP
	if p.Proto == pkt.UDP {
		protocol = lb.UDP
	}
	return l.Datapath.DryRun().Try(&dryrun.Packet{Frame: f, Ifindex: l.Client.Index, Protocol: protocol, From: p.SrcAddr(), To: p.DstAddr()})
}

// onThread runs a test in a lab, which uses the network namespace of its thread.
func onThread(t *testing.T, f func(*lab.Lab) error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		l, err := lab.New(lab.Config{})
		if err == nil {
			err = errors.Join(f(l), l.Close())
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// left returns the number of TCP and UDP packets that have left since the last call, which excludes
// the kernel's own neighbour discovery.
func left(t *testing.T, l *lab.Lab) (n int) {
	for _, link := range []*lab.Link{l.Client, l.Server} {
		frames, err := l.TakeSent(link)
		if err != nil {
			t.Error(err)
		}
		for _, f := range frames {
			if p := pkt.Decode(f); p.Proto == pkt.TCP || p.Proto == pkt.UDP {
				n++
			}
		}
	}
	return n
}

// dump returns a hash of all rows of each map of the data path, including maps in maps.
func dump(t *testing.T, l *lab.Lab) map[string]string {
	all := map[string]string{}
	live := l.Datapath.DryRun().Live()
	maps := reflect.ValueOf(&live.Maps).Elem()
	for i := range maps.NumField() {
		if m, ok := maps.Field(i).Interface().(*ebpf.Map); ok {
			all[maps.Type().Field(i).Name] = sum(t, m)
		}
	}
	all[".data.shared"] = sum(t, live.Section(".data.shared"))
	variables := reflect.ValueOf(&live.Variables).Elem()
	for i := range variables.NumField() {
		all[variables.Type().Field(i).Name] = value(t, variables.Field(i).Interface().(*ebpf.Variable))
	}
	return all
}

// value returns a hash of a variable. Of the variable for waking user space, it uses only what
// programs write: user space updates its part every few seconds.
func value(t *testing.T, v *ebpf.Variable) string {
	bytes := make([]byte, v.Size())
	if err := v.Get(bytes); err != nil {
		t.Error(err)
	}
	if v.Type().Name == "wakes" {
		bytes = bytes[:len(bpf.TcWake{}.Handshakes)*8]
	}
	return fmt.Sprintf("%x", sha256.Sum256(bytes))
}

func sum(t *testing.T, m *ebpf.Map) string {
	h := sha256.New()
	key := make([]byte, m.KeySize())
	rows := m.Iterate()
	if info, err := m.Info(); err != nil || info.Type == ebpf.ArrayOfMaps {
		for i := range m.MaxEntries() {
			var id ebpf.MapID
			if m.Lookup(i, &id) != nil {
				break
			}
			inner, err := ebpf.NewMapFromID(id)
			if err != nil {
				t.Error(err)
				break
			}
			fmt.Fprintln(h, i, sum(t, inner))
			inner.Close()
		}
		return fmt.Sprintf("%x", h.Sum(nil))
	}
	if info, _ := m.Info(); info.Type == ebpf.RingBuf {
		return ""
	}
	if dptest.IsArray(m) { // some have 65,536 rows
		all, err := dptest.ArrayBytes(m)
		if err != nil {
			t.Errorf("read %s: %v", m, err)
		}
		_, _ = h.Write(all)
		return fmt.Sprintf("%x", h.Sum(nil))
	}
	if perCPU(m.Type()) {
		var value [][]byte
		for rows.Next(&key, &value) {
			fmt.Fprintf(h, "%x %x\n", key, bytes.Join(value, nil))
		}
	} else {
		var value []byte
		for rows.Next(&key, &value) {
			_, _ = h.Write(key)
			_, _ = h.Write(value)
		}
	}
	if err := rows.Err(); err != nil {
		t.Errorf("read %s: %v", m, err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func perCPU(kind ebpf.MapType) bool {
	return kind == ebpf.PerCPUArray || kind == ebpf.PerCPUHash || kind == ebpf.LRUCPUHash
}

// TestUnderTraffic checks that dry runs do not affect packets that flow at the same time: the
// numbers of connections, packets and drops equal those sent.
func TestUnderTraffic(t *testing.T) {
	t.Parallel()
	const sent = 300
	onThread(t, func(l *lab.Lab) error {
		s, err := lb.ParseService("10.0.0.1:80/tcp endpoints=192.168.1.10:8080,192.168.1.11:8080")
		if err == nil {
			err = l.Apply(s)
		}
		if err != nil {
			return err
		}
		here, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer here.Close()
		failed := make(chan error, 1)
		begun, stop, asked := make(chan struct{}), make(chan struct{}), 0
		go func() {
			runtime.LockOSThread() // never unlocked: the thread is in the lab's network
			failed <- func() error {
				if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil {
					return err
				}
				for ; ; asked++ {
					select {
					case <-stop:
						return nil
					default:
					}
					if _, err := try(l, fmt.Sprintf("tcp 1.2.1.1:%d > 10.0.0.1:80 S", 1000+asked%100)); err != nil {
						return err
					}
					if asked == 1 {
						close(begun)
					}
				}
			}()
		}()
		select {
		case <-begun: // everything is loaded
		case err := <-failed:
			return err
		}
		for i := range sent {
			out, err := l.Datapath.TestRun().Run(testrun.Input{Frame: frame(fmt.Sprintf("tcp 1.1.1.1:%d > 10.0.0.1:80 S", 1000+i)), Ifindex: l.Client.Index})
			if err != nil || out.Verdict != testrun.Redirect {
				t.Errorf("packet %d: %d, %v", i, out.Verdict, err)
			}
		}
		close(stop)
		if err := <-failed; err != nil {
			return err
		}
		stats, _ := l.Stats(s.Key)
		if n := stats.Endpoints; n[0].Connections != sent/2 || n[1].Connections != sent/2 || stats.In.Packets != sent || asked < 2 {
			t.Errorf("after %d packets, and %d dry runs: %+v", sent, asked, stats)
		}
		p, err := l.Datapath.Fullness()
		if p.Entries != 2*sent || p.HalfOpenTCP != sent {
			t.Errorf("after %d packets there are %d entries, %d connections half-open", sent, p.Entries, p.HalfOpenTCP)
		}
		return err
	})
}

// TestUsesCurrentState checks that a dry run uses the current state: a client's limit, a source
// port in use, the next endpoint in the rotation.
func TestUsesCurrentState(t *testing.T) {
	t.Parallel()
	onThread(t, func(l *lab.Lab) error {
		packets, err := prepare(l)
		if err != nil {
			return err
		}
		r, err := try(l, packets[0]) // its connection is open by now
		if err != nil {
			return err
		}
		if !r.Existing || r.Outcome != dryrun.Forwards || r.Entry.Endpoint.String() != "192.168.1.10:8080" {
			t.Errorf(`%s: got %+v, want r.Existing, r.Outcome == dryrun.Forwards, r.Entry.Endpoint == "192.168.1.10:8080"`,
				packets[0], r)
		}
		r, err = try(l, "tcp 1.1.1.9:4000 > 10.0.0.1:80 S")
		if err != nil {
			return err
		}
		if r.Existing || r.Entry == nil || r.Entry.Endpoint.String() != "192.168.1.11:8080" || r.Opening.Place != 1 || r.Opening.Algorithm != bpf.TcAlgorithmALGORITHM_RR {
			t.Errorf("the second connection of a round: %+v", r)
		}
		for port := range 2 {
			if _, err := l.Send(l.Client, frame(fmt.Sprintf("tcp 1.1.1.1:%d > 10.0.0.2:80 S", 5000+port))); err != nil {
				return err
			}
		}
		r, err = try(l, "tcp 1.1.1.1:6000 > 10.0.0.2:80 S")
		if err == nil && r.Reason != "connection-limit" {
			t.Errorf("the fourth connection of a client that may have three: %+v", r)
		}
		return err
	})
}
