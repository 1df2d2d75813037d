// Package traffic has the commands about handling of packets besides load balancing: firewall
// rules, policers, mirrors.
package traffic

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Describe: {describeFirewall(o), describePolicy(o), describeMirror(o)},
		session.Get:      {getFirewall(o), getMirror(o), getPolicy(o)},
		session.Create:   {createFirewall(o), createMirror(o), createPolicy(o)},
		session.Delete:   {deleteFirewall(o), deleteMirror(o), deletePolicy(o)},
	}
}
