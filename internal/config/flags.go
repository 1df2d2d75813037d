package config

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"loxilb/internal/host/apisocket"
)

// socketAuto is the --socket that loxicmd finds by itself.
const socketAuto = "auto"

// flags holds the flags as they are written, before they are checked.
type flags struct {
	host, tlsHost   string
	port, tlsPort   string // text, so that the error is ours and the environment shares it
	socket          string
	apiUsers        []string
	apiHosts        []string
	tls, insecure   bool
	cert, key       string
	manualToken     bool
	manualTokenFile string
	userService     bool
	noAPI           bool
	page            bool
	attach          string
	xdp             string
	redirectPeer    bool
	ipsec           string
	localSockets    bool
	cgroup          string
	whitelist       string
	blacklist       string
	ctMax           uint32
	halfOpen        int
	idleRST         bool
	hashSeed        uint64
	pinPath         string
	stateDir        string
	probeFiles      string
	flowLog         FlowLog
	flowLogMB       int
	metricsDetail   string
	otlp            otlpFlags
	vipAdvRepeat    int
	roleHook        string
	detach, force   bool
	endConnections  bool
	checkUpgrade    bool
	logLevel        string
	compat          bool
	bootFiles       string // --config-path
	metrics         bool   // --prometheus
	aside           bool   // --peer or --proxyonlymode: without a data path
	cpuProfile      string
}

func (f *flags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.host, "host", "127.0.0.1", "address of the REST API (HTTP); another than loopback needs --insecure")
	fs.StringVar(&f.port, "port", "11111", "port of the REST API")
	fs.StringVar(&f.socket, "socket", socketAuto, "UNIX socket of the REST API, for root and the group "+apiGroup+"; auto is one for each network namespace, in "+apisocket.Dir+"; empty for none")
	fs.StringSliceVar(&f.apiUsers, "api-users", nil, "users, or @groups, who may use the API on loopback besides root and the group "+apiGroup+"; names or numbers, several with commas")
	fs.StringSliceVar(&f.apiHosts, "api-hosts", nil, "DNS names of this machine in URLs of requests without a token (several with commas), besides the host name, names of one label and of Kubernetes services: web pages could rebind other names")
	fs.BoolVar(&f.tls, "tls", false, "serve the REST API by HTTPS too")
	fs.StringVar(&f.tlsHost, "tls-host", "0.0.0.0", "address of the HTTPS API; another than loopback needs --manualtoken")
	fs.StringVar(&f.tlsPort, "tls-port", "8091", "port of the HTTPS API")
	fs.StringVar(&f.cert, "tls-certificate", "/opt/loxilb/cert/server.crt", "certificate of the HTTPS API (PEM)")
	fs.StringVar(&f.key, "tls-key", "/opt/loxilb/cert/server.key", "key of the HTTPS API (PEM)")
	fs.BoolVar(&f.manualToken, "manualtoken", false, "ask every request over TCP for the token of --manualtokenvalue")
	fs.StringVar(&f.manualTokenFile, "manualtokenvalue", "/etc/loxilb/manual_token", "file with the token")
	fs.BoolVar(&f.userService, "userservice", false, "ask every request over TCP for the token of a user who has logged in (loxicmd create user, loxicmd set login), or that of --manualtokenvalue")
	fs.BoolVar(&f.insecure, "insecure", false, "let whoever reaches the API over TCP use it: other machines without TLS or a token, every user of this one")
	fs.BoolVarP(&f.noAPI, "api", "a", false, "serve no API at all (the name is that of earlier loxilb; it switches off)")
	fs.BoolVar(&f.page, "page", true, "show a page to browsers, at / of the API's TCP ports")

	fs.StringVar(&f.attach, "attach", string(AttachAuto), "how programs are attached: auto, tcx or clsact")
	fs.StringVar(&f.xdp, "xdp", string(XDPAuto), "where established connections are forwarded by XDP: auto (network cards where it pays), native, generic or off")
	fs.BoolVar(&f.redirectPeer, "redirect-peer", true, "send straight into the namespace behind a veth")
	fs.StringVar(&f.ipsec, "ipsec", string(IPsecRefuse), "what to do with packets of services that the kernel's IPsec policies block or encrypt: refuse, or ignore (send them in clear text)")
	fs.BoolVar(&f.localSockets, "localsockpolicy", true, "lead this machine's own sockets to endpoints when they connect or send to a VIP")
	fs.StringVar(&f.cgroup, "cgroup", "", "folder of cgroup v2 with the processes whose sockets --localsockpolicy means (default all that the daemon can see)")
	fs.StringVar(&f.whitelist, "whitelist", "none", "attach only to interfaces whose name matches this regular expression; overrides --blacklist")
	fs.StringVar(&f.blacklist, "blacklist", "none", "don't attach to interfaces whose name matches this regular expression")
	fs.Uint32Var(&f.ctMax, "ct-max", 0, "most connections tracked; 0 chooses by the memory of the machine")
	fs.IntVar(&f.halfOpen, "half-open-max", 25, "percent of the connections tracked that may be half-open, of TCP and of all others each; beyond it clients that are not known are challenged or refused; 0: any, up to 33")
	fs.BoolVar(&f.idleRST, "idle-rst", true, "end TCP connections that were silent for their timeout by RSTs to both ends, up to 1,000 a second")
	fs.Uint64Var(&f.hashSeed, "hash-seed", 0, "key by which hash and persist choose; one for balancers that are to choose alike, secret where clients may be hostile")
	fs.StringVar(&f.pinPath, "pin-path", "", "directory in a BPF file system for maps and links (default chosen by network namespace)")
	fs.StringVar(&f.stateDir, "state-dir", "/var/lib/loxilb", "directory of the desired state")
	fs.IntVar(&f.vipAdvRepeat, "vip-adv-repeat", 3, "how often a VIP is announced when this node begins to own it: at once, after 1 s, after 3 s, and every 2 s from there on; 1 to 30")
	fs.StringVar(&f.roleHook, "role-hook", "", "program that is run as root when the role of this node changes, with instance, state and VIP; empty: none")
	fs.StringVar(&f.probeFiles, "probe-files", "/etc/loxilb/probes", "directory of the CAs, certificates and keys that probes may use")
	fs.StringVar(&f.flowLog.File, "flow-log", "", "file to which it is written, in lines of JSON, what becomes of connections; - is standard output; empty: none")
	fs.IntVar(&f.flowLogMB, "flow-log-size", 100, "megabytes of that file, which is set aside then and begun anew")
	fs.IntVar(&f.flowLog.Files, "flow-log-files", 5, "how many files that were set aside are kept, as FILE.1 and so on")
	fs.IntVar(&f.flowLog.Rate, "flow-log-rate", 20_000, "so many events a second there is room for, in --flow-log and --ipfix; beyond it connections are left out, and counted")
	fs.StringVar(&f.flowLog.IPFIX, "ipfix", "", "HOST:PORT of a collector to which opened and ended connections are told by IPFIX (UDP), as RFC 8158 has it; empty: none")
	fs.Uint32Var(&f.flowLog.Domain, "ipfix-domain", 0, "observation domain in messages of --ipfix")
	fs.StringVar(&f.metricsDetail, "metrics-detail", detailService, "whose metrics GET metrics has: service, or endpoint: those of each endpoint, too (1 kB and more for each)")
	fs.StringVar(&f.otlp.endpoint, "otlp-endpoint", "", "URL of a collector of OpenTelemetry, http://HOST:4318, to which metrics and events are sent (OTLP over HTTP); empty: none")
	fs.StringVar(&f.otlp.headers, "otlp-headers", "", "file with headers of these requests, a line NAME: VALUE for each: tokens, say")
	fs.StringVar(&f.otlp.ca, "otlp-ca", "", "file with the certificates (PEM) by which the collector at https:// is known; empty: those of the machine")
	fs.StringVar(&f.otlp.cert, "otlp-cert", "", "certificate (PEM) by which the collector at https:// knows the daemon, if it asks for one; read again for each connection")
	fs.StringVar(&f.otlp.key, "otlp-key", "", "its key (PEM)")
	fs.DurationVar(&f.otlp.interval, "otlp-interval", time.Minute, "how often metrics are sent there, 1s to 1h")
	fs.BoolVar(&f.detach, "detach", false, "detach the programs, remove maps and owned addresses, and exit; refused while a daemon runs")
	fs.BoolVar(&f.force, "force", false, "with --detach: also from a daemon that runs")
	fs.BoolVar(&f.endConnections, "end-connections", false, "start without the pinned maps if another version has laid them out differently: connections end, counters begin at 0")
	fs.BoolVar(&f.checkUpgrade, "check-upgrade", false, "tell whether a start of this version could take over what is pinned without a loss, and exit; a daemon may run")
	fs.StringVar(&f.logLevel, "loglevel", "info", "trace, debug, info, notice, warning, error, critical, alert or emergency")
	fs.BoolVar(&f.compat, "compat", false, "start as the existing loxilb does: the API open to everybody, the files of its configuration read, all of its options taken (also LOXILB_COMPAT=1)")
	fs.StringVar(&f.cpuProfile, "cpuprofile", "none", "file to write a CPU profile into, until SIGHUP or the end (go tool pprof reads it)")
}

// fromEnv takes what the environment says for flags that were not given.
func fromEnv(fs *pflag.FlagSet, lookup func(string) (string, bool)) (map[string]string, error) {
	origin := make(map[string]string)
	for _, e := range [...]struct{ name, flag string }{
		{"HOST", "host"},
		{"PORT", "port"},
		{"TLS", "tls"},
		{"TLS_HOST", "tls-host"},
		{"TLS_PORT", "tls-port"},
		{"TLS_CERTIFICATE", "tls-certificate"},
		{"TLS_PRIVATE_KEY", "tls-key"},
		{"CPUPROF", "cpuprofile"},
		{"LOXILB_COMPAT", "compat"},
	} {
		v, ok := lookup(e.name)
		if !ok || v == "" || fs.Changed(e.flag) {
			continue
		}
		if err := fs.Set(e.flag, v); err != nil {
			return nil, &Error{Flag: "environment variable " + e.name, Value: v, Reason: fmt.Sprintf("is not a value of --%s", e.flag)}
		}
		origin[e.flag] = "environment variable " + e.name
	}
	return origin, nil
}
