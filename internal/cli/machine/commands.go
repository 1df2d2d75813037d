// Package machine has the commands about the daemon and its machine: statuses, events, log level,
// version.
package machine

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Describe: {hastateKind().Describe(o), processKind().Describe(o), filesystemKind().Describe(o)},
		session.Get: {
			getCluster(o),
			getDrops(o),
			getEvents(o),
			hastateKind().Get(o),
			getLogLevel(o),
			processKind().Get(o),
			getDevice(o),
			getNode(o),
			filesystemKind().Get(o),
			getStatus(o),
			getVersion(o),
		},
		session.Node:   {drainNode(o), resumeNode(o)},
		session.Set:    {setBFD(o), setHastate(o), setLogLevel(o)},
		session.Root:   {versionCommand(o)},
		session.Delete: {deleteBFD(o)},
	}
}
