package diagnose_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"loxilb/internal/pkt"
	"loxilb/test/clitest"
)

// event returns an event of a forwarded packet.
func event(t testing.TB, before, after string) string {
	t.Helper()
	view := func(line string) string {
		p, err := pkt.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		frame := p.Build()
		return fmt.Sprintf(`{"length":%d,"data":%q}`, len(frame), base64.StdEncoding.EncodeToString(frame))
	}
	rest := ""
	if after != "" {
		rest = `,"out":"ep1","after":` + view(after)
	}
	return `event: packet` + "\n" +
		`data: {"time":"2020-01-02T03:04:05.000006Z","took":812,"point":"ingress","in":"client","verdict":"forward","before":` + view(before) + rest +
		"}\n\n"
}

// TestTrace checks that packets are printed in the language of packet scripts, or as a capture,
// that lost ones are reported, and that it ends after the requested number.
func TestTrace(t *testing.T) {
	t.Parallel()
	const syn, out = "tcp 1.1.1.1:4000 > 10.0.0.1:80 S seq 7", "tcp 1.1.1.1:4000 > 192.168.1.10:8080 S seq 7 ttl 63"
	one := event(t, syn, out)
	dropped := strings.Replace(strings.Replace(event(t, syn, ""), `"forward"`, `"drop","reason":"no-route"`, 1), `"took":812`, `"took":99`, 1)
	s := clitest.NewServer(t, 200, "event: lost\ndata: {\"lost\":7}\n\n"+dropped+one+one)
	got := clitest.Run(t, "", s.Args("trace host 1.1.1.0/24 and tcp port 80 service web interface client --sample=1% -c 2 --for 3s")...)
	lines := strings.Split(strings.TrimSpace(got.Stdout), "\n")
	if got.Code != 0 || len(lines) != 3 || !strings.HasPrefix(lines[0], "drop client "+syn+" ttl 64 reason=no-route  # ") || !strings.HasSuffix(lines[0], ".000006 99ns") ||
		!strings.HasPrefix(lines[1], "in client "+syn+" ttl 64  # ") || lines[2] != "out ep1 "+out+"  # forward 812ns" {
		t.Errorf("got %+v, want three lines: a drop with its reason and time, and a packet before and after", got)
	}
	if want := "tracing; press Ctrl-C to stop\n7 events lost: the reader is too slow\n"; got.Stderr != want {
		t.Errorf("got %q, want %q", got.Stderr, want)
	}
	if want := "GET /netlox/v1/status/trace?count=2&host=1.1.1.0%2F24&interface=client&payload=false&port=80&protocol=tcp&sample=1&seconds=8&service=web"; s.Requests[0] != want {
		t.Errorf("the request is %s", s.Requests[0])
	}
	file := filepath.Join(t.TempDir(), "x.pcapng")
	if got := clitest.Run(t, "", s.Args("trace -c 3 -w "+file)...); got.Code != 0 || got.Stdout != "" {
		t.Errorf("got %+v, want exit code 0, nothing on stdout", got)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		device string
		packet string
	}{{"client", syn}, {"client", syn}, {"ep1", out}, {"client", syn}, {"ep1", out}} {
		data, about, err := r.ReadPacketData()
		if err != nil {
			t.Fatal(err)
		}
		device, err := r.Interface(about.InterfaceIndex)
		if line, _ := pkt.Describe(data, about.Length, false, false); err != nil || device.Name != want.device || !strings.HasPrefix(line, want.packet) {
			t.Errorf("%s at %s: %v", line, device.Name, err)
		}
	}
}

// TestRefused checks that errors name the wrong part of a command line.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, "")
	for line, want := range map[string]string{
		"trace host":             `filter keyword "host" needs a value`,
		"trace hots 1.1.1.1":     `unknown filter keyword "hots" (use host, port`,
		"trace port 65536":       `port "65536" is out of range`,
		"trace tcp udp":          `"proto" is given twice`,
		"trace --sample=0%":      `--sample "0%" is not a share`,
		"trace --sample=1":       `--sample "1" is not a share`,
		"trace --sample=1%x":     `--sample "1%x" is not a share`,
		"trace --sample=NaN%":    `--sample "NaN%" is not a share`,
		"trace -c 0":             "--count 0 is out of range (allowed: 1 or more)",
		"trace --for=0.5s":       "--for 500ms is out of range (allowed: 1s to 23h59m)",
		"trace -o yaml":          "--output \"yaml\" is not supported for packets (allowed: wide, json)",
		"trace -w /nowhere/file": "--write: open /nowhere/file",
	} {
		if got := clitest.Run(t, "", s.Args(line)...); got.Code == 0 || !strings.Contains(got.Stderr, want) {
			t.Errorf("%s: %+v, want %s", line, got, want)
		}
	}
	if len(s.Requests) > 0 {
		t.Errorf("requests were made: %s", s.Requests)
	}
}
