package config

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"loxilb/internal/host/machine"
)

// run parses a command line as the daemon does.
func run(env map[string]string, args ...string) (*Config, int, string) {
	var got *Config
	var stdout, stderr bytes.Buffer
	cmd := Command(nil, func(k string) (string, bool) { v, ok := env[k]; return v, ok },
		func(_ context.Context, c *Config) error { got = c; return nil })
	code := execute(context.Background(), cmd, args, &stdout, &stderr)
	return got, code, stderr.String()
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, code, msg := run(nil)
	if code != ExitOK {
		t.Fatalf("got %v, want code ExitOK", msg)
	}
	socket, err := machine.SocketPath()
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		API:    API{Plain: netip.MustParseAddrPort("127.0.0.1:11111"), Socket: socket},
		Attach: AttachAuto, XDP: XDPAuto, IPsec: IPsecRefuse, RedirectPeer: true, LocalSockets: true, StateDir: "/var/lib/loxilb", ProbeFiles: "/etc/loxilb/probes", VIPAnnouncements: 3, LogLevel: logLevel("info"), HalfOpen: 25, IdleRST: true, Page: true,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{}), noGroup, sameLevel); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
}

// noGroup ignores the fields that depend on the groups of this machine.
var noGroup = cmpopts.IgnoreFields(API{}, "GIDs", "Group")

func TestAPIHosts(t *testing.T) {
	t.Parallel()
	c, code, msg := run(nil, "--api-hosts=LB.example.com,node-1")
	if code != ExitOK {
		t.Fatalf("got %v, want code ExitOK", msg)
	}
	if diff := cmp.Diff([]string{"lb.example.com", "node-1"}, c.API.Hosts); diff != "" {
		t.Errorf("the DNS names differ (-want +got):\n%s", diff)
	}
	for _, wrong := range []string{"http://lb", "lb:11111", "*.example.com", "a..b", "-"} {
		if _, code, msg := run(nil, "--api-hosts="+wrong); code == ExitOK || !strings.Contains(msg, "is not a DNS name") {
			t.Errorf(`%s: got %d %s, want code != ExitOK, "is not a DNS name" in msg`, wrong, code, msg)
		}
	}
}

func TestAPIUsers(t *testing.T) {
	t.Parallel()
	c, code, msg := run(nil, "--api-users=root,4711,@0", "--api-users=@root,nobody")
	if code != ExitOK {
		t.Fatalf("got %v, want code ExitOK", msg)
	}
	if diff := cmp.Diff([]uint32{0, 4711, 65534}, c.API.UIDs); diff != "" {
		t.Errorf("the user ids differ (-want +got):\n%s", diff)
	}
	if n := len(c.API.GIDs); n < 2 || c.API.GIDs[n-2] != 0 || c.API.GIDs[n-1] != 0 {
		t.Errorf("groups %v", c.API.GIDs)
	}
	if c.API.Insecure {
		t.Error("insecure without being asked to")
	}
}

func logLevel(word string) *LogLevel {
	l, err := NewLogLevel(word)
	if err != nil {
		panic(err) // a word of this test
	}
	return l
}

// sameLevel compares levels by name and meaning.
var sameLevel = cmp.Comparer(func(a, b *LogLevel) bool { return a.String() == b.String() && a.Level() == b.Level() })

func TestFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, pem := file(t, dir, "token", "  s3cret \nrest\n", 0o600), pemFile(t, dir)
	got, code, msg := run(
		map[string]string{"HOST": "127.0.0.2", "PORT": "1", "TLS": "true", "TLS_HOST": "::", "TLS_PORT": "444", "TLS_CERTIFICATE": pem, "TLS_PRIVATE_KEY": pem},
		"--port=2222", "--manualtoken", "--manualtokenvalue", token, "--whitelist", "^eth", "--blacklist", "none",
		"--ct-max", "1000", "--half-open-max=10", "--idle-rst=false", "--page=false", "--attach=clsact", "--xdp=native", "--redirect-peer=false",
		"--ipsec=ignore", "--localsockpolicy=false", "--cgroup=/sys/fs/cgroup/x", "--egr-hooks", "--loglevel", "trace", "--pin-path=/sys/fs/bpf/x",
		"--flow-log=/l", "--flow-log-size=1", "--flow-log-files=2", "--flow-log-rate=3", "--ipfix=[::1]:4739", "--ipfix-domain=4", "--metrics-detail=endpoint",
		"--socket=", "--vip-adv-repeat=5", "--state-dir=/s", "--probe-files=/p", "--config-path=/c", "--cpuprofile=/x", "-p", "--fallback", "--cluster=none", "--bgp=false")
	if code != ExitOK {
		t.Fatalf("got %v, want code ExitOK", msg)
	}
	want := &Config{
		API: API{
			Plain: netip.MustParseAddrPort("127.0.0.2:2222"), TLS: netip.MustParseAddrPort("[::]:444"),
			CertFile: pem, KeyFile: pem, Token: "s3cret",
		},
		Attach: AttachClsact, XDP: XDPNative, IPsec: IPsecIgnore, Whitelist: regexp.MustCompile("^eth"), CTMax: 1000, HalfOpen: 10, PinPath: "/sys/fs/bpf/x",
		Metrics: Metrics{Endpoints: true},
		FlowLog: FlowLog{File: "/l", Size: 1_000_000, Files: 2, Rate: 3, IPFIX: "[::1]:4739", Domain: 4},
		Cgroup:  "/sys/fs/cgroup/x", StateDir: "/s", VIPAnnouncements: 5, ProbeFiles: "/p", LogLevel: logLevel("trace"), CPUProfile: "/x",
		Notes: []string{
			"--prometheus has no effect: metrics are always served; with --compat only if it is given, or POST config/metrics",
			"--egr-hooks has no effect: local sockets are redirected to endpoints when they connect (--localsockpolicy)",
			"--fallback has no effect: packets of no service always go to the kernel",
			"--config-path has no effect: files there are read with --compat only: the services are kept in --state-dir",
		},
	}
	same := cmp.Comparer(func(a, b *regexp.Regexp) bool { return a == b || a != nil && b != nil && a.String() == b.String() })
	if diff := cmp.Diff(want, got, same, cmpopts.EquateComparable(netip.AddrPort{}), noGroup, sameLevel); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
}

func TestNoAPI(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-a", "--detach"} {
		got, code, msg := run(map[string]string{"HOST": "0.0.0.0"}, flag)
		if code != ExitOK || !got.API.Disabled {
			t.Errorf("%s: got %d %s %+v, want code ExitOK, got.API.Disabled", flag, code, msg, got)
		}
	}
}

// TestFlagsNextToDaemon checks that --check-upgrade and --detach accept the flags of the running
// daemon, and do not overwrite its profile.
func TestFlagsNextToDaemon(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--check-upgrade", "--detach"} {
		got, code, msg := run(map[string]string{"CPUPROF": "/x"}, flag, "--end-connections")
		if code != ExitOK || got.CPUProfile != "" {
			t.Errorf("%s: got %d %s %+v, want code ExitOK, no got.CPUProfile", flag, code, msg, got)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open, empty := file(t, dir, "open", "s3cret", 0o644), file(t, dir, "empty", "\ns3cret", 0o600)
	large, pem := file(t, dir, "large", strings.Repeat("x", 5000), 0o600), pemFile(t, dir)
	for _, tc := range []struct {
		env, args, message string
	}{
		{"", "--host=0.0.0.0", "--host \"0.0.0.0\" is reachable from other machines without encryption: use --tls with --manualtoken"},
		{"", "--host=::", "or add --insecure"},
		{"", "--force", "--force needs --detach"},
		{"", "--check-upgrade --detach", "--check-upgrade cannot be combined with --detach"},
		{"HOST=myname", "", "environment variable HOST \"myname\" is not an IP address"},
		{"HOST=10.0.0.1", "", "environment variable HOST \"10.0.0.1\" is reachable from other machines"},
		{"TLS=perhaps", "", "environment variable TLS \"perhaps\" is not a value of --tls"},
		{"", "--host=here", "--host \"here\" is not an IP address"},
		{"", "--port=0", "--port \"0\" is not a port (allowed: 1 to 65535)"},
		{"", "--port=65536", "is not a port"},
		{"", "--tls --tls-certificate=" + pem + " --tls-key=" + pem, "--tls-host \"0.0.0.0\" is reachable from other machines by anyone: add --manualtoken"},
		{"", "--tls --tls-host=127.0.0.1", "--tls-certificate \"/opt/loxilb/cert/server.crt\" cannot be read: no such file"},
		{"", "--role-hook=/nowhere", "--role-hook \"/nowhere\" cannot be run: no such file or directory"},
		{"", "--role-hook=/", "--role-hook \"/\" is not an executable file (chmod 755)"},
		{"", "--role-hook=" + open, "is not an executable file (chmod 755)"},
		{"", "--flow-log=/nowhere/flows", "--flow-log \"/nowhere/flows\" cannot be written: its directory: no such file or directory"},
		{"", "--flow-log=/tmp", "--flow-log \"/tmp\" is not a regular file"},
		{"", "--manualtoken --manualtokenvalue=/nowhere", "cannot be read: no such file or directory"},
		{"", "--manualtoken --manualtokenvalue=" + open, "has mode 0644: everybody can read the token (chmod 600)"},
		{"", "--manualtoken --manualtokenvalue=" + empty, "has no token in its first line"},
		{"", "--manualtoken --manualtokenvalue=" + large, "is larger than"},
		{"", "--socket=run.sock", "--socket \"run.sock\" is not an absolute path"},
		{"", "--socket=/" + strings.Repeat("x", 107), "is longer than 107 bytes"},
		{"", "--api-users=no-such-user", "--api-users \"no-such-user\" is not a user of this machine: use NAME or NUMBER, and @ for a group"},
		{"", "--api-users=root,@no-such-group", "--api-users \"@no-such-group\" is not a group of this machine"},
		{"", "--api-users=-1", "--api-users \"-1\" is not a user"},
		{"", "--attach=xdp", "--attach \"xdp\" is unknown (allowed: auto, tcx, clsact)"},
		{"", "--xdp=on", "--xdp \"on\" is unknown (allowed: auto, native, generic, off)"},
		{"", "--whitelist=eth(", "--whitelist \"eth(\" is not a regular expression: missing closing ): `eth(`"},
		{"", "--blacklist=*", "--blacklist \"*\" is not a regular expression"},
		{"", "--loglevel=loud", "--loglevel \"loud\" is unknown (allowed: trace"},
		{"", "--state-dir=", "--state-dir is empty"},
		{"", "--state-dir=s", "is not an absolute path"},
		{"", "--probe-files=", "--probe-files is empty"},
		{"", "--probe-files=p", "is not an absolute path"},
		{"", "--ct-max=-1", `--ct-max "-1" is negative`},
		{"", "--self=one", `--self "one" is not a whole number`},
		{"", "--tls=maybe", `--tls "maybe" is not true or false`},
		{"", "--otlp-interval=10", `--otlp-interval "10" is not a duration such as 60s or 1m`},
		{"", "--clusterkey=/k", "unknown flag --clusterkey of loxilb; did you mean --cluster-key?"},
		{"", "--ct-max=100000001", "--ct-max \"100000001\" is out of range (allowed: 0 to 100000000)"},
		{"", "--half-open-max=34", "--half-open-max \"34\" is out of range (allowed: 0, which is no limit, to 33 percent)"},
		{"", "--half-open-max=-1", "--half-open-max \"-1\" is out of range (allowed: 0, which is no limit, to 33 percent)"},
		{"", "--flow-log=/l --flow-log-size=0", "--flow-log-size \"0\" is out of range (allowed: 1 to 1048576 megabytes)"},
		{"", "--flow-log=/l --flow-log-size=1048577", "--flow-log-size \"1048577\" is out of range (allowed: 1 to 1048576 megabytes)"},
		{"", "--flow-log=/l --flow-log-files=1001", "--flow-log-files \"1001\" is out of range (allowed: 0 to 1000)"},
		{"", "--flow-log=/l --flow-log-rate=0", "--flow-log-rate \"0\" is out of range (allowed: 1 to 1000000 events per second)"},
		{"", "-k 1.1.1.1:2.2.2.2:20", "--ka \"1.1.1.1:2.2.2.2:20\" is wrong: interval \"20\" is out of range"},
		{"", "--ka=1.1.1.1:2001:db8::1", "--ka \"1.1.1.1:2001:db8::1\" is wrong: source \"2001\" is not an IP address"},
		{"", "--preempt", "--preempt needs --ka"},
		{"", "--cluster=1.1.1.1", "--cluster \"1.1.1.1\" needs --cluster-key with a secret that all nodes share, or --cluster-ca, --cluster-cert and --cluster-cert-key"},
		{"", "--cluster=1.1.1.1 --cluster-key=/k --cluster-ca=/c", "--cluster-key \"/k\" cannot be combined with --cluster-ca"},
		{"", "--cluster=1.1.1.1 --cluster-ca=/c", "--cluster-cert is missing: --cluster-ca, --cluster-cert and --cluster-cert-key belong together"},
		{"", "--cluster=1.1.1.1 --cluster-key=k", "--cluster-key \"k\" is not an absolute path"},
		{"", "--cluster=1.1.1.1:0 --cluster-key=/k", "--cluster \"1.1.1.1:0\" has the port \"0\" (allowed: 1 to 65535)"},
		{"", "--cluster=a/b --cluster-key=/k", "--cluster \"a/b\" is not IP, HOST:PORT, [IPv6]:PORT or a DNS name"},
		{"", "--cluster=0.0.0.0 --cluster-key=/k", "--cluster \"0.0.0.0\" is not the address of a node"},
		{"", "--store=etcd://1.1.1.1:0", "--store \"1.1.1.1:0\" has the port \"0\" (allowed: 1 to 65535)"},
		{"", "--store=etcd://a,0.0.0.0:1/x", "--store \"0.0.0.0:1\" is not the address of a node"},
		{"", "--store=etcd://1.1.1.1,", "--store \"etcd://1.1.1.1,\" has an empty address (allowed: etcd://HOST:PORT[,HOST:PORT][/PREFIX])"},
		{"", "--cluster=a, --cluster-key=/k", "--cluster \"a,\" has an empty address"},
		{"", "--cluster=a --self=64 --cluster-key=/k", "--self \"64\" is out of range (allowed: 0 to 63)"},
		{"", "--cluster=a --cluster-node=a/b --cluster-key=/k", "--cluster-node \"a/b\" is not a name"},
		{"", "--cluster=a --cluster-listen=9 --cluster-key=/k", "--cluster-listen \"9\" is not ADDRESS:PORT or :PORT"},
		{"", "--cluster-node=a", "--cluster-node \"a\" needs --cluster-key, or --cluster-ca"},
		{"", "--proxyonlymode", "--proxyonlymode \"true\" is refused: this build has no proxy in user space"},
		{"", "--nonsense", "unknown flag: --nonsense"},
		{"", "word", "unknown command"},
	} {
		env := map[string]string{}
		if k, v, ok := strings.Cut(tc.env, "="); ok {
			env[k] = v
		}
		got, code, msg := run(env, strings.Fields(tc.args)...)
		if code != ExitUsage || got != nil || !strings.Contains(msg, tc.message) {
			t.Errorf("%s %s: exit %d, %q, want %q", tc.env, tc.args, code, msg, tc.message)
		}
		if strings.Contains(msg, "s3cret") || strings.Count(msg, "\n") != 1 {
			t.Errorf("%s: %q is not one line without secrets", tc.args, msg)
		}
	}
}

// TestUserService checks that with users every client must log in, and other machines may reach the
// API.
func TestUserService(t *testing.T) {
	t.Parallel()
	pem := pemFile(t, t.TempDir())
	if c, _, msg := run(nil, "--userservice", "--databasehost=10.0.0.1", "--tls", "--tls-certificate="+pem, "--tls-key="+pem); c == nil ||
		!c.API.Users || c.API.Insecure || !c.API.TLS.Addr().IsUnspecified() {
		t.Errorf("got %v, want c != nil, c.API.Users, not c.API.Insecure, c.API.TLS.Addr().IsUnspecified()", msg)
	} else if len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "no database server is needed") {
		t.Errorf("notes: %q", c.Notes)
	}
	if c, _, msg := run(nil, "--userservice", "--host=0.0.0.0"); c != nil || !strings.Contains(msg, "without encryption") {
		t.Error("passwords would go in clear text: " + msg)
	}
}

func TestInsecure(t *testing.T) {
	t.Parallel()
	pem := pemFile(t, t.TempDir())
	if c, _, msg := run(nil, "--host=0.0.0.0", "--insecure"); c == nil || c.API.Plain.String() != "0.0.0.0:11111" || !c.API.Insecure {
		t.Errorf(`got %v, want c != nil, c.API.Plain == "0.0.0.0:11111", c.API.Insecure`, msg)
	}
	if c, _, msg := run(nil, "--tls", "--tls-certificate="+pem, "--tls-key="+pem, "--insecure"); c == nil || c.API.TLS.String() != "0.0.0.0:8091" {
		t.Errorf(`got %v, want c != nil, c.API.TLS == "0.0.0.0:8091"`, msg)
	}
}

// TestHelp checks that help shows the flags that have an effect, and --help-all also those that are
// only accepted.
func TestHelp(t *testing.T) {
	t.Parallel()
	help := func(flag string) string {
		var stdout, stderr bytes.Buffer
		cmd := Command(nil, os.LookupEnv, func(context.Context, *Config) error { t.Error("--help started the daemon"); return nil })
		if code := execute(t.Context(), cmd, []string{flag}, &stdout, &stderr); code != ExitOK || stderr.Len() > 0 {
			t.Errorf("%s: got %d %s, want code ExitOK, no stderr", flag, code, stderr.String())
		}
		return stdout.String()
	}
	short, all := help("--help"), help("--help-all")
	for _, f := range contractFlags() {
		word := "--" + f.Name + " "
		if strings.Contains(short, word) || !strings.Contains(all, word) {
			t.Errorf("%sis in the help, or not in --help-all", word)
		}
	}
	for _, word := range []string{"no effect: ", "refused: "} {
		if strings.Contains(short, word) {
			t.Errorf("the help has %q:\n%s", word, short)
		}
	}
	for _, word := range []string{"--whitelist", "--help-all", "--api-users"} {
		if !strings.Contains(short, word) || !strings.Contains(all, word) {
			t.Errorf("the help does not have %s", word)
		}
	}
}

// TestManual checks that the manual page lists exactly the daemon's flags.
func TestManual(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/man/loxilb.8")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), `\-`, "-")
	cmd := Command(nil, os.LookupEnv, nil)
	for _, m := range regexp.MustCompile(`(?m)^\.BI? "?(?:-\w, )?--([a-zA-Z0-9-]+)`).FindAllStringSubmatch(text, -1) {
		if cmd.Flags().Lookup(m[1]) == nil {
			t.Errorf("the manual has --%s, and there is no such flag", m[1])
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !regexp.MustCompile(`--` + f.Name + `\b`).MatchString(text) {
			t.Errorf("the manual does not have --%s", f.Name)
		}
	})
}

func file(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func FuzzFlags(f *testing.F) {
	f.Add("0.0.0.0", "11111", "eth.*", "info")
	f.Add("::1", "0", "(", "x")
	f.Fuzz(func(t *testing.T, host, port, expression, level string) {
		c, code, msg := run(nil, "--host="+host, "--port="+port, "--whitelist="+expression, "--loglevel="+level)
		switch {
		case code == ExitUsage && c == nil && msg != "":
		case code != ExitOK || c == nil || !c.API.Plain.Addr().IsLoopback():
			t.Fatalf("got %q %q %q %q: %d %s %+v, want code ExitOK, c != nil, c.API.Plain.Addr().IsLoopback()",
				host, port, expression, level, code, msg, c)
		}
	})
}

// TestCluster checks the forms of nodes, and that --compat ignores a cluster without a secret,
// which the existing loxilb accepts.
func TestCluster(t *testing.T) {
	t.Parallel()
	c, code, msg := run(nil, "--cluster=10.0.0.1, 10.0.0.2:7,node-3.example,fd00::1,[fd00::2]:9,10.0.0.1:22222", "--cluster-key=/k", "--self=2")
	want := []string{"10.0.0.1:22222", "10.0.0.2:7", "node-3.example:22222", "[fd00::1]:22222", "[fd00::2]:9"}
	if code != ExitOK || !slices.Equal(c.Cluster.Peers, want) || c.Cluster.Self != 2 || c.Cluster.Listen != ":22222" {
		t.Errorf("got %d %s %+v, want peers %v, node 2 and port 22222", code, msg, c, want)
	}
	if c, code, msg = run(nil, "--cluster=10.0.0.1", "--cluster-key=/k"); code != ExitOK || c.Cluster.Self != -1 {
		t.Errorf("without --self: %d %s", code, msg)
	}
	c, code, msg = run(nil, "--compat", "--cluster=10.0.0.1", "--self=0")
	if code != ExitOK || len(c.Cluster.Peers) > 0 || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "give all nodes the same --cluster-key") {
		t.Errorf("--compat: %d %s %+v", code, msg, c)
	}
}
