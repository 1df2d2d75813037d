// Package rates has the commands about counters: stats, rate, top.
package rates

import "loxilb/internal/cli/session"

// Commands returns the commands of this area, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{session.Root: {statsCommand(o), rateCommand(o), topCommand(o)}}
}
