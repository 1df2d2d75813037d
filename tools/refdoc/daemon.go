package main

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"loxilb/internal/config"
)

const daemonHead = `.\" Generated from the flags of loxilb by tools/refdoc (make generate). Do not edit.
.TH LOXILB 8 "" loxilb "System administration"
.SH NAME
loxilb \- layer-4 load balancer in eBPF
.SH SYNOPSIS
.B loxilb
.RI [ FLAG ...]
.br
.B loxilb \-\-detach
.RB [ \-\-force ]
.br
.B loxilb \-\-check\-upgrade
.SH DESCRIPTION
loxilb balances TCP, UDP, SCTP and echo requests over endpoints, by programs at the tc
hook of the network interfaces of its namespace.
.BR loxicmd (1)
controls it through a REST API.
.PP
The daemon keeps services in its state directory. When it exits, the programs stay attached and go
on balancing, so it can be restarted or replaced under traffic.
.B loxilb \-\-detach
removes everything.
.PP
It runs as root on Linux 6.1 or newer. It needs no forwarding, and leaves packets of no service to
the kernel.
.SH FLAGS
`

const daemonTail = `.SH ROLE HOOK
The file of
.BR \-\-role\-hook ,
and each folder and link on its path, must be owned by root and writable by nobody else. It runs
when a role changes and at the start, one run at a time, for 10 s at most, with the instance's name,
its state (MASTER, BACKUP, FAULT, STOP or NOT_DEFINED) and the cluster's VIP, or 0.0.0.0.
The log shows how it ended; output of background processes is discarded. Names of other characters
than letters, digits, '.', '_' and '\-' are not passed to it.
.SH ENVIRONMENT
.TP
.B HOST, PORT, TLS, TLS_HOST, TLS_PORT, TLS_CERTIFICATE, TLS_PRIVATE_KEY, CPUPROF
Defaults of the flags of these names; CPUPROF that of
.BR \-\-cpuprofile .
.TP
.B LOXILB_COMPAT
With 1, as
.BR \-\-compat .
.SH FILES
.TP
.I /var/lib/loxilb
Services and other objects; users.json, with hashes of passwords and tokens; audit.jsonl and
audit.jsonl.1, the audit log, 8 MB each at most.
.TP
.I /run/loxilb/netns\-*.sock
Sockets of the API, one for each network namespace.
.TP
.I /sys/fs/bpf/loxilb
Maps and links, which keep balancing without a daemon.
.SH EXIT STATUS
0 after a requested end, 1 after a failure, 2 for a wrong command line, 75 after a drain of the node
that ends the daemon (loxicmd node drain \-\-exit): systemd does not start it again.
With
.BR \-\-check\-upgrade ,
0 if the new version can take over, 1 if not.
The reason is a sentence on standard error.
.SH SEE ALSO
.BR loxicmd (1),
.BR loxilb\-agent (8),
docs/ of the package
`

// daemonManual returns docs/man/loxilb.8, made of the daemon's flags.
func daemonManual() string {
	w := &manualWriter{seen: map[string]string{}}
	w.b.WriteString(daemonHead)
	unused := map[string][]string{}
	var reasons []string
	config.Command(nil, os.LookupEnv, nil).Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			w.flag(f)
			return
		}
		if unused[f.Usage] == nil {
			reasons = append(reasons, f.Usage)
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		unused[f.Usage] = append(unused[f.Usage], name)
	})
	w.b.WriteString(".SH FLAGS OF THE EXISTING LOXILB\n")
	w.text("These flags are named in the log, or keep the daemon from starting if they have another value than their default. With --compat, none is refused.")
	for _, usage := range reasons {
		w.b.WriteString(".TP\n.B ")
		w.text(strings.Join(unused[usage], ", "))
		w.text(usage)
	}
	w.b.WriteString(daemonTail)
	return w.b.String()
}
