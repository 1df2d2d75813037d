// Package machine has the commands about the daemon and its machine: statuses, events, log level,
// version.
package machine

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Describe: {describeHastate(o), describeProcess(o), describeFilesystem(o)},
		session.Get: {
			getEvents(o),
			getHastate(o),
			getLogLevel(o),
			getProcess(o),
			getDevice(o),
			getFilesystem(o),
			getStatus(o),
			getVersion(o),
		},
		session.Set:  {setHastate(o), setLogLevel(o)},
		session.Root: {versionCommand(o)},
	}
}
