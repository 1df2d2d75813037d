package importer

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
)

var update = flag.Bool("update", false, "write what is found into testdata")

// files are the files of testdata, each with the command of its own program that checks it. IPVS
// has none: ipvsadm reads nothing on a kernel without IPVS.
var files = map[string]struct {
	name  string
	check []string
}{
	"ipvsadm":    {"ipvsadm.txt", nil},
	"haproxy":    {"haproxy.cfg", []string{"haproxy", "-c", "-f"}},
	"keepalived": {"keepalived.conf", []string{"keepalived", "-t", "-f"}},
	"nft":        {"nft.nft", []string{"unshare", "-n", "nft", "-c", "-f"}},
}

func readTestdata(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func dump(r *Result) string {
	var b strings.Builder
	for i := range r.Services {
		b.WriteString(r.Services[i].String() + "\n")
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "%d: %s\n", n.Line, n.Text)
	}
	return b.String()
}

// TestRead checks the services that each program's file gives, and which lines are left out.
func TestRead(t *testing.T) {
	t.Parallel()
	for format, f := range files {
		r, err := Read(format, readTestdata(t, f.name))
		if err != nil {
			t.Fatal(err)
		}
		got, golden := dump(r), f.name+".golden"
		if *update {
			if err := os.WriteFile(filepath.Join("testdata", golden), []byte(got), 0o644); err != nil { //nolint:gosec // of the tree
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(readTestdata(t, golden), got); diff != "" {
			t.Errorf("%s: -want +got\n%s", format, diff)
		}
	}
	if _, err := Read("nginx", ""); err == nil {
		t.Error("an unknown format is accepted")
	}
}

// TestKeepalivedDefaults checks a virtual server without protocol and scheduler, which keepalived
// -t refuses.
func TestKeepalivedDefaults(t *testing.T) {
	t.Parallel()
	r, err := Read("keepalived", "virtual_server 10.0.0.1 53 {\n real_server 192.168.0.1 53 {\n }\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "10.0.0.1:53/udp mode=default select=lc endpoints=192.168.0.1:53\n" +
		"1: protocol is missing: UDP, as keepalived since 2.0\n"
	if diff := cmp.Diff(want, dump(r)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestProgramsAcceptFiles checks that the programs themselves accept the files.
func TestProgramsAcceptFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	t.Parallel()
	for format, f := range files {
		if len(f.check) == 0 {
			continue
		}
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(format); err != nil {
				t.Skip(format + " is not installed")
			}
			path, err := filepath.Abs(filepath.Join("testdata", f.name))
			if err != nil {
				t.Fatal(err)
			}
			args := append(f.check[1:len(f.check):len(f.check)], path)
			if out, err := exec.CommandContext(t.Context(), f.check[0], args...).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestIPVSRoundTrip checks that services that are written for IPVS are read back unchanged, if IPVS
// supports all of them.
func TestIPVSRoundTrip(t *testing.T) {
	t.Parallel()
	var services []lb.Service
	for _, text := range []string{
		"10.0.0.1:80/tcp mode=default select=lc endpoints=192.168.0.1:8080:3,192.168.0.2:8080:0",
		"10.0.0.1:53/udp mode=dsr select=rr endpoints=192.168.0.1:53 tunnel=gue",
		"10.0.0.1:443/tcp mode=dsr select=persist endpoints=192.168.0.1:443 tunnel=ipip persist-timeout=300s persist-prefix=24",
		"[2001:db8::1]:80/tcp mode=default select=hash endpoints=[2001:db8:1::1]:80",
	} {
		s, err := lb.ParseService(text)
		if err == nil {
			err = s.Validate()
		}
		if err != nil {
			t.Fatal(err)
		}
		services = append(services, s)
	}
	text, notes := IPVS(services)
	if len(notes) > 0 {
		t.Errorf("got %v, want no notes", notes)
	}
	r, err := Read("ipvsadm", text)
	if err != nil || len(r.Services) != len(services) {
		t.Fatalf("got %v %s\n%s, want %d services", err, text, dump(r), len(services))
	}
	for i := range services {
		if got, want := r.Services[i].String(), services[i].String(); got != want {
			t.Errorf("%s became %s", want, got)
		}
	}
}

func TestIPVSLeavesOut(t *testing.T) {
	t.Parallel()
	s, err := lb.ParseService("10.0.0.1:80-90/tcp mode=default select=rr endpoints=192.168.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	one, err := lb.ParseService("10.0.0.1:80/tcp mode=onearm select=random endpoints=192.168.0.1:80,192.168.0.2:80@1 idle=60s monitor=true proxy-protocol=true")
	if err != nil {
		t.Fatal(err)
	}
	text, notes := IPVS([]lb.Service{s, one})
	if want := "-A -t 10.0.0.1:80 -s wrr\n-a -t 10.0.0.1:80 -r 192.168.0.1:80 -m -w 1\n"; text != want {
		t.Errorf("got %v, want %v", text, want)
	}
	got := fmt.Sprint(notes)
	for _, want := range []string{"ranges of ports", "no algorithm random", "keeps the client's address", "ignored: idle, proxy-protocol, monitor", "no backups"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
}

// FuzzRead checks that no file of any format crashes the reader, and that its results are valid
// services.
func FuzzRead(f *testing.F) {
	for format, file := range files {
		f.Add(format, readTestdata(f, file.name))
	}
	f.Add("nft", "table ip a {\nchain b {\ndnat to numgen mod\ntcp dport { 1 dnat to jhash mod 2 map { : } }\n}}}")
	f.Add("keepalived", "}{\nvirtual_server {\nreal_server\n}")
	f.Add("haproxy", "listen\nbind\nserver\nbalance\noption\nserver a :\ndefault-server")
	f.Fuzz(func(t *testing.T, format, text string) {
		r, err := Read(format, text)
		if err != nil {
			return
		}
		for i := range r.Services {
			if err := r.Services[i].Validate(); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range r.Notes {
			if n.Line < 0 || n.Text == "" {
				t.Fatalf("got %+v, want n.Line >= 0, n.Text not empty", n)
			}
		}
	})
}
