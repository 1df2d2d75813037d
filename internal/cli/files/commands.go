// Package files has the commands about files of objects: what is applied from them and saved into
// them, and the revisions that come of it.
package files

import "loxilb/internal/cli/session"

// Commands are those of this folder, by verb.
func Commands(o *session.Options) session.Commands {
	return session.Commands{
		session.Describe: {describeRevisions(o)},
		session.Get:      {getRevisions(o)},
		session.Root: {
			applyCommand(o),
			planCommand(o),
			importCommand(o),
			exportCommand(o),
			confirmCommand(o),
			rollbackCommand(o),
			saveCommand(o),
		},
	}
}
