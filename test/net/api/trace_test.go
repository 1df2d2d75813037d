package api_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// trace starts a trace in the balancer's namespace, and waits until it runs.
func trace(t testing.TB, r *rig.Rig, words string) *netnstest.Process {
	t.Helper()
	p, err := r.LB.Start(netnstest.Command{Args: append([]string{rig.Program("loxicmd"), "trace"}, strings.Fields(words)...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	awaitOutput(t, p, "tracing")
	return p
}

// awaitOutput waits until the output of a process matches all patterns.
func awaitOutput(t testing.TB, p *netnstest.Process, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		labtest.Eventually(t, 2*rig.Patience, func(context.Context) error {
			if out := p.Output(); !regexp.MustCompile("(?m)" + pattern).MatchString(out) {
				return fmt.Errorf("no %s:\n%.4000s", pattern, out)
			}
			return nil
		})
	}
}

// tracedRig returns a rig with a service that answers, and one without endpoints. Checksums are
// complete, so XDP can forward.
func tracedRig(t testing.TB, args ...string) *rig.Rig {
	t.Helper()
	r := rig.New(t, rig.Options{Args: args, Before: func(t testing.TB, s *netnstest.Standard) {
		rig.DisableOffloads(t, s)
		for _, h := range append([]*netnstest.Host{s.Client}, s.Endpoints[:]...) {
			rig.MustRun(t, h, "ethtool", "-K", "eth0", "gro", "on") // otherwise a veth drops redirected frames
		}
	}})
	rig.ServeSources(r)
	r.Loxicmd("create lb %s --tcp=80:7000 --endpoints=31.31.31.1:1 --name=web", rig.VIP4)
	r.Loxicmd("create lb %s --tcp=81:7000 --endpoints=31.31.31.1:0 --name=empty", rig.VIP4)
	return r
}

func request(r *rig.Rig) {
	r.T.Helper()
	c := r.Dial(rig.Join(rig.VIP4, 80))
	if _, err := rig.AskSource(c); err != nil {
		r.T.Error(err)
	}
	_ = c.Close()
}

// askRefused sends a request to the service without endpoints.
func askRefused(r *rig.Rig) {
	if c, err := r.Client.DialContext(r.T.Context(), "tcp", rig.Join(rig.VIP4, 81)); err == nil {
		_ = c.Close()
		r.T.Error("a service without endpoints answers")
	}
}

// attachedPrograms returns the ids of the programs at the client's interface.
func attachedPrograms(t testing.TB, r *rig.Rig) (ids []ebpf.ProgramID) {
	t.Helper()
	err := r.LB.Do(func() error {
		l, err := netlink.LinkByName("client")
		if err != nil {
			return err
		}
		if q, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: ebpf.AttachTCXIngress}); err == nil {
			for _, p := range q.Programs {
				ids = append(ids, p.ID)
			}
		}
		filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		for _, f := range filters {
			if b, ok := f.(*netlink.BpfFilter); ok {
				ids = append(ids, ebpf.ProgramID(b.Id))
			}
		}
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			ids = append(ids, ebpf.ProgramID(x.ProgId))
		}
		return err
	})
	if err != nil || len(ids) == 0 {
		t.Fatalf("got %v %v, want no error, elements in ids", ids, err)
	}
	return ids
}

// TestTrace checks that traces at each hook show packets before and after translation, in both
// directions, with the reason of drops, to several clients with different filters. After clients
// disconnect or are killed, the former programs are attached again. No packet is lost.
//
// P68 trace shows packets before and after translation with their verdict; however it ends, the
// former programs are attached again
func TestTrace(t *testing.T) {
	t.Parallel()
	const client, vip, endpoint = `100\.100\.100\.1:\d+`, `20\.20\.20\.1`, `31\.31\.31\.1:7000`
	for _, c := range []struct{ name, args, at string }{
		{"tcx", "--attach=tcx", ""},
		{"clsact", "--attach=clsact", ""},
		{"xdp", "--xdp=generic", " xdp"},
		{"native xdp", "--xdp=native", " xdp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := tracedRig(t, c.args)
			before := attachedPrograms(t, r)
			web, drops := trace(t, r, "service web"), trace(t, r, "reason no-endpoint tcp")
			nothing := trace(t, r, "host 100.100.100.99")
			if during := attachedPrograms(t, r); slices.Equal(during, before) {
				t.Error("no program was replaced")
			}
			request(r)
			askRefused(r)
			awaitOutput(t, web,
				`^in client tcp `+client+` > `+vip+`:80 S seq \d+ ttl 64  # [0-9:.]+\n`+
					`out ep1 tcp `+client+` > `+endpoint+` S seq \d+ ttl 63  # forward \d`,
				`^in ep1 tcp `+endpoint+` > `+client+` SA .*\n`+`out client tcp `+vip+`:80 > `+client+` SA .*  # forward`,
				`^in client tcp `+client+` > `+vip+`:80 PA .* len 10  # [0-9:.]+`+c.at+`\n`+`out ep1 tcp `+client+` > `+endpoint+` PA .* len 10  # forward`)
			awaitOutput(t, drops, `^in client tcp `+client+` > `+vip+`:81 S seq \d+ ttl 64 reason=no-endpoint  # [0-9:.]+\n`+
				`out client tcp `+vip+`:81 > `+client+` RA .*  # answer`)
			for _, other := range []struct {
				p    *netnstest.Process
				word string
			}{{web, ":81 "}, {drops, ":80 "}, {nothing, ":80 "}, {nothing, ":81 "}} {
				if strings.Contains(other.p.Output(), other.word) {
					t.Errorf("a trace shows %q, which its filter does not select:\n%s", other.word, other.p.Output())
				}
			}
			web.Kill()
			nothing.Stop()
			drops.Kill()
			labtest.Eventually(t, rig.Patience, func(context.Context) error {
				if now := attachedPrograms(t, r); !slices.Equal(now, before) {
					return fmt.Errorf("the attached programs are %v, want %v as before the trace", now, before)
				}
				return nil
			})
			request(r)
		})
	}
}

// programTags returns the tags of programs (the kernel's hashes of their code). A program with
// tracing has another tag.
func programTags(t testing.TB, ids []ebpf.ProgramID) (list []string) {
	t.Helper()
	for _, id := range ids {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		info, err := p.Info()
		_ = p.Close()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, info.Tag)
	}
	return list
}

// TestTraceLimits checks that a fifth trace and an invalid filter are refused, and that a trace
// ends after the requested number of packets. The start after a kill removes programs with tracing,
// and no packet is lost.
func TestTraceLimits(t *testing.T) {
	t.Parallel()
	r := tracedRig(t)
	before := attachedPrograms(t, r)
	plain := programTags(t, before)
	for _, c := range []struct{ words, want string }{
		{"reason bad-luck", `reason "bad-luck" is not a reason for drops.*no-endpoint`},
		{"service nobody", `service "nobody" does not exist`},
		{"interface eth9", `interface "eth9" does not exist.*client`},
		{"host 1.2.3", `host "1.2.3" is neither`},
		{"verdict perhaps", `verdict "perhaps" is not known.*challenge`},
		{"--sample=200%", `--sample "200%" is not a share`},
	} {
		if out, err := r.Command(append([]string{"trace"}, strings.Fields(c.words)...)...); err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()+out) {
			t.Errorf("trace %s: %v %s", c.words, err, out)
		}
	}
	counted := trace(t, r, "service web --count=2")
	var four []*netnstest.Process
	for range 3 {
		four = append(four, trace(t, r, "service web"))
	}
	if out, err := r.Command("trace"); err == nil || !strings.Contains(err.Error()+out, "4 traces are running, which is the limit") {
		t.Errorf("a fifth trace: %v %s", err, out)
	}
	request(r)
	if err := counted.Wait(); err != nil || strings.Count(counted.Output(), "\nin ") != 2 {
		t.Errorf(`got %v: %s, want no error, "\nin " twice in counted`, err, counted.Output())
	}
	awaitOutput(t, four[2], "^out ")
	during := attachedPrograms(t, r)
	if slices.Equal(programTags(t, during), plain) {
		t.Error("during a trace, the attached programs are the ones without tracing")
	}
	r.Kill()
	request(r)
	if left := attachedPrograms(t, r); !slices.Equal(left, during) {
		t.Errorf("the attached programs are %v, want %v as when the daemon was killed", left, during)
	}
	r.Restart()
	if now := attachedPrograms(t, r); slices.Equal(now, before) || slices.Equal(now, during) {
		t.Errorf("programs %v are still attached after a restart", now)
	} else if !slices.Equal(programTags(t, now), plain) {
		t.Error("programs with tracing are still attached after a restart")
	}
	request(r)
	// For 10 s after the start, a rollback could attach the programs with tracing again.
	labtest.Eventually(t, 3*rig.Patience, func(context.Context) error {
		_, err := r.Command("trace", "host", "100.100.100.99", "--for=1s")
		return err
	})
	again := trace(t, r, "service web --for=1s")
	request(r)
	awaitOutput(t, again, "^out ")
	if err := again.Wait(); err != nil {
		t.Errorf("%v: %s", err, again.Output())
	}
}

// TestTraceLoss checks that a client that stops reading delays no packet and no other trace, and
// receives the number of packets that it missed.
func TestTraceLoss(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeUDPEcho()
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=31.31.31.1:1", rig.VIP4)
	c := rig.DialUDP(t, r, rig.Join(rig.VIP4, 53))
	if _, err := rig.Datagram(c, "hello"); err != nil {
		t.Fatal(err)
	}
	p := trace(t, r, "udp --count=1000000")
	p.Signal(syscall.SIGSTOP)
	const packets = 40_000
	for range packets {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	p.Signal(syscall.SIGCONT)
	awaitOutput(t, p, `\d{4,} events lost`)
	r.WantNoDrops()
}

// TestTraceCapture checks with tshark that a capture has packets before and after translation, the
// interfaces' names, and the verdict of each packet.
func TestTraceCapture(t *testing.T) {
	t.Parallel()
	r := tracedRig(t)
	file := filepath.Join(t.TempDir(), "web.pcapng")
	p := trace(t, r, "vip "+rig.VIP4+" port 81 -c 1 -w "+file)
	request(r)
	askRefused(r)
	if err := p.Wait(); err != nil {
		t.Fatalf("%v: %s", err, p.Output())
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v %v, want no error, mode 0600", info, err)
	}
	out, err := r.LB.Run("tshark", "-r", file, "-T", "fields", "-e", "frame.interface_name", "-e", "ip.src", "-e", "tcp.flags.str", "-e", "frame.comment", "-e", "_ws.expert.message")
	want := regexp.MustCompile(`(?m)^client\t100\.100\.100\.1\t·+S·\tanswer \(no-endpoint\) by client, at ingress, after .*\n` +
		`client\t20\.20\.20\.1\t·+A·R··\tanswer: as it left`)
	if err != nil || !want.MatchString(out) {
		t.Errorf("got %v: %s, want output that matches %s", err, out, want)
	}
}
