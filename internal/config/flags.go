package config

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"loxilb/internal/host/machine"
)

// socketAuto is the --socket that loxicmd finds automatically.
const socketAuto = "auto"

// flags holds the flags as given, before they are checked.
type flags struct {
	host, tlsHost    string
	port, tlsPort    string // text, so that we report errors, and the environment shares the parser
	socket           string
	apiUsers         []string
	apiHosts         []string
	tls, insecure    bool
	cert, key        string
	manualToken      bool
	manualTokenFile  string
	userService      bool
	noAPI            bool
	page             bool
	attach           string
	xdp              string
	redirectPeer     bool
	ipsec            string
	localSockets     bool
	bgp              bool
	ka               string
	preempt          bool
	peer             bool
	cgroup           string
	whitelist        string
	blacklist        string
	ctMax            uint32
	halfOpen         int
	idleRST          bool
	hashSeed         uint64
	pinPath          string
	stateDir         string
	probeFiles       string
	flowLog          FlowLog
	flowLogMB        int
	metricsDetail    string
	otlp             otlpFlags
	vipAdvRepeat     int
	clusterInterface string
	cluster          clusterFlags
	store            storeFlags
	roleHook         string
	detach, force    bool
	endConnections   bool
	checkUpgrade     bool
	logLevel         string
	compat           bool
	bootFiles        string // --config-path
	metrics          bool   // --prometheus
	withoutDataPath  bool   // --peer or --proxyonlymode
	cpuProfile       string
}

func (f *flags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.host, "host", "127.0.0.1", "listen address of the REST API (HTTP); addresses other than loopback need --insecure")
	fs.StringVar(&f.port, "port", "11111", "port of the REST API")
	fs.StringVar(&f.socket, "socket", socketAuto, "UNIX socket of the REST API, for root and the group "+apiGroup+"; auto creates one per network namespace in "+machine.SocketDir+"; empty disables it")
	fs.StringSliceVar(&f.apiUsers, "api-users", nil, "allow these users and @groups to use the API on loopback, besides root and the group "+apiGroup+"; names or numbers, comma-separated")
	fs.StringSliceVar(&f.apiHosts, "api-hosts", nil,
		"accept these DNS names in URLs of requests without a token, besides the host name, single-label names and names of Kubernetes services; comma-separated (protects against DNS rebinding)")
	fs.BoolVar(&f.tls, "tls", false, "also serve the REST API over HTTPS")
	fs.StringVar(&f.tlsHost, "tls-host", "0.0.0.0", "listen address of the HTTPS API; addresses other than loopback need --manualtoken")
	fs.StringVar(&f.tlsPort, "tls-port", "8091", "port of the HTTPS API")
	fs.StringVar(&f.cert, "tls-certificate", "/opt/loxilb/cert/server.crt", "certificate of the HTTPS API (PEM)")
	fs.StringVar(&f.key, "tls-key", "/opt/loxilb/cert/server.key", "key of the HTTPS API (PEM)")
	fs.BoolVar(&f.manualToken, "manualtoken", false, "require the token of --manualtokenvalue in every request over TCP")
	fs.StringVar(&f.manualTokenFile, "manualtokenvalue", "/etc/loxilb/manual_token", "file with the token")
	fs.BoolVar(&f.userService, "userservice", false, "require the token of a logged-in user (loxicmd create user, loxicmd set login), or that of --manualtokenvalue, in every request over TCP")
	fs.BoolVar(&f.insecure, "insecure", false, "allow unauthenticated API access over TCP: from other machines without TLS or a token, and from every local user")
	fs.BoolVarP(&f.noAPI, "api", "a", false, "disable the API (named as in earlier loxilb)")
	fs.BoolVar(&f.page, "page", true, "serve a web page at / of the API's TCP ports")

	fs.StringVar(&f.attach, "attach", string(AttachAuto), "how to attach programs: auto, tcx or clsact")
	fs.StringVar(&f.xdp, "xdp", string(XDPAuto), "forward established connections by XDP: auto (on network cards where it improves throughput), native, generic or off")
	fs.BoolVar(&f.redirectPeer, "redirect-peer", true, "redirect packets directly into the namespace behind a veth")
	fs.StringVar(&f.ipsec, "ipsec", string(IPsecRefuse), "how to treat service packets that IPsec policies of the kernel block or encrypt: refuse, or ignore (send in clear text)")
	fs.BoolVar(&f.localSockets, "localsockpolicy", true, "redirect local sockets to endpoints when they connect or send to a VIP")
	fs.StringVar(&f.cgroup, "cgroup", "", "cgroup v2 folder whose processes --localsockpolicy applies to (default: all visible to the daemon)")
	fs.StringVar(&f.whitelist, "whitelist", "none", "attach only to interfaces whose name matches this regular expression; overrides --blacklist")
	fs.StringVar(&f.blacklist, "blacklist", "none", "do not attach to interfaces whose name matches this regular expression")
	fs.Uint32Var(&f.ctMax, "ct-max", 0, "maximum number of tracked connections; 0 derives it from the machine's memory")
	fs.IntVar(&f.halfOpen, "half-open-max", 25,
		"limit half-open connections to this percentage of --ct-max, for TCP and for other protocols each; beyond it, unknown clients are challenged or refused; 0 is no limit, maximum 33")
	fs.BoolVar(&f.idleRST, "idle-rst", true, "reset idle TCP connections on both ends when they time out, up to 1,000 per second")
	fs.Uint64Var(&f.hashSeed, "hash-seed", 0, "hash key of the algorithms hash and persist; use the same key on balancers that must choose the same endpoints, and keep it secret from hostile clients")
	fs.StringVar(&f.pinPath, "pin-path", "", "directory in a BPF file system to pin maps and links (default: one per network namespace)")
	fs.StringVar(&f.stateDir, "state-dir", "/var/lib/loxilb", "directory to store the desired state")
	fs.IntVar(&f.vipAdvRepeat, "vip-adv-repeat", 3, "number of announcements when this node takes over a VIP: at once, after 1 s and 3 s, then every 2 s; 1 to 30")
	fs.BoolVarP(&f.bgp, "bgp", "b", false, "announce VIPs by BGP: serve the objects of loxicmd set bgp and create bgpneighbor")
	fs.StringVarP(&f.ka, "ka", "k", "none", "elect the MASTER with another node by BFD, as by loxicmd create bfd: REMOTE:SOURCE:INTERVAL, in microseconds")
	fs.BoolVar(&f.preempt, "preempt", false, "with --ka, take over from a MASTER whose address is lower")
	fs.BoolVarP(&f.peer, "peer", "r", false, "speak BGP only: --bgp, without programs at interfaces")
	f.cluster.register(fs)
	f.store.register(fs)
	fs.StringVar(&f.clusterInterface, "clusterinterface", "",
		"lead outgoing connections of firewall rules with --snat --egress to the node that owns their source address, through VXLAN over this interface")
	fs.StringVar(&f.roleHook, "role-hook", "", "run this program as root when the role of this node changes, with instance, state and VIP as arguments")
	fs.StringVar(&f.probeFiles, "probe-files", "/etc/loxilb/probes", "directory of CAs, certificates and keys for probes")
	fs.StringVar(&f.flowLog.File, "flow-log", "", "log connections to this file, as lines of JSON; - is standard output")
	fs.IntVar(&f.flowLogMB, "flow-log-size", 100, "rotate --flow-log at this size in megabytes")
	fs.IntVar(&f.flowLog.Files, "flow-log-files", 5, "number of rotated --flow-log files to keep, as FILE.1, FILE.2, ...")
	fs.IntVar(&f.flowLog.Rate, "flow-log-rate", 20_000, "maximum events per second in --flow-log and --ipfix; connections beyond it are omitted and counted")
	fs.StringVar(&f.flowLog.IPFIX, "ipfix", "", "export opened and ended connections by IPFIX (UDP, RFC 8158) to the collector at this HOST:PORT")
	fs.Uint32Var(&f.flowLog.Domain, "ipfix-domain", 0, "observation domain ID of --ipfix")
	fs.StringVar(&f.metricsDetail, "metrics-detail", detailService, "detail of GET metrics: service, or endpoint to include each endpoint (1 kB or more each)")
	fs.StringVar(&f.otlp.endpoint, "otlp-endpoint", "", "send metrics and events to the OpenTelemetry collector at this URL, such as http://HOST:4318 (OTLP over HTTP)")
	fs.StringVar(&f.otlp.headers, "otlp-headers", "", "file with HTTP headers for the collector, such as tokens: one NAME: VALUE per line")
	fs.StringVar(&f.otlp.ca, "otlp-ca", "", "file with CA certificates (PEM) to verify the collector at https:// (default: the machine's)")
	fs.StringVar(&f.otlp.cert, "otlp-cert", "", "client certificate (PEM) for the collector at https://; reloaded for each connection")
	fs.StringVar(&f.otlp.key, "otlp-key", "", "private key of --otlp-cert (PEM)")
	fs.DurationVar(&f.otlp.interval, "otlp-interval", time.Minute, "interval between metric exports, 1s to 1h")
	fs.BoolVar(&f.detach, "detach", false, "detach the programs, remove maps and owned addresses, and exit; refused while a daemon runs")
	fs.BoolVar(&f.force, "force", false, "with --detach: proceed even while a daemon runs")
	fs.BoolVar(&f.endConnections, "end-connections", false, "discard pinned maps with the layout of another version: connections end, counters restart at 0")
	fs.BoolVar(&f.checkUpgrade, "check-upgrade", false, "check whether this version can take over the pinned state without loss, and exit; safe while a daemon runs")
	fs.StringVar(&f.logLevel, "loglevel", "info", "log level: trace, debug, info, notice, warning, error, critical, alert or emergency")
	fs.BoolVar(&f.compat, "compat", false, "start like the existing loxilb: open the API to everybody, read its configuration files, accept all its options (also LOXILB_COMPAT=1)")
	fs.StringVar(&f.cpuProfile, "cpuprofile", "none", "write a CPU profile to this file until SIGHUP or exit (read it with go tool pprof)")
}

// fromEnv sets flags that were not given from the environment.
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
