package contract

import "slices"

// Flags returns the flags of the daemon.
func Flags() []Section[Flag] {
	return slices.Concat(listening(), packets(), otherFlags(), oursOnly())
}

func listening() []Section[Flag] {
	return []Section[Flag]{
		{"REST API", []Flag{
			{Name: "host", Default: "0.0.0.0", State: Differs, Note: "127.0.0.1 by default, others need --insecure, as API access controls the traffic; the same with --compat"},
			{Name: "port", Default: "11111"},
			{Name: "tls", Default: "false"},
			{Name: "tls-host", Default: "0.0.0.0", State: Differs, Note: "needs --manualtoken, --userservice, --insecure or --compat"},
			{Name: "tls-port", Default: "8091"},
			{Name: "tls-certificate", Default: "/opt/loxilb/cert/server.crt", State: Better, Note: "reloaded when it changes"},
			{Name: "tls-key", Default: "/opt/loxilb/cert/server.key", State: Better, Note: "reloaded when it changes"},
			{Name: "api", Short: "a", Default: "false"},
			{Name: "version", Short: "v", Default: "false"},
			{Name: "manualtoken", Default: "false"},
			{Name: "manualtokenvalue", Default: "/etc/loxilb/manual_token", State: Better, Note: "refused if others can read the file, unless --compat"},
		}},
		{"Users", []Flag{
			{Name: "userservice", Default: "false", State: Better, Note: "no database; roles view, operate and admin; viewer means view, and is returned as viewer"},
			{Name: "databasehost", Default: "127.0.0.1", State: Differs, Inert: true, Note: noDatabase},
			{Name: "databaseport", Default: "3306", State: Differs, Inert: true, Note: noDatabase},
			{Name: "databaseuser", Default: "root", State: Differs, Inert: true, Note: noDatabase},
			{Name: "databasepasswordpath", Default: "/etc/loxilb/mysql_password", State: Differs, Inert: true, Note: noDatabase},
			{Name: "databasename", Default: "loxilb_db", State: Differs, Inert: true, Note: noDatabase},
			{Name: "oauth2", Default: "false", State: Unsupported, Note: noOAuth},
			{Name: "oauth2provider", Default: "google", State: Differs, Inert: true, Note: noOAuth},
			{Name: "oauth2google-clientid", State: Differs, Inert: true, Note: noOAuth},
			{Name: "oauth2google-clientsecret", State: Differs, Inert: true, Note: noOAuth},
			{Name: "oauth2google-redirecturl", State: Differs, Inert: true, Note: noOAuth},
			{Name: "oauth2github-clientid", State: Differs, Inert: true, Note: noOAuth},
			{Name: "oauth2github-clientsecret", State: Differs, Inert: true, Note: noOAuth},
			{Name: "oauth2github-redirecturl", State: Differs, Inert: true, Note: noOAuth},
		}},
		{"Log", []Flag{
			{Name: "loglevel", Default: "debug", State: Differs, Note: "info by default, debug with --compat; the words are the same"},
			{Name: "log-max-size", Default: "50", State: Differs, Inert: true, Note: logInert},
			{Name: "log-max-backups", Default: "4", State: Differs, Inert: true, Note: logInert},
			{Name: "log-max-age", Default: "28", State: Differs, Inert: true, Note: logInert},
			{Name: "log-no-compress", Default: "false", State: Differs, Inert: true, Note: logInert},
			{Name: "prometheus", Short: "p", Default: "false", State: Better, Inert: true, Compat: true, Note: "metrics are always served; with --compat only if it is given, or POST config/metrics"},
			{Name: "cpuprofile", Default: "none"},
		}},
	}
}

const (
	noDatabase = "no database server is needed"
	logInert   = "the log goes to standard error; the service manager keeps it"
	noCloud    = "this build does not move VIPs by a cloud's API: use the cloud's own load balancer in front, or its routes"
)

func packets() []Section[Flag] {
	return []Section[Flag]{
		{"Data path", []Flag{
			{Name: "blacklist", Default: "none"},
			{Name: "whitelist", Default: "none"},
			{Name: "localsockpolicy", Default: "false", State: Better, Note: "on by default: local sockets reach VIPs by TCP and UDP, IPv4 and IPv6"},
			{Name: "egr-hooks", Default: "false", State: Differs, Inert: true, Note: "local sockets are redirected to endpoints when they connect (--localsockpolicy)"},
			{Name: "fallback", Default: "false", State: Better, Inert: true, Note: "packets of no service always go to the kernel"},
			{Name: "disable-crc32", Default: "false", State: Differs, Inert: true, Note: "CRC32c is updated incrementally, at the same cost for every length, unless the device computes it"},
			{Name: "rss-enable", Default: "false", State: Differs, Inert: true, Note: "packets are spread over CPUs by the kernel"},
			{Name: "sockmapsupport", Default: "false", State: Differs, Inert: true, Note: "it speeds up fullproxy, which this build does not have"},
			{Name: "passive-probe", Default: "false", State: Better, Inert: true, Note: "always on: endpoints that fail clients' handshakes are checked and taken out (docs/health.md, Without probes)"},
			{Name: "nonlp", Short: "n", Default: "false", State: Unsupported, Note: "this build reads routes, neighbours and links from the kernel by netlink: choose interfaces by --whitelist"},
			{Name: "proxyonlymode", Default: "false", State: Unsupported, Note: "this build has no proxy in user space: use HAProxy or Envoy for that"},
		}},
	}
}

func otherFlags() []Section[Flag] {
	return []Section[Flag]{
		{"Boot configuration", []Flag{
			{Name: "config-path", Default: "/etc/loxilb/", State: Differs, Inert: true, Compat: true, Note: "files there are read with --compat only: the services are kept in --state-dir"},
			{Name: "ipvs-compat", Default: "false", State: Unsupported, Note: "services of IPVS are not imported while the daemon runs: ipvsadm -S -n | loxicmd import ipvsadm - | loxicmd apply -f - takes them over once"},
		}},
		{"Cluster", []Flag{
			{Name: "cluster", Default: "none", State: Better, Note: "any number of nodes, DNS names, UDP, from the handshake on, copied when a node joins, encrypted: needs --cluster-key, and without it is ignored with --compat; no existing loxilb can be the peer"},
			{Name: "self", Default: "0", State: Differs, Note: "optional; two nodes with the same number refuse each other"},
			{Name: "rpc", Default: "netrpc", State: Differs, Inert: true, Note: "nodes use one transport, TLS 1.3"},
			{Name: "cluster-node", State: Ours},
			{Name: "cluster-key", State: Ours},
			{Name: "cluster-ca", State: Ours},
			{Name: "cluster-cert", State: Ours},
			{Name: "cluster-cert-key", State: Ours},
			{Name: "cluster-listen", State: Ours},
			{Name: "store", State: Ours},
			{Name: "store-ca", State: Ours},
			{Name: "store-cert", State: Ours},
			{Name: "store-cert-key", State: Ours},
			{Name: "store-login", State: Ours},
			{Name: "store-join", State: Ours},
			{Name: "k8s-api", Default: "none", State: Unsupported, Note: "this build does not watch the Kubernetes API: kube-loxilb configures it"},
			{Name: "clusterinterface", State: Differs, Note: "one VXLAN tunnel for each source address of rules with --snat --egress, instead of vxlan999; nodes need no addresses in it and no list of each other"},
			{Name: "vip-adv-repeat", Default: "3"},
			{Name: "vip-adv-dev", State: Differs, Inert: true, Note: "a VIP is announced on every interface with an address in the VIP's network"},
		}},
		{"BGP and BFD", []Flag{
			{Name: "bgp", Short: "b", Default: "false", State: Better, Note: "the speaker is part of the daemon: there is no gobgpd"},
			{Name: "peer", Short: "r", Default: "false", State: Better, Note: "implies --bgp, and attaches no program"},
			{Name: "ka", Short: "k", Default: "none", State: Better, Note: "IPv6 in brackets; the session is stored, as by create bfd"},
			{Name: "preempt", State: Ours},
		}},
		{"Clouds", []Flag{
			{Name: "cloud", Default: "on-prem", State: Unsupported, Note: noCloud},
			{Name: "cloudcidrblock", State: Unsupported, Note: noCloud},
			{Name: "cloudinstance", State: Unsupported, Note: noCloud},
		}},
	}
}

func oursOnly() []Section[Flag] {
	return []Section[Flag]{
		{"Only in this build", []Flag{
			{Name: "compat", State: Ours},
			{Name: "socket", State: Ours},
			{Name: "api-hosts", State: Ours},
			{Name: "api-users", State: Ours},
			{Name: "insecure", State: Ours},
			{Name: "page", State: Ours},
			{Name: "attach", State: Ours, Note: "`tc filter show` never names tc_packet_func, also with --compat: the name shows programs that the existing loxilb has left. Ours are loxilb_ether and loxilb_layer3, in `bpftool net`, and in `tc filter show` with clsact"},
			{Name: "xdp", State: Ours},
			{Name: "redirect-peer", State: Ours},
			{Name: "ipsec", State: Ours},
			{Name: "cgroup", State: Ours},
			{Name: "ct-max", State: Ours},
			{Name: "half-open-max", State: Ours},
			{Name: "idle-rst", State: Ours},
			{Name: "hash-seed", State: Ours},
			{Name: "pin-path", State: Ours},
			{Name: "state-dir", State: Ours},
			{Name: "role-hook", State: Ours},
			{Name: "probe-files", State: Ours},
			{Name: "flow-log", State: Ours},
			{Name: "flow-log-size", State: Ours},
			{Name: "flow-log-files", State: Ours},
			{Name: "flow-log-rate", State: Ours},
			{Name: "ipfix", State: Ours},
			{Name: "ipfix-domain", State: Ours},
			{Name: "metrics-detail", State: Ours},
			{Name: "otlp-endpoint", State: Ours},
			{Name: "otlp-headers", State: Ours},
			{Name: "otlp-ca", State: Ours},
			{Name: "otlp-cert", State: Ours},
			{Name: "otlp-key", State: Ours},
			{Name: "otlp-interval", State: Ours},
			{Name: "detach", State: Ours},
			{Name: "force", State: Ours},
			{Name: "end-connections", State: Ours},
			{Name: "check-upgrade", State: Ours},
			{Name: "help", State: Ours},
			{Name: "help-all", State: Ours},
		}},
	}
}
