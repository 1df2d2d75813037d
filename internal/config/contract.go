package config

import (
	"fmt"

	"github.com/spf13/pflag"
)

// contractFlag is a flag of the contract that this version does not act on. One that would only tune or announce
// something is taken and noted; one that promises a feature is refused, since a balancer that starts without what
// it was asked for is worse than one that does not start.
type contractFlag struct {
	name, short string
	def         string // "false": a switch
	inert       string // why it has no effect; empty: refused
	what        string // what it would promise
}

func contractFlags() []contractFlag {
	return []contractFlag{
		{name: "bgp", short: "b", def: "false", what: "BGP"},
		{name: "ka", short: "k", def: "none", what: "keepalive by BFD"},
		{name: "cluster", def: "none", what: "synchronising connections with a cluster"},
		{name: "nonlp", short: "n", def: "false", what: "working without netlink"},
		{name: "passive-probe", def: "false", what: "probing endpoints of services that do not ask for it (create lb --monitor)"},
		{name: "peer", short: "r", def: "false", what: "a process for BGP only"},
		{name: "k8s-api", def: "none", what: "watching a Kubernetes API"},
		{name: "ipvs-compat", def: "false", what: "importing the services of IPVS"},
		{name: "cloud", def: "on-prem", what: "moving VIPs by the interface of a cloud"},
		{name: "cloudcidrblock", what: "moving VIPs by the interface of a cloud"},
		{name: "cloudinstance", what: "moving VIPs by the interface of a cloud"},
		{name: "proxyonlymode", def: "false", what: "proxying without a data path"},
		{name: "clusterinterface", what: "an overlay for egress"},
		{name: "userservice", def: "false", what: "users and roles"},
		{name: "oauth2", def: "false", what: "OAuth2"},
		{name: "cpuprofile", def: "none", what: "writing a profile"},

		{name: "config-path", def: "/etc/loxilb", inert: "nothing is read there: the services are kept in --state-dir"},
		{name: "egr-hooks", def: "false", inert: "this machine's own sockets are led to endpoints where they connect (--localsockpolicy)"},
		{name: "prometheus", short: "p", def: "false", inert: "metrics are always served"},
		{name: "self", def: "0", inert: "it numbers this node in a cluster, and there is no cluster"},
		{name: "rpc", def: "netrpc", inert: "it chooses a transport between the nodes of a cluster, and there is no cluster"},
		{name: "fallback", def: "false", inert: "packets of no service always go to the kernel"},
		{name: "disable-crc32", def: "false", inert: "it concerns SCTP, which is not available yet"},
		{name: "rss-enable", def: "false", inert: "packets are spread over CPUs by the kernel"},
		{name: "sockmapsupport", def: "false", inert: "it speeds up fullproxy, which is not available yet"},
		{name: "log-max-size", def: "50", inert: logInert},
		{name: "log-max-backups", def: "4", inert: logInert},
		{name: "log-max-age", def: "28", inert: logInert},
		{name: "log-no-compress", def: "false", inert: logInert},
		{name: "databasehost", def: "127.0.0.1", inert: userInert},
		{name: "databaseport", def: "3306", inert: userInert},
		{name: "databaseuser", def: "root", inert: userInert},
		{name: "databasepasswordpath", def: "/etc/loxilb/mysql_password", inert: userInert},
		{name: "databasename", def: "loxilb_db", inert: userInert},
		{name: "oauth2provider", def: "google", inert: oauthInert},
		{name: "oauth2google-clientid", inert: oauthInert},
		{name: "oauth2google-clientsecret", inert: oauthInert},
		{name: "oauth2google-redirecturl", inert: oauthInert},
		{name: "oauth2github-clientid", inert: oauthInert},
		{name: "oauth2github-clientsecret", inert: oauthInert},
		{name: "oauth2github-redirecturl", inert: oauthInert},
	}
}

const (
	logInert   = "the log goes to standard error, which whoever runs the daemon keeps"
	userInert  = "it concerns --userservice, which is not available yet"
	oauthInert = "it concerns --oauth2, which is not available yet"
)

// registerContract adds the flags, which the help does not show.
func registerContract(fs *pflag.FlagSet) {
	for _, f := range contractFlags() {
		usage := "no effect: " + f.inert
		if f.inert == "" {
			usage = "not available yet: " + f.what
		}
		if f.def == "false" {
			fs.BoolP(f.name, f.short, false, usage)
		} else {
			fs.StringP(f.name, f.short, f.def, usage)
		}
		fs.Lookup(f.name).Hidden = true
	}
}

// showContract has the help show them all.
func showContract(fs *pflag.FlagSet) {
	for _, f := range contractFlags() {
		fs.Lookup(f.name).Hidden = false
	}
}

// checkContract refuses what promises a feature, and returns a note for each flag that has no effect. A flag that
// holds its default says nothing, even when it is written.
func checkContract(fs *pflag.FlagSet) (notes []string, err error) {
	for _, f := range contractFlags() {
		v := fs.Lookup(f.name).Value.String()
		switch {
		case v == f.def:
		case f.inert == "":
			return nil, &Error{Flag: "--" + f.name, Value: v, Reason: f.what + " is not available yet"}
		default:
			notes = append(notes, fmt.Sprintf("--%s has no effect: %s", f.name, f.inert))
		}
	}
	return notes, nil
}
