// Package traffic has the commands about connections, and about firewall rules, policers, mirrors
// and mobile users.
package traffic

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Describe: {firewallKind(o).Describe(o)},
		session.Get:      {getCT(o), firewallKind(o).Get(o)},
		session.Create:   {createFirewall(o), createMirror(o), createPolicy(o), createSession(o), createSessionFlow(o)},
		session.Kill:     {killCT(o)},
		session.Delete:   {deleteFirewall(o), deleteSessionFlow(o)},
	}
}
