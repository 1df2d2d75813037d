package compat_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/compat"
	"loxilb/internal/contract"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/test/apitest"
)

// Files that `loxicmd save --all` of the existing loxilb writes.
const (
	savedLB = `{"lbAttr":[{"endpoints":[{"counter":"0:0","endpointIP":"31.31.31.1","state":"active","targetPort":8080,"weight":1},{"counter":"0:0",` +
		`"endpointIP":"32.32.32.1","state":"active","targetPort":8080,"weight":1}],` +
		`"secondaryIPs":null,"allowedSources":null,"serviceArguments":{"bgp":false,"block":0,"externalIP":"20.20.20.1","inactiveTimeOut":240,"mode":0,` +
		`"monitor":true,"name":"web","port":80,"privateIP":"","probeRetries":2,"probeTimeout":60,"probeport":0,"probereq":"","proberesp":"",` +
		`"probetype":"ping","protocol":"tcp","sel":0,"snat":false,"host":"","security":0,"oper":0,"proxyprotocolv2":false,"egress":false}},` +
		`{"endpoints":[{"endpointIP":"31.31.31.1","targetPort":9999,"weight":1}],"serviceArguments":{"externalIP":"20.20.20.1","port":99,"protocol":"tcp","mode":4}},` +
		`{"endpoints":[{"endpointIP":"31.31.31.1","targetPort":53,"weight":1}],"serviceArguments":{"externalIP":"20.20.20.1","port":53,"protocol":"udp","sel":1}}]}`
	savedEP = `{"Attr":[{"avgDelay":"","currState":"ok","hostName":"31.31.31.1","inActiveReTries":2,"maxDelay":"","minDelay":"",` +
		`"name":"31.31.31.1_ping_0","probeDuration":60,"probePort":0,"probeReq":"","probeResp":"","probeType":"ping"}]}`
	savedFW = `{"fwAttr":[{"opts":{"allow":true,"counter":"0:0","fwMark":0},"ruleArguments":{"destinationIP":"31.31.31.0/24","sourceIP":"10.0.0.0/8","preference":200}},` +
		`{"opts":{"drop":true,"counter":"0:0"},"ruleArguments":{"destinationIP":"0.0.0.0/0","sourceIP":"192.0.2.0/24"}}]}`
)

// bootDir writes files, given as alternating names and texts.
func bootDir(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// logged returns a bench, and its log.
func logged(t *testing.T, changes ...func(*httpapi.Options)) (*apitest.Bench, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return apitest.New(t, func(o *httpapi.Options) {
		o.Compat, o.Log = true, slog.New(slog.NewTextHandler(&log, nil))
		for _, change := range changes {
			change(o)
		}
	}), &log
}

// unread returns a mark of the last start: files that changed after since are unread.
func unread(t *testing.T, since time.Time) *store.Unread {
	t.Helper()
	u, err := store.MarkUnread(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	u.Since = since
	return u
}

// P51 Files that the existing loxilb saved are read in one transaction; unsupported parts are
// named, and affect nothing else
func TestBootFiles(t *testing.T) {
	t.Parallel()
	b, log := logged(t)
	b.API.LoadBootFiles(bootDir(t, "lbconfig.txt", savedLB, "EPconfig.txt", savedEP, "FWconfig.txt", savedFW,
		"sessionconfig.txt", `{"sessionAttr":null}`, "BFDconfig.txt",
		`{"Attr":[{"instance":"default","remoteIp":"10.0.0.2","sourceIP":"10.0.0.1","port":3784,"interval":200000,"retryCount":3,"state":"BFDUp"},`+
			`{"remoteIp":"x"}]}`),
		unread(t, time.Time{}))
	if got := b.Counts(); got != "2 1 2 revision 1" {
		t.Errorf("services, endpoints, rules: %s\n%s", got, log)
	}
	for _, want := range []string{
		`lbconfig.txt at=lbAttr[1] error="serviceArguments.mode \"fullproxy\" is not part of this build`,
		`BFDconfig.txt at=Attr[1] error="remoteIp \"x\" is not an IP address`, "objects=6\n",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 2 {
		t.Errorf("%d errors:\n%s", n, log)
	}
	if one, ok := b.Store.BFD.Get(b.Store.Snapshot(), "10.0.0.2"); !ok || one.Source.String() != "10.0.0.1" {
		t.Errorf(`got %+v, %t, want ok, one.Source == "10.0.0.1"`, one, ok)
	}
	s, ok := b.Store.Services.Get(b.Store.Snapshot(), lb.Key{VIP: apitest.DemoKey().VIP, Port: 80, Protocol: lb.TCP})
	if want := "20.20.20.1:80/tcp mode=default select=rr"; !ok || !strings.HasPrefix(s.String(), want) || !s.Monitored() || s.Name != "web" {
		t.Errorf("the service of the file is %s, want %s", s, want)
	}
}

// TestBootFilesWrong checks that a malformed file is named, with the error and its position.
func TestBootFilesWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  "unexpected end of JSON input",
		"{\n\"lbAttr\":[}":                  "line 2, column 11",
		`[]`:                                "is of the wrong type",
		`{"fwAttr":[]}`:                     `property \"lbAttr\" is missing`,
		`{"lbAttr":{}}`:                     "cannot unmarshal object",
		`{"lbAttr":[7]}`:                    "lbAttr[0]",
		`{"lbAttr":[null]}`:                 "lbAttr[0]",
		`{"lbAttr":[{}]}`:                   "is missing (allowed: the arguments of a service",
		`{"lbAttr":[]} and more`:            "invalid character",
		strings.Repeat("[", 1<<20):          "lbconfig.txt",
		`{"lbAttr":[{"lbAttr":[]}]}`:        "",
		`{"lbAttr":null}`:                   "",
		strings.Repeat(" ", 99) + `{"x":0}`: `property \"lbAttr\" is missing`,
	} {
		b, log := logged(t)
		b.API.LoadBootFiles(bootDir(t, "lbconfig.txt", text, "FWconfig.txt", savedFW), unread(t, time.Time{}))
		if got := b.Counts(); got != "0 0 2 revision 1" {
			t.Errorf(`%.40s: got %s, want "0 0 2 revision 1"`, text, got)
		}
		if !strings.Contains(log.String(), want) || want == "" && strings.Contains(log.String(), "ERROR") {
			t.Errorf("%.40s: the log has no %s: %.999s", text, want, log)
		}
	}
	b, log := logged(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lbconfig.txt"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.API.LoadBootFiles(dir, unread(t, time.Time{}))
	b.API.LoadBootFiles(filepath.Join(dir, "none"), unread(t, time.Time{}))
	if n := strings.Count(log.String(), "level="); n != 1 || !strings.Contains(log.String(), "not a regular file") {
		t.Errorf(`got %v, want n == 1, "not a regular file" in log`, log)
	}
}

// TestBootFilesRefusedByStore checks that objects that only the store refuses are reported, and
// that the others are applied.
func TestBootFilesRefusedByStore(t *testing.T) {
	t.Parallel()
	full, err := desired.Open("", slog.New(slog.DiscardHandler), desired.WithAdmission(func(_, _ desired.ServicesAt, changed []lb.Key) error {
		for _, k := range changed {
			if k.Port == 50 {
				return fmt.Errorf("%w: no room for port 50", store.ErrLimit)
			}
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = full.Close() })
	b, log := logged(t, func(o *httpapi.Options) { o.Store = full })
	var list []string
	for port := 1; port <= 100; port++ {
		list = append(list,
			fmt.Sprintf(`{"serviceArguments":{"externalIP":"20.20.20.1","port":%d,"protocol":"tcp"},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":80,"weight":1}]}`, port))
	}
	b.API.LoadBootFiles(bootDir(t, "lbconfig.txt", `{"lbAttr":[`+strings.Join(list, ",")+`]}`), unread(t, time.Time{}))
	if n := full.Services.Len(full.Snapshot()); n != 99 {
		t.Errorf("%d services", n)
	}
	if strings.Count(log.String(), "level=ERROR") != 1 || !strings.Contains(log.String(), `at=lbAttr[49] error="`) || !strings.Contains(log.String(), "no room for port 50") {
		t.Errorf(`got %.2000s, want "level=ERROR" once in log, `+
			"`at=lbAttr[49] error=\"` in log, \"no room for port 50\" in log",
			log)
	}
}

// TestBootFilesAge checks that a file is read if it is newer than the stored state, or if there is
// none.
func TestBootFilesAge(t *testing.T) {
	t.Parallel()
	b, log := logged(t)
	dir := bootDir(t, "FWconfig.txt", savedFW)
	info, err := os.Stat(filepath.Join(dir, "FWconfig.txt"))
	if err != nil {
		t.Fatal(err)
	}
	b.API.LoadBootFiles(dir, unread(t, info.ModTime().Add(time.Hour))) // opens the directory once, without a file to read
	if got := b.Counts(); got != "0 0 2 revision 1" {
		t.Fatalf(`got %v, want "0 0 2 revision 1"`, got)
	}
	if w := b.Call("DELETE", httpapi.BaseURL+"/config/firewall?sourceIP=192.0.2.0/24", ""); w.Code != 200 {
		t.Fatalf("got %v, want code 200", w.Body)
	}
	b.API.LoadBootFiles(dir, unread(t, info.ModTime()))
	if got := b.Counts(); got != "0 0 1 revision 2" || !strings.Contains(log.String(), "older than the stored objects") {
		t.Errorf("a service that was deleted after the file was written is back: %s %s", got, log)
	}
	b.API.LoadBootFiles(dir, unread(t, info.ModTime().Add(-time.Second)))
	if got := b.Counts(); got != "0 0 2 revision 3" {
		t.Errorf("a newer file does not count: %s", got)
	}
}

// TestBootFilesOfOurs checks that GET's output, which `loxicmd save` writes, is accepted unchanged.
func TestBootFilesOfOurs(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.MustPost(apitest.Demo)
	b.MustPost(apitest.Kube("", `"Monitor":false`, `"Monitor":true`))
	for path, body := range map[string]string{
		"/config/endpoint": `{"hostName":"31.31.31.1","probeType":"tcp","probePort":80}`,
		"/config/firewall": `{"ruleArguments":{"sourceIP":"192.0.2.0/24"},"opts":{"drop":true}}`,
	} {
		if w := b.Call("POST", httpapi.BaseURL+path, body, "Content-Type", "application/json"); w.Code != 200 {
			t.Fatalf("got %v, want code 200", w.Body)
		}
	}
	get := func(path string) string { return b.Call("GET", httpapi.BaseURL+path, "").Body.String() }
	dir := bootDir(t, "lbconfig.txt", get("/config/loadbalancer/all"), "FWconfig.txt", get("/config/firewall/all"),
		"EPconfig.txt", `{"Attr":[{"hostName":"31.31.31.1","name":"31.31.31.1_tcp_80","probeType":"tcp","probePort":80,"currState":"ok","minDelay":"1ms"}]}`)
	again, log := logged(t)
	again.API.LoadBootFiles(dir, unread(t, time.Time{}))
	if got := again.Counts(); got != "2 1 1 revision 1" || strings.Contains(log.String(), "ERROR") {
		t.Errorf(`got %s %s, want got == "2 1 1 revision 1", no "ERROR" in log`, got, log)
	}
	for s := range b.Store.Services.All(b.Store.Snapshot()) {
		if same, _ := again.Store.Services.Get(again.Store.Snapshot(), s.Key); same.String() != s.String() {
			t.Errorf("%s was %s", same, s)
		}
	}
}

// TestBootFilesKinds checks that a file of an unsupported kind is reported, and that files of
// supported kinds are read.
func TestBootFilesKinds(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for _, f := range compat.BootFiles() {
		for _, o := range contract.AllOperations() {
			if o.Method == "POST" && o.Path == f.Create && (o.State == contract.Unsupported) != (b.API.Compat.Read[f.Create] == nil) {
				t.Errorf("%s: %s is %s in the table", f.Name, f.Create, o.State)
			}
		}
	}
	if got := store.LastWritten(t.TempDir()); !got.IsZero() {
		t.Errorf("got %v, want the zero time", got)
	}
}

// TestBootFilesTolerant checks that unknown properties are ignored, as by the existing loxilb: the
// object is still created.
func TestBootFilesTolerant(t *testing.T) {
	t.Parallel()
	b, log := logged(t)
	text := strings.NewReplacer(`"name":"web"`, `"name":"web","newer":true`, `"inactiveTimeOut":240`, `"inactiveTimeOut":99999`).Replace(savedLB)
	b.API.LoadBootFiles(bootDir(t, "lbconfig.txt", text), unread(t, time.Time{}))
	s, there := b.Store.Services.Get(b.Store.Snapshot(), lb.Key{VIP: netip.MustParseAddr("20.20.20.1"), Port: 80, Protocol: lb.TCP})
	if !there || s.IdleTimeout != 0 {
		t.Errorf("%v: got %s, want there, s.IdleTimeout == 0", there, &s)
	}
	for _, want := range []string{`property \"serviceArguments.newer\" is unknown and ignored`, "serviceArguments.inactiveTimeOut 99999 is above 86400 seconds: it is the default"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s: %s", want, log)
		}
	}
}
